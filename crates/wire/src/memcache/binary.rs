//! Requests of memcached's binary protocol. What they mean of a queue is in
//! `docs/protocols/memcache.md`.

use quintet_types::{Command, Name};

use super::Count;
use super::binary_reply::{HEAD, Head, REQUEST, Status, What};
use super::line::{GetOptions, Target, expiry_of};
use super::opcode;
use super::reply::{Fault, MemcacheReply};
use super::request::{Begun, SWALLOW_TIMES_MAX};
use super::session::{MemcacheSession, MemcacheState, Set, Unwanted};
use crate::login::{Login, Logins};
use crate::session::{ClientRequest, Env, HostRequest, Step};

/// Bytes behind the header of a login, or of anything of a client that has to
/// log in first, at most.
const LOGIN_MAX: u64 = 4096;
/// Bytes of extras in front of a set's key: flags and expiry.
const SET_EXTRAS: usize = 8;

/// A request's header.
#[derive(Clone, Copy)]
struct Frame {
    head: Head,
    extras: usize,
    key: usize,
    /// Bytes behind the header: extras, key and value.
    total: u64,
    cas: u64,
}

impl Frame {
    /// `None`: it is no request, or its lengths contradict each other.
    fn read(bytes: &[u8; HEAD]) -> Option<Self> {
        let [
            REQUEST,
            opcode,
            key_high,
            key_low,
            extras,
            _,
            _,
            _,
            rest @ ..,
        ] = *bytes
        else {
            return None;
        };
        let [t0, t1, t2, t3, o0, o1, o2, o3, cas @ ..] = rest;
        let frame = Self {
            head: Head {
                opcode,
                opaque: [o0, o1, o2, o3],
            },
            extras: usize::from(extras),
            key: usize::from(u16::from_be_bytes([key_high, key_low])),
            total: u64::from(u32::from_be_bytes([t0, t1, t2, t3])),
            cas: u64::from_be_bytes(cas),
        };
        (frame.before_value() <= frame.total).then_some(frame)
    }

    fn before_value(&self) -> u64 {
        (self.extras + self.key) as u64
    }

    fn value(&self) -> u64 {
        self.total - self.before_value()
    }
}

/// The parts behind a header.
struct Parts<'a> {
    key: &'a [u8],
    value: &'a [u8],
}

impl MemcacheSession {
    /// Begins the request in front of the input, which is not empty. `None`:
    /// it waits in the session's parts or state.
    pub(super) fn binary(&mut self, input: &[u8], env: &Env<'_>) -> Option<Step> {
        let Some(bytes) = input.first_chunk() else {
            if input.first() != Some(&REQUEST) {
                return Some(self.broken(Head::default(), env));
            }
            return Some(Step::More);
        };
        let Some(frame) = Frame::read(bytes) else {
            return Some(self.broken(Head::default(), env));
        };
        if env.logins == Logins::Needed && !opcode::BEFORE_LOGIN.contains(&frame.head.opcode) {
            return Some(self.refuse(frame, Status::Auth, "unauthenticated", env));
        }
        match frame.head.opcode {
            opcode::SET | opcode::SETQ => self.binary_set(frame, input, env),
            // add, replace, increment, decrement, append, prepend and their
            // quiet forms; verbosity, touch, get and touch.
            0x02..=0x03
            | 0x05..=0x06
            | 0x0e..=0x0f
            | 0x12..=0x13
            | 0x15..=0x16
            | 0x19..=0x1e
            | 0x23..=0x24 => {
                let text = "not supported by a queue server";
                Some(self.refuse(frame, Status::NotSupported, text, env))
            }
            _ => self.small(frame, input, env),
        }
    }

    /// A request that has come whole before anything is done.
    fn small(&mut self, frame: Frame, input: &[u8], env: &Env<'_>) -> Option<Step> {
        use opcode::{
            DELETE, DELETEQ, FLUSH, FLUSHQ, GET, GETK, GETKQ, GETQ, NOOP, QUIT, QUITQ, SASL_AUTH,
            SASL_LIST, SASL_STEP, STAT, VERSION,
        };
        let opcode = frame.head.opcode;
        let fits = match opcode {
            GET | GETQ | GETK | GETKQ | DELETE | DELETEQ => {
                frame.extras == 0
                    && frame.key > 0
                    && frame.key <= self.shared.line_max
                    && frame.value() == 0
            }
            // How long to wait before it is ignored.
            FLUSH | FLUSHQ => matches!(frame.total, 0 | 4) && frame.key == 0 && frame.value() == 0,
            STAT => frame.extras == 0 && frame.key <= self.shared.line_max && frame.value() == 0,
            SASL_AUTH | SASL_STEP => frame.extras == 0 && frame.total <= LOGIN_MAX,
            NOOP | VERSION | QUIT | QUITQ | SASL_LIST => frame.total == 0,
            _ => return Some(self.refuse(frame, Status::Unknown, "unknown command", env)),
        };
        if !fits {
            return Some(self.refuse(frame, Status::Invalid, "invalid arguments", env));
        }
        let used = HEAD + usize::try_from(frame.total).unwrap_or_default();
        let Some(body) = input.get(HEAD..used) else {
            return Some(Step::More);
        };
        let (key, value) = body[frame.extras..].split_at(frame.key);
        let parts = Parts { key, value };
        let begun = match opcode {
            GET | GETQ | GETK | GETKQ => self.binary_get(used, frame, &parts, env),
            DELETE | DELETEQ => self.queue(Some(key)).and_then(|queue| {
                let reply = reply(frame, What::Done);
                self.remove(used, Command::Drop(queue), reply, env)
            }),
            FLUSH | FLUSHQ => self.remove(used, Command::FlushAll, reply(frame, What::Done), env),
            QUIT | QUITQ => {
                self.state = MemcacheState::Over;
                Ok(self.last(used, ClientRequest::Close, reply(frame, What::Quit)))
            }
            SASL_LIST | SASL_AUTH | SASL_STEP => Ok(Some(self.sasl(used, frame, &parts, env))),
            NOOP | VERSION | STAT => {
                env.tally.bump(Count::Other as usize);
                let (ask, what) = match (opcode, key) {
                    (VERSION, _) => (ClientRequest::Own, What::Version),
                    (STAT, b"") => (ClientRequest::Host(HostRequest::Stats), What::Stats),
                    (STAT, _) => (
                        ClientRequest::Own,
                        What::Error(Status::NotFound, "no such statistics"),
                    ),
                    _ => (ClientRequest::Own, What::Done),
                };
                Ok(self.last(used, ask, reply(frame, what)))
            }
            _ => Ok(None),
        };
        match begun {
            Ok(step) => step,
            Err(fault) => {
                env.tally.bump(Count::Fault as usize);
                let (status, text) = status_of(fault);
                let (ask, what) = if frame.head.errors_close() {
                    self.state = MemcacheState::Over;
                    (ClientRequest::Close, What::Fault(status, text))
                } else {
                    (ClientRequest::Own, What::Error(status, text))
                };
                Some(self.owed.ask(used, ask, reply(frame, what)))
            }
        }
    }

    fn binary_get(&mut self, used: usize, frame: Frame, parts: &Parts<'_>, env: &Env<'_>) -> Begun {
        let target = Target::parse(parts.key, self.shared.name_max)?;
        let options = GetOptions::parse(target.options)?;
        let wanted = matches!(frame.head.opcode, opcode::GETK | opcode::GETKQ);
        let what = What::Get {
            peek: options.peek,
            key: wanted.then(|| parts.key.into()),
        };
        self.fetch(used, &target, &options, reply(frame, what), env)
    }

    fn binary_set(&mut self, frame: Frame, input: &[u8], env: &Env<'_>) -> Option<Step> {
        if frame.extras != SET_EXTRAS || frame.key == 0 || frame.key > self.shared.line_max {
            return Some(self.refuse(frame, Status::Invalid, "invalid arguments", env));
        }
        if frame.cas != 0 {
            let text = "not supported by a queue server";
            return Some(self.refuse(frame, Status::NotSupported, text, env));
        }
        let used = HEAD + SET_EXTRAS + frame.key;
        let Some(body) = input.get(HEAD..used) else {
            return Some(Step::More);
        };
        let (extras, key) = body.split_at(SET_EXTRAS);
        let (flags, expires) = extras.split_at(4);
        match self.begin_set(used, frame, key, (be32(flags), be32(expires)), env) {
            Ok(step) => step,
            Err(fault) => {
                let (status, text) = status_of(fault);
                Some(self.refuse(frame, status, text, env))
            }
        }
    }

    fn begin_set(
        &mut self,
        used: usize,
        frame: Frame,
        key: &[u8],
        (flags, seconds): (u32, u32),
        env: &Env<'_>,
    ) -> Begun {
        let target = Target::parse(key, self.shared.name_max)?;
        let set = Set {
            queue: Name::new(target.name),
            flags,
            expires: expiry_of(u64::from(seconds)),
            len: frame.value(),
            end: b"",
            sync: target.only_sync()?,
            reply: reply(frame, What::Set),
        };
        self.put(used, &target, set, env)
    }

    fn sasl(&mut self, used: usize, frame: Frame, parts: &Parts<'_>, env: &Env<'_>) -> Step {
        let what = if env.logins == Logins::Off {
            // As memcached without SASL, so that clients go on without.
            What::Error(Status::Unknown, "unknown command")
        } else if frame.head.opcode == opcode::SASL_LIST {
            What::Mechanisms
        } else if parts.key != b"PLAIN" {
            What::Error(Status::Auth, "PLAIN is the only mechanism")
        } else if let Some(login) = plain(parts.value) {
            return self
                .owed
                .ask(used, ClientRequest::Login(login), reply(frame, What::Login));
        } else {
            What::Error(Status::Auth, "not as PLAIN has it")
        };
        self.owed.own(used, reply(frame, what))
    }

    /// Answers an error, and drops what belongs to the request.
    fn refuse(&mut self, frame: Frame, status: Status, text: &'static str, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        let far = match env.logins {
            Logins::Needed => frame.total > LOGIN_MAX,
            Logins::Off | Logins::Open => {
                frame.total / SWALLOW_TIMES_MAX > self.shared.item_max.max(LOGIN_MAX)
            }
        };
        if far || frame.head.errors_close() {
            self.state = MemcacheState::Over;
            let what = What::Fault(status, text);
            return self.owed.close(HEAD, reply(frame, what));
        }
        let reply = reply(frame, What::Error(status, text));
        if frame.total == 0 {
            return self.owed.own(HEAD, reply);
        }
        self.state = MemcacheState::unwanted(frame.total, b"", Unwanted::Dropped(reply));
        Step::Skip { used: HEAD }
    }

    /// Where the next request begins is not known.
    fn broken(&mut self, head: Head, env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        self.state = MemcacheState::Over;
        let what = What::Fault(Status::Invalid, "invalid header");
        let reply = MemcacheReply::binary_of(head, what);
        self.owed.close(0, reply)
    }
}

fn reply(frame: Frame, what: What) -> MemcacheReply {
    MemcacheReply::binary_of(frame.head, what)
}

/// A protocol error as this form has it.
fn status_of(fault: Fault) -> (Status, &'static str) {
    let status = if fault == Fault::READ_ONLY || fault == Fault::QUIESCENT {
        Status::Temporary
    } else if fault == Fault::FAR_TOO_LARGE {
        Status::TooLarge
    } else {
        Status::Invalid
    };
    let text = fault.0.trim_end();
    let text = text
        .strip_prefix("CLIENT_ERROR")
        .or_else(|| text.strip_prefix("SERVER_ERROR"))
        .unwrap_or(text);
    (status, text.trim_start())
}

fn be32(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Reads what SASL's PLAIN sends (RFC 4616): whom to act for, a name and a
/// password, with a NUL between them. Nobody acts for another.
fn plain(value: &[u8]) -> Option<Login> {
    let mut parts = value.split(|byte| *byte == 0);
    let (whom, name, secret) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || name.is_empty() || !(whom.is_empty() || whom == name) {
        return None;
    }
    Some(Login {
        name: name.into(),
        secret: secret.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_has_three_parts() {
        let read = |value: &[u8]| plain(value).map(|login| (login.name, login.secret));
        let ann = Some((b"ann"[..].into(), b"hush"[..].into()));
        assert_eq!(read(b"\0ann\0hush"), ann);
        assert_eq!(read(b"ann\0ann\0hush"), ann);
        assert_eq!(read(b"\0ann\0"), Some((b"ann"[..].into(), b""[..].into())));
        for bad in [
            &b""[..],
            b"ann",
            b"ann\0hush",
            b"\0\0hush",
            b"bob\0ann\0hush",
            b"\0ann\0hush\0",
        ] {
            assert_eq!(read(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn headers_that_contradict_themselves_are_none() {
        let head = |magic, key: u16, extras, total: u32| {
            let mut bytes = [0; HEAD];
            bytes[0] = magic;
            bytes[2..4].copy_from_slice(&key.to_be_bytes());
            bytes[4] = extras;
            bytes[8..12].copy_from_slice(&total.to_be_bytes());
            Frame::read(&bytes).map(|frame| frame.value())
        };
        assert_eq!(head(0x80, 3, 8, 16), Some(5));
        assert_eq!(head(0x80, 3, 8, 11), Some(0));
        assert_eq!(head(0x80, 3, 8, 10), None);
        assert_eq!(head(0x80, 1, 0, 0), None);
        assert_eq!(head(0x80, 0, 255, 254), None);
        assert_eq!(
            head(0x80, u16::MAX, u8::MAX, u32::MAX),
            Some(u64::from(u32::MAX) - 65_535 - 255)
        );
        assert_eq!(head(0x81, 0, 0, 0), None);
    }

    #[test]
    fn faults_are_sent_without_their_lines() {
        assert_eq!(
            status_of(Fault::BAD_NAME),
            (Status::Invalid, "bad queue name")
        );
        assert_eq!(status_of(Fault::NO_NAME), (Status::Invalid, ""));
        assert_eq!(
            status_of(Fault::READ_ONLY),
            (Status::Temporary, "server is read-only")
        );
        assert_eq!(status_of(Fault::FAR_TOO_LARGE).0, Status::TooLarge);
    }
}
