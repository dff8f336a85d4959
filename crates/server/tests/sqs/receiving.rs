//! Cases 31 to 48 and 69, 70, 72: receiving, leases, and the queue in other protocols.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cases;
use crate::client::{Says, Sqs, answer};
use crate::common::{Connection, await_that};

fn request(s: &Sqs, action: &str, input: &Value) -> Vec<u8> {
    let body = input.to_string();
    format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: AmazonSQS.{action}\r\nContent-Length: {}\r\n\r\n{body}",
        s.address,
        body.len()
    )
    .into_bytes()
}

/// A poll that waits, on a connection of its own.
fn poll(s: &Sqs, queue: &str) -> Connection {
    let mut connection = s.connect();
    let input = json!({"QueueUrl": s.url(queue), "WaitTimeSeconds": 20});
    let before = waiting(s, queue);
    let request = request(s, "ReceiveMessage", &input);
    connection.send(&request).expect("sent");
    await_that("it comes", || waiting(s, queue) > before);
    connection
}

/// Takes that wait, as the queue's numbers tell.
fn waiting(s: &Sqs, queue: &str) -> u64 {
    let mut client = s.server.client_of("beanstalk");
    client.send(format!("stats-tube {queue}\r\nquit\r\n").as_bytes());
    let text = client.all();
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("current-waiting: "));
    lines
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

cases! {
    case_31_nothing_there(s) {
        s.create("q");
        assert_eq!(s.jq("ReceiveMessage", "q", json!({})).body, "{}");
        let text = s.q_at("/0/q", "Action=ReceiveMessage").body;
        assert!(text.contains("<ReceiveMessageResult></ReceiveMessageResult>"), "{text}");
        let began = Instant::now();
        assert_eq!(s.jq("ReceiveMessage", "q", json!({"WaitTimeSeconds": 1})).body, "{}");
        assert!(began.elapsed() >= Duration::from_secs(1));
        // The queue's own time counts where none is given.
        s.create_with("waits", json!({"ReceiveMessageWaitTimeSeconds": "1"}));
        let began = Instant::now();
        assert_eq!(s.jq("ReceiveMessage", "waits", json!({})).body, "{}");
        assert!(began.elapsed() >= Duration::from_secs(1));
        let began = Instant::now();
        s.jq("ReceiveMessage", "waits", json!({"WaitTimeSeconds": 0})).yes();
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    case_32_33_polls_are_served_in_their_order(s) {
        s.create("q");
        let (mut first, mut second) = (poll(s, "q"), poll(s, "q"));
        s.send("q", "a");
        assert!(answer(&mut first).body.contains("\"Body\":\"a\""));
        let mut other = s.server.client_of("beanstalk");
        other.send(b"use q\r\nput 1 0 9 1\r\nb\r\n");
        assert!(answer(&mut second).body.contains("\"Body\":\"b\""));
        let (mut first, mut second) = (poll(s, "q"), poll(s, "q"));
        s.send("q", "c");
        s.send("q", "d");
        assert!(answer(&mut first).body.contains("\"Body\":\"c\""));
        assert!(answer(&mut second).body.contains("\"Body\":\"d\""));
    }

    case_34_a_poll_whose_client_has_gone_takes_nothing(s) {
        s.create("q");
        drop(poll(s, "q"));
        await_that("it comes", || waiting(s, "q") == 0);
        s.send("q", "x");
        assert_eq!(s.bodies("q", json!({})), ["x"]);
    }

    case_35_a_poll_of_a_queue_that_is_deleted(s) {
        s.create("q");
        let mut poll = poll(s, "q");
        s.jq("DeleteQueue", "q", json!({})).yes();
        answer(&mut poll).no(400, "QueueDoesNotExist");
    }

    case_36_numbers_out_of_range(s) {
        s.create("q");
        for (name, value, reason) in [
            ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
            ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
            ("WaitTimeSeconds", -1, "Must be >= 0 and <= 20, if provided."),
            ("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
            ("VisibilityTimeout", -1, "Must be between 0 and 43200, if provided."),
            ("VisibilityTimeout", 43201, "Must be between 0 and 43200, if provided."),
        ] {
            let text = s.jq("ReceiveMessage", "q", json!({name: value})).no(400, "InvalidParameterValueException");
            assert_eq!(text, format!("Value {value} for parameter {name} is invalid. Reason: {reason}"));
        }
    }

    case_37_attributes_of_a_message(s) {
        s.create("q");
        s.send("q", "x");
        let of = |input: Value| s.receive("q", input)[0]["Attributes"].as_object().cloned();
        let first = of(json!({"AttributeNames": ["All"], "VisibilityTimeout": 3})).expect("there");
        let names: Vec<&str> = first.keys().map(String::as_str).collect();
        assert_eq!(names, ["ApproximateFirstReceiveTimestamp", "ApproximateReceiveCount", "SenderId", "SentTimestamp"]);
        assert_eq!(first["ApproximateReceiveCount"], "1");
        assert_eq!(first["SenderId"], "000000000000");
        let again = json!({"MessageSystemAttributeNames": ["All"], "VisibilityTimeout": 1, "WaitTimeSeconds": 20});
        let second = of(again).expect("there");
        assert_eq!(second["ApproximateReceiveCount"], "2");
        let at = |of: &serde_json::Map<String, Value>| {
            of["ApproximateFirstReceiveTimestamp"].as_str().and_then(|ms| ms.parse::<i64>().ok()).expect("a time")
        };
        // Told at the first by when it was answered, then by when its lease began.
        assert!((at(&first) - at(&second)).abs() < 3000, "{first:?} {second:?}");
        assert_eq!(of(json!({"WaitTimeSeconds": 20})), None);
    }

    case_38_39_visibility(s) {
        s.create("q");
        let sent = s.send("q", "x");
        s.create("hidden");
        s.send("hidden", "x");
        assert_eq!(s.bodies("hidden", json!({"VisibilityTimeout": 600})), ["x"]);
        assert_eq!(s.receive("hidden", json!({})).len(), 0);
        let first = s.receive("q", json!({"VisibilityTimeout": 1}));
        let second = s.receive("q", json!({"WaitTimeSeconds": 20, "VisibilityTimeout": 0}));
        assert_eq!(second[0]["MessageId"], sent["MessageId"]);
        assert_ne!(second[0]["ReceiptHandle"], first[0]["ReceiptHandle"]);
        let third = s.receive("q", json!({"AttributeNames": ["ApproximateReceiveCount"]}));
        assert_eq!(third[0]["Attributes"]["ApproximateReceiveCount"], "3");
    }

    case_40_deleting(s) {
        s.create("q");
        s.create("r");
        s.send("q", "x");
        let got = s.receive("q", json!({}));
        let other = s.jq("DeleteMessage", "r", json!({"ReceiptHandle": got[0]["ReceiptHandle"]}));
        other.no(400, "ReceiptHandleIsInvalid");
        assert_eq!(s.delete("q", &got[0]).body, "{}");
        assert_eq!(s.delete("q", &got[0]).body, "{}");
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
        let text = s.jq("DeleteMessage", "q", json!({"ReceiptHandle": "x"})).no(400, "ReceiptHandleIsInvalid");
        assert_eq!(text, "The input receipt handle \"x\" is not a valid receipt handle.");
        let query = s.q_at("/0/q", "Action=DeleteMessage&ReceiptHandle=x");
        assert_eq!(query.status, 404);
    }

    case_41_old_handles_of_standard_queues_delete(s) {
        s.create("q");
        s.send("q", "x");
        let old = s.receive("q", json!({"VisibilityTimeout": 1}));
        await_that("it comes", || s.counts("q")[0] == "1");
        s.delete("q", &old[0]).yes();
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
        s.send("q", "y");
        let old = s.receive("q", json!({"VisibilityTimeout": 0}));
        let new = s.receive("q", json!({}));
        s.delete("q", &old[0]).yes();
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
        s.delete("q", &new[0]).yes();
    }

    case_43_44_changing_visibility(s) {
        s.create("q");
        s.send("q", "a");
        s.send("q", "b");
        let change = |message: &Value, seconds: i64| {
            let input = json!({"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": seconds});
            s.jq("ChangeMessageVisibility", "q", input)
        };
        let got = s.receive("q", json!({}));
        change(&got[0], 0).yes();
        // At its old place.
        let got = s.receive("q", json!({"VisibilityTimeout": 600}));
        assert_eq!(got[0]["Body"], "a");
        assert_eq!(s.bodies("q", json!({"VisibilityTimeout": 600})), ["b"]);
        let began = Instant::now();
        change(&got[0], 3).yes();
        assert_eq!(s.bodies("q", json!({"WaitTimeSeconds": 20})), ["a"]);
        assert!(began.elapsed() >= Duration::from_secs(3));
        change(&got[0], 43201).no(400, "InvalidParameterValueException");
        s.delete("q", &got[0]).yes();
        let text = change(&got[0], 5).no(400, "InvalidParameterValueException");
        assert!(text.ends_with("Message does not exist or is not available for visibility timeout change."), "{text}");
        s.send("q", "c");
        let over = s.receive("q", json!({"VisibilityTimeout": 0}));
        assert_eq!(over[0]["Body"], "c");
        // It is visible as it is.
        change(&over[0], 0).yes();
        let began = Instant::now();
        change(&over[0], 2).yes();
        let text = s.jq("ChangeMessageVisibility", "q", json!({"ReceiptHandle": "x", "VisibilityTimeout": 1}));
        assert_eq!(text.no(400, "ReceiptHandleIsInvalid"), "The input receipt handle is invalid.");
        assert_eq!(s.bodies("q", json!({"WaitTimeSeconds": 20})), ["c"]);
        assert!(began.elapsed() >= Duration::from_secs(2));
    }

    case_45_batches_of_handles(s) {
        s.create("q");
        s.send("q", "x");
        let got = s.receive("q", json!({}));
        let entries = json!([
            {"Id": "1", "ReceiptHandle": got[0]["ReceiptHandle"], "VisibilityTimeout": 9},
            {"Id": "2", "ReceiptHandle": "x", "VisibilityTimeout": 9},
        ]);
        for action in ["ChangeMessageVisibilityBatch", "DeleteMessageBatch"] {
            let done = s.jq(action, "q", json!({"Entries": entries})).yes();
            assert_eq!(done["Successful"], json!([{"Id": "1"}]));
            assert_eq!(done["Failed"][0]["Id"], "2");
            assert_eq!(done["Failed"][0]["Code"], "ReceiptHandleIsInvalid");
            assert_eq!(done["Failed"][0]["SenderFault"], true);
        }
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
    }

    case_47_purging(s) {
        s.create("q");
        for body in ["a", "b", "c"] {
            s.send("q", body);
        }
        s.jq("SendMessage", "q", json!({"MessageBody": "d", "DelaySeconds": 900})).yes();
        let got = s.receive("q", json!({}));
        assert_eq!(s.counts("q"), ["2", "1", "1"]);
        s.jq("PurgeQueue", "q", json!({})).yes();
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
        assert_eq!(s.delete("q", &got[0]).body, "{}");
        s.jq("PurgeQueue", "q", json!({})).yes();
    }

    case_69_messages_of_memcache(s) {
        let mut memcache = s.server.client_of("memcache");
        memcache.ask(b"set q 0 0 2\r\nhi\r\n", b"STORED\r\n");
        let got = s.receive("q", json!({}));
        assert_eq!(got[0]["Body"], "hi");
        assert_eq!(got[0]["MD5OfBody"], "49f68a5c8493ec2c0bf489821c21fc3b");
        memcache.ask(b"set q 0 0 2\r\n\xff\xfe\r\n", b"STORED\r\n");
        let got = s.receive("q", json!({}));
        assert_eq!(got[0]["Body"], "//4=");
        assert_eq!(got[0]["MessageAttributes"]["Quintet.Encoding"], json!({"DataType": "String", "StringValue": "base64"}));
        s.send("q", "hello");
        memcache.ask(b"get q\r\n", b"VALUE q 0 5\r\nhello\r\nEND\r\n");
    }

    case_70_messages_of_beanstalk(s) {
        s.create("q");
        s.send("q", "sqs");
        let mut beanstalk = s.server.client_of("beanstalk");
        beanstalk.ask(b"use q\r\nput 0 0 120 5\r\nbeans\r\n", b"USING q\r\nINSERTED ");
        let got = s.receive("q", json!({}));
        assert_eq!(got[0]["Body"], "beans");
        assert_eq!(s.bodies("q", json!({})), ["sqs"]);
        assert_eq!(s.counts("q"), ["0", "2", "0"]);
        s.delete("q", &got[0]).yes();
        s.send("q", "x");
        let mut other = s.server.client_of("beanstalk");
        other.ask(b"watch q\r\nreserve-with-timeout 0\r\n", b"WATCHING 2\r\nRESERVED ");
        let line = String::from_utf8(other.some()).expect("text");
        let id = line.split(' ').next().expect("an id").to_owned();
        other.send(format!("bury {id} 1\r\n").as_bytes());
        await_that("it comes", || s.counts("q") == ["0", "1", "0"]);
        assert_eq!(s.receive("q", json!({})).len(), 0);
    }
}

/// Case 46: a handle outlives the server that gave it.
#[test]
fn case_46_handles_over_a_kill() {
    for shards in [1, 4] {
        let s = Sqs::start(shards, "");
        s.create("q");
        let ids: Vec<Value> = ["a", "b", "c"]
            .iter()
            .map(|body| s.send("q", body)["MessageId"].clone())
            .collect();
        let got = s.receive(
            "q",
            json!({"MaxNumberOfMessages": 3, "VisibilityTimeout": 600}),
        );
        assert_eq!(got.len(), 3);
        let s = s.kill_and_start();
        assert_eq!(s.counts("q"), ["0", "3", "0"]);
        assert_eq!(s.receive("q", json!({})).len(), 0);
        s.delete("q", &got[0]).yes();
        let change = |message: &Value| {
            s.jq(
                "ChangeMessageVisibility",
                "q",
                json!({"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}),
            )
        };
        change(&got[1]).yes();
        let again = s.receive("q", json!({}));
        assert_eq!(again[0]["MessageId"], ids[1]);
        let entries = json!([{"Id": "1", "ReceiptHandle": got[2]["ReceiptHandle"]}]);
        s.jq("DeleteMessageBatch", "q", json!({"Entries": entries}))
            .yes();
        assert_eq!(s.counts("q"), ["0", "1", "0"]);
    }
}

/// Case 48: expiry does not touch what is in flight.
#[test]
fn case_48_retention() {
    let s = Sqs::start(1, "limits=open");
    s.create_with("q", json!({"MessageRetentionPeriod": "4"}));
    s.send("q", "a");
    let got = s.receive("q", json!({}));
    s.send("q", "b");
    await_that("it comes", || s.counts("q") == ["0", "1", "0"]);
    s.delete("q", &got[0]).yes();
    assert_eq!(s.counts("q"), ["0", "0", "0"]);
}

/// Messages that come back, or are received again, while a purge removes those in flight go as
/// well.
#[test]
fn a_message_that_comes_back_during_a_purge_is_purged() {
    let s = Sqs::start(1, "limits=open");
    s.create("q");
    let bodies: Vec<Value> = (0..1000)
        .map(|n| json!({"Id": n.to_string(), "MessageBody": "x"}))
        .collect();
    for _ in 0..5 {
        s.jq("SendMessageBatch", "q", json!({"Entries": bodies}))
            .yes();
        let mut handles = Vec::new();
        while handles.len() < 1000 {
            let got = s.receive("q", json!({"MaxNumberOfMessages": 1000}));
            let handle = |message: &Value| message["ReceiptHandle"].clone();
            handles.extend(got.iter().map(handle));
        }
        // From the end, as the purge goes from the begin.
        let entries = handles.iter().rev().enumerate().map(|(n, handle)| {
            json!({"Id": n.to_string(), "ReceiptHandle": handle, "VisibilityTimeout": 0})
        });
        let entries: Vec<Value> = entries.collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for some in entries.chunks(100) {
                    let input = json!({"Entries": some});
                    s.jq("ChangeMessageVisibilityBatch", "q", input).yes();
                    s.receive("q", json!({"MaxNumberOfMessages": 50}));
                }
            });
            s.jq("PurgeQueue", "q", json!({})).yes();
            assert_eq!(s.counts("q"), ["0", "0", "0"]);
        });
        s.send("q", "later");
        assert_eq!(s.counts("q"), ["1", "0", "0"]);
        s.jq("PurgeQueue", "q", json!({})).yes();
    }
}

#[test]
fn an_option_gives_purges_and_names_the_times_of_aws() {
    let s = Sqs::start(1, "purge_interval=60s,recreate_after=60s");
    s.create("q");
    s.jq("PurgeQueue", "q", json!({})).yes();
    let text = s
        .jq("PurgeQueue", "q", json!({}))
        .no(403, "PurgeQueueInProgress");
    assert_eq!(
        text,
        "Only one PurgeQueue operation on q is allowed every 60 seconds."
    );
    s.jq("DeleteQueue", "q", json!({})).yes();
    let text = s
        .j("CreateQueue", json!({"QueueName": "q"}))
        .no(400, "QueueDeletedRecently");
    assert!(text.starts_with("You must wait 60 seconds"), "{text}");
}

#[test]
fn an_option_creates_queues_at_their_first_use() {
    let s = Sqs::start(1, "auto_create");
    s.send("q", "x");
    assert_eq!(s.attribute("q", "VisibilityTimeout").as_deref(), Some("30"));
    assert_eq!(s.bodies("q", json!({})), ["x"]);
    assert_eq!(s.receive("other", json!({})).len(), 0);
    s.j("GetQueueUrl", json!({"QueueName": "third"})).yes();
    assert_eq!(
        s.j("ListQueues", json!({})).yes()["QueueUrls"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}

/// The page says which series is which attribute.
#[test]
fn a_queues_numbers_are_those_of_the_metrics() {
    let s = Sqs::start_with_http();
    s.create("q");
    for (body, delay) in [("a", 0), ("b", 0), ("c", 0), ("d", 600)] {
        let input = json!({"MessageBody": body, "DelaySeconds": delay});
        s.jq("SendMessage", "q", input).yes();
    }
    assert_eq!(s.receive("q", json!({})).len(), 1);
    let (_, metrics) = crate::common::page(&s.server, "/metrics");
    let page = include_str!("../../../../docs/protocols/sqs.md");
    let lines = page.lines().filter(|line| line.starts_with("| `Approx"));
    let mut delivered = 0;
    for line in lines {
        let words: Vec<&str> = line.split('`').collect();
        let (attribute, series) = (words[1], words[words.len() - 2]);
        let series = series.replace("{state", "{queue=\"q\",state");
        let value = s.attribute("q", attribute).expect("an attribute");
        assert_ne!(value, "0", "{attribute}");
        let line = format!("{series} {value}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
        delivered += 1;
    }
    assert_eq!(delivered, 3);
}

/// A stop ends polls empty, and soon.
#[test]
fn a_stop_ends_polls() {
    let s = Sqs::start(1, "");
    s.create("q");
    let mut poll = poll(&s, "q");
    let Sqs { server, dir, .. } = s;
    let stopped = std::thread::spawn(move || server.stop());
    assert_eq!(answer(&mut poll).body, "{}");
    assert!(stopped.join().expect("stopped").success());
    drop(dir);
}

/// Replies count as connection memory until they have left. One that there is no room for gives its
/// messages back.
#[test]
fn replies_keep_to_the_memory_of_connections() {
    let s = Sqs::start_with("connection_memory = '16MiB'\n", "", None);
    s.create("q");
    // As XML it is five times as long, and longer than what sockets hold.
    let body = "&".repeat(200_000);
    for _ in 0..20 {
        s.send("q", &body);
    }
    let form = "Action=ReceiveMessage&MaxNumberOfMessages=10&QueueUrl=/0/q";
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        s.address,
        form.len()
    );
    let mut unread = s.connect();
    unread.send(request.as_bytes()).expect("sent");
    s.server
        .await_number("connections_memory_bytes", |n| n > 10_000_000);
    let refused = s.q(form);
    assert!(
        refused.body.contains("<Code>RequestThrottled</Code>"),
        "{refused:?}"
    );
    await_that("ten go back", || s.counts("q")[0] == "10");
    assert_eq!(answer(&mut unread).body.matches("&amp;").count(), 2_000_000);
    s.server
        .await_number("connections_memory_bytes", |n| n == 0);
    assert!(s.q(form).body.len() > 10_000_000);
}
