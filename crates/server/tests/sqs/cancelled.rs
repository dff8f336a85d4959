//! Cancelled messages, as consumers of SQS see them.

use serde_json::{Value, json};

use crate::cases;
use crate::client::{Answer, Says as _, Sqs};

fn cancel(s: &Sqs, grace: &str) {
    let (output, why, code) = s
        .server
        .outputs(&["cancel", "q", "--grace", grace, "--yes", "--quiet"]);
    assert_eq!(
        (output.as_str(), code),
        ("1 message cancelled\n", 0),
        "{why}"
    );
}

cases! {
    a_handle_deletes_until_the_grace_is_over_but_does_not_extend(s) {
        s.create("q");
        s.send("q", "a");
        s.send("q", "b");
        let change = |message: &Value, seconds: u32| {
            let input = json!({"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": seconds});
            s.jq("ChangeMessageVisibility", "q", input)
        };
        let got = s.receive("q", json!({"MaxNumberOfMessages": 1, "VisibilityTimeout": 600}));
        // The other one waits, and is gone at once.
        let (output, _, _) = s.server.outputs(&["cancel", "q", "--grace", "10m", "--yes", "--quiet"]);
        assert_eq!(output, "2 messages cancelled\n");
        assert_eq!(s.counts("q"), ["0", "1", "0"]);
        let is_gone = |answer: Answer| {
            let text = answer.no(400, "InvalidParameterValueException");
            assert!(text.contains("Message does not exist"), "{text}");
        };
        is_gone(change(&got[0], 700));
        let handle = &got[0]["ReceiptHandle"];
        let entry = json!({"Id": "1", "ReceiptHandle": handle, "VisibilityTimeout": 700});
        let input = json!({"Entries": [entry]});
        let done = s.jq("ChangeMessageVisibilityBatch", "q", input).yes();
        assert_eq!(done["Failed"][0]["Id"], "1", "{done}");
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
        is_gone(change(&got[0], 5));
    }
}
