//! A message's fields by the names hooks use.

use mlua::{Lua, Result as LuaResult, Table, Value};
use quintet_types::{
    AFTER_MAX, After, AfterOn, BatchId, Body, Callback, CancelledAs, Dedupe, Expiry, IfFailed,
    MESSAGE_NAME_BYTES_MAX, Message, MessageId, Ms, Name, NewBatch, OnRepeat, Put, PutAfter, Scope,
    State, Tie, When,
};

/// Values of Lua that mean nothing to anybody else, as a pattern.
macro_rules! opaque {
    () => {
        mlua::Value::LightUserData(_)
            | mlua::Value::Thread(_)
            | mlua::Value::UserData(_)
            | mlua::Value::Error(_)
            | mlua::Value::Other(_)
    };
}
pub(crate) use opaque;

/// Values that are no text, nothing and no truth, as a pattern: what hooks
/// seldom return.
macro_rules! number_or_opaque {
    () => {
        mlua::Value::Integer(_)
            | mlua::Value::Number(_)
            | mlua::Value::Function(_)
            | $crate::fields::opaque!()
    };
}
pub(crate) use number_or_opaque;

/// Fields of a stored message.
const STORED: &str = "id queue body size priority flags key name batch tracked reply_to after state \
    reserves timeouts releases created_ms age_ms due_ms expires_ms ttr_ms not_selectable status \
    cancelled attrs";

/// The bytes of a body that is in memory; nil for one in the log.
pub(crate) fn body_value(lua: &Lua, body: &Body) -> LuaResult<Value> {
    text_or_nil(lua, body.as_small())
}

fn text(lua: &Lua, bytes: &[u8]) -> LuaResult<Value> {
    lua.create_string(bytes).map(Value::String)
}

fn text_or_nil(lua: &Lua, bytes: Option<impl AsRef<[u8]>>) -> LuaResult<Value> {
    bytes.map_or(Ok(Value::Nil), |bytes| text(lua, bytes.as_ref()))
}

fn number(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn attrs(lua: &Lua, of: &[quintet_types::Attr]) -> LuaResult<Value> {
    let table = lua.create_table()?;
    for (name, value) in of {
        table.raw_set(lua.create_string(name)?, lua.create_string(value)?)?;
    }
    Ok(Value::Table(table))
}

/// The messages for which one is held, or was: a list of id and state; nil: none.
fn parents(lua: &Lua, after: Option<&After>) -> LuaResult<Value> {
    let Some(after) = after else {
        return Ok(Value::Nil);
    };
    let list = lua.create_table()?;
    for parent in &after.parents {
        let one = lua.create_table()?;
        one.raw_set("id", number(parent.id.0))?;
        one.raw_set("state", parent.state.word())?;
        list.raw_push(one)?;
    }
    Ok(Value::Table(list))
}

/// The `after` of a put as a Lua table; `nil` if it has none.
fn after_value(lua: &Lua, after: Option<&PutAfter>) -> LuaResult<Value> {
    let Some(after) = after else {
        return Ok(Value::Nil);
    };
    let table = lua.create_table()?;
    for id in &after.ids {
        table.raw_push(number(id.0))?;
    }
    for name in &after.names {
        table.raw_push(lua.create_string(name)?)?;
    }
    table.raw_set("on", after.on.word())?;
    table.raw_set("if_failed", after.if_failed.word())?;
    Ok(Value::Table(table))
}

/// Messages to wait for: ids and names, with `on` and `if_failed`.
fn after_of(table: &Table) -> Result<PutAfter, String> {
    let mut after = PutAfter::default();
    for pair in table.pairs::<Value, Value>() {
        let (field, value) = pair.map_err(|error| error.to_string())?;
        if field.is_integer() {
            match value.as_integer() {
                Some(0) => {
                    return Err("after: an id of a message (1 or more) expected, got 0".into());
                }
                Some(_) => after.ids.push(MessageId(whole("after", &value, u64::MAX)?)),
                None => after.names.push(message_name("after", &value)?.into()),
            }
        } else if field.as_string().is_some_and(|field| field == "on") {
            let words = "\"success\" or \"end\"";
            after.on = choice("after.on", &value, AfterOn::of_word, words)?;
        } else if field.as_string().is_some_and(|field| field == "if_failed") {
            let words = "\"fail\", \"hold\" or \"run\"";
            after.if_failed = choice("after.if_failed", &value, IfFailed::of_word, words)?;
        } else {
            return Err("after: a list of ids and names, with on and if_failed, expected".into());
        }
        if after.count() > AFTER_MAX {
            return Err(format!("after: at most {AFTER_MAX} messages"));
        }
    }
    Ok(after)
}

/// A field of a message to be put; `None`: there is no such field.
pub(crate) fn of_put(lua: &Lua, put: &Put, field: &[u8]) -> LuaResult<Option<Value>> {
    let more = put.more.as_deref();
    Ok(Some(match field {
        b"queue" => text(lua, put.queue.as_bytes())?,
        b"body" => body_value(lua, &put.body)?,
        b"size" => number(put.body.len()),
        b"priority" => put
            .priority
            .map_or(Value::Nil, |priority| number(priority.into())),
        b"flags" => number(put.flags.into()),
        b"delay_ms" => match put.due {
            When::In(ms) => number(ms),
            When::Default | When::Now | When::At(_) => Value::Nil,
        },
        b"due_ms" => match put.due {
            When::At(at) => number(at.0),
            When::Default | When::Now | When::In(_) => Value::Nil,
        },
        b"ttl_ms" => match put.expires {
            Expiry::In(ms) => number(ms),
            Expiry::Never => number(0),
            Expiry::Default | Expiry::At(_) | Expiry::AtWall(_) => Value::Nil,
        },
        b"expires_ms" => match put.expires {
            Expiry::At(at) | Expiry::AtWall(at) => number(at.0),
            Expiry::Default | Expiry::Never | Expiry::In(_) => Value::Nil,
        },
        b"ttr_ms" => put.ttr_ms.map_or(Value::Nil, number),
        b"key" => text_or_nil(lua, more.and_then(|more| more.key.as_deref()))?,
        b"name" => text_or_nil(lua, more.and_then(|more| more.name.as_deref()))?,
        b"batch" => text_or_nil(lua, put.batch().map(|batch| batch.to_string()))?,
        b"tracked" => Value::Boolean(more.is_some_and(|more| more.tracked)),
        b"reply_to" => {
            let reply = more.and_then(|more| more.reply.as_deref());
            text_or_nil(lua, reply.map(|reply| reply.queue.as_bytes()))?
        }
        b"after" => after_value(lua, more.and_then(|more| more.after.as_deref()))?,
        b"not_selectable" => Value::Boolean(more.is_some_and(|more| more.not_selectable)),
        b"dedupe" => {
            let dedupe = more.and_then(|more| more.dedupe.as_ref());
            text_or_nil(lua, dedupe.map(|dedupe| &*dedupe.id))?
        }
        b"attrs" => attrs(lua, more.map_or(&[], |more| &more.attrs))?,
        b"id" => Value::Nil,
        _ => return Ok(None),
    }))
}

/// A field of a stored message; `None`: there is no such field.
pub(crate) fn of_message(
    lua: &Lua,
    message: &Message,
    queue: &Name,
    now: Ms,
    field: &[u8],
) -> LuaResult<Option<Value>> {
    let extra = message.extra.as_deref();
    let rare = |get: fn(&quintet_types::Extra) -> u32| number(extra.map_or(0, get).into());
    Ok(Some(match field {
        b"id" => number(message.id.0),
        b"queue" => text(lua, queue.as_bytes())?,
        b"body" => body_value(lua, &message.body)?,
        b"size" => number(message.body.len()),
        b"priority" => number(message.priority.into()),
        b"flags" => number(message.flags.into()),
        b"key" => text_or_nil(lua, message.key())?,
        b"name" => text_or_nil(lua, message.name())?,
        b"batch" => text_or_nil(lua, message.tie().map(|tie| tie.batch.to_string()))?,
        b"tracked" => Value::Boolean(message.is_tracked()),
        b"reply_to" => text_or_nil(lua, message.reply_to().map(|reply| reply.queue.as_bytes()))?,
        b"after" => parents(lua, extra.and_then(|extra| extra.after.as_deref()))?,
        b"state" => text(
            lua,
            match message.state {
                State::Ready if message.is_delayed(now) => b"delayed",
                State::Ready => b"ready",
                State::Reserved => b"reserved",
                State::Buried => b"buried",
                State::Prepared => b"prepared",
                State::Done => b"done",
                State::Relayed => b"relayed",
            },
        )?,
        b"reserves" => number(message.reserves.into()),
        b"timeouts" => rare(|extra| extra.timeouts),
        b"releases" => rare(|extra| extra.releases),
        b"created_ms" => number(message.created.0),
        b"age_ms" => number(now.since(message.created)),
        b"due_ms" => message.due().map_or(Value::Nil, |at| number(at.0)),
        b"expires_ms" => message.expires().map_or(Value::Nil, |at| number(at.0)),
        b"ttr_ms" => message.ttr_ms.map_or(Value::Nil, number),
        b"not_selectable" => Value::Boolean(!message.selectable),
        b"status" => text(lua, extra.map_or(&[], |extra| &extra.status))?,
        b"cancelled" => text_or_nil(lua, message.cancelled().map(|cancelled| &*cancelled.reason))?,
        b"attrs" => attrs(lua, extra.map_or(&[], |extra| &extra.attrs))?,
        _ => return Ok(None),
    }))
}

/// A stored message as a table.
///
/// # Errors
/// Lua has no memory left.
pub fn table_of(lua: &Lua, message: &Message, queue: &Name, now: Ms) -> LuaResult<Table> {
    let table = lua.create_table()?;
    for field in STORED.split(' ') {
        if let Some(value) = of_message(lua, message, queue, now, field.as_bytes())? {
            table.raw_set(field, value)?;
        }
    }
    Ok(table)
}

/// A whole number up to `most`.
pub(crate) fn whole(field: &str, value: &Value, most: u64) -> Result<u64, String> {
    let found = match value {
        Value::Integer(number) => u64::try_from(*number).ok(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it saturates, past what is allowed"
        )]
        Value::Number(number) if number.fract() == 0.0 && *number >= 0.0 => Some(*number as u64),
        Value::Number(_) | Value::Nil | Value::Boolean(_) | Value::String(_) => None,
        Value::Table(_) | Value::Function(_) | opaque!() => None,
    };
    found.filter(|&number| number <= most).ok_or_else(|| {
        let got = got(value);
        format!("{field}: a whole number from 0 to {most} expected, {got}")
    })
}

/// A whole number of 32 bits.
fn word(field: &str, value: &Value) -> Result<u32, String> {
    let found = whole(field, value, u32::MAX.into())?;
    Ok(u32::try_from(found).expect("it was bounded by this type"))
}

/// Names the value that came instead of the expected one.
pub(crate) fn got(value: &Value) -> String {
    match (value.as_integer(), value.as_number()) {
        (Some(number), _) => format!("got {number}"),
        (None, Some(number)) => format!("got {number}"),
        (None, None) => format!("got {}", value.type_name()),
    }
}

/// A text of at most `most` bytes, or a whole number as text.
pub(crate) fn bytes(field: &str, value: &Value, most: usize) -> Result<Vec<u8>, String> {
    match (value.as_string(), value.as_integer()) {
        (Some(text), _) if text.as_bytes().len() <= most => Ok(text.as_bytes().to_vec()),
        (Some(_), _) => Err(format!("{field}: at most {most} bytes expected")),
        (None, Some(number)) => Ok(number.to_string().into_bytes()),
        (None, None) => Err(format!("{field}: a string expected, {}", got(value))),
    }
}

/// A word for one of several values; `words` are all of them.
fn choice<T>(
    field: &str,
    value: &Value,
    of_word: fn(&str) -> Option<T>,
    words: &str,
) -> Result<T, String> {
    let word = String::from_utf8(bytes(field, value, 100)?).ok();
    let known = word.and_then(|word| of_word(&word));
    known.ok_or_else(|| format!("{field}: {words} expected"))
}

/// Reads a value; nil takes away what is set.
fn given<T>(
    value: &Value,
    read: impl FnOnce(&Value) -> Result<T, String>,
) -> Result<Option<T>, String> {
    (!value.is_nil()).then(|| read(value)).transpose()
}

/// The name of a queue or table.
///
/// # Errors
/// It is no text, empty or too long.
pub fn name(field: &str, value: &Value) -> Result<Name, String> {
    let bytes = bytes(field, value, 65_535)?;
    if bytes.is_empty() {
        return Err(format!("{field}: a name expected, got the empty string"));
    }
    Ok(Name::new(&bytes))
}

fn truth(field: &str, value: &Value) -> Result<bool, String> {
    let found = value.as_boolean();
    found.ok_or_else(|| format!("{field}: true or false expected, {}", got(value)))
}

/// A batch: its id, or what `quintet.batch` gave.
pub(crate) fn batch_id(field: &str, value: &Value) -> Result<BatchId, String> {
    let id = match value.as_table() {
        Some(batch) => batch.raw_get("id").map_err(|error| error.to_string())?,
        None => value.clone(),
    };
    let id = bytes(field, &id, 100)?;
    let id = std::str::from_utf8(&id).ok().and_then(BatchId::parse);
    id.ok_or_else(|| format!("{field}: an id of a batch expected, b- and 16 hex digits"))
}

/// The name of a message, or of a queue for its reply.
pub(crate) fn message_name(field: &str, value: &Value) -> Result<Vec<u8>, String> {
    let name = bytes(field, value, MESSAGE_NAME_BYTES_MAX)?;
    match name.is_empty() {
        true => Err(format!("{field}: at least 1 byte")),
        false => Ok(name),
    }
}

fn table<'a>(field: &str, value: &'a Value, expected: &str) -> Result<&'a Table, String> {
    let table = value.as_table();
    table.ok_or_else(|| format!("{field}: {expected} expected, {}", got(value)))
}

/// A batch to be made, from a table.
///
/// # Errors
/// It has a field that a batch has not, or one that cannot have this value; says what it can.
pub(crate) fn batch_from(table: &Table) -> Result<NewBatch, String> {
    let mut new = NewBatch::default();
    for pair in table.pairs::<Value, Value>() {
        let (field, value) = pair.map_err(|error| error.to_string())?;
        match bytes("batch", &field, 100)?.as_slice() {
            b"complete" => new.complete = Some(callback("complete", &value)?),
            b"success" => new.success = Some(callback("success", &value)?),
            b"description" => {
                new.description = bytes("description", &value, usize::MAX)?.into();
            }
            b"parent" => new.parent = Some(batch_id("parent", &value)?),
            b"cancelled" => {
                let words = "\"failed\" or \"finished\"";
                new.cancelled = choice("cancelled", &value, CancelledAs::of_word, words)?;
            }
            _ => {
                let known = "complete, success, description, parent, cancelled";
                return Err(format!("a table of {known} expected"));
            }
        }
    }
    if new.callbacks().next().is_none() {
        return Err("complete or success expected, a message each".into());
    }
    Ok(new)
}

/// A callback: of a message what a batch keeps.
fn callback(which: &str, value: &Value) -> Result<Callback, String> {
    let table = table(which, value, "a message")?;
    for pair in table.pairs::<Value, Value>() {
        let (field, _) = pair.map_err(|error| error.to_string())?;
        let field = bytes(which, &field, 100)?;
        const KNOWN: [&str; 6] = ["queue", "body", "priority", "ttr_ms", "name", "attrs"];
        if !KNOWN.iter().any(|known| known.as_bytes() == field) {
            let known = KNOWN.join(", ");
            return Err(format!("{which}: a table of {known} expected"));
        }
    }
    let put = put_from(table, Put::default()).map_err(|why| format!("{which}: {why}"))?;
    let more = put.more.unwrap_or_default();
    Ok(Callback {
        queue: put.queue,
        // What Lua has is in memory.
        body: put.body.as_small().unwrap_or_default().into(),
        priority: put.priority,
        ttr_ms: put.ttr_ms,
        name: more.name,
        retry: None,
        attrs: more.attrs,
    })
}

/// Milliseconds up to a thousand years.
///
/// # Errors
/// It is no such number.
pub fn span(field: &str, value: &Value) -> Result<u64, String> {
    whole(field, value, 1000 * 366 * 24 * 3600 * 1000)
}

/// Reads a put's deduplication from a table.
fn dedupe_of(table: &Table) -> Result<Dedupe, String> {
    let mut id = None;
    let (mut window_ms, mut scope, mut on_repeat) = (None, None, None);
    for pair in table.pairs::<Value, Value>() {
        let (name, value) = pair.map_err(|error| error.to_string())?;
        let name = bytes("dedupe", &name, 100)?;
        match name.as_slice() {
            b"id" => id = Some(bytes("dedupe.id", &value, 65_535)?),
            b"window_ms" => window_ms = Some(span("dedupe.window_ms", &value)?),
            b"scope" => {
                let words = "\"time\", \"waiting\", \"started\" or \"done\"";
                scope = Some(choice("dedupe.scope", &value, Scope::of_word, words)?);
            }
            b"on_repeat" => {
                let words = "\"refuse\", \"first\" or \"replace\"";
                let chosen = choice("dedupe.on_repeat", &value, OnRepeat::of_word, words)?;
                on_repeat = Some(chosen);
            }
            _ => {
                let known = "id, window_ms, scope, on_repeat";
                return Err(format!("dedupe: a table of {known} expected"));
            }
        }
    }
    Ok(Dedupe {
        id: id.ok_or("dedupe: a table with an id expected")?.into(),
        window_ms,
        scope,
        on_repeat,
    })
}

/// Sets a field of a message to be put.
///
/// # Errors
/// There is no such field, or it cannot have this value; says what it can.
pub(crate) fn set(put: &mut Put, field: &str, value: &Value) -> Result<(), String> {
    let nil = value.is_nil();
    match field {
        "queue" => put.queue = name(field, value)?,
        "body" => {
            put.body = match value.as_string() {
                Some(text) => Body::new(&text.as_bytes()),
                None => Body::new(&bytes(field, value, usize::MAX)?),
            }
        }
        "rank" => return Err("rank is called priority now".to_owned()),
        "priority" => put.priority = given(value, |value| word(field, value))?,
        "flags" => put.flags = word(field, value)?,
        "delay_ms" | "due_ms" if nil => put.due = When::Default,
        "delay_ms" => put.due = When::In(span(field, value)?),
        "due_ms" => put.due = When::At(Ms(span(field, value)?)),
        "ttl_ms" | "expires_ms" if nil => put.expires = Expiry::Default,
        "ttl_ms" => {
            put.expires = match span(field, value)? {
                0 => Expiry::Never,
                ms => Expiry::In(ms),
            }
        }
        "expires_ms" => put.expires = Expiry::At(Ms(span(field, value)?)),
        "ttr_ms" => put.ttr_ms = given(value, |value| span(field, value))?,
        "key" | "name" | "batch" | "dedupe" | "reply_to" if nil && put.more.is_none() => {}
        "key" => {
            let key = given(value, |value| bytes(field, value, 65_535))?;
            put.more.get_or_insert_default().key = key.map(Into::into);
        }
        "name" => {
            let name = given(value, |value| message_name(field, value))?;
            put.more.get_or_insert_default().name = name.map(Into::into);
        }
        "batch" => {
            let id = given(value, |value| batch_id(field, value))?;
            put.more.get_or_insert_default().batch = id.map(Tie::member);
        }
        "tracked" => put.more.get_or_insert_default().tracked = truth(field, value)?,
        "reply_to" if nil => put.more.get_or_insert_default().reply = None,
        "reply_to" => {
            let reply = &mut put.more.get_or_insert_default().reply;
            reply.get_or_insert_default().queue = Name::new(&message_name(field, value)?);
        }
        "after" => {
            let after = given(value, |value| after_of(table(field, value, "a table")?))?;
            put.more.get_or_insert_default().after = after.map(Box::new);
        }
        "held_back" => return Err("held_back is called not_selectable now".to_owned()),
        "not_selectable" => put.more.get_or_insert_default().not_selectable = truth(field, value)?,
        "dedupe" if nil => put.more.get_or_insert_default().dedupe = None,
        "dedupe" => {
            let dedupe = if let Value::Table(table) = value {
                dedupe_of(table)?
            } else {
                let old = put.more.get_or_insert_default().dedupe.take();
                let old = old.as_ref();
                Dedupe {
                    id: bytes(field, value, 65_535)?.into(),
                    window_ms: old.and_then(|old| old.window_ms),
                    scope: old.and_then(|old| old.scope),
                    on_repeat: Some(OnRepeat::First),
                }
            };
            put.more.get_or_insert_default().dedupe = Some(dedupe);
        }
        "attrs" => {
            let mut attrs = Vec::new();
            for pair in table(field, value, "a table of strings")?.pairs::<Value, Value>() {
                let (name, value) = pair.map_err(|error| error.to_string())?;
                let name = bytes("attrs", &name, 65_535)?;
                attrs.push((name.into(), bytes("attrs", &value, usize::MAX)?.into()));
                if attrs.len() > 1000 {
                    return Err("attrs: at most 1000 attributes".into());
                }
            }
            put.more.get_or_insert_default().attrs = attrs;
        }
        _ => {
            return Err(format!(
                "a message to be put has no field {field:?} that can be set"
            ));
        }
    }
    Ok(())
}

/// Bytes that a message to be put takes, about.
pub(crate) fn bytes_of(put: &Put) -> usize {
    let more = put.more.as_deref();
    let attrs = more.map_or(0, |more| {
        let attrs = more.attrs.iter();
        attrs
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            + more.key.as_deref().map_or(0, <[u8]>::len)
    });
    put.body.as_small().map_or(0, <[u8]>::len) + put.queue.as_bytes().len() + attrs
}

/// A message to be put, from a table; what it leaves out is as in `base`.
///
/// # Errors
/// A field is none of a message's or cannot have its value, or there is no queue.
pub fn put_from(table: &Table, base: Put) -> Result<Put, String> {
    let mut put = base;
    for pair in table.pairs::<Value, Value>() {
        let (field, value) = pair.map_err(|error| error.to_string())?;
        let Value::String(field) = &field else {
            return Err(format!("a field's name expected, {}", got(&field)));
        };
        set(&mut put, &field.to_string_lossy(), &value)?;
    }
    if put.queue.is_empty() {
        return Err("queue: a name expected, got nil".into());
    }
    Ok(put)
}
