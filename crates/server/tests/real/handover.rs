//! Owners that go in good order, and nodes that are ordered to own or not to.

use rustix::process::Signal;

use crate::common::{faults, text};
use crate::node::{Cluster, Node, first_to_say};
use crate::servers::until;
use crate::{drain, put};

/// Only a handoff lets such a node take over.
const PATIENT: &str = "[cluster]\ntakeover_after = '1h'\n";

/// A cluster with `a` as owner, whose other nodes wait for handoffs.
fn three(cluster: &Cluster) -> [Node; 3] {
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    let mut others = ["b", "c"].map(|name| cluster.node(name, PATIENT));
    for other in &mut others {
        other.wait_for("quintet standby of a");
    }
    let [b, c] = others;
    // That it follows it says before it has caught up.
    for name in ["b", "c"] {
        until("a standby", || {
            let (_, text) = cluster.order("a", &["status"]);
            let line = text
                .lines()
                .find(|line| line.starts_with(&format!("  {name}")))?;
            line.contains("standby").then_some(())
        });
    }
    [a, b, c]
}

#[test]
#[ignore = "needs nats-server"]
fn an_owner_that_is_stopped_or_moved_away_is_followed_without_silence() {
    let cluster = Cluster::start("farewell");
    let [mut a, b, c] = three(&cluster);
    let mut all = put(&mut a.client(), "a", 50);
    let mut others = [b, c];
    a.signal(Signal::TERM);
    assert!(a.wait().success());
    let first = first_to_say(&mut others, "quintet owner");
    let [b, c] = others;
    let (mut owner, mut other) = if first == 0 { (b, c) } else { (c, b) };
    // Also through the one that follows.
    all.extend(put(&mut other.client(), "b", 50));

    let named = other.name().to_owned();
    let (mut client, mut holder) = (owner.client(), owner.client());
    assert_eq!(client.take().as_ref(), Some(&all[0]));
    holder.open();
    owner.forget_lines();
    let (code, text) = cluster.order(owner.name(), &["move", "0", &named]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("{named} owns the queues")), "{text}");
    // A put at once: its bytes are read by nobody before they reach the new owner.
    all.extend(put(&mut client, "d", 20));
    assert_eq!(holder.rest(), "", "its lease was bound to its connection");
    other.wait_for("quintet owner");
    owner.wait_for("quintet handed over");
    owner.wait_for(&format!("quintet standby of {named}"));
    all.extend(put(&mut client, "e", 20));
    // What it listened on it listens on, for others.
    all.extend(put(&mut owner.client(), "c", 50));
    let (code, text) = cluster.order(owner.name(), &["move", "0", &named]);
    assert_eq!((code, text.trim()), (0, "it is so"));
    assert_eq!(drain(&mut other.client()), all[1..]);
}

/// Whether the node's process was replaced by a next one, which finds its sockets by a variable.
fn was_replaced(node: &Node) -> bool {
    let path = format!("/proc/{}/environ", node.child.id());
    text(&std::fs::read(path).expect("it runs")).contains("QUINTET_LISTENING=")
}

#[test]
#[ignore = "needs nats-server"]
fn queues_move_to_and_fro_between_the_same_processes() {
    let cluster = Cluster::start("same");
    let [a, b, c] = three(&cluster);
    let (mut nodes, mut all) = ([a, b], Vec::new());
    // Its client says nothing between the first move and the last.
    let mut resting = nodes[0].client();
    all.extend(put(&mut resting, "first", 1));
    for step in 0..4 {
        let (from, to) = (step % 2, (step + 1) % 2);
        let names = nodes.each_ref().map(|node| node.name().to_owned());
        let mut client = nodes[from].client();
        all.extend(put(&mut client, &format!("before{step}-"), 10));
        nodes.iter_mut().for_each(|node| node.forget_lines());
        until("it is moved", || {
            // The other one may still be reading the log.
            (cluster.order(&names[from], &["move", "0", &names[to]]).0 == 0).then_some(())
        });
        // The connection has no state, so it is kept.
        all.extend(put(&mut client, &format!("after{step}-"), 10));
        nodes[to].wait_for("quintet owner");
        nodes[from].wait_for("quintet handed over");
        nodes[from].wait_for(&format!("quintet standby of {}", names[to]));
    }
    all.extend(put(&mut resting, "last", 1));
    assert_eq!(drain(&mut nodes[0].client()), all);
    for node in nodes.iter().chain([&c]) {
        assert!(!was_replaced(node), "{}", node.name());
    }
}

#[test]
#[ignore = "needs nats-server"]
fn a_thread_that_does_not_end_keeps_no_node_from_following() {
    let cluster = Cluster::start("stuck");
    let faults = faults(&cluster.dir().join("a"));
    let mut a = cluster.node_under("a", "", &faults);
    a.wait_for("quintet owner");
    let mut b = cluster.node("b", PATIENT);
    b.wait_for("quintet standby of a");
    let mut client = a.client();
    let mut all = put(&mut client, "before", 10);
    let threads = std::fs::read_dir(format!("/proc/{}/task", a.child.id())).expect("it runs");
    let mut threads = threads.map(|thread| thread.expect("a thread").path());
    let history = threads.find(|thread| {
        let name = std::fs::read(thread.join("comm")).unwrap_or_default();
        text(&name).trim_end() == "history"
    });
    let id = history
        .as_ref()
        .and_then(|thread| thread.file_name()?.to_str());
    let id: u64 = id.expect("its thread").parse().expect("a number");
    faults.hold(id);
    until("it is held", || (faults.held() == id).then_some(()));
    until("it is moved", || {
        (cluster.order("a", &["move", "0", "b"]).0 == 0).then_some(())
    });
    // Its next process has this connection.
    all.extend(put(&mut client, "after", 10));
    a.wait_for("quintet standby of b");
    assert!(was_replaced(&a));
    faults.hold(0);
    assert_eq!(drain(&mut b.client()), all);
}

#[test]
#[ignore = "needs nats-server"]
fn a_drained_node_owns_nothing_also_after_a_restart_until_it_is_undrained() {
    let cluster = Cluster::start("drained");
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    let (code, text) = cluster.order("a", &["drain"]);
    assert_eq!(code, 4, "nobody else could own: {text}");
    drop(a);
    let [mut a, mut b, mut c] = three(&cluster);
    let all = put(&mut a.client(), "m", 20);

    let (code, text) = cluster.order("b", &["drain"]);
    assert_eq!((code, text.trim()), (0, "b is drained"));
    for (words, expected) in [
        (["move", "0", "b"], 5),
        (["move", "0", "d"], 3),
        (["move", "1", "c"], 1),
    ] {
        let (code, text) = cluster.order("c", &words);
        assert_eq!(code, expected, "{words:?}: {text}");
    }
    // Only one is left that could take over.
    a.forget_lines();
    let (code, text) = cluster.order("b", &["drain", "a"]);
    assert_eq!(code, 0, "{text}");
    c.wait_for("quintet owner");
    a.wait_for("quintet standby of c");
    let (code, text) = cluster.order("c", &["status"]);
    assert_eq!(text.matches(", drained").count(), 4, "{text}");
    assert_eq!(code, 1, "nobody could take over: {text}");
    let (code, text) = cluster.order("c", &["drain"]);
    assert_eq!(code, 4, "{text}");

    b.signal(Signal::TERM);
    assert!(b.wait().success());
    let mut b = cluster.node("b", PATIENT);
    b.wait_for("quintet standby of c");
    let (_, text) = cluster.order("b", &["move", "0", "b"]);
    assert!(text.contains("undrain b"), "{text}");
    let (code, text) = cluster.order("c", &["undrain", "b"]);
    assert_eq!((code, text.trim()), (0, "b is not drained"));
    until("it is moved", || {
        // It may still be reading the log.
        (cluster.order("a", &["move", "0", "b"]).0 == 0).then_some(())
    });
    b.wait_for("quintet owner");
    assert_eq!(drain(&mut b.client()), all);
}

#[test]
#[ignore = "needs nats-server"]
fn an_owner_without_a_quorum_stops_and_reports_a_possible_loss() {
    let mut cluster = Cluster::start("alone");
    let mut a = cluster.node("a", "[cluster]\nhandover_wait = '1s'\n");
    a.wait_for("quintet owner");
    put(&mut a.client(), "m", 20);
    cluster.kill_server(1);
    cluster.kill_server(2);
    let mut client = a.client();
    client.ask("set q 0 0 4\r\nlost\r\n");
    a.signal(Signal::TERM);
    assert_eq!(a.wait().code(), Some(1));
    assert_eq!(client.rest(), "", "no client got an acknowledgement");
}
