//! Cancelled messages, as consumers of SQS see them.

use serde_json::{Value, json};

use crate::cases;
use crate::client::{Says as _, Sqs};

fn cancel(s: &Sqs, grace: &str) {
    let (told, why, code) = s
        .server
        .outputs(&["cancel", "q", "--grace", grace, "--yes", "--quiet"]);
    assert_eq!((told.as_str(), code), ("1 message cancelled\n", 0), "{why}");
}

cases! {
    a_handle_is_good_until_the_grace_is_over(s) {
        s.create("q");
        s.send("q", "a");
        s.send("q", "b");
        let change = |message: &Value, seconds: u32| {
            let input = json!({"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": seconds});
            s.jq("ChangeMessageVisibility", "q", input)
        };
        let got = s.receive("q", json!({"MaxNumberOfMessages": 1, "VisibilityTimeout": 600}));
        // The other one waits, and is gone at once.
        let (told, _, _) = s.server.outputs(&["cancel", "q", "--grace", "10m", "--yes", "--quiet"]);
        assert_eq!(told, "2 messages cancelled\n");
        assert_eq!(s.counts("q"), ["0", "1", "0"]);
        change(&got[0], 700).yes();
        s.delete("q", &got[0]).yes();
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
        // A consumer that gives it back has ended its work.
        s.send("q", "c");
        let got = s.receive("q", json!({"VisibilityTimeout": 600}));
        cancel(s, "10m");
        change(&got[0], 0).yes();
        assert_eq!(s.counts("q"), ["0", "0", "0"]);
        s.send("q", "d");
        let got = s.receive("q", json!({"VisibilityTimeout": 600}));
        cancel(s, "0s");
        let text = change(&got[0], 5).no(400, "InvalidParameterValueException");
        assert!(text.contains("Message does not exist"), "{text}");
    }
}
