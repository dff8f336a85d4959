//! Readers of facts find all that was decided and is durable, in its order, wherever they stop.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use quintet_engine::{Engine, Fact};
use quintet_log::Storage as _;
use quintet_sim::Random;
use quintet_sim::disk::SimDisk;
use quintet_types::{Body, Caller, ClientId, Command, Ms, Name, Put, Settings, Take};

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
            if let Some(fact) = logged.fact.ok().filter(|fact| is_of_message(fact)) {
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
fn a_reader_gets_only_durable_facts() {
    let core = open_shards(&SimDisk::new(5), &Settings::default(), 1);
    let begin = core.durable_place();
    let put = Command::Put(Put {
        queue: "q".into(),
        ..Put::default()
    });
    core.with_access(|access| drop(access.submit(Caller::server(ClientId(1)), put)));
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
fn a_reader_keeps_no_segment_and_gets_an_error_when_too_late() {
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

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().expect("listed").into_iter();
    let content = |name: String| Some((name.clone(), disk.content(&name)?));
    names.filter_map(content).collect()
}

/// Damages the frame with this body, whose header begins behind the body before.
fn damage(disk: &SimDisk, before: &[u8], body: &[u8], is_header: bool) {
    let found = files(disk).into_iter().find_map(|(name, content)| {
        let of = |what: &[u8]| content.windows(what.len()).position(|some| some == what);
        let (from, to) = (of(before)? + before.len(), of(body)?);
        Some((name, content, from..to))
    });
    let (name, mut content, range) = found.expect("they are in a file");
    let range = if is_header {
        range
    } else {
        range.end..range.end + 1
    };
    content[range].iter_mut().for_each(|byte| *byte ^= 0x5a);
    disk.set_content(&name, &content);
}

/// The puts and the parts that cannot be read from a place on, in pages of so many of them.
fn listed(core: &Core, mut at: LogPlace, most: usize) -> Vec<String> {
    let mut all = Vec::new();
    while at < core.durable_place() {
        let mut page = Vec::new();
        let next = core.facts_from(at, u64::MAX, &mut |logged| {
            let is_room = page.len() < most;
            match logged.fact {
                Ok(Fact::Put(put)) if is_room => page.push(format!("{:?}", put.body)),
                Err(why) if is_room => {
                    assert!(logged.time > Ms(0), "{why:?} has a time");
                    page.push(format!("{why:?}"));
                }
                _ => {}
            }
            is_room
        });
        let next = next.expect("it goes on");
        assert!(next > at, "{at:?}: it goes on");
        at = next;
        all.extend(page);
    }
    all
}

#[test]
fn a_reader_gets_damage_once_and_the_rest_of_the_log() {
    let bodies: [&[u8]; 4] = [b"the first", b"the second", b"the third", b"the last"];
    let body = |at: usize| format!("{:?}", Body::new(bodies[at]));
    let lost = || "Unreadable".to_owned();
    for shards in [1, 2] {
        let disk = SimDisk::new(7);
        let core = open_shards(&disk, &Settings::default(), shards);
        let begin = core.durable_place();
        let places = puts(&core, &bodies);
        let undamaged = files(&disk);
        // A payload, headers, and two frames in a row, from the last one on, too.
        for (damaged, expected) in [
            (vec![(1, false)], vec![body(0), lost(), body(2), body(3)]),
            (vec![(1, true)], vec![body(0), lost(), body(2), body(3)]),
            (vec![(1, true), (2, true)], vec![body(0), lost(), body(3)]),
            (vec![(1, false), (2, false)], vec![body(0), lost(), body(3)]),
            (vec![(3, true)], vec![body(0), body(1), body(2), lost()]),
            (vec![(3, false)], vec![body(0), body(1), body(2), lost()]),
        ] {
            for &(at, is_header) in damaged.iter().rev() {
                damage(&disk, bodies[at - 1], bodies[at], is_header);
            }
            for most in [1, 2, usize::MAX] {
                assert_eq!(listed(&core, begin, most), expected, "{damaged:?} {most}");
            }
            // Readers that stand at the damage, and behind it.
            let (first, _) = damaged[0];
            assert_eq!(listed(&core, places[first], 1), expected[first..]);
            for (at, place) in places.iter().enumerate() {
                assert!(core.has_place(*place).is_ok(), "{damaged:?} {at}");
            }
            // No place of the log.
            let wrong = LogPlace {
                frame: places[first].frame - 1,
                facts: 0,
            };
            assert!(matches!(core.has_place(wrong), Err(NotThere::Unknown)));
            let read = core.facts_from(wrong, u64::MAX, &mut |_| true);
            assert!(matches!(read, Err(NotThere::Unknown)), "{read:?}");
            for (name, content) in &undamaged {
                disk.set_content(name, content);
            }
        }
    }
}

/// The header of a segment has two copies.
#[test]
fn a_segment_with_a_damaged_header_is_lost_and_the_next_one_is_read() {
    let disk = SimDisk::new(8);
    let core = open_shards(&disk, &Settings::default(), 1);
    let begin = core.durable_place();
    puts(&core, &[b"the first body"]);
    let mut random = Random::new(8);
    while locked(&core.committer).log.segments().len() < 2 {
        step(&core, &mut random);
    }
    assert!(core.finish());
    let last: [&[u8]; 1] = [b"the last body"];
    puts(&core, &last);
    let all = listed(&core, begin, usize::MAX);
    let first = locked(&core.committer).log.segments()[0].number;
    let name = files(&disk).into_iter().map(|(name, _)| name);
    let name = name.filter(|name| name.ends_with(".log")).min();
    let name = name.unwrap_or_else(|| panic!("segment {first}"));
    let mut content = disk.content(&name).expect("there");
    content[40] ^= 1;
    disk.set_content(&name, &content);
    assert_eq!(listed(&core, begin, usize::MAX), all, "one copy is enough");
    content[2048 + 40] ^= 1;
    disk.set_content(&name, &content);
    let left = listed(&core, begin, usize::MAX);
    assert_eq!(left[0], "Unreadable");
    assert!(left.len() > 1 && all.ends_with(&left[1..]), "{left:?}");
}
