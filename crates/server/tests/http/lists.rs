//! Long lists come in pages.

use std::collections::BTreeSet;

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
    let pages = linked(&server, "/workers");
    let wids: Vec<&str> = pages
        .iter()
        .flatten()
        .map(|worker| worker["wid"].as_str().unwrap_or(""))
        .collect();
    let all: Vec<String> = (0..WORKERS)
        .map(|number| format!("w/{number:04}"))
        .collect();
    assert_eq!(wids, all);
    assert_eq!(pages.len(), 3);
    // The console shows the same, and an operator is told of all at once.
    let output = server.run(&["workers", "--json"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout)
            .matches("\"wid\"")
            .count(),
        WORKERS
    );
}

/// The rows of each page of a list that links to its next page.
fn linked(server: &Server, list: &str) -> Vec<Vec<Value>> {
    let (mut pages, mut query) = (Vec::new(), String::new());
    loop {
        let page = get(server, &format!("{list}{query}"));
        assert_eq!(page.status, 200, "{}", page.json);
        assert!(page.json.to_string().len() < PAGE);
        pages.push(page.json.as_array().expect("a list").clone());
        let link = page
            .head
            .lines()
            .find_map(|line| line.strip_prefix("link: <"));
        let Some(link) = link else { return pages };
        let (target, rel) = link.split_once('>').expect("a link");
        assert_eq!(rel, "; rel=\"next\"");
        query = target.to_owned();
    }
}

#[test]
fn connections_come_in_pages_with_a_link_to_the_next() {
    const CONNECTIONS: usize = 350;
    let server = Start::of("").listen(&["beanstalk=0", "http=0"]).serve();
    // Each row has 16 names of 200 bytes.
    let watches: String = (0..16).map(|at| format!("watch {at:0>200}\r\n")).collect();
    let _waiting: Vec<Client> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = server.client_of("beanstalk");
            client.send(watches.as_bytes());
            client.until(b"WATCHING 17\r\n");
            client.send(b"reserve\r\n");
            client
        })
        .collect();
    let pages = crate::common::eventually("all wait", || {
        let pages = linked(&server, "/connections");
        let waiting = pages.iter().flatten();
        let waiting = waiting.filter(|client| client["waits_on"][15].is_string());
        (waiting.count() == CONNECTIONS).then_some(pages)
    });
    assert_eq!(pages.len(), 2);
    let ids: BTreeSet<u64> = pages
        .iter()
        .flatten()
        .filter(|client| client["protocol"] == "beanstalk")
        .filter_map(|client| client["id"].as_u64())
        .collect();
    assert_eq!(ids.len(), CONNECTIONS);
    // An operator is told of all at once, and so is a browser.
    let output = server.run(&["clients", "--json"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.matches("\"waits_on\"").count() > CONNECTIONS);
    let page = server.ask("GET /connections", "", "");
    assert!(page.body.contains("The first 200."), "{}", page.body);
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

/// Each message is shown with the name of its queue.
#[test]
fn messages_of_a_queue_with_a_long_name_come_in_pages() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir);
    let queue = "n".repeat(20_000);
    let messages = json!({"messages": vec![json!({}); 100]});
    let put = post(&server, &format!("/queues/{queue}/messages"), &messages);
    assert_eq!(put.status, 201, "{}", put.json);
    for list in [
        format!("/queues/{queue}/messages?max=1000"),
        "/messages?group=all&max=1000".to_owned(),
    ] {
        assert_eq!(listed(&server, &list, "messages"), 100);
    }
}

/// So is each message that waits for another one, and each that is waited for.
#[test]
fn dependencies_in_a_queue_with_a_long_name_come_in_pages() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir);
    let path = format!("/queues/{}/messages", "n".repeat(20_000));
    let put = |messages: Value| {
        let put = post(&server, &path, &json!({ "messages": messages }));
        assert_eq!(put.status, 201, "{}", put.json);
        put.json["ids"].clone()
    };
    let parents = put(json!(vec![json!({}); 60]));
    let child = put(json!([{ "after": parents }]))[0].clone();
    put(json!(vec![json!({ "after": [parents[0]] }); 60]));
    let list = format!("/messages/{child}/parents?max=1000");
    assert_eq!(listed(&server, &list, "parents"), 60);
    let list = format!("/messages/{}/dependents?max=1000", parents[0]);
    assert_eq!(listed(&server, &list, "dependents"), 61);
}

/// How many rows a list has over all its pages, none of which is too long.
fn listed(server: &Server, list: &str, rows: &str) -> usize {
    let (mut seen, mut query) = (0, String::new());
    loop {
        let page = get(server, &format!("{list}{query}"));
        assert_eq!(page.status, 200, "{}", page.json);
        assert!(page.json.to_string().len() < PAGE);
        seen += page.json[rows].as_array().expect("a list").len();
        match &page.json["cursor"] {
            Value::String(cursor) => query = format!("&cursor={cursor}"),
            _ => return seen,
        }
    }
}

/// Messages with their bodies count as connection memory until they have left.
#[test]
fn unread_records_are_counted() {
    let server = Start::of("sync = '50ms'\nconnection_memory = '8MiB'\n")
        .listen(&["http=0", "memcache=0"])
        .serve();
    let mut client = server.client_of("memcache");
    for _ in 0..20 {
        client.put("q", &"x".repeat(60_000).into_bytes());
    }
    // More than sockets hold.
    let list = "GET /api/v1/queues/q/records HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20);
    let mut unread = server.client_of("http");
    unread.send(list.as_bytes());
    server.await_number("connections_memory_bytes", |n| n > 1_000_000);
    // Seven more find no room.
    let others: Vec<Client> = (0..7)
        .map(|_| {
            let mut other = server.client_of("http");
            other.send(list.as_bytes());
            other
        })
        .collect();
    server.await_number("connections_closed_for_memory", |n| n > 0);
    let taken = post(&server, "/take", &json!({"queues": ["q"]}));
    assert!([200, 503].contains(&taken.status), "{}", taken.status);
    drop((unread, others));
    server.await_number("connections_memory_bytes", |n| n == 0);
    let records = get(&server, "/queues/q/records");
    assert_eq!(records.status, 200);
}

#[test]
fn bytes_that_are_no_text_are_shown_whole_and_filter_messages() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = served(&dir);
    let tail = |after: &Value| get(&server, &format!("/queues/q/tail?after={after}")).json;
    let next = tail(&json!(0))["next"].take();
    let messages = json!({"messages": [
        {"body_base64": "/wA="}, {"body": "text", "key": "k"}]});
    assert_eq!(post(&server, "/queues/q/messages", &messages).status, 201);
    let events = tail(&next)["events"].take();
    assert_eq!(events[0]["body_start_base64"], "/wA=");
    assert_eq!(events[1]["body_start_base64"], Value::Null);

    for query in [
        "key=%FF",
        "name=a%C3",
        "contains=%80",
        "header=a%3D%FF",
        "%FF=1",
    ] {
        assert_eq!(
            get(&server, &format!("/queues/q/messages?{query}")).status,
            400,
            "{query}"
        );
    }
    let listed = |query: &str| {
        let page = get(&server, &format!("/queues/q/messages?{query}")).json;
        page["messages"].as_array().map_or(usize::MAX, Vec::len)
    };
    assert_eq!(listed("key_base64=%2Fw%3D%3D"), 0);
    assert_eq!(listed("key=k"), 1);
    assert_eq!(listed("key_base64=aw=="), 1);
    for both in ["key=k&key_base64=aw%3D%3D", "key_base64=%21"] {
        assert_eq!(
            get(&server, &format!("/queues/q/messages?{both}")).status,
            400
        );
    }
    let purge = |key: &str| {
        let act = json!({"key_base64": key, "dry_run": true});
        post(&server, "/queues/q/operations/purge", &act).json["messages"].take()
    };
    assert_eq!((purge("aw=="), purge("/w==")), (json!(1), json!(0)));
    let whole = json!({"max": 1});
    post(&server, "/queues/q/reserve", &whole);

    // An error is cut between two characters.
    let lease = post(&server, "/queues/q/reserve", &json!({})).json["messages"][0]["lease"].take();
    let lease = lease.as_str().expect("a lease");
    let error = format!("x{}", "é".repeat(4000));
    let buried = post(
        &server,
        &format!("/leases/{lease}/bury"),
        &json!({"reason": error}),
    );
    assert!(buried.status < 300, "{}", buried.json);
    let message = get(&server, "/queues/q/messages?state=buried").json["messages"][0].take();
    assert_eq!(message["status"].as_str().map(str::len), Some(4095));
    assert_eq!(message["status_base64"], Value::Null);
    let errors = get(&server, "/queues/q/errors").json;
    let output = errors["errors"][0]["error"]
        .as_str()
        .expect("an error")
        .to_owned();
    assert_eq!((output.len(), output.contains('\u{fffd}')), (199, false));
    let notes = tail(&next)["events"].take();
    let last = notes
        .as_array()
        .and_then(|all| all.last())
        .expect("an event");
    assert_eq!(last["note"].as_str().map(str::len), Some(255), "{last}");
}
