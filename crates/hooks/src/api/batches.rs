//! Batches, and what became of tracked messages.
//!
//! The id of a batch that a step makes is given at once, so that the step can use it; the batch
//! is there when the step is taken. One whose step is not taken never was: its id is used up.

use mlua::{Lua, Result, Table, Value};
use quintet_types::{
    Batch, BatchRequest, By, ByName, Command, Effect, NamedAction, Outcome, Track,
};

use super::{Api, failed};
use crate::fields::{batch_from, batch_id, message_name, name};

pub(super) fn install(quintet: Api<'_>, raw: Api<'_>) -> Result<()> {
    raw.add("quintet.batch", |_, env, of: Table| {
        let new = batch_from(&of)?;
        let bytes = usize::try_from(new.bytes()).unwrap_or(usize::MAX);
        env.work(|work| {
            let first = new.callbacks().next();
            let number = BatchRequest::Number {
                queue: first.map(|first| first.queue.clone()).unwrap_or_default(),
                parent: new.parent,
            };
            let id = match work.ask(Command::Batch(number)).0 {
                Some(Outcome::Batch(batch)) => batch.id,
                Some(Outcome::Refused(command_error)) => {
                    return Err(command_error.text().to_owned());
                }
                _ => return Err("the server returned no ids".to_owned()),
            };
            let make = Effect::MakeBatch {
                id,
                new: Box::new(new),
            };
            work.add(make, bytes)?;
            Ok(id.to_string())
        })
    })?;
    raw.add("batch:commit", |_, env, id: Value| {
        let commit = Effect::CommitBatch(batch_id("batch", &id)?);
        env.work(|work| work.add(commit, 0))
    })?;
    raw.add("batch:show", |lua, env, id: Value| {
        let show = Command::Batch(BatchRequest::Show(batch_id("batch", &id)?));
        match env.work(|work| Ok(work.ask(show).0))? {
            Some(Outcome::Batch(batch)) => shown(lua, &batch).map(Value::Table).map_err(failed),
            _ => Ok(Value::Nil),
        }
    })?;
    quintet.add("quintet.track", |lua, env, of: (Value, Value)| {
        let by_name = ByName {
            queue: Some(name("queue", &of.0)?),
            name: message_name("name", &of.1)?.into(),
            by: By::Owner,
            action: NamedAction::Track,
        };
        let query = Command::ByName(Box::new(by_name));
        match env.work(|work| Ok(work.ask(query).0))? {
            Some(Outcome::Tracked(_, track)) => {
                tracked(lua, &track).map(Value::Table).map_err(failed)
            }
            _ => Ok(Value::Nil),
        }
    })
}

fn shown(lua: &Lua, batch: &Batch) -> Result<Table> {
    let progress = &batch.progress;
    let table = lua.create_table()?;
    table.raw_set("id", batch.id.to_string())?;
    table.raw_set("description", lua.create_string(&batch.made.description)?)?;
    if let Some(parent) = batch.made.parent {
        table.raw_set("parent", parent.to_string())?;
    }
    table.raw_set("cancelled", batch.made.cancelled.word())?;
    table.raw_set("created_ms", batch.created.0)?;
    table.raw_set("open", progress.open)?;
    table.raw_set("total", progress.total)?;
    table.raw_set("pending", progress.pending)?;
    table.raw_set("failed", progress.failed)?;
    table.raw_set("complete", progress.complete.word())?;
    table.raw_set("success", progress.success.word())?;
    Ok(table)
}

fn tracked(lua: &Lua, track: &Track) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("name", lua.create_string(&*track.name)?)?;
    table.raw_set("queue", lua.create_string(track.queue.as_bytes())?)?;
    table.raw_set("state", track.state.word())?;
    if let Some(percent) = track.percent {
        table.raw_set("progress", percent)?;
    }
    table.raw_set("status", lua.create_string(&track.note)?)?;
    table.raw_set("changed_ms", track.changed.0)?;
    Ok(table)
}
