//! A power cut at every operation while a run is written: under its name there is all of it or
//! nothing. Disks that fail or fill up likewise.

use crate::common;

use std::sync::Arc;

use common::runs::{Bodies, NAME, Plan};
use quintet_log::{
    LogError, Storage,
    run::{Run, list_runs, remove_unfinished_runs},
};
use quintet_sim::{
    Random,
    disk::{Fault, Keep, SimDisk},
};

/// How many operations the writing takes, the lengths of its writes, and where the bodies go.
fn healthy(plan: &Plan) -> (Vec<Option<usize>>, Bodies) {
    let disk = SimDisk::new(9);
    let (_, bodies) = plan.write(Arc::new(disk.clone()), NAME).expect("write");
    let lengths = (1..=disk.operations()).map(|number| disk.write_len(number));
    (lengths.collect(), bodies)
}

/// After the next start: whether there is a run, which must then be the one that was meant.
fn found(disk: &SimDisk, plan: &Plan, bodies: &Bodies) -> bool {
    remove_unfinished_runs(disk).expect("remove unfinished runs");
    let names = list_runs(disk).expect("list");
    let files: Vec<String> = names.iter().map(ToString::to_string).collect();
    assert_eq!(disk.list().expect("list"), files, "nothing else stays");
    match names[..] {
        [] => false,
        [name] => {
            assert_eq!(name, NAME);
            let run = Run::open(disk, NAME).expect("what has a run's name is whole");
            plan.assert_is(&run, bodies);
            true
        }
        _ => panic!("{files:?}"),
    }
}

#[test]
fn every_operation_with_unsynced_pages_in_any_order() {
    let plan = Plan::small();
    let (lengths, bodies) = healthy(&plan);
    assert!(lengths.len() > 20, "{} operations", lengths.len());
    let (mut whole, mut nothing) = (0, 0);
    for (index, len) in lengths.iter().enumerate() {
        let mut keeps = vec![Keep::Everything, Keep::Synced];
        keeps.extend((0..40).map(Keep::Random));
        for keep in keeps {
            let disk = SimDisk::new(9);
            let seed = match keep {
                Keep::Random(seed) => seed,
                _ => 0,
            };
            let torn = Random::new(seed).index(len.unwrap_or(0) + 1);
            disk.fault_at(index as u64 + 1, Fault::PowerOff(torn));
            let result = plan.write(Arc::new(disk.clone()), NAME);
            assert!(result.is_err(), "operation {index} was not reached");
            match found(&disk.power_cut(keep), &plan, &bodies) {
                true => whole += 1,
                false => nothing += 1,
            }
        }
    }
    assert!(
        whole > 10 && nothing > 100,
        "{whole} times whole, {nothing} times not there"
    );
}

#[test]
fn a_finished_run_survives_any_power_cut() {
    for seed in 0..100 {
        let plan = Plan::any(seed);
        let disk = SimDisk::new(9);
        let (_, bodies) = plan.write(Arc::new(disk.clone()), NAME).expect("write");
        assert!(found(&disk.power_cut(Keep::Synced), &plan, &bodies));
    }
}

#[test]
fn a_disk_that_fails_leaves_no_half_run() {
    let plan = Plan::small();
    let (lengths, bodies) = healthy(&plan);
    for number in 1..=lengths.len() as u64 {
        for fault in [Fault::Io, Fault::NoSpace(7)] {
            let disk = SimDisk::new(9);
            disk.fault_at(number, fault);
            let result = plan.write(Arc::new(disk.clone()), NAME);
            match result.map(|(run, _)| run.name()) {
                Err(LogError::NoSpace { .. }) => assert_ne!(fault, Fault::Io),
                Err(LogError::Io { .. } | LogError::Stopped { .. }) => {}
                Err(error) => panic!("{error}"),
                // Only scratch files may fail to go.
                Ok(_) => assert_eq!(lengths[number as usize - 1], None, "operation {number}"),
            }
            let names = list_runs(&disk).expect("list");
            let files = disk.list().expect("list");
            assert!(
                files.len() <= names.len() + 1,
                "{files:?} after a failed {number}"
            );
            found(&disk, &plan, &bodies);
        }
    }
}

#[test]
fn writes_that_stop_short_go_on() {
    let plan = Plan::small();
    let (lengths, bodies) = healthy(&plan);
    for number in 1..=lengths.len() as u64 {
        let disk = SimDisk::new(9);
        disk.fault_at(number, Fault::Short(5));
        plan.write(Arc::new(disk.clone()), NAME).expect("write");
        assert!(found(&disk, &plan, &bodies));
    }
}
