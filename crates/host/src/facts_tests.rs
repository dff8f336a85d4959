//! Readers of facts find all that was decided and is durable, in its order, wherever they stop.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use quintet_engine::{Engine, Fact};
use quintet_log::Storage as _;
use quintet_sim::Random;
use quintet_sim::disk::SimDisk;
use quintet_types::{Body, Caller, ClientId, Command, Name, Put, Settings, Take};

use super::facts::{LogPlace, NotThere};
use super::keep::tests::{ask, open_shards};
use super::{Core, Observer, locked};

/// Facts that happen to messages, by shard; snapshots repeat others.
type Happened = Vec<(u64, Fact)>;

fn is_of_message(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Put(_)
            | Fact::Removed { .. }
            | Fact::Leased { .. }
            | Fact::Released { .. }
            | Fact::Moved { .. }
            | Fact::Sent { .. }
            | Fact::QueueDropped { .. }
    )
}

struct Notes(u64, Arc<Mutex<Happened>>);

impl Observer for Notes {
    fn decided(&mut self, fact: &Fact) {
        if is_of_message(fact) {
            locked(&self.1).push((self.0, fact.clone()));
        }
    }

    fn batch_over(&mut self, _: &Engine, _: u64) {}
}

fn followed(core: &Core) -> Arc<Mutex<Happened>> {
    let notes = Arc::<Mutex<Happened>>::default();
    let mut shard = 0;
    core.watch(|| {
        shard += 1;
        Box::new(Notes(shard - 1, Arc::clone(&notes)))
    });
    notes
}

/// Reads on from a place in pages of so many facts and bytes; answers where it ends.
fn read(core: &Core, mut at: LogPlace, facts: usize, bytes: u64, into: &mut Happened) -> LogPlace {
    loop {
        let mut taken = 0;
        let next = core.facts_from(at, bytes, &mut |logged| {
            if taken == facts {
                return false;
            }
            taken += 1;
            if let Some(fact) = logged.fact.filter(|fact| is_of_message(fact)) {
                into.push((logged.shard, fact.clone()));
            }
            true
        });
        let next = next.expect("the log is read");
        assert!(next > at || taken == 0, "{at:?}: it goes on");
        if next == at {
            return at;
        }
        at = next;
    }
}

fn below(random: &mut Random, bound: u64) -> usize {
    usize::try_from(random.below(bound)).expect("small")
}

/// Puts, takes and drops over some queues.
fn step(core: &Core, random: &mut Random) {
    let queue = Name::new(format!("q{}", random.below(4)).as_bytes());
    let command = match random.below(10) {
        0..=4 => Command::Put(Put {
            queue,
            body: Body::new(&vec![1; 100 + below(random, 400)]),
            ..Put::default()
        }),
        5..=8 => Command::Take(Take {
            queues: [queue].into(),
            ..Take::default()
        }),
        _ => Command::Drop(queue),
    };
    ask(core, command);
}

fn by_shard(all: &Happened, shard: u64) -> Vec<&Fact> {
    let of = all.iter().filter(|(of, _)| *of == shard);
    of.map(|(_, fact)| fact).collect()
}

#[test]
fn a_reader_finds_each_durable_fact_once_wherever_its_pages_end() {
    for (seed, shards) in [(1, 1), (2, 2), (3, 1), (4, 2)] {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let core = open_shards(&disk, &Settings::default(), shards);
        let decided = followed(&core);
        let begin = core.durable_place();
        let mut found = Vec::new();
        let mut at = begin;
        for _ in 0..600 {
            step(&core, &mut random);
            if random.below(10) == 0 {
                let sizes = (1 + below(&mut random, 5), 1 + random.below(5_000));
                at = read(&core, at, sizes.0, sizes.1, &mut found);
            }
        }
        assert!(
            core.segment_of(at).expect("there") > begin,
            "segments were begun"
        );
        at = read(&core, at, 3, 700, &mut found);
        assert_eq!(at, core.durable_place());
        let decided = locked(&decided);
        for shard in 0..shards as u64 {
            assert!(
                by_shard(&found, shard) == by_shard(&decided, shard),
                "shard {shard}"
            );
        }
        // Another reader from the beginning finds the same.
        let mut again = Vec::new();
        read(&core, begin, usize::MAX, u64::MAX, &mut again);
        assert!(again == found);
    }
}

#[test]
fn nothing_is_told_that_is_not_durable() {
    let core = open_shards(&SimDisk::new(5), &Settings::default(), 1);
    let begin = core.durable_place();
    let put = Command::Put(Put {
        queue: "q".into(),
        ..Put::default()
    });
    core.visit(|access| drop(access.submit(Caller::server(ClientId(1)), put)));
    assert!(core.write_now(), "it is with the operating system");
    let before = core.durable_place();
    let mut found = Vec::new();
    read(&core, begin, usize::MAX, u64::MAX, &mut found);
    assert_eq!((before, found.len()), (begin, 0));
    assert!(core.sync());
    read(&core, begin, usize::MAX, u64::MAX, &mut found);
    assert_eq!(found.len(), 1);
}

#[test]
fn a_reader_keeps_no_segment_and_is_told_that_it_came_too_late() {
    let core = open_shards(&SimDisk::new(6), &Settings::default(), 1);
    let mut random = Random::new(6);
    let begin = core.durable_place();
    let segments = || locked(&core.committer).log.segments().len();
    let fill = |random: &mut Random| {
        while segments() < 4 {
            step(&core, random);
        }
        for queue in ["q0", "q1", "q2", "q3"] {
            ask(&core, Command::Drop(queue.into()));
        }
        assert!(core.finish());
    };
    let (mut over, stop) = (None, AtomicBool::new(false));
    let mut retire = || while core.retire_one(u64::MAX, &mut over, &stop) {};
    fill(&mut random);
    // Kept for readers, as long as the log is not too long.
    core.set_events_keep(u64::MAX);
    retire();
    assert!(segments() >= 4);
    core.set_events_keep(0);
    retire();
    assert!(segments() <= 2);
    let read = |at| core.facts_from(at, u64::MAX, &mut |_| true);
    assert!(matches!(read(begin), Err(NotThere::Retired)));
    assert!(read(core.oldest_place()).is_ok());
    let end = core.durable_place();
    for wrong in [end.frame + 1, end.frame - 1, core.oldest_place().frame + 1] {
        let wrong = LogPlace {
            frame: wrong,
            facts: 0,
        };
        assert!(matches!(read(wrong), Err(NotThere::Unknown)), "{wrong:?}");
    }
}

/// Puts these; answers where the frame of each begins.
fn puts(core: &Core, bodies: &[&[u8]]) -> Vec<LogPlace> {
    let put = |body: &&[u8]| {
        let at = core.durable_place();
        let queue = "q".into();
        let body = Body::new(body);
        ask(
            core,
            Command::Put(Put {
                queue,
                body,
                ..Put::default()
            }),
        );
        assert!(core.sync());
        at
    };
    bodies.iter().map(put).collect()
}

/// Changes a byte of the log where this is in it.
fn damage(disk: &SimDisk, what: &[u8]) {
    let files = disk.list().expect("listed");
    let found = files.iter().find_map(|name| {
        let content = disk.content(name)?;
        let at = content.windows(what.len()).position(|some| some == what)?;
        Some((name, content, at))
    });
    let (name, mut content, at) = found.expect("it is in a file");
    content[at] ^= 1;
    disk.set_content(name, &content);
}

#[test]
fn what_comes_before_damage_is_told_and_then_that_there_is_damage() {
    let disk = SimDisk::new(7);
    let core = open_shards(&disk, &Settings::default(), 1);
    let begin = core.durable_place();
    let bodies: [&[u8]; 3] = [b"the first body", b"the second body", b"the third body"];
    let places = puts(&core, &bodies);
    damage(&disk, bodies[1]);
    let mut found = 0;
    let mut read = |at| {
        core.facts_from(at, u64::MAX, &mut |logged| {
            found += u64::from(matches!(logged.fact, Some(Fact::Put(_))));
            true
        })
    };
    assert_eq!(read(begin).expect("what is before"), places[1]);
    let damaged = read(places[1]);
    assert!(matches!(damaged, Err(NotThere::Failed(_))), "{damaged:?}");
    assert!(read(places[2]).is_ok(), "what is behind");
    assert_eq!(found, 2);
    for (at, is_there) in [(places[1].frame, true), (places[1].frame + 1, false)] {
        let at = LogPlace {
            frame: at,
            facts: 0,
        };
        assert_eq!(core.begins_frame(at).is_ok(), is_there);
    }
}

/// The header of a frame is no message's: nothing tells which frame was there.
#[test]
fn where_a_frame_s_header_is_damaged_there_is_no_place_and_the_oldest_is_readable() {
    let disk = SimDisk::new(7);
    let core = open_shards(&disk, &Settings::default(), 1);
    let bodies: [&[u8]; 3] = [b"the first body", b"the second body", b"the third body"];
    let places = puts(&core, &bodies);
    // Its header lies before the whole of its facts.
    let files = disk.list().expect("listed");
    let found = files.iter().find_map(|name| {
        let content = disk.content(name)?;
        let of = |what: &[u8]| content.windows(what.len()).position(|some| some == what);
        let (first, second) = (of(bodies[0])?, of(bodies[1])?);
        Some((name.clone(), first, second))
    });
    let (name, first, second) = found.expect("they are in a file");
    let mut content = disk.content(&name).expect("there");
    // From the end of the first body to the second one: the header, and the fact's beginning.
    for byte in &mut content[first + bodies[0].len()..second] {
        *byte ^= 0x5a;
    }
    disk.set_content(&name, &content);
    let read = |at| {
        let mut found = 0;
        let end = core.facts_from(at, u64::MAX, &mut |logged| {
            found += u32::from(matches!(logged.fact, Some(Fact::Put(_))));
            true
        });
        (end, found)
    };
    let (damaged, _) = read(places[1]);
    assert!(matches!(damaged, Err(NotThere::Unknown)), "{damaged:?}");
    assert!(matches!(
        core.begins_frame(places[1]),
        Err(NotThere::Unknown)
    ));
    // A reader that goes on at the oldest place is told what is before the damage.
    let (end, found) = read(core.oldest_place());
    assert_eq!((end.expect("what is before"), found), (places[1], 1));
}
