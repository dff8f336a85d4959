//! `quintet tail`, which follows what shards decide.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;

use crate::common::{PATIENCE, Server, Start, await_that, eventually, quintet, stands_still, text};

struct Tail {
    child: Child,
    lines: Receiver<Value>,
}

impl Tail {
    fn of(server: &Server, words: &[&str]) -> Self {
        let mut tail = quintet(&["tail", "work", "--json", "--every", "20ms", "--data"]);
        tail.arg(&server.data).args(words).stdout(Stdio::piped());
        let mut child = tail.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> (String, u64, String) {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line");
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        (
            text("event"),
            line["id"].as_u64().unwrap_or(0),
            text("body_start"),
        )
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.child.kill().unwrap_or_default();
        self.child.wait().unwrap();
    }
}

#[test]
fn tail_prints_the_newest_of_a_long_queue_and_only_matches() {
    let start = Start::default().sync("never");
    let server = start.listen(&["memcache=0", "beanstalk=0"]).serve();
    let mut client = server.client_of("memcache");
    for at in 0..3000 {
        client.put("work", at.to_string().as_bytes());
    }
    let tail = Tail::of(&server, &["--contains", "mark"]);
    // It follows from some moment on, which shows in its first line.
    eventually("the first line", || {
        client.put("work", b"mark 0");
        tail.lines
            .recv_timeout(std::time::Duration::from_millis(20))
            .ok()
    });
    let put = server.run(&["put", "work", "mark 1", "--priority", "0"]);
    let id: u64 = text(&put.stdout).trim().parse().unwrap();
    client.put("work", b"something else");
    client.put("other", b"mark 2");

    let mut jobs = server.client_of("beanstalk");
    jobs.ask(b"watch work\r\n", b"WATCHING 2\r\n");
    let reserved = format!("RESERVED {id} 6\r\nmark 1\r\n");
    jobs.ask(b"reserve\r\n", reserved.as_bytes());
    jobs.ask(format!("bury {id} 0\r\n").as_bytes(), b"BURIED\r\n");
    server.run(&["kick", "work", "--yes"]);
    let taken = server.run(&["take", "work"]);
    assert_eq!(text(&taken.stdout), "mark 1");
    let mut received = Vec::new();
    while received.last() != Some(&"taken".to_owned()) {
        let (event, of, body) = tail.next();
        assert!(body.starts_with("mark "), "{event} {of} {body}");
        if of == id {
            assert_eq!(body, "mark 1");
            received.push(event);
        }
    }
    assert_eq!(received, ["put", "reserved", "buried", "kicked", "taken"]);
}

#[test]
fn as_many_queues_are_followed_as_may_be_and_a_line_is_for_people() {
    let server = Start::default().listen(&["http=0"]).serve();
    let ask = |queue: &str, after: u64| {
        let path = format!("GET /api/v1/queues/{queue}/tail?after={after}");
        server.ask(&path, "", "")
    };
    for number in 0..16 {
        assert_eq!(ask(&format!("q-{number}"), 0).status, 200);
    }
    let full = ask("one-more", 0);
    assert_eq!(
        (full.status, full.json()["code"].as_str()),
        (503, Some("too_many_tails"))
    );
    server.run(&["put", "q-3", "a\u{1b}[2Jb"]);
    let page = ask("q-3", 1).json();
    assert_eq!(page["events"][0]["event"], "put", "{page}");
    assert_eq!(page["events"][0]["bytes"], 6, "{page}");
    assert_eq!(ask("q-3", 2).json()["events"], serde_json::json!([]));

    let mut tail = quintet(&["tail", "q-3", "--every", "20ms", "--count", "1", "--data"]);
    let tail = tail
        .arg(&server.data)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(tail.wait_with_output().unwrap()));
    let printed = eventually("a line", || {
        server.run(&["put", "q-3", "a\u{1b}[2Jb"]);
        ended.try_recv().ok()
    });
    let line = text(&printed.stdout);
    assert!(
        line.contains("  put        ") && line.ends_with("  a\\x1b[2Jb\n"),
        "{line}"
    );
}

#[test]
fn tail_searches_whole_bodies_and_follows_queues_in_memory() {
    let config = "[[queue]]\nname = 'fast'\nmemory = true\n";
    let server = Start::default().config(config).listen(&["http=0"]).serve();
    let ask = |queue: &str, contains: &str| {
        let path = format!("GET /api/v1/queues/{queue}/tail?after=1{contains}");
        server.ask(&path, "", "").json()
    };
    for queue in ["work", "fast"] {
        assert_eq!(ask(queue, "")["next"], 1, "{queue} is followed");
        let body = format!("{}needle", "x".repeat(60_000));
        server.run(&["put", queue, &body]);
        server.run(&["put", queue, "straw"]);
        server.run(&["take", queue]);
        let found = ask(queue, "&contains=needle");
        let events = found["events"].as_array().expect("events");
        let events: Vec<&Value> = events.iter().map(|event| &event["event"]).collect();
        assert_eq!(events, ["put", "taken"], "{queue}: {found}");
        let body = found["events"][1]["body_start"].as_str().expect("a body");
        assert_eq!((body.len(), &found["next"]), (256, &4.into()), "{queue}");
    }
    // Into the log from memory.
    server.run(&["put", "fast", "moves"]);
    server.run(&["move", "fast", "work", "--yes"]);
    let last = ask("fast", "")["events"]
        .as_array()
        .expect("events")
        .last()
        .cloned();
    assert_eq!(last.expect("one")["event"], "moved");
}

#[test]
fn tail_follows_over_https_and_says_where_to_go_with_tls() {
    let dir = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let (cert, key) = (dir.path().join("cert"), dir.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&key, private).expect("private");
    let config = format!(
        "tls_cert = '{}'\ntls_key = '{}'\n[[listen]]\nprotocol = 'http'\naddress = '127.0.0.1:0'\n",
        cert.display(),
        key.display()
    );
    let server = Start::of(&config).serve_as_configured();
    let at = server.address_of("http").replace("127.0.0.1", "localhost");
    let tail = |scheme: &str| {
        let server = format!("{scheme}://{at}");
        let mut tail = quintet(&[
            "tail", "work", "--every", "20ms", "--count", "1", "--server",
        ]);
        tail.arg(server).arg("--ca").arg(&cert);
        tail.stdout(Stdio::piped()).stderr(Stdio::piped());
        tail.spawn().expect("started")
    };
    let refused = tail("tls").wait_with_output().expect("ended");
    let why = text(&refused.stderr);
    assert!(
        !refused.status.success() && why.contains("https://HOST:PORT"),
        "{why}"
    );
    let (sender, ended) = channel();
    let tail = tail("https");
    std::thread::spawn(move || sender.send(tail.wait_with_output().expect("ended")));
    let printed = eventually("a line", || {
        server.run(&["put", "work", "hello"]);
        ended.try_recv().ok()
    });
    assert!(text(&printed.stdout).ends_with("  hello\n"), "{printed:?}");
}

/// Queues of all shards are followed at once, with takes and puts of several clients. The pages of
/// each, as they came, are what one page at the end has.
#[test]
fn tails_of_several_shards_keep_the_order_that_was_first_seen() {
    const QUEUES: usize = 6;
    const PUTS: usize = 100;
    let start = Start::of("shards = 4\n").sync("never");
    let server = start.listen(&["memcache=0", "http=0"]).serve();
    let ask = |queue: usize, after: u64| {
        let path = format!("GET /api/v1/queues/q-{queue}/tail?after={after}");
        let page = server.ask(&path, "", "").json();
        assert_eq!(page["missed"], 0, "{page}");
        let events = page["events"].as_array().expect("events").clone();
        (events, page["next"].as_u64().expect("a number"))
    };
    let shards: std::collections::BTreeSet<_> = (0..QUEUES)
        .map(|queue| quintet_types::shard_of_queue(format!("q-{queue}").as_bytes(), 4))
        .collect();
    assert!(shards.len() > 1, "{shards:?}");
    let mut next: Vec<u64> = (0..QUEUES).map(|queue| ask(queue, 0).1).collect();
    let mut seen = vec![Vec::new(); QUEUES];
    std::thread::scope(|scope| {
        let work = |_: usize| {
            let mut client = server.client_of("memcache");
            scope.spawn(move || {
                for number in 0..PUTS {
                    for queue in 0..QUEUES {
                        client.put(&format!("q-{queue}"), number.to_string().as_bytes());
                        client.send(format!("get q-{queue}\r\n").as_bytes());
                        client.until(b"END\r\n");
                    }
                }
            })
        };
        let clients: Vec<_> = (0..2).map(work).collect();
        loop {
            let over = clients
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished);
            for queue in 0..QUEUES {
                let (events, after) = ask(queue, next[queue]);
                assert_eq!(after, next[queue] + events.len() as u64);
                next[queue] = after;
                seen[queue].extend(events);
            }
            if over {
                break;
            }
        }
    });
    for (queue, seen) in seen.iter().enumerate() {
        assert_eq!(seen.len(), 2 * 2 * PUTS);
        assert_eq!(ask(queue, 1).0, *seen, "the order of q-{queue}");
        let at = |event: &str, id: &Value| {
            let is = |one: &Value| one["event"] == event && one["id"] == *id;
            seen.iter().position(is).expect("an event")
        };
        for put in seen.iter().filter(|one| one["event"] == "put") {
            let id = &put["id"];
            assert!(at("put", id) < at("taken", id), "{put}");
        }
    }
}

/// Its process stands still while more happens than is kept.
#[test]
fn a_slow_tail_gets_the_number_of_missed_events() {
    const PUTS: u64 = 1500;
    let start = Start::default().sync("never");
    let server = start.listen(&["memcache=0"]).serve();
    let mut client = server.client_of("memcache");
    let tail = Tail::of(&server, &[]);
    let first = eventually("the first line", || {
        client.put("work", b"first");
        let line = tail
            .lines
            .recv_timeout(std::time::Duration::from_millis(20));
        line.ok()
    });
    assert_eq!(first["event"], "put");
    let pid = rustix::process::Pid::from_child(&tail.child);
    let send_signal = |signal| rustix::process::kill_process(pid, signal).expect("signalled");
    send_signal(rustix::process::Signal::STOP);
    await_that("it stands still", || stands_still(tail.child.id()));
    for _ in 0..PUTS {
        client.put("work", b"many");
    }
    client.put("work", b"last");
    send_signal(rustix::process::Signal::CONT);
    let (mut seen, mut missed) = (0, 0);
    loop {
        let line = tail.lines.recv_timeout(PATIENCE).expect("a line");
        if line["event"] == "missed" {
            missed += line["count"].as_u64().expect("a number");
            continue;
        }
        match line["body_start"].as_str() {
            Some("many") => seen += 1,
            Some("last") => break,
            // It may be among those that were missed.
            other => assert_eq!(other, Some("first"), "{line}"),
        }
    }
    // 1024 are kept, and a few were on the way to it.
    const MOST: u64 = 1024 + 32;
    assert!(missed >= PUTS - MOST, "{missed} missed, {seen} seen");
    assert!(
        seen <= MOST && seen + missed >= PUTS,
        "{missed} missed, {seen} seen"
    );
}
