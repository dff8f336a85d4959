//! JetStream's requests and replies as bytes: this module knows no connections.
//!
//! Source: the servers' JetStream API, `io.nats.jetstream.api.v1`.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use quintet_cluster::{Answer, Ends, EntryLookup, Seq};
use serde::{Deserialize, Serialize};

/// The longest entry a stream takes, bytes.
const ENTRY_BYTES_MAX: i32 = 1 << 20;
/// For so long a stream knows ids of messages, nanoseconds; entries have none.
const DUPLICATES_NS: u64 = 100_000_000;

/// "wrong last sequence: N", and without the number while an append before it is on its way.
const WRONG_LAST: [u64; 2] = [10_071, 10_164];
/// Resources of the account, of the server, memory, storage; what a store could not write.
const NO_ROOM: [u64; 5] = [10_002, 10_023, 10_028, 10_047, 10_077];
/// "no message found".
pub(crate) const NO_MESSAGE: u64 = 10_037;
/// "stream not found".
pub(crate) const NO_STREAM: u64 = 10_059;

/// Why JetStream did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Refused {
    /// As HTTP has them.
    pub code: u16,
    /// Which error it is; 0: older servers do not say.
    #[serde(default)]
    pub err_code: u64,
    /// For people.
    #[serde(default)]
    pub description: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.description, self.err_code)
    }
}

/// Reads a reply. `None`: it is none. An error carries the fields of an answer too, as zeros, so
/// the error is looked for first.
pub(crate) fn reply<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<Result<T, Refused>> {
    #[derive(Deserialize)]
    struct Error {
        error: Option<Refused>,
    }
    let Error { error } = serde_json::from_slice(bytes).ok()?;
    if let Some(refused) = error {
        return Some(Err(refused));
    }
    serde_json::from_slice(bytes).ok().map(Ok)
}

/// Result of an append to the stream called `stream`.
pub(crate) fn ack(stream: &str, bytes: &[u8]) -> Answer {
    #[derive(Deserialize)]
    struct Ack {
        stream: String,
        seq: u64,
        #[serde(default)]
        duplicate: bool,
    }
    match reply::<Ack>(bytes) {
        // Another stream's, or of something with a message id: neither is an answer to this.
        Some(Ok(ack)) if ack.stream != stream || ack.duplicate || ack.seq == 0 => Answer::Unknown,
        Some(Ok(ack)) => Answer::Stored(Seq(ack.seq)),
        Some(Err(refused)) if WRONG_LAST.contains(&refused.err_code) => Answer::Wrong,
        Some(Err(refused)) if NO_ROOM.contains(&refused.err_code) => {
            Answer::Full(refused.to_string())
        }
        Some(Err(_)) | None => Answer::Unknown,
    }
}

/// A reply that says only that there is nobody to ask now, as a server does that its peers cannot
/// reach.
pub(crate) fn is_unavailable(bytes: &[u8]) -> bool {
    /// Such replies are short, others may be whole entries.
    const SHORT: usize = 512;
    let refused = || reply::<serde::de::IgnoredAny>(bytes)?.err();
    bytes.len() <= SHORT && refused().is_some_and(|refused| refused.code == 503)
}

/// Whether a reply to a question for the stream says that somebody leads, be it that there is no
/// such stream.
pub(crate) fn is_led(bytes: &[u8]) -> bool {
    match info(bytes) {
        Some(Ok(info)) => info.is_led(),
        Some(Err(_)) => !is_unavailable(bytes),
        None => false,
    }
}

/// How a stream is set up, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    pub name: String,
    /// The stream appends the messages published there.
    pub subjects: Vec<String>,
    retention: String,
    storage: String,
    discard: String,
    /// Servers that keep it.
    pub num_replicas: usize,
    #[serde(default = "unlimited")]
    max_msgs: i64,
    #[serde(default = "unlimited")]
    max_bytes: i64,
    #[serde(default)]
    max_age: u64,
    #[serde(default = "unlimited")]
    max_msg_size: i64,
    #[serde(default)]
    duplicate_window: u64,
    #[serde(default)]
    deny_delete: bool,
    #[serde(default)]
    allow_direct: bool,
    #[serde(default = "uncompressed")]
    compression: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    republish: Option<Republish>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<Placement>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

/// The key of a stream's metadata that has the id of the log.
const LOG_ID: &str = "quintet-log";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Republish {
    src: String,
    dest: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Placement {
    #[serde(default)]
    tags: Vec<String>,
}

fn uncompressed() -> String {
    "none".to_owned()
}

fn unlimited() -> i64 {
    -1
}

impl Config {
    /// The log `id` of a group: kept until it is purged, on files, by `replicas` servers that have
    /// all of `tags`.
    pub(crate) fn of_log(names: &Names, replicas: usize, tags: &[String], id: &str) -> Self {
        Self {
            name: names.stream.clone(),
            subjects: vec![names.log.clone()],
            retention: "limits".to_owned(),
            storage: "file".to_owned(),
            discard: "new".to_owned(),
            num_replicas: replicas,
            max_msgs: -1,
            max_bytes: -1,
            max_age: 0,
            max_msg_size: i64::from(ENTRY_BYTES_MAX),
            duplicate_window: DUPLICATES_NS,
            deny_delete: true,
            allow_direct: true,
            compression: uncompressed(),
            republish: Some(Republish {
                src: names.log.clone(),
                dest: names.tail.clone(),
            }),
            placement: (!tags.is_empty()).then(|| Placement {
                tags: tags.to_vec(),
            }),
            metadata: BTreeMap::from([(LOG_ID.to_owned(), id.to_owned())]),
        }
    }

    /// In what `found` differs so that a log would lose something or stand still; each a line for
    /// the operator.
    pub(crate) fn faults(&self, found: &Config) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |what: &str, is: &dyn std::fmt::Debug, want: &dyn std::fmt::Debug| {
            let (is, want) = (format!("{is:?}"), format!("{want:?}"));
            if is != want {
                faults.push(format!("{what} is {is}, not {want}"));
            }
        };
        macro_rules! check {
            ($($field:ident),*) => {
                $(check(stringify!($field), &found.$field, &self.$field);)*
            };
        }
        check! { subjects, retention, storage, discard, max_msgs, max_age }
        check! { deny_delete, allow_direct, compression, republish }
        if found.num_replicas < self.num_replicas {
            faults.push(format!(
                "it has {} replicas, not {}",
                found.num_replicas, self.num_replicas
            ));
        }
        let most = i64::from(ENTRY_BYTES_MAX);
        if (0..most).contains(&found.max_msg_size) {
            faults.push(format!(
                "max_msg_size is {}, less than {most}",
                found.max_msg_size
            ));
        }
        faults
    }
}

/// A stream as its leader knows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Info {
    /// How it is set up.
    pub config: Config,
    /// When it was made, in the server's words. It changes when two clients make the same stream
    /// at once, and may when a server recovers it.
    pub created: String,
    state: State,
    /// The servers that keep it; absent of a single server.
    pub cluster: Option<Peers>,
}

#[derive(Clone, Debug, Deserialize)]
struct State {
    first_seq: u64,
    last_seq: u64,
    messages: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    subjects: BTreeMap<String, u64>,
}

/// The servers that keep a stream.
#[derive(Clone, Debug, Deserialize)]
pub struct Peers {
    /// The server that appends; `None` while there is none.
    #[serde(default)]
    pub leader: Option<String>,
    /// The others.
    #[serde(default)]
    pub replicas: Vec<Peer>,
}

/// A server that keeps a stream and does not lead it.
#[derive(Clone, Debug, Deserialize)]
pub struct Peer {
    /// The server's name.
    pub name: String,
    /// It has everything.
    #[serde(default)]
    pub current: bool,
    /// It was not heard of lately.
    #[serde(default)]
    pub offline: bool,
    /// Entries it lacks.
    #[serde(default)]
    pub lag: u64,
    /// How long ago the leader heard of it, ns. Followers answer a heartbeat each second.
    #[serde(default)]
    active: u64,
}

/// A follower that the leader has not heard of for so long may be beyond its reach, ns. Three
/// heartbeats; followers elect after four to nine seconds without one.
const UNHEARD: u64 = 3_000_000_000;

/// The name of a server that keeps a stream alone.
pub(crate) const ONLY: &str = "the only NATS server";

impl Info {
    /// Whether who said so could store anything: a leader that its peers cannot reach goes on
    /// answering for ten seconds, with others leading long before.
    pub(crate) fn is_led(&self) -> bool {
        let Some(peers) = &self.cluster else {
            return true;
        };
        let is_current = |peer: &&Peer| !peer.offline && peer.active < UNHEARD;
        let with = 1 + peers.replicas.iter().filter(is_current).count();
        peers.leader.is_some() && with > peers.replicas.len().div_ceil(2)
    }

    /// The id of the log that the stream was made for; `None`: it was made without one.
    pub fn log_id(&self) -> Option<&str> {
        self.config.metadata.get(LOG_ID).map(String::as_str)
    }

    /// The places it has.
    pub fn ends(&self) -> Ends {
        Ends {
            // Of a stream that never had an entry the servers say 0.
            first: Seq(self.state.first_seq.max(1)),
            last: Seq(self.state.last_seq),
            count: self.state.messages,
            leader: Some(match &self.cluster {
                Some(peers) => peers.leader.as_deref().unwrap_or_default().into(),
                None => ONLY.into(),
            }),
        }
    }

    /// Bytes it takes, on each of its servers.
    pub fn bytes(&self) -> u64 {
        self.state.bytes
    }

    /// The subjects that were requested, and have messages.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &str> {
        self.state.subjects.keys().map(String::as_str)
    }
}

/// A stream that was requested. `None`: that is no answer.
pub(crate) fn info(bytes: &[u8]) -> Option<Result<Info, Refused>> {
    reply(bytes)
}

/// A stored message: its number in the stream, and its content.
pub(crate) fn stored(bytes: &[u8]) -> Option<Result<(u64, Bytes), Refused>> {
    #[derive(Deserialize)]
    struct Got {
        message: Message,
    }
    #[derive(Deserialize)]
    struct Message {
        seq: u64,
        #[serde(default)]
        data: String,
    }
    match reply::<Got>(bytes)? {
        Ok(Got { message }) => {
            let data = BASE64_STANDARD.decode(message.data).ok()?;
            Some(Ok((message.seq, data.into())))
        }
        Err(refused) => Some(Err(refused)),
    }
}

/// The leader's content of `seq`.
pub(crate) fn found(seq: Seq, bytes: &[u8]) -> EntryLookup {
    match stored(bytes) {
        Some(Ok((at, data))) if at == seq.0 => EntryLookup::Entry(data),
        Some(Err(refused)) if refused.err_code == NO_MESSAGE => EntryLookup::Nothing,
        Some(_) | None => EntryLookup::Unknown,
    }
}

/// Whether a message was stored, wherever that is.
pub(crate) fn acknowledged(bytes: &[u8]) -> Option<Result<(), Refused>> {
    #[derive(Deserialize)]
    struct Ack {
        seq: u64,
    }
    match reply::<Ack>(bytes)? {
        Ok(Ack { seq }) => (seq > 0).then_some(Ok(())),
        Err(refused) => Some(Err(refused)),
    }
}

/// Whether something was done that is answered with yes or no.
pub(crate) fn done(bytes: &[u8]) -> Option<Result<(), Refused>> {
    #[derive(Deserialize)]
    struct SuccessResponse {
        success: bool,
    }
    match reply::<SuccessResponse>(bytes)? {
        Ok(SuccessResponse { success }) => success.then_some(Ok(())),
        Err(refused) => Some(Err(refused)),
    }
}

/// A part of what was requested with a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Entry(Seq, Bytes),
    /// No more of this batch; there may be more to ask for.
    End,
    /// This server has nothing there, and may be behind.
    Nothing,
    /// The server did not understand, or nobody is there to answer.
    Failed,
}

/// A message that came for a batch: its status (200: none), the sequence its head names, its bytes.
pub(crate) fn part(status: u16, seq: Option<&str>, payload: Bytes) -> Part {
    match (status, seq.and_then(|seq| seq.parse().ok())) {
        (200, Some(seq)) => Part::Entry(Seq(seq), payload),
        (204, _) => Part::End,
        (404, _) => Part::Nothing,
        _ => Part::Failed,
    }
}

/// Names of a group's stream and its subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub group: u16,
    pub stream: String,
    /// The stream appends the messages published there.
    pub log: String,
    /// The stream publishes the appended messages there.
    pub tail: String,
    /// The bucket of its runs.
    pub runs: String,
    /// The bucket of its scripts' attachments.
    pub files: String,
}

impl Names {
    /// The names for one group of a cluster. They must not change: data is stored under them.
    pub fn of(cluster: &str, group: u16) -> Self {
        Self {
            group,
            stream: format!("Q_{cluster}_{group}"),
            log: format!("quintet.{cluster}.log.{group}"),
            tail: format!("quintet.{cluster}.tail.{group}"),
            runs: format!("Q_{cluster}_{group}_runs"),
            files: format!("Q_{cluster}_{group}_files"),
        }
    }

    /// The subject of a question about the stream.
    pub(crate) fn api(&self, question: &str) -> String {
        format!("$JS.API.{question}.{}", self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_no_responders_is_no_answer() {
        let nobody = br#"{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}"#;
        assert!(is_unavailable(nobody));
        let absent = br#"{"error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        for answer in [&absent[..], br#"{"success":true}"#, b"", b"x"] {
            assert!(!is_unavailable(answer));
        }
    }

    #[test]
    fn an_error_is_seen_before_the_zeros_beside_it() {
        let wrong = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"Q_a_0","seq":0}"#;
        assert_eq!(ack("Q_a_0", wrong), Answer::Wrong);
        let wrong = br#"{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"},"stream":"Q_a_0","seq":0}"#;
        assert_eq!(ack("Q_a_0", wrong), Answer::Wrong);
        let full = br#"{"error":{"code":503,"err_code":10077,"description":"no space left on device"},"stream":"Q_a_0","seq":0}"#;
        let why = "no space left on device (10077)".to_owned();
        assert_eq!(ack("Q_a_0", full), Answer::Full(why));
    }

    #[test]
    fn only_an_acknowledgement_of_this_stream_is_one() {
        let stored = br#"{"stream":"Q_a_0","seq":12}"#;
        assert_eq!(ack("Q_a_0", stored), Answer::Stored(Seq(12)));
        assert_eq!(ack("Q_b_0", stored), Answer::Unknown);
        for other in [
            &br#"{"stream":"Q_a_0","seq":12,"duplicate":true}"#[..],
            br#"{"stream":"Q_a_0","seq":0}"#,
            br#"{"stream":"Q_a_0"}"#,
            br#"{"error":{"code":503,"err_code":10008,"description":"system temporarily unavailable"}}"#,
            b"",
            b"{",
            b"[]",
        ] {
            assert_eq!(ack("Q_a_0", other), Answer::Unknown);
        }
    }

    #[test]
    fn an_entry_counts_only_at_its_sequence() {
        let entry = br#"{"type":"x","message":{"subject":"s","seq":3,"data":"YWJj","time":"t"}}"#;
        assert_eq!(found(Seq(3), entry), EntryLookup::Entry("abc".into()));
        assert_eq!(found(Seq(4), entry), EntryLookup::Unknown);
        let none = br#"{"error":{"code":404,"err_code":10037,"description":"no message found"}}"#;
        assert_eq!(found(Seq(3), none), EntryLookup::Nothing);
        let bad = br#"{"message":{"seq":3,"data":"!"}}"#;
        assert_eq!(found(Seq(3), bad), EntryLookup::Unknown);
    }

    #[test]
    fn batches_are_read_by_status() {
        let bytes = Bytes::from_static(b"x");
        let entry = Part::Entry(Seq(9), bytes.clone());
        assert_eq!(part(200, Some("9"), bytes.clone()), entry);
        assert_eq!(part(204, None, bytes.clone()), Part::End);
        assert_eq!(part(404, None, bytes.clone()), Part::Nothing);
        for (status, seq) in [(503, None), (408, None), (200, None), (200, Some("x"))] {
            assert_eq!(part(status, seq, bytes.clone()), Part::Failed);
        }
    }

    #[test]
    fn settings_that_may_lose_messages_are_named() {
        let names = Names::of("a", 0);
        let wanted = Config::of_log(&names, 3, &[], "1");
        let text = serde_json::to_string(&wanted).unwrap();
        let mut found: Config = serde_json::from_str(&text).unwrap();
        assert_eq!(wanted.faults(&found), [""; 0]);
        found.num_replicas = 1;
        found.storage = "memory".to_owned();
        found.max_age = 1;
        found.max_msg_size = 1000;
        found.compression = "s2".to_owned();
        let faults = wanted.faults(&found).join(
            "
",
        );
        for part in [
            "1 replicas",
            r#"storage is "memory""#,
            "max_age",
            "max_msg_size",
            r#"compression is "s2""#,
        ] {
            assert!(faults.contains(part), "{part}: {faults}");
        }
        // More of them lose nothing.
        found = serde_json::from_str(&text).unwrap();
        found.num_replicas = 5;
        assert_eq!(wanted.faults(&found), [""; 0]);
    }

    #[test]
    fn an_empty_stream_begins_at_one() {
        let text = serde_json::json!({
            "config": Config::of_log(&Names::of("a", 0), 1, &[], "1"),
            "created": "2026-01-01T00:00:00Z",
            "state": {"first_seq": 0, "last_seq": 0, "messages": 0},
        });
        let info = info(text.to_string().as_bytes()).unwrap().unwrap();
        let Ends { first, last, .. } = info.ends();
        assert_eq!((first, last), (Seq(1), Seq(0)));
    }

    #[test]
    fn a_leader_without_followers_leads_no_more() {
        let response = |leader: &str, active: [u64; 2]| {
            let config = serde_json::to_value(Config::of_log(&Names::of("a", 0), 3, &[], "1"))
                .expect("JSON");
            let replicas = active
                .map(|active| serde_json::json!({"name": "n", "current": true, "active": active}));
            let info = serde_json::json!({
                "config": config,
                "created": "2026-01-01T00:00:00Z",
                "state": {"first_seq": 1, "last_seq": 2, "messages": 2},
                "cluster": {"leader": leader, "replicas": replicas},
            });
            is_led(info.to_string().as_bytes())
        };
        assert!(response("n0", [400_000_000, 900_000_000]));
        assert!(response("n0", [60_000_000_000, 2_900_000_000]));
        assert!(!response("n0", [3_000_000_000, 3_100_000_000]));
        let refused = |code: u64, number: u64| {
            format!("{{\"error\":{{\"code\":{code},\"err_code\":{number}}}}}")
        };
        assert!(is_led(refused(404, 10_059).as_bytes()));
        assert!(!is_led(refused(503, 10_008).as_bytes()));
    }
}
