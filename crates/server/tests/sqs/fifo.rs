//! Cases 49 to 60: FIFO queues, and fair ones.

use serde_json::{Value, json};

use crate::cases;
use crate::client::Sqs;

fn create(s: &Sqs) {
    s.create_with("q.fifo", json!({"FifoQueue": "true"}));
}

fn send(s: &Sqs, group: &str, id: &str, body: &str) -> Value {
    let input = json!({"MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": id});
    s.jq("SendMessage", "q.fifo", input).yes()
}

cases! {
    case_49_what_a_fifo_queue_asks_for(s) {
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
        let number = |of: &Value| of["SequenceNumber"].as_str().expect("told").to_owned();
        assert_eq!(number(&first).len(), 20);
        assert!(number(&first) < number(&second));
        let got = s.receive("q.fifo", json!({"AttributeNames": ["All"]}));
        let told = &got[0]["Attributes"];
        assert_eq!(told["SequenceNumber"], first["SequenceNumber"]);
        assert_eq!((&told["MessageGroupId"], &told["MessageDeduplicationId"]), (&json!("g"), &json!("1")));
    }

    case_55_57_what_is_sent_again(s) {
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

    case_56_scopes_of_what_is_sent_again(s) {
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
