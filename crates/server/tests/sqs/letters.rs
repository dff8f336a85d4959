//! Cases 61 to 65: dead letters, and moves of them.

use crate::common::await_that;

use serde_json::{Value, json};

use crate::cases;
use crate::client::{Says, Sqs};

fn policy(target: &str, count: &Value) -> String {
    let arn = format!("arn:aws:sqs:us-east-1:000000000000:{target}");
    json!({"deadLetterTargetArn": arn, "maxReceiveCount": count}).to_string()
}

fn with_dead(s: &Sqs, count: &Value) {
    s.create("dead");
    s.create_with("q", json!({"RedrivePolicy": policy("dead", count)}));
}

fn arn(name: &str) -> String {
    format!("arn:aws:sqs:us-east-1:000000000000:{name}")
}

fn task(s: &Sqs) -> Value {
    s.j("ListMessageMoveTasks", json!({"SourceArn": arn("dead")}))
        .yes()["Results"][0]
        .clone()
}

cases! {
    case_61_dead_letters(s) {
        with_dead(s, &json!("2"));
        let sent = s.jq("SendMessage", "q", json!({"MessageBody": "x", "MessageAttributes":
            {"a": {"DataType": "String", "StringValue": "b"}}})).yes();
        for _ in 0..2 {
            assert_eq!(s.receive("q", json!({"VisibilityTimeout": 0, "WaitTimeSeconds": 20})).len(), 1);
        }
        let input = json!({"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "WaitTimeSeconds": 20});
        let got = s.receive("dead", input);
        assert_eq!(got[0]["MessageId"], sent["MessageId"]);
        assert_eq!(got[0]["Attributes"]["ApproximateReceiveCount"], "3");
        assert_eq!(got[0]["Attributes"]["DeadLetterQueueSourceArn"], arn("q"));
        assert_eq!(got[0]["MessageAttributes"]["a"]["StringValue"], "b");
        assert_eq!(got[0]["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"]);
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
    }

    case_62_policies_that_cannot_be(s) {
        with_dead(s, &json!(5));
        s.create_with("dead.fifo", json!({"FifoQueue": "true"}));
        let set = |policy: String| s.jq("SetQueueAttributes", "q", json!({"Attributes": {"RedrivePolicy": policy}}));
        let invalid = "InvalidParameterValueException";
        for (policy, reason) in [
            (policy("none", &json!(1)), "Dead letter target does not exist."),
            (policy("dead.fifo", &json!(1)), "Dead-letter queue must be same type of queue as the source."),
            (policy("dead", &json!(0)), "valid values are from 1 to 1000 both inclusive."),
            (policy("dead", &json!(1001)), "valid values are from 1 to 1000 both inclusive."),
            (policy("dead", &json!("x")), "valid values are from 1 to 1000 both inclusive."),
        ] {
            let text = set(policy).no(400, invalid);
            assert!(text.ends_with(reason), "{text}");
        }
        let text = set(json!({"deadLetterTargetArn": arn("dead")}).to_string()).no(400, invalid);
        assert!(text.ends_with("does not contain mandatory attribute: maxReceiveCount."), "{text}");
        set(String::new()).yes();
        assert_eq!(s.attribute("q", "RedrivePolicy"), None);
        let deny = json!({"Attributes": {"RedriveAllowPolicy": "{\"redrivePermission\":\"denyAll\"}"}});
        s.jq("SetQueueAttributes", "dead", deny).yes();
        set(policy("dead", &json!(5))).no(400, invalid);
    }

    case_63_whose_dead_letters_come(s) {
        with_dead(s, &json!(5));
        let list = |queue: &str| s.jq("ListDeadLetterSourceQueues", queue, json!({})).body;
        assert_eq!(list("dead"), format!("{{\"queueUrls\":[\"{}\"]}}", s.url("q")));
        assert_eq!(list("q"), "{\"queueUrls\":[]}");
    }

    case_64_moving_dead_letters_back(s) {
        with_dead(s, &json!(1));
        for body in ["a", "b"] {
            s.send("q", body);
            s.receive("q", json!({"VisibilityTimeout": 0}));
        }
        await_that("it comes", || s.counts("dead")[0] == "2");
        let start = |input: Value| s.j("StartMessageMoveTask", input);
        let begun = start(json!({"SourceArn": arn("dead")})).yes();
        assert!(begun["TaskHandle"].is_string());
        await_that("it comes", || task(s)["Status"] == "COMPLETED");
        let done = task(s);
        assert_eq!(done["ApproximateNumberOfMessagesMoved"], 2);
        assert!(done.get("TaskHandle").is_none(), "{done}");
        let got = s.receive("q", json!({"AttributeNames": ["ApproximateReceiveCount"], "MaxNumberOfMessages": 10}));
        assert_eq!(got.len(), 2);
        assert_eq!(got[0]["Attributes"]["ApproximateReceiveCount"], "1");
        let text = start(json!({"SourceArn": arn("q")})).no(400, "InvalidParameterValueException");
        assert_eq!(text, "Source queue must be configured as a Dead Letter Queue.");
        let text = start(json!({"SourceArn": arn("none")})).no(404, "ResourceNotFoundException");
        assert!(text.contains("SourceArn"), "{text}");
        let to = json!({"SourceArn": arn("dead"), "DestinationArn": arn("none")});
        let text = start(to).no(404, "ResourceNotFoundException");
        assert!(text.contains("DestinationArn"), "{text}");
        let other = json!({"QueueName": "other.fifo", "Attributes": {"FifoQueue": "true"}});
        s.j("CreateQueue", other).yes();
        for (to, why) in [("dead", "the source queue"), ("other.fifo", "of the same type")] {
            let to = json!({"SourceArn": arn("dead"), "DestinationArn": arn(to)});
            let text = start(to).no(400, "InvalidParameterValueException");
            assert!(text.contains(why), "{text}");
        }
    }
}

/// Section 12: a queue that is gone is not made again by what goes back to it.
#[test]
fn a_move_back_to_a_queue_that_is_gone_fails() {
    for shards in [1, 4] {
        let s = Sqs::start(shards, "");
        with_dead(&s, &json!(1));
        let policy = json!({"RedrivePolicy": policy("dead", &json!(1))});
        s.create_with("other", policy);
        s.send("q", "a");
        s.receive("q", json!({"VisibilityTimeout": 0}));
        await_that("it comes", || s.counts("dead")[0] == "1");
        s.jq("DeleteQueue", "q", json!({})).yes();
        s.j("StartMessageMoveTask", json!({"SourceArn": arn("dead")}))
            .yes();
        await_that("it comes", || task(&s)["Status"] == "FAILED");
        let failed = task(&s);
        assert_eq!(
            failed["FailureReason"],
            "AWS.SimpleQueueService.NonExistentQueue"
        );
        assert_eq!(s.counts("dead")[0], "1");
        s.jq("GetQueueAttributes", "q", json!({}))
            .no(400, "QueueDoesNotExist");
    }
}

/// Case 65: a move at a rate, which a kill does not end, and its being cancelled.
#[test]
fn case_65_a_move_goes_on_after_a_kill_and_can_be_cancelled() {
    for shards in [1, 4] {
        let s = Sqs::start(shards, "");
        with_dead(&s, &json!(1));
        s.create("to");
        for n in 0..20 {
            s.send("q", &n.to_string());
            s.receive("q", json!({"VisibilityTimeout": 0}));
        }
        await_that("it comes", || s.counts("dead")[0] == "20");
        let input = json!({"SourceArn": arn("dead"), "DestinationArn": arn("to"), "MaxNumberOfMessagesPerSecond": 1});
        let begun = s.j("StartMessageMoveTask", input.clone()).yes();
        let second = s
            .j("StartMessageMoveTask", input)
            .no(400, "InvalidParameterValueException");
        assert!(
            second.starts_with("There is already a task running."),
            "{second}"
        );
        let running = task(&s);
        assert_eq!(
            (&running["Status"], &running["TaskHandle"]),
            (&json!("RUNNING"), &begun["TaskHandle"])
        );
        let moved = |s: &Sqs| {
            task(s)["ApproximateNumberOfMessagesMoved"]
                .as_u64()
                .unwrap_or(0)
        };
        await_that("it comes", || moved(&s) >= 1);
        let s = s.kill_and_start();
        await_that("it comes", || moved(&s) >= 2);
        let cancelled = s
            .j(
                "CancelMessageMoveTask",
                json!({"TaskHandle": begun["TaskHandle"]}),
            )
            .yes();
        assert!(cancelled["ApproximateNumberOfMessagesMoved"].as_u64() >= Some(2));
        assert_eq!(task(&s)["Status"], "CANCELLED");
        s.j(
            "CancelMessageMoveTask",
            json!({"TaskHandle": begun["TaskHandle"]}),
        )
        .no(404, "ResourceNotFoundException");
        s.j("CancelMessageMoveTask", json!({"TaskHandle": "x"}))
            .no(400, "InvalidParameterValueException");
        let number = |queue: &str| s.counts(queue)[0].parse::<u64>().expect("a number");
        assert_eq!(number("to") + number("dead"), 20);
        assert!(number("dead") > 0);
    }
}
