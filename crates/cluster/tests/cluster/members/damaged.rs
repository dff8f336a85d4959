//! Leaders of the stream whose stores are damaged.

use std::time::Duration;

use quintet_cluster::{Distrusted, Role, Seq, World as _};
use quintet_log::{Log as _, Storage as _};
use quintet_sim::{
    Random,
    cluster::{Faults, Lie},
    disk::Keep,
    seeds,
};

use super::{FOREVER, Run, SeedCounts, Without, handed_over, lock};

/// Chances of everything, of damaged stores too.
fn lying(seed: u64) -> Faults {
    Faults {
        leader: 10,
        lies: 700,
        ..Faults::any(&mut Random::new(seed))
    }
}

#[test]
fn leaders_with_damaged_stores_lose_no_answered_entry() {
    let (mut total, mut lies) = (SeedCounts::default(), 0);
    for seed in seeds(200) {
        eprintln!("seed {seed}");
        let run = Run::new(seed, Some(lying(seed)), Without::Nothing);
        let stream = run.stream.clone();
        let seen = run.run(60);
        lies += stream.lies();
        total.answered += seen.answered;
        total.owners += seen.owners;
        total.retired += seen.retired;
    }
    eprintln!("{total:?}, {lies} damaged leaders");
    assert!(lies > 100 && total.retired > 100, "{lies}, {total:?}");
}

#[test]
fn nodes_that_trust_the_begin_of_a_damaged_leader_are_found() {
    let found = (0..200).any(|seed| {
        let run = || Run::new(seed, Some(lying(seed)), Without::Beginning).run(60);
        std::panic::catch_unwind(run).is_err()
    });
    assert!(found);
}

/// A group whose log has some segments, and the places where they begin.
fn with_segments(without: Without) -> (Run, Vec<Seq>) {
    let mut run = Run::new(1, Some(Faults::none()), without);
    run.pass(6_000);
    assert_eq!(run.owner(), Some(0), "the others wait longer");
    for _ in 0..20 {
        run.append(0, 10);
        run.pass(100);
    }
    let (first, entries) = run.stream.entries();
    let all = (first.0..).map(Seq).zip(&entries);
    // The bit of an entry that begins a segment.
    let begin = all.filter(|(_, entry)| entry[5] & 1 == 1);
    let begin: Vec<Seq> = begin.map(|(seq, _)| seq).collect();
    assert!(begin.len() > 3, "{begin:?}");
    (run, begin)
}

#[test]
fn no_node_claims_or_forgets_while_the_leader_lacks_entries_of_the_owner() {
    let (mut run, begin) = with_segments(Without::Nothing);
    let hole = Lie::Hole(Seq(begin[1].0 + 3), Seq(begin[1].0 + 9));
    run.stream.answer_distrust(Some(Distrusted::Unknown));
    for lie in [
        Lie::First(begin[2]),
        Lie::First(begin[2].after()),
        hole,
        Lie::Old(Seq(1), begin[2]),
    ] {
        run.stream.lead(Some(lie));
        // Who begins to read, and who has read all.
        run.replace(2);
        run.pass(8_000);
        let status = |run: &Run, number: usize| {
            let member = run.nodes[number].member.as_ref().expect("running");
            member.status()
        };
        let role = status(&run, 2).role;
        // A claim behind an old copy finds its place taken.
        let old = matches!(lie, Lie::Old(..)) && role == Role::Claiming;
        assert!(role == Role::Reading || old, "{lie:?}: {role:?}");
        let owner = run.owner().expect("an owner");
        run.nodes[owner].process.pause(FOREVER);
        let (took, next) = handed_over(&mut run);
        assert_eq!(
            (took, next),
            (60_000, Some(owner)),
            "{lie:?}: nobody claims"
        );
        let damage = status(&run, 1 - owner).damage;
        assert!(
            damage.is_some_and(|damage| damage.contains("it ")),
            "{lie:?}"
        );
        run.stream.lead(None);
        let (took, next) = handed_over(&mut run);
        assert!(took < 8_000 && next.is_some(), "{lie:?}: {took} ms");
        assert_eq!(status(&run, 2).damage, None);
        run.nodes[owner].process.resume();
        run.replace(owner);
        run.pass(6_000);
        // The first two by turns.
        while run.owner() == Some(2) {
            run.leave(2, "node 0");
            run.replace(2);
            run.pass(6_000);
        }
    }
    run.end();
}

#[test]
fn a_leader_with_a_damaged_copy_gets_a_request_to_step_down() {
    let (mut run, begin) = with_segments(Without::Nothing);
    let hole = Lie::Hole(Seq(begin[1].0 + 3), Seq(begin[1].0 + 9));
    let middle = Lie::First(begin[2].after());
    let old = Lie::Old(Seq(1), begin[2]);
    let late = Lie::First(Seq(9999));
    for lie in [Lie::First(begin[2]), middle, hole, late, old] {
        run.stream.lead(Some(lie));
        // One begins to read, the other has read all.
        run.replace(2);
        run.pass(14_000);
        let mut distrusted = false;
        for number in [1, 2] {
            let member = run.nodes[number].member.as_ref().expect("running");
            let status = member.status();
            assert_eq!(status.role, Role::Standby, "{lie:?}: {number}");
            assert_eq!(status.damage, None, "{lie:?}: {number}");
            distrusted |= !status.distrusted.is_empty();
        }
        assert!(distrusted, "{lie:?}: until it leads with a whole copy");
        assert_eq!(run.owner(), Some(0), "{lie:?}");
    }
    run.end();
}

#[test]
fn segments_that_an_owner_retires_are_purged_and_followers_know_it() {
    let (mut run, begin) = with_segments(Without::Nothing);
    run.retire(0);
    let (first, _) = run.stream.entries();
    assert!(begin[1..].contains(&first), "{first} of {begin:?}");
    run.pass(11_000);
    run.replace(2);
    run.pass(3_000);
    run.nodes[0].process.pause(FOREVER);
    let (_, owner) = handed_over(&mut run);
    let app = lock(&run.nodes[owner.expect("an owner")].app);
    let kept = app.log.as_ref().map(|log| log.segments()[0].first);
    assert_eq!(kept, Some(run.begins), "its mirror has forgotten the same");
    drop(app);
    run.replace(0);
    run.end();
}

#[test]
fn a_standby_syncs_its_mirror_when_segments_are_retired() {
    let (mut run, _) = with_segments(Without::Nothing);
    run.retire(0);
    run.pass(200);
    let app = lock(&run.nodes[1].app);
    let left = app.disk.as_ref().expect("a mirror").fork();
    let left = left.power_cut(Keep::Synced);
    let names = left.list().expect("list");
    let all: Vec<u8> = names
        .iter()
        .flat_map(|name| left.content(name).unwrap_or_default())
        .collect();
    let kept: Vec<_> = { app.frames.iter() }
        .filter(|(at, _)| *at >= run.begins)
        .collect();
    assert!(!kept.is_empty());
    for (at, payload) in kept {
        let mut places = all.windows(payload.len());
        assert!(places.any(|bytes| bytes == payload), "{at} is gone");
    }
}

#[test]
fn a_node_stops_where_every_copy_is_damaged_and_names_the_server() {
    let (run, begin) = with_segments(Without::Nothing);
    run.stream.lead(Some(Lie::First(begin[2])));
    let all = Distrusted::NoOther("n2".to_owned());
    run.stream.answer_distrust(Some(all));
    let until = run.world.now() + Duration::from_secs(20);
    while run.world.now() < until && lock(&run.nodes[1].app).failed.is_none() {
        run.world.pass(Duration::from_millis(50));
    }
    let failed = lock(&run.nodes[1].app).failed.take();
    let why = failed.expect("it stops").to_string();
    assert!(
        why.contains("of the copy on n2: it begins with entry"),
        "{why}"
    );
}

#[test]
fn a_successor_does_not_claim_behind_a_damaged_copy_either() {
    let (mut run, begin) = with_segments(Without::Nothing);
    run.stream.answer_distrust(Some(Distrusted::Unknown));
    run.stream.lead(Some(Lie::First(begin[2])));
    // Nobody has looked at the leader's copy since.
    run.leave(0, "node 1");
    let (took, owner) = handed_over(&mut run);
    assert_eq!((took, owner), (60_000, None), "nobody claims");
    run.stream.lead(None);
    let (took, owner) = handed_over(&mut run);
    assert!(took < 3_000 && owner.is_some(), "{took} ms, {owner:?}");
    run.replace(0);
    run.end();
}
