//! A run: one message, its script, and what becomes of it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quintet_client::BodyBytes;
use quintet_types::{By, Command, Edit, Ended, How, Message, Outcome, Peek, When, locked};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::Value;

use crate::child::{self, Child, Start};
use crate::config::QueueConfig;
use crate::guest::Guest;
use crate::ids::short_id;
use crate::messages::{MessageMatch, PutAs};
use crate::new::NewMessage;
use crate::paths;
use crate::pipe::ScriptLine;
use crate::queue::{Queue, Running};
use crate::record::{self, set};
use crate::router;
use crate::script::{Script, environment};
use crate::service::Rq;
use crate::verdict::{Exit, ResendRules, ScriptReport, Verdict, decide};

/// Fields that webhooks are not told where they are too long, the first one first.
const LONG_FIELDS: &str = "param1 param2 param3 param4 post_run_webhook dest src _attachments";

/// The queue that tells webhooks.
const WEBHOOK: &str = "webhook";

/// Until a script is tried again that the machine has no room for, s.
const NO_ROOM_S: u64 = 10;

/// A message whose script is to run. Its lease is the guest's: whatever ends
/// this ends the lease.
pub(crate) struct ScriptRun {
    pub(crate) rq: Arc<Rq>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) config: Arc<QueueConfig>,
    pub(crate) guest: Guest,
    pub(crate) message: Message,
    /// Messages that share its fate.
    pub(crate) along: Vec<Message>,
    pub(crate) running: Arc<Running>,
}

/// A run's place in its queue, given back also if its thread panics.
struct RunSlot {
    rq: Arc<Rq>,
    queue: Arc<Queue>,
    id: u64,
    along: Vec<u64>,
}

impl Drop for RunSlot {
    fn drop(&mut self) {
        self.rq.children.fetch_sub(1, Ordering::SeqCst);
        self.queue.end(self.id, &self.along);
    }
}

/// How a run ended.
enum Over {
    /// The script decided.
    Decided(Verdict),
    /// It could not be started; not its fault.
    NoRoom(io::Error),
    /// The server ends: the message goes back as it was.
    Interrupted,
    /// Its message was cancelled before it was done.
    Cancelled,
}

impl ScriptRun {
    /// Runs the script and settles the message.
    pub(crate) fn go(self) {
        let slot = RunSlot {
            rq: Arc::clone(&self.rq),
            queue: Arc::clone(&self.queue),
            id: self.message.id.0,
            along: self.along.iter().map(|message| message.id.0).collect(),
        };
        // Dropped before the slot: a queue whose last run is over has no
        // leases left.
        let mut run = self;
        let record = run.rq.paths.records().join(short_id(&run.message));
        let over = run.run(&record).unwrap_or_else(Over::NoRoom);
        let interrupted = matches!(over, Over::Interrupted);
        match over {
            Over::Decided(verdict) => run.settle(verdict),
            Over::NoRoom(error) => {
                tracing::warn!(queue = run.queue.name, %error, "a script did not run");
                let status = format!("cannot run the script: {error}");
                run.release(NO_ROOM_S, &status);
            }
            Over::Interrupted => {}
            Over::Cancelled => run.end_cancelled(),
        }
        if let Err(error) = std::fs::remove_file(&record)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "record of a run not removed");
        }
        if interrupted {
            return;
        }
        // The next may start while the disk writes how this one ended.
        drop(slot);
        for outcome in run.guest.outcomes() {
            if let Outcome::Refused(command_error) = outcome {
                // Deleted or dropped under the script: nothing is left to
                // settle.
                tracing::debug!(
                    queue = run.queue.name,
                    "not settled: {}",
                    command_error.text()
                );
            } else if let Outcome::Denied(text) = outcome {
                // It stays in `run` until the server starts anew.
                tracing::warn!(
                    queue = run.queue.name,
                    "a hook refuses to settle it: {text}"
                );
            }
        }
    }

    fn run(&mut self, record: &Path) -> io::Result<Over> {
        let Some(script) = self.wait_for_script() else {
            return Ok(Over::Interrupted);
        };
        let rq = Arc::clone(&self.rq);
        let limits = &rq.options.limits;
        let brought = rq.bring(&self.queue.name, &self.message);
        brought.map_err(|fault| io::Error::other(fault.to_string()))?;
        let dir = rq.message_dir(&self.queue.name, &self.message);
        let job = dir.join("job");
        paths::make_folder(&job)?;
        let param1 = self.param1(&dir)?;
        if self.config.script_path(&self.rq.options.root).is_none() {
            // What a built-in script passes on is more than variables hold.
            let found = MessageMatch {
                message: self.message.clone(),
                state: "run",
                text: String::new(),
            };
            let json = rq.json(&self.queue.name, &found).to_string();
            std::fs::write(dir.join("msg"), json)?;
        }
        let environment = environment(
            &rq,
            &self.queue.name,
            &self.config,
            &self.message,
            &script,
            &param1,
            &job,
        );
        let running = Arc::clone(&self.running);
        let child = Child::start(Start {
            launcher: &rq.options.launcher,
            words: &script.words,
            environment,
            job: &job,
            record,
            script: &script.real,
            limits,
            running: &running,
        })?;
        let mut report = ScriptReport::default();
        let mut count = record::count(&self.message);
        // Kept when the number changes: a script may say it with every byte.
        let mut far = self.message.progress();
        let hear = |line: &ScriptLine| {
            if let ScriptLine::Dup { due_s, dest } = line {
                let done = rq.dup(&self.queue.name, &self.message, *due_s, dest);
                return Some(match done {
                    Ok(id) => format!("ok {id}"),
                    Err(why) => format!("fail {}", why.replace('\n', " ")),
                });
            }
            if *line == ScriptLine::BadDup {
                return Some("fail dup failed - not DUE-X-DEST".to_owned());
            }
            if let ScriptLine::Progress { percent, text } = line
                && far != Some(*percent)
            {
                far = Some(*percent);
                self.progress(*percent, text);
            }
            let before = report.resends();
            report.hear(line);
            locked(&running.status).clone_from(&report.status);
            if report.resends() && !before {
                // At once: a crash before its end must not give it a run more.
                count = count.saturating_add(1);
                self.edit(&report.status, &[("count", count.to_string())]);
            }
            None
        };
        let ended = child.attend(hear, || self.cancelled())?;
        Ok(self.over(ended, &report, count))
    }

    /// How the run is over after its script has ended, in its `count`th run.
    fn over(&self, ended: child::Ended, report: &ScriptReport, count: u32) -> Over {
        if ended.stopped && (ended.exit != Exit::Code(0) || !report.has_mark()) {
            return Over::Interrupted;
        }
        if ended.late {
            let seconds = self.rq.options.limits.run_time.as_secs_f64();
            let status = format!("TIME LIMIT OF {seconds} s PASSED - MOVING TO ERR");
            return Over::Decided(Verdict::Err(status));
        }
        let rules = ResendRules {
            count,
            max_count: record::max_count(&self.message),
            strict: self.config.strict_exit,
        };
        let verdict = decide(report, ended.exit, rules);
        let done = matches!(verdict, Verdict::Done(_) | Verdict::Relayed(_));
        match ended.cancelled && !done {
            true => Over::Cancelled,
            false => Over::Decided(verdict),
        }
    }

    /// The time that the script has left; `None`: its message is not cancelled, as far as it is
    /// known now.
    fn cancelled(&self) -> Option<Duration> {
        let id = self.message.id;
        let mut received = self.guest.hear(|| Command::Progress {
            id,
            by: By::Owner,
            percent: None,
            text: None,
        })?;
        if received == Outcome::Cancelled {
            received = self.guest.hear(|| Command::Peek(Peek::Id(id)))?;
        }
        if let Outcome::Messages(messages) = &received {
            let until = messages.first()?.cancelled()?.until;
            return Some(Duration::from_millis(until.since(self.rq.client_api.now())));
        }
        if let Outcome::Refused(_) = received {
            let end = self.rq.client_api.end_of(id)?;
            return (end.why == Ended::Cancelled).then_some(Duration::ZERO);
        }
        None
    }

    /// The engine removes the message as soon as its lease ends.
    fn end_cancelled(&self) {
        self.notify_hooks("cancelled", "cancelled");
        self.settle_one(&self.message, How::release(When::Now));
        self.release_along();
    }

    /// Without good rules the router is not there: what it is to send on waits.
    fn find_script(&self) -> Option<Script> {
        if self.config.script == router::SCRIPT && !self.rq.may_route() {
            return None;
        }
        Script::find(&self.config, &self.rq.options)
    }

    /// The script; waits for one that is not there. `None` if the wait is
    /// ended.
    fn wait_for_script(&mut self) -> Option<Script> {
        if let Some(script) = self.find_script() {
            return Some(script);
        }
        tracing::warn!(
            queue = self.queue.name,
            script = self.config.script,
            "script not there or not executable"
        );
        self.queue.count_script_error(true);
        let every = Timespec::try_from(self.rq.options.limits.look_every).ok();
        let found = loop {
            let requests = self.running.requests();
            if requests.stop || requests.destroy {
                break None;
            }
            let mut wake = [PollFd::new(&self.running.wake, PollFlags::IN)];
            // Whatever ends this wait, it is time to look again.
            let _again = rustix::event::poll(&mut wake, every.as_ref());
            self.config = self.queue.config();
            if let Some(script) = self.find_script() {
                break Some(script);
            }
        };
        self.queue.count_script_error(false);
        found
    }

    /// The body as the script's first parameter. One that cannot stand in an
    /// environment becomes the file `attach/body`.
    fn param1(&self, dir: &Path) -> io::Result<String> {
        let bytes_max = self.rq.options.limits.param_bytes_max as u64;
        let text = self.rq.param1(&self.message, bytes_max);
        if let Some(text) = text.filter(|text| !text.contains('\0')) {
            return Ok(text);
        }
        let folder = dir.join("attach");
        paths::make_folder(&folder)?;
        let new = folder.join(".body.new");
        let mut file = std::fs::File::create(&new)?;
        let mut body = BodyBytes::new(&*self.rq.client_api, self.message.body.clone());
        io::copy(&mut body, &mut file)?;
        // An attachment of this name is the sender's own.
        match std::fs::hard_link(&new, folder.join("body")) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        std::fs::remove_file(&new)?;
        Ok(String::new())
    }

    /// Sets status and attributes of the message while it is reserved.
    fn edit(&self, status: &str, attrs: &[(&str, String)]) {
        let edit = Edit {
            status: Some(status.as_bytes().into()),
            attrs: attrs.iter().map(|(name, value)| set(name, value)).collect(),
            ..Edit::default()
        };
        self.guest
            .say(Command::Edit(self.message.id, Box::new(edit)));
    }

    /// Keeps with the message how far it is.
    fn progress(&self, percent: u8, text: &str) {
        self.guest.say(Command::Progress {
            id: self.message.id,
            by: By::Owner,
            percent: Some(percent),
            text: Some(text.as_bytes().into()),
        });
    }

    fn settle_one(&self, message: &Message, how: How) {
        let (id, by) = (message.id, By::Owner);
        self.guest.say(Command::Settle { id, by, how });
    }

    fn settle(&self, verdict: Verdict) {
        let (state, how, status) = match verdict {
            Verdict::Again { due_s, status } => return self.release(due_s, &status),
            Verdict::Err(status) => {
                let (priority, reason) = (None, status.as_bytes().into());
                ("err", How::Bury { priority, reason }, status)
            }
            Verdict::Done(status) => ("done", archive(false, &status), status),
            Verdict::Relayed(status) => ("relayed", archive(true, &status), status),
        };
        if !self.along.is_empty() {
            let ids = self.along.iter();
            let ids: Vec<String> = ids
                .map(|message| self.rq.full_id(&self.queue.name, message))
                .collect();
            if state != "err" {
                self.edit(&status, &[("dups", Value::from(ids).to_string())]);
            }
        }
        // First: told twice after a crash is better than never.
        self.notify_hooks(state, &status);
        // A client that sees that it ended finds it among the newest.
        self.queue
            .note_end(state, self.message.id.0, short_id(&self.message));
        self.settle_one(&self.message, how);
        if state == "err" {
            self.release_along();
        } else {
            let full = self.rq.full_id(&self.queue.name, &self.message);
            for message in &self.along {
                let how = archive(state == "relayed", &format!("duplicate {full}"));
                self.queue.note_end(state, message.id.0, short_id(message));
                self.settle_one(message, how);
            }
        }
    }

    /// Back into the queue.
    fn release(&self, due_s: u64, status: &str) {
        let ms = due_s.saturating_mul(1000);
        let due = self.rq.client_api.now().0.saturating_add(ms);
        self.edit(status, &[("due", due.to_string())]);
        let how = How::release(When::In(ms));
        self.settle_one(&self.message, how);
        self.release_along();
    }

    fn release_along(&self) {
        for message in &self.along {
            let no_dup = (b"dup".as_slice().into(), None);
            self.guest.say(record::change(message.id, no_dup));
            let how = How::release(When::At(record::due(message)));
            self.settle_one(message, how);
        }
    }

    /// A message to the queue `webhook` for each address that wants to know.
    fn notify_hooks(&self, state: &'static str, text: &str) {
        let hooks = record::hooks(&self.message);
        if hooks.is_empty() {
            return;
        }
        if !self.rq.has_queue(WEBHOOK) {
            tracing::warn!("a message has webhooks, but there is no queue {WEBHOOK}");
            return;
        }
        let found = MessageMatch {
            message: self.message.clone(),
            state,
            text: text.to_owned(),
        };
        let mut json = self.rq.json(&self.queue.name, &found);
        // It goes into an environment.
        let bytes_max = self.rq.options.limits.param_bytes_max;
        let mut payload = json.to_string();
        for long in LONG_FIELDS.split(' ') {
            if payload.len() > bytes_max
                && let Some(fields) = json.as_object_mut()
            {
                fields.remove(long);
                payload = json.to_string();
            }
        }
        for hook in hooks {
            let new = NewMessage {
                src: Some(self.rq.full_id(&self.queue.name, &self.message)),
                params: [Some(hook), Some(payload.clone()), None, None],
                ..NewMessage::default()
            };
            if let Err(fault) = self.rq.put(WEBHOOK, &new, PutAs::default()) {
                tracing::warn!(%fault, "a webhook was not called");
            }
        }
    }
}

fn archive(relayed: bool, status: &str) -> How {
    How::Archive {
        relayed,
        status: status.as_bytes().into(),
    }
}
