//! Messages and queues.

use mlua::{Lua, Result, Table, Value};
use quintet_types::{
    BulkOp, Cancel, Command, Effect, HOLD_MAX_MS, How, ListState, Message, MessageId,
    MessageResult, Name, Outcome, Peek, Put, QueueGauges, QueueTotals, ResultState, StatsOf,
    StatsReply,
};

use super::{Api, Env, failed};
use crate::fields::{self, bytes_of, got, name, put_from, whole};
use crate::step::Work;

type Answer<T> = std::result::Result<T, String>;

/// A message's id: a number, or a message.
fn id(value: &Value) -> Answer<MessageId> {
    let number = if let Some(table) = value.as_table() {
        table.raw_get("id").map_err(failed)?
    } else if let Some(message) = value.as_userdata() {
        mlua::ObjectLike::get(message, "id").map_err(failed)?
    } else {
        let wrong = || format!("a message or its id expected, {}", got(value));
        value.as_integer().ok_or_else(wrong)?
    };
    u64::try_from(number)
        .map(MessageId)
        .map_err(|_| "a message's id is not negative".to_owned())
}

/// Pages of a queue that are looked through for one message that this step has not taken away: one
/// of large messages is short.
const PAGES_MAX: usize = 16;

/// The first message of a queue that this step has not taken away. It is shown, as that never
/// waits.
fn first(work: &mut Work, queue: &Name) -> Answer<Option<Message>> {
    let max = u32::try_from(work.step.gone.len() + 1).unwrap_or(u32::MAX);
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let show = BulkOp {
            after,
            ..BulkOp::show(queue.clone(), ListState::Ready, max)
        };
        let Some(Outcome::BulkDone(done)) = work.ask(Command::BulkOp(Box::new(show))).0 else {
            return Ok(None);
        };
        after = done.next;
        let found = (done.messages.into_iter())
            .find(|message| message.selectable && !work.step.gone.contains(&message.id));
        if let Some(message) = found {
            work.step.saw(&message);
            return Ok(Some(message));
        }
        if after.is_none() {
            break;
        }
    }
    Ok(None)
}

fn by_id(work: &mut Work, id: MessageId) -> Answer<Option<(Message, Name)>> {
    if work.step.gone.contains(&id) {
        return Ok(None);
    }
    let (outcome, queue) = work.ask(Command::Peek(Peek::Id(id)));
    let found = match outcome {
        Some(Outcome::Messages(messages)) => messages.into_iter().next(),
        _ => None,
    };
    Ok(found.map(|message| {
        work.step.saw(&message);
        (message, queue)
    }))
}

fn shown(lua: &Lua, found: Option<(Message, Name)>, env: &Env) -> Answer<Value> {
    let Some((message, queue)) = found else {
        return Ok(Value::Nil);
    };
    let now = env.work(|work| Ok(work.host.now()))?;
    fields::table_of(lua, &message, &queue, now)
        .map(Value::Table)
        .map_err(failed)
}

fn effect(env: &Env, effect: Effect, bytes: usize) -> Answer<()> {
    env.work(|work| work.add(effect, bytes))
}

pub(super) fn install(api: Api<'_>) -> Result<()> {
    type PutArgs = (Value, Value, Option<Table>);
    api.add("quintet.put", |_, env, (to, body, options): PutArgs| {
        let mut put = Put::default();
        match to.as_table() {
            Some(table) => put = put_from(table, put)?,
            None => {
                put.queue = name("queue", &to)?;
                fields::set(&mut put, "body", &body)?;
                if let Some(options) = options {
                    put = put_from(&options, put)?;
                }
            }
        }
        let bytes = bytes_of(&put);
        effect(env, Effect::Put(put), bytes)
    })?;
    api.add("quintet.peek", |lua, env, queue: Value| {
        let queue = name("queue", &queue)?;
        let found = env.work(|work| first(work, &queue))?;
        shown(lua, found.map(|message| (message, queue)), env)
    })?;
    api.add("quintet.take", |lua, env, queue: Value| {
        let queue = name("queue", &queue)?;
        let found = env.work(|work| {
            let found = first(work, &queue)?;
            if let Some(message) = &found {
                work.add(Effect::Delete(message.id), 0)?;
            }
            Ok(found)
        })?;
        shown(lua, found.map(|message| (message, queue)), env)
    })?;
    api.add("quintet.get", |lua, env, which: Value| {
        let which = id(&which)?;
        let found = env.work(|work| by_id(work, which))?;
        shown(lua, found, env)
    })?;
    api.add("quintet.result", |lua, env, which: Value| {
        let id = id(&which)?;
        let ask = Command::AwaitResult { id, wait_ms: 0 };
        let outcome = env.work(|work| Ok(work.ask(ask).0))?;
        let answer = match outcome {
            Some(Outcome::Result(result)) => ended(lua, &result),
            Some(Outcome::Empty) => {
                let pending = lua.create_table();
                pending.and_then(|table| table.raw_set("state", "pending").map(|()| table))
            }
            _ => return Ok(Value::Nil),
        };
        answer.map(Value::Table).map_err(failed)
    })?;
    api.add("quintet.delete", |_, env, which: Value| {
        effect(env, Effect::Delete(id(&which)?), 0)
    })?;
    type Cancelled = (Value, Option<mlua::String>, Value);
    api.add(
        "quintet.cancel",
        |_, env, (which, why, grace): Cancelled| {
            let reason = why.map_or_else(Vec::new, |why| why.as_bytes().to_vec());
            let grace_ms = match grace.is_nil() {
                true => Cancel::GRACE_MS,
                false => whole("grace_ms", &grace, Cancel::GRACE_MAX_MS)?,
            };
            let (id, bytes) = (id(&which)?, reason.len());
            let reason = reason.into();
            let cancel = Box::new(Cancel { reason, grace_ms });
            effect(env, Effect::Cancel(id, cancel), bytes)
        },
    )?;
    api.add("quintet.move", |_, env, (which, to): (Value, Value)| {
        let (id, to) = (id(&which)?, name("queue", &to)?);
        effect(env, Effect::Move { id, to }, 0)
    })?;
    type Bury = (Value, Option<mlua::String>);
    api.add("quintet.bury", |_, env, (which, why): Bury| {
        let reason: Box<[u8]> = why.map_or_else(Box::default, |why| (&*why.as_bytes()).into());
        let (id, bytes) = (id(&which)?, reason.len());
        let how = How::Bury {
            priority: None,
            reason,
        };
        effect(env, Effect::Settle { id, how }, bytes)
    })?;
    api.add("quintet.kick", |_, env, which: Value| {
        effect(env, Effect::Kick(id(&which)?), 0)
    })?;
    type HoldArgs = (Value, Value, Value);
    api.add("quintet.hold", |_, env, (queue, key, ms): HoldArgs| {
        let queue = name("queue", &queue)?;
        let key = (!key.is_nil()).then(|| name("key", &key)).transpose()?;
        let key: Option<Box<[u8]>> = key.map(|key| key.as_bytes().into());
        let for_ms = whole("ms", &ms, HOLD_MAX_MS)?;
        let bytes = key.as_ref().map_or(0, |key| key.len());
        effect(env, Effect::Hold { queue, key, for_ms }, bytes)
    })?;
    numbers(api)
}

fn numbers(api: Api<'_>) -> Result<()> {
    let ask = |env: &Env, of: StatsOf| env.work(|work| Ok(work.ask(Command::Stats(of)).0));
    api.add("quintet.queues", move |lua, env, ()| {
        let names = lua.create_table().map_err(failed)?;
        let mut next = Some((0, 0));
        while let Some(from) = next.take() {
            if let Some(Outcome::Stats(stats)) = ask(env, StatsOf::Queues { from })?
                && let StatsReply::Queues(page) = *stats
            {
                for queue in &page.queues {
                    let name = lua.create_string(queue.name.as_bytes()).map_err(failed)?;
                    names.raw_push(name).map_err(failed)?;
                }
                next = page.next;
            }
        }
        Ok(names)
    })?;
    api.add("quintet.stats", move |lua, env, queue: Value| {
        let of = match queue.is_nil() {
            true => StatsOf::Shard,
            false => StatsOf::Queue(name("queue", &queue)?),
        };
        // A queue that does not exist is an empty queue.
        let (mut gauges, mut totals) = Default::default();
        if let Some(Outcome::Stats(stats)) = ask(env, of)? {
            if let StatsReply::Shard(stats) = *stats {
                (gauges, totals) = (stats.gauges, stats.totals);
            } else if let StatsReply::Queue(stats) = *stats {
                (gauges, totals) = (stats.gauges, stats.totals);
            }
        }
        let table = lua.create_table().map_err(failed)?;
        let names = QueueGauges::NAMES.iter().chain(QueueTotals::NAMES);
        let values = gauges.values().into_iter().chain(totals.values());
        for (name, value) in names.zip(values) {
            table.raw_set(*name, value).map_err(failed)?;
        }
        Ok(table)
    })
}

/// How a message ended.
fn ended(lua: &Lua, result: &MessageResult) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("state", result.state.word())?;
    if let Some(text) = &result.text {
        let is_done = result.state == ResultState::Done;
        let field = if is_done { "result" } else { "error" };
        table.raw_set(field, lua.create_string(text)?)?;
    }
    Ok(table)
}
