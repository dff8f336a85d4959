//! How the service and its queues begin and end.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use quintet_client::ClientApi;
use quintet_types::locked;

use crate::acknowledged::Errack;
use crate::admin::Admin;
use crate::config::QueueConfig;
use crate::fault::Fault;
use crate::options::Options;
use crate::paths::{self, Paths};
use crate::queue::Queue;
use crate::rules::{RulesRead, RulesState};
use crate::script::Script;
use crate::service::{Rq, Supervisor};
use crate::socket::{Sockets, answer};

/// Leaves word which process looks after a queue or all of them, for those who
/// look for RQ's.
fn write_pid(path: &Path) {
    if let Err(error) = paths::write_pid(path) {
        tracing::warn!("cannot write {}: {error}", path.display());
    }
}

impl Rq {
    /// Starts: ends what an earlier process left running, then starts the
    /// queues of `queues` and those with a folder of their own.
    ///
    /// # Errors
    /// If the root folder cannot be made or read, another service has it, what
    /// runs in it does not end, or it has rules for `rq_router` in Ruby alone.
    pub fn start(
        client_api: Arc<dyn ClientApi>,
        options: Options,
        queues: Vec<QueueConfig>,
    ) -> Result<Arc<Self>, Fault> {
        let paths = Paths::make(&options.root)?;
        let root_lock = paths.lock()?;
        crate::group::end_leftovers(&paths.records(), options.limits.grace)?;
        let rq = Arc::new(Self {
            client_api,
            // The standard library's hash keys are random.
            life: format!("{:016x}", RandomState::new().hash_one(0)),
            options,
            paths,
            started: Instant::now(),
            queues: Mutex::default(),
            forgotten: Mutex::default(),
            deciding: Mutex::default(),
            from_settings: Mutex::default(),
            folders: Mutex::default(),
            preparing: std::array::from_fn(|_| Mutex::default()),
            single: Mutex::default(),
            known: Mutex::default(),
            errack: Errack::default(),
            router: RulesRead::default(),
            children: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            supervisor: Supervisor {
                runs: AtomicBool::new(true),
                ..Supervisor::default()
            },
            threads: Mutex::default(),
            sockets: OnceLock::new(),
            root_lock: Mutex::new(Some(root_lock)),
        });
        rq.paths.forget_pids();
        // Without its rules all would go where they were to keep it from.
        if rq.rules() == RulesState::OnlyRuby {
            return Err(Fault::Failed(rq.only_ruby()));
        }
        let requested = Arc::downgrade(&rq);
        let looked = Arc::downgrade(&rq);
        let (sockets, thread) = Sockets::start(
            rq.paths.config().join("queuemgr.sock"),
            Arc::new(move |queue: Option<&str>, request: &[u8]| {
                answer::answer(&requested.upgrade()?, queue, request)
            }),
            rq.options.limits.look_every,
            Box::new(move || {
                if let Some(rq) = looked.upgrade() {
                    rq.supervise();
                }
            }),
        )?;
        locked(&rq.threads).push(thread);
        // Nobody has set it before.
        let _first = rq.sockets.set(sockets);
        write_pid(&rq.paths.manager_pid());
        rq.configure(queues);
        rq.read_folders();
        rq.check_rules();
        rq.start_supervisor()?;
        Ok(rq)
    }

    fn start_supervisor(self: &Arc<Self>) -> io::Result<()> {
        let supervisor = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("rq keeper".to_owned())
            .spawn(move || supervisor.keep())?;
        locked(&self.threads).push(thread);
        Ok(())
    }

    /// Starts the supervisor again, if there is something for it.
    fn supervise(self: &Arc<Self>) {
        let runs = &self.supervisor.runs;
        if self.needs_supervisor()
            && !runs.swap(true, Ordering::SeqCst)
            && let Err(error) = self.start_supervisor()
        {
            runs.store(false, Ordering::SeqCst);
            tracing::error!("cannot start a thread to look after RQ's folders: {error}");
        }
    }

    /// Ends all: no script is started any more; those that run get TERM, and
    /// KILL after the grace time. Their messages are back in `que`.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(sockets) = self.sockets.get() {
            sockets.stop();
        }
        let queues = locked(&self.queues);
        for queue in queues.values().chain(&*locked(&self.forgotten)) {
            queue.stop();
        }
        drop(queues);
        self.wake_supervisor();
        loop {
            let Some(thread) = locked(&self.threads).pop() else {
                break;
            };
            if thread.join().is_err() {
                tracing::error!("a thread of RQ had panicked");
            }
        }
        self.paths.forget_pids();
        *locked(&self.root_lock) = None;
    }

    /// Takes the queues of the server's settings as they are now: new ones
    /// start, those that are gone stop (their messages stay), the others go on
    /// with what is said of them now. Queues with a folder of their own stay
    /// as they are, unless the settings have their name.
    pub fn configure(self: &Arc<Self>, queues: Vec<QueueConfig>) {
        let names: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
        let old = std::mem::replace(&mut *locked(&self.from_settings), names.clone());
        for name in old {
            if !names.contains(&name) {
                self.forget_queue(&name);
            }
        }
        for config in queues {
            self.add_queue(config);
        }
    }

    /// Starts a queue, or tells one that runs its new settings.
    pub(crate) fn add_queue(self: &Arc<Self>, config: QueueConfig) {
        let mut queues = locked(&self.queues);
        // Under the lock: a stop that comes now finds the queue.
        if self.stopping.load(Ordering::SeqCst) {
            return;
        }
        if let Some(queue) = queues.get(&config.name) {
            queue.configure(config);
            return;
        }
        if config.script_path(&self.options.root).is_some()
            && Script::find(&config, &self.options).is_none()
        {
            tracing::warn!(
                queue = config.name,
                script = config.script,
                "the script is not there or not executable: messages wait for it"
            );
        }
        let name = config.name.clone();
        let queue = Arc::new(Queue::new(config));
        queues.insert(name.clone(), Arc::clone(&queue));
        drop(queues);
        // So that it exists, and is as the admin files say.
        let deciding = locked(&self.deciding);
        let down = self.admin_files(&name) == Admin::Down;
        self.set_down(&name, down);
        drop(deciding);
        if let Some(sockets) = self.sockets.get() {
            let path = self.paths.queue(&name).join("queue.sock");
            sockets.open(Some(name.clone()), path);
        }
        write_pid(&self.paths.queue_pid(&name));
        let (rq, its) = (Arc::clone(self), Arc::clone(&queue));
        let consumer = std::thread::Builder::new()
            .name(format!("rq {name}"))
            .spawn(move || crate::consumer::take(&rq, &its));
        match consumer {
            Ok(thread) => locked(&self.threads).push(thread),
            Err(error) => {
                tracing::error!(queue = name, %error, "cannot start a thread for the queue");
                queue.note_left();
            }
        }
    }

    /// The queue's script takes no more; what runs finishes, unless the service
    /// stops. Returns when nothing of it stands in a line any more.
    pub(crate) fn forget_queue(&self, name: &str) {
        let mut queues = locked(&self.queues);
        let Some(queue) = queues.remove(name) else {
            return;
        };
        // Under the lock of all: a stop that comes now finds it here.
        let mut forgotten = locked(&self.forgotten);
        forgotten.retain(|queue| queue.runs());
        forgotten.push(Arc::clone(&queue));
        drop((queues, forgotten));
        queue.retire();
        queue.await_left();
        if let Some(sockets) = self.sockets.get() {
            sockets.close(name);
        }
        paths::forget(&self.paths.queue_pid(name));
    }
}
