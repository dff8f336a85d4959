//! Clients of protocols that carry messages in JSON: SQS, Faktory and the API of the server.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::connection::{Connection, wrong};
use crate::kind::{Protocol, TakenMessage};

/// A connection, and the lease on the message that was taken last.
pub(crate) struct JobClient {
    protocol: Protocol,
    connection: Connection,
    lease: String,
    /// The queue of SQS that is known to be there.
    made: String,
}

impl JobClient {
    /// # Errors
    /// Nobody listens.
    pub(crate) fn open(protocol: Protocol, address: &str, patience: Duration) -> io::Result<Self> {
        let mut connection = Connection::tcp(address, patience)?;
        if protocol == Protocol::Faktory {
            connection.line()?;
            connection.send(b"HELLO {\"v\":2}\r\n")?;
            let line = connection.line()?;
            if line != "+OK" {
                return Err(wrong(&line));
            }
        }
        Ok(Self {
            protocol,
            connection,
            lease: String::new(),
            made: String::new(),
        })
    }

    /// A request over HTTP: the reply's status, and its body.
    fn ask(&mut self, what: &str, headers: &str, body: &Value) -> io::Result<(u16, Vec<u8>)> {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let len = body.len();
        let request = format!(
            "{what} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len}\r\n\r\n{body}"
        );
        self.connection.send(request.as_bytes())?;
        let head = crate::text(&self.connection.before(b"\r\n\r\n")?).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| wrong(&head))?;
        let mut lines = head.lines();
        let len = lines.find_map(|line| line.strip_prefix("content-length: "));
        let body = match (len, status) {
            (Some(len), _) => self.connection.body(len.trim(), b"")?,
            (None, 204) => Vec::new(),
            (None, _) => return Err(wrong(&head)),
        };
        Ok((status, body))
    }

    /// The answer of the API; `None`: it is refused.
    fn api(&mut self, what: &str, body: &Value) -> io::Result<Option<Value>> {
        let json = "content-type: application/json\r\n";
        let (status, reply) = self.ask(what, json, body)?;
        match status {
            200..300 => Ok(Some(serde_json::from_slice(&reply).unwrap_or_default())),
            409 | 429 | 503 | 507 => Ok(None),
            // Among them 500, after which nobody knows.
            _ => Err(wrong(&crate::text(&reply))),
        }
    }

    /// The same of SQS. Queues are made by their first use.
    fn sqs(&mut self, action: &str, queue: &str, mut body: Value) -> io::Result<Option<Value>> {
        if self.made != queue && action != "CreateQueue" {
            let made = self.sqs("CreateQueue", queue, json!({ "QueueName": queue }))?;
            if made.is_none() {
                return Ok(None);
            }
            queue.clone_into(&mut self.made);
        }
        if action != "CreateQueue" {
            body["QueueUrl"] = format!("http://localhost/000000000000/{queue}").into();
        }
        let headers = format!(
            "content-type: application/x-amz-json-1.0\r\nx-amz-target: AmazonSQS.{action}\r\n"
        );
        let (status, reply) = self.ask("POST /", &headers, &body)?;
        match status {
            200 => Ok(Some(serde_json::from_slice(&reply).unwrap_or_default())),
            403 | 503 => Ok(None),
            _ => Err(wrong(&crate::text(&reply))),
        }
    }

    /// A line of Faktory; false: refused.
    fn faktory(&mut self, verb: &str, job: &Value) -> io::Result<bool> {
        self.connection
            .send(format!("{verb} {job}\r\n").as_bytes())?;
        match self.connection.line()?.as_str() {
            "+OK" => Ok(true),
            line if line.starts_with("-ERR") => Ok(false),
            line => Err(wrong(line)),
        }
    }

    /// Puts a text; false: refused.
    ///
    /// # Errors
    /// No reply that is one.
    pub(crate) fn put(
        &mut self,
        queue: &str,
        body: &str,
        priority: Option<u32>,
    ) -> io::Result<bool> {
        match self.protocol {
            Protocol::Sqs => {
                let message = json!({ "MessageBody": body });
                Ok(self.sqs("SendMessage", queue, message)?.is_some())
            }
            Protocol::Faktory => {
                let job = json!({
                    "jid": body, "jobtype": "stress", "queue": queue, "args": [body],
                });
                self.faktory("PUSH", &job)
            }
            _ => {
                let put = json!({ "messages": [{ "body": body, "priority": priority }] });
                let what = format!("POST /api/v1/queues/{queue}/messages");
                Ok(self.api(&what, &put)?.is_some())
            }
        }
    }

    /// Takes the next message under a lease of so long, where the protocol has the choice.
    ///
    /// # Errors
    /// No reply that is one.
    pub(crate) fn take(&mut self, queue: &str, lease_s: u32) -> io::Result<Took> {
        let body = match self.protocol {
            Protocol::Sqs => {
                let ask = json!({ "VisibilityTimeout": lease_s });
                let Some(reply) = self.sqs("ReceiveMessage", queue, ask)? else {
                    return Ok(Took::Refused);
                };
                let message = &reply["Messages"][0];
                let Some(body) = message["Body"].as_str() else {
                    return Ok(Took::Empty);
                };
                self.lease = text_of(&message["ReceiptHandle"]);
                body.as_bytes().to_vec()
            }
            Protocol::Faktory => {
                self.connection
                    .send(format!("FETCH {queue}\r\n").as_bytes())?;
                let line = self.connection.line()?;
                match line.strip_prefix('$') {
                    Some("-1") => return Ok(Took::Empty),
                    Some(len) => {
                        let job = self.connection.body(len, b"\r\n")?;
                        let job: Value = serde_json::from_slice(&job)?;
                        self.lease = text_of(&job["jid"]);
                        text_of(&job["args"][0]).into_bytes()
                    }
                    None if line.starts_with("-ERR") => return Ok(Took::Refused),
                    None => return Err(wrong(&line)),
                }
            }
            _ => {
                let what = format!("POST /api/v1/queues/{queue}/reserve");
                let ask = json!({ "lease_ms": lease_s * 1000 });
                let Some(reply) = self.api(&what, &ask)? else {
                    return Ok(Took::Refused);
                };
                let message = &reply["messages"][0];
                if message.is_null() {
                    return Ok(Took::Empty);
                }
                self.lease = text_of(&message["lease"]);
                match message["body"].as_str() {
                    Some(body) => body.as_bytes().to_vec(),
                    // It is long, or no text.
                    None => {
                        let what = format!("GET /api/v1/messages/{}/body", message["id"]);
                        match self.ask(&what, "", &Value::Null)? {
                            (200, body) => body,
                            (_, why) => return Err(wrong(&crate::text(&why))),
                        }
                    }
                }
            }
        };
        Ok(Took::Message(TakenMessage {
            body,
            lease: 0,
            ttp: 0,
        }))
    }

    /// Finishes what was taken last; false: it was no longer ours. SQS and Faktory do not say.
    ///
    /// # Errors
    /// No reply that is one.
    pub(crate) fn finish(&mut self, queue: &str) -> io::Result<bool> {
        let lease = std::mem::take(&mut self.lease);
        match self.protocol {
            Protocol::Sqs => {
                let of = json!({ "ReceiptHandle": lease });
                Ok(self.sqs("DeleteMessage", queue, of)?.is_some())
            }
            Protocol::Faktory => self.faktory("ACK", &json!({ "jid": lease })),
            _ => {
                let what = format!("POST /api/v1/leases/{lease}/finish");
                Ok(self.api(&what, &json!({}))?.is_some())
            }
        }
    }

    /// Gives back what was taken last; the API alone has words for it.
    ///
    /// # Errors
    /// No reply that is one.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        let what = format!("POST /api/v1/leases/{}/release", self.lease);
        match self.protocol {
            Protocol::Api => self.api(&what, &json!({})).map(drop),
            _ => Ok(()),
        }
    }

    /// Gives back all of a queue that is leased, by any holder.
    ///
    /// # Errors
    /// No reply that is one.
    pub(crate) fn release_all(&mut self, queue: &str) -> io::Result<()> {
        let what = format!("POST /api/v1/queues/{queue}/leases/release");
        let (status, reply) = self.ask(&what, "content-type: application/json\r\n", &json!({}))?;
        match status {
            200..300 | 404 => Ok(()),
            _ => Err(wrong(&crate::text(&reply))),
        }
    }
}

/// The reply to a take.
pub(crate) enum Took {
    Message(TakenMessage),
    Empty,
    Refused,
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
