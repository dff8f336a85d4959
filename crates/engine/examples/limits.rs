//! Cost of commands at their limits, without log or sockets: how long one step holds a shard.
//! `cargo run --release -p quintet-engine --example limits`; the figures are in `docs/limits.md`.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::time::{Duration, Instant};

use quintet_engine::*;
use quintet_types::*;

const QUEUES: u32 = 99_000;
const SUBSCRIPTIONS: u32 = 1_000;
const MANY: u64 = 1_000_000;

/// Encodes every fact, as the server does.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Journal for Bytes {
    fn record(&mut self, fact: &Fact) {
        if self.0.len() > 1 << 24 {
            self.0.clear();
        }
        fact.encode(&mut self.0);
    }
}

struct World {
    engine: Engine,
    journal: Bytes,
    now: Ms,
}

impl World {
    fn new() -> Self {
        let settings = Settings {
            waiters_max: 100_000,
            ..Settings::default()
        };
        Self {
            engine: Engine::new(0, 1, settings),
            // With room: a slice is not to be measured with the growth of this.
            journal: Bytes(Vec::with_capacity(1 << 25)),
            now: Ms(1_000_000),
        }
    }

    fn ask(&mut self, client_id: u64, command: Command) -> Duration {
        let caller = Caller {
            client_id: ClientId(client_id),
            ..Caller::default()
        };
        let mut deliveries = Vec::new();
        let start = Instant::now();
        let answer = self.engine.submit(
            self.now,
            caller,
            command,
            &mut self.journal,
            &mut deliveries,
        );
        let took = start.elapsed();
        let refused = matches!(answer, Answer::Now(Outcome::Refused(_), _));
        assert!(!refused, "{answer:?}");
        took
    }

    /// The longest tick until nothing is due.
    fn ticks(&mut self) -> Duration {
        let mut longest = Duration::ZERO;
        while self.engine.next_deadline() <= self.now {
            let mut deliveries = Vec::new();
            let start = Instant::now();
            self.engine
                .tick(self.now, &mut self.journal, &mut deliveries);
            longest = longest.max(start.elapsed());
        }
        longest
    }

    fn put(&mut self, queue: &Name, change: impl Fn(&mut Put)) -> Duration {
        let mut put = Put {
            queue: queue.clone(),
            body: Body::new(b"some bytes"),
            ..Put::default()
        };
        change(&mut put);
        self.ask(1, Command::Put(put))
    }

    fn put_many(&mut self, queue: &Name, change: impl Fn(&mut Put) + Copy) {
        for _ in 0..MANY {
            self.put(queue, change);
        }
    }

    /// A segment begins, and goes on until its beginning is whole.
    fn segment(&mut self, what: &str) {
        let Self {
            engine, journal, ..
        } = self;
        let start = Instant::now();
        engine.begin_segment(SegmentRef(1), journal);
        show(what, start.elapsed());
        let (mut longest, mut more) = (Duration::ZERO, true);
        while more {
            let start = Instant::now();
            more = engine.restate(256 << 10, journal);
            longest = longest.max(start.elapsed());
        }
        show("  the longest slice of its beginning", longest);
    }

    /// A world with so many queues, one message in each.
    fn of_queues() -> Self {
        let mut world = World::new();
        for number in 0..QUEUES {
            world.put(&named(number), |_| {});
        }
        world
    }
}

/// A name of 40 bytes.
fn named(number: u32) -> Name {
    Name::from(format!("a-queue-with-a-name-of-forty-bytes-{number:05}").as_str())
}

fn subscribed() -> Take {
    Take {
        queues: (0..SUBSCRIPTIONS).map(named).collect(),
        wait: Wait::Forever,
        ..Take::default()
    }
}

fn leased(queue: &Name) -> Command {
    Command::Take(Take {
        queues: [queue.clone()].into_iter().collect(),
        lease: Some(LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::Fixed(0),
            back_to: BackTo::Position,
            held_max: 0,
        }),
        ..Take::default()
    })
}

fn show(what: &str, took: Duration) {
    println!("{:>9.3} ms  {what}", took.as_secs_f64() * 1000.0);
}

fn queues() {
    let mut world = World::of_queues();
    show("stats of the shard", {
        world.ask(1, Command::Stats(StatsOf::Shard))
    });
    show("a page of queues", {
        world.ask(1, Command::Stats(StatsOf::Queues { from: (0, 0) }))
    });
    world.segment("a segment begins");
    let start = Instant::now();
    world.engine.configure(Settings::default());
    show("settings read again", start.elapsed());
    show("flush_all", world.ask(1, Command::FlushAll));
    show("  a tick after it", world.ticks());
    let drop = Command::DropQueues {
        pattern: Pattern::new("*"),
        messages: true,
        dry_run: false,
        from: (0, 0),
    };
    show("a slice of queues dropped", world.ask(1, drop));
}

/// Each of the queues has its message in a block of a run.
fn blocks() {
    let mut world = World::of_queues();
    let World {
        engine, journal, ..
    } = &mut world;
    let mut picked = Vec::new();
    engine.pick_segment_ref(SegmentRef(0), 0, u32::MAX, &mut picked);
    for (ordinal, one) in (0..).zip(picked) {
        let block = Written {
            number: ordinal,
            ordinal,
            queue: one.message.queue,
            state_index: one.state_index,
            entries: vec![(one.message.id, one.pick)],
        };
        engine.evict(RunId(0), &block, journal);
    }
    world.segment("a segment begins, with blocks of runs");
}

fn subscriptions() {
    let mut world = World::new();
    let stand = |take| Command::Watch(Some(Box::new(take)));
    show("a consumer of 1,000", world.ask(2, stand(subscribed())));
    let on = |on| Command::WatchQueue {
        queue: named(SUBSCRIPTIONS),
        on,
    };
    show("  one more", world.ask(2, on(true)));
    show("  one less", world.ask(2, on(false)));
    let all = Command::Rewatch(Box::new(subscribed()));
    show("  all changed", world.ask(2, all));
    show("  a put that serves it", world.put(&named(7), |_| {}));
    let take = Command::Take(Take {
        wait: Wait::No,
        ..subscribed()
    });
    show("a take from 1,000 in vain", world.ask(2, take));
    for client_id in 0..10_000 {
        let take = Take {
            queues: [named(0)].into_iter().collect(),
            body_max: Some(1),
            ..subscribed()
        };
        world.ask(client_id, Command::Take(take));
    }
    show(
        "a put none of 10,000 in line can frame",
        world.put(&named(0), |_| {}),
    );
    let children = |count: u32| {
        let mut world = World::new();
        for child in 1..=count {
            world.ask(
                1,
                Command::Join {
                    parent: named(0),
                    child: named(child),
                },
            );
        }
        world.put(&named(0), |_| {})
    };
    show("a put with 1,024 children", children(1024));
}

fn messages() {
    let queue = &named(0);
    let mut world = World::new();
    world.put_many(queue, |put| put.due = When::At(Ms(2_000_000)));
    let kick = |max| Command::Kick {
        queue: queue.clone(),
        state: ListState::Delayed,
        max,
    };
    show("kick of all of 1,000,000", world.ask(1, kick(u64::MAX)));
    world.now = Ms(2_000_000);
    show("1,000,000 that are due at once: a take", {
        world.ask(1, leased(queue))
    });
    show("  a tick after it", world.ticks());
    let all = Command::BulkOp(Box::new(BulkOp {
        action: BulkAction::Move(named(1)),
        ..BulkOp::show(queue.clone(), ListState::Ready, u32::MAX)
    }));
    show("a step of a move of 1,000,000", world.ask(1, all));
    show("flush of 1,000,000", {
        world.ask(
            1,
            Command::Flush {
                queue: queue.clone(),
                reserved: false,
            },
        )
    });
    show("  a tick after it", world.ticks());
    world.put_many(queue, |put| put.expires = Expiry::At(Ms(3_000_000)));
    world.now = Ms(3_000_000);
    show("1,000,000 that expire at once: a take", {
        world.ask(1, leased(queue))
    });
    show("  a flush of them", {
        world.ask(1, Command::FlushExpired(None))
    });
    show("  a tick after it", world.ticks());
    world.put_many(queue, |_| {});
    show("drop of 1,000,000", {
        world.ask(1, Command::Drop(queue.clone()))
    });
    world.ticks();
    for _ in 0..100_000 {
        world.put(queue, |_| {});
        world.ask(5, leased(queue));
    }
    let start = Instant::now();
    let mut deliveries = Vec::new();
    let now = world.now;
    world
        .engine
        .disconnect(now, ClientId(5), &mut world.journal, &mut deliveries);
    show("an end with 100,000 leases", start.elapsed());
    show("  a tick after it", world.ticks());
    let take = Command::Take(Take {
        body_max: Some(1),
        ..match leased(queue) {
            Command::Take(take) => take,
            _ => Take::default(),
        }
    });
    show("a take that can frame none of 100,000", world.ask(1, take));
}

fn main() {
    queues();
    blocks();
    subscriptions();
    messages();
}
