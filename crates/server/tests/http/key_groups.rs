//! Queues whose keys mean something, through the protocols of the real binary, also when it is
//! killed in between.

use serde_json::{Value, json};

use super::api::{ask, get, post};
use crate::common::{Server, Start, text};

const CONFIG: &str = "
[[queue]]
name = \"*.fifo\"
groups = \"ordered\"

[[queue]]
name = \"shared\"
groups = \"fair\"

[[queue]]
name = \"slow\"
key_in_flight_max = 1
";

fn served(dir: &tempfile::TempDir) -> Server {
    Start::of(CONFIG)
        .listen(&["memcache=0", "http=0", "beanstalk=0"])
        .serve_at(&dir.path().join("data"))
}

/// Puts bodies with keys.
fn put(server: &Server, queue: &str, messages: &[(&str, &str)]) {
    let messages = messages.iter();
    let messages = messages.map(|(key, body)| json!({ "key": key, "body": body }));
    let messages: Vec<Value> = messages.collect();
    let path = format!("/queues/{queue}/messages");
    let reply = post(server, &path, &json!({ "messages": messages }));
    assert_eq!(reply.status, 201, "{}", reply.json);
}

/// Reserves messages for longer than a test takes: bodies, and leases.
fn reserve(server: &Server, queue: &str, max: u32) -> (Vec<String>, Vec<String>) {
    let path = format!("/queues/{queue}/reserve");
    let reply = post(server, &path, &json!({ "max": max, "lease_ms": 600_000 }));
    assert_eq!(reply.status, 200, "{}", reply.json);
    let held = reply.json["messages"].as_array().unwrap().clone();
    let all = |what: &str| {
        let each = held
            .iter()
            .map(|one| one[what].as_str().unwrap().to_owned());
        each.collect()
    };
    (all("body"), all("lease"))
}

fn end(server: &Server, lease: &str, how: &str, body: &str) {
    let reply = ask(server, &format!("POST /leases/{lease}/{how}"), "", body);
    assert_eq!(reply.status, 204, "{}", reply.json);
}

#[test]
fn a_key_is_one_consumers_at_a_time_also_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = served(&dir);
    let again = |server: Server| {
        server.kill();
        served(&dir)
    };
    put(
        &server,
        "q.fifo",
        &[("g1", "a"), ("g1", "b"), ("g1", "c"), ("g2", "d")],
    );
    let (bodies, a) = reserve(&server, "q.fifo", 1);
    assert_eq!(bodies, ["a"]);
    // What is leased for a time stays so, and keeps back what stands behind it.
    server = again(server);
    let (bodies, d) = reserve(&server, "q.fifo", 10);
    assert_eq!(bodies, ["d"]);
    end(&server, &a[0], "finish", "");
    server = again(server);
    let (bodies, behind) = reserve(&server, "q.fifo", 10);
    assert_eq!(bodies, ["b", "c"]);
    // Given back, b goes before c, which is out; finished out of order no harm is done.
    end(&server, &behind[0], "release", "");
    let (bodies, b) = reserve(&server, "q.fifo", 10);
    assert_eq!(bodies, ["b"]);
    end(&server, &behind[1], "finish", "");
    put(&server, "q.fifo", &[("g1", "e")]);
    assert!(reserve(&server, "q.fifo", 10).0.is_empty());
    // Resting it keeps e back as well, also over a crash.
    end(&server, &b[0], "release", "{\"delay_ms\": 100}");
    server = again(server);
    let mut other_client = server.client_of("beanstalk");
    other_client.ask(
        b"watch q.fifo\r\nreserve-with-timeout 60\r\n",
        b"WATCHING 2\r\n",
    );
    let reserved = text(&other_client.until(b"\r\n"));
    assert!(reserved.starts_with("RESERVED "), "{reserved}");
    other_client.expect(b"b\r\n");
    assert!(reserve(&server, "q.fifo", 10).0.is_empty());
    end(&server, &d[0], "finish", "");
}

#[test]
fn a_take_of_several_follows_its_key_through_any_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    put(
        &server,
        "p.fifo",
        &[("g1", "a"), ("g1", "b"), ("g2", "c"), ("g1", "d")],
    );
    assert_eq!(reserve(&server, "p.fifo", 3).0, ["a", "b", "d"]);
    assert_eq!(reserve(&server, "p.fifo", 1).0, ["c"]);

    put(&server, "q.fifo", &[("g1", "a"), ("g1", "b")]);
    let mut memcache = server.client();
    memcache.send(b"get q.fifo/open\r\n");
    memcache.expect_value("q.fifo", b"a");
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(
        b"watch q.fifo\r\nreserve-with-timeout 0\r\n",
        b"WATCHING 2\r\nTIMED_OUT\r\n",
    );
    assert!(reserve(&server, "q.fifo", 10).0.is_empty());
    beanstalk.send(b"reserve\r\n");
    memcache.ask(b"get q.fifo/close\r\n", b"END\r\n");
    let reserved = text(&beanstalk.until(b"\r\n"));
    assert!(reserved.starts_with("RESERVED "), "{reserved}");
    beanstalk.expect(b"b\r\n");
}

#[test]
fn a_key_under_its_fair_share_goes_before_one_over_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    let of_a: Vec<(&str, &str)> = vec![("A", "a"); 70];
    put(&server, "shared", &of_a[..40]);
    put(&server, "shared", &of_a[..30]);
    assert_eq!(reserve(&server, "shared", 40).0.len(), 40);
    put(&server, "shared", &[("B", "b")]);
    assert_eq!(reserve(&server, "shared", 1).0, ["b"]);
    assert_eq!(reserve(&server, "shared", 1).0, ["a"]);
    // Where nothing of A is out it stands first.
    let server = {
        server.kill();
        std::fs::remove_dir_all(dir.path().join("data")).ok();
        served(&dir)
    };
    put(&server, "shared", &of_a);
    put(&server, "shared", &[("B", "b")]);
    assert_eq!(reserve(&server, "shared", 1).0, ["a"]);
}

/// Messages that limits of keys hold back are counted, and settings change while the server runs.
#[test]
fn limits_of_keys_are_counted_and_configured() {
    let dir = tempfile::tempdir().unwrap();
    let server = served(&dir);
    put(&server, "slow", &[("g", "a"), ("g", "b")]);
    assert_eq!(reserve(&server, "slow", 10).0, ["a"]);
    assert!(reserve(&server, "slow", 10).0.is_empty());
    let (_, metrics) = crate::common::page(&server, "/metrics");
    let output = |row: &str| {
        let lines = metrics.lines();
        let mut rows = lines.filter(|line| line.contains(row) && line.contains("queue=\"slow\""));
        let row = rows
            .next()
            .unwrap_or_else(|| panic!("no {row} in {metrics}"));
        row.rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(output("queue_keys{"), "1");
    assert_eq!(output("queue_keys_limited{"), "1");
    assert_eq!(output("queue_limited_takes_total{"), "1");
    let raised = CONFIG.replace("key_in_flight_max = 1", "key_in_flight_max = 2");
    server.configure(&raised);
    server.signal(rustix::process::Signal::HUP);
    // It waits for the settings as for a message.
    let waits = json!({ "lease_ms": 600_000, "wait_ms": 20_000 });
    let reply = post(&server, "/queues/slow/reserve", &waits);
    assert_eq!(reply.json["messages"][0]["body"], json!("b"));
    let shown = get(&server, "/queues/slow/settings").json;
    let of = |key: &str| {
        let all = shown["settings"].as_array().unwrap();
        let found = all.iter().find(|setting| setting["key"] == key).unwrap();
        found["value"].clone()
    };
    assert_eq!(of("groups"), json!("none"));
    assert_eq!(of("key_in_flight_max"), json!(2));
}
