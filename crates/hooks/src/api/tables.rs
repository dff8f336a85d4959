//! Durable tables and counters.

use mlua::{Result, Table, Value};
use quintet_types::{Command, Effect, Guard, Name, Outcome, TableEntry, TableRequest};

use super::{Api, failed, json, option_ms};
use crate::fields::{bytes, name};
use crate::step::Work;

/// Entries read at once.
const PAGE: u32 = 256;

fn key(value: &Value) -> std::result::Result<Box<[u8]>, String> {
    bytes("key", value, 65_535).map(Into::into)
}

/// An entry's bytes as the step sees it; leaves a guard if it was read.
fn read(
    work: &mut Work,
    table: &Name,
    key: &[u8],
) -> std::result::Result<Option<Box<[u8]>>, String> {
    if let Some(own) = work.step.own_entry(table, key) {
        return Ok(own.map(Into::into));
    }
    let ask = TableRequest::Get {
        table: table.clone(),
        key: key.into(),
    };
    let entry = match work.ask(Command::Table(ask)).0 {
        Some(Outcome::Entries(entries)) => entries.into_iter().next(),
        Some(Outcome::Refused(command_error)) => return Err(command_error.text().into()),
        _ => None,
    };
    work.step.guards.push(Guard::Table {
        table: table.clone(),
        key: key.into(),
        version: entry.as_ref().map(|entry| entry.version),
    });
    Ok(entry.map(|entry| entry.value))
}

fn write(
    work: &mut Work,
    table: Name,
    key: Box<[u8]>,
    value: Option<Box<[u8]>>,
    ttl_ms: Option<u64>,
) -> std::result::Result<(), String> {
    let bytes = key.len() + value.as_ref().map_or(0, |value| value.len());
    let effect = Effect::Set {
        table,
        key,
        value,
        ttl_ms,
    };
    work.add(effect, bytes)
}

pub(super) fn install(api: Api<'_>) -> Result<()> {
    api.add("table:get", |lua, env, (table, at): (Value, Value)| {
        let (table, at) = (name("table", &table)?, key(&at)?);
        let value = env.work(|work| read(work, &table, &at))?;
        json::load(lua, value.as_deref(), &env.meter)
    })?;
    type Set = (Value, Value, Value, Option<Table>);
    api.add("table:set", |_, env, (table, at, value, options): Set| {
        let (table, at) = (name("table", &table)?, key(&at)?);
        let value = json::store(&value, &env.meter)?;
        let ttl_ms = option_ms(options.as_ref(), "ttl_ms")?;
        env.work(|work| write(work, table, at, value, ttl_ms))
    })?;
    type Cas = (Value, Value, Value, Value, Option<Table>);
    api.add(
        "table:cas",
        |_, env, (table, at, old, new, options): Cas| {
            let (table, at) = (name("table", &table)?, key(&at)?);
            let old = json::store(&old, &env.meter)?;
            let new = json::store(&new, &env.meter)?;
            let ttl_ms = option_ms(options.as_ref(), "ttl_ms")?;
            env.work(|work| {
                let same = read(work, &table, &at)? == old;
                if same {
                    write(work, table, at, new, ttl_ms)?;
                }
                Ok(same)
            })
        },
    )?;
    api.add("table:each", |lua, env, (table, after): (Value, Value)| {
        let table = name("table", &table)?;
        let after = (!after.is_nil()).then(|| key(&after)).transpose()?;
        let ask = TableRequest::List {
            table,
            after,
            max: PAGE,
        };
        let entries: Vec<TableEntry> = env.work(|work| match work.ask(Command::Table(ask)).0 {
            Some(Outcome::Entries(entries)) => Ok(entries),
            _ => Ok(Vec::new()),
        })?;
        let page = lua.create_table().map_err(failed)?;
        for (at, entry) in entries.iter().enumerate() {
            let pair = lua.create_table().map_err(failed)?;
            let name = lua.create_string(&entry.key).map_err(failed)?;
            pair.raw_set(1, name).map_err(failed)?;
            let value = json::load(lua, Some(&entry.value), &env.meter)?;
            pair.raw_set(2, value).map_err(failed)?;
            page.raw_set(at + 1, pair).map_err(failed)?;
        }
        Ok(page)
    })?;
    counters(api)
}

fn counters(api: Api<'_>) -> Result<()> {
    const FULL: &str = "there are too many counters";
    type Add = (mlua::String, i64, Option<Table>);
    api.add("counter:add", |_, env, (name, by, options): Add| {
        let ttl_ms = option_ms(options.as_ref(), "ttl_ms")?;
        env.work(|work| {
            let (name, now) = (name.as_bytes(), work.host.now());
            let sum = env.shared.counters.add(&name, by, ttl_ms, now);
            work.step.counted.push((name.to_vec().into(), by));
            sum.ok_or_else(|| FULL.to_owned())
        })
    })?;
    api.add("counter:get", |_, env, name: mlua::String| {
        env.work(|work| Ok(env.shared.counters.get(&name.as_bytes(), work.host.now())))
    })?;
    type Cas = (mlua::String, i64, i64, Option<Table>);
    api.add("counter:cas", |_, env, (name, old, new, options): Cas| {
        let ttl_ms = option_ms(options.as_ref(), "ttl_ms")?;
        env.work(|work| {
            let now = work.host.now();
            let counters = &env.shared.counters;
            let was = counters.cas(&name.as_bytes(), old, new, ttl_ms, now);
            was.ok_or_else(|| FULL.to_owned())
        })
    })
}
