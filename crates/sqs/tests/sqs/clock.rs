//! Rules that depend on hours, over a client API whose time the test sets.

use quintet_sim::client_api::SimApi;
use serde_json::{Value, json};

use crate::world::{BEGIN, Served, sim};

const SECOND: u64 = 1000;

/// The protocol over such a client API, and a queue `q.fifo`.
struct World {
    client_api: std::sync::Arc<SimApi>,
    served: Served,
}

impl World {
    fn new() -> Self {
        let client_api = sim();
        Self {
            served: Served::new(client_api.clone()),
            client_api,
        }
    }

    /// So long after the begin it is now.
    fn at(&self, ms: u64) {
        self.client_api.set_time(BEGIN + ms);
    }

    fn ask(&self, action: &str, mut input: Value) -> (u16, Value) {
        input["QueueUrl"] = json!("q.fifo");
        self.served.ask(action, &input)
    }

    fn yes(&self, action: &str, mut input: Value) -> Value {
        input["QueueUrl"] = json!("q.fifo");
        self.served.yes(action, &input)
    }

    fn create(&self) {
        let fifo = json!({"QueueName": "q.fifo", "Attributes": {"FifoQueue": "true"}});
        self.yes("CreateQueue", fifo);
    }

    /// The id of the message that a send of this deduplication id is answered with.
    fn send(&self, id: &str) -> Value {
        let input =
            json!({"MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": id});
        self.yes("SendMessage", input)["MessageId"].clone()
    }

    fn receive(&self, input: Value) -> Vec<Value> {
        match self.yes("ReceiveMessage", input)["Messages"].take() {
            Value::Array(messages) => messages,
            _ => Vec::new(),
        }
    }

    fn delete(&self, message: &Value) -> (u16, Value) {
        let input = json!({"ReceiptHandle": message["ReceiptHandle"]});
        self.ask("DeleteMessage", input)
    }
}

/// Case 55: a repeat is one for five minutes from the first, whether that was received or not.
#[test]
fn case_55_a_repeat_is_a_new_message_after_five_minutes() {
    let world = World::new();
    world.create();
    let first = world.send("d");
    let other = world.send("other");
    assert_ne!(other, first);
    let got = world.receive(json!({"MaxNumberOfMessages": 1}));
    assert_eq!(got[0]["MessageId"], first);
    assert_eq!(world.delete(&got[0]).0, 200);
    // A repeat does not lengthen the time of the first.
    for ms in [100 * SECOND, 299_999] {
        world.at(ms);
        assert_eq!(world.send("d"), first, "{ms}");
        assert_eq!(world.send("other"), other, "{ms}");
    }
    world.at(300_001);
    let new = world.send("d");
    assert_ne!(new, first);
    assert_ne!(world.send("other"), other);
    world.at(600_000);
    assert_eq!(world.send("d"), new, "and it is known in its turn");
    let left = world.receive(json!({"MaxNumberOfMessages": 10}));
    assert_eq!(left.len(), 3);
}

/// Cases 42 and 43, to the millisecond: the time of a lease, and of a longer one.
#[test]
fn a_handle_counts_until_its_time_is_over() {
    let world = World::new();
    world.create();
    world.send("d");
    let change = |message: &Value, seconds: u64| {
        let input =
            json!({"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": seconds});
        world.ask("ChangeMessageVisibility", input)
    };
    let first = world.receive(json!({"VisibilityTimeout": 43_200}));
    world.at(43_199 * SECOND);
    assert_eq!(change(&first[0], 43_200).0, 200);
    world.at((43_199 + 43_200) * SECOND - 1);
    assert!(world.receive(json!({})).is_empty());
    world.at((43_199 + 43_200) * SECOND);
    let (status, refused) = world.delete(&first[0]);
    let text = refused["message"].as_str().unwrap_or_default();
    assert_eq!(status, 400);
    assert!(text.ends_with("The receipt handle has expired."), "{text}");
    let second = world.receive(json!({}));
    assert_eq!(second[0]["MessageId"], first[0]["MessageId"]);
    assert_eq!(change(&first[0], 1).0, 400, "it is the second's");
    assert_eq!(world.delete(&second[0]).0, 200);
    assert!(world.receive(json!({})).is_empty());
}
