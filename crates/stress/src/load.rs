//! Well-behaved clients: one thread for each protocol, on queues by chance.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quintet_sim::Random;

use crate::ledger::{DELIVERED, Hook, KICKED, Ledger, PUT_OFF, Wishes, body};
use crate::protocols::{
    API, Addresses, BEANSTALK, CONTROL, Client, FAKTORY, HTTP, JOBQUEUE, LEASE_S, LINEUP,
    LINEUP_QUEUE, MEMCACHE, PINPRIQ, SQS, TakenMessage,
};

/// Queues in which every take is a lease: nothing may be missing in them.
pub(crate) const STRICT: [&str; 4] = ["strict-a", "strict-b", "strict-c", "strict-d"];
/// Queues in which some takes remove.
pub(crate) const LOOSE: [&str; 4] = [LINEUP_QUEUE, "loose-a", "loose-b", "loose-c"];
/// Queues of those whose messages others would find in JSON: SQS, and Faktory.
pub(crate) const OWN: [&str; 2] = ["mail", "jobs"];
/// The queue that a hook moves to [`MOVED_TO`], unless it refuses it.
pub(crate) const MOVED_FROM: &str = "moved";
pub(crate) const MOVED_TO: &str = STRICT[3];
/// The hook refuses what has a multiple of this many bytes.
pub(crate) const REFUSED_BYTES: usize = 5;
/// How long a subscriber waits.
const SUBSCRIBED: Duration = Duration::from_millis(150);
/// How long a lease is held that is not finished at once, at most: well below its time.
const HELD_MS: u64 = 400;
/// Between two puts of a probe.
const PROBED: Duration = Duration::from_millis(20);
/// The queue with a script.
pub(crate) const SCRIPTED: &str = "rq";

/// One of them by chance.
pub(crate) fn one_of<'a>(nodes: &'a [Addresses], random: &mut Random) -> &'a Addresses {
    match nodes {
        [only] => only,
        _ => &nodes[random.index(nodes.len())],
    }
}

/// State that the threads of a round share.
pub(crate) struct Load {
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) stop: AtomicBool,
    /// Raised whenever a fault or a hostile client begins or ends.
    pub(crate) epoch: AtomicU64,
    /// Hostile clients are at work, and no fault.
    pub(crate) hostile: AtomicBool,
    /// Longest wait of a request beside hostile clients, microseconds.
    pub(crate) longest_us: AtomicU64,
    /// How much must be there before consumers outweigh putters.
    pub(crate) backlog: AtomicU64,
    /// Since when a put is awaited, and after what time one was acknowledged that was sent later.
    awaited: Mutex<Option<(Instant, Option<Duration>)>>,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self {
            ledger: Mutex::new(Ledger::new()),
            stop: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            hostile: AtomicBool::new(false),
            longest_us: AtomicU64::new(0),
            backlog: AtomicU64::new(2000),
            awaited: Mutex::new(None),
        }
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A thread that panicked ends the campaign where it is joined.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the time is taken to the first acknowledgement of a put that is sent later.
    pub(crate) fn await_put(&self) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        *awaited = Some((Instant::now(), None));
    }

    /// That time, once there is one.
    pub(crate) fn first_put(&self) -> Option<Duration> {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.and_then(|(_, took)| took)
    }

    fn put_sent_at(&self, sent: Instant) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, took @ None)) = &mut *awaited
            && sent >= *since
        {
            *took = Some(since.elapsed());
        }
    }

    /// Puts a small message again and again until the round stops, so that what an outage takes
    /// is known to some milliseconds.
    pub(crate) fn probe(&self, addresses: &Addresses, seed: u64) {
        let mut random = Random::new(seed);
        while !self.stop.load(Relaxed) {
            if let Ok(mut client) = Client::open(addresses, MEMCACHE) {
                while !self.stop.load(Relaxed)
                    && self
                        .put_of(&mut client, MEMCACHE, LOOSE[1], 100, &mut random)
                        .is_ok()
                {
                    std::thread::sleep(PROBED);
                }
            }
            std::thread::sleep(PROBED);
        }
    }

    /// Works as a client of `protocol` until the round stops; each connection goes to one of
    /// `nodes` by chance.
    pub(crate) fn work(&self, nodes: &[Addresses], protocol: usize, seed: u64) {
        let mut random = Random::new(seed);
        while !self.stop.load(Relaxed) {
            let addresses = one_of(nodes, &mut random);
            let Ok(mut client) = Client::open(addresses, protocol) else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            // Each connection lives for some requests, or to its first error.
            for _ in 0..1 + random.below(400) {
                if self.stop.load(Relaxed) {
                    return;
                }
                let epoch = self.epoch.load(Relaxed);
                let measured = self.hostile.load(Relaxed);
                let began = Instant::now();
                let went_well = self.step(&mut client, protocol, &mut random);
                let took = began.elapsed();
                // A reserve of jobqueue waits for a second where nothing is.
                let waits = protocol == JOBQUEUE && took > Duration::from_millis(900);
                if measured && !waits && went_well.is_ok() && self.epoch.load(Relaxed) == epoch {
                    self.longest_us.fetch_max(took.as_micros() as u64, Relaxed);
                }
                match protocol {
                    CONTROL => std::thread::sleep(Duration::from_millis(60)),
                    HTTP => std::thread::sleep(Duration::from_millis(100)),
                    // So that the protocols that are cheapest do not crowd out others.
                    _ => std::thread::sleep(Duration::from_micros(300)),
                }
                if went_well.is_err() || protocol == HTTP {
                    break;
                }
            }
        }
    }

    fn step(&self, client: &mut Client, protocol: usize, random: &mut Random) -> io::Result<()> {
        let enough = self.ledger().live >= self.backlog.load(Relaxed);
        let queue = match protocol {
            LINEUP => LINEUP_QUEUE,
            HTTP => SCRIPTED,
            SQS => OWN[0],
            FAKTORY => OWN[1],
            PINPRIQ | CONTROL => LOOSE[random.index(LOOSE.len())],
            _ if random.chance(2, 3) => STRICT[random.index(STRICT.len())],
            _ => LOOSE[random.index(LOOSE.len())],
        };
        if protocol == HTTP || random.chance(if enough { 3 } else { 6 }, 10) {
            return self.put(client, protocol, queue, random);
        }
        if protocol == PINPRIQ && random.chance(1, 30) {
            return self.subscribe(client, queue);
        }
        let may_remove = LOOSE.contains(&queue);
        let removes = match protocol {
            LINEUP | PINPRIQ | CONTROL => true,
            MEMCACHE => may_remove && random.chance(1, 2),
            _ => false,
        };
        self.take(client, protocol, queue, removes, random)
            .map(drop)
    }

    fn put(
        &self,
        client: &mut Client,
        protocol: usize,
        queue: &'static str,
        random: &mut Random,
    ) -> io::Result<()> {
        let len = match random.below(100) {
            // What is text from its first byte to its last.
            _ if [SQS, FAKTORY, API].contains(&protocol) => 0,
            0..3 if protocol != PINPRIQ => 65_000 + random.index(400_000),
            0..20 => 2_000 + random.index(60_000),
            _ => random.index(2_000),
        };
        self.put_of(client, protocol, queue, len, random)
    }

    pub(crate) fn put_of(
        &self,
        client: &mut Client,
        protocol: usize,
        queue: &'static str,
        len: usize,
        random: &mut Random,
    ) -> io::Result<()> {
        let len = len.max(crate::ledger::HEAD);
        let mut wishes = Wishes::default();
        let hooked = [MEMCACHE, BEANSTALK, JOBQUEUE].contains(&protocol) && queue == MOVED_TO;
        let to = match hooked && random.chance(1, 2) {
            true => {
                wishes.hook = Some(match len.is_multiple_of(REFUSED_BYTES) {
                    true => Hook::Refuses,
                    false => Hook::Moves,
                });
                MOVED_FROM
            }
            false => queue,
        };
        if protocol == BEANSTALK && random.chance(1, 12) {
            wishes.delay_s = 1 + random.below(3) as u32;
        }
        if protocol == MEMCACHE && random.chance(1, 20) {
            wishes.ttl_s = 1 + random.below(3) as u32;
        }
        let priority = random.below(2000) as u32;
        let number = {
            let mut ledger = self.ledger();
            let number = ledger.begin_put_with(protocol, queue, wishes);
            // memcache and the command line know no priorities; pinpriq's groups have an order of
            // their own.
            let plain = wishes.delay_s == 0 && wishes.hook.is_none() && protocol != PINPRIQ;
            let priority =
                [priority, 0][usize::from([MEMCACHE, CONTROL, SQS, FAKTORY].contains(&protocol))];
            let priority = plain.then_some((protocol, priority));
            ledger
                .history
                .put(number, queue, priority, wishes.ttl_s > 0);
            number
        };
        let sent = Instant::now();
        let done = client.put(to, &body(number, len), priority, wishes);
        if let Ok(true) = done {
            self.put_sent_at(sent);
        }
        let stored = done.as_ref().ok().copied();
        let mut ledger = self.ledger();
        ledger.end_put_with(number, protocol, stored, wishes);
        // A hook's answer is another message's put.
        if let (Some(true), Some(id), None) = (stored, client.id(), wishes.hook) {
            ledger.history.has_id(number, id);
        }
        drop(ledger);
        done.map(drop)
    }

    /// Takes, and finishes what is a lease, mostly. False: there was nothing.
    ///
    /// # Errors
    /// A reply did not come.
    pub(crate) fn take(
        &self,
        client: &mut Client,
        protocol: usize,
        queue: &'static str,
        removes: bool,
        random: &mut Random,
    ) -> io::Result<bool> {
        let requested = Instant::now();
        let Some((taken, number)) = self.take_one(client, protocol, queue, removes, requested)?
        else {
            return Ok(false);
        };
        let Some(number) = number else {
            return Ok(true);
        };
        if removes {
            return Ok(true);
        }
        if random.chance(1, 20) {
            std::thread::sleep(Duration::from_millis(random.below(HELD_MS)));
        }
        let end = Instant::now();
        match random.below(20) {
            0 => {
                let delay_s = random.below(2) as u32;
                client.release(queue, &taken, delay_s)?;
                if ![JOBQUEUE, SQS, FAKTORY].contains(&protocol) {
                    self.ledger().history.held(number, requested, end);
                }
                if protocol == BEANSTALK && delay_s > 0 {
                    self.ledger().deeds[PUT_OFF] += 1;
                }
                return Ok(true);
            }
            // Its lease ends with the connection, or with its time.
            1 => return Err(io::ErrorKind::ConnectionAborted.into()),
            2 if protocol == BEANSTALK => {
                self.bury(client, &taken, number, random)?;
                return Ok(true);
            }
            3 if protocol == BEANSTALK => client.touch(&taken)?,
            _ => {}
        }
        self.ledger().begin_finish(number, protocol);
        let done = client.finish(queue, &taken);
        if done.is_ok() {
            self.ledger().history.held(number, requested, end);
        }
        // memcache and SQS say so whether there was something to close or not; the
        // lease may have ended if the message came with a time to run.
        let sure = ![MEMCACHE, SQS].contains(&protocol)
            || requested.elapsed() < Duration::from_millis(LEASE_S * 750);
        let verdict = done.as_ref().ok().map(|done| *done && sure);
        self.ledger().end_finish(number, protocol, verdict);
        done.map(|_| true)
    }

    /// Takes, and notes what came of it; `None`: there was nothing. With the message's number, if
    /// it is one.
    fn take_one(
        &self,
        client: &mut Client,
        protocol: usize,
        queue: &'static str,
        removes: bool,
        requested: Instant,
    ) -> io::Result<Option<(TakenMessage, Option<u64>)>> {
        let taken = client.take(queue, removes);
        let answered = Instant::now();
        let mut ledger = self.ledger();
        match taken {
            Ok(Some(taken)) => {
                let number = ledger.taken(&taken.body, protocol, queue, requested, removes);
                if let Some(number) = number {
                    let oldest = protocol != PINPRIQ;
                    ledger.history.taken(number, requested, answered, oldest);
                }
                Ok(Some((taken, number)))
            }
            Ok(None) => {
                if client.reported_empty() {
                    ledger.history.empty(queue, requested, answered);
                }
                Ok(None)
            }
            Err(error) => {
                if removes {
                    ledger.take_unknown(protocol, queue);
                }
                ledger.history.unanswered(queue, requested);
                Err(error)
            }
        }
    }

    /// Buries what is leased, and digs up some of it again.
    fn bury(
        &self,
        client: &mut Client,
        taken: &TakenMessage,
        number: u64,
        random: &mut Random,
    ) -> io::Result<()> {
        let done = client.bury(taken);
        let buried = done.as_ref().ok().copied();
        self.ledger().end_bury(number, BEANSTALK, buried);
        if done? && random.chance(1, 2) {
            self.ledger().begin_kick(number, BEANSTALK);
            let kicked = client.kick(taken)?;
            self.ledger().deeds[KICKED] += u64::from(kicked);
        }
        Ok(())
    }

    /// Waits for a message as a subscriber, on a connection that ends with it.
    fn subscribe(&self, client: &mut Client, queue: &'static str) -> io::Result<()> {
        let requested = Instant::now();
        let taken = client.subscribe(queue, SUBSCRIBED);
        match taken {
            Ok(Some(taken)) => {
                let mut ledger = self.ledger();
                ledger.deeds[DELIVERED] += 1;
                let number = ledger.taken(&taken.body, PINPRIQ, queue, requested, true);
                if let Some(number) = number {
                    ledger
                        .history
                        .taken(number, requested, Instant::now(), false);
                }
            }
            // One may be on its way, and nobody reads it.
            _ => {
                let mut ledger = self.ledger();
                ledger.take_unknown(PINPRIQ, queue);
                ledger.history.unanswered(queue, requested);
            }
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// Takes out of `queue` until it is empty.
    ///
    /// # Errors
    /// The server does not answer as it should, which is wrong at this time.
    pub(crate) fn drain(
        &self,
        addresses: &Addresses,
        queue: &'static str,
        random: &mut Random,
    ) -> io::Result<u64> {
        let protocol = [MEMCACHE, BEANSTALK][random.index(2)];
        if queue == OWN[1] {
            // Leases of Faktory outlive their clients by a minute and more.
            Client::open(addresses, API)?.release_all(queue)?;
        }
        self.ledger().kick_all(queue);
        Client::open(addresses, BEANSTALK)?.kick_all(queue)?;
        let mut client = Client::open(addresses, protocol)?;
        let mut taken = 0;
        let removes = protocol == MEMCACHE;
        loop {
            let requested = Instant::now();
            let got = self.take_one(&mut client, protocol, queue, removes, requested)?;
            let Some((got, number)) = got else {
                return Ok(taken);
            };
            taken += 1;
            let Some(number) = number.filter(|_| !removes) else {
                continue;
            };
            self.ledger().begin_finish(number, protocol);
            let done = client.finish(queue, &got);
            self.ledger()
                .end_finish(number, protocol, done.as_ref().ok().copied());
            done?;
        }
    }
}
