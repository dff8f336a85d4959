//! What depends on hours, over a door whose time the test sets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use quintet_engine::{Ms, QueueSettings, Settings as EngineSettings};
use quintet_sim::door::SimDoor;
use quintet_sqs::{Keys, Options, Secrets, Sqs};
use quintet_web::{Settings, Socket, Web};
use serde_json::{Value, json};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
const BEGIN: Ms = Ms(1_800_000_000_000);
const SECOND: u64 = 1000;

/// The voice on a free port.
struct World {
    door: Arc<SimDoor>,
    address: SocketAddr,
    web: Option<Web>,
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(web) = self.web.take() {
            web.stop(Duration::ZERO);
        }
    }
}

impl World {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let door = SimDoor::new(EngineSettings::default(), BEGIN);
        let options = Options {
            account: "000000000000".to_owned(),
            region: "us-east-1".to_owned(),
            url: String::new(),
            keys: Keys::default(),
            auto_create: false,
            open: false,
            message_bytes_max: 1 << 20,
            retry_window: Duration::ZERO,
            purge_interval: Duration::ZERO,
            recreate_after: Duration::ZERO,
        };
        let sqs = Sqs::new(
            Settings::default(),
            options,
            Secrets::new(&[7; Secrets::BYTES]),
            Arc::new(|_| QueueSettings::default()),
            door.clone(),
        );
        let web = Web::start("sqs", vec![(Socket::Tcp(listener), sqs)]).expect("served");
        Self {
            door,
            address,
            web: Some(web),
        }
    }

    /// So long after the begin it is now.
    fn at(&self, ms: u64) {
        self.door.set_time(BEGIN + ms);
    }

    /// Asks about the queue `q.fifo`; the status, and what came.
    fn ask(&self, action: &str, mut input: Value) -> (u16, Value) {
        input["QueueUrl"] = json!("q.fifo");
        let body = input.to_string();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-amz-json-1.0\r\n\
             X-Amz-Target: AmazonSQS.{action}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n\
             {body}",
            self.address,
            body.len()
        );
        let mut socket = TcpStream::connect(self.address).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        socket.write_all(request.as_bytes()).expect("sent");
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("all of it");
        let (_, body) = rest.split_once("\r\n\r\n").expect("a head");
        let body = serde_json::from_str(body).expect("JSON");
        (status.expect("a status"), body)
    }

    fn yes(&self, action: &str, input: Value) -> Value {
        let (status, body) = self.ask(action, input);
        assert_eq!(status, 200, "{action}: {body}");
        body
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
