//! `adopt` and `reseed`, killed in their middle or on a failing disk, and begun again: nothing is
//! lost, nothing is there twice, and no node serves a half of it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use quintet_faults::{Action, Call, Rule, Undo, errno};

use crate::common::{PATIENCE, faults, text};
use crate::drain;
use crate::node::{Cluster, alone, quintet, run};
use crate::servers::until;
use crate::ways::{SMALL, compare, put_much, stop};

/// Kills a command as soon as the stream it makes has so many entries. False: it was done before.
fn interrupt(cluster: &Cluster, command: &mut Command, entries: u64) -> bool {
    let stream = cluster.stream();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    until("it has begun", || {
        let over = child.try_wait().expect("ours").is_some();
        // Nobody answers while the servers elect.
        let info = stream.info().ok().flatten();
        let begun = info.is_some_and(|info| info.ends().last.0 >= entries);
        (over || begun).then_some(())
    });
    child.kill().expect("ours");
    !child.wait().expect("ours").success()
}

/// A node does not begin, and says what to do.
fn refuses(cluster: &Cluster) {
    let (status, text) = cluster.fails("a", &cluster.dir().join("a"), SMALL);
    assert!(!status.success(), "{text}");
    assert!(text.contains("or was interrupted"), "{text}");
}

#[test]
#[ignore = "needs nats-server"]
fn an_interrupted_adoption_begins_again_and_no_node_serves_half_a_log() {
    let mut cluster = Cluster::start("interrupted");
    let old = cluster.dir().join("old");
    let mut server = alone(&old, SMALL);
    let all = put_much(&mut server.client(), "m");
    stop(&mut server);
    let adopt = |cluster: &Cluster| {
        let mut command = quintet(&["cluster", "adopt", "--config"]);
        let config = cluster.config("a", SMALL);
        command.arg(config).arg("--data").arg(&old);
        command
    };
    // While runs are brought, and while the log is.
    for entries in [0, 5] {
        let mut tries = 0..;
        until("it is interrupted", || {
            // One that was done in time cannot be done again.
            let number: u32 = tries.next()?;
            cluster.rename(format!("adopt-{entries}-{number}"));
            interrupt(&cluster, &mut adopt(&cluster), entries).then_some(())
        });
        refuses(&cluster);
    }
    let (code, text) = run(&mut adopt(&cluster));
    assert_eq!(code, 0, "{text}");
    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    let mut client = a.client();
    for (number, body) in all.iter().enumerate().take(100) {
        assert!(client.take().as_ref() == Some(body), "message {number}");
    }
    stop(&mut a);

    let reseed = |cluster: &Cluster| {
        let mut command = quintet(&["cluster", "reseed", "--force", "--config"]);
        let data = cluster.dir().join("a");
        let config = cluster.config("a", SMALL);
        command.arg(config).arg("--data").arg(data);
        command
    };
    for entries in [0, 5] {
        until("it is interrupted", || {
            cluster.lose_stream();
            interrupt(&cluster, &mut reseed(&cluster), entries).then_some(())
        });
        refuses(&cluster);
    }
    let (code, text) = run(&mut reseed(&cluster));
    assert_eq!(code, 0, "{text}");
    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    compare(&drain(&mut a.client()), &all[100..]);
}

/// Failing calls on the disk that `adopt` or `reseed` reads, and power cuts there.
const FAILURES: [(Call, Action); 8] = [
    (Call::Open, Action::Fail(errno::EIO)),
    (Call::Read, Action::Fail(errno::EIO)),
    (Call::Create, Action::Fail(errno::ENOSPC)),
    (Call::Write, Action::Fail(errno::ENOSPC)),
    (Call::Write, Action::CutAfter),
    (Call::Sync, Action::Fail(errno::EIO)),
    (Call::Sync, Action::CutBefore),
    (Call::Rename, Action::Fail(errno::EIO)),
];

/// Runs the command with one call going wrong on `disk`: the first, the second, the fourth and so
/// on. Each time it fails and says why, and the same command without the fault goes well; or it did
/// without what failed (its scratch copy of the log), and `good` looks at what it made. `begin`
/// makes room for the next one. Answers how many failed.
fn fails_and_is_repeated(
    disk: &Path,
    (call, action): (Call, Action),
    begin: &mut dyn FnMut(),
    command: &dyn Fn() -> Command,
    good: &mut dyn FnMut(),
) -> u32 {
    // Servers on a busy machine may be without a leader for a while.
    let is_busy = |output: &str| output.contains("JetStream does not answer");
    let (mut failed, mut number, mut since) = (0, 0, Instant::now());
    loop {
        begin();
        let faults = faults(disk);
        faults.undo(Undo::PagesAndNames);
        faults.rule(0, Rule::once(call, action).after((1 << number) - 1));
        let mut failing = command();
        faults.attach(&mut failing);
        let ended = failing.output().expect("the binary runs");
        let output = text(&ended.stderr);
        let at = format!("{call:?} {action:?} {number}: {output}");
        if faults.fired(0).1 == 0 {
            if is_busy(&output) && since.elapsed() < PATIENCE {
                continue;
            }
            assert!(ended.status.success(), "{at}");
            return failed;
        }
        (number, since) = (number + 1, Instant::now());
        if ended.status.success() {
            good();
            continue;
        }
        match action {
            Action::Fail(_) => assert_eq!(ended.status.code(), Some(1), "{at}"),
            _ => assert_eq!(ended.status.signal(), Some(9), "{at}"),
        }
        failed += 1;
        let (code, output) = until("JetStream answers", || {
            let (code, output) = run(&mut command());
            (!is_busy(&output)).then_some((code, output))
        });
        assert_eq!(code, 0, "after {at}: {output}");
    }
}

#[test]
#[ignore = "needs nats-server"]
fn an_adoption_ended_by_a_failing_disk_or_a_power_cut_begins_again() {
    let mut cluster = Cluster::start("failing");
    let old = cluster.dir().join("old");
    let mut server = alone(&old, SMALL);
    let mut all: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
    all.push("y".repeat(2_000_000));
    let mut client = server.client();
    all.iter().for_each(|body| client.put(body));
    stop(&mut server);
    let data = cluster.dir().join("a");
    let name = std::cell::RefCell::new(&mut cluster);
    let has_all = || {
        let mut a = name.borrow().node("a", SMALL);
        a.wait_for("quintet owner");
        compare(&drain(&mut a.client()), &all);
        stop(&mut a);
        std::fs::remove_dir_all(&data).expect("ours");
    };
    let mut failed = 0;
    for (number, failure) in FAILURES.into_iter().enumerate() {
        let mut tries = 0;
        failed += fails_and_is_repeated(
            &old,
            failure,
            &mut || {
                tries += 1;
                name.borrow_mut()
                    .rename(format!("failing-{number}-{tries}"));
            },
            &|| {
                let config = name.borrow().config("a", SMALL);
                let mut adopt = quintet(&["cluster", "adopt", "--config"]);
                adopt.arg(config).arg("--data").arg(&old);
                adopt
            },
            &mut || has_all(),
        );
        has_all();
    }
    assert!(failed > 0, "adopt reads the disk");

    name.borrow_mut().rename("failing".to_owned());
    let cluster = cluster;
    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    let mut client = a.client();
    all.iter().for_each(|body| client.put(body));
    stop(&mut a);
    let mut failed = 0;
    for failure in FAILURES {
        failed += fails_and_is_repeated(
            &data,
            failure,
            &mut || cluster.lose_stream(),
            &|| {
                let config = cluster.config("a", SMALL);
                let mut reseed = quintet(&["cluster", "reseed", "--force", "--config"]);
                reseed.arg(config).arg("--data").arg(&data);
                reseed
            },
            &mut || {},
        );
    }
    assert!(failed > 0, "reseed reads the disk");
    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    compare(&drain(&mut a.client()), &all);
}
