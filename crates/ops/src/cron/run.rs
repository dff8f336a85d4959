//! The thread that puts what is due.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat};
use quintet_client::{ClientApi, Visit};
use quintet_config::CronJob;
use quintet_host::locked;
use quintet_types::{
    Command, CommandError, Effect, Guard, MessageId, Ms, Name, Outcome, Put, TableEntry,
    TableRequest, Transaction,
};

use super::plan::{Look, Mark};
use super::{Crons, Known, forgotten, when};

/// The attribute that says when a message was due.
const SCHEDULED_AT: &[u8] = b"scheduled_at";
/// The durable table of marks, a key each.
const TABLE: &str = "quintet.cron";
/// The wall clock may be set at any moment, so it is looked at this often. A
/// put that was refused is tried again as often.
const LOOK: Duration = Duration::from_secs(1);
/// Where there are no tables nothing has to be looked at.
const NOTHING: Duration = Duration::from_secs(3600);
/// Marks that are read at once.
const PAGE: u32 = 256;

/// The thread at work.
pub(super) struct Runner<'a> {
    pub(super) crons: &'a Crons,
    pub(super) client_api: &'a dyn ClientApi,
    visit: Visit<'a>,
}

impl Crons {
    /// The thread of `[[cron]]`: runs until `stop`.
    pub fn run(&self, client_api: &dyn ClientApi, stop: &AtomicBool) {
        let runner = Runner {
            crons: self,
            client_api,
            visit: Visit::new(client_api),
        };
        runner.run(stop);
        self.close();
    }
}

impl Runner<'_> {
    fn run(&self, stop: &AtomicBool) {
        let mut version = 0;
        while !stop.load(Ordering::SeqCst) {
            let (jobs, newest) = {
                let inside = locked(&self.crons.inside);
                (inside.jobs.clone(), inside.version)
            };
            if version != newest && self.read_marks(&jobs, newest) {
                version = newest;
            }
            if version == newest {
                self.obey(&jobs, newest);
                for job in &jobs {
                    self.look_at(job);
                    if let Some(known) = locked(&self.crons.inside).known.get_mut(&job.name) {
                        known.looked = true;
                    }
                }
            }
            // Marks that cannot be read are tried again.
            let rest = match version == newest {
                true => self.rest(&jobs),
                false => LOOK,
            };
            self.crons.work.wait_for(rest);
        }
    }

    /// How long there is nothing to do.
    fn rest(&self, jobs: &[Arc<CronJob>]) -> Duration {
        if jobs.is_empty() {
            return NOTHING;
        }
        let now = self.client_api.wall();
        let wait = self.crons.next(now).since(now);
        Duration::from_millis(wait.max(1)).min(LOOK)
    }

    /// Reads what is remembered of the tables, and forgets those that are no
    /// more. False: it cannot be read.
    fn read_marks(&self, jobs: &[Arc<CronJob>], newest: u64) -> bool {
        let mut after = None;
        let mut gone = Vec::new();
        let mut found: Vec<TableEntry> = Vec::new();
        loop {
            let ask = TableRequest::List {
                table: Name::from(TABLE),
                after: after.take(),
                max: PAGE,
            };
            let Outcome::Entries(entries) = self.visit.ask(Command::Table(ask)) else {
                return false;
            };
            let Some(last) = entries.last() else { break };
            after = Some(last.key.clone());
            for entry in entries {
                match jobs.iter().any(|job| *job.name.as_bytes() == *entry.key) {
                    true => found.push(entry),
                    false => gone.push(entry),
                }
            }
        }
        for entry in gone {
            let mark: Mark = serde_json::from_slice(&entry.value).unwrap_or_default();
            if mark.paused {
                tracing::warn!("{}", forgotten(&String::from_utf8_lossy(&entry.key)));
            }
            let forget = Transaction {
                effects: vec![set(&entry.key, None)],
                ..Transaction::default()
            };
            self.visit.ask(Command::Transaction(Box::new(forget)));
        }
        let mut inside = locked(&self.crons.inside);
        inside
            .known
            .retain(|name, _| jobs.iter().any(|job| job.name == *name));
        for job in jobs {
            let entry = found.iter().find(|one| *one.key == *job.name.as_bytes());
            let known = inside.known.entry(job.name.clone()).or_default();
            known.read(entry);
        }
        inside.read = newest;
        true
    }

    /// Does what is due of a table.
    fn look_at(&self, job: &CronJob) {
        let policy = job.policy();
        let when = when(job, &policy);
        // A mark that is noted is looked at again; three looks end it.
        for _ in 0..3 {
            let mark = self.mark_of(job);
            match when.look(&mark, self.client_api.wall()) {
                Look::Rest => return,
                Look::Note { mark, missed } => {
                    if self.remember(job, &mark, None).is_err() {
                        return;
                    }
                    self.count_missed(job, missed);
                }
                Look::Put { mark, missed, due } => {
                    if self.remember(job, &mark, Some(due)).is_ok() {
                        self.count_missed(job, missed);
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn mark_of(&self, job: &CronJob) -> Mark {
        let inside = locked(&self.crons.inside);
        let known = inside.known.get(&job.name);
        known.map_or_else(Mark::default, |known| known.mark.clone())
    }

    fn count_missed(&self, job: &CronJob, missed: u64) {
        if missed > 0 {
            tracing::warn!("[[cron]] {}: {missed} runs were missed", job.name);
            let mut inside = locked(&self.crons.inside);
            let known = inside.known.entry(job.name.clone()).or_default();
            known.missed += missed;
        }
    }

    /// Makes `mark` durable, with the table's message if it `puts` one, which was due then, if the
    /// mark is as it was read.
    ///
    /// # Errors
    /// Why not, in words; nothing was put.
    fn remember(&self, job: &CronJob, mark: &Mark, puts: Option<Ms>) -> Result<(), CommandError> {
        let done = self.commit(job, mark, puts).map(drop);
        done.map_err(|command_error| self.failed(job, command_error))
    }

    /// [`Runner::remember`], without counting a no. Answers what was put.
    ///
    /// # Errors
    /// As that.
    pub(super) fn commit(
        &self,
        job: &CronJob,
        mark: &Mark,
        puts: Option<Ms>,
    ) -> Result<Option<MessageId>, CommandError> {
        let mut effects = Vec::new();
        if let Some(due) = puts {
            effects.push(Effect::Put(scheduled(&job.put, due)));
        }
        effects.push(set(job.name.as_bytes(), Some(mark)));
        let step = Transaction {
            guards: vec![self.guard(job)],
            effects,
            then: None,
        };
        let outcome = self.visit.ask(Command::Transaction(Box::new(step)));
        let done = if let Outcome::Transaction { ids, .. } = outcome {
            Ok(ids.first().copied())
        } else if let Outcome::Refused(command_error) = outcome {
            Err(command_error)
        } else {
            // A hook of commands does not want it.
            Err(CommandError::NotPermitted)
        };
        // The entry has a new version, or another than was known.
        self.read_again(job);
        let id = done?;
        // Nothing was stored: the queue could not be made any more.
        if puts.is_some() && id == Some(MessageId(0)) {
            return Err(CommandError::TooManyQueues);
        }
        if let Some(id) = id {
            let mut inside = locked(&self.crons.inside);
            let known = inside.known.entry(job.name.clone()).or_default();
            known.runs += 1;
            known.error.clear();
            let mut mark = known.mark.clone();
            drop(inside);
            // Of no consequence: it is only shown.
            mark.last_id = Some(id.0);
            let note = Transaction {
                guards: vec![self.guard(job)],
                effects: vec![set(job.name.as_bytes(), Some(&mark))],
                then: None,
            };
            self.visit.ask(Command::Transaction(Box::new(note)));
            self.read_again(job);
        }
        Ok(id)
    }

    /// A put was refused: says so, once for each reason.
    pub(super) fn failed(&self, job: &CronJob, command_error: CommandError) -> CommandError {
        let text = command_error.text();
        let mut inside = locked(&self.crons.inside);
        let known = inside.known.entry(job.name.clone()).or_default();
        known.failures += 1;
        if known.error != text {
            tracing::warn!("[[cron]] {}: not put: {text}", job.name);
            text.clone_into(&mut known.error);
        }
        command_error
    }

    /// The mark is as it was read.
    fn guard(&self, job: &CronJob) -> Guard {
        let inside = locked(&self.crons.inside);
        Guard::Table {
            table: Name::from(TABLE),
            key: job.name.as_bytes().into(),
            version: inside.known.get(&job.name).and_then(|known| known.version),
        }
    }

    fn read_again(&self, job: &CronJob) {
        let ask = TableRequest::Get {
            table: Name::from(TABLE),
            key: job.name.as_bytes().into(),
        };
        if let Outcome::Entries(entries) = self.visit.ask(Command::Table(ask)) {
            let mut inside = locked(&self.crons.inside);
            let known = inside.known.entry(job.name.clone()).or_default();
            known.read(entries.first());
        }
    }
}

impl Known {
    /// Reads an entry. One that nobody here wrote counts as none.
    fn read(&mut self, entry: Option<&TableEntry>) {
        self.version = entry.map(|entry| entry.version);
        let mark = entry.map(|entry| serde_json::from_slice(&entry.value).unwrap_or_default());
        self.mark = mark.unwrap_or_default();
    }
}

/// The put of a table with the time it was due, unless the table gives it such an attribute itself.
fn scheduled(put: &Put, due: Ms) -> Put {
    let mut put = put.clone();
    let attrs = &mut put.more.get_or_insert_default().attrs;
    let time = i64::try_from(due.0)
        .ok()
        .and_then(DateTime::from_timestamp_millis);
    if let Some(time) = time
        && !attrs.iter().any(|(name, _)| **name == *SCHEDULED_AT)
    {
        let time = time.to_rfc3339_opts(SecondsFormat::Secs, true);
        attrs.push((SCHEDULED_AT.into(), time.into_bytes().into()));
    }
    put
}

/// Sets or removes a mark.
fn set(key: &[u8], mark: Option<&Mark>) -> Effect {
    // Numbers and texts have JSON.
    let value = mark.map(|mark| serde_json::to_vec(mark).unwrap_or_default().into());
    Effect::Set {
        table: Name::from(TABLE),
        key: key.into(),
        value,
        ttl_ms: None,
    }
}
