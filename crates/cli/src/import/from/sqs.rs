//! Amazon SQS, or what speaks as it does, queue by queue (JSON protocol 1.0).
//!
//! Messages are received, hidden there for some minutes, and deleted when they are stored here. SQS
//! gives no more than ten at once, none that is not due, and of a FIFO queue's group none behind
//! those that are not deleted yet.

mod sign;

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::Utc;
use quintet_control::{Head, Text};
use quintet_host::locked;
use quintet_types::{AT_ONCE_MS, Name};
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::Agent;

use super::http::{again, agent, document, each};
use super::peer::{self, Hold, Number, Server};
use sign::{Keys, Request};

/// Messages of a request: as many as SQS takes.
const AT_ONCE: usize = 10;
/// Attributes of a queue that are read beside the number of messages.
const SETUP: [&str; 3] = [
    "VisibilityTimeout",
    "MessageRetentionPeriod",
    "DelaySeconds",
];
const RECEIVE: &str = "AmazonSQS.ReceiveMessage";
/// How long they are hidden there, s, unless they are stored before: what is held when this process
/// dies can be received again then.
const HIDDEN_S: u32 = 120;
/// An empty answer counts if it took so long, s: a shorter one has not asked all of SQS's machines.
const WAIT_S: u32 = 2;
/// Times a request is sent, if SQS is busy, and the rest behind the first, which doubles.
const TRIES: u32 = 6;
const REST: Duration = Duration::from_millis(100);
/// Time after which messages of a receive without an answer are visible again.
const SHOWN_AGAIN: Duration = Duration::from_secs(HIDDEN_S as u64 + 10);
/// A message whose retention is over is kept at least so long here: somebody has just moved it.
const KEPT_MS: u64 = 60_000;
/// With so many mismatched messages the import ends: those hidden first would soon come again.
const MISMATCHED_MAX: usize = 10_000;

/// Which queues, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::import) struct Place {
    /// SCHEME://HOST[:PORT]; `None`: the region's of AWS.
    pub(super) endpoint: Option<String>,
    /// `None`: as the environment says.
    pub(super) region: Option<String>,
    /// Owner of the queue, if it is another account.
    pub(super) account: Option<String>,
    /// All without one.
    pub(super) queue: Option<String>,
}

impl Place {
    /// As it is asked.
    fn known(&self) -> Result<(String, String)> {
        let stated = ["AWS_REGION", "AWS_DEFAULT_REGION"];
        let stated = || stated.iter().find_map(|name| std::env::var(name).ok());
        let region = self.region.clone().or_else(stated);
        let region = region.context("name the region: sqs://QUEUE?region=REGION, or AWS_REGION")?;
        let endpoint = self.endpoint.clone();
        let endpoint = endpoint.unwrap_or_else(|| format!("https://sqs.{region}.amazonaws.com"));
        Ok((endpoint, region))
    }
}

/// A message as SQS gives it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Message {
    #[serde(default)]
    message_id: String,
    receipt_handle: String,
    #[serde(default)]
    body: String,
    #[serde(rename = "MD5OfBody")]
    md5: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    message_attributes: BTreeMap<String, Attribute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attribute {
    #[serde(default)]
    data_type: String,
    string_value: Option<String>,
    binary_value: Option<String>,
}

pub(in crate::import) struct HiddenMessage {
    url: Arc<str>,
    handle: String,
}

/// The source.
pub(in crate::import) struct Sqs {
    agent: Agent,
    endpoint: String,
    host: String,
    region: String,
    keys: Keys,
    place: Place,
    /// Messages received to be given out.
    received: u64,
    /// Received with a body that does not match its MD5OfBody, by message id; they stay there.
    mismatched: BTreeMap<String, HiddenMessage>,
    /// Attributes of the queues, by name.
    known: BTreeMap<String, Value>,
    /// When a receive was last left without an answer, and how many were.
    lost: Mutex<(Option<Instant>, usize)>,
    /// Receives without an answer, one after the other.
    losses: u32,
}

impl Sqs {
    /// An SQS to which nothing was sent yet.
    ///
    /// # Errors
    /// There are no keys, no region or no address, or `ca` cannot be read.
    pub(in crate::import) fn connect(place: &Place, ca: Option<&Path>) -> Result<Self> {
        let (endpoint, region) = place.known()?;
        let uri: ureq::http::Uri = endpoint.parse()?;
        let host = uri.authority().map(ToString::to_string);
        let host =
            host.with_context(|| format!("{endpoint} is not an address: write http://HOST:PORT"))?;
        Ok(Self {
            agent: agent(ca, place.endpoint.is_none())?,
            endpoint,
            host,
            region,
            keys: Keys::of_environment()?,
            place: place.clone(),
            received: 0,
            mismatched: BTreeMap::new(),
            known: BTreeMap::new(),
            lost: Mutex::default(),
            losses: 0,
        })
    }

    /// Asks once; an error of SQS is its name and text.
    fn once(&self, target: &str, body: &str) -> Result<std::result::Result<Value, Refused>> {
        let request = Request {
            host: &self.host,
            region: &self.region,
            target,
            body: body.as_bytes(),
            now: Utc::now(),
        };
        let mut sent = ureq::http::Request::post(format!("{}/", self.endpoint));
        for (name, value) in request.signed(&self.keys) {
            sent = sent.header(name, value);
        }
        let sent = sent.body(body.to_owned())?;
        let host = &self.host;
        // What was received by a request without an answer is hidden for some minutes.
        let lose = || {
            if target == RECEIVE {
                let mut lost = locked(&self.lost);
                *lost = (Some(Instant::now()), lost.1 + 1);
            }
        };
        let sends = Cell::new(0);
        let failed = |error: ureq::Error| {
            lose();
            anyhow!("{host}: {error}")
        };
        let response = again(|| {
            if sends.replace(1) > 0 {
                lose();
            }
            self.agent.run(sent.clone())
        });
        let (status, value) = document(response.map_err(failed)?).map_err(failed)?;
        if status == 200 && (value.is_object() || value.is_null()) {
            return Ok(Ok(value));
        }
        let code = value["__type"].as_str().unwrap_or_default();
        let code = code.rsplit('#').next().unwrap_or_default().to_owned();
        let stated = value["message"].as_str().or(value["Message"].as_str());
        let text = match (stated, code.is_empty()) {
            (Some(stated), _) => format!("{host}: {code}: {stated}"),
            (None, false) => format!("{host}: {code}"),
            (None, true) => {
                let stated = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                let stated: String = stated.chars().take(80).collect();
                format!("{host} answered {status} {stated:?}, which SQS does not")
            }
        };
        let busy = status >= 500 || code.contains("Throttl");
        Ok(Err(Refused { code, text, busy }))
    }

    /// Asks, and again if SQS is busy.
    fn try_ask(&self, action: &str, body: &Value) -> Result<std::result::Result<Value, Refused>> {
        let (target, body) = (format!("AmazonSQS.{action}"), body.to_string());
        let mut rest = REST;
        for _ in 1..TRIES {
            match self.once(&target, &body)? {
                Err(refused) if refused.busy => {}
                answer => return Ok(answer),
            }
            std::thread::sleep(rest);
            rest *= 2;
        }
        self.once(&target, &body)
    }

    fn ask(&self, action: &str, body: &Value) -> Result<Value> {
        let answer = self.try_ask(action, body)?;
        answer.map_err(|refused| anyhow!(refused.text))
    }

    /// The URLs of all queues, or of the one that was requested.
    fn list(&self) -> Result<VecDeque<Arc<str>>> {
        if let Some(queue) = &self.place.queue {
            let mut requested = json!({ "QueueName": queue });
            if let Some(account) = &self.place.account {
                requested["QueueOwnerAWSAccountId"] = json!(account);
            }
            return match self.try_ask("GetQueueUrl", &requested)? {
                Ok(answer) => Ok([self.url(&answer["QueueUrl"])?].into()),
                Err(refused) if refused.code.contains("QueueDoesNotExist") => {
                    bail!("{} has no queue {queue}", self.host)
                }
                Err(refused) => bail!(refused.text),
            };
        }
        let mut all = VecDeque::new();
        let mut requested = json!({ "MaxResults": 1000 });
        loop {
            let answer = self.ask("ListQueues", &requested)?;
            for url in answer["QueueUrls"].as_array().into_iter().flatten() {
                all.push_back(self.url(url)?);
            }
            match answer["NextToken"].as_str() {
                Some(token) => requested["NextToken"] = json!(token),
                None => return Ok(all),
            }
        }
    }

    /// True if a queue has something now, hidden or shown.
    fn has_some(&self, url: &str) -> Result<bool> {
        let names = [
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
        ];
        let requested = json!({ "QueueUrl": url, "AttributeNames": names });
        let answer = self.ask("GetQueueAttributes", &requested)?;
        let count = |name| number_in(&answer["Attributes"], name).unwrap_or(0);
        Ok(names.into_iter().any(|name| count(name) > 0))
    }

    /// An attribute of a queue as it was when it was counted.
    fn attribute(&self, queue: &str, name: &str) -> Option<u64> {
        number_in(self.known.get(queue)?, name)
    }

    fn url(&self, reply: &Value) -> Result<Arc<str>> {
        let url = reply.as_str().filter(|url| !name_of(url).is_empty());
        let url = url.with_context(|| format!("{} names a queue as {reply}", self.host))?;
        Ok(url.into())
    }

    /// Head and body of a message.
    fn message(&self, (queue, place): (&str, &str), mut message: Message) -> peer::Message {
        let mut attrs = Vec::new();
        // As the sqs protocol here keeps them, which gives them to its clients again.
        for (name, attribute) in [
            ("sqs:dedup", "MessageDeduplicationId"),
            ("sqs:trace", "AWSTraceHeader"),
            ("sqs:sender", "SenderId"),
            ("dead_letter_queue", "DeadLetterQueueSourceArn"),
        ] {
            if let Some(kept) = message.attributes.get(attribute) {
                // Of the ARN of a queue its name.
                let (_, name_of_arn) = kept.rsplit_once(':').unwrap_or_default();
                let kept = match attribute {
                    "DeadLetterQueueSourceArn" => name_of_arn,
                    _ => kept.as_str(),
                };
                if !kept.is_empty() {
                    attrs.push((Text(name.into()), Text(kept.into())));
                }
            }
        }
        for (name, value) in std::mem::take(&mut message.message_attributes) {
            let data_type = value.data_type;
            let value = match (value.string_value, value.binary_value) {
                (Some(value), _) => value.into_bytes(),
                (None, Some(coded)) => {
                    let value = BASE64_STANDARD.decode(coded);
                    value.with_context(|| format!("{place}: attribute {name}"))?
                }
                (None, None) => Vec::new(),
            };
            let kept = [data_type.as_bytes(), &[0], &value].concat();
            attrs.push((Text(format!("m:{name}").into()), Text(kept)));
        }
        let number = |name: &str| {
            let value = message.attributes.get(name);
            value.and_then(|value| value.parse::<u64>().ok())
        };
        let received = number("ApproximateReceiveCount").unwrap_or(1);
        let sent_ms = number("SentTimestamp");
        let kept_ms = self.attribute(queue, "MessageRetentionPeriod");
        let expires_ms = sent_ms.zip(kept_ms).map(|(sent_ms, seconds)| {
            let now_ms = u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0);
            (sent_ms + seconds * 1000).max(now_ms + KEPT_MS)
        });
        let body = message.body.into_bytes();
        let head = Head {
            queue: Name::of_shown(queue).to_string(),
            created_ms: sent_ms,
            expires_ms,
            key: message
                .attributes
                .remove("MessageGroupId")
                .map(|key| Text(key.into())),
            attrs,
            // This one does not count.
            reserves: u32::try_from(received.saturating_sub(1)).unwrap_or(u32::MAX),
            bytes: body.len() as u64,
            ..Head::default()
        };
        Ok((head, Some(body)))
    }

    /// Does an act of ten messages to all of these; to how many SQS says yes.
    fn acted(&self, held: &[HiddenMessage], action: &str, with: &Value) -> Result<u64> {
        let of_queue = held.chunk_by(|one, next| one.url == next.url);
        let batches: Vec<_> = of_queue.flat_map(|some| some.chunks(AT_ONCE)).collect();
        let gone = AtomicUsize::new(0);
        each(&batches, |batch| {
            let entries = batch.iter().enumerate().map(|(id, one)| {
                let mut entry = with.clone();
                entry["Id"] = json!(id.to_string());
                entry["ReceiptHandle"] = json!(one.handle);
                entry
            });
            let entries: Vec<Value> = entries.collect();
            let url = batch.first().map(|one| &*one.url);
            let requested = json!({ "QueueUrl": url, "Entries": entries });
            let answer = self.ask(action, &requested)?;
            for failed in answer["Failed"].as_array().into_iter().flatten() {
                if failed["SenderFault"] != true {
                    bail!("{}: {action}: {}", self.host, failed["Message"]);
                }
                // It was hidden no more: somebody else may have it.
                gone.fetch_add(1, Ordering::Relaxed);
            }
            Ok(true)
        })?;
        Ok((held.len() - gone.into_inner()) as u64)
    }
}

/// SQS's no.
struct Refused {
    /// The name of the error.
    code: String,
    text: String,
    /// It may say yes later.
    busy: bool,
}

fn number_in(attributes: &Value, name: &str) -> Option<u64> {
    attributes[name].as_str()?.parse().ok()
}

/// A queue's name, which ends its URL.
fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

impl Server for Sqs {
    type Part = Arc<str>;
    type Held = HiddenMessage;
    const AGAIN: bool = false;

    /// The URLs of the queues.
    fn parts(&mut self) -> Result<VecDeque<Arc<str>>> {
        self.list()
    }

    fn take(&mut self, url: &mut Arc<str>, hold: &mut Hold<HiddenMessage>) -> Result<bool> {
        let url: &Arc<str> = url;
        if self.mismatched.len() >= MISMATCHED_MAX {
            bail!("{} sends too many bodies that do not match", self.host);
        }
        // Behind what is held may be more of its group: no reason to wait.
        let held = hold.is_waiting();
        let requested = json!({
            "QueueUrl": &**url, "MaxNumberOfMessages": AT_ONCE, "VisibilityTimeout": HIDDEN_S,
            "WaitTimeSeconds": if held { 0 } else { WAIT_S },
            "AttributeNames": ["All"], "MessageAttributeNames": ["All"],
        });
        let before = *locked(&self.lost);
        let answer = match self.ask("ReceiveMessage", &requested) {
            Ok(answer) => answer,
            Err(_) if *locked(&self.lost) != before && self.losses < TRIES => {
                self.losses += 1;
                std::thread::sleep(REST);
                return Ok(true);
            }
            Err(error) if *locked(&self.lost) != before => {
                let most = AT_ONCE * locked(&self.lost).1;
                return Err(error.context(format!(
                    "receives of {} got no reply: up to {most} messages are hidden there for \
                     {HIDDEN_S} s; repeat the command after that",
                    name_of(url)
                )));
            }
            Err(error) => return Err(error),
        };
        self.losses = 0;
        let messages = answer["Messages"].as_array().map_or(&[][..], Vec::as_slice);
        if messages.is_empty() {
            // What a receive without an answer has hidden comes back.
            let lost = locked(&self.lost).0;
            let lately = lost.is_some_and(|at| at.elapsed() < SHOWN_AGAIN);
            return Ok(held || (lately && self.has_some(url)?));
        }
        for message in messages {
            let message = Message::deserialize(message).with_context(|| {
                format!(
                    "cannot read the messages of {}: SQS has another format",
                    self.host
                )
            })?;
            let sum = quintet_sqs::md5_of_body(message.body.as_bytes());
            let held = HiddenMessage {
                url: Arc::clone(url),
                handle: message.receipt_handle.clone(),
            };
            if message.md5.as_ref().is_some_and(|md5| *md5 != sum) {
                self.mismatched.insert(message.message_id, held);
                continue;
            }
            self.mismatched.remove(&message.message_id);
            let (queue, number) = (name_of(url), self.received);
            self.received += 1;
            let place = format!("message {number} of {queue} at {}", self.host);
            let message = self.message((queue, &place), message);
            hold.push(held, place, message);
        }
        Ok(true)
    }

    fn delete(&mut self, stored: &[HiddenMessage]) -> Result<u64> {
        let ours = self.acted(stored, "DeleteMessageBatch", &json!({}))?;
        Ok(stored.len() as u64 - ours)
    }

    fn give_back(&mut self, held: Vec<HiddenMessage>) -> Result<u64> {
        let at_once = json!({ "VisibilityTimeout": 0 });
        let back = self.acted(&held, "ChangeMessageVisibilityBatch", &at_once)?;
        let mismatched = std::mem::take(&mut self.mismatched).into_values();
        let mismatched: Vec<HiddenMessage> = mismatched.collect();
        self.acted(&mismatched, "ChangeMessageVisibilityBatch", &at_once)?;
        Ok(back)
    }

    fn numbers(&mut self) -> Result<Vec<Number>> {
        let mut all = Vec::new();
        let states = [
            ("ApproximateNumberOfMessages", "ready"),
            ("ApproximateNumberOfMessagesDelayed", "delayed"),
            ("ApproximateNumberOfMessagesNotVisible", "reserved"),
        ];
        for url in self.list()? {
            let names = states.map(|(name, _)| name);
            let names: Vec<&str> = names.into_iter().chain(SETUP).collect();
            let requested = json!({ "QueueUrl": &*url, "AttributeNames": names });
            let mut answer = self.ask("GetQueueAttributes", &requested)?;
            let attributes = answer["Attributes"].take();
            for (name, state) in states {
                let count = number_in(&attributes, name).unwrap_or(0);
                all.push((name_of(&url).to_owned(), state, count));
            }
            self.known.insert(name_of(&url).to_owned(), attributes);
        }
        Ok(all)
    }

    fn setups(&self) -> Vec<(String, Value)> {
        let setup = |(queue, attributes): (&String, &Value)| {
            let ms = |name: &str| number_in(attributes, name).map(|seconds| seconds * 1000);
            let setup = json!({
                // 0 would be no deadline.
                "ttr_ms": ms("VisibilityTimeout").map(|ms| ms.max(AT_ONCE_MS)),
                "ttl_ms": ms("MessageRetentionPeriod"),
                "delay_ms": ms("DelaySeconds"),
                "groups": if queue.ends_with(".fifo") { "ordered" } else { "fair" },
            });
            (Name::of_shown(queue).to_string(), setup)
        };
        self.known.iter().map(setup).collect()
    }

    fn fault(&self) -> Option<String> {
        let (count, host) = (self.mismatched.len(), &self.host);
        let fault = || {
            format!(
                "bodies that do not match their MD5OfBody: {count}; these messages stay at {host}"
            )
        };
        (count > 0).then(fault)
    }
}
