//! The consumer of a queue with a script: which message runs next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quintet_types::{
    BulkOp, Command, Edit, ListState, Message, MessageId, Ms, Name, Outcome, Take, When,
};

use crate::admin::Admin;
use crate::config::QueueConfig;
use crate::guest::Guest;
use crate::queue::{ConsumerState, Queue, Running};
use crate::record::{self, set};
use crate::run::ScriptRun;
use crate::service::Rq;

/// Bytes of stack of a run's thread: enough for what it does, with 200 of them
/// in mind.
const RUN_STACK_BYTES: usize = 512 << 10;

/// How long messages stand back that are for a server of which as many runs wait as may, ms, where
/// there are so many that others are not seen for them.
const STANDS_BACK_MS: u64 = 10_000;

/// Starts scripts until the queue is retired, and waits for its last run.
pub(crate) fn take(rq: &Arc<Rq>, queue: &Arc<Queue>) {
    consume(rq, queue);
    queue.await_runs();
}

/// Tells, when it is dropped, that the consumer has left.
struct Leaving<'a>(&'a Queue);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.note_left();
    }
}

/// Starts scripts until the queue is retired. Nothing of it stands in a line
/// then: a queue that is waited for is made again when it is deleted.
fn consume(rq: &Arc<Rq>, queue: &Arc<Queue>) {
    // Dropped behind the watcher.
    let _leaving = Leaving(queue);
    let watching = Arc::new(AtomicBool::new(false));
    let (seen, woken) = (Arc::clone(&watching), Arc::clone(queue));
    let watcher = Guest::new(
        &rq.client_api,
        Box::new(move |_, _| {
            seen.store(false, Ordering::SeqCst);
            woken.kick();
        }),
    );
    while let Some(state) = queue.next_state(rq.options.limits.look_every) {
        if rq.read_admin(&queue.name) != Admin::Up {
            continue;
        }
        let consumer = Consumer { rq, queue, state };
        if consumer.start_some(&watcher) && !watching.swap(true, Ordering::SeqCst) {
            // Tells when there is something again; takes nothing.
            let outcome = watcher.ask(Command::Watch(Some(Box::new(consumer.peeking_take()))));
            if matches!(outcome, Outcome::Refused(_)) {
                watching.store(false, Ordering::SeqCst);
            }
        }
    }
}

struct Consumer<'a> {
    rq: &'a Arc<Rq>,
    queue: &'a Arc<Queue>,
    state: ConsumerState,
}

impl Consumer<'_> {
    fn peeking_take(&self) -> Take {
        Take {
            queues: [Name::from(self.queue.name.as_str())].into_iter().collect(),
            peek: true,
            ..Take::default()
        }
    }

    /// Starts what may run. True if nothing waits any more that could.
    fn start_some(&self, watcher: &Guest) -> bool {
        let config = &self.state.config;
        let mut free = (config.num_workers as usize).saturating_sub(self.state.running);
        while free > 0 {
            // What a pause by another protocol hides from consumers is hidden here.
            // Both are said before either is answered: each answer waits for
            // what was recorded to be durable.
            watcher.say(Command::Take(self.peeking_take()));
            watcher.say(Command::BulkOp(Box::new(BulkOp::show(
                Name::from(self.queue.name.as_str()),
                ListState::Ready,
                self.rq.options.limits.window,
            ))));
            let mut outcomes = watcher.outcomes().into_iter();
            let (Some(Outcome::Messages(_)), Some(list)) = (outcomes.next(), outcomes.next())
            else {
                return true;
            };
            let (mut waiting, mut is_window) = (Vec::new(), false);
            if let Outcome::BulkDone(done) = list {
                (is_window, waiting) = (done.next.is_some(), done.messages);
            }
            waiting.retain(|message| message.selectable);
            waiting.sort_by_key(|message| (record::due(message), message.id));
            let (mut started, mut full) = (0, Vec::new());
            for message in waiting {
                if free == 0 || self.rq.children.load(Ordering::SeqCst) >= self.children_max() {
                    return false;
                }
                if self.is_full(config, &message) {
                    full.push(message.id);
                } else if self.start(config, &message) {
                    (started, free) = (started + 1, free - 1);
                    if !config.coalesce_params.is_empty() {
                        // Others of the list may run along.
                        break;
                    }
                }
            }
            if started == 0 && is_window && !full.is_empty() {
                // Those behind them may be for servers that answer.
                let later = self.rq.client_api.now() + STANDS_BACK_MS;
                full.into_iter().for_each(|id| self.put_off(id, later));
            } else if started == 0 {
                return false;
            }
        }
        false
    }

    /// True if as many runs ask the server that this message is for as may: one that does not
    /// answer holds its share of the workers, and no more.
    fn is_full(&self, config: &QueueConfig, message: &Message) -> bool {
        let share = config.num_workers / share_of_receiver(&config.script);
        receiver(config, message)
            .is_some_and(|receiver| self.queue.running_to(&receiver) >= share.max(1) as usize)
    }

    fn children_max(&self) -> usize {
        usize::try_from(self.rq.options.limits.children_max).unwrap_or(usize::MAX)
    }

    /// Starts a run, unless the message has to wait or is gone.
    fn start(&self, config: &Arc<QueueConfig>, message: &Message) -> bool {
        let due = record::due(message);
        if due > self.rq.client_api.now() {
            self.put_off(message.id, due);
            return false;
        }
        let blocking = params(message, &config.blocking_params);
        if !blocking.is_empty() && self.queue.is_blocked(&blocking) {
            return false;
        }
        let running = match Running::new(blocking, receiver(config, message)) {
            Ok(running) => Arc::new(running),
            Err(error) => {
                tracing::warn!(queue = self.queue.name, %error, "no file for a run");
                return false;
            }
        };
        let guest = Guest::new(&self.rq.client_api, Box::new(|_, _| {}));
        let Some(message) = guest.reserve(message.id) else {
            return false;
        };
        let along = self.reserve_along(config, &guest, &message);
        let ids: Vec<u64> = along.iter().map(|message| message.id.0).collect();
        let id = message.id.0;
        if !self.queue.begin(id, &running, &ids) {
            return false;
        }
        self.rq.children.fetch_add(1, Ordering::SeqCst);
        let run = ScriptRun {
            rq: Arc::clone(self.rq),
            queue: Arc::clone(self.queue),
            config: Arc::clone(config),
            guest,
            message,
            along,
            running,
        };
        let thread = std::thread::Builder::new()
            .name("rq run".to_owned())
            .stack_size(RUN_STACK_BYTES)
            .spawn(move || run.go());
        if let Err(error) = thread {
            tracing::warn!(queue = self.queue.name, %error, "cannot start a thread for a run");
            self.queue.end(id, &ids);
            self.rq.children.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// A message that ran along with another when the server died came back
    /// without its due time.
    fn put_off(&self, id: MessageId, due: Ms) {
        let edit = Edit {
            due: Some(When::At(due)),
            ..Edit::default()
        };
        self.rq.ask(Command::Edit(id, Box::new(edit)));
    }

    /// Reserves the messages that wait with the same parameters, those that
    /// are not due included.
    fn reserve_along(
        &self,
        config: &QueueConfig,
        guest: &Guest,
        message: &Message,
    ) -> Vec<Message> {
        if config.coalesce_params.is_empty() {
            return Vec::new();
        }
        let wanted = params(message, &config.coalesce_params);
        let full = self.rq.full_id(&self.queue.name, message);
        let mut along = Vec::new();
        for state in [ListState::Ready, ListState::Delayed] {
            let window = self.rq.options.limits.window;
            for other in self.rq.page(&self.queue.name, state, window) {
                if other.selectable
                    && params(&other, &config.coalesce_params) == wanted
                    && let Some(other) = guest.reserve(other.id)
                {
                    guest.ask(record::change(other.id, set("dup", &full)));
                    along.push(other);
                }
            }
        }
        along
    }
}

/// The values of some parameters; `None` for one that is not given.
fn params(message: &Message, numbers: &[u8]) -> Vec<Option<Vec<u8>>> {
    let value = |&n: &u8| match n {
        1 => match message.body.as_small() {
            Some(bytes) => Some(bytes.to_vec()),
            // Large ones are compared by identity, as the engine does.
            None => Some(format!("body {}", message.id.0).into_bytes()),
        },
        _ => record::attr(message, &format!("param{n}")).map(<[u8]>::to_vec),
    };
    numbers.iter().map(value).collect()
}

/// The part of a queue's workers, one in so many, that may wait for one server.
fn share_of_receiver(script: &str) -> u32 {
    match script {
        "builtin:webhook" => 5,
        _ => 2,
    }
}

/// The server that the script of a message asks, where that is known: host and port.
fn receiver(config: &QueueConfig, message: &Message) -> Option<String> {
    let url = match config.script.as_str() {
        "builtin:webhook" => message.body.as_small()?,
        "builtin:relay" => record::attr(message, "dest")?,
        _ => return None,
    };
    let url = std::str::from_utf8(url).ok()?;
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next()?;
    Some(host.to_ascii_lowercase())
}
