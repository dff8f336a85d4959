//! `quintet`: what a hook can do besides answering.
//!
//! Reading asks the shards at once and leaves a guard in the step; writing
//! only adds to the step, which is submitted when the hook has answered.

mod batches;
pub(crate) mod json;
mod queues;
mod tables;

use std::sync::{Arc, Mutex};

use mlua::{Error, FromLuaMulti, Function, IntoLuaMulti, Lua, Result, Table, Value};

use crate::fields::span;
use crate::host::Level;
use crate::meter::Meter;
use crate::register::{Timer, TimerSchedule};
use crate::shared::Shared;
use crate::step::Work;
use quintet_policy::{Cron, Event, iso};
use quintet_types::locked;

/// The environment of the API's functions.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) work: Arc<Mutex<Work>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) shared: Arc<Shared>,
}

/// A table of Lua that gets functions.
#[derive(Clone, Copy)]
struct Api<'a> {
    lua: &'a Lua,
    env: &'a Env,
    table: &'a Table,
}

impl Api<'_> {
    /// Sets a function under its name behind `quintet.`, in a table of this one if the name has
    /// another point. The text of a failure is headed by the name.
    fn add<A, R>(
        &self,
        name: &'static str,
        run: impl Fn(&Lua, &Env, A) -> std::result::Result<R, String> + Send + Sync + 'static,
    ) -> Result<()>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        let env = self.env.clone();
        let function = self.lua.create_function(move |lua, args: A| {
            run(lua, &env, args).map_err(|text| Error::runtime(format!("{name}: {text}")))
        })?;
        let key = name.strip_prefix("quintet.").unwrap_or(name);
        let Some((inner, key)) = key.split_once('.') else {
            return self.table.set(key, function);
        };
        if !self.table.contains_key(inner)? {
            self.table.set(inner, self.lua.create_table()?)?;
        }
        self.table.get::<Table>(inner)?.set(key, function)
    }
}

impl Env {
    /// Runs with the work of an event.
    fn work<R>(
        &self,
        run: impl FnOnce(&mut Work) -> std::result::Result<R, String>,
    ) -> std::result::Result<R, String> {
        let mut work = locked(&self.work);
        if work.loading.is_some() {
            return Err("only in functions of events, not while the file is loaded".into());
        }
        run(&mut work)
    }

    /// Runs with what is being registered.
    fn registering<R>(
        &self,
        run: impl FnOnce(&mut crate::register::Registered) -> std::result::Result<R, String>,
    ) -> std::result::Result<R, String> {
        match &mut locked(&self.work).loading {
            Some(registered) => run(registered),
            None => Err("only while the file is loaded, not in a function of an event".into()),
        }
    }
}

/// Failures of Lua's as text.
fn failed(error: mlua::Error) -> String {
    error.to_string()
}

/// The span in an options table's field.
fn option_ms(options: Option<&Table>, field: &str) -> std::result::Result<Option<u64>, String> {
    let Some(options) = options else {
        return Ok(None);
    };
    let value = options.raw_get::<Value>(field).map_err(failed)?;
    (!value.is_nil()).then(|| span(field, &value)).transpose()
}

/// Makes the global `quintet`.
pub(crate) fn install(lua: &Lua, env: &Env) -> Result<()> {
    let quintet = lua.create_table()?;
    let raw = lua.create_table()?;
    let of = |table| Api { lua, env, table };
    queues::install(of(&quintet))?;
    batches::install(of(&quintet), of(&raw))?;
    tables::install(of(&raw))?;
    registration(of(&quintet))?;
    telling(of(&quintet))?;
    lua.load(include_str!("api.lua"))
        .set_name("=quintet")
        .call::<()>((&quintet, raw))?;
    lua.globals().set("quintet", quintet)
}

/// A function of a hook, with what it is for.
type Registers<T> = (T, Function);

fn registration(api: Api<'_>) -> Result<()> {
    api.add("quintet.on", |_, env, (name, run): Registers<String>| {
        let event = Event::from_name(&name).ok_or_else(|| {
            let names: Vec<&str> = Event::ALL.iter().map(|event| event.name()).collect();
            let names = names.join(" ");
            format!("there is no event {name:?}; the events are {names}")
        })?;
        env.registering(|registered| {
            registered.functions[event as usize].push(run);
            Ok(())
        })
    })?;
    api.add("quintet.every", |_, env, (ms, run): Registers<Value>| {
        let ms = span("milliseconds", &ms)?;
        if ms < 10 {
            return Err("at least 10 ms expected".into());
        }
        timer(env, TimerSchedule::Every(ms), run)
    })?;
    api.add("quintet.at", |_, env, (cron, run): Registers<String>| {
        timer(env, TimerSchedule::At(Cron::parse(&cron)?), run)
    })?;
    api.add(
        "quintet.command",
        |_, env, (word, run): Registers<mlua::String>| {
            let word: Box<[u8]> = word.as_bytes().to_vec().into();
            if word.is_empty() || !word.iter().all(u8::is_ascii_graphic) {
                return Err("one word of printable ASCII expected".into());
            }
            env.registering(|registered| {
                if registered.commands.iter().any(|(known, _)| *known == word) {
                    return Err("this command exists already".into());
                }
                registered.commands.push((word, run));
                Ok(())
            })
        },
    )
}

fn timer(env: &Env, when: TimerSchedule, function: Function) -> std::result::Result<(), String> {
    env.registering(|registered| {
        registered.timers.push(Timer { when, function });
        Ok(())
    })
}

fn telling(api: Api<'_>) -> Result<()> {
    for (name, level) in [
        ("quintet.log.info", Level::Info),
        ("quintet.log.warn", Level::Warn),
        ("quintet.log.error", Level::Error),
    ] {
        api.add(name, move |_, env, text: mlua::String| {
            locked(&env.work).host.log(level, &text.to_string_lossy());
            Ok(())
        })?;
    }
    type MetricArgs = (String, Option<f64>);
    api.add("quintet.metric", |_, env, (name, value): MetricArgs| {
        if name.is_empty() || name.len() > 200 {
            return Err("a name of 1 to 200 bytes expected".into());
        }
        let is_added = env.shared.metrics.add(&name, value.unwrap_or(1.0));
        is_added
            .then_some(())
            .ok_or("there are too many metrics".into())
    })?;
    api.add("quintet.time.now", |_, env, ()| {
        Ok(locked(&env.work).host.now().0)
    })?;
    api.add("quintet.time.iso", |_, env, at: Option<Value>| {
        Ok(iso(match at {
            Some(at) => quintet_types::Ms(span("milliseconds", &at)?),
            None => locked(&env.work).host.now(),
        }))
    })?;
    api.add("quintet.json.encode", |lua, env, value: Value| {
        let text = json::encode(&value, &env.meter)?;
        lua.create_string(text).map_err(failed)
    })?;
    // Answers nil and why, as what is decoded is mostly a client's.
    api.add("quintet.json.decode", |lua, env, text: mlua::String| {
        Ok(match json::decode(lua, &text.as_bytes(), &env.meter) {
            Ok(value) => (value, None),
            Err(text) => (Value::Nil, Some(text)),
        })
    })?;
    api.table.get::<Table>("json")?.set("null", Value::NULL)
}
