//! What servers, operators and others can do wrong: each is refused or told of, with what to do.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::node::{Cluster, Node, Running, quintet};
use crate::servers::{Fleet, LONG, free_port, until};
use crate::{drain, put};

/// How a node ended that cannot run, and what it said; it is killed if it goes on.
fn ended(mut child: Child, said: &Path) -> String {
    let began = std::time::Instant::now();
    let status = loop {
        match child.try_wait().expect("ours") {
            Some(status) => break status,
            None if began.elapsed() > LONG => {
                child.kill().expect("ours");
                child.wait().expect("ours");
                panic!("it runs: {}", said_in(said));
            }
            // Nothing tells when it ends.
            None => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    };
    let text = said_in(said);
    assert_eq!(status.code(), Some(1), "{text}");
    text
}

fn said_in(path: &Path) -> String {
    std::fs::read_to_string(path).expect("what it said")
}

/// What a node says that begins on these servers with this in `[cluster]`.
fn says(fleet: &Fleet, more: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let servers = fleet.addresses(0).addresses;
    let config = format!(
        "[cluster]\nnats = {servers:?}\nname = 'refused'\nnode = 'a'\nlisten = '127.0.0.1:0'\n{more}\
         [[listen]]\nvoice = 'memcache'\naddress = '0'\n"
    );
    let (path, said) = (dir.path().join("a.toml"), dir.path().join("said"));
    std::fs::write(&path, config).expect("written");
    let child = quintet(&["serve", "--config"])
        .arg(path)
        .arg("--data")
        .arg(dir.path().join("a"))
        .stdout(Stdio::null())
        .stderr(File::create(&said).expect("a file"))
        .spawn()
        .expect("the binary starts");
    ended(child, &said)
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
        text.contains("does not take this node's user: see cluster.user"),
        "{text}"
    );
    // No user at all.
    let text = says(&locked, "");
    assert!(text.contains("does not take this node's user"), "{text}");

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
    let text = says(&late, "replicas = 1\n");
    assert!(
        text.contains("replicas") && text.contains("allow_unsafe"),
        "{text}"
    );
}

/// Waits until the node's status says this, and that not all is well.
fn status_says(cluster: &Cluster, node: &str, what: &str) {
    until(what, || {
        let (code, text) = cluster.order(node, &["status"]);
        (code > 0 && text.contains(what)).then_some(())
    });
}

/// A node that begins, and what it says of errors.
fn begin(cluster: &Cluster, name: &str) -> (Child, std::path::PathBuf) {
    let said = cluster.dir().join(format!("{name}.said"));
    let child = cluster
        .command(name, &cluster.dir().join(name), "")
        .stdout(Stdio::piped())
        .stderr(File::create(&said).expect("a file"))
        .spawn();
    (child.expect("the binary starts"), said)
}

fn refused(cluster: &Cluster, name: &str) -> String {
    let (child, said) = begin(cluster, name);
    ended(child, &said)
}

fn owner(cluster: &Cluster) -> Node {
    let mut a = cluster.node("a", "");
    a.wait_for("quintet owner");
    a
}

#[test]
#[ignore = "needs nats-server"]
fn a_stream_that_is_deleted_is_told_of_and_not_made_again() {
    let cluster = Cluster::start("deleted");
    let a = owner(&cluster);
    put(&mut a.client(), "m", 20);
    cluster.publish("$JS.API.STREAM.DELETE.Q_deleted_0", "");
    status_says(&cluster, "a", "the stream is gone, and is not made again");
    status_says(&cluster, "a", "DOWN");
    a.kill();
    let text = refused(&cluster, "a");
    assert!(
        text.contains("is gone. It is not made again by itself"),
        "{text}"
    );
}

#[test]
#[ignore = "needs nats-server"]
fn a_purge_by_somebody_else_is_told_of_while_the_owner_still_has_everything() {
    let cluster = Cluster::start("purged");
    let a = owner(&cluster);
    let there = put(&mut a.client(), "m", 20);
    cluster.publish("$JS.API.STREAM.PURGE.Q_purged_0", "");
    status_says(&cluster, "a", "was changed by somebody else");
    let text = refused(&cluster, "b");
    assert!(
        text.contains("purged") && text.contains("quintet export"),
        "{text}"
    );
    assert_eq!(drain(&mut a.client()), there);
}

#[test]
#[ignore = "needs nats-server"]
fn an_entry_from_nobody_stops_nodes_that_say_what_to_do() {
    let cluster = Cluster::start("nobody");
    let (mut child, said) = begin(&cluster, "a");
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    assert!(lines.any(|line| line.is_ok_and(|line| line == "quintet owner")));
    let reading = std::thread::spawn(move || lines.for_each(drop));
    cluster.publish("quintet.nobody.log.0", "garbage");
    let text = ended(child, &said);
    assert!(text.contains("it is not what its owners wrote"), "{text}");
    assert!(text.contains("quintet cluster reseed"), "{text}");
    reading.join().expect("it ended");
}

#[test]
#[ignore = "needs nats-server"]
fn of_two_nodes_of_one_name_one_is_refused() {
    let cluster = Cluster::start("twins");
    let _a = owner(&cluster);
    // At the same moment, from two directories.
    let twins: Vec<(Child, std::path::PathBuf)> = ["one", "two"]
        .map(|folder| {
            let said = cluster.dir().join(format!("{folder}.said"));
            let child = cluster
                .command("b", &cluster.dir().join(folder), "")
                .stdout(Stdio::piped())
                .stderr(File::create(&said).expect("a file"))
                .spawn();
            (child.expect("the binary starts"), said)
        })
        .into();
    let mut twins = twins;
    let refused = until("one of them ends", || {
        twins
            .iter_mut()
            .position(|(child, _)| child.try_wait().expect("ours").is_some())
    });
    let (child, said) = twins.remove(refused);
    let text = ended(child, &said);
    assert!(text.contains("another process is the node \"b\""), "{text}");
    let (child, _) = twins.remove(0);
    Running::new(child).wait_for("quintet standby of a");
}
