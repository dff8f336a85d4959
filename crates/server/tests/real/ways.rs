//! From one server to a cluster, from what is left of one to another, and back: nothing is lost.

use rustix::process::Signal;

use crate::drain;
use crate::node::{Cluster, Node, alone, quintet, run};
use crate::servers::until;

/// Most of what is put below leaves memory.
pub(crate) const SMALL: &str =
    "memory = '40MiB'\nshards = 2\nsegment_bytes = '8MiB'\nlog_bytes = '24MiB'\n";

/// 64 MB, with some bodies that are stored in pieces; in their order.
pub(crate) fn put_much(client: &mut crate::node::Client, prefix: &str) -> Vec<String> {
    let long = "x".repeat(32_000);
    let bodies = (0..2000).map(|number| match number % 500 {
        // At both ends of the log.
        7 => format!("{prefix}{number}{}", "y".repeat(2_000_000)),
        _ => format!("{prefix}{number}{long}"),
    });
    bodies.inspect(|body| client.put(body)).collect()
}

/// Nobody wants to read these.
pub(crate) fn compare(found: &[String], put: &[String]) {
    assert_eq!(found.len(), put.len());
    for (number, (found, put)) in found.iter().zip(put).enumerate() {
        assert!(found == put, "message {number}");
    }
}

/// The number that stands before `words`.
fn number_before(text: &str, words: &str) -> u64 {
    let (before, _) = text.split_once(words).expect("it says so");
    let number = before.rsplit(|byte: char| !byte.is_ascii_digit()).next();
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

pub(crate) fn stop(node: &mut Node) {
    node.signal(Signal::TERM);
    assert!(node.wait().success());
}

#[test]
#[ignore = "needs nats-server"]
fn a_server_becomes_a_cluster_and_a_server_again_with_every_message() {
    let cluster = Cluster::start("ways");
    let old = cluster.dir().join("old");
    let mut server = alone(&old, SMALL);
    let mut all = put_much(&mut server.client(), "alone");
    let adopt = |more: &str| {
        let config = cluster.config("a", more);
        let mut command = quintet(&["cluster", "adopt", "--config"]);
        run(command.arg(config).arg("--data").arg(&old))
    };
    let (code, text) = adopt(SMALL);
    assert!(code != 0 && text.contains("in use"), "{text}");

    // The most of it while it serves.
    let ahead = || {
        let mut command = quintet(&["cluster", "adopt", "--runs-only", "--config"]);
        let config = cluster.config("a", SMALL);
        let (code, text) = run(command.arg(config).arg("--data").arg(&old));
        assert!(code == 0 && text.contains("then adopt it"), "{text}");
        number_before(&text, " runs with ")
    };
    assert!(ahead() > 0);
    // A server that still writes runs has new ones; what is there is not stored again.
    until("nothing is stored again", || (ahead() == 0).then_some(()));
    let (status, text) = cluster.fails("a", &cluster.dir().join("a"), SMALL);
    assert!(!status.success(), "{text}");
    assert!(text.contains("or was interrupted"), "{text}");
    stop(&mut server);

    let (code, text) = adopt("shards = 3\n");
    assert!(code != 0 && text.contains("shards = 2"), "{text}");
    let (code, text) = adopt(SMALL);
    assert!(code == 0 && text.contains("start the nodes"), "{text}");
    assert!(number_before(&text, " of them copied before") > 0, "{text}");
    let mut command = quintet(&["cluster", "adopt", "--runs-only", "--config"]);
    command.arg(cluster.config("a", SMALL));
    let (code, text) = run(command.arg("--data").arg(&old));
    assert!(code != 0 && text.contains("has a log already"), "{text}");
    let (code, text) = adopt(SMALL);
    assert!(code != 0 && text.contains("has a log already"), "{text}");

    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", SMALL);
    b.wait_for("quintet standby of a");
    let mut client = b.client();
    for (number, body) in all.iter().enumerate().take(300) {
        assert!(client.take().as_ref() == Some(body), "message {number}");
    }
    all.drain(..300);
    all.extend((0..100).map(|number| format!("cluster{number}")));
    all[1700..].iter().for_each(|body| client.put(body));

    // The way back is from the node that owned last.
    stop(&mut b);
    let detach = |node: &str, to: &str| {
        let mut command = quintet(&["cluster", "detach", "--data"]);
        let (data, to) = (cluster.dir().join(node), cluster.dir().join(to));
        run(command.arg(data).arg("--to").arg(to))
    };
    let (code, text) = detach("a", "back");
    assert!(code != 0 && text.contains("in use"), "{text}");
    stop(&mut a);
    let (code, text) = detach("b", "back");
    assert!(
        code != 0 && text.contains("is not the last owner"),
        "{text}"
    );
    let (code, text) = detach("a", "back");
    assert!(code == 0 && text.contains("is a single server's"), "{text}");
    let mut server = alone(&cluster.dir().join("back"), SMALL);
    compare(&drain(&mut server.client()), &all);
    stop(&mut server);
}

#[test]
#[ignore = "needs nats-server"]
fn a_cluster_whose_stream_is_lost_goes_on_from_a_nodes_mirror() {
    let cluster = Cluster::start("seed");
    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", SMALL);
    b.wait_for("quintet standby of a");
    let all = put_much(&mut a.client(), "m");
    let taken = 100;
    let mut client = a.client();
    (0..taken).for_each(|_| drop(client.take()));
    // An owner has everything, and its runs.
    until("the other one owns", || {
        (cluster.order("b", &["move", "0", "b"]).0 == 0).then_some(())
    });
    b.wait_for("quintet owner");
    // All machines at once, and what JetStream had.
    a.kill();
    b.kill();
    let reseed = |node: &str, more: &[&str]| {
        let config = cluster.config(node, SMALL);
        let mut command = quintet(&["cluster", "reseed", "--config"]);
        let data = cluster.dir().join(node);
        run(command.arg(config).arg("--data").arg(data).args(more))
    };
    let (code, text) = reseed("b", &["--dry-run"]);
    assert!(code == 0 && text.contains("0 of them not here"), "{text}");
    let (code, text) = reseed("b", &[]);
    assert!(code != 0 && text.contains("stop them"), "{text}");
    cluster.lose_stream();
    let (status, text) = cluster.fails("b", &cluster.dir().join("b"), SMALL);
    assert!(
        !status.success() && text.contains("cluster reseed"),
        "{text}"
    );
    let (code, text) = reseed("b", &["--force"]);
    assert!(code == 0 && text.contains("is complete"), "{text}");

    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", SMALL);
    b.wait_for("quintet standby of a");
    compare(&drain(&mut b.client()), &all[taken..]);
}

#[test]
#[ignore = "needs nats-server"]
fn large_bodies_come_with_the_log_where_no_run_has_them() {
    let cluster = Cluster::start("large");
    let old = cluster.dir().join("old");
    let mut server = alone(&old, "");
    let long = "z".repeat(1_000_000);
    let body = |number: usize| format!("{number}{long}");
    let mut client = server.client();
    (0..5).for_each(|number| client.put(&body(number)));
    stop(&mut server);
    let mut command = quintet(&["cluster", "adopt", "--config"]);
    command.arg(cluster.config("a", "")).arg("--data").arg(&old);
    let (code, text) = run(&mut command);
    assert!(code == 0 && text.contains(", 0 runs ("), "{text}");
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    let mut client = a.client();
    (5..10).for_each(|number| client.put(&body(number)));
    stop(&mut a);
    let back = cluster.dir().join("back");
    let mut command = quintet(&["cluster", "detach", "--data"]);
    let command = command.arg(cluster.dir().join("a")).arg("--to").arg(&back);
    let (code, text) = run(command);
    assert_eq!(code, 0, "{text}");
    let mut server = alone(&back, "");
    let all: Vec<String> = (0..10).map(body).collect();
    compare(&drain(&mut server.client()), &all);
    stop(&mut server);
}
