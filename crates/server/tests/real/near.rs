//! `near`: which server a node talks to, and where the stream's leader is then.

use serde_json::Value;

use crate::node::Cluster;
use crate::servers::until;
use crate::{drain, put};
use rustix::process::Signal;

/// The server that leads the stream, as a node knows it.
fn leader(cluster: &Cluster, node: &str) -> Option<String> {
    let (_, text) = cluster.order(node, &["status", "--json"]);
    let report: Value = serde_json::from_str(&text).ok()?;
    let leader = report["groups"][0]["stream"]["leader"].as_str()?;
    Some(leader.to_owned())
}

#[test]
#[ignore = "needs nats-server"]
fn an_owner_moves_the_leader_off_its_own_machine() {
    let cluster = Cluster::start("near");
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    let there = put(&mut a.client(), "m", 20);
    let led = until("a leader", || leader(&cluster, "a"));
    a.signal(Signal::TERM);
    assert!(a.wait().success());
    // It may have changed by itself meanwhile, and does not while nothing happens.
    let near = format!("[cluster]\nnear = {led:?}\n");
    let mut a = cluster.node("a", &near);
    a.wait_for("quintet owner");
    until("another leads", || {
        leader(&cluster, "a").filter(|now| *now != led)
    });
    assert_eq!(drain(&mut a.client()), there);
}
