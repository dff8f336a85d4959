//! MUTATE: looks through jobs that are scheduled, to be retried or dead, and
//! does something to those that fit.

use std::collections::{BTreeSet, VecDeque};

use quintet_types::{
    BulkAction, BulkOp, By, Command, Cursor, Filter, How, ListState, Message, Ms, Name, Outcome,
};

use super::failure;
use super::glob;
use super::job::{self, is_queue, string};
use super::json::{self, Kind, Value};
use super::shown::job_shown;
use crate::session::{page, page_of};

/// Messages looked at in one step; fewer where each is compared with a pattern
/// as a whole.
const LOOKS: u32 = 100;
const LOOKS_AT_TEXT: u32 = 16;
/// Longest pattern, bytes.
const PATTERN_MAX: usize = 1024;

quintet_types::named! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    enum Act, word {
        /// Effect of `clear` and `discard`.
        #[default]
        Remove = "discard",
        Kill = "kill",
        Requeue = "requeue",
    }
}

quintet_types::named! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    enum Target, word {
        Scheduled = "scheduled",
        Retries = "retries",
        #[default]
        Dead = "dead",
    }
}

/// A mutation: its effect and the jobs it applies to.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Mutate {
    act: Act,
    target: Target,
    /// These and no others, if there are any.
    jids: BTreeSet<String>,
    jobtype: Option<String>,
    regexp: Option<String>,
}

/// Reads what stands behind the verb.
pub(super) fn read(rest: &str) -> Result<Mutate, String> {
    if !rest.trim_start().starts_with('{') {
        return Err("invalid format".to_owned());
    }
    of_object(json::whole(rest).map_err(|bad| bad.text())?)
}

fn of_object(object: Value<'_>) -> Result<Mutate, String> {
    let (mut cmd, mut target) = (String::new(), String::new());
    let mut mutate = Mutate::default();
    for (name, value) in object.given() {
        match &*name {
            "cmd" => cmd = string(&name, value)?,
            "target" => target = string(&name, value)?,
            "filter" => mutate.filter(value)?,
            _ => {}
        }
    }
    if cmd == "clear" {
        (mutate.jobtype, mutate.regexp) = (None, None);
        mutate.jids.clear();
        Act::Remove.word().clone_into(&mut cmd);
    }
    let act = Act::ALL.into_iter().find(|act| act.word() == cmd);
    mutate.act = act.ok_or("unknown mutate operation")?;
    let target = Target::ALL.into_iter().find(|known| known.word() == target);
    mutate.target = target.ok_or("invalid target for mutation command")?;
    Ok(mutate)
}

impl Mutate {
    fn filter(&mut self, filter: Value<'_>) -> Result<(), String> {
        if filter.kind != Kind::Object {
            return Err("filter is an object".to_owned());
        }
        for (name, value) in filter.given() {
            match &*name {
                "jids" if value.kind == Kind::Array => {
                    let jids = value.elements().map(|jid| string("a jid", jid));
                    self.jids = jids.collect::<Result<_, _>>()?;
                }
                "jids" => return Err("jids is an array".to_owned()),
                "jobtype" => self.jobtype = pattern(&name, value)?,
                "regexp" => self.regexp = pattern(&name, value)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn state(&self) -> ListState {
        match self.target {
            Target::Scheduled | Target::Retries => ListState::Delayed,
            Target::Dead => ListState::Buried,
        }
    }

    /// Whether a message is one of those.
    fn fits(&self, message: &Message, queue: &Name, jobtype: &str, now: Ms) -> bool {
        let failed = failure::has_failed(message);
        let of_target = match self.target {
            Target::Scheduled => !failed,
            Target::Retries => failed,
            Target::Dead => true,
        };
        if !of_target {
            return false;
        }
        let text = |shown: &mut Option<String>| {
            shown
                .get_or_insert_with(|| job_shown(message, queue, jobtype, now))
                .clone()
        };
        let mut shown = None;
        if !self.jids.is_empty() {
            return match message.name() {
                Some(name) => self.jids.contains(&*json::text_of(name)),
                None => self.jids.contains(&job::foreign_jid(message.id)),
            };
        }
        let of_type = self.jobtype.as_ref().is_none_or(|pattern| {
            let text = text(&mut shown);
            let found = json::whole(&text).ok();
            let found = found.and_then(|job| job.members().find(|(name, _)| name == "jobtype"));
            let jobtype = found.and_then(|(_, value)| value.string().map(|text| text.into_owned()));
            jobtype.is_some_and(|jobtype| glob::fits(pattern.as_bytes(), jobtype.as_bytes()))
        });
        of_type
            && self
                .regexp
                .as_ref()
                .is_none_or(|pattern| glob::fits(pattern.as_bytes(), text(&mut shown).as_bytes()))
    }

    /// As the audit shows it.
    pub(super) fn shown(&self) -> String {
        format!("{} {}", self.act.word(), self.target.word())
    }

    /// The commands for one of those messages.
    fn act(&self, message: &Message, queue: &Name, now: Ms) -> Vec<Command> {
        let id = message.id;
        let by = By::OwnerOrFree;
        match self.act {
            Act::Remove => vec![Command::Delete { id, by }],
            Act::Kill if self.target == Target::Dead => Vec::new(),
            Act::Kill => {
                let how = How::Bury {
                    priority: None,
                    reason: (*b"killed").into(),
                };
                vec![Command::Settle { id, by, how }]
            }
            Act::Requeue => {
                // When it would have been tried again is forgotten by the move.
                let note = failure::of(message, now).map(|json| failure::note_in(id, json));
                let to = queue.clone();
                note.into_iter().chain([Command::Move { id, to }]).collect()
            }
        }
    }
}

fn pattern(name: &str, value: Value<'_>) -> Result<Option<String>, String> {
    let pattern = string(name, value)?;
    if pattern.len() > PATTERN_MAX {
        return Err(format!("{name} has {PATTERN_MAX} bytes at most"));
    }
    Ok(Some(pattern).filter(|pattern| !pattern.is_empty()))
}

/// MUTATE in its middle.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Mutating {
    mutate: Mutate,
    /// Whether queues are still gathered.
    gathers: bool,
    /// The next commands for the messages that were found.
    acts: VecDeque<Command>,
    /// The queue that is looked through, and those to come.
    left: VecDeque<Name>,
    after: Option<Cursor>,
    /// A slice of that queue was requested.
    bulk_ops: bool,
    /// The command that was requested is the last one for its job.
    ends_one: bool,
    /// Jobs that were changed.
    jobs: u64,
    /// Bytes of the ids of its filter.
    jids_bytes: usize,
}

impl Mutating {
    /// It goes on with the first page of queues.
    pub(super) fn new(mutate: Mutate) -> Self {
        let jids = mutate.jids.iter();
        let jids_bytes = jids.map(|jid| jid.capacity() + size_of::<String>()).sum();
        Self {
            mutate,
            jids_bytes,
            gathers: true,
            ..Self::default()
        }
    }

    /// The act in words, and the number of jobs it has changed until now.
    pub(super) fn done(&self) -> (String, u64) {
        (self.mutate.shown(), self.jobs)
    }

    /// Goes on; `None`: all is done.
    pub(super) fn go_on(&mut self, outcome: &Outcome, jobtype: &str, now: Ms) -> Option<Command> {
        if std::mem::take(&mut self.ends_one) && !matches!(outcome, Outcome::Refused(_)) {
            self.jobs += 1;
        }
        if self.gathers {
            let found = page_of(outcome)?;
            for queue in &found.queues {
                let held = match self.mutate.target {
                    Target::Scheduled | Target::Retries => queue.gauges.delayed,
                    Target::Dead => queue.gauges.buried,
                };
                if held > 0 && is_queue(queue.name.as_bytes()) {
                    self.left.push_back(queue.name.clone());
                }
            }
            if let Some(from) = found.next {
                return Some(page(from));
            }
            self.gathers = false;
        }
        if std::mem::replace(&mut self.bulk_ops, false) {
            self.after = None;
            if let (Outcome::BulkDone(bulk_done), Some(queue)) = (outcome, self.left.front()) {
                for message in &bulk_done.messages {
                    if self.mutate.fits(message, queue, jobtype, now) {
                        self.acts.extend(self.mutate.act(message, queue, now));
                    }
                }
                self.after = bulk_done.next;
            }
            if self.after.is_none() {
                self.left.pop_front();
            }
        }
        if let Some(act) = self.acts.pop_front() {
            self.ends_one = !matches!(act, Command::Edit { .. });
            return Some(act);
        }
        let queue = self.left.front()?.clone();
        self.bulk_ops = true;
        Some(Command::BulkOp(Box::new(BulkOp {
            queue,
            state: self.mutate.state(),
            filter: Filter::default(),
            action: BulkAction::Show,
            after: self.after,
            max: match self.mutate.regexp {
                Some(_) => LOOKS_AT_TEXT,
                None => LOOKS,
            },
        })))
    }

    pub(super) fn capacity(&self) -> usize {
        self.jids_bytes
            + self.left.capacity() * size_of::<Name>()
            + self.acts.capacity() * size_of::<Command>()
    }
}
