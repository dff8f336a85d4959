//! The commands, one by one.

use quintet_types::{BackTo, Command, How, Name, Take, Wait, When};

use super::line::{Announced, GetOptions, Target, Words, number};
use super::reply::{Fault, MemcacheReply, Monitor};
use super::session::{CRLF, MemcacheSession, MemcacheState, Set, Unwanted};
use super::{Count, Status};
use crate::login::Logins;
use crate::session::{ClientRequest, Env, Step};

/// A data block this many times longer than an item may be is not even read
/// and dropped.
pub(super) const SWALLOW_TIMES_MAX: u64 = 16;

/// The longest verb.
const VERB_MAX: usize = "flush_all_expired".len();

/// A request's first step; `None` if it waits in the session's parts or state.
pub(super) type Begun = Result<Option<Step>, Fault>;

impl MemcacheSession {
    /// Begins the request of a whole line.
    pub(super) fn request(&mut self, line: &[u8], env: &Env<'_>) -> Begun {
        let used = line.len();
        if env.logins == Logins::Needed {
            return Ok(Some(self.unauthenticated(line)));
        }
        let mut words = Words::new(line);
        let verb = words.next().unwrap_or_default();
        let mut lower = [0; VERB_MAX];
        let Some(lower) = lower.get_mut(..verb.len()) else {
            return Ok(Some(self.unknown(line, env)));
        };
        lower.copy_from_slice(verb);
        lower.make_ascii_lowercase();
        match &*lower {
            b"get" | b"gets" => self.get(used, words, env),
            b"set" => self.set(used, words, env),
            b"delete" => self.delete(used, words, env),
            b"flush" => self.flush(used, words, env),
            b"flush_all" => self.flush_all(used, words, env),
            b"flush_expired" => self.flush_expired(used, words, env),
            b"flush_all_expired" => {
                no_more(&words)?;
                self.remove(used, Command::FlushExpired(None), MemcacheReply::Count, env)
            }
            b"monitor" => self.monitor(used, words, env),
            b"confirm" => self.confirm(used, words, env),
            b"add" | b"replace" | b"append" | b"prepend" => self.not_a_cache(used, words, false),
            b"cas" => self.not_a_cache(used, words, true),
            b"incr" | b"decr" | b"touch" | b"ma" | b"gat" | b"gats" => Err(Fault::NOT_A_CACHE),
            b"mg" | b"ms" | b"md" | b"me" | b"mn" => self.meta(lower, used, words, env),
            b"quit" => {
                self.state = MemcacheState::Over;
                Ok(self.last(used, ClientRequest::Close, MemcacheReply::Goodbye))
            }
            b"version" | b"stats" | b"dump_stats" | b"dump_config" | b"reload" | b"status"
            | b"shutdown" => {
                env.tally.bump(Count::Other as usize);
                self.about_server(lower, used, words)
            }
            _ => Ok(Some(self.unknown(line, env))),
        }
    }

    /// A line whose verb is none, unless a hook knows it.
    fn unknown(&mut self, line: &[u8], env: &Env<'_>) -> Step {
        env.tally.bump(Count::Fault as usize);
        let ask = ClientRequest::Unknown(line.trim_ascii_end().into());
        self.owed
            .ask(line.len(), ask, MemcacheReply::Fault(Fault::SYNTAX))
    }

    fn get(&mut self, used: usize, mut words: Words<'_>, env: &Env<'_>) -> Begun {
        let word = words.next().ok_or(Fault::SYNTAX)?;
        no_more(&words)?;
        let target = Target::parse(word, self.shared.name_max)?;
        let options = GetOptions::parse(target.options)?;
        let reply = if options.only_settle() {
            MemcacheReply::Line("END\r\n")
        } else {
            MemcacheReply::Value { peek: options.peek }
        };
        self.fetch(used, &target, &options, reply, env)
    }

    /// A get of any form; a settled open read is answered with a count.
    pub(super) fn fetch(
        &mut self,
        used: usize,
        target: &Target<'_>,
        options: &GetOptions,
        reply: MemcacheReply,
        env: &Env<'_>,
    ) -> Begun {
        let queue = Name::new(target.name);
        if options.only_settle() {
            env.tally.bump(Count::Settle as usize);
            let how = if options.abort {
                How::Release {
                    priority: None,
                    due: When::Now,
                    back_to: Some(BackTo::Head),
                }
            } else {
                How::Finish
            };
            let command = self.settle(queue, how, 1);
            return Ok(self.last(used, ClientRequest::Engine(command), reply));
        }
        if self.shared.status() == Status::Quiescent {
            return Err(Fault::QUIESCENT);
        }
        env.tally.bump(if options.peek {
            Count::Peek as usize
        } else {
            Count::Get as usize
        });
        self.join(target, reply.part());
        if options.close {
            env.tally.bump(Count::Settle as usize);
            let command = self.settle(queue.clone(), How::Finish, 1);
            self.parts
                .push_back((0, ClientRequest::Engine(command), reply.part()));
        }
        let single = self.shared.single_open_read;
        let take = Take {
            queues: [queue].into(),
            lease: options.open.then(|| self.shared.open_read()),
            peek: options.peek,
            wait: match options.wait_ms {
                0 => Wait::No,
                ms => Wait::For(ms),
            },
            messages_max: 1,
            // Kestrel lets a client with an open read look; Darner does not.
            refuse_if_held: u32::from(!options.open && (!options.peek || single)),
            held_anywhere: single,
            ..Take::default()
        };
        let take = Command::Take(take);
        let ask = if reply.errors_close() {
            ClientRequest::EngineOrClose(take)
        } else {
            ClientRequest::Engine(take)
        };
        Ok(self.last(used, ask, reply))
    }

    fn set(&mut self, used: usize, mut words: Words<'_>, env: &Env<'_>) -> Begun {
        let word = words.next().ok_or(Fault::SYNTAX)?;
        let target = Target::parse(word, self.shared.name_max)?;
        let sync = target.only_sync()?;
        let announced = Announced::parse(words, false).ok_or(Fault::SYNTAX)?;
        let set = Set {
            queue: Name::new(target.name),
            flags: announced.flags,
            expires: announced.expires,
            len: announced.len,
            end: CRLF,
            sync,
            reply: MemcacheReply::Stored {
                noreply: announced.noreply,
            },
        };
        self.put(used, &target, set, env)
    }

    /// A set of any form.
    pub(super) fn put(
        &mut self,
        used: usize,
        target: &Target<'_>,
        set: Set,
        env: &Env<'_>,
    ) -> Begun {
        self.may_write()?;
        self.not_far_too_large(set.len)?;
        env.tally.bump(Count::Set as usize);
        let part = set.reply.part();
        let state = self.announced(used, set);
        if let MemcacheState::Unwanted { .. } = state {
            self.state = state;
            return Ok(Some(Step::Skip { used }));
        }
        self.join(target, part);
        self.state = state;
        Ok(None)
    }

    /// A storage command of memcached that a queue cannot serve: its data is
    /// read, so that it is not taken for commands.
    fn not_a_cache(&mut self, used: usize, mut words: Words<'_>, cas: bool) -> Begun {
        words.next().ok_or(Fault::SYNTAX)?;
        let announced = Announced::parse(words, cas).ok_or(Fault::SYNTAX)?;
        self.unwanted_data(used, announced.len)
    }

    /// So many bytes of data follow, of such a command.
    pub(super) fn unwanted_data(&mut self, used: usize, len: u64) -> Begun {
        self.not_far_too_large(len)?;
        self.state = MemcacheState::unwanted(len, CRLF, Unwanted::NotACache);
        Ok(Some(Step::Skip { used }))
    }

    fn delete(&mut self, used: usize, mut words: Words<'_>, env: &Env<'_>) -> Begun {
        let queue = self.queue(words.next())?;
        let noreply = only_number_and_noreply(words)?;
        let reply = MemcacheReply::Line(if noreply { "" } else { "DELETED\r\n" });
        self.remove(used, Command::Drop(queue), reply, env)
    }

    /// A command that removes messages.
    pub(super) fn remove(
        &mut self,
        used: usize,
        command: Command,
        reply: MemcacheReply,
        env: &Env<'_>,
    ) -> Begun {
        self.may_write()?;
        env.tally.bump(Count::Remove as usize);
        Ok(self.last(used, ClientRequest::Engine(command), reply))
    }

    fn flush(&mut self, used: usize, mut words: Words<'_>, env: &Env<'_>) -> Begun {
        let queue = self.queue(words.next())?;
        no_more(&words)?;
        let reserved = false;
        let command = Command::Flush { queue, reserved };
        self.remove(used, command, MemcacheReply::Line("END\r\n"), env)
    }

    fn flush_all(&mut self, used: usize, words: Words<'_>, env: &Env<'_>) -> Begun {
        let noreply = only_number_and_noreply(words)?;
        let reply = MemcacheReply::Line(match (noreply, self.shared.flush_all_ok) {
            (true, _) => "",
            (false, true) => "OK\r\n",
            (false, false) => "Flushed all queues.\r\n",
        });
        self.remove(used, Command::FlushAll, reply, env)
    }

    fn flush_expired(&mut self, used: usize, mut words: Words<'_>, env: &Env<'_>) -> Begun {
        let queue = self.queue(words.next())?;
        no_more(&words)?;
        let command = Command::FlushExpired(Some(queue));
        self.remove(used, command, MemcacheReply::Count, env)
    }

    fn monitor(&mut self, used: usize, mut words: Words<'_>, env: &Env<'_>) -> Begun {
        let word = words.next().ok_or(Fault::SYNTAX)?;
        let target = Target::parse(word, self.shared.name_max)?;
        let queue = Name::new(target.name);
        let seconds = words.next().and_then(number).ok_or(Fault::SYNTAX)?;
        let left = match words.next() {
            None => u64::MAX,
            Some(word) => number(word).filter(|&n| n > 0).ok_or(Fault::SYNTAX)?,
        };
        no_more(&words)?;
        if !target.options.is_empty() {
            return Err(Fault::BAD_OPTION);
        }
        if self.shared.status() == Status::Quiescent {
            return Err(Fault::QUIESCENT);
        }
        env.tally.bump(Count::Get as usize);
        self.join(&target, MemcacheReply::Silent);
        let monitor = Box::new(Monitor {
            queue,
            until: env.now + seconds.saturating_mul(1000),
            left,
        });
        // Not one that closes when refused: at the limit of open reads a
        // monitor merely ends.
        let ask = ClientRequest::EngineAlone(monitor.take(&self.shared));
        Ok(self.last(used, ask, MemcacheReply::Monitor(monitor)))
    }

    fn confirm(&mut self, used: usize, mut words: Words<'_>, env: &Env<'_>) -> Begun {
        let queue = self.queue(words.next())?;
        let max = words.next().and_then(number).ok_or(Fault::SYNTAX)?;
        no_more(&words)?;
        env.tally.bump(Count::Settle as usize);
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let command = self.settle(queue, How::Finish, max);
        Ok(self.last(
            used,
            ClientRequest::Engine(command),
            MemcacheReply::Confirmed,
        ))
    }

    /// A queue's name without options.
    pub(super) fn queue(&self, word: Option<&[u8]>) -> Result<Name, Fault> {
        let word = word.ok_or(Fault::SYNTAX)?;
        Target::parse(word, self.shared.name_max)?
            .alone()
            .map(Name::new)
    }

    /// A fan-out name makes its queue a child from its first mention on. Asked
    /// every time, because the queue may have been deleted since.
    fn join(&mut self, target: &Target<'_>, reply: MemcacheReply) {
        if let Some(plus) = target.parent {
            let command = Command::Join {
                parent: Name::new(&target.name[..plus]),
                child: Name::new(target.name),
            };
            self.parts
                .push_back((0, ClientRequest::EngineOrClose(command), reply));
        }
    }

    fn settle(&self, queue: Name, how: How, max: u32) -> Command {
        Command::SettleHeld {
            queue: (!self.shared.single_open_read).then_some(queue),
            how,
            max,
        }
    }

    fn may_write(&self) -> Result<(), Fault> {
        match self.shared.status() {
            Status::Up => Ok(()),
            Status::ReadOnly => Err(Fault::READ_ONLY),
            Status::Quiescent => Err(Fault::QUIESCENT),
        }
    }

    fn not_far_too_large(&self, len: u64) -> Result<(), Fault> {
        if len / SWALLOW_TIMES_MAX > self.shared.item_max {
            Err(Fault::FAR_TOO_LARGE)
        } else {
            Ok(())
        }
    }
}

pub(super) fn no_more(words: &Words<'_>) -> Result<(), Fault> {
    if words.more() {
        Err(Fault::SYNTAX)
    } else {
        Ok(())
    }
}

/// Old clients send a time with deletes and flushes; it is ignored. True if
/// no reply is wanted.
fn only_number_and_noreply(mut words: Words<'_>) -> Result<bool, Fault> {
    let mut word = words.next();
    if word.is_some_and(|word| number(word).is_some()) {
        word = words.next();
    }
    no_more(&words)?;
    match word {
        None => Ok(false),
        Some(b"noreply") => Ok(true),
        Some(_) => Err(Fault::SYNTAX),
    }
}
