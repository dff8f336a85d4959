//! A client API over a bare engine, for tests of what stands behind one.
//!
//! Nothing is written anywhere. Time is set by the test, or goes by itself
//! ([`SimApi::ticking`]); the wall clock stands where the test puts it
//! ([`SimApi::set_wall`]).

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quintet_client::{Arrive, ClientApi, OnOutcome, Operator, Recent, StoreError, TellPage};
use quintet_engine::Fact;
use quintet_types::{
    Answer, Attempt, Body, Caller, ClientId, Command, CommandError, Delivery, Ending, MessageId,
    Ms, Name, Outcome, QueueStats, Settings, WallAhead,
};

use crate::world::World;

/// A client API to one shard in memory.
pub struct SimApi {
    inside: Mutex<Inside>,
    changed: Condvar,
    /// Since when time goes by itself, and from where.
    ticking: Option<(Instant, Ms)>,
    ahead: Mutex<WallAhead>,
    /// Times that connections were listed.
    lists: AtomicU64,
}

struct Inside {
    world: World,
    clients: u64,
    arrive: HashMap<ClientId, Arc<Mutex<Arrive>>>,
    waiting: HashMap<ClientId, OnOutcome>,
    stopped: bool,
    /// Commands are decided, and nobody gets a reply.
    silent: bool,
}

/// Replies to send once the lock is given back.
#[derive(Default)]
struct Tell {
    replies: Vec<(OnOutcome, Outcome, Name)>,
    arrived: Vec<(Arc<Mutex<Arrive>>, Delivery)>,
}

impl SimApi {
    /// A client API whose time stands at `now` until [`SimApi::set_time`].
    pub fn new(settings: Settings, now: Ms) -> Arc<Self> {
        Arc::new(Self::make(settings, now, None))
    }

    /// From now on what is put is answered to nobody, as where no quorum acknowledges it; or is
    /// again.
    pub fn set_silent(&self, silent: bool) {
        self.lock().silent = silent;
    }

    /// A client API whose time begins at the machine's and goes by itself; a thread of its own does
    /// what becomes due, until the last handle is dropped.
    pub fn ticking(settings: Settings) -> Arc<Self> {
        let now = wall();
        let client_api = Arc::new(Self::make(settings, now, Some((Instant::now(), now))));
        let weak = Arc::downgrade(&client_api);
        std::thread::spawn(move || run(&weak));
        client_api
    }

    fn make(settings: Settings, now: Ms, ticking: Option<(Instant, Ms)>) -> Self {
        Self {
            inside: Mutex::new(Inside {
                world: World::with(settings).at(now),
                clients: 0,
                arrive: HashMap::new(),
                waiting: HashMap::new(),
                stopped: false,
                silent: false,
            }),
            changed: Condvar::new(),
            ticking,
            ahead: Mutex::default(),
            lists: AtomicU64::new(0),
        }
    }

    /// Sets the wall clock: so far ahead of engine time.
    pub fn set_wall(&self, ahead: WallAhead) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = ahead;
        self.lock().world.engine.set_wall_ahead(ahead);
    }

    /// How often the connections were listed.
    pub fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    /// Every fact so far, in order.
    pub fn facts(&self) -> Vec<Fact> {
        self.lock().world.facts.clone()
    }

    /// Replaces the settings.
    pub fn configure(&self, settings: Settings) {
        self.lock().world.engine.configure(settings);
    }

    /// Sets the time and does what is due by then.
    pub fn set_time(&self, now: Ms) {
        let mut inside = self.lock();
        inside.world.now = inside.world.now.max(now);
        inside.world.tick();
        while inside.world.engine.next_deadline() <= inside.world.now {
            inside.world.tick();
        }
        self.notify(inside, None);
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sorts the replies by client, unlocks, and sends them.
    fn notify(&self, mut inside: MutexGuard<'_, Inside>, own: Option<(OnOutcome, Outcome, Name)>) {
        let mut on_reply = Tell::default();
        on_reply.replies.extend(own);
        for delivery in std::mem::take(&mut inside.world.deliveries) {
            if delivery.standing {
                if let Some(arrive) = inside.arrive.get(&delivery.to) {
                    on_reply.arrived.push((Arc::clone(arrive), delivery));
                }
            } else if let Some(reply) = inside.waiting.remove(&delivery.to) {
                on_reply
                    .replies
                    .push((reply, delivery.outcome, delivery.queue));
            }
        }
        drop(inside);
        self.changed.notify_one();
        for (reply, outcome, name) in on_reply.replies {
            reply(outcome, name);
        }
        for (arrive, delivery) in on_reply.arrived {
            if let Outcome::Messages(messages) = delivery.outcome {
                let mut arrive = arrive.lock().unwrap_or_else(PoisonError::into_inner);
                arrive(messages, delivery.queue);
            }
        }
    }
}

impl Drop for SimApi {
    fn drop(&mut self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

impl Operator for SimApi {
    fn end_of(&self, id: MessageId) -> Option<Ending> {
        self.lock().world.engine.end_of(id)
    }

    fn attempts_of(&self, id: MessageId) -> Vec<Attempt> {
        self.lock().world.engine.attempts_of(id)
    }

    fn purge_of(&self, id: MessageId) -> Option<Ending> {
        self.lock().world.engine.purge_of(id)
    }

    /// All that was counted since the queue was made.
    fn recent(&self, queue: &QueueStats) -> Option<Recent> {
        let totals = &queue.totals;
        Some(Recent {
            span_ms: self.now().since(queue.created),
            came: totals.came(),
            left: totals.left(),
            failures: totals.failures,
            timeouts: totals.timeouts,
            refused: totals.refused_full,
            limited: queue.limited_takes,
            dead: totals.buries + totals.left().failed,
            no_end_ms: 0,
            idle_ms: 0,
        })
    }

    fn clients(&self, _: Option<u64>, sender: TellPage) {
        self.lists.fetch_add(1, Ordering::Relaxed);
        sender("[]".to_owned(), None);
    }
}

impl ClientApi for SimApi {
    fn now(&self) -> Ms {
        match self.ticking {
            Some((since, from)) => {
                from + u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
            }
            None => self.lock().world.now,
        }
    }

    fn wall(&self) -> Ms {
        let ahead = *self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.wall_at(self.now())
    }

    fn epoch(&self) -> u64 {
        self.lock().world.engine.epoch()
    }

    fn enter(&self, arrive: Arrive) -> ClientId {
        let mut inside = self.lock();
        inside.clients += 1;
        let client_id = ClientId(inside.clients);
        inside
            .arrive
            .insert(client_id, Arc::new(Mutex::new(arrive)));
        client_id
    }

    fn leave(&self, client_id: ClientId) {
        let now = self.now();
        let mut inside = self.lock();
        inside.arrive.remove(&client_id);
        inside.waiting.remove(&client_id);
        inside.world.now = inside.world.now.max(now);
        inside.world.disconnect(client_id);
        self.notify(inside, None);
    }

    fn submit(&self, caller: Caller, command: Command, reply: OnOutcome) {
        let now = self.now();
        let mut inside = self.lock();
        inside.world.now = inside.world.now.max(now);
        let silent = inside.silent && matches!(command, Command::Put(_) | Command::PutMany(_));
        let own = match inside.world.submit(caller, command) {
            Answer::Now(..) if silent => None,
            Answer::Now(outcome, _) => {
                let name = match &outcome {
                    Outcome::Messages(messages) => messages
                        .first()
                        .map(|message| inside.world.engine.queue_name(message.queue))
                        .unwrap_or_default(),
                    _ => Name::default(),
                };
                Some((reply, outcome, name))
            }
            Answer::Later => {
                inside.waiting.insert(caller.client_id, reply);
                None
            }
        };
        self.notify(inside, own);
    }

    fn read(&self, body: &Body, from: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = body
            .as_small()
            .ok_or_else(|| io::Error::other("a simulated client API has no large bodies"))?;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
        let count = into.len().min(bytes.len() - from);
        into[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn store(&self, _queue: &Name, len: u64, source: &mut dyn Read) -> Result<Body, StoreError> {
        let len = usize::try_from(len).map_err(|_| StoreError::Refused(CommandError::NoMemory))?;
        let mut bytes = vec![0; len];
        source.read_exact(&mut bytes).map_err(StoreError::Source)?;
        Ok(Body::new(&bytes))
    }
}

fn wall() -> Ms {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ms(since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }))
}

/// Does what becomes due.
fn run(client_api: &Weak<SimApi>) {
    loop {
        let Some(client_api) = client_api.upgrade() else {
            return;
        };
        let now = client_api.now();
        client_api.set_time(now);
        let inside = client_api.lock();
        let until = inside.world.engine.next_deadline().since(now).clamp(1, 20);
        // Woken by commands, which may bring an earlier deadline.
        let (inside, _timeout) = client_api
            .changed
            .wait_timeout(inside, Duration::from_millis(until))
            .unwrap_or_else(PoisonError::into_inner);
        if inside.stopped {
            return;
        }
    }
}
