//! The tubes a connection uses and watches.

use quintet_types::{Command, ListState, Name, Take, Wait};

use super::names::DEFAULT;
use super::reply::{self, BeanstalkReply};
use super::request::LEASE;
use crate::session::ClientRequest;
use crate::session::ClientRequest::{Engine, EngineAlone, Own};

/// A reserve is answered with DEADLINE_SOON when a job of the client has less
/// time left than this.
const MARGIN_MS: u64 = 1000;

/// The used tube, and the watched ones, at least one.
pub(super) struct Referred {
    used: Name,
    /// The take of a reserve; its queues are the watched tubes.
    reserve: Take,
    /// Bytes of memory that they take.
    bytes: usize,
}

impl Referred {
    /// `default` alone, as connections begin.
    pub(super) fn new() -> Self {
        let default = Name::new(DEFAULT);
        Self {
            used: default.clone(),
            reserve: Take {
                queues: [default].into(),
                lease: Some(LEASE),
                deadline_soon_ms: Some(MARGIN_MS),
                ..Take::default()
            },
            bytes: 0,
        }
    }

    /// It uses and watches `default` alone.
    pub(super) fn are_as_opened(&self) -> bool {
        self.used.as_bytes() == DEFAULT
            && matches!(self.watched(), [watched] if *watched == self.used)
    }

    /// Tells the engine what a connection begins with.
    pub(super) fn first(&self) -> Command {
        refer(self.used.clone(), Some(true), Some(true))
    }

    /// The tube that is used.
    pub(super) fn used(&self) -> &Name {
        &self.used
    }

    /// Bytes of memory that watched tubes take, but for the first one.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The tubes that are watched, in no order.
    pub(super) fn watched(&self) -> &[Name] {
        &self.reserve.queues
    }

    /// A reserve of so many jobs at most from the watched tubes.
    pub(super) fn reserve(&self, messages_max: u32, wait: Wait) -> Command {
        let mut take = self.reserve.clone();
        take.wait = wait;
        take.messages_max = messages_max;
        Command::Take(take)
    }

    /// Kicks in the used tube.
    pub(super) fn kick(&self, state: ListState, max: u64) -> Command {
        Command::Kick {
            queue: self.used.clone(),
            state,
            max,
        }
    }

    /// Carries out `use`. The session leaves the tube before it when the engine has heard of the
    /// new one: [`Referred::now_using`].
    pub(super) fn use_one(&self, name: &[u8]) -> (ClientRequest, BeanstalkReply) {
        let name = Name::new(name);
        if name == self.used {
            return (Own, BeanstalkReply::Using(name));
        }
        let refer = refer(name.clone(), Some(true), None);
        (EngineAlone(refer), BeanstalkReply::NowUsing(name))
    }

    /// Uses a tube the engine has heard of; what lets go of the one before.
    pub(super) fn now_using(&mut self, name: Name) -> Command {
        refer(std::mem::replace(&mut self.used, name), Some(false), None)
    }

    /// Carries out `watch`, with at most `max` watched tubes. The session watches the tube when the
    /// engine has heard of it: [`Referred::now_watching`].
    pub(super) fn watch(&self, name: &[u8], max: usize) -> (ClientRequest, BeanstalkReply) {
        let (name, watched) = (Name::new(name), self.watched());
        if watched.contains(&name) {
            (Own, BeanstalkReply::Watching(watched.len()))
        } else if watched.len() >= max {
            (Own, BeanstalkReply::Line(reply::OUT_OF_MEMORY))
        } else {
            let refer = refer(name.clone(), None, Some(true));
            (EngineAlone(refer), BeanstalkReply::NowWatching(name))
        }
    }

    /// Watches a tube the engine has heard of; how many are watched.
    pub(super) fn now_watching(&mut self, name: Name) -> usize {
        self.bytes += bytes_of(&name);
        self.reserve.queues.push(name);
        self.reserve.queues.len()
    }

    /// Carries out `ignore`. The last watched tube stays watched.
    pub(super) fn ignore(&mut self, name: &[u8]) -> (ClientRequest, BeanstalkReply) {
        let watched = &mut self.reserve.queues;
        match watched.iter().position(|other| other.as_bytes() == name) {
            None => (Own, BeanstalkReply::Watching(watched.len())),
            Some(_) if watched.len() == 1 => (Own, BeanstalkReply::Line(b"NOT_IGNORED\r\n")),
            Some(at) => {
                let name = watched.swap_remove(at);
                // The first one was never counted.
                self.bytes = self.bytes.saturating_sub(bytes_of(&name));
                let refer = refer(name, None, Some(false));
                let reply = BeanstalkReply::Watching(watched.len());
                (Engine(refer), reply)
            }
        }
    }
}

/// Of a watched tube: in the list here, and in the engine's list of who refers to it.
fn bytes_of(name: &Name) -> usize {
    const REFERENCE: usize = 12;
    let long = name.as_bytes().len();
    size_of::<Name>() + REFERENCE + if long > 24 { long + 16 } else { 0 }
}

fn refer(queue: Name, uses: Option<bool>, watches: Option<bool>) -> Command {
    Command::Refer {
        queue,
        uses,
        watches,
    }
}
