//! Nanoseconds per put and take, without log or sockets: the engine's share of
//! a request. `cargo run --release -p quintet-engine --example hot`
//! (under callgrind: instructions instead).

#![expect(clippy::disallowed_methods, reason = "it measures")]

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

fn main() {
    let count: u64 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(1_000_000);
    let mut engine = Engine::new(0, 1, Settings::default());
    let mut journal = Bytes(Vec::with_capacity(2 << 20));
    let mut deliveries = Vec::new();
    let caller = Caller {
        client_id: ClientId(1),
        principal: Principal(0),
    };
    let body = [b'x'; 64];
    let name = Name::from("work");
    let mut submit = |engine: &mut Engine, command| {
        engine.submit(
            Ms(1_000_000),
            caller,
            command,
            &mut journal,
            &mut deliveries,
        )
    };
    let put = || {
        Command::Put(Put {
            queue: name.clone(),
            body: Body::new(&body),
            ..Put::default()
        })
    };
    let take = || {
        Command::Take(Take {
            queues: [name.clone()].into_iter().collect(),
            ..Take::default()
        })
    };
    for backlog in [0u64, 100_000, 1_000_000] {
        for _ in 0..backlog {
            submit(&mut engine, put());
        }
        let start = Instant::now();
        for _ in 0..count {
            submit(&mut engine, put());
            submit(&mut engine, take());
        }
        let each = start.elapsed().as_nanos() as u64 / count;
        println!("backlog {backlog}: {each} ns per put and take");
        while matches!(
            submit(&mut engine, take()),
            Answer::Now(Outcome::Messages(_), _)
        ) {}
    }
}
