//! Commands about the server, not about messages.

use super::Status;
use super::line::Words;
use super::reply::{Fault, MemcacheReply};
use super::request::{Begun, no_more};
use super::session::{MemcacheSession, MemcacheState};
use crate::session::ClientRequest::{Host, Own};
use crate::session::{ClientRequest, HostRequest};

impl MemcacheSession {
    /// Begins one of them, whose verb is in small letters.
    pub(super) fn about_server(&mut self, verb: &[u8], used: usize, mut words: Words<'_>) -> Begun {
        let (ask, reply) = match verb {
            b"stats" => (Host(HostRequest::Stats), MemcacheReply::Stats),
            b"dump_stats" => {
                let only = words
                    .map(|word| self.queue(Some(word)))
                    .collect::<Result<_, _>>()?;
                (Host(HostRequest::Stats), MemcacheReply::DumpStats(only))
            }
            b"status" => {
                let requested = self.status(words.next())?;
                no_more(&words)?;
                requested
            }
            _ => {
                no_more(&words)?;
                match verb {
                    b"version" => (Own, MemcacheReply::Version),
                    b"dump_config" => (Host(HostRequest::Config), MemcacheReply::Config),
                    b"reload" => (Host(HostRequest::Reload), MemcacheReply::Reloaded),
                    b"shutdown" => {
                        // Granted or not, the connection ends.
                        self.state = MemcacheState::Over;
                        (Host(HostRequest::Shutdown), MemcacheReply::Goodbye)
                    }
                    _ => return Err(Fault::SYNTAX),
                }
            }
        };
        Ok(self.last(used, ask, reply))
    }

    /// Shows or sets the listener's state.
    fn status(&self, word: Option<&[u8]>) -> Result<(ClientRequest, MemcacheReply), Fault> {
        let Some(word) = word else {
            let line = match self.shared.status() {
                Status::Up => "UP\r\n",
                Status::ReadOnly => "READONLY\r\n",
                Status::Quiescent => "QUIESCENT\r\n",
            };
            return Ok((Own, MemcacheReply::Line(line)));
        };
        let is = |status: &Status| word.eq_ignore_ascii_case(status.word().as_bytes());
        let status = Status::ALL.into_iter().find(is).ok_or(Fault::SYNTAX)?;
        Ok((Host(HostRequest::Listener), MemcacheReply::Become(status)))
    }
}
