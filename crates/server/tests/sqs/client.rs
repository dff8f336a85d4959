//! A client of the protocol that sends exactly the given bytes, over sockets.

use quintet_faults::{Faults, Undo};
use serde_json::{Value, json};

pub(crate) use crate::common::Reply as Answer;
use crate::common::{Connection, PATIENCE, Server, Start, faults, http};

/// A server with the protocol, and the directory it lives in.
pub(crate) struct Sqs {
    pub(crate) server: Server,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) address: String,
    setup: Setup,
}

/// How a server is started, each time.
#[derive(Default)]
struct Setup {
    listen: Vec<String>,
    sync: Option<&'static str>,
    /// Text of the configuration file.
    config: String,
    faults: Option<Faults>,
}

/// Checks of an answer.
pub(crate) trait Says {
    /// The JSON of an answer that says yes.
    fn yes(&self) -> Value;
    /// The text of an error of this kind.
    fn no(&self, status: u16, shape: &str) -> String;
}

impl Says for Answer {
    fn yes(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn no(&self, status: u16, shape: &str) -> String {
        let body = self.json();
        let named = body["__type"].as_str().unwrap_or_default();
        assert!(
            self.status == status && named.ends_with(&format!("#{shape}")),
            "wanted {shape}, {status}: {self:?}"
        );
        body["message"].as_str().unwrap_or_default().to_owned()
    }
}

pub(crate) fn listener(options: &str) -> String {
    match options {
        "" => "sqs=127.0.0.1:0".to_owned(),
        options => format!("sqs=127.0.0.1:0,{options}"),
    }
}

fn listeners(options: &str, others: &[&str]) -> Vec<String> {
    let others = others.iter().map(|other| (*other).to_owned());
    others.chain([listener(options)]).collect()
}

impl Sqs {
    pub(crate) fn start(shards: u64, options: &str) -> Self {
        Self::start_with(&format!("shards = {shards}\n"), options, None)
    }

    /// With this configuration, and this policy of syncs.
    pub(crate) fn start_with(config: &str, options: &str, sync: Option<&'static str>) -> Self {
        let setup = Setup {
            listen: listeners(options, &["memcache=0", "beanstalk=0"]),
            sync,
            config: config.to_owned(),
            faults: None,
        };
        Self::serve(tempfile::tempdir().expect("a directory"), setup)
    }

    /// Under faults, of which a cut undoes what was not synced, with this policy of syncs.
    pub(crate) fn start_under_faults(config: &str, options: &str, sync: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let faults = faults(&dir.path().join("data"));
        faults.undo(Undo::Pages);
        let setup = Setup {
            listen: listeners(options, &["memcache=0", "beanstalk=0"]),
            sync: Some(sync),
            config: config.to_owned(),
            faults: Some(faults),
        };
        Self::serve(dir, setup)
    }

    /// With the listener http beside it, which makes a queue of its own.
    pub(crate) fn start_with_http() -> Self {
        let setup = Setup {
            listen: listeners("", &["http=0"]),
            ..Setup::default()
        };
        Self::serve(tempfile::tempdir().expect("a directory"), setup)
    }

    fn serve(dir: tempfile::TempDir, setup: Setup) -> Self {
        let listen: Vec<&str> = setup.listen.iter().map(String::as_str).collect();
        let start = Start {
            config: Some(&setup.config),
            listen: &listen,
            sync: setup.sync,
        };
        let data = dir.path().join("data");
        let server = match &setup.faults {
            Some(faults) => Server::start_under(faults, &data, &start),
            None => start.serve_at(&data),
        };
        Self {
            address: server.address_of("sqs").to_owned(),
            server,
            dir,
            setup,
        }
    }

    pub(crate) fn faults(&self) -> &Faults {
        self.setup.faults.as_ref().expect("started under faults")
    }

    /// Kills the server where it stands and starts it again.
    pub(crate) fn kill_and_start(self) -> Self {
        let Self {
            server, dir, setup, ..
        } = self;
        server.kill();
        Self::serve(dir, setup)
    }

    /// Cuts the power, which undoes what was not synced, and starts the server again.
    pub(crate) fn cut_and_start(self) -> Self {
        let Self {
            server, dir, setup, ..
        } = self;
        let faults = setup.faults.as_ref().expect("started under faults");
        let before = faults.cuts();
        faults.cut();
        let status = server.ended();
        assert_eq!(faults.cuts(), before + 1, "{status}: not by a cut");
        Self::serve(dir, setup)
    }

    /// The URL of a queue.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/000000000000/{name}", self.address)
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::tcp(&self.address, PATIENCE).expect("connected")
    }

    /// Sends a whole request, head and body.
    pub(crate) fn raw(&self, request: &[u8]) -> Answer {
        let mut connection = self.connect();
        connection.send(request).expect("sent");
        answer(&mut connection)
    }

    /// A request with these headers, each with its line end.
    pub(crate) fn request(&self, line: &str, headers: &str, body: &str) -> Answer {
        let host = match headers.contains("Host:") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.address),
        };
        let len = body.len();
        let text = format!(
            "{line} HTTP/1.1\r\n{host}Content-Length: {len}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
        self.raw(text.as_bytes())
    }

    /// JSON.
    pub(crate) fn j(&self, action: &str, input: Value) -> Answer {
        self.j_with(action, "", &input.to_string())
    }

    pub(crate) fn j_with(&self, action: &str, headers: &str, body: &str) -> Answer {
        let headers = format!(
            "Content-Type: application/x-amz-json-1.0\r\nX-Amz-Target: AmazonSQS.{action}\r\n{headers}"
        );
        self.request("POST /", &headers, body)
    }

    /// The same about a queue.
    pub(crate) fn jq(&self, action: &str, queue: &str, mut input: Value) -> Answer {
        input["QueueUrl"] = json!(self.url(queue));
        self.j(action, input)
    }

    /// A form.
    pub(crate) fn q(&self, form: &str) -> Answer {
        self.q_at("/", form)
    }

    pub(crate) fn q_at(&self, path: &str, form: &str) -> Answer {
        let headers = "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n";
        self.request(&format!("POST {path}"), headers, form)
    }

    pub(crate) fn create(&self, name: &str) {
        self.create_with(name, json!({}));
    }

    pub(crate) fn create_with(&self, name: &str, attributes: Value) {
        let input = json!({"QueueName": name, "Attributes": attributes});
        let made = self.j("CreateQueue", input).yes();
        assert_eq!(made["QueueUrl"], self.url(name));
    }

    pub(crate) fn send(&self, queue: &str, body: &str) -> Value {
        self.jq("SendMessage", queue, json!({"MessageBody": body}))
            .yes()
    }

    /// Messages of a queue.
    pub(crate) fn receive(&self, queue: &str, input: Value) -> Vec<Value> {
        let mut got = self.jq("ReceiveMessage", queue, input).yes();
        match got["Messages"].take() {
            Value::Array(messages) => messages,
            _ => Vec::new(),
        }
    }

    pub(crate) fn bodies(&self, queue: &str, input: Value) -> Vec<String> {
        let messages = self.receive(queue, input);
        let bodies = messages
            .iter()
            .map(|m| m["Body"].as_str().unwrap_or_default().to_owned());
        bodies.collect()
    }

    pub(crate) fn delete(&self, queue: &str, message: &Value) -> Answer {
        self.jq(
            "DeleteMessage",
            queue,
            json!({"ReceiptHandle": message["ReceiptHandle"]}),
        )
    }

    pub(crate) fn attribute(&self, queue: &str, name: &str) -> Option<String> {
        let input = json!({"AttributeNames": [name]});
        let got = self.jq("GetQueueAttributes", queue, input).yes();
        got["Attributes"][name].as_str().map(str::to_owned)
    }

    /// Waiting, in flight, delayed.
    pub(crate) fn counts(&self, queue: &str) -> [String; 3] {
        ["", "NotVisible", "Delayed"].map(|what| {
            let name = format!("ApproximateNumberOfMessages{what}");
            self.attribute(queue, &name).expect("counted")
        })
    }
}

/// Reads an answer.
pub(crate) fn answer(from: &mut Connection) -> Answer {
    http::read(from).expect("an answer")
}

/// The text between two tags.
pub(crate) fn between<'a>(text: &'a str, tag: &str) -> &'a str {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let rest = text
        .split_once(&open)
        .unwrap_or_else(|| panic!("no {tag}: {text}"))
        .1;
    rest.split_once(&close).expect("closed").0
}
