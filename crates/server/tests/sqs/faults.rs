//! Cases 46, 55 and 74: power cuts, a clock that is set, a disk that is full. See `crates/faults`.

use quintet_faults::{Action, Call, Rule, errno, files};
use serde_json::json;

use crate::client::{Answer, Says, Sqs};
use crate::common::await_that;
use crate::fifo::{create, send};

/// Case 46: a lease is answered when it is written, and a power cut may take that back. The same
/// number is given to the next lease, and each handle is that of its own.
#[test]
fn case_46_a_handle_of_an_undone_lease_is_valid_for_no_other() {
    for shards in [1, 4] {
        let s = Sqs::start_under_faults(&format!("shards = {shards}\n"), "", "never");
        create(&s);
        send(&s, "g", "1", "x");
        let lease = json!({"VisibilityTimeout": 600, "AttributeNames": ["All"]});
        // All of this is on the disk, and nothing that follows.
        let mut memcache = s.server.client_of("memcache");
        memcache.ask(b"set other/sync 0 0 1\r\nx\r\n", b"STORED\r\n");
        let first = s.receive("q.fifo", lease.clone());
        let s = s.cut_and_start();
        assert_eq!(s.counts("q.fifo"), ["1", "0", "0"], "the lease is undone");
        let second = s.receive("q.fifo", lease);
        for (first, second) in first.iter().zip(&second) {
            assert_eq!(second["MessageId"], first["MessageId"]);
            let count =
                |of: &serde_json::Value| of["Attributes"]["ApproximateReceiveCount"].clone();
            assert_eq!((count(first), count(second)), (json!("1"), json!("1")));
            assert_ne!(second["ReceiptHandle"], first["ReceiptHandle"]);
        }
        let text = s
            .delete("q.fifo", &first[0])
            .no(400, "InvalidParameterValueException");
        assert!(text.ends_with("The receipt handle has expired."), "{text}");
        let longer = json!({"ReceiptHandle": first[0]["ReceiptHandle"], "VisibilityTimeout": 0});
        s.jq("ChangeMessageVisibility", "q.fifo", longer)
            .no(400, "InvalidParameterValueException");
        assert_eq!(s.counts("q.fifo"), ["0", "1", "0"]);
        s.delete("q.fifo", &second[0]).yes();
        assert_eq!(s.counts("q.fifo"), ["0", "0", "0"]);
    }
}

/// Case 55: over a restart a repeat is known, until five minutes are over by the clock.
#[test]
fn case_55_a_repeat_is_a_new_message_when_the_clock_is_five_minutes_on() {
    let s = Sqs::start_under_faults("shards = 4\n", "", "always");
    create(&s);
    let first = send(&s, "g", "d", "x");
    let s = s.kill_and_start();
    assert_eq!(send(&s, "g", "d", "x")["MessageId"], first["MessageId"]);
    s.faults().shift_clock(301_000);
    let s = s.kill_and_start();
    let new = send(&s, "g", "d", "x");
    assert_ne!(new["MessageId"], first["MessageId"]);
    assert!(new["SequenceNumber"].as_str() > first["SequenceNumber"].as_str());
    assert_eq!(send(&s, "g", "d", "x")["MessageId"], new["MessageId"]);
    assert_eq!(s.counts("q.fifo")[0], "2");
}

/// Case 74: what puts is asked to come again, what makes room is done.
#[test]
fn case_74_a_full_disk_refuses_sends_and_does_deletes() {
    let config = "segment_bytes = '4MiB'\nspare_segments = 1\nlog_bytes = '8MiB'\n";
    // An answer that is kept is kept for longer than this waits.
    let s = Sqs::start_under_faults(config, "retry_window=1h", "always");
    s.create("q");
    // What is made ahead is made; nothing more can be.
    await_that("the file made ahead is not there", || {
        let mut files = std::fs::read_dir(&s.server.data)
            .expect("the data")
            .flatten();
        let is_spare = |name: &str| name.starts_with("spare-") && name.ends_with(".log");
        files.any(|file| file.file_name().to_str().is_some_and(is_spare))
    });
    let full = Rule::every(Call::Create, Action::Fail(errno::ENOSPC)).on(files::SPARE);
    s.faults().rule(0, full);
    let body = "x".repeat(60_000);
    // The tries of one call, as an SDK sends them, and calls of their own.
    let tries = |call: &str| {
        let input = json!({"QueueUrl": "q", "MessageBody": body}).to_string();
        s.j_with(
            "SendMessage",
            &format!("amz-sdk-invocation-id: {call}\r\n"),
            &input,
        )
    };
    let send = || s.jq("SendMessage", "q", json!({"MessageBody": body}));
    let is_throttled = |answer: &Answer| {
        let error = answer.header("x-amzn-query-error");
        answer.status == 503 && error == Some("RequestThrottled;Sender")
    };
    let mut sent = 0;
    let refused = loop {
        let answer = send();
        if answer.status != 200 {
            break answer;
        }
        sent += 1;
        assert!(sent < 300, "20 MB do not fit two files of 4");
    };
    assert!(is_throttled(&refused), "{refused:?}");
    refused.no(503, "RequestThrottled");
    assert!(is_throttled(&tries("one")));
    let entry = |id: &str| json!({"Id": id, "MessageBody": body});
    let input = json!({"Entries": [entry("1"), entry("2")]});
    let batch = s.jq("SendMessageBatch", "q", input).yes();
    for failed in batch["Failed"].as_array().expect("both") {
        assert_eq!(failed["Code"], "RequestThrottled");
    }
    assert_eq!(batch.get("Successful"), None);
    // All that was acknowledged can be received and deleted.
    for _ in 0..sent {
        // While nothing at all can be written receives are throttled too, and tried again.
        let mut answer = s.jq("ReceiveMessage", "q", json!({}));
        await_that("a receive is served", || {
            let throttled = is_throttled(&answer);
            if throttled {
                answer = s.jq("ReceiveMessage", "q", json!({}));
            }
            !throttled
        });
        let got = answer.yes();
        let got = got["Messages"].as_array().expect("messages");
        assert_eq!(got.len(), 1, "of {sent}");
        assert_eq!(s.delete("q", &got[0]).body, "{}");
    }
    assert_eq!(s.counts("q"), ["0", "0", "0"]);
    // As an SDK does: again and again, until there is room. An error is not remembered, what was
    // done then is.
    s.faults().end_rules();
    await_that("there is room, and nobody knows", || {
        tries("one").status == 200
    });
    assert_eq!(tries("one").status, 200);
    assert_eq!(s.counts("q")[0], "1");
}

/// A repeat of it would find the delay there, and change nothing.
#[test]
fn a_delay_becomes_that_of_all_messages_though_its_client_has_gone() {
    let s = Sqs::start_under_faults("shards = 4\n", "", "always");
    s.create_with(
        "q.fifo",
        json!({"FifoQueue": "true", "DelaySeconds": "900"}),
    );
    for n in 0..25 {
        let entry = |at: u32| {
            json!({"Id": at.to_string(), "MessageBody": "x", "MessageGroupId": "g",
                "MessageDeduplicationId": format!("{n}-{at}")})
        };
        let entries: Vec<_> = (0..10).map(entry).collect();
        s.jq("SendMessageBatch", "q.fifo", json!({"Entries": entries}))
            .yes();
    }
    assert_eq!(s.counts("q.fifo"), ["0", "0", "250"]);
    // Each step waits for the disk.
    let slow = Rule::every(Call::Sync, Action::Delay(200_000)).on(files::SEGMENT);
    s.faults().rule(0, slow);
    let input = json!({"QueueUrl": s.url("q.fifo"), "Attributes": {"DelaySeconds": "0"}});
    let input = input.to_string();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\
         Content-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: AmazonSQS.SetQueueAttributes\r\n\r\n{input}",
        s.address,
        input.len()
    );
    let mut client = s.connect();
    client.send(request.as_bytes()).expect("sent");
    await_that("the delay is another", || {
        s.attribute("q.fifo", "DelaySeconds").as_deref() == Some("0")
    });
    drop(client);
    await_that("all are visible", || {
        s.counts("q.fifo") == ["250", "0", "0"]
    });
}
