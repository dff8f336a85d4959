//! Checks from other people's suites, recorded against AWS, beyond the numbered cases.

use serde_json::{Value, json};

use crate::cases;
use crate::client::{Says, Sqs};
use crate::common::await_that;
use crate::fifo::{create, send};

/// Longer than a test takes, ms.
const LONG: &str = "900";

cases! {
    a_purged_queue_takes_the_ids_it_knew(s) {
        create(s);
        s.jq("SetQueueAttributes", "q.fifo",
            json!({"Attributes": {"ContentBasedDeduplication": "true"}})).yes();
        let content = || s.jq("SendMessage", "q.fifo",
            json!({"MessageBody": "x", "MessageGroupId": "g"})).yes()["MessageId"].clone();
        for receives in [0, 1] {
            let (by_content, by_id) = (content(), send(s, "g", "d", "y")["MessageId"].clone());
            assert_eq!((content(), send(s, "g", "d", "y")["MessageId"].clone()), (by_content, by_id));
            for _ in 0..receives {
                s.receive("q.fifo", json!({"MaxNumberOfMessages": 10}));
            }
            s.jq("PurgeQueue", "q.fifo", json!({})).yes();
            assert_eq!(s.counts("q.fifo"), ["0", "0", "0"]);
        }
        content();
        send(s, "g", "d", "y");
        assert_eq!(s.bodies("q.fifo", json!({"MaxNumberOfMessages": 10})), ["x", "y"]);
    }

    a_queue_whose_visibility_is_none_hides_nothing(s) {
        s.create_with("q", json!({"VisibilityTimeout": "0"}));
        s.create_with("q.fifo", json!({"FifoQueue": "true", "VisibilityTimeout": "0"}));
        s.send("q", "x");
        send(s, "g", "d", "x");
        for queue in ["q", "q.fifo"] {
            for count in 1..=20 {
                let wanted = json!({"AttributeNames": ["ApproximateReceiveCount"]});
                let got = s.receive(queue, wanted);
                assert_eq!(got.len(), 1, "{queue}, receive {count}");
                let delivered = got[0]["Attributes"]["ApproximateReceiveCount"].as_str();
                assert_eq!(delivered, Some(count.to_string().as_str()));
            }
            assert_eq!(s.counts(queue), ["1", "0", "0"]);
            // A receive that says how long hides for so long.
            assert_eq!(s.bodies(queue, json!({"VisibilityTimeout": 600})), ["x"]);
            assert_eq!(s.counts(queue), ["0", "1", "0"]);
        }
    }

    a_delay_of_a_fifo_queue_is_that_of_its_messages(s) {
        let delay = |queue: &str, seconds: &str| {
            s.jq("SetQueueAttributes", queue, json!({"Attributes": {"DelaySeconds": seconds}})).yes();
        };
        s.create_with("q", json!({"DelaySeconds": LONG}));
        s.create_with("q.fifo", json!({"FifoQueue": "true", "DelaySeconds": LONG}));
        s.send("q", "x");
        for n in 0..250 {
            send(s, &(n % 7).to_string(), &n.to_string(), "x");
        }
        assert_eq!(s.counts("q.fifo"), ["0", "0", "250"]);
        delay("q.fifo", "0");
        assert_eq!(s.counts("q.fifo"), ["250", "0", "0"]);
        // What was received is not delayed again.
        let got = s.receive("q.fifo", json!({"VisibilityTimeout": 600}));
        assert_eq!(got.len(), 1);
        delay("q.fifo", LONG);
        assert_eq!(s.counts("q.fifo"), ["0", "1", "249"]);
        let change = json!({"ReceiptHandle": got[0]["ReceiptHandle"], "VisibilityTimeout": 0});
        s.jq("ChangeMessageVisibility", "q.fifo", change).yes();
        assert_eq!(s.counts("q.fifo"), ["1", "0", "249"]);
        // It is counted from when they were sent.
        delay("q.fifo", "1");
        await_that("all are visible", || s.counts("q.fifo") == ["250", "0", "0"]);
        delay("q", "0");
        assert_eq!(s.counts("q"), ["0", "0", "1"]);
    }

    attributes_as_aws_takes_and_refuses_them(s) {
        s.create("q");
        let with = |name: &str, text: &str| s.jq("SendMessage", "q", json!({"MessageBody": "x",
            "MessageAttributes": {name: {"DataType": "String", "StringValue": text}}}));
        for odd in ["\u{0}", "a\u{7}", "\u{fffe}"] {
            let text = with("a", odd).no(400, "InvalidParameterValueException");
            assert!(text.starts_with("Invalid characters found."), "{text}");
        }
        let system = json!({"MessageBody": "x", "MessageSystemAttributes":
            {"AWSTraceHeader": {"DataType": "String", "StringValue": "a\u{7}"}}});
        s.jq("SendMessage", "q", system).no(400, "InvalidParameterValueException");
        for odd in ["a§", "a!", "a\"", "a(", "a?", "a b", "a/b", "é."] {
            with(odd, "v").no(400, "InvalidParameterValueException");
        }
        let name = "attr.1øßä";
        let sum = with(name, "v").yes()["MD5OfMessageAttributes"].clone();
        let got = s.receive("q", json!({"MessageAttributeNames": [name]}));
        assert_eq!(got[0]["MD5OfMessageAttributes"], sum);
        assert_eq!(got[0]["MessageAttributes"][name]["StringValue"], "v");
    }

    fifo_queue_false_is_an_unknown_attribute(s) {
        let make = |attributes: Value| s.j("CreateQueue", json!({"QueueName": "q", "Attributes": attributes}));
        for there in [false, true] {
            for word in ["false", "False"] {
                let text = make(json!({"FifoQueue": word})).no(400, "InvalidAttributeName");
                assert_eq!(text, "Unknown Attribute FifoQueue.", "{there}");
            }
            make(json!({})).yes();
        }
    }

    errors_of_batches_have_no_detail(s) {
        s.create("q");
        let entries = |ids: &[&str]| {
            let entry = |(at, id): (usize, &&str)| {
                let of = format!("SendMessageBatchRequestEntry.{}", at + 1);
                format!("&{of}.Id={id}&{of}.MessageBody=x")
            };
            let entries: String = ids.iter().enumerate().map(entry).collect();
            s.q_at("/000000000000/q", &format!("Action=SendMessageBatch&Version=2012-11-05{entries}"))
        };
        for (ids, code, detail) in [
            (&["%C3%A9"][..], "InvalidBatchEntryId", false),
            (&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"], "TooManyEntriesInBatchRequest", false),
            (&["a", "a"], "BatchEntryIdsNotDistinct", true),
            (&[], "EmptyBatchRequest", true),
        ] {
            let got = entries(ids);
            let code = format!("<Code>AWS.SimpleQueueService.{code}</Code>");
            assert!(got.status == 400 && got.body.contains(&code), "{got:?}");
            assert_eq!(got.body.contains("<Detail/>"), detail, "{got:?}");
        }
    }
}

#[test]
fn a_queue_whose_default_ttr_is_none_hides_nothing() {
    let s = Sqs::start_with("[[queue]]\nname = 'z'\ndefault_ttr = '0'\n", "", None);
    s.create("z");
    s.send("z", "x");
    for count in 1..=5 {
        assert_eq!(s.bodies("z", json!({})), ["x"], "receive {count}");
    }
    assert_eq!(s.counts("z"), ["1", "0", "0"]);
}
