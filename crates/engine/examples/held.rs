//! The cost of held messages: memory beside a delayed message, time to replay, time to free. A
//! million of them wait for one message, or each for the one before.
//!
//! `cargo run --release -p quintet-engine --example held`

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::process::Command as Process;
use std::time::{Duration, Instant};

use quintet_engine::*;
use quintet_types::*;

const NOW: Ms = Ms(1_000_000);
const KINDS: [&str; 3] = ["delayed", "one", "chain"];

/// All facts, as the log has them.
struct Bytes(Vec<u8>);

impl Journal for Bytes {
    fn record(&mut self, fact: &Fact) {
        fact.encode(&mut self.0);
    }
}

/// Bytes of this process that are in memory and no file's.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kilobytes.unwrap_or(0u64) * 1024
}

fn put(kind: &str, first: MessageId, last: MessageId) -> Put {
    let parent = match kind {
        "one" => Some(first),
        "chain" => Some(last),
        _ => None,
    };
    let after = parent.map(|id| PutAfter {
        ids: vec![id],
        ..PutAfter::default()
    });
    Put {
        queue: "work".into(),
        body: Body::new(&[7; 100]),
        due: match after {
            Some(_) => When::Default,
            None => When::At(HELD),
        },
        more: after.map(|after| {
            Box::new(PutMore {
                after: Some(Box::new(after)),
                ..PutMore::default()
            })
        }),
        ..Put::default()
    }
}

fn measure(kind: &str, count: u64) {
    let mut engine = Engine::new(0, 1, Settings::default());
    // Touched, so that it is no part of what is measured.
    let mut journal = Bytes(vec![1; 300 * usize::try_from(count).unwrap_or(0)]);
    journal.0.clear();
    let mut deliveries = Vec::new();
    let caller = Caller::default();
    let parent = Put {
        queue: "first".into(),
        ..Put::default()
    };
    let mut submit = |engine: &mut Engine, journal: &mut Bytes, command| match engine.submit(
        NOW,
        caller,
        command,
        journal,
        &mut deliveries,
    ) {
        Answer::Now(Outcome::Put { id, .. }, _) => id,
        other => panic!("{other:?}"),
    };
    let first = submit(&mut engine, &mut journal, Command::Put(parent));
    let (before, mut last) = (resident(), first);
    for _ in 0..count {
        let put = put(kind, first, last);
        last = submit(&mut engine, &mut journal, Command::Put(put));
    }
    println!("{kind} bytes {}", (resident() - before) / count);
    let began = Instant::now();
    let mut again = Engine::new(0, 1, Settings::default());
    let mut rest = journal.0.as_slice();
    while !rest.is_empty() {
        let fact = Fact::decode(&mut rest, &mut |id, len| LargeBody::new(id, len, 0));
        again.replay(fact.expect("written by us"), SegmentRef(0));
    }
    again.begin_epoch(NOW, 1, [7; 16], &mut journal);
    println!("{kind} restart_ms {}", began.elapsed().as_millis());
    if kind == "one" {
        let delete = Command::Delete {
            id: first,
            by: By::Anyone,
        };
        journal.0.clear();
        engine.submit(NOW, caller, delete, &mut journal, &mut Vec::new());
        let (began, mut longest) = (Instant::now(), Duration::default());
        while engine.next_deadline() <= NOW {
            let step = Instant::now();
            engine.tick(NOW, &mut journal, &mut Vec::new());
            longest = longest.max(step.elapsed());
        }
        println!("{kind} freed_ms {}", began.elapsed().as_millis());
        println!("{kind} longest_step_us {}", longest.as_micros());
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let count = |at: usize| args.get(at).and_then(|n| n.parse().ok());
    if let Some(kind) = args.get(1).filter(|kind| KINDS.contains(&kind.as_str())) {
        measure(kind, count(2).unwrap_or(1_000_000));
        return;
    }
    // A process for each: memory that was freed is not given back.
    let me = std::env::current_exe().expect("it runs");
    let count = count(1).unwrap_or(1_000_000u64).to_string();
    for kind in KINDS {
        let mut process = Process::new(&me);
        let ran = process.args([kind, &count]).status();
        assert!(ran.is_ok_and(|status| status.success()), "{kind}");
    }
}
