//! The service: what all its parts share, and what it is asked. How it begins
//! and ends is in `life`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use quintet_client::{ClientApi, ScopedClient};
use quintet_types::{
    BulkOp, Command, ListState, Message, Name, Outcome, Overrides, QueueGauges, QueueStats,
    StatsOf, StatsReply, locked,
};
use serde_json::Value;

use crate::acknowledged::Errack;
use crate::config::{QueueConfig, check_queue_name};
use crate::fault::Fault;
use crate::files::VerifiedAttachments;
use crate::options::Options;
use crate::paths::{Paths, RootLock};
use crate::queue::Queue;
use crate::rules::RulesRead;
use crate::socket::Sockets;

/// Queue scripts and all of RQ that is not a protocol: what HTTP, the socket
/// and the command line ask. Shared by all threads. Ask it to
/// [`Rq::stop`] before it goes; else its threads go on.
pub struct Rq {
    pub(crate) client_api: Arc<dyn ClientApi>,
    pub(crate) options: Options,
    pub(crate) paths: Paths,
    pub(crate) started: Instant,
    /// Tells this service from those before it: 16 hexadecimal digits.
    pub(crate) life: String,
    pub(crate) queues: Mutex<BTreeMap<String, Arc<Queue>>>,
    /// Queues that were forgotten while scripts of theirs ran.
    pub(crate) forgotten: Mutex<Vec<Arc<Queue>>>,
    /// One at a time makes a queue in the engine what its admin files say, or
    /// deletes it: a later request would make it again.
    pub(crate) deciding: Mutex<()>,
    /// Names from the server's settings; those from folders are not here.
    pub(crate) from_settings: Mutex<Vec<String>>,
    /// Settings in folders that were read, and when they had been changed.
    pub(crate) folders: Mutex<BTreeMap<String, SystemTime>>,
    /// One at a time changes what a prepared message consists of, by id.
    pub(crate) preparing: [Mutex<()>; 16],
    /// One at a time asks whether a queue is empty and puts if it is.
    pub(crate) single: Mutex<()>,
    pub(crate) known: Mutex<VerifiedAttachments>,
    pub(crate) errack: Errack,
    pub(crate) router: RulesRead,
    pub(crate) children: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    pub(crate) supervisor: Supervisor,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) sockets: OnceLock<Arc<Sockets>>,
    /// Keeps the root folder from another service, until the stop.
    pub(crate) root_lock: Mutex<Option<RootLock>>,
}

/// The supervisor thread, and its bell.
#[derive(Default)]
pub(crate) struct Supervisor {
    /// It runs, or will once the service has started.
    pub(crate) runs: AtomicBool,
    pub(crate) requested: Mutex<bool>,
    /// It is to look for links and timers, too.
    pub(crate) rescan: AtomicBool,
    pub(crate) changed: Condvar,
}

/// A queue as RQ shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    pub name: String,
    /// `UP`, `DOWN`, `PAUSE` or `SCRIPTERROR`.
    pub status: &'static str,
    /// The process that looks after it: this one.
    pub pid: u32,
    /// For how long.
    pub uptime: Duration,
    /// Messages by state.
    pub sizes: Sizes,
    /// True if a script takes its messages.
    pub has_script: bool,
}

/// Messages of a queue by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub prep: u64,
    /// Waiting, those that are not due yet included.
    pub que: u64,
    /// Running; or taken over a wire protocol.
    pub run: u64,
    /// Done and kept.
    pub done: u64,
    /// Relayed and kept.
    pub relayed: u64,
    /// Set aside, and nobody has acknowledged it.
    pub err: u64,
    /// Set aside and acknowledged.
    pub errack: u64,
}

impl Sizes {
    fn new(gauges: &QueueGauges, acknowledged: u64) -> Self {
        Self {
            prep: gauges.prepared,
            que: gauges.ready + gauges.not_selectable + gauges.delayed,
            run: gauges.reserved,
            done: gauges.done,
            relayed: gauges.relayed,
            err: gauges.buried.saturating_sub(acknowledged),
            errack: acknowledged,
        }
    }
}

impl Rq {
    /// True if the server's settings have it: then no folder changes it.
    pub(crate) fn is_from_settings(&self, name: &str) -> bool {
        locked(&self.from_settings)
            .iter()
            .any(|other| other == name)
    }

    /// The queue of this name, if it has a script.
    pub(crate) fn scripted(&self, name: &str) -> Option<Arc<Queue>> {
        locked(&self.queues).get(name).map(Arc::clone)
    }

    pub(crate) fn all_scripted(&self) -> Vec<Arc<Queue>> {
        locked(&self.queues).values().map(Arc::clone).collect()
    }

    /// Has the queue's consumer look again, if a script takes its messages.
    pub(crate) fn kick(&self, name: &str) {
        if let Some(queue) = self.scripted(name) {
            queue.kick();
        }
    }

    pub(crate) fn ask(&self, command: Command) -> Outcome {
        ScopedClient::new(&*self.client_api).ask(command)
    }

    pub(crate) fn wake_supervisor(&self) {
        *locked(&self.supervisor.requested) = true;
        self.supervisor.changed.notify_all();
    }

    /// Refuses or allows everything in the engine's queue, which is made if it
    /// is not there.
    pub(crate) fn set_down(&self, name: &str, down: bool) {
        let overrides = Overrides {
            down: Some(down),
            ..Overrides::default()
        };
        let outcome = self.ask(Command::Configure {
            queue: Name::from(name),
            overrides: Some(Box::new(overrides)),
            must_exist: false,
        });
        if let Outcome::Refused(command_error) = outcome {
            tracing::warn!(
                queue = name,
                down,
                "the state was not stored: {}",
                command_error.text()
            );
        }
    }

    /// True if there is a queue of this name that RQ can show.
    pub fn has_queue(&self, name: &str) -> bool {
        check_queue_name(name).is_ok()
            && (self.scripted(name).is_some() || self.stats(name).is_some())
    }

    /// True if a script takes this queue's messages.
    pub fn has_script(&self, name: &str) -> bool {
        self.scripted(name).is_some()
    }

    pub(crate) fn must_have(&self, name: &str) -> Result<(), Fault> {
        if self.has_queue(name) {
            Ok(())
        } else {
            Err(Fault::QueueNotFound)
        }
    }

    pub(crate) fn stats(&self, name: &str) -> Option<QueueStats> {
        if let Outcome::Stats(stats) = self.ask(Command::Stats(StatsOf::Queue(Name::from(name))))
            && let StatsReply::Queue(stats) = *stats
        {
            return Some(stats);
        }
        None
    }

    /// The names of all queues RQ can show, sorted: those with a script, and
    /// others whose name RQ allows.
    pub fn queues(&self) -> Vec<String> {
        let mut names: Vec<String> = locked(&self.queues).keys().cloned().collect();
        let mut next = Some((0, 0));
        while let Some(from) = next.take() {
            if let Outcome::Stats(stats) = self.ask(Command::Stats(StatsOf::Queues { from }))
                && let StatsReply::Queues(page) = *stats
            {
                let text = |name: &Name| String::from_utf8(name.as_bytes().to_vec()).ok();
                names.extend(page.queues.iter().filter_map(|stats| text(&stats.name)));
                next = page.next;
            }
        }
        names.retain(|name| check_queue_name(name).is_ok());
        names.sort_unstable();
        names.dedup();
        names
    }

    /// How a queue is.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`].
    pub fn queue(&self, name: &str) -> Result<QueueInfo, Fault> {
        self.must_have(name)?;
        let queue = self.scripted(name);
        let admin = self.read_admin(name);
        let script_error = queue.as_ref().is_some_and(|queue| queue.has_script_error());
        Ok(QueueInfo {
            name: name.to_owned(),
            status: if script_error {
                "SCRIPTERROR"
            } else {
                admin.word()
            },
            pid: std::process::id(),
            uptime: queue.as_ref().map_or(self.started, |q| q.started).elapsed(),
            sizes: self.stats(name).map_or_else(Sizes::default, |stats| {
                Sizes::new(&stats.gauges, self.acknowledged(name, &stats))
            }),
            has_script: queue.is_some(),
        })
    }

    /// A queue's settings, as RQ's `config.json`, with `***` for the values of
    /// its script's variables: they are secrets mostly, and who asks may not be
    /// who set them. A queue without a script has only a name.
    ///
    /// # Errors
    /// [`Fault::QueueNotFound`].
    pub fn queue_config(&self, name: &str) -> Result<Value, Fault> {
        match self.scripted(name) {
            Some(queue) => {
                let mut config = QueueConfig::clone(&queue.config());
                for value in config.env_vars.values_mut() {
                    *value = "***".to_owned();
                }
                Ok(config.to_json())
            }
            None => {
                self.must_have(name)?;
                Ok(serde_json::json!({"name": name}))
            }
        }
    }

    /// The first messages of one state, in the engine's order: `max` or 1 MiB of them at most, or
    /// one message more.
    pub(crate) fn page(&self, name: &str, state: ListState, max: u32) -> Vec<Message> {
        let bulk_op = BulkOp::show(Name::from(name), state, max);
        let Outcome::BulkDone(slice) = self.ask(Command::BulkOp(Box::new(bulk_op))) else {
            return Vec::new();
        };
        slice.messages
    }
}
