//! Tests of hooks, written in Lua: `test("name", function(server) ... end)`.

use std::path::Path;
use std::sync::{Arc, Mutex};

use mlua::{ChunkMode, Error, Function, Lua, Table, Value};
use quintet_types::{
    By, Command, How, LeaseOwner, LeaseRequest, LeaseTime, MessageId, Ms, Name, Outcome, Peek,
    Settings, Take, Wait, When,
};

use super::{Trial, client};
use crate::error::HookError;
use crate::fields::{self, put_from, span};
use crate::host::Host;
use crate::load::without_preamble;
use crate::meter::Meter;
use crate::occasions::HookReply;
use crate::program::Program;
use crate::sandbox;
use crate::shared::{Shared, locked};
use crate::submit::Decided;
use quintet_policy::Limits;

/// The time at which every test begins: 2026-01-01T00:00:00Z.
const BEGINNING: Ms = Ms(1_767_225_600_000);

/// The name of a test and, if it failed, its error.
#[derive(Debug)]
pub struct TestResult {
    pub name: String,
    /// Why it failed.
    pub failed: Option<HookError>,
}

type Bench = Arc<Mutex<Trial>>;
type Tests = Arc<Mutex<Vec<(String, Function)>>>;

/// Runs the tests of a file, each with the hooks loaded anew over an empty
/// engine.
///
/// # Errors
/// The hooks or the test file cannot be loaded.
pub fn run_tests(hooks: &Path, tests: &Path) -> Result<Vec<TestResult>, HookError> {
    // Mostly both files have the same name.
    let name = tests.file_name().unwrap_or_default();
    let name = format!("tests/{}", name.to_string_lossy());
    let text = std::fs::read(tests)
        .map_err(|error| HookError::of_file(&name, format!("cannot be read: {error}")))?;
    let text = without_preamble(text);
    let program = Program::load(hooks, &Limits::default(), Arc::default())?;
    let mut files = vec![name.clone()];
    files.extend(program.names.iter().cloned());
    let lua_error = |error: &Error| HookError::from_lua(error, &files);
    let limits = Limits {
        instructions_max: 1_000_000_000,
        time_ms_max: 10_000,
        memory_bytes_max: 256 << 20,
        ..Limits::default()
    };
    let meter = Arc::new(Meter::new(limits));
    let found = Tests::default();
    let lua = open(&limits, &meter, &found).map_err(|error| lua_error(&error))?;
    meter.begin(meter.elapsed_ns());
    lua.load(&text[..])
        .set_name(format!("={name}"))
        .set_mode(ChunkMode::Text)
        .exec()
        .map_err(|error| lua_error(&error))?;
    let found = std::mem::take(&mut *locked(&found));
    let mut results = Vec::new();
    for (name, function) in found {
        // Nothing of one test is left for the next.
        let program = Program::load(hooks, &Limits::default(), Arc::new(Shared::default()))?;
        let trial = Trial::new(program, Settings::default(), BEGINNING)?;
        let bench = Arc::new(Mutex::new(trial));
        meter.begin(meter.elapsed_ns());
        let server = server(&lua, &bench).map_err(|error| lua_error(&error))?;
        let failed = function.call::<()>(server).err();
        results.push(TestResult {
            name,
            failed: failed.map(|error| lua_error(&error)),
        });
    }
    Ok(results)
}

fn open(limits: &Limits, meter: &Arc<Meter>, found: &Tests) -> mlua::Result<Lua> {
    let lua = sandbox::open(limits, meter, |text| println!("{text}"))?;
    let found = Arc::clone(found);
    let test = lua.create_function(move |_, (name, function): (String, Function)| {
        locked(&found).push((name, function));
        Ok(())
    })?;
    lua.globals().set("test", test)?;
    lua.load(include_str!("expect.lua"))
        .set_name("=expect")
        .exec()?;
    Ok(lua)
}

/// Result of a call: a value, or nil and a text.
type CallResult = (Value, Option<String>);

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "it was done, and that is all"
)]
fn call_result(lua: &Lua, trial: &Trial, decided: Decided) -> mlua::Result<CallResult> {
    let now = trial.world.now();
    Ok(match decided {
        Decided::Later => (Value::Nil, Some("waits".into())),
        Decided::Denied(text) => (Value::Nil, Some(text)),
        Decided::Answer(bytes) => (Value::String(lua.create_string(bytes)?), None),
        Decided::Now(outcome, name) => match outcome {
            Outcome::Put { id, .. } => (Value::Integer(id.0 as i64), None),
            Outcome::Messages(messages) => match messages.first() {
                Some(message) => (
                    Value::Table(fields::table_of(lua, message, &name, now)?),
                    None,
                ),
                None => (Value::Nil, Some("empty".into())),
            },
            Outcome::Empty => (Value::Nil, Some("empty".into())),
            Outcome::Refused(command_error) => (Value::Nil, Some(command_error.text().into())),
            _ => (Value::Boolean(true), None),
        },
    })
}

/// The `server` of a test.
fn server(lua: &Lua, bench: &Bench) -> mlua::Result<Table> {
    let server = lua.create_table()?;
    let set = |name: &str, function: Function| server.set(name, function);
    set(
        "put",
        asking(lua, bench, |table: Table| {
            let put = put_from(&table, Default::default())?;
            Ok(Command::Put(put))
        })?,
    )?;
    set("take", asking(lua, bench, take)?)?;
    set(
        "peek",
        asking(lua, bench, |queue: mlua::String| {
            Ok(Command::Peek(Peek::Ready(Name::new(&queue.as_bytes()))))
        })?,
    )?;
    set(
        "get",
        asking(lua, bench, |id: u64| {
            Ok(Command::Peek(Peek::Id(MessageId(id))))
        })?,
    )?;
    set(
        "delete",
        asking(lua, bench, |id: u64| {
            let (id, by) = (MessageId(id), By::Anyone);
            Ok(Command::Delete { id, by })
        })?,
    )?;
    set("finish", settling(lua, bench, || How::Finish)?)?;
    set(
        "release",
        settling(lua, bench, || How::Release {
            priority: None,
            due: When::Now,
            back_to: None,
        })?,
    )?;
    set(
        "bury",
        settling(lua, bench, || How::Bury {
            priority: None,
            reason: Box::default(),
        })?,
    )?;
    let own = Arc::clone(bench);
    set(
        "wait",
        lua.create_function(move |_, ms: Value| {
            let ms = span("milliseconds", &ms).map_err(Error::runtime)?;
            locked(&own).pass(ms);
            Ok(())
        })?,
    )?;
    let own = Arc::clone(bench);
    set(
        "arrived",
        lua.create_function(move |lua, ()| {
            let mut trial = locked(&own);
            match trial.take_arrived().into_iter().next() {
                Some((_, decided)) => call_result(lua, &trial, decided),
                None => Ok((Value::Nil, Some("nothing".into()))),
            }
        })?,
    )?;
    let own = Arc::clone(bench);
    set(
        "command",
        lua.create_function(move |lua, line: mlua::String| {
            let reply = locked(&own).state.added(&client(1), &line.as_bytes());
            Ok(match reply {
                None => (Value::Nil, Some("no such command".to_owned())),
                Some(HookReply::Done) => (Value::Boolean(true), None),
                Some(HookReply::Text(text)) => (Value::String(lua.create_string(text)?), None),
                Some(HookReply::Refused(text)) => (Value::Nil, Some(text)),
            })
        })?,
    )?;
    let own = Arc::clone(bench);
    set(
        "configure",
        lua.create_function(move |_, (queue, options): (String, Table)| {
            let mut overrides = quintet_types::Overrides::default();
            for pair in options.pairs::<String, Value>() {
                let (name, value) = pair?;
                let number = span(&name, &value).map_err(Error::runtime)?;
                match name.as_str() {
                    "messages_max" => overrides.messages_max = Some(number),
                    "attempts_max" => overrides.attempts_max = u32::try_from(number).ok(),
                    "default_ttr_ms" => overrides.default_ttr_ms = Some(number),
                    "ttl_ms" => overrides.ttl_ms = Some(number),
                    _ => return Err(Error::runtime(format!("no setting {name:?} in tests"))),
                }
            }
            let command = Command::Configure {
                queue: queue.as_str().into(),
                overrides: Some(Box::new(overrides)),
                must_exist: false,
            };
            locked(&own).submit(&client(1), command);
            Ok(())
        })?,
    )?;
    let own = Arc::clone(bench);
    set(
        "log",
        lua.create_function(move |_, ()| {
            let lines = locked(&own).world.take_log();
            Ok(lines.into_iter().map(|(_, text)| text).collect::<Vec<_>>())
        })?,
    )?;
    let own = Arc::clone(bench);
    set(
        "metric",
        lua.create_function(move |_, name: String| {
            let all = locked(&own).state.program().shared().metrics.all();
            let found = all.iter().find(|(known, _)| **known == *name);
            Ok(found.map_or(0.0, |(_, value)| *value))
        })?,
    )?;
    Ok(server)
}

/// A function that submits what `command` makes of its argument; a number
/// after it says which client asks.
fn asking<A: mlua::FromLua + 'static>(
    lua: &Lua,
    bench: &Bench,
    command: impl Fn(A) -> Result<Command, String> + Send + Sync + 'static,
) -> mlua::Result<Function> {
    let bench = Arc::clone(bench);
    lua.create_function(move |lua, (args, who): (A, Option<u64>)| {
        let command = command(args).map_err(Error::runtime)?;
        let mut trial = locked(&bench);
        let decided = trial.submit(&client(who.unwrap_or(1)), command);
        call_result(lua, &trial, decided)
    })
}

fn settling(
    lua: &Lua,
    bench: &Bench,
    how: impl Fn() -> How + Send + Sync + 'static,
) -> mlua::Result<Function> {
    asking(lua, bench, move |id: u64| {
        Ok(Command::Settle {
            id: MessageId(id),
            by: By::Owner,
            how: how(),
        })
    })
}

/// A queue's name, or `{queue=, lease_ms=, wait_ms=}`.
fn take(args: Value) -> Result<Command, String> {
    let mut take = Take::default();
    match args.as_table() {
        Some(table) => {
            let field = |name| table.raw_get::<Value>(name).map_err(|e| e.to_string());
            take.queues.push(fields::name("queue", &field("queue")?)?);
            let lease = field("lease_ms")?;
            if !lease.is_nil() {
                take.lease = Some(LeaseRequest {
                    owner: LeaseOwner::Connection,
                    time: LeaseTime::Fixed(span("lease_ms", &lease)?),
                    back_to: Default::default(),
                    held_max: 0,
                });
            }
            let wait = field("wait_ms")?;
            if !wait.is_nil() {
                take.wait = Wait::For(span("wait_ms", &wait)?);
            }
        }
        None => take.queues.push(fields::name("queue", &args)?),
    }
    Ok(Command::Take(take))
}
