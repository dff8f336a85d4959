//! Readers of the log's facts, which go on at another node after a takeover.

use std::time::Duration;

use super::node::Without;
use super::run::{CALM, Run};
use crate::Core;
use crate::facts::LogPlace;

/// Facts of a page, each with its place and shard.
type Page = Vec<(LogPlace, u64, String)>;

/// The facts from a place on, so many at most, and the place behind them.
fn page(core: &Core, from: LogPlace, most: usize) -> (Page, LogPlace) {
    let mut page = Page::new();
    let next = core.facts_from(from, u64::MAX, &mut |logged| {
        let is_room = page.len() < most;
        if is_room {
            page.push((logged.at, logged.shard, format!("{:?}", logged.fact)));
        }
        is_room
    });
    (page, next.expect("the place is there"))
}

#[test]
fn a_reader_goes_on_at_the_next_owner_where_it_was() {
    let run = Run::with(5, Without::Nothing, true);
    run.begin();
    let (mut at, mut seen, mut epoch) = (None, Page::new(), 0);
    for takeover in 0..3 {
        let newer = |run: &Run| run.owner().filter(|node| node.serves() > Some(epoch));
        assert!(
            run.wait(CALM, || newer(&run).is_some()),
            "nobody takes over"
        );
        for round in 0..20 {
            let owner = newer(&run).expect("it still owns");
            let core = &owner.host().expect("a host").core;
            let from = at.unwrap_or_else(|| core.durable_place());
            if round == 0 && takeover > 0 {
                // The new owner has what the earlier one told, at the same places.
                let last: Page = seen.iter().rev().take(5).rev().cloned().collect();
                assert_eq!(page(core, last[0].0, last.len()).0, last);
            }
            // Pages end anywhere in a frame.
            let (listed, next) = page(core, from, if round % 2 == 0 { 7 } else { usize::MAX });
            seen.extend(listed);
            at = Some(next);
            run.ground.world.pass(Duration::from_millis(100));
        }
        let owner = newer(&run).expect("it still owns");
        epoch = owner.serves().expect("an epoch");
        owner.process.kill();
        run.pass(1);
    }
    assert!(seen.len() > 100, "{} facts", seen.len());
    let places: Vec<LogPlace> = seen.iter().map(|(at, ..)| *at).collect();
    assert!(places.is_sorted_by(|a, b| a < b), "each comes once");
}
