//! Prints the memory a small ready message uses: puts a million of 100 bytes
//! into one queue and divides what the process grew by.
//!
//! `cargo run --release -p quintet-sim --example memory`

use quintet_engine::{Engine, Fact, Journal};
use quintet_types::{Body, Caller, Command, Ms, Put, Settings, StatsOf, StatsReply};

const MESSAGES: u64 = 1_000_000;
const BODY: [u8; 100] = [7; 100];

/// A log that is not there.
struct Nowhere;

impl Journal for Nowhere {
    fn record(&mut self, _: &Fact) {}
}

/// Bytes of this process that are in memory and no file's.
fn resident() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    Ok(kilobytes.unwrap_or(0u64) * 1024)
}

fn main() -> std::io::Result<()> {
    let mut engine = Engine::new(0, 1, Settings::default());
    let mut deliveries = Vec::new();
    let mut ask = |command| {
        let caller = Caller::default();
        engine.submit(
            Ms(1_000_000),
            caller,
            command,
            &mut Nowhere,
            &mut deliveries,
        )
    };
    let before = resident()?;
    for _ in 0..MESSAGES {
        let put = Put {
            queue: "memory".into(),
            body: Body::new(&BODY),
            ..Put::default()
        };
        ask(Command::Put(put));
    }
    let grown = resident()? - before;
    println!("{} bytes per message of {}", grown / MESSAGES, BODY.len());
    if let quintet_types::Answer::Now(quintet_types::Outcome::Stats(stats), _) =
        ask(Command::Stats(StatsOf::Shard))
        && let StatsReply::Shard(shard) = *stats
    {
        println!("{} by the engine's count", shard.memory_bytes / MESSAGES);
    }
    Ok(())
}
