//! A message without its body, as the API and export files say it
//! (`docs/export-format.md`).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use quintet_types::{Attr, Body, Expiry, Message, Ms, Name, Past, Put, PutMore, State, When};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Everything about a message. Fields that are left out have their default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Name of the queue as it is shown: other bytes than printable ASCII, and
    /// the backslash, are escaped.
    pub queue: String,
    /// Identity where it was stored; 0: it has none yet.
    #[serde(default, skip_serializing_if = "is_default")]
    pub id: u64,
    /// Where it is in its life.
    #[serde(default)]
    pub state: Standing,
    /// `None`: the queue's default.
    #[serde(default, alias = "rank", skip_serializing_if = "is_default")]
    pub priority: Option<u32>,
    /// Order inside its priority.
    #[serde(default, skip_serializing_if = "is_default")]
    pub place: i64,
    /// Leaves only with a companion.
    #[serde(default, alias = "held_back", skip_serializing_if = "is_default")]
    pub not_selectable: bool,
    /// Client's flags.
    #[serde(default, skip_serializing_if = "is_default")]
    pub flags: u32,
    /// When it was put, Unix ms; `None`: now.
    #[serde(default, skip_serializing_if = "is_default")]
    pub created_ms: Option<u64>,
    /// Not taken before, Unix ms.
    #[serde(default, skip_serializing_if = "is_default")]
    pub due_ms: Option<u64>,
    /// Gone from then on, Unix ms.
    #[serde(default, skip_serializing_if = "is_default")]
    pub expires_ms: Option<u64>,
    /// Time to run, ms; 0: given as "no deadline".
    #[serde(default, skip_serializing_if = "is_default")]
    pub ttr_ms: Option<u64>,
    /// Grouping key.
    #[serde(default, skip_serializing_if = "is_default")]
    pub key: Option<Text>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub name: Option<Text>,
    /// Named values: pairs of name and value.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attrs: Vec<(Text, Text)>,
    /// Last report about it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: Text,
    /// When its state last changed, Unix ms; 0: unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub changed_ms: u64,
    /// Its turn among the buried ones of its queue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bury_order: u64,
    /// Leases so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reserves: u32,
    /// Leases that ran out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: u32,
    /// Times it was given back.
    #[serde(default, skip_serializing_if = "is_default")]
    pub releases: u32,
    /// Times it was buried.
    #[serde(default, skip_serializing_if = "is_default")]
    pub buries: u32,
    /// Times it was kicked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kicks: u32,
    /// Tries that failed, as its queue counts them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failures: u32,
    /// Its outcome can be asked for by its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tracked: bool,
    /// The batch of which it is a member.
    #[serde(default, skip_serializing_if = "is_default")]
    pub batch: Option<String>,
    /// Length of the body.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bytes: u64,
}

quintet_types::named! {
    /// States as an operator names them, in the order of their codes in exports.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Standing, word {
        /// Waits to be taken.
        #[default]
        Ready = "ready",
        /// Waits for its due time.
        Delayed = "delayed",
        /// Under a lease.
        Reserved = "reserved",
        /// Set aside.
        Buried = "buried",
        /// Not yet committed.
        Prepared = "prepared",
        /// Finished and kept.
        Done = "done",
        /// Passed on and kept.
        Relayed = "relayed",
    }
}

/// Bytes that are mostly text: a JSON string if they are UTF-8, else
/// `{"base64": "..."}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub Vec<u8>);

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Coded {
                base64: BASE64_STANDARD.encode(&self.0),
            }
            .serialize(to),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Coded {
    base64: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a text or {\"base64\": ...}")]
enum AnyText {
    Plain(String),
    Coded(Coded),
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match AnyText::deserialize(from)? {
            AnyText::Plain(text) => Ok(Self(text.into_bytes())),
            AnyText::Coded(coded) => BASE64_STANDARD
                .decode(coded.base64)
                .map(Self)
                .map_err(|_| serde::de::Error::custom("this is not base64")),
        }
    }
}

impl Head {
    /// All but the body of a message; `queue` is where it is.
    pub fn of(message: &Message, queue: &Name) -> Self {
        let extra = message.extra.as_deref();
        let text = |bytes: &[u8]| Text(bytes.to_vec());
        Self {
            queue: queue.to_string(),
            id: message.id.0,
            state: match message.state {
                State::Prepared => Standing::Prepared,
                State::Ready => Standing::Ready,
                State::Reserved => Standing::Reserved,
                State::Buried => Standing::Buried,
                State::Done => Standing::Done,
                State::Relayed => Standing::Relayed,
            },
            priority: Some(message.priority),
            place: message.position,
            not_selectable: !message.selectable,
            flags: message.flags,
            created_ms: Some(message.created.0),
            due_ms: message.due().map(|at| at.0),
            expires_ms: message.expires().map(|at| at.0),
            ttr_ms: message.ttr_ms,
            key: message.key().map(|key| text(key)),
            name: message.name().map(|name| text(name)),
            attrs: extra.map_or_else(Vec::new, |extra| {
                let attrs = extra.attrs.iter();
                attrs
                    .map(|(name, value)| (text(name), text(value)))
                    .collect()
            }),
            status: extra.map_or_else(Text::default, |extra| text(&extra.status)),
            changed_ms: extra.map_or(0, |extra| extra.changed.0),
            bury_order: extra.map_or(0, |extra| extra.bury_order),
            reserves: message.reserves,
            timeouts: extra.map_or(0, |extra| extra.timeouts),
            releases: extra.map_or(0, |extra| extra.releases),
            buries: extra.map_or(0, |extra| extra.buries),
            kicks: extra.map_or(0, |extra| extra.kicks),
            failures: message.failures(),
            tracked: message.is_tracked(),
            batch: message
                .tie()
                .filter(|tie| tie.is_member())
                .map(|tie| tie.batch.to_string()),
            bytes: message.body.len(),
        }
    }

    /// The put that stores it again, still without its body, and in no batch.
    pub fn put(self) -> Put {
        let boxed = |text: Text| text.0.into_boxed_slice();
        let past = Past {
            state: match self.state {
                Standing::Prepared => State::Prepared,
                Standing::Ready | Standing::Delayed | Standing::Reserved => State::Ready,
                Standing::Buried => State::Buried,
                Standing::Done => State::Done,
                Standing::Relayed => State::Relayed,
            },
            created: Ms(self.created_ms.unwrap_or(u64::MAX)),
            changed: Ms(self.changed_ms),
            status: boxed(self.status),
            reserves: self.reserves,
            timeouts: self.timeouts,
            releases: self.releases,
            buries: self.buries,
            kicks: self.kicks,
            failures: self.failures,
        };
        let attrs = self.attrs.into_iter();
        let more = PutMore {
            not_selectable: self.not_selectable,
            key: self.key.map(|key| key.0.into()),
            name: self.name.map(|name| name.0.into()),
            attrs: attrs
                .map(|(name, value)| -> Attr { (boxed(name), boxed(value)) })
                .collect(),
            tracked: self.tracked,
            past: Some(Box::new(past)),
            ..PutMore::default()
        };
        Put {
            queue: Name::of_shown(&self.queue),
            must_exist: false,
            body: Body::default(),
            priority: self.priority,
            flags: self.flags,
            due: self.due_ms.map_or(When::Now, |at| When::At(Ms(at))),
            expires: self
                .expires_ms
                .map_or(Expiry::Never, |at| Expiry::At(Ms(at))),
            ttr_ms: self.ttr_ms,
            more: Some(Box::new(more)),
        }
    }
}

/// All of [`Head`], and always the fields that most readers look for.
pub fn message_value(message: &Message, queue: &Name) -> Value {
    let head = Head::of(message, queue);
    let mut value = serde_json::to_value(&head).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.insert("bytes".into(), head.bytes.into());
        map.insert("flags".into(), head.flags.into());
        map.insert("due_ms".into(), head.due_ms.into());
        map.insert("expires_ms".into(), head.expires_ms.into());
        map.insert("reserves".into(), head.reserves.into());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Head {
        Head {
            queue: "a\\xff".to_owned(),
            id: 7,
            state: Standing::Buried,
            priority: Some(0),
            place: -3,
            not_selectable: true,
            flags: 5,
            created_ms: Some(1),
            due_ms: Some(2),
            expires_ms: Some(3),
            ttr_ms: Some(0),
            key: Some(Text(vec![0xff, 0])),
            name: Some(Text(vec![b'n', 0xff])),
            attrs: vec![(Text(b"name".to_vec()), Text(vec![0x80]))],
            status: Text(b"why \"so\"".to_vec()),
            changed_ms: 4,
            bury_order: 6,
            reserves: 8,
            timeouts: 9,
            releases: 10,
            buries: 11,
            kicks: 12,
            failures: 14,
            tracked: true,
            batch: Some("b-0000000000000007".to_owned()),
            bytes: 13,
        }
    }

    #[test]
    fn written_text_reads_back() {
        for head in [full(), Head::default()] {
            let text = serde_json::to_string(&head).unwrap();
            assert_eq!(serde_json::from_str::<Head>(&text).unwrap(), head, "{text}");
        }
    }

    /// The line is of `Head` in commit 8486fd84.
    #[test]
    fn old_names_in_an_export_are_read() {
        let line = "{\"queue\":\"q\",\"id\":7,\"state\":\"buried\",\"rank\":0,\"place\":-3,\
                    \"held_back\":true,\"created_ms\":1,\"key\":\"k\",\"bury_order\":6,\"bytes\":13}";
        let head = Head {
            queue: "q".to_owned(),
            id: 7,
            state: Standing::Buried,
            priority: Some(0),
            place: -3,
            not_selectable: true,
            created_ms: Some(1),
            key: Some(Text(b"k".to_vec())),
            bury_order: 6,
            bytes: 13,
            ..Head::default()
        };
        assert_eq!(serde_json::from_str::<Head>(line).unwrap(), head);
    }

    #[test]
    fn a_put_keeps_failures_and_tracking_and_joins_no_batch() {
        let more = full().put().more.expect("more");
        assert_eq!((more.tracked, more.batch), (true, None));
        assert_eq!(more.past.expect("past").failures, 14);
    }

    #[test]
    fn an_empty_key_is_not_no_key() {
        let head = Head {
            key: Some(Text::default()),
            ..Head::default()
        };
        let text = serde_json::to_string(&head).unwrap();
        assert_eq!(serde_json::from_str::<Head>(&text).unwrap(), head);
    }

    #[test]
    fn nonsense_is_named() {
        for (text, why) in [
            ("{}", "queue"),
            ("{\"queue\": \"q\", \"colour\": 1}", "colour"),
            ("{\"queue\": \"q\", \"priority\": 4294967296}", "u32"),
            ("{\"queue\": \"q\", \"state\": \"lost\"}", "lost"),
            ("{\"queue\": \"q\", \"key\": 3}", "base64"),
            ("{\"queue\": \"q\", \"key\": {\"base64\": \"!\"}}", "base64"),
        ] {
            let error = serde_json::from_str::<Head>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
