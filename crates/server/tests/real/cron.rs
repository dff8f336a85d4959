//! `[[cron]]` tables where the owner changes: the wall clocks of the nodes are set, so nobody waits
//! for midnight.

use quintet_faults::Faults;
use serde_json::Value;

use crate::node::{Cluster, Node, quintet};
use crate::servers::until;

/// Four years, which have one 29 February whenever they begin.
const LEAP: i64 = 1461 * 86_400_000;
/// One puts what it missed, one lets it go, one will be paused.
const CRONS: &str = "\
[[cron]]
name = 'once'
schedule = '0 0 29 2 *'
queue = 'q'
body = 'once'
missed = 'once'
[[cron]]
name = 'skips'
schedule = '0 0 29 2 *'
queue = 'q'
body = 'skips'
[[cron]]
name = 'paused'
schedule = '0 0 29 2 *'
queue = 'q'
body = 'paused'
missed = 'once'
";

fn faults(cluster: &Cluster, name: &str) -> Faults {
    crate::common::faults(&cluster.dir().join(name))
}

/// A command's output as JSON, a value a line; nothing while the node cannot be asked.
fn json_lines(cluster: &Cluster, name: &str, words: &[&str]) -> Vec<Value> {
    let data = cluster.dir().join(name);
    let output = quintet(words).arg("--data").arg(data).output();
    let output = output.expect("the binary starts");
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = lines.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// A number of the table, once the node owns and has looked at it.
fn number(cluster: &Cluster, node: &str, name: &str) -> u64 {
    until(name, || {
        json_lines(cluster, node, &["stats", "--json"]).first()?[name].as_u64()
    })
}

fn table(cluster: &Cluster, node: &str, name: &str) -> Value {
    let tables = json_lines(cluster, node, &["cron", "--json"]);
    let found = tables.into_iter().find(|table| table["name"] == name);
    found.expect("the table is listed")
}

fn steer(cluster: &Cluster, node: &str, act: &str, name: &str) {
    let data = cluster.dir().join(node);
    let mut command = quintet(&["cron", act, name]);
    let status = command.arg("--data").arg(data).status();
    assert!(status.expect("the binary starts").success(), "{act} {name}");
}

/// Waits until so many runs of the table that skips them are known to be missed, no more.
fn await_missed(cluster: &Cluster, node: &str, wanted: u64) {
    until("runs are missed", || {
        let missed = table(cluster, node, "skips")["missed_runs"].as_u64()?;
        assert!(missed <= wanted, "{missed} are missed");
        (missed == wanted).then_some(())
    });
}

/// Messages since the last call, `wanted` of them, in any order.
fn puts(node: &Node, wanted: usize) -> Vec<String> {
    let mut client = node.client();
    let mut found = Vec::new();
    until("the due message is put", || {
        while let Some(body) = client.take() {
            found.push(body);
        }
        (found.len() >= wanted).then_some(())
    });
    found.sort();
    found
}

#[test]
#[ignore = "needs nats-server"]
fn a_due_message_is_put_once_over_changes_of_owner_and_a_pause_stays() {
    let cluster = Cluster::start("cron");
    let (of_a, of_b) = (faults(&cluster, "a"), faults(&cluster, "b"));
    let begin = |name, faults: &Faults| cluster.node_under(name, CRONS, faults);
    let mut a = begin("a", &of_a);
    a.wait_for("quintet owner");
    let mut b = begin("b", &of_b);
    b.wait_for("quintet standby of a");
    assert!(of_a.is_attached() && of_b.is_attached());
    for table in ["once", "skips", "paused"] {
        assert_eq!(number(&cluster, "a", &format!("cron_{table}_runs")), 0);
    }
    steer(&cluster, "a", "pause", "paused");

    // The owner is killed when it has put: nobody puts it again.
    for clock in [&of_b, &of_a] {
        clock.shift_clock(LEAP);
    }
    until("it is put", || {
        (number(&cluster, "a", "cron_once_runs") == 1).then_some(())
    });
    until("it is missed", || {
        (number(&cluster, "a", "cron_skips_missed") == 1).then_some(())
    });
    a.kill();
    b.wait_for("quintet owner");
    number(&cluster, "b", "cron_once_runs");
    assert_eq!(table(&cluster, "b", "paused")["paused"], true);
    assert_eq!(puts(&b, 1), ["once"]);
    await_missed(&cluster, "b", 1);

    // It is due while nobody owns: whoever owns next has missed it.
    let mut a = begin("a", &of_a);
    a.wait_for("quintet standby of b");
    b.kill();
    of_a.shift_clock(2 * LEAP);
    of_b.shift_clock(2 * LEAP);
    a.wait_for("quintet owner");
    assert_eq!(puts(&a, 1), ["once"]);
    await_missed(&cluster, "a", 2);

    // The owner is killed as it is due: one of them puts it.
    let mut b = begin("b", &of_b);
    b.wait_for("quintet standby of a");
    of_b.shift_clock(3 * LEAP);
    of_a.shift_clock(3 * LEAP);
    a.kill();
    b.wait_for("quintet owner");
    assert_eq!(puts(&b, 1), ["once"]);
    await_missed(&cluster, "b", 3);

    // The pause has outlived all owners; resumed it goes on, and makes up for nothing.
    assert_eq!(table(&cluster, "b", "paused")["paused"], true);
    steer(&cluster, "b", "resume", "paused");
    of_b.shift_clock(4 * LEAP);
    assert_eq!(puts(&b, 2), ["once", "paused"]);
    let paused = table(&cluster, "b", "paused");
    assert_eq!(paused["missed_runs"], 1, "{paused}");
    await_missed(&cluster, "b", 4);
    assert_eq!(puts(&b, 0), [""; 0]);
}
