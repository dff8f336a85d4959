//! Nodes of a cluster: the real binary over real NATS servers. They need `nats-server`, so `cargo
//! test` leaves them out; `cargo xtask test cluster` gets it and runs them.

#[path = "../common/mod.rs"]
mod common;
mod console;
mod cron;
mod files;
mod handover;
mod interrupted;
mod limits;
mod near;
mod node;
mod refused;
#[allow(dead_code, reason = "the log's own tests use the rest")]
#[path = "../../../jetstream/tests/real/servers.rs"]
mod servers;
mod upgrade;
mod ways;

use std::collections::BTreeSet;

use node::{Client, Cluster, quintet};
use rustix::process::Signal;

/// Puts so many messages, each acknowledged before the next.
fn put(client: &mut Client, prefix: &str, count: usize) -> Vec<String> {
    let bodies = (0..count).map(|number| format!("{prefix}{number}"));
    bodies.inspect(|body| client.put(body)).collect()
}

/// Takes everything there is.
fn drain(client: &mut Client) -> Vec<String> {
    std::iter::from_fn(|| client.take()).collect()
}

#[test]
#[ignore = "needs nats-server"]
fn a_node_has_its_acknowledged_messages_after_kill_9_and_others_do_not_fit() {
    let cluster = Cluster::start("one");
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    let put = put(&mut a.client(), "m", 100);
    let first = a.client().take();
    assert_eq!(first.as_ref(), put.first());
    a.kill();
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    assert_eq!(drain(&mut a.client()), put[1..]);

    // What does not fit is refused with a text.
    for (name, more, says) in [
        ("a", "", "another process runs as the node \"a\""),
        ("b", "shards = 2\n", "was created with shards = 1, not 2"),
        ("b", "sync = 'never'\n", "sync must be \"always\""),
        ("b", "chunk_bytes = '1MiB'\n", "chunk_bytes"),
    ] {
        let elsewhere = cluster.dir().join(format!("other-{name}"));
        let (status, text) = cluster.fails(name, &elsewhere, more);
        assert!(!status.success(), "{name} {more}");
        assert!(text.contains(says), "{name} {more}: {text}");
    }
    let alone = cluster.dir().join("alone");
    assert!(common::Server::start(&alone).stop().success());
    let (status, text) = cluster.fails("b", &alone, "");
    assert!(!status.success());
    assert!(
        text.contains("holds the messages of a standalone server"),
        "{text}"
    );

    // An owner and a standby stop in good order.
    let mut b = cluster.node("b", "");
    b.wait_for("quintet standby of a");
    for mut node in [b, a] {
        node.signal(Signal::TERM);
        assert!(node.wait().success());
    }
}

#[test]
#[ignore = "needs nats-server"]
fn another_node_has_the_messages_of_a_killed_owner_and_a_frozen_one_answers_nothing() {
    let cluster = Cluster::start("three");
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    let mut others = vec![cluster.node("b", ""), cluster.node("c", "")];
    for other in &mut others {
        other.wait_for("quintet standby of a");
    }
    let mut killed = put(&mut a.client(), "killed", 300);
    // Any node takes any client.
    killed.extend(put(&mut others[0].client(), "through", 20));
    a.kill();
    let owner = node::first_to_say(&mut others, "quintet owner");
    let mut owner = others.swap_remove(owner);
    let mut other = others.remove(0);
    assert_eq!(drain(&mut owner.client()), killed);

    let mut client = owner.client();
    let stopped = put(&mut client, "stopped", 100);
    owner.signal(Signal::STOP);
    // It finds these when it goes on.
    client.ask("get q\r\n");
    client.ask("set q 0 0 4\r\nlate\r\n");
    other.wait_for("quintet owner");
    let found = drain(&mut other.client());
    assert_eq!(found, stopped);
    owner.forget_lines();
    owner.signal(Signal::CONT);
    assert_eq!(client.rest(), "", "a deposed owner answers nothing");
    owner.wait_for("quintet deposed");
    let node = format!("quintet standby of {}", other.name());
    owner.wait_for(&node);

    // The other way round.
    let there = put(&mut other.client(), "back", 50);
    other.kill();
    owner.wait_for("quintet owner");
    let mut client = owner.client();
    let found: BTreeSet<String> = drain(&mut client).into_iter().collect();
    assert_eq!(found, there.into_iter().collect());
}

#[test]
#[ignore = "needs nats-server"]
fn a_backlog_larger_than_memory_outlives_its_owner() {
    const SMALL: &str =
        "memory = '40MiB'\nshards = 1\nsegment_bytes = '8MiB'\nlog_bytes = '24MiB'\n";
    let cluster = Cluster::start("backlog");
    let mut a = cluster.node("a", SMALL);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", SMALL);
    b.wait_for("quintet standby of a");
    // 64 MB, of which memory holds less than half.
    let long = "x".repeat(32_000);
    let put = put(&mut a.client(), &long, 2000);
    let runs = |node: &str| {
        let files = std::fs::read_dir(cluster.dir().join(node).join("runs"));
        files.map_or(0, |files| files.count())
    };
    assert!(runs("a") > 0, "nothing has left memory");
    a.kill();
    b.wait_for("quintet owner");
    // Nobody owns before every run in force is there. Later they are emptied, and removed.
    assert!(runs("b") > 0, "nothing was fetched");
    let mut client = b.client();
    for (number, body) in put.iter().enumerate() {
        // Compared by hand: nobody wants to read these.
        assert!(client.take().as_ref() == Some(body), "message {number}");
    }
    assert_eq!(client.take(), None);
}

#[test]
#[ignore = "needs nats-server"]
fn the_demo_kills_an_owner_and_loses_nothing() {
    let output = quintet(&["cluster", "demo", "--seconds", "8", "--kills", "1"]).output();
    let output = output.expect("the binary starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in ["killing the owner", "owns the queues after", "lost 0"] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    // Without a server's program it says what to install.
    let absent = quintet(&["cluster", "demo", "--nats-server", "/absent/nats-server"]).output();
    let absent = absent.expect("the binary starts");
    assert!(!absent.status.success());
    let text = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(text.contains("install nats-server"), "{text}");
}

#[test]
#[ignore = "needs nats-server"]
fn all_servers_and_nodes_are_killed_and_started() {
    let mut cluster = Cluster::start("all");
    let names = ["a", "b", "c"];
    let mut nodes = names.map(|name| cluster.node(name, ""));
    let owner = node::first_to_say(&mut nodes, "quintet owner");
    let mut there = put(&mut nodes[owner].client(), "m", 20);
    nodes.into_iter().for_each(node::Node::kill);
    (0..3).for_each(|at| cluster.kill_server(at));
    let began = std::time::Instant::now();
    (0..3).for_each(|at| cluster.start_server(at));
    let nodes = names.map(|name| cluster.node(name, ""));
    there.extend(put(&mut nodes[0].client(), "n", 1));
    eprintln!("a put is answered after {:?}", began.elapsed());
    assert_eq!(drain(&mut nodes[1].client()), there);
}
