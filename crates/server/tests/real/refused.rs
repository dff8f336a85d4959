//! Mistakes of servers, operators and others: each is refused or reported, with a remedy.

use std::path::Path;
use std::process::Command;

use crate::common::{Server, Start};
use crate::node::{Cluster, Node};
use crate::servers::{Fleet, free_port, until};
use crate::{drain, put};

/// The output of a node that cannot run.
fn ended(mut node: Server) -> String {
    let status = node.wait();
    let text = node.stderr_text();
    assert_eq!(status.code(), Some(1), "{text}");
    text
}

/// Starts it, with what it says in a file.
fn begin(data: &Path, command: Command) -> Server {
    let log = data.with_extension("said");
    Server::spawn_logged(data, command, &log).expect("the binary starts")
}

/// Output of a node that begins on these servers with this in `[cluster]`.
fn says(fleet: &Fleet, more: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let servers = fleet.addresses(0).addresses;
    let config = format!(
        "[cluster]\nnats = {servers:?}\nname = 'refused'\nnode = 'a'\nlisten = '127.0.0.1:0'\n{more}\
         [[listen]]\nprotocol = 'memcache'\naddress = '0'\n"
    );
    let data = dir.path().join("a");
    let command = Server::command_as_configured(&data, &Start::of(&config));
    ended(begin(&data, command))
}

#[test]
#[ignore = "needs nats-server"]
fn servers_that_do_not_fit_are_refused() {
    let locked = Fleet::start_with(1, "always", "authorization { user: q, password: right }\n");
    let dir = tempfile::tempdir().expect("a directory");
    let password = dir.path().join("password");
    std::fs::write(&password, "wrong\n").expect("written");
    until("it listens", || {
        std::net::TcpStream::connect(locked.addresses(0).addresses[0].trim_start_matches("nats://"))
            .ok()
    });
    let text = says(
        &locked,
        &format!("user = 'q'\npassword_file = {password:?}\n"),
    );
    assert!(
        text.contains("does not accept this node's user: see cluster.user"),
        "{text}"
    );
    // No user at all.
    let text = says(&locked, "");
    assert!(text.contains("does not accept this node's user"), "{text}");

    let monitor = free_port();
    let late = Fleet::start_with(1, "2m", &format!("http: \"127.0.0.1:{monitor}\"\n"));
    until("it listens", || {
        std::net::TcpStream::connect(("127.0.0.1", monitor)).ok()
    });
    let text = says(&late, &format!("monitor = ['127.0.0.1:{monitor}']\n"));
    assert!(
        text.contains("does not sync each message: set sync_interval: always"),
        "{text}"
    );
    let text = says(&late, "nats_version_min = '9.0.0'\nallow_unsafe = true\n");
    let named = ["n0", "not 9.0.0 or later", "docs/cluster.md"];
    assert!(named.iter().all(|part| text.contains(part)), "{text}");
    let text = says(&late, "replicas = 1\n");
    assert!(
        text.contains("replicas") && text.contains("allow_unsafe"),
        "{text}"
    );
}

/// Waits until the node's status says this, and that not all is well.
fn assert_status_has(cluster: &Cluster, node: &str, what: &str) {
    until(what, || {
        let (code, text) = cluster.order(node, &["status"]);
        (code > 0 && text.contains(what)).then_some(())
    });
}

/// A node that begins, whose configuration is that of its name.
fn begin_in(cluster: &Cluster, name: &str, folder: &str) -> Server {
    let data = cluster.dir().join(folder);
    begin(&data, cluster.command(name, &data, ""))
}

fn refused(cluster: &Cluster, name: &str) -> String {
    ended(begin_in(cluster, name, name))
}

fn owner(cluster: &Cluster) -> Node {
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    a
}

#[test]
#[ignore = "needs nats-server"]
fn a_deleted_stream_is_reported_and_not_created_again() {
    let cluster = Cluster::start("deleted");
    let a = owner(&cluster);
    put(&mut a.client(), "m", 20);
    cluster.publish("$JS.API.STREAM.DELETE.Q_deleted_0", "");
    assert_status_has(
        &cluster,
        "a",
        "the stream is gone. The server does not create it again",
    );
    assert_status_has(&cluster, "a", "DOWN");
    a.kill();
    let text = refused(&cluster, "a");
    assert!(
        text.contains("is gone. The server does not create it again"),
        "{text}"
    );
}

#[test]
#[ignore = "needs nats-server"]
fn a_foreign_purge_is_reported_while_the_owner_has_everything() {
    let cluster = Cluster::start("purged");
    let a = owner(&cluster);
    let there = put(&mut a.client(), "m", 20);
    cluster.publish("$JS.API.STREAM.PURGE.Q_purged_0", "");
    assert_status_has(&cluster, "a", "another program changed");
    let text = refused(&cluster, "b");
    assert!(
        text.contains("purged") && text.contains("quintet export"),
        "{text}"
    );
    assert_eq!(drain(&mut a.client()), there);
}

#[test]
#[ignore = "needs nats-server"]
fn a_foreign_entry_stops_nodes_with_a_remedy() {
    let cluster = Cluster::start("nobody");
    let mut node = begin_in(&cluster, "a", "a");
    node.wait_for("quintet owner");
    cluster.publish("quintet.nobody.log.0", "garbage");
    let text = ended(node);
    assert!(text.contains("damaged or from another program"), "{text}");
    assert!(text.contains("quintet cluster reseed"), "{text}");
}

#[test]
#[ignore = "needs nats-server"]
fn of_two_nodes_of_one_name_one_is_refused() {
    let cluster = Cluster::start("twins");
    let _a = owner(&cluster);
    // At the same moment, from two directories.
    let mut twins = ["one", "two"].map(|folder| begin_in(&cluster, "b", folder));
    let refused = until("one of them ends", || {
        let mut all = twins.iter_mut();
        all.position(|node| node.child.try_wait().expect("ours").is_some())
    });
    let [one, two] = twins;
    let (refused, mut other) = match refused {
        0 => (one, two),
        _ => (two, one),
    };
    let text = ended(refused);
    assert!(
        text.contains("another process runs as the node \"b\""),
        "{text}"
    );
    other.wait_for("quintet standby of a");
}

#[test]
#[ignore = "needs nats-server"]
fn a_node_whose_directory_is_gone_starts_again() {
    let cluster = Cluster::start("emptied");
    let a = owner(&cluster);
    let there = put(&mut a.client(), "m", 20);
    a.kill();
    std::fs::remove_dir_all(cluster.dir().join("a")).expect("removed");
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    assert_eq!(drain(&mut a.client()), there);
}
