//! Long lists come in pages.

use crate::api::{get, post};
use crate::common::{Client, Server, Start};
use serde_json::{Value, json};

/// Bytes of a page, with one more row.
const PAGE: usize = (1 << 20) + (64 << 10);

fn served(dir: &tempfile::TempDir) -> Server {
    let start = Start {
        listen: &["faktory=127.0.0.1:0", "http=127.0.0.1:0"],
        ..Start::default()
    };
    Server::start_with(&dir.path().join("data"), start)
}

#[test]
fn workers_come_in_pages_with_a_link_to_the_next() {
    const WORKERS: usize = 300;
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir);
    let labels: Vec<String> = (0..32).map(|at| format!("{at:0>250}")).collect();
    let _connected: Vec<Client> = (0..WORKERS)
        .map(|number| {
            let mut client = server.client_of("faktory");
            let hello = json!({"v": 2, "wid": format!("w/{number:04}"), "hostname": "h", "pid": 1,
                "labels": labels});
            client.send(format!("HELLO {hello}\r\n").as_bytes());
            client.until(b"+OK\r\n");
            client
        })
        .collect();
    let (mut wids, mut pages, mut query) = (Vec::new(), 0, String::new());
    loop {
        let page = get(&server, &format!("/workers{query}"));
        assert_eq!(page.status, 200, "{}", page.json);
        assert!(page.json.to_string().len() < PAGE);
        let list = page.json.as_array().expect("a list");
        wids.extend(
            list.iter()
                .map(|worker| worker["wid"].as_str().unwrap_or("").to_owned()),
        );
        pages += 1;
        let link = page
            .head
            .lines()
            .find_map(|line| line.strip_prefix("link: <"));
        let Some(link) = link else { break };
        let (target, rel) = link.split_once('>').expect("a link");
        assert_eq!(rel, "; rel=\"next\"");
        query = target.to_owned();
    }
    let all: Vec<String> = (0..WORKERS)
        .map(|number| format!("w/{number:04}"))
        .collect();
    assert_eq!(wids, all);
    assert_eq!(pages, 3);
    // The console shows the same, and an operator is told of all at once.
    let told = server.run(&["workers", "--json"]);
    assert_eq!(
        String::from_utf8_lossy(&told.stdout)
            .matches("\"wid\"")
            .count(),
        WORKERS
    );
}

/// A buried message keeps at most a few KiB of its reason, and a page of messages with much beside
/// their bodies ends early.
#[test]
fn messages_with_long_headers_come_in_pages() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir);
    for _ in 0..6 {
        let message = json!({"body": "x", "headers": {"a": "y".repeat(400_000)}});
        let put = post(
            &server,
            "/queues/q/messages",
            &json!({"messages": [message]}),
        );
        assert_eq!(put.status, 201, "{}", put.json);
    }
    let (mut seen, mut pages, mut query) = (0, 0, String::new());
    loop {
        let page = get(&server, &format!("/queues/q/messages?max=1000{query}"));
        let list = page.json["messages"].as_array().expect("a list");
        assert!(list.len() <= 3, "{}", list.len());
        seen += list.len();
        pages += 1;
        match &page.json["cursor"] {
            Value::String(cursor) => query = format!("&cursor={cursor}"),
            _ => break,
        }
    }
    assert_eq!((seen, pages), (6, 2));
    let taken = post(&server, "/queues/q/reserve", &json!({}));
    let lease = taken.json["messages"][0]["lease"]
        .as_str()
        .expect("a lease")
        .to_owned();
    let why = json!({"reason": "z".repeat(900_000)});
    let buried = post(&server, &format!("/leases/{lease}/bury"), &why);
    assert_eq!(buried.status, 204, "{}", buried.json);
    let page = get(&server, "/queues/q/messages?state=buried");
    let status = page.json["messages"][0]["status"]
        .as_str()
        .map_or(0, str::len);
    assert_eq!(status, 4096);
}
