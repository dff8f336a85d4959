//! Acts on many messages, as the control channel says them.

use quintet_types::{
    Body, Bound, Command, Cursor, Filter, Lease, ListState, MessageId, Name, Sweep, SweepAct, Swept,
};
use quintet_wire::Output;
use serde::Deserialize;
use serde_json::{Value, json};

use super::head::Text;
use super::reply;

/// Messages shown in one reply at most.
const SHOWN_MAX: u32 = 1000;

/// Bytes of a body that are its start.
const START: usize = 256;

/// How much of the bodies of shown messages follows a reply.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Bodies {
    #[default]
    Whole,
    /// The first 256 bytes; nothing of a large body, which is on the disk.
    Start,
    None,
}

impl Bodies {
    /// What of it follows.
    fn of(self, body: &Body) -> Option<Body> {
        match (self, body) {
            (Bodies::Whole, body) => Some(body.clone()),
            (Bodies::Start, Body::Small(bytes)) => {
                Some(Body::new(&bytes[..bytes.len().min(START)]))
            }
            (Bodies::Start, Body::Large(_)) | (Bodies::None, _) => None,
        }
    }
}

/// A slice of an act on many messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    queue: String,
    state: String,
    act: String,
    /// Of a move: where to.
    to: Option<String>,
    /// A part of the body.
    body: Option<Text>,
    key: Option<Text>,
    name: Option<Text>,
    #[serde(default)]
    attrs: Vec<(Text, Text)>,
    #[serde(default)]
    dead: bool,
    #[serde(default)]
    older_ms: u64,
    #[serde(default)]
    bodies: Bodies,
    /// What the reply before said is `next`.
    after: Option<(bool, u32, i64, u64)>,
    max: u32,
}

/// Reads one.
///
/// # Errors
/// A sentence that names the field.
pub(crate) fn read(of: &Value) -> Result<(Command, Bodies), String> {
    let ask: Ask = serde_json::from_value(of.clone()).map_err(|error| error.to_string())?;
    let act = match (ask.act.as_str(), ask.to) {
        ("show", None) => SweepAct::Show,
        ("count", None) => SweepAct::Count,
        ("delete", None) => SweepAct::Delete,
        ("kick", None) => SweepAct::Kick,
        ("redrive", to) => SweepAct::Redrive {
            to: to.map(|to| Name::of_shown(&to)),
        },
        ("move", Some(to)) => SweepAct::Move(Name::of_shown(&to)),
        ("move", None) => return Err("to which queue?".to_owned()),
        (other, _) => return Err(format!("\"{other}\" is not an act, or goes to no queue")),
    };
    let bytes = |text: Text| text.0.into_boxed_slice();
    let attrs = ask.attrs.into_iter();
    let filter = Filter {
        body: ask.body.map(bytes),
        key: ask.key.map(bytes),
        name: ask.name.map(bytes),
        attrs: attrs.map(|(n, v)| (bytes(n), bytes(v))).collect(),
        dead: ask.dead,
        older_ms: ask.older_ms,
        ..Filter::default()
    };
    let max = match act {
        SweepAct::Show => ask.max.min(SHOWN_MAX),
        SweepAct::Count
        | SweepAct::Delete
        | SweepAct::Kick
        | SweepAct::Move(_)
        | SweepAct::Redrive { .. }
        | SweepAct::RedriveInto(_) => ask.max,
    };
    let command = Command::Sweep(Box::new(Sweep {
        queue: Name::of_shown(&ask.queue),
        state: state_named(&ask.state)?,
        filter,
        act,
        after: ask.after.map(|(held_back, a, b, id)| Cursor {
            held_back,
            order: (a, b, MessageId(id)),
        }),
        max,
    }));
    Ok((command, ask.bodies))
}

/// Says what a slice came to. What is said of each body, so many bytes as
/// `follows`, comes behind it.
pub(crate) fn write(swept: &Swept, queue: &Name, bodies: Bodies, output: &mut Output) {
    let mut leases = swept.leases.iter();
    let shown = swept.messages.iter().map(|message| {
        let mut value = reply::message(message, queue);
        let follows = bodies.of(&message.body).map_or(0, |body| body.len());
        value["follows"] = follows.into();
        if message.state == quintet_types::State::Reserved
            && let Some(lease) = leases.next()
        {
            value["lease"] = lease_told(lease);
        }
        value
    });
    let line = json!({
        "looked": swept.looked,
        "matched": swept.matched,
        "messages": shown.collect::<Vec<_>>(),
        "next": swept.next.map(|next| {
            let (a, b, id) = next.order;
            (next.held_back, a, b, id.0)
        }),
    });
    reply::end_line(output, &line);
    for message in &swept.messages {
        if let Some(body) = bodies.of(&message.body) {
            output.body(&body);
        }
    }
}

/// A state by the name an operator gives it.
pub(crate) fn state_named(name: &str) -> Result<ListState, String> {
    match name {
        "ready" => Ok(ListState::Ready),
        "delayed" => Ok(ListState::Delayed),
        "reserved" => Ok(ListState::Reserved),
        "buried" => Ok(ListState::Buried),
        "prepared" => Ok(ListState::Prepared),
        "archived" => Ok(ListState::Archived),
        _ => Err("messages of which state?".to_owned()),
    }
}

/// A lease: whose it is, and its times in Unix ms. When it was given, or last
/// prolonged, is known of one that ends by itself.
fn lease_told(lease: &Lease) -> Value {
    let since = lease
        .until
        .map(|until| until.0.saturating_sub(lease.span_ms));
    json!({
        "holder": lease.party.0,
        "bound": match lease.bound {
            Bound::Connection => "connection",
            Bound::Process => "process",
            Bound::Time => "time",
        },
        "since_ms": since,
        "until_ms": lease.until.map(|until| until.0),
    })
}
