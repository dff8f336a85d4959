//! `kill -9` and power cuts under load, again and again, on the real binary.
//!
//! Producers and consumers over several connections; the server is killed at a
//! random moment, or the power cut at one or beside a random call, which undoes
//! what was not synced. It is started again on the same directory. What must
//! hold:
//!
//! - an acknowledged put is never lost, but for at most one removing take in
//!   flight per connection and kill;
//! - what was taken and acknowledged never returns;
//! - each connection sees each producer's messages in order;
//! - nothing appears that was never put, and bodies are whole.
//!
//! `QUINTET_CRASH_ROUNDS` sets the kills of each test (default 10, with a backlog 6, three times as
//! many if `QUINTET_CASES` is set) and `QUINTET_CRASH_SEED` repeats a run's random choices.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quintet_faults::{Action, Call, Faults, Rule, Undo, files};

use crate::common::{Connection, Data, PATIENCE, Server, Start, await_that, faults};

/// A message: its producer and its number there.
type Id = (u32, u64);

const PRODUCERS: u32 = 4;
const CONSUMERS: u32 = 4;

/// Puts that a server answers before it is killed, at least.
const STORED: u64 = 10;

/// xorshift64*: enough to vary a load, and repeatable.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

fn start(data: &Path, life: Life, faults: Option<&Faults>) -> Server {
    let (shards, io_threads) = (life.shards, life.io_threads);
    // A small log, so that segments rotate and retire all the time.
    // And as little memory as works, so that messages leave it all the time.
    let config = format!(
        "shards = {shards}\nio_threads = {io_threads}\nspare_segments = 2\nlog_bytes = \"8MiB\"\n\
         memory = \"{}MiB\"\n",
        24 + 8 * shards
    );
    let start = Start::of(&config).sync(life.sync);
    match faults {
        Some(faults) => Server::start_under(faults, data, &start),
        None => start.serve_at(data),
    }
}

/// The power goes now, if no rule had it go before.
fn cut(server: Server, faults: &Faults) {
    faults.cut();
    server.ended();
    faults.end_rules();
}

/// The end of a connection: the server is gone.
struct Gone;

impl From<io::Error> for Gone {
    fn from(error: io::Error) -> Self {
        let hangs = [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind());
        assert!(!hangs, "the server hangs");
        assert_ne!(error.kind(), ErrorKind::Other, "{error}");
        Self
    }
}

struct Client(Connection);

impl Client {
    fn connect(address: &str) -> Result<Self, Gone> {
        Ok(Self(Connection::tcp(address, PATIENCE)?))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        Ok(self.0.send(bytes)?)
    }

    fn line(&mut self) -> Result<String, Gone> {
        Ok(self.0.line()?)
    }

    /// The reply to a get: an item, or `END`.
    fn item(&mut self) -> Result<Option<Vec<u8>>, Gone> {
        Ok(self.0.value()?)
    }
}

/// A body names itself and has a length that follows from its number, so that
/// a torn or mixed one is seen.
fn body(id: Id) -> Vec<u8> {
    let len = match id.1 % 97 {
        0 => 150_000,
        1..=30 => 4000,
        other => 30 + other as usize,
    };
    let mut body = format!("{}:{}:", id.0, id.1).into_bytes();
    body.resize(len, b'a' + (id.1 % 26) as u8);
    body
}

fn id_of(bytes: &[u8]) -> Id {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    let mut parts = text.split(':').map(|part| part.parse::<u64>());
    match (parts.next(), parts.next()) {
        (Some(Ok(producer)), Some(Ok(number))) => {
            let id = (producer as u32, number);
            assert!(bytes == body(id), "the body of {id:?} is not what was put");
            id
        }
        _ => panic!("nobody put {text:?}"),
    }
}

/// The clients' knowledge, over all rounds.
#[derive(Default)]
struct ClientLedger {
    /// Put and acknowledged.
    stored: HashSet<Id>,
    /// Sent, perhaps without an answer.
    sent: HashMap<u32, u64>,
    /// Taken, and the removal acknowledged.
    settled: HashSet<Id>,
    /// Closed without an answer: may or may not come back.
    unsure: HashSet<Id>,
    /// Removing takes without an answer when the server was killed.
    in_flight: u64,
}

impl ClientLedger {
    fn see(&self, id: Id) {
        assert!(
            !self.settled.contains(&id),
            "{id:?} was taken before and has come back"
        );
        let sent = self.sent.get(&id.0).copied().unwrap_or(0);
        assert!(id.1 < sent, "{id:?} was never sent");
    }
}

fn produce(address: &str, producer: u32, seed: u64, known: &Mutex<ClientLedger>) {
    let mut random = Random(seed);
    let queue = if producer.is_multiple_of(2) {
        "removing"
    } else {
        "opening"
    };
    let Ok(mut client) = Client::connect(address) else {
        return;
    };
    loop {
        let first = known
            .lock()
            .unwrap()
            .sent
            .get(&producer)
            .copied()
            .unwrap_or(0);
        let count = 1 + random.below(8);
        known.lock().unwrap().sent.insert(producer, first + count);
        let mut request = Vec::new();
        for number in first..first + count {
            let body = body((producer, number));
            request.extend(format!("set {queue} 0 0 {}\r\n", body.len()).into_bytes());
            request.extend(body);
            request.extend(b"\r\n");
        }
        if client.send(&request).is_err() {
            return;
        }
        for number in first..first + count {
            match client.line() {
                Ok(line) => assert_eq!(line, "STORED"),
                Err(Gone) => return,
            }
            known.lock().unwrap().stored.insert((producer, number));
        }
    }
}

/// Keeps each producer's order as one connection sees it.
#[derive(Default)]
struct Order(HashMap<u32, u64>);

impl Order {
    fn see(&mut self, id: Id) {
        if let Some(last) = self.0.insert(id.0, id.1) {
            assert!(last < id.1, "{id:?} came after number {last}");
        }
    }
}

fn consume_removing(address: &str, known: &Mutex<ClientLedger>) {
    let Ok(mut client) = Client::connect(address) else {
        return;
    };
    let mut order = Order::default();
    loop {
        if client.send(b"get removing/t=20\r\n").is_err() {
            return;
        }
        match client.item() {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                let id = id_of(&bytes);
                order.see(id);
                let mut known = known.lock().unwrap();
                known.see(id);
                known.settled.insert(id);
            }
            Err(Gone) => {
                known.lock().unwrap().in_flight += 1;
                return;
            }
        }
    }
}

fn consume_opening(address: &str, known: &Mutex<ClientLedger>) {
    let Ok(mut client) = Client::connect(address) else {
        return;
    };
    let mut order = Order::default();
    loop {
        if client.send(b"get opening/t=20/open\r\n").is_err() {
            return;
        }
        let id = match client.item() {
            Ok(None) => continue,
            Ok(Some(bytes)) => id_of(&bytes),
            Err(Gone) => return,
        };
        order.see(id);
        {
            let mut known = known.lock().unwrap();
            known.see(id);
            known.unsure.insert(id);
        }
        if client.send(b"get opening/close\r\n").is_err() {
            return;
        }
        match client.item() {
            Ok(None) => {
                let mut known = known.lock().unwrap();
                known.unsure.remove(&id);
                known.settled.insert(id);
            }
            Ok(Some(_)) => panic!("close fetched something"),
            Err(Gone) => return,
        }
    }
}

/// Takes everything that is left; what comes counts as settled.
fn drain(address: &str, known: &Mutex<ClientLedger>) {
    let Ok(mut client) = Client::connect(address) else {
        panic!("no connection to drain")
    };
    for queue in ["removing", "opening"] {
        loop {
            let Ok(()) = client.send(format!("get {queue}\r\n").as_bytes()) else {
                panic!("gone")
            };
            match client.item() {
                Ok(None) => break,
                Ok(Some(bytes)) => {
                    let id = id_of(&bytes);
                    let mut known = known.lock().unwrap();
                    known.see(id);
                    known.settled.insert(id);
                }
                Err(Gone) => panic!("the server went away while it was drained"),
            }
        }
    }
}

/// When somebody takes: in every round, or in a few, so that a backlog far
/// larger than memory comes and goes.
#[derive(Clone, Copy, PartialEq)]
enum Consumers {
    Always,
    Seldom,
}

/// How a server lives and ends.
#[derive(Clone, Copy)]
struct Life {
    sync: &'static str,
    shards: u32,
    io_threads: u32,
    consumers: Consumers,
    /// The power is cut; else `kill -9`.
    cuts: bool,
}

const LIFE: Life = Life {
    sync: "always",
    shards: 1,
    io_threads: 0,
    consumers: Consumers::Always,
    cuts: false,
};

/// Where the power may go, beside any moment.
const CUTS: [(Call, u64); 8] = [
    (Call::Sync, files::SEGMENT),
    (Call::Sync, files::RUN),
    (Call::Sync, files::DIRECTORY),
    (Call::Send, files::SOCKET),
    (Call::Write, files::SEGMENT),
    (Call::Rename, files::OURS),
    (Call::Create, files::OURS),
    (Call::Unlink, files::OURS),
];

fn kill_loop(life: Life) {
    let Life {
        sync,
        shards,
        io_threads,
        consumers,
        cuts,
    } = life;
    let rounds = match consumers {
        Consumers::Always => 10,
        // Each is long, and the messages left in the end are taken one by one.
        Consumers::Seldom => 6,
    };
    let rounds = match std::env::var("QUINTET_CASES").is_ok() {
        true => 3 * rounds,
        false => rounds,
    };
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse().ok())
            .unwrap_or(default)
    };
    let rounds = number("QUINTET_CRASH_ROUNDS", rounds);
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(1, |time| time.as_nanos() as u64);
    // The seed of `cargo xtask test`, so that a commit makes the same choices on each machine.
    let seed = number("QUINTET_CRASH_SEED", number("FIRST_SEED", now) | 1);
    println!(
        "crash test: sync {sync}, {shards} shards, io_threads {io_threads}, cuts {cuts}, {rounds} \
         rounds, QUINTET_CRASH_SEED={seed}"
    );
    let mut random = Random(seed);
    let data = Data::fresh();
    let faults = cuts.then(|| faults(&data));
    let known = Arc::new(Mutex::new(ClientLedger::default()));
    for round in 0..rounds {
        let takes = consumers == Consumers::Always || round % 3 == 2;
        if let Some(faults) = &faults {
            let kinds = [Undo::Pages, Undo::PagesAndNames, Undo::SomePages];
            faults.undo(kinds[random.below(3) as usize]);
            faults.seed(random.below(1 << 40));
        }
        let server = start(&data, life, faults.as_ref());
        if let Some(faults) = faults.as_ref().filter(|_| random.below(4) > 0) {
            let (call, of) = CUTS[random.below(CUTS.len() as u64) as usize];
            let action = [Action::CutBefore, Action::CutAfter][random.below(2) as usize];
            let rule = Rule::once(call, action).on(of).after(random.below(60));
            faults.rule(0, rule);
        }
        let backlog = consumers == Consumers::Seldom && !cuts;
        if backlog && takes {
            server.await_number("cold_messages", |cold| cold > 0);
        }
        let before = known.lock().unwrap().stored.len() as u64;
        let mut workers = Vec::new();
        for producer in 0..PRODUCERS {
            let (address, known) = (server.address().to_owned(), known.clone());
            let seed = random.below(1 << 30) + 1;
            workers.push(std::thread::spawn(move || {
                produce(&address, producer, seed, &known)
            }));
        }
        for consumer in (0..CONSUMERS).filter(|_| takes) {
            let (address, known) = (server.address().to_owned(), known.clone());
            workers.push(std::thread::spawn(move || match consumer % 2 {
                0 => consume_removing(&address, &known),
                _ => consume_opening(&address, &known),
            }));
        }
        // The moment of the kill is the random thing here.
        match consumers {
            // By a count: on a fast and on a slow machine two rounds are more than memory holds.
            Consumers::Seldom if backlog => {
                let enough = before + 8_000 + random.below(4_000);
                await_that("few puts are answered", || {
                    known.lock().unwrap().stored.len() as u64 >= enough
                });
            }
            Consumers::Seldom => std::thread::sleep(Duration::from_millis(random.below(900))),
            Consumers::Always => std::thread::sleep(Duration::from_millis(random.below(250))),
        }
        // A kill of a server that stored nothing shows nothing. A cut comes when it comes.
        if !cuts {
            await_that("too few puts are answered", || {
                known.lock().unwrap().stored.len() as u64 >= before + STORED
            });
        }
        match &faults {
            Some(faults) => cut(server, faults),
            None => server.kill(),
        }
        for worker in workers {
            worker.join().expect("no client saw anything wrong");
        }
    }
    if let Some(faults) = &faults {
        println!("crash test: {} bytes undone", faults.undone());
        assert_eq!(faults.cuts(), rounds, "each round ends by a cut");
        assert!(faults.undone() > 0, "nothing was ever undone");
    }
    // What is taken now needs no disk.
    let last = Life {
        sync: "never",
        ..life
    };
    let server = start(&data, last, None);
    drain(server.address(), &known);
    server.kill();

    let known = known.lock().unwrap();
    let lost: Vec<&Id> = known
        .stored
        .iter()
        .filter(|id| !known.settled.contains(id) && !known.unsure.contains(id))
        .collect();
    println!(
        "crash test: sync {sync}, {shards} shards, {} stored, {} settled, {} lost with {} removing takes in flight",
        known.stored.len(),
        known.settled.len(),
        lost.len(),
        known.in_flight
    );
    let least = if cuts { rounds } else { rounds * STORED };
    assert!(known.stored.len() as u64 >= least, "the load did not run");
    assert!(
        lost.iter().all(|id| id.0 % 2 == 0),
        "lost under a lease: {lost:?}"
    );
    assert!(lost.len() as u64 <= known.in_flight, "lost {lost:?}");
}

#[test]
fn kill_9_with_sync_always() {
    kill_loop(LIFE);
}

#[test]
fn kill_9_with_sync_at_an_interval() {
    kill_loop(Life {
        sync: "50ms",
        ..LIFE
    });
}

#[test]
fn kill_9_with_sync_never() {
    kill_loop(Life {
        sync: "never",
        ..LIFE
    });
}

#[test]
fn kill_9_with_several_shards() {
    kill_loop(Life { shards: 4, ..LIFE });
}

#[test]
fn kill_9_with_several_io_threads() {
    kill_loop(Life {
        shards: 2,
        io_threads: 4,
        ..LIFE
    });
}

#[test]
fn kill_9_with_a_backlog() {
    kill_loop(Life {
        sync: "50ms",
        consumers: Consumers::Seldom,
        ..LIFE
    });
}

#[test]
fn kill_9_with_a_backlog_in_several_shards() {
    kill_loop(Life {
        sync: "never",
        shards: 2,
        consumers: Consumers::Seldom,
        ..LIFE
    });
}

#[test]
fn power_cuts_lose_nothing_acknowledged() {
    kill_loop(Life { cuts: true, ..LIFE });
}

#[test]
fn power_cuts_with_several_shards_and_io_threads() {
    kill_loop(Life {
        shards: 2,
        io_threads: 4,
        cuts: true,
        ..LIFE
    });
}

#[test]
fn power_cuts_with_a_backlog() {
    kill_loop(Life {
        consumers: Consumers::Seldom,
        cuts: true,
        ..LIFE
    });
}
