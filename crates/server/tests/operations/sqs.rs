//! `quintet import --from sqs://`, from a small SQS of this test's own.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Output;
use std::sync::{Arc, Mutex};

use ring::{digest, hmac};
use serde_json::{Value, json};

use crate::common::{PATIENCE, Server, Start, quintet, text};
use crate::moving::{all, done, dying};

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

#[derive(Clone)]
struct Message {
    body: String,
    group: Option<String>,
    /// Parameters beside body and handle.
    more: Value,
    received: u64,
    hidden: bool,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Vec<(u64, Message)>>,
    next: u64,
    /// Requests that are answered that SQS is busy.
    busy: usize,
    /// Receives whose answers are lost, the second half of every other one.
    lose: usize,
    /// Messages that those have hidden, and how often the queue is asked about them until they are
    /// shown again.
    lost: Vec<u64>,
    looks: usize,
    /// Faults of all answers are drawn from this; 0: there are none.
    chaos: u64,
    /// Other attributes of GetQueueAttributes.
    setup: Value,
    requested: BTreeMap<String, usize>,
}

/// An SQS that checks signatures. Its thread ends with the test's process.
struct Sqs {
    address: String,
    state: Arc<Mutex<State>>,
}

impl Sqs {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.expect("a connection"), Arc::clone(&shared));
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    fn put(&self, queue: &str, body: &str, group: Option<&str>, more: Value) {
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        let (id, group) = (state.next, group.map(str::to_owned));
        let message = Message {
            body: body.to_owned(),
            group,
            more,
            received: 0,
            hidden: false,
        };
        state
            .queues
            .entry(queue.to_owned())
            .or_default()
            .push((id, message));
    }

    fn many(&self, queue: &str, count: usize, group: Option<&str>) {
        for number in 0..count {
            self.put(queue, &format!("message {number}"), group, json!({}));
        }
    }

    /// Bodies that can be received, and those that are hidden.
    fn left(&self) -> (Vec<String>, Vec<String>) {
        let state = self.state.lock().unwrap();
        let all = state.queues.values().flatten().map(|(_, message)| message);
        let (hidden, shown): (Vec<_>, Vec<_>) = all.partition(|message| message.hidden);
        let bodies = |of: Vec<&Message>| of.iter().map(|message| message.body.clone()).collect();
        (bodies(shown), bodies(hidden))
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut from = BufReader::new(stream.try_clone().unwrap());
    let mut into = stream;
    loop {
        let (mut head, mut headers) = (String::new(), BTreeMap::new());
        if from.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            if from.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        if from.read_exact(&mut body).is_err() {
            return;
        }
        let fault = chaos(&mut state.lock().unwrap().chaos);
        if let Chaos::Busy(status) = fault {
            let response = r#"{"__type": "com.amazonaws.sqs#ThrottlingException"}"#;
            let len = response.len();
            let reply = format!("HTTP/1.1 {status} X\r\ncontent-length: {len}\r\n\r\n{response}");
            if into.write_all(reply.as_bytes()).is_err() {
                return;
            }
            continue;
        }
        let (status, answer) = match is_signed(&headers, &body) && head.starts_with("POST / ") {
            true => answer(&headers["x-amz-target"], &body, &mut state.lock().unwrap()),
            false => (
                403,
                json!({"__type": "com.amazon.coral.service#InvalidSignatureException",
                "message": "The request signature we calculated does not match"}),
            ),
        };
        let mut loses = None;
        {
            let mut state = state.lock().unwrap();
            if let Chaos::Lost(half) = fault {
                loses = Some(half);
            }
            if state.lose > 0 && answer["Messages"].is_array() {
                state.lose -= 1;
                loses = Some(state.lose % 2);
            }
            if loses.is_some() && answer["Messages"].is_array() {
                let handles = answer["Messages"].as_array().unwrap().iter();
                let handles = handles.map(|response| response["ReceiptHandle"].as_str().unwrap());
                state
                    .lost
                    .extend(handles.map(|handle| handle.parse::<u64>().unwrap()));
                state.looks = 3;
            }
        }
        let answer = answer.to_string();
        let reply = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\n\
             content-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        if let Some(half) = loses {
            _ = into.write_all(&reply.as_bytes()[..half * (reply.len() / 2)]);
            return;
        }
        if into.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// A fault of one answer, drawn from the seed.
enum Chaos {
    None,
    /// SQS is busy, and has done nothing.
    Busy(u16),
    /// It has done the request, and so many bytes of its answer arrive.
    Lost(usize),
}

fn chaos(seed: &mut u64) -> Chaos {
    if *seed == 0 {
        return Chaos::None;
    }
    // Xorshift.
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    match *seed >> 16 & 15 {
        0 => Chaos::Busy(400),
        1 => Chaos::Busy(503),
        2 => Chaos::Lost(0),
        3 => Chaos::Lost(1),
        _ => Chaos::None,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// As AWS documents it, from what came.
fn is_signed(headers: &BTreeMap<String, String>, body: &[u8]) -> bool {
    let part = |name: &str| {
        let (_, rest) = headers["authorization"].split_once(name).expect(name);
        rest.split(", ").next().unwrap().to_owned()
    };
    let (credential, names) = (part("Credential="), part("SignedHeaders="));
    let (id, scope) = credential.split_once('/').unwrap();
    for needed in ["host", "x-amz-date", "x-amz-target", "content-type"] {
        assert!(names.split(';').any(|name| name == needed), "{names}");
    }
    let lines: String = names
        .split(';')
        .map(|name| format!("{name}:{}\n", headers[name]))
        .collect();
    let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", sha256(body));
    let date = &headers["x-amz-date"];
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in scope.split('/').chain([to_sign.as_str()]) {
        let mac = hmac::Key::new(hmac::HMAC_SHA256, &key);
        key = hmac::sign(&mac, part.as_bytes()).as_ref().to_vec();
    }
    id == "AKIDEXAMPLE"
        && scope == format!("{}/eu-central-1/sqs/aws4_request", &date[..8])
        && headers["x-amz-security-token"] == "for a while"
        && hex(&key) == part("Signature=")
}

fn answer(target: &str, body: &[u8], state: &mut State) -> (u16, Value) {
    let requested: Value = serde_json::from_slice(body).unwrap();
    *state.requested.entry(target.to_owned()).or_default() += 1;
    if state.busy > 0 {
        state.busy -= 1;
        return (503, json!({"__type": "com.amazonaws.sqs#RequestThrottled"}));
    }
    let url = |name: &str| format!("http://queues.example/000000000000/{name}");
    let name = requested["QueueUrl"].as_str().map(|url| {
        let name = url.strip_prefix("http://queues.example/000000000000/");
        name.unwrap().to_owned()
    });
    match (target.strip_prefix("AmazonSQS.").unwrap(), name) {
        ("ListQueues", None) => {
            // A page each.
            let after = requested["NextToken"].as_str().unwrap_or_default();
            let mut names = state.queues.keys().filter(|name| name.as_str() > after);
            let Some(first) = names.next() else {
                return (200, json!({}));
            };
            let mut page = json!({ "QueueUrls": [url(first)] });
            if names.next().is_some() {
                page["NextToken"] = json!(first);
            }
            (200, page)
        }
        ("GetQueueUrl", None) => match requested["QueueName"].as_str().unwrap() {
            name if state.queues.contains_key(name) => (200, json!({ "QueueUrl": url(name) })),
            _ => (
                400,
                json!({"__type": "com.amazonaws.sqs#QueueDoesNotExist",
                "message": "The specified queue does not exist."}),
            ),
        },
        ("GetQueueAttributes", Some(name)) => {
            if !state.lost.is_empty() {
                state.looks -= 1;
            }
            if state.looks == 0 {
                let lost = std::mem::take(&mut state.lost);
                for (id, message) in state.queues.get_mut(&name).unwrap() {
                    message.hidden &= !lost.contains(id);
                }
            }
            let setup = state.setup.clone();
            let queue = &state.queues[&name];
            let hidden = queue.iter().filter(|(_, message)| message.hidden).count();
            let mut response = json!({
                "ApproximateNumberOfMessages": (queue.len() - hidden).to_string(),
                "ApproximateNumberOfMessagesNotVisible": hidden.to_string(),
                "ApproximateNumberOfMessagesDelayed": "0" });
            for (name, value) in setup.as_object().into_iter().flatten() {
                response[name] = value.clone();
            }
            (200, json!({ "Attributes": response }))
        }
        ("ReceiveMessage", Some(name)) => (
            200,
            received(&requested, state.queues.get_mut(&name).unwrap()),
        ),
        (act @ ("DeleteMessageBatch" | "ChangeMessageVisibilityBatch"), Some(name)) => {
            let entries = requested["Entries"].as_array().unwrap();
            assert!((1..=10).contains(&entries.len()));
            let queue = state.queues.get_mut(&name).unwrap();
            let mut failed = Vec::new();
            for entry in entries {
                let handle: u64 = entry["ReceiptHandle"].as_str().unwrap().parse().unwrap();
                match queue.iter().position(|(id, _)| *id == handle) {
                    Some(at) if act == "DeleteMessageBatch" => _ = queue.remove(at),
                    Some(at) => queue[at].1.hidden = entry["VisibilityTimeout"] != 0,
                    None => failed.push(json!({"Id": entry["Id"], "SenderFault": true,
                        "Code": "ReceiptHandleIsInvalid", "Message": "no such handle"})),
                }
            }
            (200, json!({ "Failed": failed }))
        }
        (other, name) => panic!("{other} of {name:?}"),
    }
}

fn received(requested: &Value, queue: &mut [(u64, Message)]) -> Value {
    assert_eq!(requested["MaxNumberOfMessages"], 10);
    let (mut messages, mut blocked) = (Vec::new(), BTreeSet::new());
    for (id, message) in queue.iter_mut() {
        let group = message.group.clone();
        if message.hidden {
            blocked.extend(group);
            continue;
        }
        if group.is_some_and(|group| blocked.contains(&group)) || messages.len() == 10 {
            continue;
        }
        message.hidden = true;
        message.received += 1;
        let mut response = json!({"MessageId": format!("m{id}"), "ReceiptHandle": id.to_string(),
            "Body": message.body, "Attributes": {
                "ApproximateReceiveCount": message.received.to_string(),
                "SentTimestamp": "1700000000123"}});
        if let Some(group) = &message.group {
            response["Attributes"]["MessageGroupId"] = json!(group);
            response["Attributes"]["MessageDeduplicationId"] = json!(format!("d{id}"));
        }
        if let Some(md5) = message.more.get("MD5OfBody") {
            response["MD5OfBody"] = md5.clone();
        }
        if let Some(attributes) = message.more.get("MessageAttributes") {
            assert_eq!(requested["MessageAttributeNames"], json!(["All"]));
            response["MessageAttributes"] = attributes.clone();
            // So that it is a message with all there is.
            response["Attributes"]["AWSTraceHeader"] = json!("Root=1-5759e988");
            response["Attributes"]["SenderId"] = json!("AIDAEXAMPLE");
            let source = json!("arn:aws:sqs:eu-central-1:111111111111:orders");
            response["Attributes"]["DeadLetterQueueSourceArn"] = source;
        }
        messages.push(response);
    }
    match messages.is_empty() {
        true => json!({}),
        false => json!({ "Messages": messages }),
    }
}

fn import_from(server: &Server, from: &str, secret: &str, more: &[&str]) -> Output {
    let mut command = quintet(&["import", "--from", from, "--data"]);
    command.arg(&server.data).args(more);
    command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
    command.env("AWS_SECRET_ACCESS_KEY", secret);
    command.env("AWS_SESSION_TOKEN", "for a while");
    command.output().expect("the binary runs")
}

fn import(server: &Server, address: &str, queue: &str, more: &[&str]) -> Output {
    let from = format!("sqs://{queue}?region=eu-central-1&endpoint=http://{address}");
    import_from(server, &from, SECRET, more)
}

fn bodies(server: &Server) -> Vec<String> {
    let body = |message: Value| message["body"].as_str().expect("a text").to_owned();
    all(server).into_iter().map(body).collect()
}

#[test]
fn all_of_sqs_moves_with_attributes_groups_and_times() {
    let server = Server::fresh();
    let old = Sqs::start();
    let attributes = json!({"MessageAttributes": {
        "colour": {"DataType": "String", "StringValue": "r\u{f6}t"},
        "raw": {"DataType": "Binary", "BinaryValue": "AP8="}}});
    old.put("mail", "full", Some("g1"), attributes);
    let large = "x".repeat(1 << 20);
    old.put("mail", &large, None, json!({}));
    // Each group gives its first ten, and more when these are gone.
    old.many("work.fifo", 35, Some("one"));
    old.many("work", 345, None);
    let counts = "mail: 2 ready\nwork: 345 ready\nwork.fifo: 35 ready\n";
    assert_eq!(
        done(&import(&server, &old.address, "", &["--dry-run"])),
        counts
    );
    assert_eq!((all(&server).len(), old.left().1.len()), (0, 0));
    done(&import(&server, &old.address, "mail", &["--into", "post"]));
    let post = all(&server);
    assert_eq!(post.len(), 2);
    let full = &post[0];
    assert_eq!(full["queue"], "post");
    assert_eq!(
        (&full["body"], &full["key"]),
        (&json!("full"), &json!("g1"))
    );
    assert_eq!(full["created_ms"], 1_700_000_000_123_u64);
    assert_eq!(
        full["reserves"],
        Value::Null,
        "that of the import does not count"
    );
    let attrs = json!([["dead_letter_queue", "orders"], ["m:colour", "String\0r\u{f6}t"],
        ["m:raw", {"base64": "QmluYXJ5AAD/"}], ["sqs:dedup", "d1"],
        ["sqs:sender", "AIDAEXAMPLE"], ["sqs:trace", "Root=1-5759e988"]]);
    assert_eq!(full["attrs"], attrs);
    let taken = [(); 2].map(|()| server.run(&["take", "post"]).stdout);
    assert_eq!(taken[0], b"full");
    assert!(taken[1] == large.as_bytes(), "the large one");

    old.state.lock().unwrap().busy = 2;
    let output = import(&server, &old.address, "", &[]);
    done(&output);
    let printed = text(&output.stderr);
    assert!(printed.starts_with("380 messages stored"), "{printed}");
    assert_eq!(old.left(), (Vec::new(), Vec::new()));
    let of = |queue: &str| -> Vec<Value> {
        let messages = all(&server).into_iter();
        let of_it = messages.filter(|message| message["queue"] == queue);
        of_it.map(|message| message["body"].clone()).collect()
    };
    let wanted = |count: usize| -> Vec<Value> {
        (0..count)
            .map(|number| json!(format!("message {number}")))
            .collect()
    };
    assert_eq!(of("work"), wanted(345));
    assert_eq!(of("work.fifo"), wanted(35), "in order");
}

#[test]
fn an_sqs_that_dies_or_refuses_is_named_and_loses_nothing() {
    const ALL: usize = 400;
    for bytes in [1_500, 20_000, 60_000] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir.path().join("data"));
        let old = Sqs::start();
        old.many("work", ALL, None);
        let address = dying(&old.address, bytes);
        let output = import(&server, &address, "work", &[]);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{bytes}: {printed}");
        assert!(printed.contains(&address), "{bytes}: {printed}");
        let (shown, hidden) = old.left();
        assert!(
            !shown.is_empty() || !hidden.is_empty(),
            "{bytes}: it was not that long"
        );
        let here = bodies(&server);
        let union: BTreeSet<&String> = here.iter().chain(&shown).chain(&hidden).collect();
        assert_eq!(union.len(), ALL, "{bytes}: lost");
    }

    let dir = tempfile::tempdir().unwrap();
    let config = "[[queue]]\nname = \"work\"\nmessages_max = 300\n";
    let server = Start::of(config).serve_at(&dir.path().join("data"));
    let old = Sqs::start();
    old.many("work", ALL, None);
    let output = import(&server, &old.address, "work", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("are released there"));
    let (shown, hidden) = old.left();
    assert!(hidden.is_empty(), "{hidden:?}");
    assert_eq!(bodies(&server).len() + shown.len(), ALL, "each once");

    let from = format!(
        "sqs://work?region=eu-central-1&endpoint=http://{}",
        old.address
    );
    let output = import_from(&server, &from, "another", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("InvalidSignatureException"));
    let output = import(&server, &old.address, "none", &[]);
    assert!(text(&output.stderr).contains("has no queue none"));
    // Somebody who speaks something else.
    let output = import(&server, server.address(), "work", &[]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_receive_without_an_answer_loses_nothing() {
    const ALL: usize = 45;
    for lose in [1, 2, 5] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir.path().join("data"));
        let old = Sqs::start();
        old.many("work", ALL, None);
        {
            let mut state = old.state.lock().unwrap();
            (state.lose, state.busy) = (lose, 2);
        }
        done(&import(&server, &old.address, "work", &[]));
        assert_eq!(old.state.lock().unwrap().lose, 0);
        assert_eq!(old.left(), (Vec::new(), Vec::new()), "{lose}");
        let here: BTreeSet<String> = bodies(&server).into_iter().collect();
        assert_eq!(
            (here.len(), all(&server).len()),
            (ALL, ALL),
            "{lose}: each once"
        );
    }
}

/// Answers of every kind are lost, cut off, or that SQS is busy. At both ends all messages are
/// counted each time the command ends; it ends well only where nothing is left.
#[test]
fn no_message_is_lost_under_all_faults_of_answers() {
    const ALL: usize = 150;
    let mut failed = 0;
    for seed in 1..=6 {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir.path().join("data"));
        let old = Sqs::start();
        old.many("work", ALL, None);
        old.many("jobs.fifo", 25, Some("one"));
        let wanted: BTreeSet<String> = old.left().0.into_iter().collect();
        old.state.lock().unwrap().chaos = seed * 0x9e37_79b9;
        loop {
            let output = import(&server, &old.address, "", &[]);
            let printed = text(&output.stderr);
            let here = bodies(&server);
            let (shown, hidden) = old.left();
            let there: BTreeSet<String> =
                here.iter().chain(&shown).chain(&hidden).cloned().collect();
            assert_eq!(there, wanted, "{seed}: {printed}");
            if output.status.success() {
                assert_eq!((shown.len(), hidden.len()), (0, 0), "{seed}: {printed}");
                break;
            }
            failed += 1;
            assert!(failed < 60, "{seed}: {printed}");
            assert_eq!(output.status.code(), Some(1), "{seed}: {printed}");
            assert!(printed.contains(&old.address), "{seed}: {printed}");
            // Their time is over, and the next try has other luck.
            let mut state = old.state.lock().unwrap();
            state.lost.clear();
            let all = state.queues.values_mut().flatten();
            all.for_each(|(_, message)| message.hidden = false);
        }
    }
}

#[test]
fn receives_without_an_answer_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let old = Sqs::start();
    old.many("work", 300, None);
    old.state.lock().unwrap().lose = usize::MAX;
    let output = import(&server, &old.address, "work", &[]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    let (_, hidden) = old.left();
    let most = printed
        .split_once("up to ")
        .and_then(|(_, rest)| rest.split_once(' '));
    let most: usize = most
        .and_then(|(most, _)| most.parse().ok())
        .expect(&printed);
    assert!(
        (1..=most).contains(&hidden.len()),
        "{} hidden: {printed}",
        hidden.len()
    );
    assert!(printed.contains("hidden there for 120 s"), "{printed}");
    assert_eq!(bodies(&server).len(), 0);
}

#[test]
fn a_body_that_came_as_another_stays_there_and_the_others_move() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("data"));
    let old = Sqs::start();
    let md5 = |of: &str| json!({"MD5OfBody": quintet_sqs::md5_of_body(of.as_bytes())});
    old.put("work", "bad", None, md5("other"));
    old.put("work", "good", None, md5("good"));
    old.put("work", "worse", None, md5("another"));
    old.many("work", 12, None);
    let stay = ["bad", "worse"].map(str::to_owned).to_vec();
    // The second time there is nothing else.
    for _ in 0..2 {
        let output = import(&server, &old.address, "work", &[]);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("do not match their MD5OfBody: 2;"),
            "{printed}"
        );
        assert!(!printed.contains("nothing to import"), "{printed}");
        let mut wanted = vec!["good".to_owned()];
        wanted.extend((0..12).map(|number| format!("message {number}")));
        assert_eq!(bodies(&server), wanted);
        // They are hidden no longer than the command runs.
        assert_eq!(old.left(), (stay.clone(), Vec::new()));
    }
}

/// Which are its attributes, ids and times, and how long its queue hides and keeps messages.
#[test]
fn clients_of_sqs_see_their_attributes_here() {
    let dir = tempfile::tempdir().unwrap();
    let start = Start {
        listen: &["sqs=127.0.0.1:0"],
        ..Start::default()
    };
    let server = Server::start_with(&dir.path().join("data"), start);
    let old = Sqs::start();
    let attributes = json!({"MessageAttributes": {
        "colour": {"DataType": "String.of", "StringValue": "red"},
        "raw": {"DataType": "Binary", "BinaryValue": "AP8="}}});
    old.put("work.fifo", "full", Some("g1"), attributes);
    old.state.lock().unwrap().setup = json!({"VisibilityTimeout": "77",
        "MessageRetentionPeriod": "1209600", "DelaySeconds": "3"});
    done(&import(&server, &old.address, "work.fifo", &[]));
    let address = server.address_of("sqs");
    let ask = |action: &str, mut input: Value| {
        input["QueueUrl"] = json!("work.fifo");
        let body = input.to_string();
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-Amz-Target: AmazonSQS.{action}\r\n\
             Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Value>(body).unwrap()
    };
    let names = json!({"AttributeNames": ["VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds", "FifoQueue"]});
    let wanted = json!({"VisibilityTimeout": "77", "MessageRetentionPeriod": "1209600",
        "DelaySeconds": "3", "FifoQueue": "true"});
    assert_eq!(ask("GetQueueAttributes", names)["Attributes"], wanted);
    let got = ask(
        "ReceiveMessage",
        json!({"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}),
    );
    let message = &got["Messages"][0];
    assert_eq!(
        message["MessageAttributes"]["colour"],
        json!({"DataType": "String.of", "StringValue": "red"})
    );
    assert_eq!(message["MessageAttributes"]["raw"]["BinaryValue"], "AP8=");
    let response = &message["Attributes"];
    assert_eq!(
        (
            &response["MessageDeduplicationId"],
            &response["MessageGroupId"]
        ),
        (&json!("d1"), &json!("g1"))
    );
    assert_eq!(response["AWSTraceHeader"], "Root=1-5759e988");
    assert_eq!(response["SenderId"], "AIDAEXAMPLE");
    let source = "arn:aws:sqs:us-east-1:000000000000:orders";
    assert_eq!(response["DeadLetterQueueSourceArn"], source);
    assert_eq!(response["SentTimestamp"], "1700000000123");
}
