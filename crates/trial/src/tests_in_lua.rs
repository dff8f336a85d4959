//! Tests of hooks, written in Lua: `test("name", function(server) ... end)`.

use std::path::Path;
use std::sync::{Arc, Mutex};

use mlua::{ChunkMode, Error, FromLua, FromLuaMulti, Function, IntoLuaMulti, Lua, Table, Value};
use quintet_hooks::parts::{self, Meter, lease_for, put_from, span, without_preamble};
use quintet_hooks::{Decided, HookError, HookReply, Host, Limits, Program, Shared};
use quintet_types::{
    By, Command, How, MessageId, Ms, Name, Outcome, Peek, Settings, Take, Wait, When, locked,
};

use super::{Trial, client};

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
    files.extend_from_slice(program.names());
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
    let lua = parts::sandbox(limits, meter, |text| println!("{text}"))?;
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
                    Value::Table(parts::table_of(lua, message, &name, now)?),
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
    let table = lua.create_table()?;
    let server = Server { lua, bench, table };
    server.asks("put", |table: Table| {
        let put = put_from(&table, Default::default())?;
        Ok(Command::Put(put))
    })?;
    server.asks("take", take)?;
    server.asks("peek", |queue: mlua::String| {
        Ok(Command::Peek(Peek::Ready(Name::new(&queue.as_bytes()))))
    })?;
    server.asks("get", |id: u64| Ok(Command::Peek(Peek::Id(MessageId(id)))))?;
    server.asks("delete", |id: u64| {
        let (id, by) = (MessageId(id), By::Anyone);
        Ok(Command::Delete { id, by })
    })?;
    server.settles("finish", || How::Finish)?;
    server.settles("release", || How::release(When::Now))?;
    server.settles("bury", || How::Bury {
        priority: None,
        reason: Box::default(),
    })?;
    server.add("wait", |_, trial, ms: Value| {
        trial.pass(span("milliseconds", &ms).map_err(Error::runtime)?);
        Ok(())
    })?;
    server.add("arrived", |lua, trial, ()| {
        match trial.take_arrived().into_iter().next() {
            Some((_, decided)) => call_result(lua, trial, decided),
            None => Ok((Value::Nil, Some("nothing".into()))),
        }
    })?;
    server.add("command", |lua, trial, line: mlua::String| {
        Ok(match trial.state.added(&client(1), &line.as_bytes()) {
            None => (Value::Nil, Some("no such command".to_owned())),
            Some(HookReply::Done) => (Value::Boolean(true), None),
            Some(HookReply::Text(text)) => (Value::String(lua.create_string(text)?), None),
            Some(HookReply::Refused(text)) => (Value::Nil, Some(text)),
        })
    })?;
    server.add(
        "configure",
        |_, trial, (queue, options): (String, Table)| {
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
            trial.submit(&client(1), command);
            Ok(())
        },
    )?;
    server.add("log", |_, trial, ()| {
        let lines = trial.world.take_log();
        Ok(lines.into_iter().map(|(_, text)| text).collect::<Vec<_>>())
    })?;
    server.add("metric", |_, trial, name: String| {
        let all = trial.state.program().shared().metrics.all();
        let found = all.iter().find(|(known, _)| **known == *name);
        Ok(found.map_or(0.0, |(_, value)| *value))
    })?;
    Ok(server.table)
}

/// The table of a test's functions.
struct Server<'a> {
    lua: &'a Lua,
    bench: &'a Bench,
    table: Table,
}

impl Server<'_> {
    fn add<A: FromLuaMulti + 'static, R: IntoLuaMulti>(
        &self,
        name: &str,
        function: impl Fn(&Lua, &mut Trial, A) -> mlua::Result<R> + Send + Sync + 'static,
    ) -> mlua::Result<()> {
        let bench = Arc::clone(self.bench);
        let function = move |lua: &Lua, args: A| function(lua, &mut locked(&bench), args);
        self.table.set(name, self.lua.create_function(function)?)
    }

    /// Adds a function that submits what `command` makes of its argument; a number after it says
    /// which client asks.
    fn asks<A: FromLua + 'static>(
        &self,
        name: &str,
        command: impl Fn(A) -> Result<Command, String> + Send + Sync + 'static,
    ) -> mlua::Result<()> {
        self.add(name, move |lua, trial, (args, who): (A, Option<u64>)| {
            let command = command(args).map_err(Error::runtime)?;
            let decided = trial.submit(&client(who.unwrap_or(1)), command);
            call_result(lua, trial, decided)
        })
    }

    fn settles(&self, name: &str, how: fn() -> How) -> mlua::Result<()> {
        self.asks(name, move |id: u64| {
            let (id, by, how) = (MessageId(id), By::Owner, how());
            Ok(Command::Settle { id, by, how })
        })
    }
}

/// A queue's name, or `{queue=, lease_ms=, wait_ms=}`.
fn take(args: Value) -> Result<Command, String> {
    let mut take = Take::default();
    match args.as_table() {
        Some(table) => {
            let field = |name| table.raw_get::<Value>(name).map_err(|e| e.to_string());
            take.queues.push(parts::name("queue", &field("queue")?)?);
            let lease = field("lease_ms")?;
            if !lease.is_nil() {
                take.lease = Some(lease_for(span("lease_ms", &lease)?, 0));
            }
            let wait = field("wait_ms")?;
            if !wait.is_nil() {
                take.wait = Wait::For(span("wait_ms", &wait)?);
            }
        }
        None => take.queues.push(parts::name("queue", &args)?),
    }
    Ok(Command::Take(take))
}
