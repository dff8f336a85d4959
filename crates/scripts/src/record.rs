//! A stored message as RQ sees it.

use quintet_types::{AttrChange, Command, Edit, Message, MessageId, Ms, State, hex};
use serde_json::{Map, Value, json};

/// How often a message may be sent again, if it does not say (RQ's default).
pub(crate) const MAX_COUNT_DEFAULT: u32 = 15;

/// The value of an attribute.
pub(crate) fn attr<'a>(message: &'a Message, name: &str) -> Option<&'a [u8]> {
    let attrs = &message.extra.as_ref()?.attrs;
    let found = attrs.binary_search_by(|(key, _)| (**key).cmp(name.as_bytes()));
    found.ok().map(|at| &*attrs[at].1)
}

/// The value of an attribute, as text.
pub(crate) fn attr_text(message: &Message, name: &str) -> Option<String> {
    attr(message, name).map(|value| String::from_utf8_lossy(value).into_owned())
}

fn attr_number<N: std::str::FromStr>(message: &Message, name: &str) -> Option<N> {
    std::str::from_utf8(attr(message, name)?).ok()?.parse().ok()
}

/// An attribute to set.
pub(crate) fn set(name: &str, value: &str) -> AttrChange {
    (name.as_bytes().into(), Some(value.as_bytes().into()))
}

/// Changes one attribute of a message.
pub(crate) fn change(id: MessageId, attr: AttrChange) -> Command {
    let edit = Edit {
        attrs: vec![attr],
        ..Edit::default()
    };
    Command::Edit(id, Box::new(edit))
}

/// How often it was sent again.
pub(crate) fn count(message: &Message) -> u32 {
    attr_number(message, "count").unwrap_or(0)
}

/// How often it may be.
pub(crate) fn max_count(message: &Message) -> u32 {
    attr_number(message, "max_count").unwrap_or(MAX_COUNT_DEFAULT)
}

/// When it is due. The engine forgets a due time that has passed, and a lease
/// that ends by itself forgets one to come; RQ's order needs both, so the
/// attribute keeps it.
pub(crate) fn due(message: &Message) -> Ms {
    attr_number(message, "due")
        .map(Ms)
        .or_else(|| message.due())
        .unwrap_or(message.created)
}

/// Parameters 2 to 4.
pub(crate) fn param(message: &Message, n: u8) -> Option<String> {
    attr_text(message, &format!("param{n}"))
}

/// Addresses to tell when it is over.
pub(crate) fn hooks(message: &Message) -> Vec<String> {
    let list = attr(message, "post_run_webhook");
    list.and_then(|json| serde_json::from_slice(json).ok())
        .unwrap_or_default()
}

/// The attribute that marks an acknowledged error.
pub(crate) const ERRACK: &str = "errack";

/// The mark a message has if its error is acknowledged.
pub(crate) fn mark(queue: &str, message: &Message) -> String {
    let buries = message.extra.as_ref().map_or(0, |extra| extra.buries);
    format!("{} {buries} {queue}", message.id.0)
}

/// True if the error a message of this queue is in is acknowledged.
pub(crate) fn is_acknowledged(queue: &str, message: &Message) -> bool {
    message.state == State::Buried
        && attr(message, ERRACK).is_some_and(|own| own == mark(queue, message).as_bytes())
}

/// RQ's words for the states, as it lists them. `errack` is the fork's: `err`
/// that somebody has acknowledged.
pub const STATES: [&str; 7] = ["prep", "que", "run", "err", "errack", "done", "relayed"];

/// RQ's word for the state of a message of this queue.
pub(crate) fn state_word(queue: &str, message: &Message) -> &'static str {
    match message.state {
        State::Prepared => "prep",
        State::Ready => "que",
        State::Reserved => "run",
        State::Buried if is_acknowledged(queue, message) => "errack",
        State::Buried => "err",
        State::Done => "done",
        State::Relayed => "relayed",
    }
}

/// The last status of a message.
pub(crate) fn status_text(message: &Message) -> String {
    let extra = message.extra.as_ref();
    extra
        .map(|extra| String::from_utf8_lossy(&extra.status).into_owned())
        .unwrap_or_default()
}

/// `state`, or `state - text`.
pub(crate) fn status_line(state: &str, text: &str) -> String {
    if text.is_empty() {
        state.to_owned()
    } else {
        format!("{state} - {text}")
    }
}

/// The data besides the message that its JSON needs.
pub(crate) struct Around<'a> {
    pub(crate) short: &'a str,
    pub(crate) full: &'a str,
    pub(crate) dest: &'a str,
    pub(crate) param1: Option<String>,
    pub(crate) state: &'a str,
    pub(crate) status: &'a str,
    pub(crate) path: &'a std::path::Path,
}

/// A message in RQ's JSON.
pub(crate) fn to_json(message: &Message, around: Around<'_>) -> Value {
    let mut all = Map::new();
    let mut put = |name: &str, value: Value| {
        all.insert(name.to_owned(), value);
    };
    put("msg_id", json!(around.short));
    let dest = attr_text(message, "dest");
    put("dest", json!(dest.as_deref().unwrap_or(around.dest)));
    for name in ["src", "cloned_from", "dup", "force_remote"] {
        if let Some(value) = attr_text(message, name) {
            put(name, json!(value));
        }
    }
    let first = attr_text(message, "orig_msg_id");
    put(
        "orig_msg_id",
        json!(first.as_deref().unwrap_or(around.full)),
    );
    put("count", json!(count(message)));
    put("max_count", json!(max_count(message)));
    if let Some(param1) = around.param1 {
        put("param1", json!(param1));
    }
    for n in 2..=4 {
        if let Some(value) = param(message, n) {
            put(&format!("param{n}"), json!(value));
        }
    }
    put("due", json!(due(message).0 / 1000));
    let hooks = hooks(message);
    if !hooks.is_empty() {
        put("post_run_webhook", json!(hooks));
    }
    let dups = attr(message, "dups");
    if let Some(dups) = dups.and_then(|json| serde_json::from_slice::<Value>(json).ok()) {
        put("dups", dups);
    }
    put("path", json!(around.path));
    put("state", json!(around.state));
    put("status", json!(around.status));
    let files = message.extra.as_ref().map(|extra| &extra.attachments);
    if let Some(files) = files.filter(|files| !files.is_empty()) {
        let mut list = Map::new();
        for file in files {
            let name = String::from_utf8_lossy(&file.name).into_owned();
            let path = around.path.join("attach").join(&name);
            let shown = json!({"md5": hex(&file.md5), "size": file.len, "path": path});
            list.insert(name, shown);
        }
        put("_attachments", Value::Object(list));
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use quintet_types::{At, Body, Extra, MessageId, Ms};

    use super::*;

    fn buried(id: u64, buries: u32, attr: &str) -> Message {
        let at = At {
            id: MessageId(id),
            ..At::default()
        };
        let mut message = Message::new(at, Ms(0), Body::default());
        message.state = State::Buried;
        message.extra = Some(Box::new(Extra {
            buries,
            attrs: vec![(ERRACK.as_bytes().into(), attr.as_bytes().into())],
            ..Extra::default()
        }));
        message
    }

    #[test]
    fn an_acknowledgement_is_of_one_burial() {
        let message = buried(7, 2, "7 2 test");
        assert!(is_acknowledged("test", &message));
        assert!(!is_acknowledged("other", &message), "moved");
        assert!(!is_acknowledged("test", &buried(7, 3, "7 2 test")), "anew");
        assert!(
            !is_acknowledged("test", &buried(8, 2, "7 2 test")),
            "a copy"
        );
        assert!(!is_acknowledged("test", &buried(7, 2, "1")), "by hand");
        let mut kicked = message;
        kicked.state = State::Ready;
        assert!(!is_acknowledged("test", &kicked));
    }
}
