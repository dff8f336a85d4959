//! Replies, and how each protocol writes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::fault::Fault;
use crate::request::WireFormat;
use crate::value::ValueKind;
use crate::xml::Xml;

/// The reply to an action, or its fault.
pub(crate) type Answer = Result<Reply, Fault>;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    /// Done, and nothing to tell.
    Done,
    /// So many messages were removed, which only the audit tells.
    Removed(u64),
    Queue(String),
    Queues {
        urls: Vec<String>,
        next: Option<String>,
        /// Told also if there are none, and with a small letter.
        sources: bool,
    },
    /// A queue's, by name.
    Attributes(Vec<(&'static str, String)>),
    Tags(Vec<(String, String)>),
    Sent(Box<Sent>),
    /// Result for each entry of a batch, with the protocol's name of an entry.
    SentBatch(Vec<(String, Box<Sent>)>, Vec<Failed>),
    Received(Vec<Received>),
    /// The kind of the batch, what was done and what was not.
    Batch(&'static str, Vec<String>, Vec<Failed>),
    TaskBegun(String),
    TaskCancelled(u64),
    Tasks(Vec<Task>),
}

/// A message that was put.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) md5: String,
    pub(crate) md5_of_attributes: Option<String>,
    pub(crate) md5_of_system: Option<String>,
    pub(crate) sequence: Option<String>,
}

/// An entry of a batch that was refused.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Failed {
    pub(crate) id: String,
    pub(crate) fault: Fault,
}

/// A message that is handed out.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Received {
    pub(crate) id: String,
    pub(crate) handle: String,
    pub(crate) md5: String,
    pub(crate) body: String,
    pub(crate) attributes: Vec<(&'static str, String)>,
    pub(crate) md5_of_attributes: Option<String>,
    pub(crate) values: Vec<Valued>,
}

/// An attribute of a message that is handed out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Valued {
    pub(crate) name: String,
    pub(crate) data_type: String,
    pub(crate) kind: ValueKind,
    pub(crate) bytes: Vec<u8>,
}

/// A move of messages back to where they came from.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Task {
    pub(crate) handle: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) source: String,
    pub(crate) destination: Option<String>,
    pub(crate) per_second: Option<u32>,
    pub(crate) moved: u64,
    pub(crate) to_move: Option<u64>,
    pub(crate) failure: Option<String>,
    pub(crate) started_ms: u64,
}

/// A reply, written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    /// `x-amzn-query-error`.
    pub(crate) error: Option<String>,
    pub(crate) body: Vec<u8>,
}

const JSON: &str = "application/x-amz-json-1.0";
const XML: &str = "text/xml";

/// Bytes of a reply at most, as it will be written.
pub(crate) fn len_max(format: WireFormat, reply: &Reply) -> usize {
    let escaped = |text: &str| -> usize {
        let bytes = text.bytes();
        match format {
            WireFormat::Json => bytes.map(json_len).sum(),
            WireFormat::Query => bytes.map(xml_len).sum(),
        }
    };
    match reply {
        Reply::Received(messages) => {
            let each = messages.iter().map(|message| {
                let texts = message.attributes.iter().map(|(_, text)| escaped(text));
                let values = message.values.iter().map(|value| {
                    let bytes = match value.kind {
                        ValueKind::Binary => value.bytes.len() * 2,
                        ValueKind::String | ValueKind::Number => value.bytes.len() * 6,
                    };
                    ELEMENT + escaped(&value.name) + escaped(&value.data_type) + bytes
                });
                escaped(&message.body)
                    + escaped(&message.handle)
                    + texts.map(|len| len + ELEMENT).sum::<usize>()
                    + values.sum::<usize>()
                    + MESSAGE
            });
            MESSAGE + each.sum::<usize>()
        }
        Reply::Queues { urls, .. } => {
            MESSAGE + urls.iter().map(|url| ELEMENT + escaped(url)).sum::<usize>()
        }
        Reply::Done
        | Reply::Removed(_)
        | Reply::Queue(_)
        | Reply::Attributes(_)
        | Reply::Tags(_)
        | Reply::Sent(_)
        | Reply::SentBatch(..)
        | Reply::Batch(..)
        | Reply::TaskBegun(_)
        | Reply::TaskCancelled(_)
        | Reply::Tasks(_) => MESSAGE,
    }
}

/// Bytes of names and punctuation around a message in a reply, or of a whole reply, at most.
const MESSAGE: usize = 1024;

/// The same around an attribute or a URL.
const ELEMENT: usize = 160;

fn json_len(byte: u8) -> usize {
    match byte {
        ..b' ' => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    }
}

fn xml_len(byte: u8) -> usize {
    match byte {
        b'"' => "&quot;".len(),
        b'&' | b'\r' => "&amp;".len(),
        b'<' | b'>' => "&lt;".len(),
        ..b' ' => '\u{fffd}'.len_utf8(),
        _ => 1,
    }
}

/// Writes a reply to an action, in memory for `len` bytes or as many as it needs; `request` is the
/// request's id.
pub(crate) fn write(
    format: WireFormat,
    action: &str,
    request: &str,
    (reply, len): (&Reply, usize),
) -> Written {
    let (content_type, body) = match format {
        WireFormat::Json => {
            let mut members = Json::begin(Vec::with_capacity(len));
            write_members(&mut members, reply);
            (JSON, members.finish())
        }
        WireFormat::Query => (XML, xml_of(action, request, (reply, len)).into_bytes()),
    };
    Written {
        status: 200,
        content_type,
        error: None,
        body,
    }
}

/// Writes an error.
pub(crate) fn refuse(format: WireFormat, request: &str, fault: &Fault) -> Written {
    let who = match fault.shape.is_sender() {
        true => "Sender",
        false => "Receiver",
    };
    match format {
        WireFormat::Json => {
            let (space, name) = (fault.shape.namespace(), fault.shape.name());
            let text = json!(fault.text);
            Written {
                status: fault.json_status(),
                content_type: JSON,
                error: Some(format!("{};{who}", fault.shape.code())),
                body: format!("{{\"__type\":\"{space}#{name}\",\"message\":{text}}}").into_bytes(),
            }
        }
        WireFormat::Query => {
            let mut xml = Xml::new();
            xml.root("ErrorResponse").open("Error");
            xml.text("Type", who)
                .text("Code", fault.shape.code())
                .text("Message", &fault.query_text());
            if fault.shape.has_detail() {
                xml.put_detail();
            }
            xml.close("Error");
            xml.text("RequestId", request).close("ErrorResponse");
            Written {
                status: fault.query_status(),
                content_type: XML,
                error: None,
                body: xml.finish().into_bytes(),
            }
        }
    }
}

/// Writes the members of a reply one after the other, in one of the formats. Absent ones are left
/// out.
trait Members: Sized {
    const FORMAT: WireFormat;

    fn text(&mut self, name: &str, text: &str);

    /// A number, or true or false.
    fn value(&mut self, name: &str, value: impl Into<Value>);

    /// Objects: JSON names the list of them, XML each of them.
    fn list<T>(&mut self, names: [&str; 2], of: &[T], each: impl FnMut(&mut Self, &T));

    /// Texts by name: JSON names all of them, XML each of them and its name.
    fn pairs<S: AsRef<str>>(&mut self, names: [&str; 3], of: &[(S, String)]);

    fn urls(&mut self, urls: &[String], sources: bool);

    fn valued(&mut self, values: &[Valued]);

    fn text_if(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }
}

/// An object that is being written.
struct Json {
    out: Vec<u8>,
    first: bool,
}

impl Json {
    fn begin(mut out: Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        string(&mut self.out, name);
        self.out.push(b':');
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(b'}');
        self.out
    }
}

impl Members for Json {
    const FORMAT: WireFormat = WireFormat::Json;

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        string(&mut self.out, text);
    }

    fn value(&mut self, name: &str, value: impl Into<Value>) {
        self.name(name);
        self.out
            .extend_from_slice(value.into().to_string().as_bytes());
    }

    fn list<T>(&mut self, names: [&str; 2], of: &[T], mut each: impl FnMut(&mut Self, &T)) {
        if of.is_empty() {
            return;
        }
        self.name(names[0]);
        self.out.push(b'[');
        for (number, one) in of.iter().enumerate() {
            if number > 0 {
                self.out.push(b',');
            }
            let mut members = Json::begin(std::mem::take(&mut self.out));
            each(&mut members, one);
            self.out = members.finish();
        }
        self.out.push(b']');
    }

    fn pairs<S: AsRef<str>>(&mut self, names: [&str; 3], of: &[(S, String)]) {
        let of_name = |(name, text): &(S, String)| -> (String, Value) {
            (name.as_ref().to_owned(), text.as_str().into())
        };
        if !of.is_empty() {
            let texts: Map<String, Value> = of.iter().map(of_name).collect();
            self.value(names[0], texts);
        }
    }

    fn urls(&mut self, urls: &[String], sources: bool) {
        if sources {
            self.value("queueUrls", urls);
        } else if !urls.is_empty() {
            self.value("QueueUrls", urls);
        }
    }

    fn valued(&mut self, values: &[Valued]) {
        let of = values.iter().map(|value| {
            let (member, text) = value.as_member();
            let value_of = json!({member: text, "DataType": value.data_type});
            (value.name.clone(), value_of)
        });
        if !values.is_empty() {
            self.value("MessageAttributes", of.collect::<Map<String, Value>>());
        }
    }
}

impl Members for Xml {
    const FORMAT: WireFormat = WireFormat::Query;

    fn text(&mut self, name: &str, text: &str) {
        Xml::text(self, name, text);
    }

    fn value(&mut self, name: &str, value: impl Into<Value>) {
        Xml::text(self, name, &value.into().to_string());
    }

    fn list<T>(&mut self, names: [&str; 2], of: &[T], mut each: impl FnMut(&mut Self, &T)) {
        for one in of {
            self.open(names[1]);
            each(self, one);
            self.close(names[1]);
        }
    }

    fn pairs<S: AsRef<str>>(&mut self, [_, element, key]: [&str; 3], of: &[(S, String)]) {
        for (name, text) in of {
            self.open(element);
            Xml::text(self, key, name.as_ref())
                .text("Value", text)
                .close(element);
        }
    }

    fn urls(&mut self, urls: &[String], _sources: bool) {
        for url in urls {
            Xml::text(self, "QueueUrl", url);
        }
    }

    fn valued(&mut self, values: &[Valued]) {
        for value in values {
            let (member, text) = value.as_member();
            self.open("MessageAttribute")
                .text("Name", &value.name)
                .open("Value")
                .text(member, &text)
                .text("DataType", &value.data_type)
                .close("Value")
                .close("MessageAttribute");
        }
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    // Most have nothing to escape. Without a branch for each byte.
    let plain = |b: u8| (b >= b' ') & (b != b'"') & (b != b'\\');
    let all_plain = |some: &[u8]| some.iter().fold(true, |all, &b| all & plain(b));
    if text.as_bytes().chunks(512).all(all_plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
        return;
    }
    // A string has nothing that cannot be written, and a vector takes all.
    let _never = serde_json::to_writer(out, text);
}

fn write_members<M: Members>(to: &mut M, reply: &Reply) {
    match reply {
        Reply::Done | Reply::Removed(_) => {}
        Reply::Queue(url) => to.text("QueueUrl", url),
        Reply::Queues {
            urls,
            next,
            sources,
        } => {
            to.urls(urls, *sources);
            to.text_if("NextToken", next.as_deref());
        }
        Reply::Attributes(of) => to.pairs(ATTRIBUTES, of),
        Reply::Tags(of) => to.pairs(["Tags", "Tag", "Key"], of),
        Reply::Sent(one) => sent(to, one),
        Reply::SentBatch(of, not) => {
            let names = ["Successful", "SendMessageBatchResultEntry"];
            to.list(names, of, |to, (id, one)| {
                to.text("Id", id);
                sent(to, one);
            });
            failed(to, not);
        }
        Reply::Batch(element, done, not) => {
            to.list(["Successful", element], done, |to, id| to.text("Id", id));
            failed(to, not);
        }
        Reply::Received(messages) => to.list(["Messages", "Message"], messages, received),
        Reply::TaskBegun(handle) => to.text("TaskHandle", handle),
        Reply::TaskCancelled(moved) => to.value("ApproximateNumberOfMessagesMoved", *moved),
        Reply::Tasks(tasks) => {
            to.list(["Results", "ListMessageMoveTasksResultEntry"], tasks, task);
        }
    }
}

const ATTRIBUTES: [&str; 3] = ["Attributes", "Attribute", "Name"];

/// Each format has an order of its own.
fn sent<M: Members>(to: &mut M, sent: &Sent) {
    let of_attributes = sent.md5_of_attributes.as_deref();
    match M::FORMAT {
        WireFormat::Json => {
            to.text_if("MD5OfMessageAttributes", of_attributes);
            to.text("MD5OfMessageBody", &sent.md5);
        }
        WireFormat::Query => {
            to.text("MessageId", &sent.id);
            to.text("MD5OfMessageBody", &sent.md5);
            to.text_if("MD5OfMessageAttributes", of_attributes);
        }
    }
    let of_system = sent.md5_of_system.as_deref();
    to.text_if("MD5OfMessageSystemAttributes", of_system);
    if M::FORMAT == WireFormat::Json {
        to.text("MessageId", &sent.id);
    }
    to.text_if("SequenceNumber", sent.sequence.as_deref());
}

fn failed<M: Members>(to: &mut M, failed: &[Failed]) {
    to.list(["Failed", "BatchResultErrorEntry"], failed, |to, failed| {
        to.text("Id", &failed.id);
        to.value("SenderFault", failed.fault.shape.is_sender());
        to.text("Code", failed.fault.shape.code());
        match M::FORMAT {
            WireFormat::Json => to.text("Message", &failed.fault.text),
            WireFormat::Query => to.text("Message", &failed.fault.query_text()),
        }
    });
}

fn received(to: &mut impl Members, message: &Received) {
    to.text("MessageId", &message.id);
    to.text("ReceiptHandle", &message.handle);
    to.text("MD5OfBody", &message.md5);
    to.text("Body", &message.body);
    to.pairs(ATTRIBUTES, &message.attributes);
    let of_attributes = message.md5_of_attributes.as_deref();
    to.text_if("MD5OfMessageAttributes", of_attributes);
    to.valued(&message.values);
}

impl Valued {
    /// The member that holds it, and its form there.
    fn as_member(&self) -> (&'static str, String) {
        match self.kind {
            ValueKind::Binary => ("BinaryValue", STANDARD.encode(&self.bytes)),
            ValueKind::String | ValueKind::Number => (
                "StringValue",
                String::from_utf8_lossy(&self.bytes).into_owned(),
            ),
        }
    }
}

fn task(to: &mut impl Members, task: &Task) {
    to.text_if("TaskHandle", task.handle.as_deref());
    to.text("Status", task.status);
    to.text("SourceArn", &task.source);
    to.text_if("DestinationArn", task.destination.as_deref());
    if let Some(rate) = task.per_second {
        to.value("MaxNumberOfMessagesPerSecond", rate);
    }
    to.value("ApproximateNumberOfMessagesMoved", task.moved);
    if let Some(to_move) = task.to_move {
        to.value("ApproximateNumberOfMessagesToMove", to_move);
    }
    to.text_if("FailureReason", task.failure.as_deref());
    to.value("StartedTimestamp", task.started_ms);
}

fn xml_of(action: &str, request: &str, (reply, len): (&Reply, usize)) -> String {
    let (response, result) = (format!("{action}Response"), format!("{action}Result"));
    let mut xml = Xml::with_capacity(len);
    xml.root(&response);
    // Actions with nothing to tell have no result.
    if !matches!(reply, Reply::Done | Reply::Removed(_)) {
        xml.open(&result);
        write_members(&mut xml, reply);
        xml.close(&result);
    }
    xml.open("ResponseMetadata")
        .text("RequestId", request)
        .close("ResponseMetadata")
        .close(&response);
    xml.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_written_as_json_has_them() {
        let long = "x".repeat(600);
        for text in [
            "",
            "plain",
            "\u{7f} é \u{2028}",
            "\"",
            "\\",
            "\n",
            "\0",
            "\u{1f}",
            &long,
        ] {
            for text in [
                text.to_owned(),
                format!("{long}{text}"),
                format!("{text}{long}"),
            ] {
                let mut out = b"before".to_vec();
                string(&mut out, &text);
                let expected = format!("before{}", serde_json::json!(text));
                assert_eq!(String::from_utf8_lossy(&out), expected);
            }
        }
    }

    fn json(reply: &Reply) -> String {
        let written = write(WireFormat::Json, "X", "id", (reply, 0));
        assert_eq!((written.status, written.content_type), (200, JSON));
        String::from_utf8(written.body).expect("text")
    }

    fn xml(action: &str, reply: &Reply) -> String {
        let written = write(WireFormat::Query, action, "id", (reply, 0));
        assert_eq!((written.status, written.content_type), (200, XML));
        String::from_utf8(written.body).expect("text")
    }

    /// Cases 1 to 4.
    #[test]
    fn replies_and_command_errors_are_byte_exact() {
        let url = "http://H/000000000000/q".to_owned();
        let queue = Reply::Queue(url);
        assert_eq!(json(&queue), "{\"QueueUrl\":\"http://H/000000000000/q\"}");
        assert_eq!(
            xml("CreateQueue", &queue),
            "<?xml version=\"1.0\"?><CreateQueueResponse \
             xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><CreateQueueResult>\
             <QueueUrl>http://H/000000000000/q</QueueUrl></CreateQueueResult><ResponseMetadata>\
             <RequestId>id</RequestId></ResponseMetadata></CreateQueueResponse>"
        );
        let refused = refuse(WireFormat::Json, "id", &Fault::no_queue());
        assert_eq!(refused.status, 400);
        assert_eq!(
            refused.error.as_deref(),
            Some("AWS.SimpleQueueService.NonExistentQueue;Sender")
        );
        assert_eq!(
            refused.body,
            b"{\"__type\":\"com.amazonaws.sqs#QueueDoesNotExist\",\
              \"message\":\"The specified queue does not exist.\"}"
        );
        let refused = refuse(WireFormat::Query, "id", &Fault::no_queue());
        assert_eq!(
            String::from_utf8(refused.body).expect("text"),
            "<?xml version=\"1.0\"?><ErrorResponse \
             xmlns=\"http://queue.amazonaws.com/doc/2012-11-05/\"><Error><Type>Sender</Type>\
             <Code>AWS.SimpleQueueService.NonExistentQueue</Code><Message>The specified queue does \
             not exist for this wsdl version.</Message><Detail/></Error><RequestId>id</RequestId>\
             </ErrorResponse>"
        );
        let handle = refuse(WireFormat::Query, "id", &Fault::handle("x"));
        assert_eq!(handle.status, 404);
        let ours = refuse(WireFormat::Json, "id", &Fault::internal("x"));
        assert_eq!(ours.error.as_deref(), Some("InternalFailure;Receiver"));
        assert_eq!(
            xml("DeleteMessage", &Reply::Done).matches("Result").count(),
            0
        );
        assert_eq!(json(&Reply::Done), "{}");
    }

    #[test]
    fn empty_fields_are_left_out() {
        let none = Reply::Queues {
            urls: Vec::new(),
            next: None,
            sources: false,
        };
        assert_eq!(json(&none), "{}");
        let sources = Reply::Queues {
            urls: Vec::new(),
            next: None,
            sources: true,
        };
        assert_eq!(json(&sources), "{\"queueUrls\":[]}");
        for empty in [
            Reply::Received(Vec::new()),
            Reply::Attributes(Vec::new()),
            Reply::Tags(Vec::new()),
        ] {
            assert_eq!(json(&empty), "{}");
        }
        assert!(
            xml("ReceiveMessage", &Reply::Received(Vec::new()))
                .contains("<ReceiveMessageResult></ReceiveMessageResult>")
        );
    }

    /// Cases 17, 26 and 27.
    #[test]
    fn replies_to_batches_have_each_result() {
        let sent = Box::new(Sent {
            id: "i".to_owned(),
            md5: "m".to_owned(),
            ..Sent::default()
        });
        assert_eq!(
            json(&Reply::Sent(sent.clone())),
            "{\"MD5OfMessageBody\":\"m\",\"MessageId\":\"i\"}"
        );
        let failed = Failed {
            id: "2".to_owned(),
            fault: crate::message::too_long(1024, true),
        };
        let batch = Reply::SentBatch(vec![("1".to_owned(), sent)], vec![failed]);
        assert_eq!(
            json(&batch),
            "{\"Successful\":[{\"Id\":\"1\",\"MD5OfMessageBody\":\"m\",\"MessageId\":\"i\"}],\
             \"Failed\":[{\"Id\":\"2\",\"SenderFault\":true,\"Code\":\"InvalidParameterValue\",\
             \"Message\":\"One or more parameters cannot be validated. Reason: Message must be \
             shorter than 1024 bytes.\"}]}"
        );
        let text = xml("SendMessageBatch", &batch);
        assert!(
            text.contains("<BatchResultErrorEntry><Id>2</Id><SenderFault>true</SenderFault>"),
            "{text}"
        );
    }

    #[test]
    fn messages_have_their_attributes_in_both_forms() {
        let message = Received {
            id: "i".to_owned(),
            handle: "h".to_owned(),
            md5: "m".to_owned(),
            body: "a<\r".to_owned(),
            attributes: vec![("SentTimestamp", "1".to_owned())],
            md5_of_attributes: Some("s".to_owned()),
            values: vec![Valued {
                name: "n".to_owned(),
                data_type: "Binary.x".to_owned(),
                kind: ValueKind::Binary,
                bytes: vec![0, 255],
            }],
        };
        let reply = Reply::Received(vec![message]);
        assert_eq!(
            json(&reply),
            "{\"Messages\":[{\"MessageId\":\"i\",\"ReceiptHandle\":\"h\",\"MD5OfBody\":\"m\",\
             \"Body\":\"a<\\r\",\"Attributes\":{\"SentTimestamp\":\"1\"},\
             \"MD5OfMessageAttributes\":\"s\",\
             \"MessageAttributes\":{\"n\":{\"BinaryValue\":\"AP8=\",\"DataType\":\"Binary.x\"}}}]}"
        );
        let text = xml("ReceiveMessage", &reply);
        assert!(
            text.contains("<Body>a&lt;&#13;</Body><Attribute><Name>SentTimestamp</Name>"),
            "{text}"
        );
        assert!(
            text.contains(
                "<MessageAttribute><Name>n</Name><Value><BinaryValue>AP8=</BinaryValue>\
             <DataType>Binary.x</DataType></Value></MessageAttribute>"
            ),
            "{text}"
        );
    }
}
