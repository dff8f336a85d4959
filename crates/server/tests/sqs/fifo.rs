//! Cases 49 to 60: FIFO queues, and fair ones.

use serde_json::{Value, json};

use crate::cases;
use crate::client::{Says, Sqs};
use crate::common::await_that;

pub(crate) fn create(s: &Sqs) {
    s.create_with("q.fifo", json!({"FifoQueue": "true"}));
}

pub(crate) fn send(s: &Sqs, group: &str, id: &str, body: &str) -> Value {
    let input = json!({"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": id});
    s.jq("SendMessage", "q.fifo", input).yes()
}

cases! {
    case_49_requirements_of_a_fifo_queue(s) {
        create(s);
        let send = |input: Value| s.jq("SendMessage", "q.fifo", input);
        send(json!({"MessageBody": "x", "MessageDeduplicationId": "d"})).no(400, "MissingRequiredParameterException");
        send(json!({"MessageBody": "x", "MessageGroupId": "g"})).no(400, "InvalidParameterValueException");
        let with = |delay: i64| send(json!({"MessageBody": "x", "MessageGroupId": "g",
            "MessageDeduplicationId": "d", "DelaySeconds": delay}));
        let text = with(2).no(400, "InvalidParameterValueException");
        assert!(text.ends_with("not valid for this queue type."), "{text}");
        with(0).yes();
    }

    case_50_numbers_of_messages(s) {
        create(s);
        let (first, second) = (send(s, "g", "1", "a"), send(s, "g", "2", "b"));
        let number = |of: &Value| of["SequenceNumber"].as_str().expect("there").to_owned();
        assert_eq!(number(&first).len(), 20);
        assert!(number(&first) < number(&second));
        let got = s.receive("q.fifo", json!({"AttributeNames": ["All"]}));
        let attrs = &got[0]["Attributes"];
        assert_eq!(attrs["SequenceNumber"], first["SequenceNumber"]);
        assert_eq!((&attrs["MessageGroupId"], &attrs["MessageDeduplicationId"]), (&json!("g"), &json!("1")));
    }

    case_55_57_a_repeated_send(s) {
        create(s);
        let first = send(s, "g", "d", "x");
        let again = send(s, "g", "d", "y");
        assert_eq!(again["MessageId"], first["MessageId"]);
        assert_eq!(again["SequenceNumber"], first["SequenceNumber"]);
        let got = s.receive("q.fifo", json!({"MaxNumberOfMessages": 10}));
        assert_eq!(got.len(), 1);
        s.delete("q.fifo", &got[0]).yes();
        send(s, "g", "d", "z");
        assert_eq!(s.receive("q.fifo", json!({})).len(), 0);
        let entry = |id: &str| json!({"Id": id, "MessageBody": id, "MessageGroupId": "g", "MessageDeduplicationId": "e"});
        let batch = s.jq("SendMessageBatch", "q.fifo", json!({"Entries": [entry("1"), entry("2")]})).yes();
        assert_eq!(batch["Successful"][0]["MessageId"], batch["Successful"][1]["MessageId"]);
        assert_eq!(s.counts("q.fifo")[0], "1");
    }

    case_56_scopes_of_a_repeated_send(s) {
        create(s);
        let id = |of: Value| of["MessageId"].clone();
        assert_eq!(id(send(s, "g1", "d", "x")), id(send(s, "g2", "d", "x")));
        let set = |attributes: Value| s.jq("SetQueueAttributes", "q.fifo", json!({"Attributes": attributes})).yes();
        set(json!({"DeduplicationScope": "messageGroup"}));
        assert_ne!(id(send(s, "g1", "d", "x")), id(send(s, "g2", "d", "x")));
        set(json!({"DeduplicationScope": "queue", "ContentBasedDeduplication": "true"}));
        let content = |body: &str| {
            let input = json!({"MessageBody": body, "MessageGroupId": "g"});
            id(s.jq("SendMessage", "q.fifo", input).yes())
        };
        let first = content("body x");
        assert_eq!(content("body x"), first);
        // The hash of the body, as an id.
        let hash = quintet_sqs::sign::sha256(b"body x");
        assert_eq!(id(send(s, "g", &hash, "other")), first);
    }

    case_42_handles_of_fifo_queues_end_with_their_lease(s) {
        create(s);
        send(s, "g", "1", "x");
        let old = s.receive("q.fifo", json!({"VisibilityTimeout": 0}));
        let text = s.delete("q.fifo", &old[0]).no(400, "InvalidParameterValueException");
        assert!(text.ends_with("The receipt handle has expired."), "{text}");
        let new = s.receive("q.fifo", json!({"WaitTimeSeconds": 20, "VisibilityTimeout": 60}));
        let longer = json!({"ReceiptHandle": new[0]["ReceiptHandle"], "VisibilityTimeout": 600});
        s.jq("ChangeMessageVisibility", "q.fifo", longer).yes();
        s.delete("q.fifo", &new[0]).yes();
        assert_eq!(s.counts("q.fifo"), ["0", "0", "0"]);
        s.delete("q.fifo", &new[0]).yes();
    }

    case_51_a_group_is_one_receivers_at_a_time(s) {
        create(s);
        for (group, body) in [("g1", "a"), ("g1", "b"), ("g1", "c"), ("g2", "d")] {
            send(s, group, body, body);
        }
        let ten = json!({"MaxNumberOfMessages": 10});
        let first = s.receive("q.fifo", json!({}));
        assert_eq!(first[0]["Body"], "a");
        assert_eq!(s.bodies("q.fifo", ten.clone()), ["d"]);
        s.delete("q.fifo", &first[0]).yes();
        assert_eq!(s.bodies("q.fifo", ten), ["b", "c"]);
    }

    case_52_several_are_of_one_group_first(s) {
        create(s);
        for (group, body) in [("g1", "a"), ("g1", "b"), ("g2", "c"), ("g1", "d")] {
            send(s, group, body, body);
        }
        assert_eq!(s.bodies("q.fifo", json!({"MaxNumberOfMessages": 3})), ["a", "b", "d"]);
        assert_eq!(s.bodies("q.fifo", json!({})), ["c"]);
    }

    case_53_an_extended_message_blocks_later_ones(s) {
        for (extended, then) in [("b", &["a"][..]), ("c", &["a", "b"]), ("a", &[])] {
            create(s);
            for body in ["a", "b", "c"] {
                send(s, "g", body, body);
            }
            let got = s.receive("q.fifo", json!({"MaxNumberOfMessages": 10, "VisibilityTimeout": 60}));
            assert_eq!(got.len(), 3);
            let change = |message: &Value, seconds: u32| {
                let input = json!({"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": seconds});
                s.jq("ChangeMessageVisibility", "q.fifo", input).yes();
            };
            let (longer, others): (Vec<_>, Vec<_>) =
                got.iter().partition(|message| message["Body"] == extended);
            for (messages, seconds) in [(longer, 600), (others, 1)] {
                for message in messages {
                    change(message, seconds);
                }
            }
            await_that("the others' time is never over", || s.counts("q.fifo") == ["2", "1", "0"]);
            assert_eq!(s.bodies("q.fifo", json!({"MaxNumberOfMessages": 5})), then, "{extended}");
            s.jq("DeleteQueue", "q.fifo", json!({})).yes();
        }
    }

    case_58_a_repeated_receive(s) {
        create(s);
        for body in ["a", "b", "c"] {
            send(s, body, body, body);
        }
        let ask = |id: &str| {
            let input = json!({"MaxNumberOfMessages": 2, "ReceiveRequestAttemptId": id, "AttributeNames": ["All"]});
            s.receive("q.fifo", input)
        };
        let first = ask("r");
        assert_eq!(first.len(), 2);
        let again = ask("r");
        assert_eq!(again.len(), 2);
        for (again, first) in again.iter().zip(&first) {
            for member in ["MessageId", "ReceiptHandle", "Body"] {
                assert_eq!(again[member], first[member], "{member}");
            }
            assert_eq!(again["Attributes"]["ApproximateReceiveCount"], "1");
        }
        assert_eq!(first[0]["Attributes"]["ApproximateReceiveCount"], "1");
        let other = ask("s");
        assert_eq!((other.len(), &other[0]["Body"]), (1, &json!("c")));
        // Its handles are good.
        s.delete("q.fifo", &first[0]).yes();
        assert_eq!(ask("r").len(), 0, "it is another receive, and all are in flight");
        // With another visibility, and as changed.
        let input = json!({"ReceiptHandle": other[0]["ReceiptHandle"], "VisibilityTimeout": 900});
        s.jq("ChangeMessageVisibility", "q.fifo", input).yes();
        assert_eq!(ask("s").len(), 0);
        // A standard queue has no such thing.
        s.create("q");
        s.send("q", "x");
        let input = || json!({"ReceiveRequestAttemptId": "r"});
        assert_eq!(s.receive("q", input()).len(), 1);
        assert_eq!(s.receive("q", input()).len(), 0);
    }

    case_54_released_messages_come_in_order(s) {
        create(s);
        for body in ["a", "b"] {
            send(s, "g", body, body);
        }
        let both = s.receive("q.fifo", json!({"MaxNumberOfMessages": 10}));
        let change = json!({"ReceiptHandle": both[0]["ReceiptHandle"], "VisibilityTimeout": 0});
        s.jq("ChangeMessageVisibility", "q.fifo", change).yes();
        assert_eq!(s.bodies("q.fifo", json!({"MaxNumberOfMessages": 10})), ["a"]);
    }

    case_59_order_is_that_of_all_protocols(s) {
        create(s);
        for body in ["a", "b"] {
            send(s, "g1", body, body);
        }
        let mut memcache = s.server.client_of("memcache");
        memcache.ask(b"get q.fifo/open\r\n", b"VALUE q.fifo 0 1\r\na\r\nEND\r\n");
        let mut beanstalk = s.server.client_of("beanstalk");
        beanstalk.send(b"watch q.fifo\r\nreserve-with-timeout 0\r\n");
        beanstalk.expect(b"WATCHING 2\r\nTIMED_OUT\r\n");
        assert_eq!(s.receive("q.fifo", json!({})).len(), 0);
        memcache.ask(b"get q.fifo/close\r\n", b"END\r\n");
        beanstalk.ask(b"reserve\r\n", b"RESERVED ");
    }

    case_60_a_noisy_group_stands_behind(s) {
        s.create("q");
        let send = |group: &str, from: usize, to: usize| {
            for at in (from..to).step_by(10) {
                let entries: Vec<Value> = (at..to.min(at + 10))
                    .map(|n| json!({"Id": n.to_string(), "MessageBody": group, "MessageGroupId": group}))
                    .collect();
                s.jq("SendMessageBatch", "q", json!({"Entries": entries})).yes();
            }
        };
        send("A", 0, 40);
        for _ in 0..4 {
            assert_eq!(s.receive("q", json!({"MaxNumberOfMessages": 10})).len(), 10);
        }
        send("A", 0, 100);
        send("B", 0, 1);
        assert_eq!(s.bodies("q", json!({})), ["B"]);
        assert_eq!(s.bodies("q", json!({})), ["A"]);
    }
}

/// Case 55: what was sent is known over a kill.
#[test]
fn case_55_repeats_over_a_kill() {
    let s = Sqs::start(4, "");
    create(&s);
    let first = send(&s, "g", "d", "x");
    let s = s.kill_and_start();
    assert_eq!(send(&s, "g", "d", "x")["MessageId"], first["MessageId"]);
    assert_eq!(s.counts("q.fifo")[0], "1");
}
