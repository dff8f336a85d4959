//! Segments whose beginning is written in slices, while commands are decided.

use quintet_engine::{Engine, Fact};
use quintet_sim::Random;
use quintet_sim::world::{World, plain, reserve};
use quintet_types::*;

use crate::cold::Runs;

/// One of some queues; the last ones get no children, and the first ones become none.
fn step(w: &mut World, random: &mut Random) {
    let name = format!("q{}", random.below(12));
    let queue = Name::from(name.as_str());
    let client_id = 1 + random.below(2);
    let command = match random.below(20) {
        0..=6 => Command::Put(Put {
            queue,
            body: Body::new(b"body"),
            ..Put::default()
        }),
        7..=8 => Command::Take(plain(&name)),
        9..=11 => Command::Take(reserve(&name)),
        12 => Command::Drop(queue),
        13 => Command::Flush {
            queue,
            reserved: random.chance(1, 3),
        },
        14..=15 => Command::Join {
            parent: Name::from(format!("q{}", random.below(8)).as_str()),
            child: Name::from(format!("q{}", 4 + random.below(8)).as_str()),
        },
        16 => Command::Pause {
            queue,
            for_ms: Some(1 << 40),
        },
        17 => Command::Configure {
            queue,
            overrides: Some(Box::new(Overrides {
                ttl_ms: Some(1 << 40),
                ..Overrides::default()
            })),
            must_exist: false,
        },
        18 => Command::Transaction(Box::new(Transaction {
            effects: vec![Effect::Set {
                table: queue,
                key: random.below(3).to_le_bytes().into(),
                value: random.chance(2, 3).then(|| [7; 40].into()),
                ttl_ms: None,
            }],
            ..Transaction::default()
        })),
        _ => return w.hang_up(client_id),
    };
    w.ask(client_id, command);
}

#[test]
fn replay_may_begin_at_a_segment_that_began_in_slices() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut w = World::new();
        for _ in 0..80 {
            step(&mut w, &mut random);
        }
        let begins = w.facts.len();
        w.engine.begin_segment(SegmentRef(1), &mut w.facts);
        let mut slices = 0;
        while w.engine.restate(1 + random.below(600), &mut w.facts) {
            slices += 1;
            for _ in 0..random.below(5) {
                step(&mut w, &mut random);
            }
            // For who has read all before, it says nothing new.
            let replayed = w.replayed(SegmentRef(0)).image();
            assert_eq!(replayed, w.engine.image(), "seed {seed}, slice {slices}");
        }
        assert!(slices > 2, "seed {seed}: {slices}");
        // What is left of the segment before goes.
        w.wait(0);
        let mut from = Some(0);
        while let Some(slot) = from {
            let copied = w.engine.copy_out(SegmentRef(0), slot, 16, &mut w.facts);
            from = copied.next;
        }
        assert_eq!(w.engine.segment_refs_live(SegmentRef(0)), 0, "seed {seed}");
        w.facts.drain(..begins);
        for _ in 0..20 {
            let replayed = w.replayed(SegmentRef(1)).image();
            assert_eq!(replayed, w.engine.image(), "seed {seed}");
            step(&mut w, &mut random);
        }
    }
}

fn made(w: &World) -> usize {
    let of = w.facts.iter();
    of.filter(|fact| matches!(fact, Fact::QueueMade { .. }))
        .count()
}

#[test]
fn a_slice_of_a_beginning_is_bounded_and_a_command_brings_its_queue() {
    let mut w = World::new();
    for number in 0..200 {
        w.put(&format!("{number:04}"), "");
    }
    w.facts.clear();
    w.engine.begin_segment(SegmentRef(1), &mut w.facts);
    assert_eq!(made(&w), 0);
    assert!(w.facts.len() <= 3, "{:?}", w.facts);
    // First its queue, and that once.
    for expected in [1, 0] {
        w.facts.clear();
        w.put("0150", "a");
        assert_eq!(made(&w), expected);
        assert!(matches!(w.facts.last(), Some(Fact::Put(_))));
    }
    // Nothing is copied before.
    w.facts.clear();
    let copied = w.engine.copy_out(SegmentRef(0), 0, 1, &mut w.facts);
    assert_eq!((copied.images, copied.next), (0, Some(0)));
    assert_eq!(made(&w), 199);
    assert!(!w.engine.is_restating());

    // Each queue is counted as 260 bytes, of which its name is four.
    w.engine.begin_segment(SegmentRef(2), &mut w.facts);
    let (mut slices, mut more) = (0, true);
    while more {
        w.facts.clear();
        more = w.engine.restate(2600, &mut w.facts);
        assert!(made(&w) <= 10, "{}", made(&w));
        slices += 1;
    }
    assert!((20..=21).contains(&slices), "{slices}");
}

fn images(facts: &[Fact]) -> usize {
    let is_image = |fact: &&Fact| matches!(fact, Fact::RunImage { .. });
    facts.iter().filter(is_image).count()
}

/// The contradiction that a standby finds in the facts of a segment up to the shard's counters: it
/// compares how many blocks are named with those in force there, and all counters.
fn contradiction(mut standby: Engine, facts: &[Fact]) -> Option<String> {
    let mut named = 0;
    for fact in facts {
        let found = standby.contradicts(fact);
        named += u64::from(matches!(fact, Fact::RunImage { .. }));
        if found.is_some() {
            return found;
        }
        if matches!(fact, Fact::ShardCounted(_)) {
            let here = standby.cold_stats().blocks;
            return (here != named).then(|| format!("{here} blocks here, {named} there"));
        }
        standby.replay(fact.clone(), SegmentRef(1));
    }
    panic!("no counters of the shard");
}

#[test]
fn replay_may_begin_at_a_segment_that_named_runs_in_slices() {
    let mut named_late = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (mut w, mut runs) = (World::new(), Runs::default());
        let go_on = |w: &mut World, runs: &Runs, random: &mut Random| {
            step(w, random);
            runs.read(w);
        };
        for _ in 0..80 {
            step(&mut w, &mut random);
        }
        runs.evict(&mut w);
        for _ in 0..20 {
            go_on(&mut w, &runs, &mut random);
        }
        let (begins, standby) = (w.facts.len(), w.replayed(SegmentRef(0)));
        w.engine.begin_segment(SegmentRef(1), &mut w.facts);
        let first = images(&w.facts[begins..]);
        while w.engine.restate(1 + random.below(600), &mut w.facts) {
            for _ in 0..random.below(5) {
                go_on(&mut w, &runs, &mut random);
            }
            if random.chance(1, 8) {
                runs.evict(&mut w);
            }
            let replayed = w.replayed(SegmentRef(0)).image();
            assert_eq!(replayed, w.engine.image(), "seed {seed}");
        }
        named_late += images(&w.facts[begins..]) - first;
        let found = contradiction(standby, &w.facts[begins..]);
        assert_eq!(found, None, "seed {seed}");
        w.wait(0);
        runs.read(&mut w);
        let mut from = Some(0);
        while let Some(slot) = from {
            let copied = w.engine.copy_out(SegmentRef(0), slot, 16, &mut w.facts);
            from = copied.next;
        }
        w.facts.drain(..begins);
        for _ in 0..20 {
            let replayed = w.replayed(SegmentRef(1)).image();
            assert_eq!(replayed, w.engine.image(), "seed {seed}");
            go_on(&mut w, &runs, &mut random);
        }
    }
    assert!(named_late > 60, "{named_late}");
}

/// A world of 200 queues whose messages are in a run, a block for each. The first queue has 50
/// more.
fn of_blocks() -> (World, Runs) {
    let (mut w, mut runs) = (World::new(), Runs::default());
    for number in 0..200 {
        w.put(&format!("{number:04}"), "a");
    }
    for _ in 0..50 {
        w.put("0000", "a");
    }
    runs.evict(&mut w);
    w.facts.clear();
    (w, runs)
}

/// The place of the first such fact.
fn place(w: &World, is_it: fn(&Fact) -> bool) -> Option<usize> {
    w.facts.iter().position(is_it)
}

fn is_count(fact: &Fact) -> bool {
    matches!(fact, Fact::ShardCounted(_))
}

#[test]
fn a_slice_of_a_beginning_names_few_blocks_each_with_its_queue() {
    let (mut w, _) = of_blocks();
    w.engine.begin_segment(SegmentRef(1), &mut w.facts);
    assert_eq!(images(&w.facts), 1);
    let (mut all, mut more) = (1, true);
    while more {
        w.facts.clear();
        more = w.engine.restate(2600, &mut w.facts);
        // Each is counted as 224 bytes, with its queue as 420.
        assert!(images(&w.facts) <= 12, "{}", images(&w.facts));
        assert!(made(&w) <= 7, "{}", made(&w));
        all += images(&w.facts);
    }
    assert_eq!(all, 250);
}

/// A standby of an older version misses a block there that was named and has ended. So another one
/// is named later.
#[test]
fn as_many_blocks_are_named_as_are_in_force_at_the_shards_counters() {
    let (mut w, runs) = of_blocks();
    w.engine.begin_segment(SegmentRef(1), &mut w.facts);
    w.pop("0000");
    runs.read(&mut w);
    assert_eq!(images(&w.facts), 1, "a take waits for no other block");
    let ends = place(&w, |fact| matches!(fact, Fact::Loaded { .. }));
    assert!(ends.is_some(), "it was not in a run");
    assert_eq!(place(&w, is_count), None);
    while w.engine.restate(2600, &mut w.facts) {}
    let counted = place(&w, is_count).expect("counters");
    let (before, after) = w.facts.split_at(counted);
    assert_eq!((images(before), images(after)), (249, 1));
}

#[test]
fn a_flush_of_more_blocks_than_are_left_to_name_comes_after_the_shards_counters() {
    let (mut w, _) = of_blocks();
    w.engine.begin_segment(SegmentRef(1), &mut w.facts);
    while images(&w.facts) < 210 {
        w.engine.restate(1, &mut w.facts);
    }
    assert_eq!(place(&w, is_count), None);
    w.facts.clear();
    w.ask(
        1,
        Command::Flush {
            queue: "0000".into(),
            reserved: false,
        },
    );
    assert_eq!(images(&w.facts), 40);
    let ends = place(&w, |fact| matches!(fact, Fact::QueueFlushed { .. }));
    let counted = place(&w, is_count);
    assert!(counted.is_some() && counted < ends);
}

/// Readers cannot know the counters of a queue to which a message came from a queue in memory.
#[test]
fn counters_that_no_reader_had_to_know_come_after_the_shards_where_others_follow_the_log() {
    for is_shared in [false, true] {
        let mut settings = Settings::default();
        let memory = Overrides {
            memory: Some(true),
            ..Overrides::default()
        };
        settings.rules.push((Pattern::new("memory"), memory));
        let (mut w, mut runs) = (World::with(settings), Runs::default());
        for queue in ["to", "other"] {
            w.put(queue, "a");
        }
        runs.evict(&mut w);
        let id = w.put("memory", "b");
        w.engine.set_shared(is_shared);
        w.facts.clear();
        w.engine.begin_segment(SegmentRef(1), &mut w.facts);
        let to = Name::from("to");
        w.ask(1, Command::Move { id, to });
        assert_eq!(place(&w, is_count).is_some(), is_shared);
        let image = place(&w, |fact| matches!(fact, Fact::Image(..)));
        assert!(image.is_some() && place(&w, is_count) < image);
    }
}

#[test]
fn a_parent_comes_with_the_names_of_its_children_and_no_more() {
    let mut w = World::new();
    let mut join = |parent: &str, child: String| {
        let (parent, child) = (parent.into(), child.as_str().into());
        w.ask(1, Command::Join { parent, child });
    };
    for number in 0..50 {
        join("p", format!("c{number}"));
        join("c0", format!("d{number}"));
    }
    w.engine.begin_segment(SegmentRef(1), &mut w.facts);
    w.facts.clear();
    w.ask(
        1,
        Command::Pause {
            queue: "p".into(),
            for_ms: None,
        },
    );
    assert_eq!(made(&w), 1 + 50);
    let is_counted = |fact: &&Fact| matches!(fact, Fact::QueueCounted { .. });
    assert_eq!(w.facts.iter().filter(is_counted).count(), 1);
}
