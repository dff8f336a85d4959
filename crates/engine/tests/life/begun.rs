//! Segments whose beginning is written in slices, while commands are decided.

use quintet_engine::Fact;
use quintet_sim::Random;
use quintet_sim::world::{World, plain, reserve};
use quintet_types::*;

/// One of some queues; only the first ones get children, and only the others become some.
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
            parent: Name::from(format!("q{}", random.below(4)).as_str()),
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

#[test]
fn a_slice_of_a_beginning_is_bounded_and_a_command_brings_its_queue() {
    let mut w = World::new();
    for number in 0..200 {
        w.put(&format!("{number:04}"), "");
    }
    let made = |w: &World| {
        let of = w.facts.iter();
        of.filter(|fact| matches!(fact, Fact::QueueMade { .. }))
            .count()
    };
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
