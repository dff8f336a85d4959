//! The text protocol's own login, as memcached has it with `-Y`: the first
//! command is a `set` or `ms`, of whatever key, whose data block is `NAME PASSWORD`.

use super::line::{Words, number};
use super::meta;
use super::reply::{Fault, MemcacheReply};
use super::session::{MemcacheSession, MemcacheState};
use crate::login::name_and_secret;
use crate::session::{ClientRequest, Env, Step};

/// Bytes of such a data block at most.
const BLOCK_MAX: usize = 2048;
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated\r\n";
const END: &[u8] = b"\r\n";

impl MemcacheSession {
    /// A line of a client that has to log in first.
    pub(super) fn unauthenticated(&mut self, line: &[u8]) -> Step {
        let used = line.len();
        let mut words = Words::new(line);
        let (length, reply) = match words.next() {
            // Key, flags and expiry are nobody's concern.
            Some(b"set") => (words.nth(3), MemcacheReply::LoggedIn),
            Some(b"ms") => {
                let key = words.next().unwrap_or_default();
                let length = words.next();
                match meta::login(words, key) {
                    Ok(reply) => (length, reply),
                    Err(_) => (None, MemcacheReply::LoggedIn),
                }
            }
            Some(b"quit") => {
                self.state = MemcacheState::Over;
                return self.owed.close(used, MemcacheReply::Goodbye);
            }
            _ => {
                let reply = MemcacheReply::Line(UNAUTHENTICATED);
                return self.owed.own(used, reply);
            }
        };
        let length = length.and_then(number);
        let length = length.and_then(|length| usize::try_from(length).ok());
        match length.filter(|length| *length <= BLOCK_MAX) {
            Some(length) => {
                self.state = MemcacheState::Login(length, reply);
                Step::Skip { used }
            }
            // Where its data block ends is not known.
            None => {
                self.state = MemcacheState::Over;
                let reply = MemcacheReply::Fault(Fault::BAD_DATA);
                self.owed.close(used, reply)
            }
        }
    }

    /// The data block of such a set.
    pub(super) fn login(
        &mut self,
        (len, reply): (usize, MemcacheReply),
        input: &[u8],
        env: &Env<'_>,
    ) -> Step {
        let used = len + END.len();
        if input.len() < used {
            self.state = MemcacheState::Login(len, reply);
            return Step::More;
        }
        let (block, end) = input[..used].split_at(len);
        if end != END {
            return self.fault(used, Fault::BAD_DATA, env);
        }
        let login = ClientRequest::Login(name_and_secret(block));
        self.owed.ask(used, login, reply)
    }
}
