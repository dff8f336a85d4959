//! Leases that an operator ends, and who holds them.

use serde_json::{Value, json};

use crate::common::{Server, Start, text};

const LISTEN: &[&str] = &[
    "memcache=127.0.0.1:0",
    "beanstalk=127.0.0.1:0",
    "http=127.0.0.1:0",
    "faktory=127.0.0.1:0",
];

fn start() -> Server {
    let start = Start {
        listen: LISTEN,
        ..Start::default()
    };
    start.serve()
}

fn api(server: &Server, what: &str, headers: &str, body: &Value) -> (u16, Value) {
    let what = what.replace(' ', " /api/v1");
    let headers = format!("content-type: application/json\r\n{headers}");
    let reply = server.ask(&what, &headers, body.to_string());
    let response = serde_json::from_str(&reply.body).unwrap_or_default();
    (reply.status, response)
}

/// Puts so many and answers their ids.
fn put(server: &Server, queue: &str, count: usize) -> Vec<u64> {
    let messages = vec![json!({"body": "x"}); count];
    let (status, response) = api(
        server,
        &format!("POST /queues/{queue}/messages"),
        "",
        &json!({"messages": messages}),
    );
    assert_eq!(status, 201, "{response}");
    let ids = response["ids"].as_array().expect("ids").iter();
    ids.map(|id| id.as_u64().expect("an id")).collect()
}

fn reserve(server: &Server, queue: &str, headers: &str, request: &Value) -> Value {
    let what = format!("POST /queues/{queue}/reserve");
    let (status, response) = api(server, &what, headers, request);
    assert_eq!(status, 200, "{response}");
    response["messages"][0].clone()
}

fn ready(server: &Server, queue: &str) -> u64 {
    let what = format!("GET /queues/{queue}");
    api(server, &what, "", &json!({})).1["ready"]
        .as_u64()
        .expect("a number")
}

#[test]
fn each_protocol_finds_a_lease_over_that_was_released_by_id() {
    let server = start();
    let ids = put(&server, "work", 4);
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(b"watch work\r\n", b"WATCHING 2\r\n");
    beanstalk.send(b"reserve\r\n");
    beanstalk.expect(format!("RESERVED {} 1\r\nx\r\n", ids[0]).as_bytes());
    let leased = reserve(&server, "work", "user-agent: agent/1.0\r\n", &json!({}));
    assert_eq!(leased["id"], ids[1]);
    let mut memcache = server.client_of("memcache");
    memcache.ask(b"get work/open\r\n", b"VALUE work 0 1\r\nx\r\nEND\r\n");
    let mut faktory = server.client_of("faktory");
    faktory.until(b"\r\n");
    faktory.ask(b"HELLO {\"v\":2,\"wid\":\"w1\"}\r\n", b"+OK\r\n");
    let job = "{\"jid\":\"j123456789\",\"jobtype\":\"t\",\"args\":[],\"queue\":\"jobs\"}";
    faktory.ask(format!("PUSH {job}\r\n").as_bytes(), b"+OK\r\n");
    faktory.send(b"FETCH jobs\r\n");
    faktory.until(b"}\r\n");
    assert_eq!(ready(&server, "work"), 1);

    // Who has what.
    let lines = server.printed(&["leases", "--json"]);
    let leases: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of = |queue: &str, id: u64| {
        let one = leases
            .iter()
            .find(|l| l["queue"] == queue && (id == 0 || l["id"] == id));
        one.unwrap_or_else(|| panic!("{queue} {id}: {lines}"))
            .clone()
    };
    assert_eq!(of("work", ids[0])["protocol"], "beanstalk");
    assert_eq!(of("work", ids[1])["protocol"], "http");
    let job = of("jobs", 0);
    assert_eq!(job["worker"], "w1");
    let job = job["id"].as_u64().expect("an id").to_string();

    let all: Vec<String> = ids[..3].iter().map(u64::to_string).chain([job]).collect();
    let mut words = vec!["leases", "release"];
    words.extend(all.iter().map(String::as_str));
    assert_eq!(server.printed(&words), "4 messages released\n");
    assert_eq!((ready(&server, "work"), ready(&server, "jobs")), (4, 1));

    beanstalk.ask(
        format!("delete {}x\r\n", ids[0]).as_bytes(),
        b"BAD_FORMAT\r\n",
    );
    beanstalk.ask(
        format!("release {} 0 0\r\n", ids[0]).as_bytes(),
        b"NOT_FOUND\r\n",
    );
    let token = leased["lease"].as_str().expect("a token");
    let (status, response) = api(
        &server,
        &format!("POST /leases/{token}/finish"),
        "",
        &json!({}),
    );
    assert_eq!((status, &response["code"]), (409, &json!("lease_over")));
    // Kestrel's word for a close of nothing.
    memcache.ask(b"get work/close\r\n", b"END\r\n");
    faktory.send(b"ACK {\"jid\":\"j123456789\"}\r\n");
    let ack = text(&faktory.until(b"\r\n"));
    assert!(ack.starts_with("+OK") || ack.starts_with('-'), "{ack}");
    assert_eq!((ready(&server, "work"), ready(&server, "jobs")), (4, 1));

    // What is not reserved, and what is not there.
    let (response, why, code) = server.outputs(&["leases", "release", &all[0]]);
    assert_eq!((response.as_str(), code), ("", 1));
    assert!(why.contains("is not reserved"), "{why}");
    let (_, why, code) = server.outputs(&["leases", "release", "999999"]);
    assert_eq!(code, 1);
    assert!(why.contains("no message has the id 999999"), "{why}");
}

#[test]
fn the_leases_of_a_connection_or_a_queue_end_together() {
    let server = start();
    put(&server, "work", 400);
    put(&server, "other", 2);
    let mut beanstalk = server.client_of("beanstalk");
    beanstalk.ask(b"watch work\r\n", b"WATCHING 2\r\n");
    for _ in 0..300 {
        beanstalk.send(b"reserve\r\n");
        beanstalk.until(b"x\r\n");
    }
    reserve(&server, "other", "", &json!({"max": 2}));
    for _ in 0..2 {
        reserve(&server, "work", "", &json!({"max": 50}));
    }
    assert_eq!((ready(&server, "work"), ready(&server, "other")), (0, 0));
    let clients = server.printed(&["clients", "--json"]);
    let mut clients = clients
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let held = clients.find(|client: &Value| client["protocol"] == "beanstalk");
    let held = held.expect("it is there");
    assert_eq!(held["leases"], 300);
    let id = held["id"].to_string();
    let released = server.json(&["leases", "release", "--connection", &id, "--json"]);
    assert_eq!(released["messages"], 300);
    assert_eq!(ready(&server, "work"), 300);
    // It is still there, and in order.
    beanstalk.send(b"reserve\r\n");
    beanstalk.expect(b"RESERVED 1 1\r\nx\r\n");
    assert_eq!(
        server.printed(&["leases", "release", "--queue", "work"]),
        "101 messages released\n"
    );
    assert_eq!(ready(&server, "work"), 400);
    assert_eq!(ready(&server, "other"), 0, "those of another queue stay");
    let (_, why, code) = server.outputs(&["leases", "release", "--connection", "12345"]);
    assert_eq!(code, 1);
    assert!(why.contains("there is no connection 12345"), "{why}");
    let (_, why, code) = server.outputs(&["leases", "release", "--queue", "nowhere"]);
    assert_eq!((code, why.contains("queue")), (1, true), "{why}");
}

#[test]
fn leases_show_workers_by_name_and_reserved_messages_their_holder() {
    let server = start();
    let ids = put(&server, "work", 3);
    let named = json!({"worker": "O'Neil \u{202e}\u{7}\"<b>"});
    reserve(&server, "work", "user-agent: agent/1.0\r\n", &named);
    reserve(&server, "work", "user-agent: agent/1.0\r\n", &json!({}));
    let (status, wrong) = api(
        &server,
        "POST /queues/work/reserve",
        "",
        &json!({"worker": ""}),
    );
    assert_eq!((status, &wrong["field"]), (400, &json!("worker")));
    let (_, page) = api(&server, "GET /queues/work/leases", "", &json!({}));
    assert_eq!(page["leases"][0]["worker"], named["worker"]);
    for name in ["protocol", "voice"] {
        assert_eq!(page["leases"][0][name], "http", "{name}");
    }
    assert_eq!(page["leases"][1]["worker"], "agent/1.0");
    assert_eq!(page["leases"][1]["holder"], "worker agent/1.0");
    let table = server.printed(&["leases", "work"]);
    assert!(table.contains("O'Neil \\xe2\\x80\\xae\\x07"), "{table}");
    let holder = "worker O'Neil \\xe2\\x80\\xae\\x07\"<b>";
    assert_eq!(page["leases"][0]["holder"], holder);
    let traced = server.printed(&["trace", &ids[0].to_string()]);
    assert!(
        traced.contains(&format!(" by {holder}, in work")),
        "{traced}"
    );
    // Pages have the same escapes, once.
    for path in ["leases".to_owned(), format!("messages/{}", ids[0])] {
        let page = server.ask(&format!("GET /{path}"), "", "").body;
        assert!(page.contains("\\xe2\\x80\\xae\\x07"), "{path}: {page}");
        assert!(!page.contains("\\\\xe2"), "{path}: {page}");
    }
    assert!(table.contains("agent/1.0"), "{table}");

    // What cannot be done to it says why.
    let (status, response) = api(
        &server,
        &format!("PATCH /messages/{}", ids[1]),
        "",
        &json!({"priority": 1}),
    );
    let says = format!("message {} is reserved by worker agent/1.0", ids[1]);
    assert_eq!(
        (status, &response["code"], &response["detail"]),
        (409, &json!("reserved"), &json!(says))
    );
    for act in ["kick", "move"] {
        let what = format!("POST /messages/{}/{act}", ids[1]);
        let body = if act == "move" {
            json!({"to": "b"})
        } else {
            json!({})
        };
        assert_eq!(
            api(&server, &what, "", &body).1["code"],
            "reserved",
            "{act}"
        );
    }
    assert_eq!(
        api(&server, "POST /messages/999/kick", "", &json!({})).0,
        404
    );
    let id = ids[1].to_string();
    let (_, why, code) = server.outputs(&["edit", &id, "--priority", "1"]);
    assert_eq!(code, 1);
    assert!(why.contains("is reserved by worker agent/1.0"), "{why}");

    // Deleting it asks; of one that waits nobody is asked.
    let (_, why, code) = server.outputs(&["delete", &id]);
    assert_eq!(code, 1);
    assert!(
        why.contains("reserved by worker agent/1.0") && why.contains("--yes"),
        "{why}"
    );
    assert_eq!(
        server.printed(&["delete", &id, "--yes"]),
        format!("message {id} deleted\n")
    );
    let waits = ids[2].to_string();
    assert_eq!(
        server.printed(&["delete", &waits]),
        format!("message {waits} deleted\n")
    );
}

#[test]
fn leases_are_selected_and_ended_in_the_console() {
    let server = start();
    let ids = put(&server, "work", 3);
    for _ in 0..3 {
        reserve(&server, "work", "user-agent: agent/1.0\r\n", &json!({}));
    }
    let page = server.ask("GET /leases", "", "").body;
    assert_eq!(page.matches("name=\"id\"").count(), 3, "{page}");
    assert!(page.contains("worker agent/1.0"), "{page}");
    let csrf = page
        .split("name=\"csrf\" value=\"")
        .nth(1)
        .expect("a token");
    let csrf = csrf.split('"').next().expect("its end");
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    let send = |body: String| server.ask("POST /leases/do/release", form, body);
    assert_eq!(
        send(format!("id={}", ids[0])).status,
        403,
        "without the page's token"
    );
    let selected = format!("csrf={csrf}&back=/leases&id={}&id={}", ids[0], ids[2]);
    let done = send(selected.clone());
    assert_eq!(done.status, 303);
    assert_eq!(ready(&server, "work"), 2);
    let note = |reply: &crate::common::Reply| {
        let to = reply.header("location").expect("where to").to_owned();
        server.ask(&format!("GET {to}"), "", "").body
    };
    assert!(note(&done).contains("2 leases ended."));
    let again = send(format!("{selected}&id={}", ids[1]));
    assert!(note(&again).contains("1 lease ended. 2 had ended before."));
    assert!(
        note(&send(format!("csrf={csrf}"))).contains("Nothing was selected: select rows first.")
    );
    // It is written down.
    let audit = text(&server.run(&["audit"]).stdout);
    assert!(audit.contains("POST /leases/do/release"), "{audit}");

    // The question before a reserved message is deleted.
    reserve(&server, "work", "user-agent: agent/1.0\r\n", &json!({}));
    let ask = format!("GET /queues/work/ask/delete?id={}&state=reserved", ids[0]);
    let page = server.ask(&ask, "", "").body;
    assert!(
        page.contains("by worker agent/1.0: its lease ends with the message"),
        "{page}"
    );
}

#[test]
fn a_lease_is_released_by_the_last_digits_of_its_id_if_it_is_the_only_one() {
    let server = start();
    let ids = put(&server, "work", 110);
    assert_eq!((ids[0], ids[109]), (1, 110));
    for _ in &ids {
        reserve(&server, "work", "", &json!({}));
    }
    let state = |id: u64| {
        let message = api(&server, &format!("GET /messages/{id}"), "", &json!({})).1;
        message["state"].as_str().unwrap_or("gone").to_owned()
    };
    // A whole id counts before one that ends so, and no id begins with 0.
    server.printed(&["leases", "release", "5", "06"]);
    let all = [5, 105, 6, 106].map(state);
    assert_eq!(all, ["ready", "reserved", "reserved", "ready"]);
    server.printed(&["delete", "5"]);
    let (_, why, code) = server.outputs(&["leases", "release", "5"]);
    assert!(
        code == 1 && why.contains("several leases end in 5: "),
        "{why}"
    );
    let (_, why, code) = server.outputs(&["leases", "release", "999"]);
    assert!(
        code == 1 && why.contains("no lease has an id that ends with it"),
        "{why}"
    );
    assert_eq!(ready(&server, "work"), 1);
}

#[test]
fn a_lease_of_sqs_names_the_client_that_received() {
    let start = Start::default().config("[[queue]]\nname = 'work'\n");
    let server = start
        .listen(&["http=127.0.0.1:0", "sqs=127.0.0.1:0"])
        .serve();
    put(&server, "work", 1);
    let head = "POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n\
                Content-Type: application/x-amz-json-1.0\r\nUser-Agent: Boto3/1.40 \"x\"\r\n";
    let at = server.address_of("sqs");
    let request = json!({ "QueueUrl": format!("http://{at}/000000000000/work") });
    let (status, response) = crate::rights::send_request(at, head, &request.to_string());
    assert!(
        status == 200 && response["Messages"][0].is_object(),
        "{response}"
    );
    let response = server.printed(&["leases", "--json"]);
    let lease: Value = serde_json::from_str(response.trim()).expect("a line");
    assert_eq!(lease["worker"], "Boto3/1.40 \"x\"", "{lease}");
    assert_eq!(lease["protocol"], "sqs", "{lease}");
    assert_eq!(lease["voice"], "sqs", "the old name: {lease}");
}

/// A connection has one client, under which its first consumer is known.
#[test]
fn workers_that_share_a_connection_are_listed_apart() {
    let server = start();
    put(&server, "jobs", 3);
    let mut client = server.client_of("http");
    for worker in ["first", "second", "first"] {
        let body = json!({"worker": worker}).to_string();
        let head = format!(
            "POST /api/v1/queues/jobs/reserve HTTP/1.1\r\nhost: localhost\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        client.send(format!("{head}{body}").as_bytes());
        let head = text(&client.until(b"\r\n\r\n")).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let len = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        client.exact(len.expect("a length").trim().parse().expect("a number"));
    }
    let (_, page) = api(&server, "GET /queues/jobs/leases", "", &json!({}));
    let leases = page["leases"].as_array().expect("a list").iter();
    let workers: Vec<&Value> = leases.map(|lease| &lease["worker"]).collect();
    assert_eq!(workers, ["first", "second", "first"]);
    // All of them are still the workers' when the connection is over.
    drop(client);
    assert_eq!(ready(&server, "jobs"), 0);
}
