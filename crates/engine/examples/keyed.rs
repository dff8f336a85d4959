//! Cost of keys with a meaning: the engine's share of a put, a lease and a finish, in queues with
//! and without each setting, in turns. `cargo run --release -p quintet-engine --example keyed`;
//! with a setting's name alone, for callgrind, one turn of that.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::sync::Arc;
use std::time::Instant;

use quintet_engine::*;
use quintet_types::*;

/// Encodes every fact, as the server does.
struct Bytes(Vec<u8>);

impl Journal for Bytes {
    fn record(&mut self, fact: &Fact) {
        if self.0.len() > 1 << 20 {
            self.0.clear();
        }
        fact.encode(&mut self.0);
    }
}

struct Bench {
    engine: Engine,
    journal: Bytes,
    deliveries: Vec<Delivery>,
    keys: Vec<Arc<[u8]>>,
    put: usize,
}

fn settings(name: &str) -> Settings {
    let mut settings = Settings::default();
    let all = &mut settings.defaults;
    match name {
        "ordered" => all.groups = Groups::Ordered,
        "fair" => all.groups = Groups::Fair,
        "key_in_flight_max" => all.key_in_flight_max = 1_000_000,
        "key_take_rate" => {
            all.key_take_rate = Rate {
                count: 1_000_000_000,
                per_ms: 1000,
            }
        }
        _ => {}
    }
    settings
}

impl Bench {
    fn new(name: &str, keys: usize) -> Self {
        let key = |number: usize| Arc::from(format!("key-{number}").as_bytes());
        Self {
            engine: Engine::new(0, 1, settings(name)),
            journal: Bytes(Vec::with_capacity(2 << 20)),
            deliveries: Vec::new(),
            keys: (0..keys).map(key).collect(),
            put: 0,
        }
    }

    fn ask(&mut self, client_id: u64, command: Command) -> Answer {
        let caller = Caller {
            client_id: ClientId(client_id),
            principal: Principal(0),
        };
        self.engine.submit(
            Ms(1_000_000),
            caller,
            command,
            &mut self.journal,
            &mut self.deliveries,
        )
    }

    fn put(&mut self) {
        // Keys come again in another order each time round.
        let at = self.put.wrapping_mul(7919) % self.keys.len();
        self.put += 1;
        let put = Put {
            queue: "work".into(),
            body: Body::new(&[b'x'; 64]),
            more: Some(Box::new(PutMore {
                key: Some(self.keys[at].clone()),
                ..PutMore::default()
            })),
            ..Put::default()
        };
        self.ask(1, Command::Put(put));
    }

    fn take(&mut self, client_id: u64, wait: Wait) -> Answer {
        let lease = LeaseRequest {
            owner: LeaseOwner::Connection,
            time: LeaseTime::TtrOrDefault,
            back_to: BackTo::Position,
            held_max: 0,
        };
        let take = Take {
            queues: [Name::from("work")].into_iter().collect(),
            lease: Some(lease),
            wait,
            ..Take::default()
        };
        self.ask(client_id, Command::Take(take))
    }

    fn finish(&mut self, client_id: u64, id: MessageId) {
        let (by, how) = (By::Owner, How::Finish);
        self.ask(client_id, Command::Settle { id, by, how });
    }

    /// Puts, leases and finishes so many, one after the other, behind a backlog.
    fn alone(&mut self, count: usize, backlog: usize) -> f64 {
        while self.put < backlog {
            self.put();
        }
        let begun = Instant::now();
        for _ in 0..count {
            self.put();
            if let Answer::Now(Outcome::Messages(handed), _) = self.take(2, Wait::No) {
                self.finish(2, handed[0].id);
            }
        }
        begun.elapsed().as_nanos() as f64 / count as f64
    }

    /// The same by consumers that wait: each put serves one, who finishes what it
    /// held before and waits again.
    fn waited(&mut self, count: usize, consumers: u64) -> f64 {
        for consumer in 0..consumers {
            self.take(10 + consumer, Wait::Forever);
        }
        let mut held: Vec<(u64, MessageId)> = Vec::new();
        let begun = Instant::now();
        let mut done = 0;
        while done < count {
            self.put();
            for delivery in std::mem::take(&mut self.deliveries) {
                if let Outcome::Messages(handed) = &delivery.outcome {
                    held.push((delivery.to.0, handed[0].id));
                }
            }
            if held.len() * 2 > consumers as usize {
                for (client_id, id) in std::mem::take(&mut held) {
                    done += 1;
                    self.finish(client_id, id);
                    if let Answer::Now(Outcome::Messages(handed), _) =
                        self.take(client_id, Wait::Forever)
                    {
                        held.push((client_id, handed[0].id));
                    }
                }
            }
        }
        begun.elapsed().as_nanos() as f64 / done as f64
    }
}

fn main() {
    const COUNT: usize = 200_000;
    if let Some(name) = std::env::args().nth(1) {
        Bench::new(&name, 1000).alone(20_000, 1000);
        return;
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let row = |what: &str, run: &dyn Fn(&str) -> f64, name: &str| {
        let turns = (0..7).map(|turn| match turn % 2 {
            0 => (run("none"), run(name)),
            _ => {
                let with = run(name);
                (run("none"), with)
            }
        });
        let turns: Vec<(f64, f64)> = turns.collect();
        let without = median(turns.iter().map(|turn| turn.0).collect());
        let with = median(turns.iter().map(|turn| turn.1).collect());
        let ratio = median(turns.iter().map(|turn| turn.0 / turn.1).collect());
        println!("{what}, {name}: {with:.0} ns, {without:.0} without: {ratio:.2} of the rate");
    };
    for name in ["ordered", "fair", "key_in_flight_max", "key_take_rate"] {
        let alone = |name: &str| Bench::new(name, 1000).alone(COUNT, 1000);
        row("1,000 keys and messages", &alone, name);
    }
    let deep = |name: &str| Bench::new(name, 100_000).alone(COUNT, 100_000);
    row("100,000 keys and messages", &deep, "ordered");
    let waited = |name: &str| Bench::new(name, 100_000).waited(COUNT, 1000);
    row("100,000 keys, 1,000 waiting consumers", &waited, "ordered");
}
