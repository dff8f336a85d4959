//! A Lua state that can do nothing but compute, within budgets.

use std::sync::Arc;

use mlua::{
    ChunkMode, Error, HookTriggers, Lua, LuaOptions, Result, StdLib, Table, Value, VmState,
};

use crate::meter::{EVERY, Meter};
use crate::strings;
use quintet_policy::Limits;

/// The basic functions of Lua that are kept. No `load`, `dofile`, `require`, `collectgarbage`;
/// there are no coroutines either: an event is one call.
const BASIC: &str = "_G _VERSION assert error getmetatable ipairs math next pairs pcall print \
    rawequal rawget rawlen rawset select setmetatable string table tonumber tostring type utf8 xpcall";

/// A fresh state. `note` gets what `print` prints.
///
/// # Errors
/// Lua has no memory left.
pub fn open(
    limits: &Limits,
    meter: &Arc<Meter>,
    note: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Lua> {
    let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    let memory = usize::try_from(limits.memory_bytes_max).unwrap_or(usize::MAX);
    lua.set_memory_limit(memory)?;
    let globals = lua.globals();
    let mut removed = Vec::new();
    for pair in globals.pairs::<String, Value>() {
        let (name, _) = pair?;
        if !BASIC.split(' ').any(|basic| basic == name) {
            removed.push(name);
        }
    }
    for name in removed {
        globals.raw_set(name, Value::Nil)?;
    }
    let string: Table = globals.get("string")?;
    string.raw_set("dump", Value::Nil)?;
    strings::install(&lua, &string, meter, memory / 2)?;
    let spent = || Error::runtime("budget used up");
    let m = Arc::clone(meter);
    let charge = lua.create_function(move |_, count: Value| {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the nearest that is paid for"
        )]
        let count = match count.as_integer() {
            Some(count) => u64::try_from(count).unwrap_or(0),
            None => count.as_f64().unwrap_or(0.0) as u64,
        };
        m.charge(count).map_err(|_stop| spent())
    })?;
    let m = Arc::clone(meter);
    let check = lua.create_function(move |_, ()| m.charge(0).map_err(|_stop| spent()))?;
    let note = lua.create_function(move |_, text: mlua::String| {
        note(&text.to_string_lossy());
        Ok(())
    })?;
    lua.load(include_str!("prelude.lua"))
        .set_name("=prelude")
        .set_mode(ChunkMode::Text)
        .call::<()>((charge, check, note))?;
    let m = Arc::clone(meter);
    let triggers = HookTriggers::new().every_nth_instruction(EVERY);
    lua.set_global_hook(triggers, move |lua, _| match m.tick() {
        Ok(()) => Ok(VmState::Continue),
        Err(_stop) => Err(Error::runtime(format!("{}budget used up", running(lua)))),
    })?;
    Ok(lua)
}

/// Where the innermost function of a loaded file is, as Lua heads its messages.
fn running(lua: &Lua) -> String {
    for level in 0..20 {
        let found = lua.inspect_stack(level, |debug| {
            let line = debug.current_line()?;
            let source = debug.source().short_src?;
            let own = matches!(&*source, "prelude" | "quintet" | "expect");
            (!own).then(|| format!("{source}:{line}: "))
        });
        match found {
            Some(Some(place)) => return place,
            Some(None) => {}
            None => break,
        }
    }
    String::new()
}
