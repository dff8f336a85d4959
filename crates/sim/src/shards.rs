//! Several worlds as the shards of one server: what a host does with the locks of several.

use std::collections::BTreeSet;

use quintet_engine::*;
use quintet_types::*;

use crate::world::World;

/// Shards that never rest.
pub fn worlds(count: u8) -> Vec<World> {
    let mut settings = Settings::default();
    settings.defaults.idle_ms = 0;
    settings.ends_max = 1000;
    let shard = |number| World::shard(number, count, settings.clone());
    (0..count).map(shard).collect()
}

/// The index in `worlds` of the shard that has a queue of this name.
pub fn shard_of(worlds: &[World], queue: &Name) -> usize {
    shard_of_queue(queue.as_bytes(), worlds.len())
}

fn two(worlds: &mut [World], a: usize, b: usize) -> [&mut World; 2] {
    worlds.get_disjoint_mut([a, b]).expect("two shards")
}

fn side(world: &mut World) -> Side<'_, Vec<Fact>> {
    Side {
        engine: &mut world.engine,
        journal: &mut world.facts,
    }
}

/// Puts a message that may be held for some of any shard, as one step of them all.
pub fn put(worlds: &mut [World], caller: Caller, mut put: Put) -> Outcome {
    let (into, requester) = (shard_of(worlds, &put.queue), caller.principal);
    let mut found = NamedParents::default();
    for World { engine, now, .. } in worlds.iter_mut() {
        engine.find_parents(*now, requester, [&put], &mut found);
    }
    found.name([&mut put]);
    for (shard, world) in worlds.iter_mut().enumerate() {
        if shard != into {
            let out = (&mut world.facts, &mut world.deliveries);
            let requested = world
                .engine
                .ask_parents(world.now, requester, [&mut put], out);
            if let Err(command_error) = requested {
                return Outcome::Refused(command_error);
            }
        }
    }
    let after = put.more.as_ref().and_then(|more| more.after.as_ref());
    let afar = after.into_iter().flat_map(|after| after.afar.keys());
    let afar: BTreeSet<MessageId> = afar.copied().collect();
    let world = &mut worlds[into];
    let now = world.now;
    let mut deliveries = Vec::new();
    let answer = put_with_others(now, caller, put, side(world), None, &mut deliveries);
    world.deliveries.extend(deliveries);
    for shard in (0..worlds.len()).filter(|shard| *shard != into) {
        let [held, watched] = two(worlds, into, shard);
        watch_parents(now, &afar, &held.engine, side(watched));
    }
    for world in worlds {
        world.verify();
    }
    match answer {
        Answer::Now(outcome, _) => outcome,
        Answer::Later => panic!("a part of a step waits for nothing"),
    }
}

/// Carries from one shard what it sends first; false: it sends nothing.
pub fn carry_from(worlds: &mut [World], from: usize) -> bool {
    let Some(into) = worlds[from].engine.sends_to() else {
        return false;
    };
    let [leaves, enters] = two(worlds, from, into);
    let mut deliveries = Vec::new();
    carry(leaves.now, side(leaves), side(enters), 4, &mut deliveries);
    enters.deliveries.extend(deliveries);
    leaves.verify();
    enters.verify();
    true
}

/// Carries and does what is due until nothing is left to do now.
pub fn settle(worlds: &mut [World]) {
    for round in 0.. {
        assert!(round < 10_000, "something is always due");
        let mut idle = true;
        for shard in 0..worlds.len() {
            while carry_from(worlds, shard) {
                idle = false;
            }
            if worlds[shard].engine.next_deadline() <= worlds[shard].now {
                worlds[shard].tick();
                idle = false;
            }
        }
        if idle {
            return;
        }
    }
}
