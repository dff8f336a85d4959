//! The functions of Lua's `string` library whose time does not show in
//! instructions: `find match gmatch gsub rep upper lower reverse`, charged to the call's budget.

use std::sync::Arc;

use mlua::{Error, Function, Lua, MultiValue, Result, String as LuaString, Table, Value, Variadic};

use crate::fields::opaque;
use crate::meter::Meter;
use crate::pattern::{Capture, Failed, Matcher};

/// Bytes handled for the price of one instruction.
const BYTES_PER_INSTRUCTION: u64 = 16;

/// A conversion of a text, byte by byte.
type Change = fn(&[u8]) -> Vec<u8>;

/// Replaces the functions in the library's table.
pub(crate) fn install(lua: &Lua, string: &Table, meter: &Arc<Meter>, room: usize) -> Result<()> {
    let meter = |_: &str| Arc::clone(meter);
    let m = meter("find");
    let find = move |lua: &Lua, args| search(lua, &m, args, true);
    string.raw_set("find", lua.create_function(find)?)?;
    let m = meter("match");
    let matches = move |lua: &Lua, args| search(lua, &m, args, false);
    string.raw_set("match", lua.create_function(matches)?)?;
    let m = meter("gmatch");
    let gmatch = move |lua: &Lua, args| gmatch(lua, &m, args);
    string.raw_set("gmatch", lua.create_function(gmatch)?)?;
    let m = meter("gsub");
    let gsub = move |lua: &Lua, args| gsub(lua, &m, room, args);
    string.raw_set("gsub", lua.create_function(gsub)?)?;
    let m = meter("rep");
    let rep = move |lua: &Lua, args| rep(lua, &m, room, args);
    string.raw_set("rep", lua.create_function(rep)?)?;
    let changes: [(&str, Change); 3] = [
        ("upper", <[u8]>::to_ascii_uppercase),
        ("lower", <[u8]>::to_ascii_lowercase),
        ("reverse", |text| text.iter().rev().copied().collect()),
    ];
    for (name, change) in changes {
        let m = meter(name);
        let change = move |lua: &Lua, text: LuaString| {
            let text = text.as_bytes();
            charge_bytes(&m, text.len())?;
            lua.create_string(change(&text))
        };
        string.raw_set(name, lua.create_function(change)?)?;
    }
    Ok(())
}

/// Charges for the handling of so many bytes.
pub(crate) fn charge_bytes(meter: &Meter, bytes: usize) -> Result<()> {
    meter
        .charge(bytes as u64 / BYTES_PER_INSTRUCTION)
        .map_err(|_stop| Error::runtime("budget used up"))
}

fn failed(meter: &Meter, failed: Failed) -> Error {
    if failed == Failed::Spent {
        // Ends the call: the budget cannot be used up and used further.
        let _stopped = meter.charge(u64::MAX);
    }
    Error::runtime(failed.to_string())
}

/// Runs `matcher` at `at` and pays for it.
fn pay(meter: &Meter, matcher: &mut Matcher<'_>, at: usize) -> Result<Option<usize>> {
    let found = matcher.at(at).map_err(|error| failed(meter, error))?;
    let used = meter.left().saturating_sub(matcher.steps);
    meter
        .charge(used)
        .map_err(|_stop| Error::runtime("budget used up"))?;
    Ok(found)
}

/// A start position as Lua counts them, as an offset; past the end: `None`.
fn start(init: Option<i64>, len: usize) -> Option<usize> {
    let init = init.unwrap_or(1);
    let places = usize::try_from(init.unsigned_abs()).unwrap_or(usize::MAX);
    let at = match init {
        1.. => places - 1,
        0 => 0,
        _ => len.saturating_sub(places),
    };
    (at <= len).then_some(at)
}

fn value(lua: &Lua, src: &[u8], capture: Capture) -> Result<Value> {
    Ok(match capture {
        Capture::Piece(from, to) => Value::String(lua.create_string(&src[from..to])?),
        Capture::Position(at) => Value::Integer(at as i64),
    })
}

fn captures(
    lua: &Lua,
    meter: &Meter,
    matcher: &Matcher<'_>,
    src: &[u8],
    (from, to): (usize, usize),
    whole: bool,
    into: &mut MultiValue,
) -> Result<()> {
    let count = if matcher.count() == 0 && whole {
        1
    } else {
        matcher.count()
    };
    for index in 0..count {
        let capture = matcher
            .capture(index, from, to)
            .map_err(|error| failed(meter, error))?;
        if let Capture::Piece(from, to) = capture {
            charge_bytes(meter, to - from)?;
        }
        into.push_back(value(lua, src, capture)?);
    }
    Ok(())
}

type FindArgs = (LuaString, LuaString, Option<i64>, Option<Value>);

fn search(
    lua: &Lua,
    meter: &Meter,
    (src, pat, init, plain): FindArgs,
    find: bool,
) -> Result<MultiValue> {
    let (src, pat) = (src.as_bytes(), pat.as_bytes());
    let mut answer = MultiValue::new();
    let Some(begin) = start(init, src.len()) else {
        answer.push_back(Value::Nil);
        return Ok(answer);
    };
    let plain = plain.is_some_and(|plain| !matches!(plain, Value::Nil | Value::Boolean(false)));
    let special = pat.iter().any(|byte| b"^$*+?.([%-".contains(byte));
    if find && (plain || !special) {
        charge_bytes(meter, src.len() - begin)?;
        match memchr::memmem::find(&src[begin..], &pat) {
            Some(at) => {
                answer.push_back(Value::Integer((begin + at + 1) as i64));
                answer.push_back(Value::Integer((begin + at + pat.len()) as i64));
            }
            None => answer.push_back(Value::Nil),
        }
        return Ok(answer);
    }
    let anchored = pat.first() == Some(&b'^');
    let pattern = if anchored { &pat[1..] } else { &pat[..] };
    for at in begin..=src.len() {
        let mut matcher = Matcher::new(&src, pattern, meter.left());
        if let Some(end) = pay(meter, &mut matcher, at)? {
            if find {
                answer.push_back(Value::Integer((at + 1) as i64));
                answer.push_back(Value::Integer(end as i64));
            }
            captures(lua, meter, &matcher, &src, (at, end), !find, &mut answer)?;
            return Ok(answer);
        }
        if anchored {
            break;
        }
    }
    answer.push_back(Value::Nil);
    Ok(answer)
}

fn gmatch(
    lua: &Lua,
    meter: &Arc<Meter>,
    (src, pat, init): (LuaString, LuaString, Option<i64>),
) -> Result<Function> {
    let meter = Arc::clone(meter);
    // Past the end there is nothing to find, not even nothing.
    let mut at = start(init, src.as_bytes().len()).unwrap_or(usize::MAX);
    let mut last_end = None;
    lua.create_function_mut(move |lua, ()| {
        let (src, pat) = (src.as_bytes(), pat.as_bytes());
        let mut answer = MultiValue::new();
        while at <= src.len() {
            let mut matcher = Matcher::new(&src, &pat, meter.left());
            let found = pay(&meter, &mut matcher, at)?;
            if let Some(end) = found
                && last_end != Some(end)
            {
                let from = at;
                at = end;
                last_end = Some(end);
                captures(lua, &meter, &matcher, &src, (from, end), true, &mut answer)?;
                return Ok(answer);
            }
            at += 1;
        }
        answer.push_back(Value::Nil);
        Ok(answer)
    })
}

type GsubArgs = (LuaString, LuaString, Value, Option<i64>);

fn gsub(
    lua: &Lua,
    meter: &Meter,
    room: usize,
    (source, pat, with, max): GsubArgs,
) -> Result<(LuaString, i64)> {
    let with = match with {
        Value::Integer(_) | Value::Number(_) => {
            lua.coerce_string(with)?.map_or(Value::Nil, Value::String)
        }
        with @ (Value::String(_) | Value::Table(_) | Value::Function(_)) => with,
        other @ (Value::Nil | Value::Boolean(_) | opaque!()) => {
            return Err(Error::runtime(format!(
                "bad argument #3 to 'gsub' (string/function/table expected, got {})",
                other.type_name()
            )));
        }
    };
    let (src, pat) = (source.as_bytes(), pat.as_bytes());
    let anchored = pat.first() == Some(&b'^');
    let pattern = if anchored { &pat[1..] } else { &pat[..] };
    let max = max.unwrap_or(i64::MAX);
    let mut out = Vec::new();
    let (mut at, mut count, mut last_end) = (0, 0, None);
    while count < max {
        let mut matcher = Matcher::new(&src, pattern, meter.left());
        match pay(meter, &mut matcher, at)? {
            Some(end) if last_end != Some(end) => {
                count += 1;
                replace(lua, meter, &matcher, &src, (at, end), &with, &mut out)?;
                at = end;
                last_end = Some(end);
            }
            _ if at < src.len() => {
                out.push(src[at]);
                at += 1;
            }
            _ => break,
        }
        if out.len() > room {
            return Err(Error::runtime("the result of gsub is too long"));
        }
        if anchored {
            break;
        }
    }
    out.extend_from_slice(src.get(at..).unwrap_or_default());
    charge_bytes(meter, out.len())?;
    Ok((lua.create_string(&out)?, count))
}

fn replace(
    lua: &Lua,
    meter: &Meter,
    matcher: &Matcher<'_>,
    src: &[u8],
    (from, to): (usize, usize),
    with: &Value,
    out: &mut Vec<u8>,
) -> Result<()> {
    let first = |index| {
        matcher
            .capture(index, from, to)
            .map_err(|error| failed(meter, error))
    };
    let new = match with {
        Value::String(template) => {
            let template = template.as_bytes();
            let before = out.len();
            let mut bytes = template.iter().copied();
            while let Some(byte) = bytes.next() {
                if byte != b'%' {
                    out.push(byte);
                    continue;
                }
                let index = match bytes.next() {
                    Some(b'%') => {
                        out.push(b'%');
                        continue;
                    }
                    Some(b'0') => {
                        out.extend_from_slice(&src[from..to]);
                        continue;
                    }
                    Some(digit @ b'1'..=b'9') => usize::from(digit - b'1'),
                    _ => return Err(failed(meter, Failed::BadReplacement)),
                };
                match first(index)? {
                    Capture::Piece(from, to) => out.extend_from_slice(&src[from..to]),
                    Capture::Position(at) => out.extend_from_slice(at.to_string().as_bytes()),
                }
                charge_bytes(meter, out.len() - before)?;
            }
            return Ok(());
        }
        Value::Table(table) => table.get::<Value>(value(lua, src, first(0)?)?)?,
        Value::Function(function) => {
            let mut args = MultiValue::new();
            captures(lua, meter, matcher, src, (from, to), true, &mut args)?;
            function.call::<Value>(args)?
        }
        Value::Nil | Value::Boolean(_) | Value::Integer(_) | Value::Number(_) | opaque!() => {
            Value::Nil
        }
    };
    match new {
        Value::Nil | Value::Boolean(false) => out.extend_from_slice(&src[from..to]),
        Value::String(text) => out.extend_from_slice(&text.as_bytes()),
        Value::Integer(_) | Value::Number(_) => {
            if let Some(text) = lua.coerce_string(new)? {
                out.extend_from_slice(&text.as_bytes());
            }
        }
        other @ (Value::Boolean(true) | Value::Table(_) | Value::Function(_) | opaque!()) => {
            return Err(Error::runtime(format!(
                "invalid replacement value (a {})",
                other.type_name()
            )));
        }
    }
    Ok(())
}

fn rep(
    lua: &Lua,
    meter: &Meter,
    room: usize,
    (text, count, rest): (LuaString, i64, Variadic<LuaString>),
) -> Result<LuaString> {
    let (text, count) = (text.as_bytes(), usize::try_from(count).unwrap_or(0));
    let separator = rest.first().map(|text| text.as_bytes());
    let separator = separator.as_deref().unwrap_or_default();
    let len = count
        .checked_mul(text.len())
        .zip(count.saturating_sub(1).checked_mul(separator.len()))
        .and_then(|(text, separators)| text.checked_add(separators))
        .filter(|&len| len <= room)
        .ok_or_else(|| Error::runtime("resulting string too large"))?;
    charge_bytes(meter, len)?;
    if len == 0 {
        return lua.create_string("");
    }
    if separator.is_empty() {
        return lua.create_string(text.repeat(count));
    }
    let mut out = Vec::with_capacity(len);
    for index in 0..count {
        if index > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(&text);
    }
    lua.create_string(&out)
}
