//! ReceiveMessage.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quintet_types::{
    BackTo, Command, End, Handed, LeaseOwner, LeaseRequest, LeaseTime, Message, Name, Outcome,
    Take, TakeLimit, Wait,
};

use crate::ask::{accepted, unexpected};
use crate::digest::{of_attributes, of_body};
use crate::fault::{Fault, Shape};
use crate::handle::Lease;
use crate::input::ReceiveMessage;
use crate::listener::{ActionResult, RequestContext, Sqs, stopped};
use crate::message::{self, DEDUP, SENDER, STORED, TRACE, TRACE_NAME};
use crate::names;
use crate::queue;
use crate::reply::{Received, Reply, Valued};
use crate::request;
use crate::send::sequence;
use crate::value::{Value, ValueKind};
use crate::whole::within;
use quintet_http::{Attempt, Client, Undo, Waits, or_never};

/// Messages of an answer at most, as AWS has it.
const MESSAGES_MAX: i64 = 10;
const WAIT_MAX_S: i64 = 20;
/// Seconds of a visibility timeout at most.
pub(crate) const VISIBILITY_MAX_S: i64 = 43_200;
/// Where limits are open.
const OPEN_MESSAGES_MAX: i64 = 1000;
const OPEN_WAIT_MAX_S: i64 = 3600;
pub(crate) const OPEN_VISIBILITY_MAX_S: i64 = i64::MAX / 4000;

/// The attribute of a message whose body SQS could not carry as it is.
const ENCODING: &str = "Quintet.Encoding";
/// Header that tells where a dead letter came from, and how often it had been tried there.
pub(crate) const DEAD_FROM: &[u8] = b"dead_letter_queue";
const DEAD_ATTEMPTS: &[u8] = b"dead_letter_attempts";

/// The attributes that are requested.
struct ReceiveRequest {
    name: String,
    max: u32,
    time: LeaseTime,
    /// ms; `None`: as the queue says.
    wait_ms: Option<u64>,
    /// Names of attributes.
    system: Vec<String>,
    of_user: Vec<String>,
    /// By which a receive of a FIFO queue that is sent again is known.
    attempt: Option<String>,
}

impl Sqs {
    fn parse_request(&self, input: ReceiveMessage) -> Result<ReceiveRequest, Fault> {
        let limits = self.limits;
        let name = request::queue(&input.queue_url)?.to_owned();
        let max = within(
            &input.max_number_of_messages,
            "MaxNumberOfMessages",
            (1, limits.of(MESSAGES_MAX, OPEN_MESSAGES_MAX)),
            "Must be between 1 and 10, if provided.",
        )?;
        let wait = within(
            &input.wait_time_seconds,
            "WaitTimeSeconds",
            (0, limits.of(WAIT_MAX_S, OPEN_WAIT_MAX_S)),
            "Must be >= 0 and <= 20, if provided.",
        )?;
        let visibility = within(
            &input.visibility_timeout,
            "VisibilityTimeout",
            (0, limits.of(VISIBILITY_MAX_S, OPEN_VISIBILITY_MAX_S)),
            "Must be between 0 and 43200, if provided.",
        )?;
        if let Some(id) = &input.receive_request_attempt_id {
            message::check_id(id, "ReceiveRequestAttemptId")?;
        }
        let is_fifo = names::is_fifo(&name);
        let mut system = input.attribute_names.kept;
        system.extend(input.message_system_attribute_names.kept);
        Ok(ReceiveRequest {
            name,
            max: u32::try_from(max.unwrap_or(1)).unwrap_or(1),
            time: match visibility {
                None => LeaseTime::TtrOrOver,
                Some(0) => LeaseTime::Over,
                Some(seconds) => LeaseTime::Fixed(seconds * 1000),
            },
            wait_ms: wait.map(|seconds| seconds * 1000),
            system,
            of_user: input.message_attribute_names.kept,
            attempt: input.receive_request_attempt_id.filter(|_| is_fifo),
        })
    }

    pub(crate) async fn receive(
        &self,
        context: &RequestContext,
        input: ReceiveMessage,
    ) -> Result<ActionResult, Fault> {
        let requested = self.parse_request(input)?;
        let queue = Name::new(requested.name.as_bytes());
        if self.options.auto_create && names::is_ours(&requested.name, self.options.open) {
            self.make_if_absent(&context.shards, &requested.name)
                .await?;
        }
        let mut take = Take {
            queues: [queue.clone()].into_iter().collect(),
            must_exist: true,
            end: End::Oldest,
            lease: Some(LeaseRequest {
                owner: LeaseOwner::Time,
                time: requested.time,
                back_to: BackTo::Position,
                held_max: 0,
            }),
            messages_max: requested.max,
            body_max: Some(self.limits.message_bytes_max),
            wait: requested
                .wait_ms
                .filter(|ms| *ms > 0)
                .map_or(Wait::No, Wait::For),
            token: requested.attempt.as_ref().map(|id| {
                // Others' attempts are others.
                let key = context.key.as_deref().unwrap_or_default();
                format!("{key} {id}").into_bytes().into()
            }),
            ..Take::default()
        };
        let began = Instant::now();
        let mut messages = self.take(context, take.clone()).await?;
        if messages.is_empty() && requested.wait_ms.is_none_or(|ms| ms == 0) {
            let setup = context.shards.as_server().setup(&queue).await?;
            let wait = queue::text(&setup.settings.tags, "ReceiveMessageWaitTimeSeconds");
            let wait = wait.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if requested.wait_ms.is_none() && wait > 0 {
                take.wait = Wait::For(wait * 1000);
                messages = self.take(context, take).await?;
            } else if setup.settings.in_flight_max > 0
                && !names::is_fifo(&requested.name)
                && context.shards.as_server().numbers(&queue).await?.limited
                    == Some(TakeLimit::InFlight)
            {
                let why = "The maximum number of in flight messages is reached.";
                return Err(Fault::new(Shape::OverLimit, why));
            }
        }
        let waited = match requested.wait_ms {
            Some(0) => Duration::ZERO,
            _ => began.elapsed(),
        };
        // Armed before anything can fail, or the client go.
        let undo = Undo::new(&context.shards.lost, context.shards.caller, messages);
        if !undo.messages().is_empty() {
            let (client_id, agent) = (context.shards.caller.client_id, context.agent.as_deref());
            let clients = &self.settings.clients;
            clients.took(client_id, "sqs", context.key.as_deref(), agent);
        }
        // Each is read, or is in memory, and becomes a text.
        let sizes = undo.messages().iter().map(|message| 2 * message.size());
        let share = self.room(sizes.sum())?;
        let mut received = Vec::with_capacity(undo.messages().len());
        for message in undo.messages() {
            received.push(self.received(context, &requested, message).await?);
        }
        Ok(ActionResult {
            reply: Reply::Received(received),
            waited,
            undo: Some(undo),
            _share: share,
        })
    }

    /// Takes; a wait comes back empty when its client ends its side of the connection, and when the
    /// server stops.
    async fn take(&self, context: &RequestContext, take: Take) -> Result<Handed, Fault> {
        let waits = take.wait != Wait::No;
        let client = context.client.as_deref().filter(|_| waits);
        if client.is_some_and(Client::has_ended) {
            return Ok(Handed::new());
        }
        let _apart = match context.connection_slot.as_ref().filter(|_| waits) {
            Some(connection_slot) => Some(connection_slot.waits(Waits::Poll).ok_or_else(|| {
                let text = "Too many polls wait: max_connections is reached.";
                Fault::new(Shape::RequestThrottled, text)
            })?),
            None => None,
        };
        let attempts = &self.settings.clients.attempts;
        let attempt = match (&take.token, take.queues.first()) {
            (Some(token), Some(queue)) => {
                let user = context.shards.caller.principal;
                Some(attempts.begin(user, queue.as_bytes(), token).await)
            }
            _ => None,
        };
        let mut coming = context.shards.begin(Command::Take(take));
        let mut stops = context.stops.clone();
        let over = async {
            let goes = async {
                match client {
                    Some(client) => client.is_let_go().await,
                    None => stopped(&mut stops).await,
                }
            };
            tokio::select! {
                () = or_never(attempt.as_ref().map(Attempt::is_replaced)) => {}
                () = goes => {}
            }
        };
        let outcome = match waits {
            false => coming.outcome().await,
            true => tokio::select! {
                biased;
                outcome = coming.outcome() => outcome,
                () = over => {
                    // The take itself is answered with the outcome.
                    drop(context.shards.begin(Command::StopWaiting));
                    coming.outcome().await
                }
            },
        };
        match accepted(outcome)? {
            Outcome::Messages(messages) if client.is_some_and(Client::has_ended) => {
                let lost = &context.shards.lost;
                lost.give_back(context.shards.caller, messages.into_vec());
                Ok(Handed::new())
            }
            Outcome::Messages(messages) => Ok(messages),
            Outcome::Empty => Ok(Handed::new()),
            _ => Err(unexpected()),
        }
    }

    async fn received(
        &self,
        context: &RequestContext,
        requested: &ReceiveRequest,
        message: &Message,
    ) -> Result<Received, Fault> {
        let bytes = context.shards.bytes(&message.body).await?;
        let text = std::str::from_utf8(&bytes)
            .ok()
            .filter(|text| message::is_text(text));
        let plain = text.is_some();
        let body = text.map_or_else(|| STANDARD.encode(&bytes), str::to_owned);
        let values = values(message, &requested.of_user, plain);
        let sums = values.iter().map(|value| {
            let of = Value {
                data_type: &value.data_type,
                bytes: &value.bytes,
            };
            (value.name.as_str(), of)
        });
        let lease = Lease {
            id: message.id.0,
            place: message.position,
            number: message.reserves,
            epoch: self.epoch,
        };
        Ok(Received {
            id: self.secrets.message_id(message.born().0),
            handle: self.secrets.handle(&lease, &requested.name),
            md5: of_body(body.as_bytes()),
            md5_of_attributes: of_attributes(sums),
            attributes: self.system(message, requested),
            values,
            body,
        })
    }

    /// System attributes of the message.
    fn system(&self, message: &Message, requested: &ReceiveRequest) -> Vec<(&'static str, String)> {
        if requested.system.is_empty() {
            return Vec::new();
        }
        let every = requested.system.iter().any(|name| name == "All");
        let wants = |wanted: &str| every || requested.system.iter().any(|name| name == wanted);
        let ahead = self.client_api.ahead();
        let attr = |name: &[u8]| {
            attr(message, name).and_then(|value| String::from_utf8(value.to_vec()).ok())
        };
        let fifo = names::is_fifo(&requested.name);
        let group = message.key();
        let group = group.map(|key| String::from_utf8_lossy(key).into_owned());
        let before = attr(DEAD_ATTEMPTS).and_then(|text| text.parse::<u64>().ok());
        let count = u64::from(message.reserves) + before.unwrap_or(0);
        let from = attr(DEAD_FROM).map(|name| self.place.arn(&name));
        let sender = attr(SENDER).or_else(|| Some(self.place.account.clone()));
        let moment = |at| Some(ahead.wall_at(at).0.to_string());
        let first = moment(self.first(message));
        let all = [
            ("ApproximateFirstReceiveTimestamp", first),
            ("ApproximateReceiveCount", Some(count.to_string())),
            ("AWSTraceHeader", attr(TRACE)),
            ("DeadLetterQueueSourceArn", from),
            ("MessageDeduplicationId", attr(DEDUP)),
            ("MessageGroupId", group),
            ("SenderId", sender),
            ("SentTimestamp", moment(message.created)),
            ("SequenceNumber", fifo.then(|| sequence(message.position))),
        ];
        debug_assert!(all.iter().any(|(name, _)| *name == TRACE_NAME));
        all.into_iter()
            .filter(|(name, _)| wants(name))
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// When the message was leased for the first time, engine time.
    fn first(&self, message: &Message) -> quintet_types::Ms {
        let first = message.extra.as_ref().map(|extra| extra.first_leased);
        first
            .filter(|first| first.0 > 0)
            .unwrap_or_else(|| self.client_api.now())
    }
}

fn attr<'a>(message: &'a Message, name: &[u8]) -> Option<&'a [u8]> {
    let attrs = &message.extra.as_ref()?.attrs;
    let (_, value) = attrs.iter().find(|(known, _)| **known == *name)?;
    Some(value)
}

/// The attributes that were requested, in the order of their names.
fn values(message: &Message, wanted: &[String], plain: bool) -> Vec<Valued> {
    let attrs = message.extra.iter().flat_map(|extra| &extra.attrs);
    let stored = attrs.filter_map(|(name, stored)| {
        let valued = valued(name, stored)?;
        wants(wanted, &valued.name).then_some(valued)
    });
    let encoding = (!plain).then(|| Valued {
        name: ENCODING.to_owned(),
        data_type: "String".to_owned(),
        kind: ValueKind::String,
        bytes: b"base64".to_vec(),
    });
    let mut values: Vec<Valued> = stored.chain(encoding).collect();
    values.sort_by(|a, b| a.name.cmp(&b.name));
    values
}

/// An attribute as it is handed out, of a header. A text that not every reply can carry unchanged
/// comes as bytes: clients compare its sum.
fn valued(header: &[u8], stored: &[u8]) -> Option<Valued> {
    let name = std::str::from_utf8(header.strip_prefix(STORED)?).ok()?;
    let value = Value::of_stored(stored)?;
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(message::is_text);
    let is_carried = is_text(value.data_type.as_bytes())
        && (value.kind() == ValueKind::Binary || is_text(value.bytes));
    let (data_type, kind) = match is_carried {
        true => (value.data_type, value.kind()),
        false => ("Binary", ValueKind::Binary),
    };
    message::is_text(name).then(|| Valued {
        name: name.to_owned(),
        data_type: data_type.to_owned(),
        kind,
        bytes: value.bytes.to_vec(),
    })
}

/// True if the attribute of this name is requested.
fn wants(wanted: &[String], name: &str) -> bool {
    wanted.iter().any(|wanted| match wanted.as_str() {
        "All" | ".*" | "*" => true,
        wanted => match wanted.strip_suffix(".*") {
            Some(prefix) => name.starts_with(prefix),
            None => wanted == name,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case 19.
    #[test]
    fn attributes_are_chosen_by_name_and_by_prefix() {
        let of = |wanted: &[&str], name: &str| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            wants(&wanted, name)
        };
        assert!(of(&["Hello"], "Hello") && !of(&["Hello"], "Help.Me"));
        assert!(of(&["Hel.*"], "Hello") && of(&["Hel.*"], "Help.Me"));
        assert!(!of(&["Hel.*"], "General"));
        for every in ["All", ".*", "*"] {
            assert!(of(&[every], "General"), "{every}");
        }
        assert!(!of(&[], "x") && !of(&["zz"], "x"));
    }

    /// Other protocols write any header.
    #[test]
    fn a_text_that_a_reply_cannot_carry_comes_as_bytes() {
        let of = |stored: &[u8]| {
            let valued = valued(b"m:a", stored).expect("an attribute");
            (valued.data_type, valued.kind, valued.bytes)
        };
        let given =
            |data_type: &str, kind, bytes: &[u8]| (data_type.to_owned(), kind, bytes.to_vec());
        let (string, binary) = (ValueKind::String, ValueKind::Binary);
        assert_eq!(of(b"String\0x"), given("String", string, b"x"));
        assert_eq!(
            of(b"Binary.gif\0\xff"),
            given("Binary.gif", binary, b"\xff")
        );
        for bytes in [b"\xff", b"\x01"] {
            let stored = [&b"String\0"[..], bytes].concat();
            assert_eq!(of(&stored), given("Binary", binary, bytes));
        }
        assert_eq!(of(b"String.\x01\0x"), given("Binary", binary, b"x"));
        for header in [&b"m:\x01"[..], b"m:\xff", b"n:a"] {
            assert_eq!(valued(header, b"String\0x"), None);
        }
        assert_eq!(valued(b"m:a", b"String"), None);
    }
}
