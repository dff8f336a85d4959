//! Case 72, and what is sent to break the server: many polls, guessed handles, bombs.

use serde_json::{Value, json};

use crate::client::{Answer, Says, Sqs, answer};
use crate::common::{Client, Connection, await_that};

/// Polls at once, where this process may open as many files.
const POLLS: u64 = 4000;
/// Files this process and its other tests have open besides.
const OTHER_FILES: u64 = 4000;
/// Memory of a poll in the server: its socket's and its waiter's.
const POLL_BYTES: u64 = 32 << 10;

/// How many connections this process may have, after its limit was raised as far as it may be.
fn connections() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("raised");
    let allowed = limit.maximum.unwrap_or(u64::MAX);
    // The server has as many and a fourth more, and files of its own.
    POLLS.min(allowed.saturating_sub(OTHER_FILES))
}

/// A connection that is kept for one request after the other.
struct Kept(Connection);

impl Kept {
    fn new(s: &Sqs) -> Self {
        Self(s.connect())
    }

    fn begin(&mut self, action: &str, input: &Value) {
        let body = input.to_string();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.send(request.as_bytes()).expect("sent");
    }

    fn ask(&mut self, action: &str, input: &Value) -> Answer {
        self.begin(action, input);
        answer(&mut self.0)
    }
}

/// Bytes resident in the server's memory, or the most there ever were.
fn memory(s: &Sqs, key: &str) -> u64 {
    let path = format!("/proc/{}/status", s.server.child.id());
    let status = std::fs::read_to_string(path).expect("it runs");
    let mut lines = status.lines().filter_map(|line| line.strip_prefix(key));
    let words = lines.next().expect("a number of the kernel's");
    let kib: u64 = words
        .trim_matches([':', ' ', '\t', 'k', 'B'])
        .parse()
        .expect("a number");
    kib << 10
}

fn threads(s: &Sqs) -> usize {
    let path = format!("/proc/{}/task", s.server.child.id());
    std::fs::read_dir(path).expect("it runs").count()
}

#[test]
fn case_72_polls_by_the_thousand_are_answered_each_by_its_send() {
    let count = connections();
    // The files are for polls; where few places are left silent connections make way.
    let config = "shards = 4\nconnections_max = 64\nhttp_threads = 2\n";
    // Open, so that a slow machine has the time to begin them all.
    let options = format!("limits=open,max_connections={}", count + count / 4);
    let s = Sqs::start_with(config, &options, Some("never"));
    let mut kept = Kept::new(&s);
    let name = |number: u64| format!("q{number}");
    for number in 0..count {
        kept.ask("CreateQueue", &json!({"QueueName": name(number)}))
            .yes();
    }
    // A second connection begins the second thread.
    Kept::new(&s)
        .ask("ListQueues", &json!({"MaxResults": 1}))
        .yes();
    let (resident, begun) = (memory(&s, "VmRSS"), threads(&s));
    let mut polls: Vec<Kept> = (0..count)
        .map(|number| {
            let mut poll = Kept::new(&s);
            let input = json!({"QueueUrl": name(number), "WaitTimeSeconds": 3600});
            poll.begin("ReceiveMessage", &input);
            poll
        })
        .collect();
    s.server.await_number("waiters", |waiters| waiters == count);
    let each = memory(&s, "VmRSS").saturating_sub(resident) / count;
    assert!(each <= POLL_BYTES, "{each} bytes for each of {count}");
    assert_eq!(threads(&s), begun, "threads for polls");
    // The other one may have rested for too long. The last first: none waits for those before it.
    let mut kept = Kept::new(&s);
    for number in (0..count).rev() {
        let input = json!({"QueueUrl": name(number), "MessageBody": name(number)});
        kept.ask("SendMessage", &input).yes();
    }
    for (number, poll) in (0..count).zip(&mut polls) {
        let got = answer(&mut poll.0).yes();
        assert_eq!(got["Messages"][0]["Body"], name(number));
        assert_eq!(got["Messages"].as_array().map(Vec::len), Some(1));
    }
    s.server.await_number("waiters", |waiters| waiters == 0);
}

/// Twenty thousand handles that nobody gave: each gets an error, and nothing is done by them. A
/// million are tried without sockets, in `quintet_sqs::handle`.
#[test]
fn guessed_handles_do_nothing() {
    const BATCHES: u64 = 20;
    let s = Sqs::start(4, "limits=open");
    s.create("q");
    s.send("q", "x");
    let got = s.receive("q", json!({"VisibilityTimeout": 43_200}));
    let good = got[0]["ReceiptHandle"]
        .as_str()
        .expect("a handle")
        .to_owned();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut kept = Kept::new(&s);
    for batch in 0..BATCHES {
        let entries = (0..1000).map(|number| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            // The lease it names is the good one's; the keyed hash at its end is a guess.
            let guess = format!("{}{:010x}", &good[..good.len() - 10], state >> 24);
            json!({"Id": number.to_string(), "ReceiptHandle": guess, "VisibilityTimeout": 0})
        });
        let entries: Vec<Value> = entries.collect();
        let action = match batch % 2 {
            0 => "DeleteMessageBatch",
            _ => "ChangeMessageVisibilityBatch",
        };
        let input = json!({"QueueUrl": "q", "Entries": entries});
        let answered = kept.ask(action, &input).yes();
        assert!(answered.get("Successful").is_none());
        let failed = answered["Failed"].as_array().expect("all of them");
        assert_eq!(failed.len(), 1000);
        let invalid = |one: &Value| one["Code"] == "ReceiptHandleIsInvalid";
        assert!(failed.iter().all(invalid));
    }
    assert_eq!(s.counts("q"), ["0", "1", "0"]);
    s.delete("q", &got[0]).yes();
    assert_eq!(s.counts("q"), ["0", "0", "0"]);
}

/// Input that is small on the wire and large when it is read: nested, wide, and by reference.
#[test]
fn bombs_take_no_memory_and_no_time_of_others() {
    let s = Sqs::start(1, "");
    s.create("q");
    let before = memory(&s, "VmHWM");
    let most = 8_000_000;
    let deep = |open: &str, close: &str| {
        let depth = most / (open.len() + close.len());
        format!("{}{}", open.repeat(depth), close.repeat(depth))
    };
    let wide = |of: &str| of.repeat(most / of.len());
    let one = r#"{"Id":"a","MessageBody":"x"}"#;
    for (action, body) in [
        (
            "SendMessageBatch",
            format!(r#"{{"QueueUrl":"q","Entries":{}}}"#, deep("[", "]")),
        ),
        (
            "SendMessageBatch",
            format!(r#"{{"QueueUrl":"q","Entries":{}}}"#, deep(r#"{"a":"#, "}")),
        ),
        (
            "SendMessageBatch",
            format!(r#"{{"QueueUrl":"q","Entries":[{}{one}]}}"#, wide("{},")),
        ),
        (
            "SendMessageBatch",
            format!(
                r#"{{"QueueUrl":"q","Entries":[{}{one}]}}"#,
                wide(&format!("{one},"))
            ),
        ),
        (
            "CreateQueue",
            format!(
                r#"{{"QueueName":"r","Attributes":{{{}"a":"b"}}}}"#,
                wide(r#""a":"b","#)
            ),
        ),
        (
            "TagQueue",
            format!(
                r#"{{"QueueUrl":"q","Tags":{{{}"a":"b"}}}}"#,
                wide(r#""":"","#)
            ),
        ),
        (
            "ReceiveMessage",
            format!(
                r#"{{"QueueUrl":"q","AttributeNames":[{}"a"],"x":1}}"#,
                wide(r#""","#)
            ),
        ),
    ] {
        let answered = s.j_with(action, "", &body);
        assert!(
            matches!(answered.status, 200 | 400),
            "{action} {}: {}",
            &body[..60],
            answered.status
        );
    }
    for form in [
        format!(
            "Action=SendMessageBatch{}",
            wide("&SendMessageBatchRequestEntry.1.Id=a")
        ),
        format!(
            "Action=CreateQueue&QueueName=r{}",
            wide("&Attribute.1.Name=a")
        ),
        format!(
            "Action=ReceiveMessage{}",
            wide("&AttributeName.999999999=All")
        ),
        format!("Action=SendMessage&MessageBody={}", wide("%26")),
    ] {
        let answered = s.q_at("/0/q", &form);
        assert!(
            matches!(answered.status, 200 | 400),
            "{}: {}",
            &form[..60],
            answered.status
        );
    }
    // XML is written and never read: entities that name entities are bytes of no action.
    let mut xml = "<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY e0 \"x\">".to_owned();
    for level in 1..20 {
        let of = format!("&e{};", level - 1).repeat(10);
        xml += &format!("<!ENTITY e{level} \"{of}\">");
    }
    xml += "]><SendMessage>&e19;</SendMessage>";
    let sent = s.request("POST /0/q", "Content-Type: text/xml\r\n", &xml);
    assert!((400..500).contains(&sent.status), "{sent:?}");
    let grown = memory(&s, "VmHWM").saturating_sub(before);
    assert!(grown < 128 << 20, "{grown} bytes for bodies of {most}");
    assert_eq!(s.counts("q"), ["0", "0", "0"]);
}

/// Some bytes of a request, and no more: others are served, and it ends with its connection.
#[test]
fn a_client_that_stops_in_a_request_stops_no_other() {
    let s = Sqs::start(1, "");
    s.create("q");
    let mut begun: Vec<Client> = (0..100).map(|_| s.connect().into()).collect();
    for (number, socket) in begun.iter_mut().enumerate() {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: AmazonSQS.SendMessage\r\nContent-Length: 60\r\n\r\n\
             {{\"QueueUrl\":\"q\",\"MessageBody\":\"{number}"
        );
        let cut = head.len() * (number + 1) / 100;
        socket.send(&head.as_bytes()[..cut]);
    }
    s.send("q", "whole");
    assert_eq!(s.bodies("q", json!({"MaxNumberOfMessages": 10})), ["whole"]);
    for mut socket in begun {
        socket.half_close();
        // An error or nothing.
        assert!(!socket.all().contains(" 200 "));
    }
    await_that("one is in flight", || s.counts("q") == ["0", "1", "0"]);
}
