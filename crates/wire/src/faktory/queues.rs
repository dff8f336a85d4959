//! Operations on queues, one after the other.

use std::collections::VecDeque;
use std::fmt::Write as _;

use quintet_types::{Command, Name, Outcome, StatsOf, StatsReply};

use super::job;
use super::json;
use crate::session::{page, page_of};

quintet_types::named! {
    /// The subcommand of QUEUE.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(super) enum Sub, word {
        Pause = "PAUSE",
        Resume = "RESUME",
        Remove = "REMOVE",
        Latency = "LATENCY",
    }
}

impl Sub {
    /// In any case.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|sub| sub.word().eq_ignore_ascii_case(word))
    }

    fn command(self, queue: Name) -> Command {
        match self {
            Sub::Pause => Command::Pause {
                queue,
                for_ms: None,
            },
            Sub::Resume => Command::Pause {
                queue,
                for_ms: Some(0),
            },
            Sub::Remove => Command::Drop(queue),
            Sub::Latency => Command::Stats(StatsOf::Queue(queue)),
        }
    }
}

/// A QUEUE command in its middle.
#[derive(Debug, PartialEq)]
pub(super) struct Each {
    sub: Sub,
    /// Whether the names are still gathered.
    gathers: bool,
    left: VecDeque<Name>,
    /// Members of what LATENCY answers.
    shown: String,
}

impl Each {
    /// The first command, if there is anything to do.
    pub(super) fn begin(sub: Sub, names: Option<Vec<Name>>) -> (Self, Option<Command>) {
        let each = Self {
            sub,
            gathers: names.is_none(),
            left: names.unwrap_or_default().into(),
            shown: String::new(),
        };
        let first = match each.gathers {
            true => Some(page((0, 0))),
            false => each.next(),
        };
        (each, first)
    }

    fn next(&self) -> Option<Command> {
        self.left.front().map(|name| self.sub.command(name.clone()))
    }

    /// Goes on; `None`: all is done.
    pub(super) fn go_on(&mut self, outcome: &Outcome) -> Option<Command> {
        if self.gathers {
            let page_of = page_of(outcome)?;
            let legal = page_of.queues.iter().map(|queue| &queue.name);
            let legal = legal.filter(|name| job::is_queue(name.as_bytes()));
            self.left.extend(legal.cloned());
            if let Some(from) = page_of.next {
                return Some(page(from));
            }
            self.gathers = false;
            return self.next();
        }
        if let Some(name) = self.left.pop_front()
            && self.sub == Sub::Latency
        {
            self.latency(&name, outcome);
        }
        self.next()
    }

    fn latency(&mut self, name: &Name, outcome: &Outcome) {
        let mut oldest_ms = 0;
        if let Outcome::Stats(reply) = outcome
            && let StatsReply::Queue(queue) = &**reply
            && queue.gauges.ready > 0
        {
            oldest_ms = queue.oldest_ms;
        }
        if !self.shown.is_empty() {
            self.shown.push(',');
        }
        json::quote(&json::text_of(name.as_bytes()), &mut self.shown);
        let (seconds, ms) = (oldest_ms / 1000, oldest_ms % 1000);
        let mut number = format!("{seconds}.{ms:03}");
        let end = number.trim_end_matches('0').trim_end_matches('.').len();
        number.truncate(end);
        write!(self.shown, ":{number}").expect("strings take all");
    }

    /// The reply; `None`: `+OK`.
    pub(super) fn answer(self) -> Option<String> {
        (self.sub == Sub::Latency).then(|| format!("{{{}}}", self.shown))
    }

    pub(super) fn capacity(&self) -> usize {
        self.shown.capacity() + self.left.capacity() * size_of::<Name>()
    }
}
