//! Workers of the faktory protocol: listed, asked to be quiet and to end; wrong
//! passwords; jobs that are moved from another Faktory.

use std::path::Path;

use crate::common::{Client, Server, Start, text};
use serde_json::{Value, json};

fn start(data: &Path, config: &str) -> Server {
    Start::of(config)
        .listen(&["faktory=0", "http=0"])
        .serve_at(data)
}

fn says(client: &mut Client, line: &str, reply: &str) {
    client.ask(format!("{line}\r\n").as_bytes(), reply.as_bytes());
}

fn listed(server: &Server) -> Vec<Value> {
    let lines = server.printed(&["workers", "--json"]);
    let line = |line| serde_json::from_str(line).expect("JSON");
    lines.lines().map(line).collect()
}

#[test]
fn the_command_line_lists_workers_and_quiets_or_ends_them() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir.path().join("data"), "");
    assert!(listed(&server).is_empty());
    let mut worker = server.client_of("faktory");
    worker.expect(b"+HI {\"v\":2}\r\n");
    let hello = r#"HELLO {"v":2,"wid":"w1","hostname":"box","pid":7,"labels":["a","b"]}"#;
    says(&mut worker, hello, "+OK\r\n");
    let all = listed(&server);
    assert_eq!(all.len(), 1);
    for (key, value) in [
        ("wid", json!("w1")),
        ("host", json!("box")),
        ("pid", json!(7)),
        ("labels", json!(["a", "b"])),
        ("state", json!("running")),
        ("jobs", json!(0)),
        ("connections", json!(1)),
    ] {
        assert_eq!(all[0][key], value, "{key}");
    }
    let shown = server.printed(&["workers"]);
    assert!(shown.contains("box") && shown.contains("a,b"), "{shown}");
    says(&mut worker, r#"BEAT {"wid":"w1"}"#, "+OK\r\n");
    let mut other = server.client_of("faktory");
    other.expect(b"+HI {\"v\":2}\r\n");
    says(&mut other, r#"HELLO {"v":2,"wid":"w2"}"#, "+OK\r\n");
    server.printed(&["workers", "quiet", "w1"]);
    let quiet = "$17\r\n{\"state\":\"quiet\"}\r\n";
    says(&mut worker, r#"BEAT {"wid":"w1"}"#, quiet);
    // It gets nothing more, on no connection; others do.
    server.printed(&["put", "default", "job"]);
    says(&mut worker, "FETCH default", "$-1\r\n");
    let mut again = server.client_of("faktory");
    again.expect(b"+HI {\"v\":2}\r\n");
    says(&mut again, hello, "+OK\r\n");
    says(&mut again, "FETCH default", "$-1\r\n");
    says(&mut other, r#"BEAT {"wid":"w2"}"#, "+OK\r\n");
    other.send(b"FETCH default\r\n");
    let job = text(&other.until(b"\r\n"));
    assert!(job.starts_with('$') && job != "$-1\r\n", "{job}");
    other.until(b"\r\n");
    // Who holds how many, by each way it is asked.
    let jobs = |all: &[Value]| {
        let of = |wid: &str| {
            let found = all.iter().find(|worker| worker["wid"] == wid);
            found.expect("it is listed")["jobs"].clone()
        };
        (of("w1"), of("w2"))
    };
    assert_eq!(jobs(&listed(&server)), (json!(0), json!(1)));
    let all = server.ask("GET /api/v1/workers", "", "").json();
    let all = all.as_array().expect("a list");
    assert_eq!(jobs(all), (json!(0), json!(1)));
    let shown = server.printed(&["workers"]);
    let row = shown.lines().find(|row| row.starts_with("w2 "));
    let behind = row.and_then(|row| row.split_once("running"));
    let cell = behind.and_then(|(_, behind)| behind.split_whitespace().next());
    assert_eq!(cell, Some("1"), "{shown}");
    server.printed(&["workers", "terminate", "w1"]);
    server.printed(&["workers", "quiet", "w1"]);
    let ends = "$21\r\n{\"state\":\"terminate\"}\r\n";
    says(&mut worker, r#"BEAT {"wid":"w1"}"#, ends);
    let state = |wid: &str| {
        let all = listed(&server);
        let found = all.iter().find(|worker| worker["wid"] == wid);
        found.expect("it is listed")["state"].clone()
    };
    assert_eq!(
        (state("w1"), state("w2")),
        ("terminate".into(), "running".into())
    );
    let nobody = server.run(&["workers", "quiet", "w3"]);
    assert!(!nobody.status.success());
    assert!(text(&nobody.stderr).contains("there is no worker w3"));
    let audit = server.printed(&["audit"]);
    assert!(
        audit.contains("/workers/w1/quiet 204") && audit.contains("/workers/w1/terminate 204"),
        "{audit}"
    );
    assert!(server.stop().success());
}

#[test]
fn workers_need_the_right_server_to_see_and_steer() {
    let config = "[[user]]\nname = 'ann'\n[[grant]]\nuser = 'ann'\nqueues = ['*']\n\
                  rights = ['put', 'peek', 'take', 'settle', 'admin']\n\
                  [[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\nuser = 'ann'\n\
                  [[listen]]\nprotocol = 'faktory'\naddress = '127.0.0.1:0'\nuser = 'ann'\n";
    let server = Start::of(config).serve_as_configured();
    let mut worker = server.client_of("faktory");
    worker.expect(b"+HI {\"v\":2}\r\n");
    says(&mut worker, r#"HELLO {"v":2,"wid":"w1"}"#, "+OK\r\n");
    for head in [
        "GET /api/v1/workers",
        "POST /api/v1/workers/w1/quiet",
        "POST /api/v1/workers/w1/terminate",
        // Not even whether it is there.
        "POST /api/v1/workers/w2/quiet",
    ] {
        assert_eq!(server.ask(head, "", "").status, 403, "{head}");
    }
    says(&mut worker, r#"BEAT {"wid":"w1"}"#, "+OK\r\n");
    assert_eq!(listed(&server)[0]["state"], "running");
    assert!(server.stop().success());
}

#[test]
fn wrong_passwords_make_an_address_wait() {
    let config = "[[listen]]\nprotocol = 'faktory'\naddress = '127.0.0.1:0'\npassword = 'x'\n\
                  hash_rounds = 1\n";
    let server = Start::of(config).serve_as_configured();
    // Who knows it is let in.
    let salted = |client: &mut Client| {
        let hi = text(&client.until(b"\r\n"));
        let hi: Value = serde_json::from_str(hi.trim_start_matches("+HI ")).expect("JSON");
        hi["s"].as_str().expect("a salt").to_owned()
    };
    let proves = |client: &mut Client| {
        let hash = quintet_wire::faktory_pwdhash("x", &salted(client), 1);
        format!("HELLO {{\"v\":2,\"pwdhash\":\"{hash}\"}}\r\n")
    };
    let mut knows = server.client_of("faktory");
    let hello = proves(&mut knows);
    knows.ask(hello.as_bytes(), b"+OK\r\n");
    let tries = |_| {
        let mut client = server.client_of("faktory");
        client.until(b"\r\n");
        client.send(b"HELLO {\"v\":2,\"pwdhash\":\"00\"}\r\n");
        text(&client.exact(usize::MAX))
    };
    let replies: Vec<String> = (0..8).map(tries).collect();
    assert!(
        replies[..5]
            .iter()
            .all(|replies| replies == "-ERR Invalid password\r\n"),
        "{replies:?}"
    );
    let throttled = "-ERR too many failed logins, try again later\r\n";
    assert!(
        replies[5..].iter().any(|replies| replies == throttled),
        "{replies:?}"
    );
    let audit = server.printed(&["audit"]);
    assert!(audit.contains("login"), "{audit}");
    // Who was let in stays so.
    says(&mut knows, "CMD", "-ERR unknown command CMD\r\n");
    assert!(server.stop().success());
}

#[test]
fn jobs_of_a_faktory_are_moved() {
    let dir = tempfile::tempdir().unwrap();
    // Another Quintet speaks as a Faktory does.
    let config = "[[listen]]\nprotocol = 'faktory'\naddress = '127.0.0.1:0'\npassword = 'swordfish'\n\
                  fetch_wait_ms = 50\n[[listen]]\nprotocol = 'beanstalk'\naddress = '127.0.0.1:0'\n";
    let other = Start::of(config);
    let other = Server::start_as_configured(&dir.path().join("other"), other);
    let line = |number: usize| {
        let queue = if number.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        };
        let job = format!(
            r#"{{"jid":"job{number:05}","jobtype":"T","args":[{number}],"queue":"{queue}","reserve_for":90}}"#
        );
        json!({ "queue": queue, "body": job }).to_string() + "\n"
    };
    let jobs = dir.path().join("jobs.jsonl");
    std::fs::write(&jobs, (0..250).map(line).collect::<String>()).unwrap();
    other.printed(&["import", "--quiet", jobs.to_str().unwrap()]);
    // A job with an id of its own, which failed before.
    let mut producer = other.client_of("faktory");
    let hi = text(&producer.until(b"\r\n"));
    let hi: Value = serde_json::from_str(hi.trim_start_matches("+HI ")).expect("JSON");
    let rounds = u32::try_from(hi["i"].as_u64().expect("rounds")).expect("some thousands");
    let salt = hi["s"].as_str().expect("a salt");
    let hash = quintet_wire::faktory_pwdhash("swordfish", salt, rounds);
    let hello = format!(r#"HELLO {{"v":2,"pwdhash":"{hash}"}}"#);
    says(&mut producer, &hello, "+OK\r\n");
    let own = r#"PUSH {"jid":"ownjob01","jobtype":"T","args":[1.0],"queue":"own","custom":{"a":1},"failure":{"retry_count":3}}"#;
    says(&mut producer, own, "+OK\r\n");
    let server = start(&dir.path().join("data"), "");
    let address = other.address_of("faktory");
    let wrong = format!("faktory://:trout@{address}");
    let refused = server.run(&["import", "--from", &wrong]);
    assert!(text(&refused.stderr).contains("Invalid password"));
    let from = format!("faktory://:swordfish@{address}");
    server.printed(&["import", "--quiet", "--from", &from]);
    let mut worker = server.client_of("faktory");
    worker.expect(b"+HI {\"v\":2}\r\n");
    says(&mut worker, r#"HELLO {"v":2}"#, "+OK\r\n");
    // Nothing is left to be done twice.
    assert_eq!(other.number("reserved"), 0);
    // Its clients know it again.
    worker.send(b"FETCH own\r\n");
    let head = text(&worker.until(b"\r\n"));
    let len = head.trim_end().strip_prefix('$').expect("a job");
    let job = text(&worker.exact(len.parse().expect("a length")));
    worker.expect(b"\r\n");
    assert_eq!(job.matches("enqueued_at").count(), 1, "{job}");
    assert!(job.contains("\"args\":[1.0]"), "{job}");
    let job: Value = serde_json::from_str(&job).expect("JSON");
    assert_eq!(
        (&job["jid"], &job["custom"], &job["failure"]["retry_count"]),
        (&json!("ownjob01"), &json!({"a": 1}), &json!(3))
    );
    says(&mut worker, r#"ACK {"jid":"ownjob01"}"#, "+OK\r\n");
    assert_eq!(server.number("reserved"), 0);
    for (queue, first) in [("even", 0), ("odd", 1)] {
        let left = |server: &Server| {
            let all = server.printed(&["queues", "--json"]);
            let lines = all.lines();
            let mut all = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            let found = all.find(|numbers| numbers["name"] == queue);
            found.map_or(json!(0), |numbers| numbers["ready"].clone())
        };
        assert_eq!(left(&server), 125);
        assert_eq!(left(&other), 0);
        // Each of them once, and in order.
        for number in (first..250).step_by(2) {
            worker.send(format!("FETCH {queue}\r\n").as_bytes());
            let head = text(&worker.until(b"\r\n"));
            let len = head.trim_end().strip_prefix('$').expect("a job");
            let job = text(&worker.exact(len.parse().expect("a length")));
            worker.expect(b"\r\n");
            let job: Value = serde_json::from_str(&job).expect("JSON");
            assert_eq!(
                (&job["jobtype"], &job["args"], &job["reserve_for"]),
                (&json!("T"), &json!([number]), &json!(90))
            );
        }
    }
    assert!(server.stop().success());
    assert!(other.stop().success());
}

#[test]
fn a_worker_that_announces_it_gets_its_cancelled_jobs_with_a_beat() {
    let server = Start::default().listen(&["faktory=0"]).serve();
    let join = |more: &str, wid: &str| {
        let mut worker = server.client_of("faktory");
        worker.expect(b"+HI {\"v\":2}\r\n");
        let hello = format!(r#"HELLO {{"v":2,"wid":"{wid}"{more}}}"#);
        says(&mut worker, &hello, "+OK\r\n");
        worker
    };
    let (mut hears, mut deaf) = (join(r#","cancelled":true"#, "w1"), join("", "w2"));
    let fetch = |worker: &mut Client, jid: &str| {
        let push = format!(r#"PUSH {{"jid":"{jid}","jobtype":"T","args":[]}}"#);
        says(worker, &push, "+OK\r\n");
        worker.send(b"FETCH default\r\n");
        let head = text(&worker.until(b"\r\n"));
        let len = head.trim_end().strip_prefix('$').expect("a job");
        worker.exact(len.parse::<usize>().expect("a length") + 2);
    };
    for jid in ["job00001", "job00002", "job00003"] {
        fetch(&mut hears, jid);
    }
    fetch(&mut deaf, "job00004");
    let (first, second) = (r#"BEAT {"wid":"w1"}"#, r#"BEAT {"wid":"w2"}"#);
    says(&mut hears, first, "+OK\r\n");
    for jid in ["job00001", "job00003", "job00004"] {
        let did = server.run(&["cancel", "default", "--name", jid, "--yes"]);
        assert!(did.status.success(), "{did:?}");
    }
    // On another connection of the worker, too.
    let mut other = join(r#","cancelled":true"#, "w1");
    for worker in [&mut hears, &mut other] {
        let replies = "{\"state\":\"running\",\"cancelled\":[\"job00001\",\"job00003\"]}";
        says(
            worker,
            first,
            &format!("${}\r\n{replies}\r\n", replies.len()),
        );
    }
    says(&mut deaf, second, "+OK\r\n");
    // The work has ended, one way or the other.
    says(&mut other, r#"ACK {"jid":"job00001"}"#, "+OK\r\n");
    says(&mut other, r#"FAIL {"jid":"job00003"}"#, "+OK\r\n");
    says(&mut hears, first, "+OK\r\n");
}
