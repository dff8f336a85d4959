//! The meaning of a function's return values.

use mlua::{Table, Value};
use quintet_types::{Name, Put};

use crate::fields::{got, name, number_or_opaque, put_from, span};
use quintet_policy::Event;

/// The first two return values.
pub(crate) type Returned = (Value, Value);

/// Bytes of a text for a client at most.
const REASON_MAX: usize = 400;

/// A text that any protocol can send: one line, of bounded length.
pub(crate) fn line(text: &mlua::String) -> String {
    let mut line = String::new();
    for c in text.to_string_lossy().chars() {
        if line.len() + c.len_utf8() > REASON_MAX {
            break;
        }
        line.push(if c.is_control() { ' ' } else { c });
    }
    line
}

/// Why a hook refuses, for a client to read.
fn reason(text: &Value) -> Result<String, String> {
    match text {
        Value::Nil => Ok("refused by a hook".to_owned()),
        Value::String(text) => Ok(line(text)),
        other @ (Value::Boolean(_) | Value::Table(_) | number_or_opaque!()) => Err(format!(
            "false and a text expected, got false and {}",
            other.type_name()
        )),
    }
}

/// The text about an answer that the event does not take.
pub(crate) fn wrong(event: Event, expected: &str, value: &Value) -> String {
    format!("{} must return {expected}, {}", event.name(), got(value))
}

/// Decision about a put.
#[derive(Debug, Default)]
pub(crate) enum PutVerdict {
    /// It goes on, changed or not.
    #[default]
    Go,
    Refuse(String),
    /// These instead. None: it is dropped, without an error.
    Instead(Vec<Put>),
}

pub(crate) fn of_put(
    event: Event,
    (first, second): Returned,
    put: &Put,
) -> Result<PutVerdict, String> {
    let expected = "nothing, false and a text, a queue's name, or a table of messages";
    Ok(match first {
        Value::Nil | Value::Boolean(true) => PutVerdict::Go,
        Value::Boolean(false) => PutVerdict::Refuse(reason(&second)?),
        Value::String(_) => PutVerdict::Instead(vec![Put {
            queue: name("queue", &first)?,
            ..put.clone()
        }]),
        Value::Table(table) => PutVerdict::Instead(messages(&table, put)?),
        other @ (number_or_opaque!()) => return Err(wrong(event, expected, &other)),
    })
}

/// One message, or a list of them.
pub(crate) fn messages(table: &Table, base: &Put) -> Result<Vec<Put>, String> {
    let failed = |error: mlua::Error| error.to_string();
    let len = table.raw_len();
    if len == 0 {
        let is_empty = table.pairs::<Value, Value>().next().is_none();
        return if is_empty {
            Ok(Vec::new())
        } else {
            Ok(vec![put_from(table, base.clone())?])
        };
    }
    let mut puts = Vec::new();
    for at in 1..=len {
        let one: Value = table.raw_get(at).map_err(failed)?;
        match one.as_table() {
            Some(one) => puts.push(put_from(one, base.clone())?),
            None => return Err(format!("a list of messages expected, {} in it", got(&one))),
        }
        if puts.len() > 1000 {
            return Err("at most 1000 messages for one put".into());
        }
    }
    Ok(puts)
}

/// Decision about a command.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum CommandVerdict {
    #[default]
    Go,
    Refuse(String),
    /// It is answered with this, and not decided.
    Answer(Vec<u8>),
}

pub(crate) fn of_command((first, second): Returned) -> Result<CommandVerdict, String> {
    let expected = "nothing, false and a text, or a text that answers it";
    match first {
        Value::Nil | Value::Boolean(true) => Ok(CommandVerdict::Go),
        Value::Boolean(false) => Ok(CommandVerdict::Refuse(reason(&second)?)),
        Value::String(text) => Ok(CommandVerdict::Answer(text.as_bytes().to_vec())),
        other @ (Value::Table(_) | number_or_opaque!()) => {
            Err(wrong(Event::Command, expected, &other))
        }
    }
}

/// Decision about a connection or a settle.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum Yes {
    #[default]
    Go,
    Refuse(String),
}

pub(crate) fn of_yes(event: Event, (first, second): Returned) -> Result<Yes, String> {
    match first {
        Value::Nil | Value::Boolean(true) => Ok(Yes::Go),
        Value::Boolean(false) => Ok(Yes::Refuse(reason(&second)?)),
        other @ (Value::String(_) | Value::Table(_) | number_or_opaque!()) => {
            Err(wrong(event, "nothing, or false and a text", &other))
        }
    }
}

/// Decision about a take.
#[derive(Debug, Default)]
pub(crate) enum TakeVerdict {
    #[default]
    Go,
    Refuse(String),
    /// From these instead.
    From(Vec<Name>),
}

pub(crate) fn of_take((first, second): Returned) -> Result<TakeVerdict, String> {
    let expected = "nothing, false and a text, a queue's name or a list of them";
    Ok(match first {
        Value::Nil | Value::Boolean(true) => TakeVerdict::Go,
        Value::Boolean(false) => TakeVerdict::Refuse(reason(&second)?),
        Value::String(_) => TakeVerdict::From(vec![name("queue", &first)?]),
        Value::Table(table) => {
            let mut names = Vec::new();
            for queue in table.sequence_values::<Value>() {
                names.push(name("queue", &queue.map_err(|error| error.to_string())?)?);
            }
            if names.is_empty() || names.len() > 1000 {
                return Err("before_take: 1 to 1000 queues expected".into());
            }
            TakeVerdict::From(names)
        }
        other @ (number_or_opaque!()) => return Err(wrong(Event::BeforeTake, expected, &other)),
    })
}

/// Decision about a message that was taken.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum TakenVerdict {
    #[default]
    Deliver,
    /// Back to its queue, after so many ms.
    Back(u64),
    /// To another queue.
    To(Name),
}

pub(crate) fn of_taken((first, second): Returned) -> Result<TakenVerdict, String> {
    let expected = "nothing, false and a delay in ms, or a queue's name";
    Ok(match first {
        Value::Nil | Value::Boolean(true) => TakenVerdict::Deliver,
        Value::Boolean(false) if second.is_nil() => TakenVerdict::Back(0),
        Value::Boolean(false) => TakenVerdict::Back(span("delay", &second)?),
        Value::String(_) => TakenVerdict::To(name("queue", &first)?),
        other @ (Value::Table(_) | number_or_opaque!()) => {
            return Err(wrong(Event::AfterTake, expected, &other));
        }
    })
}

/// Decision about a message that expired, lost its lease or was tried too often.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum FateVerdict {
    /// The server's default.
    #[default]
    Default,
    Drop,
    /// It is ready again at its place.
    Keep,
    /// It goes to this queue.
    To(Name),
}

pub(crate) fn of_fate(event: Event, (first, _): Returned) -> Result<FateVerdict, String> {
    let expected = "nothing, false (delete it), true (keep it) or a queue's name";
    Ok(match first {
        Value::Nil => FateVerdict::Default,
        Value::Boolean(false) => FateVerdict::Drop,
        Value::Boolean(true) => FateVerdict::Keep,
        Value::String(_) => FateVerdict::To(name("queue", &first)?),
        other @ (Value::Table(_) | number_or_opaque!()) => {
            return Err(wrong(event, expected, &other));
        }
    })
}

/// The messages that a function for an empty queue supplies.
pub(crate) fn of_empty((first, second): Returned, queue: &Name) -> Result<PutVerdict, String> {
    let base = Put {
        queue: queue.clone(),
        ..Put::default()
    };
    let expected = "nothing, false and a text, a body or a table of messages";
    Ok(match first {
        Value::Nil => PutVerdict::Go,
        Value::Boolean(false) => PutVerdict::Refuse(reason(&second)?),
        Value::String(body) => PutVerdict::Instead(vec![Put {
            body: quintet_types::Body::new(&body.as_bytes()),
            ..base
        }]),
        Value::Table(table) => PutVerdict::Instead(messages(&table, &base)?),
        other @ (Value::Boolean(true) | number_or_opaque!()) => {
            return Err(wrong(Event::Empty, expected, &other));
        }
    })
}
