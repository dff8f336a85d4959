//! `adopt` and `reseed`, killed in their middle and begun again: nothing is lost, nothing is there
//! twice, and no node serves a half of it.

use std::process::{Command, Stdio};

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
    assert!(text.contains("or that was interrupted"), "{text}");
}

#[test]
#[ignore = "needs nats-server"]
fn what_was_interrupted_is_begun_again_and_nobody_serves_a_half() {
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
