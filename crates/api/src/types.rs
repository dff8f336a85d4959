//! Requests and replies, from which the OpenAPI document is made.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_client::attention::why_slow;
use quintet_client::{History, Rates, Recent, Series};
use quintet_types::{
    How, Lease, Left, ListState, Message, Ms, Name, QueueGauges, QueueStats, QueueTotals, Track,
    When,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::after::{Before, Fate, On, ShownParent};
use super::dedupe::Dedupe;
use super::hold::Holds;
use super::holder::Holder;
use super::problem::Problem;
use super::read::{token, version};
use crate::bytes_in_json::{base64_unless_text, lossy, text_of};

/// Bytes of a result at most.
const RESULT_MAX: usize = 64 << 10;

/// A message to put. Without `body` and `body_base64` its body is empty.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// The body as text. This or `body_base64`; neither: an empty body.
    pub body: Option<String>,
    /// The body in base64, in place of `body`, for bytes that are not UTF-8.
    pub body_base64: Option<String>,
    /// Grouping key, 65535 bytes at most.
    pub key: Option<String>,
    /// The message's own name, 1 to 255 bytes, by which its sender knows it; not unique.
    pub name: Option<String>,
    /// Attributes: names and values.
    #[serde(default, deserialize_with = "quintet_client::unique")]
    pub headers: BTreeMap<String, String>,
    /// 0 is the most urgent; left out: the queue's default.
    pub priority: Option<u32>,
    /// Not taken before so many ms are over.
    #[serde(default, deserialize_with = "super::read::duration_ms")]
    pub delay_ms: Option<u64>,
    /// The message expires so many ms after the put.
    #[serde(default, deserialize_with = "super::read::duration_ms")]
    pub ttl_ms: Option<u64>,
    /// Time to run of its leases, ms; 0: no deadline.
    #[serde(default, deserialize_with = "super::read::duration_ms")]
    pub ttr_ms: Option<u64>,
    /// Flags that memcache clients get with the message.
    #[serde(default)]
    pub flags: u32,
    /// A repeat where a message with the same id was put before.
    pub dedupe: Option<Dedupe>,
    /// Keeps the outcome under its `name`, also when the message is gone
    /// (`GET /queues/Q/tracks/N`).
    #[serde(default)]
    pub tracked: bool,
    /// The batch that counts the message as a member: `b-` and 16 hex digits.
    pub batch: Option<String>,
    /// The queue into which its result is put when it ends; a name of 1 to 255 bytes.
    pub reply_to: Option<String>,
    /// The reply's header of this name, 1 to 255 bytes; left out: the message's name, else its id.
    pub correlation_id: Option<String>,
    /// It is held until these have ended: ids, or names of tracked messages; 1000 at most.
    #[serde(default)]
    pub after: Vec<Before>,
    /// Which ends count; left out: `success`.
    pub on: Option<On>,
    /// Its fate if one of them fails; left out: `fail`.
    pub if_failed: Option<Fate>,
}

/// One message, or several that are stored together or not at all.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Puts {
    /// 1 to 1000 messages, which are stored all or none.
    #[serde(deserialize_with = "super::read::few")]
    pub(super) messages: Vec<NewMessage>,
    /// The reply waits so long for the result of the message, ms, 60000 at most. One message alone.
    #[serde(default)]
    pub(super) wait_ms: u64,
}

/// Outcome of a tracked message, as of its last change.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Tracked {
    pub(super) name: String,
    /// The same in base64, if it is no text; of `status` as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name_base64: Option<String>,
    /// Where it is, or was last.
    pub(super) queue: String,
    /// `waiting`, `reserved`, `failed` (its last try did), `buried`, `done`, `gone` (without having
    /// been done).
    pub(super) state: &'static str,
    /// How far the work on it had come, percent; null: nobody said.
    pub(super) progress: Option<u8>,
    /// Last report about it, or why it failed; 1024 bytes of it.
    pub(super) status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status_base64: Option<String>,
    pub(super) changed_ms: u64,
    /// When this is forgotten, if nothing happens before.
    pub(super) until_ms: u64,
}

impl From<Track> for Tracked {
    fn from(track: Track) -> Self {
        Self {
            name: lossy(&track.name),
            name_base64: base64_unless_text(&track.name),
            queue: track.queue.to_string(),
            state: track.state.word(),
            progress: track.percent,
            status: lossy(&track.note),
            status_base64: base64_unless_text(&track.note),
            changed_ms: track.changed.0,
            until_ms: track.until.0,
        }
    }
}

/// How a message goes back.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    /// New priority, 0 is the most urgent; left out: unchanged.
    pub(super) priority: Option<u32>,
    /// Not taken before so many ms are over.
    #[serde(default, deserialize_with = "super::read::duration_ms")]
    pub(super) delay_ms: Option<u64>,
    /// No message of its key is handed out for so many ms, 1 to a week.
    pub(super) hold_key_ms: Option<u64>,
    /// No message of its queue is handed out for so many ms, 1 to a week.
    pub(super) hold_ms: Option<u64>,
}

/// A report that a try failed; the queue's retry settings decide what follows.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    /// The error, for the operator; the first 4096 bytes are kept.
    pub(super) error: Option<String>,
}

/// A report that the work on a message is done.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Finish {
    /// Result, 65536 bytes at most: the message is kept as done, with this as its `status`, for the
    /// queue's `retention`; left out: it is gone.
    pub(super) result: Option<String>,
    /// No message of its key is handed out for so many ms, 1 to a week.
    pub(super) hold_key_ms: Option<u64>,
    /// No message of its queue is handed out for so many ms, 1 to a week.
    pub(super) hold_ms: Option<u64>,
}

/// How a request ends a lease.
pub(super) trait Ends {
    /// # Errors
    /// The result is too long.
    fn how(self) -> Result<How, Problem>;

    /// The holds that it asks for.
    fn holds(&self) -> Holds {
        Holds::default()
    }
}

impl Ends for Finish {
    fn how(self) -> Result<How, Problem> {
        match self.result {
            None => Ok(How::Finish),
            Some(result) if result.len() > RESULT_MAX => {
                let detail = format!("takes at most {RESULT_MAX} bytes; not {}", result.len());
                Err(Problem::field("result", detail))
            }
            Some(result) => Ok(How::Archive {
                relayed: false,
                status: result.into_bytes().into(),
            }),
        }
    }

    fn holds(&self) -> Holds {
        Holds {
            hold_key_ms: self.hold_key_ms,
            hold_ms: self.hold_ms,
        }
    }
}

impl Ends for Release {
    fn how(self) -> Result<How, Problem> {
        Ok(How::Release {
            priority: self.priority,
            due: self.delay_ms.map_or(When::Now, When::In),
            back_to: None,
        })
    }

    fn holds(&self) -> Holds {
        Holds {
            hold_key_ms: self.hold_key_ms,
            hold_ms: self.hold_ms,
        }
    }
}

impl Ends for Fail {
    fn how(self) -> Result<How, Problem> {
        Ok(How::Fail {
            error: self.error.unwrap_or_default().into_bytes().into(),
            note: Vec::new(),
        })
    }
}

impl Ends for Bury {
    fn how(self) -> Result<How, Problem> {
        Ok(How::Bury {
            priority: self.priority,
            reason: self.reason.unwrap_or_default().into_bytes().into(),
        })
    }
}

/// How far the work has come.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Progress {
    /// 0 to 100; left out: as it was.
    pub(super) percent: Option<u8>,
    /// The message's `status` from now on, 4096 bytes of it; left out: as it was.
    pub(super) text: Option<String>,
}

/// How a message is set aside.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bury {
    /// New priority, 0 is the most urgent; left out: unchanged.
    pub(super) priority: Option<u32>,
    /// A text that shows why the message is buried.
    pub(super) reason: Option<String>,
}

/// How a lease goes on.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Extend {
    /// It ends so many ms from now; left out: as long as it was given for.
    pub(super) lease_ms: Option<u64>,
}

/// How messages are cancelled.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    /// Why, for the worker and the operator.
    #[serde(default)]
    pub(super) reason: String,
    /// A worker that holds the message has so long to end its work, in ms; 30000 if left out.
    pub(super) grace_ms: Option<u64>,
}

impl Cancel {
    /// The request as the engine knows it.
    pub(super) fn into_cancel(self) -> Result<quintet_types::Cancel, Problem> {
        let most = quintet_types::Cancel::GRACE_MAX_MS;
        let grace_ms = self.grace_ms.unwrap_or(quintet_types::Cancel::GRACE_MS);
        if grace_ms > most {
            let why = format!("takes at most {most} ms, which is a week; not {grace_ms}");
            return Err(Problem::field("grace_ms", why));
        }
        let reason = self.reason.into_bytes().into();
        Ok(quintet_types::Cancel { reason, grace_ms })
    }
}

/// The message of a lease is cancelled, so its worker should end its work.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Heard)]
pub(super) struct CancelNotice {
    /// Always `true`; a message that is not cancelled gets 204.
    pub(super) cancelled: bool,
}

/// That a message is cancelled, while its worker may still end its work.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ShownCancelled {
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason_base64: Option<String>,
    /// Its lease ends then at the latest.
    pub(super) until_ms: u64,
}

/// Changes to a message that no worker holds; fields left out stay.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Changes {
    /// New priority, 0 is the most urgent; left out: unchanged.
    pub(super) priority: Option<u32>,
    /// Not taken before so many ms are over; 0: ready at once.
    #[serde(default, deserialize_with = "super::read::duration_ms")]
    pub(super) delay_ms: Option<u64>,
    /// New body as text, 64 KiB at most; the message has another id then.
    pub(super) body: Option<String>,
    /// New body in base64, in place of `body`.
    pub(super) body_base64: Option<String>,
}

/// Where a message goes.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    /// Name of the queue that the message goes to.
    pub(super) to: String,
}

/// How long a pause lasts.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseFor {
    /// So many ms, 3660 days at most; left out: until it is resumed.
    #[serde(default, deserialize_with = "super::read::duration_ms")]
    pub(super) for_ms: Option<u64>,
}

/// Which messages an operation is about; all of it has to fit.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Act)]
pub(super) struct OperationRequest {
    /// Their state; left out: all in which messages are not done for a cancel, `buried` for a
    /// kick, else `ready`.
    pub(super) state: Option<String>,
    /// Their body, of 64 KiB at most, contains this.
    pub(super) contains: Option<String>,
    /// Only messages with this key.
    pub(super) key: Option<String>,
    /// Instead of `key`, one that is no text.
    pub(super) key_base64: Option<String>,
    /// Only messages with this name.
    pub(super) name: Option<String>,
    /// Instead of `name`, one that is no text.
    pub(super) name_base64: Option<String>,
    /// Only messages with all these attributes.
    #[serde(default, deserialize_with = "quintet_client::unique")]
    pub(super) headers: BTreeMap<String, String>,
    /// Only messages with this error text, each number written as `#`.
    pub(super) error: Option<String>,
    /// Only members of this batch.
    pub(super) batch: Option<String>,
    /// They were put so many ms ago, or earlier.
    #[serde(default)]
    pub(super) older_ms: u64,
    /// Ends after so many messages.
    pub(super) max: Option<u64>,
    /// Of a purge with a `max`: that is all there is, so deduplication ids are forgotten, as
    /// without a `max`.
    #[serde(default)]
    pub(super) all: bool,
    /// Counts the messages and changes nothing.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// Without rests: others wait longer.
    #[serde(default)]
    pub(super) fast: bool,
    /// Of a move: the queue that the messages go to.
    pub(super) to: Option<String>,
    /// Of a cancel: the reason, for workers and operators.
    pub(super) reason: Option<String>,
    /// Of a cancel: a worker that holds a message has so long to end its work; 30000 if left out.
    pub(super) grace_ms: Option<u64>,
    /// Go on where the operation before ended.
    pub(super) cursor: Option<String>,
}

/// Continuation of a release of the leases of a queue.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Released {
    /// Go on where the request before ended.
    pub(super) cursor: Option<String>,
}

/// The removed queues, or those that would be removed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Dropped {
    pub(super) queues: u64,
    /// Messages that were in them.
    pub(super) messages: u64,
    /// Queues that stay as they hold messages.
    pub(super) passed: u64,
    /// Go on with this; null: that was all.
    pub(super) cursor: Option<String>,
}

/// Result of one request of a bulk operation; with a `cursor` more messages follow.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Acted {
    /// Messages that were changed, or would be with `dry_run`.
    pub(super) messages: u64,
    /// Go on with this; null: all were looked at.
    pub(super) cursor: Option<String>,
}

/// A message as lists and `GET /messages/ID` show it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Shown)]
pub(super) struct MessageView {
    pub(super) id: u64,
    pub(super) queue: String,
    pub(super) state: &'static str,
    pub(super) priority: u32,
    /// The old name of `priority`, for one release.
    pub(super) rank: u32,
    pub(super) created_ms: u64,
    pub(super) due_ms: Option<u64>,
    pub(super) expires_ms: Option<u64>,
    pub(super) ttr_ms: Option<u64>,
    /// Its grouping key, if it is text.
    pub(super) key: Option<String>,
    /// Any other key, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_base64: Option<String>,
    /// Its own name, if it was given one and it is text.
    pub(super) name: Option<String>,
    /// Any other name of its own, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name_base64: Option<String>,
    /// Attributes whose values are text.
    pub(super) headers: BTreeMap<String, String>,
    /// Attributes with any other value, in base64. Bytes of a name that are no text are shown as
    /// those of a queue's name, `\\xNN`; such a name is here, too.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers_base64: BTreeMap<String, String>,
    /// Last report about it, such as why it was buried.
    pub(super) status: String,
    /// The same in base64, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status_base64: Option<String>,
    /// How far the work on it has come, in percent, as its holder said last.
    pub(super) progress: Option<u8>,
    /// The queue that gets its result when it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reply_to: Option<String>,
    /// Reason and end of the grace, if it is cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cancelled: Option<ShownCancelled>,
    /// The messages that it waits for, or waited, and how they ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) after: Vec<ShownParent>,
    /// Leases so far.
    pub(super) attempts: u32,
    /// Tries that failed, as the queue's policy counts them.
    pub(super) failures: u32,
    /// Length of the body, bytes; the field `body` has it up to 64 KiB.
    pub(super) bytes: u64,
    /// The body, if it is text and has at most 64 KiB.
    pub(super) body: Option<String>,
    /// Any other body of at most 64 KiB, in base64.
    pub(super) body_base64: Option<String>,
    /// Version that `If-Match` compares.
    pub(super) version: String,
    /// Of a message that was just reserved: names its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<String>,
}

/// A page of messages.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Page {
    pub(super) messages: Vec<MessageView>,
    /// Go on with this; null: that was all.
    pub(super) cursor: Option<String>,
}

/// A page of queues with their numbers.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Queues {
    /// Each as the queue's own address tells it.
    #[schema(value_type = Vec<Object>)]
    pub(super) queues: Vec<Value>,
    /// Go on with this; null: that was all.
    pub(super) cursor: Option<String>,
}

/// A queue that is to get copies of another's puts.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Child {
    /// Part of its own name behind the other's name and a `+`.
    pub(super) name: String,
}

/// A queue by its name.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Named {
    pub(super) queue: String,
}

/// A lease, without its token.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Leased {
    /// The message's id.
    pub(super) message: u64,
    /// The connection that holds it, as `/connections` numbers them; null: a
    /// script, the client that has the token, or nobody since a restart.
    pub(super) connection: Option<u64>,
    /// The protocol it was given over, as far as it is known; so are the next ones.
    pub(super) protocol: Option<String>,
    /// The old name of `protocol`, for one release.
    pub(super) voice: Option<String>,
    /// The address of its holder.
    pub(super) peer: Option<String>,
    /// The user it was given to, for those with the right `server`.
    pub(super) user: Option<String>,
    /// Name of its holder: the field `worker` of `reserve`, a `User-Agent`, a worker's name of
    /// Faktory.
    pub(super) worker: Option<String>,
    /// The holder in words, such as its worker or connection.
    pub(super) holder: String,
    /// Condition that ends it besides its time and its holder: `connection`, `process` or `time`,
    /// which is none.
    pub(super) bound: &'static str,
    /// How long it is held, or was last prolonged; null: it has no end.
    pub(super) held_ms: Option<u64>,
    /// How long it lasts; null: it has no end.
    pub(super) left_ms: Option<u64>,
    /// When it ends, ms since 1970; null: it has no end.
    pub(super) until_ms: Option<u64>,
    /// Leases of the message so far, this one included.
    pub(super) attempts: u32,
    /// How far the work has come, in percent, as a holder said last.
    pub(super) progress: Option<u8>,
    /// Last report about the message.
    pub(super) status: String,
    /// The same in base64, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status_base64: Option<String>,
}

/// A page of leases.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Leases {
    pub(super) leases: Vec<Leased>,
    /// Go on with this; null: that was all.
    pub(super) cursor: Option<String>,
}

/// How a queue's numbers were.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct PastOfQueue {
    pub(super) queue: String,
    /// The last hour, in steps of a minute.
    pub(super) minutes: Past,
    /// The last day, in steps of a quarter of an hour: `ready` and `oldest_s`
    /// at their most.
    pub(super) quarters: Past,
}

/// Numbers in steps of the same length, oldest first; null: nobody looked.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub(super) struct Past {
    /// Length of a step, ms.
    pub(super) step_ms: u64,
    /// End of the last step, ms since 1970.
    pub(super) end_ms: u64,
    /// Ready messages; a quarter of an hour shows its maximum.
    pub(super) ready: Vec<Option<u32>>,
    /// Age of the oldest ready message, s.
    pub(super) oldest_s: Vec<Option<u32>>,
    /// Messages that came, each second.
    pub(super) in_per_s: Vec<Option<f64>>,
    /// Messages that consumers finished, or that failed for good, each second.
    pub(super) out_per_s: Vec<Option<f64>>,
    /// Delayed messages that became due, each second.
    pub(super) due_per_s: Vec<Option<f64>>,
    /// Messages that left, by reason: finished, removed, failed, dropped, expired, moved.
    pub(super) left_per_s: BTreeMap<&'static str, Vec<Option<f64>>>,
}

impl Leased {
    pub(crate) fn of(message: &Message, lease: &Lease, holder: Holder, now: Ms) -> Self {
        let left_ms = lease.until.map(|until| until.since(now));
        Self {
            message: message.id.0,
            connection: holder.connection,
            voice: holder.protocol.clone(),
            protocol: holder.protocol,
            peer: holder.peer,
            user: holder.user,
            worker: holder.worker,
            holder: holder.text,
            bound: lease.bound.word(),
            held_ms: left_ms.map(|left| lease.span_ms.saturating_sub(left)),
            left_ms,
            until_ms: lease.until.map(|until| until.0),
            attempts: message.reserves,
            progress: message.progress(),
            status: lossy(status(message)),
            status_base64: base64_unless_text(status(message)),
        }
    }
}

impl PastOfQueue {
    /// `wall` tells what the wall clock shows at a moment.
    pub(crate) fn of(queue: &Name, history: Option<History>, wall: impl Fn(Ms) -> Ms) -> Self {
        let (minutes, quarters) = history.map_or_else(Default::default, |history| {
            let (minutes, quarters) = (&history.minutes, &history.quarters);
            (Past::of(minutes, &wall), Past::of(quarters, &wall))
        });
        Self {
            queue: queue.to_string(),
            minutes,
            quarters,
        }
    }
}

impl Past {
    fn of(series: &Series, wall: impl Fn(Ms) -> Ms) -> Self {
        let samples = || series.samples.iter();
        Self {
            step_ms: series.step_ms,
            end_ms: wall(series.end).0,
            ready: samples().map(|s| s.map(|s| s.ready)).collect(),
            oldest_s: samples().map(|s| s.map(|s| s.oldest_s)).collect(),
            in_per_s: samples().map(|s| s.map(|s| s.rates.rounded()[0])).collect(),
            out_per_s: samples().map(|s| s.map(|s| s.rates.rounded()[1])).collect(),
            due_per_s: samples()
                .map(|s| s.map(|s| s.rates.due_rounded()))
                .collect(),
            left_per_s: {
                let names = Left::<f32>::NAMES.into_iter().enumerate();
                let one = |at: usize| samples().map(move |s| s.map(|s| s.rates.left_rounded()[at]));
                names.map(|(at, name)| (name, one(at).collect())).collect()
            },
        }
    }
}

/// Last report about a message.
fn status(message: &Message) -> &[u8] {
    let extra = message.extra.as_deref();
    extra.map_or(&[][..], |extra| &extra.status)
}

impl MessageView {
    pub(crate) fn of(message: &Message, queue: &Name, now: quintet_types::Ms) -> Self {
        let extra = message.extra.as_deref();
        let attrs = extra.map_or(&[][..], |extra| &extra.attrs);
        let small = message.body.as_small();
        let text = small.and_then(|bytes| std::str::from_utf8(bytes).ok());
        Self {
            id: message.id.0,
            queue: queue.to_string(),
            state: ListState::of(message, now).word(),
            priority: message.priority,
            rank: message.priority,
            created_ms: message.created.0,
            due_ms: message.due().map(|at| at.0),
            expires_ms: message.expires().map(|at| at.0),
            ttr_ms: message.ttr_ms,
            key: message.key().and_then(|key| text_of(key)),
            key_base64: message.key().and_then(|key| base64_unless_text(key)),
            name: message.name().and_then(|name| text_of(name)),
            name_base64: message.name().and_then(|name| base64_unless_text(name)),
            headers: attrs
                .iter()
                .filter_map(|(name, value)| Some((text_of(name)?, text_of(value)?)))
                .collect(),
            headers_base64: attrs
                .iter()
                .filter(|(name, value)| text_of(name).is_none() || text_of(value).is_none())
                .map(|(name, value)| (Name::new(name).to_string(), BASE64_STANDARD.encode(value)))
                .collect(),
            status: lossy(status(message)),
            status_base64: base64_unless_text(status(message)),
            progress: message.progress(),
            reply_to: message.reply_to().map(|reply| reply.queue.to_string()),
            cancelled: message.cancelled().map(|cancelled| ShownCancelled {
                reason: lossy(&cancelled.reason),
                reason_base64: base64_unless_text(&cancelled.reason),
                until_ms: cancelled.until.0,
            }),
            after: super::after::shown(message),
            attempts: message.reserves,
            failures: message.failures(),
            bytes: message.body.len(),
            body: text.map(str::to_owned),
            body_base64: match (small, text) {
                (Some(bytes), None) => Some(BASE64_STANDARD.encode(bytes)),
                _ => None,
            },
            version: version(message),
            lease: None,
        }
    }

    /// With the token of the lease it was just given.
    pub(super) fn leased(message: &Message, queue: &Name, now: quintet_types::Ms) -> Self {
        Self {
            lease: Some(token(message)),
            ..Self::of(message, queue, now)
        }
    }
}

/// A queue's numbers.
pub(super) fn queue(stats: &QueueStats, rates: Option<Rates>, recent: Option<&Recent>) -> Value {
    let left = rates.map(|rates| {
        let names = Left::<f32>::NAMES.into_iter().map(str::to_owned);
        let values = rates.left_rounded().map(Value::from);
        names.zip(values).collect::<serde_json::Map<_, _>>()
    });
    let mut map = serde_json::Map::new();
    map.insert("name".into(), stats.name.to_string().into());
    map.insert("created_ms".into(), stats.created.0.into());
    map.insert("oldest_ms".into(), stats.oldest_ms.into());
    map.insert("age_ms".into(), stats.age_ms.into());
    map.insert("paused".into(), stats.paused.into());
    map.insert("down".into(), stats.down.into());
    map.insert("memory".into(), stats.memory.into());
    map.insert("due_per_s".into(), rates.map(Rates::due_rounded).into());
    let rates = rates.map(Rates::rounded);
    map.insert("in_per_s".into(), rates.map(|[into, _]| into).into());
    map.insert("out_per_s".into(), rates.map(|[_, out]| out).into());
    map.insert("left_per_s".into(), left.into());
    map.insert("why_slow".into(), why_slow(stats, recent).into());
    map.extend(numbers(&stats.gauges, &stats.totals));
    Value::Object(map)
}

/// Numbers of a queue, or of all, by their names.
pub(super) fn numbers(
    gauges: &QueueGauges,
    totals: &QueueTotals,
) -> impl Iterator<Item = (String, Value)> {
    // Old names, for one release.
    let old = [
        ("held_back", gauges.not_selectable),
        ("lookers", gauges.waiting_peeks),
        ("total_looks", totals.peeks),
    ];
    let old = old.map(|(name, value)| (name.to_owned(), Value::from(value)));
    let gauges = QueueGauges::NAMES.iter().zip(gauges.values());
    let gauges = gauges.map(|(name, value)| ((*name).to_owned(), Value::from(value)));
    let totals = QueueTotals::NAMES.iter().zip(totals.values());
    let totals = totals.map(|(name, value)| (format!("total_{name}"), Value::from(value)));
    old.into_iter().chain(gauges).chain(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_old_names_too() {
        let gauges = QueueGauges {
            waiting_peeks: 2,
            not_selectable: 4,
            ..QueueGauges::default()
        };
        let totals = QueueTotals {
            peeks: 3,
            ..QueueTotals::default()
        };
        let all: serde_json::Map<String, Value> = numbers(&gauges, &totals).collect();
        for (name, number) in [
            ("waiting_peeks", 2),
            ("lookers", 2),
            ("not_selectable", 4),
            ("held_back", 4),
            ("total_peeks", 3),
            ("total_looks", 3),
        ] {
            assert_eq!(all[name], number, "{name}");
        }
    }
}
