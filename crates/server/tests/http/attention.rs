//! Why queues need attention, told by the real binary: the API, the first page, the metrics.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::api::{get, post};
use crate::common::{Client, Server, Start, await_that, page, quintet};

/// Queues and what went wrong with them, in the order in which they are shown.
const FAULTS: [(&str, &str, &str); 6] = [
    ("loses", "losing", "alarm"),
    ("fails", "failing", "alarm"),
    ("buries", "dead_letters", "warning"),
    ("full", "limit", "warning"),
    ("stopped", "paused", "warning"),
    ("alone", "no_consumers", "warning"),
];

fn put(server: &Server, queue: &str, count: usize) -> u16 {
    let messages: Vec<Value> = (0..count)
        .map(|n| json!({ "body": n.to_string() }))
        .collect();
    let path = format!("/queues/{queue}/messages");
    post(server, &path, &json!({ "messages": messages })).status
}

fn reserved(server: &Server, queue: &str) -> String {
    let reply = post(server, &format!("/queues/{queue}/reserve"), &json!({}));
    let lease = reply.json["messages"][0]["lease"].as_str();
    lease.expect("a lease").to_owned()
}

fn findings(server: &Server) -> Vec<Value> {
    let reply = get(server, "/attention");
    assert_eq!(reply.status, 200, "{}", reply.json);
    reply.json["findings"].as_array().expect("a list").clone()
}

#[test]
fn faults_need_attention_at_once_the_worst_first() {
    let config = "attention_unconsumed_for = '0s'\nattention_unconsumed = 2\n\
                  attention_failures = 3\nattention_muted = ['healthy*']\n\
                  [[queue]]\nname = 'loses'\nmessages_max = 1\nwhen_full = 'drop_oldest'\n\
                  [[queue]]\nname = 'fails'\nretry_max = 0\n\
                  [[queue]]\nname = 'full'\nmessages_max = 1\n";
    let server = Start::of(config).listen(&["http=0"]).serve();
    for number in 0..20 {
        assert_eq!(put(&server, &format!("healthy-{number}"), 20), 201);
    }
    assert_eq!(findings(&server), Vec::<Value>::new());
    assert!(!page(&server, "/").1.contains("Needs attention</h2>"));
    let (output, _, code) = server.outputs(&["attention"]);
    assert_eq!((output.as_str(), code), ("nothing needs attention\n", 0));
    let (output, _, code) = server.outputs(&["attention", "--json"]);
    assert_eq!((output.as_str(), code), ("", 0));

    // In another order than they are told in.
    assert_eq!(put(&server, "alone", 2), 201);
    assert_eq!(put(&server, "stopped", 1), 201);
    assert_eq!(
        post(&server, "/queues/stopped/pause", &json!({})).status,
        204
    );
    assert_eq!(put(&server, "full", 1), 201);
    assert_ne!(put(&server, "full", 1), 201);
    assert_eq!(put(&server, "buries", 1), 201);
    let lease = reserved(&server, "buries");
    assert_eq!(
        post(&server, &format!("/leases/{lease}/bury"), &json!({})).status,
        204
    );
    assert_eq!(put(&server, "fails", 1), 201);
    for _ in 0..3 {
        let lease = reserved(&server, "fails");
        let fail = json!({ "error": "no" });
        let failed = post(&server, &format!("/leases/{lease}/fail"), &fail);
        assert!(failed.status < 300, "{}", failed.json);
    }
    for _ in 0..4 {
        assert_eq!(put(&server, "loses", 1), 201);
    }

    let found = findings(&server);
    let reported: Vec<_> = found
        .iter()
        .map(|one| ["queue", "rule", "level"].map(|key| one[key].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        reported,
        FAULTS.map(|(queue, rule, level)| [queue, rule, level])
    );
    // On the command line, with an exit code that says so.
    let (output, _, code) = server.outputs(&["attention", "--json"]);
    let lines = output.lines().map(serde_json::from_str);
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("JSON");
    let names = |all: &[Value]| {
        let names = all
            .iter()
            .map(|one| (one["queue"].clone(), one["rule"].clone()));
        names.collect::<Vec<_>>()
    };
    assert_eq!((code, names(&lines)), (1, names(&found)));
    let (output, _, code) = server.outputs(&["attention"]);
    assert_eq!(code, 1);
    let words: Vec<_> = output.lines().map(|line| line.split_whitespace()).collect();
    let words = words
        .into_iter()
        .map(|mut line| line.next().zip(line.next()));
    let wanted = FAULTS.map(|(_, rule, level)| Some((level, rule)));
    assert_eq!(words.collect::<Vec<_>>(), wanted);
    let first = output.lines().next().expect("a line");
    assert!(
        first.contains("  loses lost 3 messages within "),
        "{output}"
    );
    let none = server.outputs(&["attention", "--socket", "/nowhere/at/all"]);
    assert_eq!((none.0.as_str(), none.2), ("", 2), "{}", none.1);
    let (_, shown) = page(&server, "/");
    let at = |queue: &str| shown.find(&format!("data-f=\"need/{queue}\""));
    let places: Vec<_> = FAULTS.iter().map(|(queue, ..)| at(queue)).collect();
    assert!(places[0].is_some() && places.is_sorted(), "{shown}");
    let (_, metrics) = page(&server, "/metrics");
    for (queue, rule, _) in FAULTS {
        let line = format!("quintet_queue_attention{{queue=\"{queue}\",rule=\"{rule}\"}} 1");
        assert!(
            metrics.lines().any(|reported| reported == line),
            "{line}\n{metrics}"
        );
        let line = format!("quintet_queues_need_attention{{rule=\"{rule}\"}} 1");
        assert!(
            metrics.lines().any(|reported| reported == line),
            "{line}\n{metrics}"
        );
    }
    let dropped = "quintet_queue_left_total{queue=\"loses\",reason=\"dropped\"} 3";
    assert!(
        metrics.lines().any(|reported| reported == dropped),
        "{metrics}"
    );
    // The queue's page has the same sentence.
    let (_, shown) = page(&server, "/queues/loses");
    assert!(
        shown.contains("This queue lost 3 messages within"),
        "{shown}"
    );
}

/// Queue, or nothing where it is about several, and rule of each finding.
fn reported(findings: &[Value]) -> Vec<(&str, &str)> {
    findings
        .iter()
        .map(|one| {
            let [queue, rule] = ["queue", "rule"].map(|key| one[key].as_str().unwrap_or_default());
            // The first of several is alone until the others have waited as long.
            (if rule == "no_consumers" { "" } else { queue }, rule)
        })
        .collect()
}

#[test]
fn ten_faults_need_attention_in_order_and_leave_nothing() {
    let mut demo = quintet(&["demo", "mess"]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut demo = demo
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(demo.stdout.take().expect("piped")).lines();
    let mut printed = Vec::new();
    for line in &mut lines {
        printed.push(line.expect("text"));
        if printed
            .last()
            .is_some_and(|line| line.starts_with("Ctrl-C"))
        {
            break;
        }
    }
    let address = printed[0].strip_prefix("console: http://");
    let address = address
        .expect("its address")
        .trim_end_matches('/')
        .to_owned();
    let promised: Vec<(&str, &str)> = printed
        .iter()
        .filter_map(|line| line.strip_prefix("  "))
        .map(|line| {
            let mut words = line.split_whitespace().filter(|word| *word != "...");
            let queue = words.next().expect("a queue");
            let rule = words.next().expect("a rule");
            (if rule == "no_consumers" { "" } else { queue }, rule)
        })
        .collect();
    assert_eq!(promised.len(), 10, "{printed:?}");

    // All are there when a minute is over, and nothing else ever is.
    let mut last = Vec::new();
    await_that("all ten faults", || {
        let reply = Client::tcp(&address).page("GET /api/v1/attention", "");
        last = reply.json()["findings"].as_array().expect("a list").clone();
        let known: Vec<_> = promised
            .iter()
            .filter(|one| reported(&last).contains(one))
            .collect();
        assert_eq!(
            reported(&last),
            known.into_iter().copied().collect::<Vec<_>>()
        );
        last.len() == 10 && last[9]["queue"].is_null()
    });
    let many = last[9]["text"].as_str();
    assert_eq!(many, Some("20 queues have no consumers: 240 ready."));

    // It connects again when an operator closes a connection.
    let workers = || -> Vec<Value> {
        let reply = Client::tcp(&address).page("GET /api/v1/connections", "");
        let all = reply.json();
        let all = all.as_array().expect("a list").iter();
        let workers = all.filter(|one| one["protocol"] == "beanstalk");
        workers.map(|one| one["id"].clone()).collect()
    };
    let before = workers();
    assert_eq!(before.len(), 15);
    let closed = &before[0];
    let path = format!("DELETE /api/v1/connections/{closed}");
    assert_eq!(Client::tcp(&address).page(&path, "").status, 204);
    await_that("it has all connections again", || {
        let now = workers();
        now.len() == 15 && !now.contains(closed)
    });

    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signalled");
    assert!(demo.wait().expect("waited").success());
    let left = std::fs::read_dir(folder.path()).expect("read").count();
    assert_eq!(left, 0, "everything is removed");
    assert!(
        std::net::TcpStream::connect(&address).is_err(),
        "nothing listens"
    );
}

#[test]
fn findings_beyond_the_list_are_counted() {
    let server = Start::of("[[queue]]\nname = 'p*'\npaused = true\n")
        .sync("never")
        .listen(&["memcache=0", "http=0"])
        .serve();
    let mut client = server.client_of("memcache");
    for number in 0..1003 {
        client.put(&format!("p-{number}"), b"1");
    }
    let reply = get(&server, "/attention").json;
    let listed = reply["findings"].as_array().map(Vec::len);
    assert_eq!((listed, &reply["total"]), (Some(1000), &json!(1003)));
    let (output, _, code) = server.outputs(&["attention"]);
    let last = output.lines().last();
    assert_eq!((output.lines().count(), last), (1001, Some("and 3 more")));
    assert_eq!(code, 1);
    let (output, _, _) = server.outputs(&["attention", "--json"]);
    assert_eq!(output.lines().count(), 1000);
    let output = server.printed(&["top", "--once"]);
    assert_eq!(output.lines().nth(1001), Some("and 3 more"));
    let (_, shown) = page(&server, "/");
    assert!(shown.contains(">and 995 more</a>"), "{shown}");
}

#[test]
fn a_healthy_server_with_2000_queues_needs_no_attention() {
    let server = Start::default()
        .sync("never")
        .listen(&["memcache=0", "http=0"])
        .serve();
    let mut client = server.client_of("memcache");
    for number in 0..2000 {
        let queue = format!("queue-{number}");
        for body in ["1", "2"] {
            client.put(&queue, body.as_bytes());
        }
        client.take(&queue, b"1");
    }
    assert_eq!(findings(&server), Vec::<Value>::new());
    let (_, shown) = page(&server, "/");
    assert!(!shown.contains("Needs attention</h2>"), "{shown}");
    assert!(shown.len() < 100 << 10, "{} bytes", shown.len());
}
