//! Operations on queues, one after the other.

use std::collections::VecDeque;
use std::fmt::Write as _;

use quintet_types::{Command, Name, Outcome, QueuePage, StatsOf, StatsReply};

use super::job;
use super::json;

/// The subcommand of QUEUE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sub {
    Pause,
    Resume,
    Remove,
    Latency,
}

impl Sub {
    /// In any case.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        let all = [
            ("PAUSE", Self::Pause),
            ("RESUME", Self::Resume),
            ("REMOVE", Self::Remove),
            ("LATENCY", Self::Latency),
        ];
        let found = all
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(word));
        found.map(|(_, sub)| *sub)
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

/// Asks for a page of queues.
pub(super) fn page(from: (u8, u32)) -> Command {
    Command::Stats(StatsOf::Queues { from })
}

/// The page, if that is what came.
pub(super) fn page_of(outcome: &Outcome) -> Option<&QueuePage> {
    if let Outcome::Stats(reply) = outcome
        && let StatsReply::Queues(page) = &**reply
    {
        return Some(page);
    }
    None
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
