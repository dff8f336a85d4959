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

use crate::calendar::iso;
use crate::fields::span;
use crate::host::Level;
use crate::meter::Meter;
use crate::register::{Recurrence, Timer};
use crate::shared::{Shared, locked};
use crate::step::Work;
use quintet_policy::Cron;
use quintet_policy::Event;

/// The environment of the API's functions.
#[derive(Clone)]
pub(crate) struct Env {
    pub(crate) work: Arc<Mutex<Work>>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) shared: Arc<Shared>,
}

impl Env {
    /// A function for Lua; the text of a failure is headed by its name.
    fn function<A, R>(
        &self,
        lua: &Lua,
        name: &'static str,
        run: impl Fn(&Lua, &Env, A) -> std::result::Result<R, String> + Send + Sync + 'static,
    ) -> Result<Function>
    where
        A: FromLuaMulti,
        R: IntoLuaMulti,
    {
        let env = self.clone();
        lua.create_function(move |lua, args: A| {
            run(lua, &env, args).map_err(|text| Error::runtime(format!("{name}: {text}")))
        })
    }

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
    queues::install(lua, env, &quintet)?;
    batches::install(lua, env, &quintet, &raw)?;
    tables::install(lua, env, &raw)?;
    registration(lua, env, &quintet)?;
    telling(lua, env, &quintet)?;
    lua.load(include_str!("api.lua"))
        .set_name("=quintet")
        .call::<()>((&quintet, raw))?;
    lua.globals().set("quintet", quintet)
}

fn registration(lua: &Lua, env: &Env, quintet: &Table) -> Result<()> {
    let on = env.function(
        lua,
        "quintet.on",
        |_, env, (name, function): (String, Function)| {
            let event = Event::from_name(&name).ok_or_else(|| {
                let names: Vec<&str> = Event::ALL.iter().map(|event| event.name()).collect();
                format!(
                    "there is no event {name:?}; the events are {}",
                    names.join(" ")
                )
            })?;
            env.registering(|registered| {
                registered.functions[event as usize].push(function);
                Ok(())
            })
        },
    )?;
    quintet.set("on", on)?;
    let every = env.function(
        lua,
        "quintet.every",
        |_, env, (ms, function): (Value, Function)| {
            let ms = span("milliseconds", &ms)?;
            if ms < 10 {
                return Err("at least 10 ms expected".into());
            }
            env.registering(|registered| {
                let when = Recurrence::Every(ms);
                registered.timers.push(Timer { when, function });
                Ok(())
            })
        },
    )?;
    quintet.set("every", every)?;
    let at = env.function(
        lua,
        "quintet.at",
        |_, env, (cron, function): (String, Function)| {
            let when = Recurrence::At(Cron::parse(&cron)?);
            env.registering(|registered| {
                registered.timers.push(Timer { when, function });
                Ok(())
            })
        },
    )?;
    quintet.set("at", at)?;
    let command = env.function(
        lua,
        "quintet.command",
        |_, env, (word, function): (mlua::String, Function)| {
            let word: Box<[u8]> = word.as_bytes().to_vec().into();
            if word.is_empty() || !word.iter().all(u8::is_ascii_graphic) {
                return Err("one word of printable ASCII expected".into());
            }
            env.registering(|registered| {
                if registered.commands.iter().any(|(known, _)| *known == word) {
                    return Err("this command exists already".into());
                }
                registered.commands.push((word, function));
                Ok(())
            })
        },
    )?;
    quintet.set("command", command)
}

fn telling(lua: &Lua, env: &Env, quintet: &Table) -> Result<()> {
    let log = lua.create_table()?;
    for (name, level) in [
        ("info", Level::Info),
        ("warn", Level::Warn),
        ("error", Level::Error),
    ] {
        let notify = env.function(lua, "quintet.log", move |_, env, text: mlua::String| {
            locked(&env.work).host.log(level, &text.to_string_lossy());
            Ok(())
        })?;
        log.set(name, notify)?;
    }
    quintet.set("log", log)?;
    let metric = env.function(
        lua,
        "quintet.metric",
        |_, env, (name, value): (String, Option<f64>)| {
            if name.is_empty() || name.len() > 200 {
                return Err("a name of 1 to 200 bytes expected".into());
            }
            if env.shared.metrics.add(&name, value.unwrap_or(1.0)) {
                Ok(())
            } else {
                Err("there are too many metrics".into())
            }
        },
    )?;
    quintet.set("metric", metric)?;
    let time = lua.create_table()?;
    let now = env.function(lua, "quintet.time.now", |_, env, ()| {
        Ok(locked(&env.work).host.now().0)
    })?;
    time.set("now", now)?;
    let text = env.function(lua, "quintet.time.iso", |_, env, at: Option<Value>| {
        Ok(iso(match at {
            Some(at) => quintet_types::Ms(span("milliseconds", &at)?),
            None => locked(&env.work).host.now(),
        }))
    })?;
    time.set("iso", text)?;
    quintet.set("time", time)?;
    let json = lua.create_table()?;
    let encode = env.function(lua, "quintet.json.encode", |lua, env, value: Value| {
        let text = json::encode(&value, &env.meter)?;
        lua.create_string(text).map_err(failed)
    })?;
    json.set("encode", encode)?;
    // Answers nil and why, as what is decoded is mostly a client's.
    let decode = {
        let env = env.clone();
        lua.create_function(move |lua, text: mlua::String| {
            Ok(match json::decode(lua, &text.as_bytes(), &env.meter) {
                Ok(value) => (value, None),
                Err(text) => (Value::Nil, Some(text)),
            })
        })?
    };
    json.set("decode", decode)?;
    json.set("null", Value::NULL)?;
    quintet.set("json", json)
}
