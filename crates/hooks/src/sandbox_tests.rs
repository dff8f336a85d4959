//! Hostile Lua against the budgets, and the pattern functions against Lua's
//! own.

use std::sync::Arc;

use mlua::{Lua, MultiValue};
use proptest::prelude::*;

use crate::meter::{Meter, Stop};
use crate::sandbox;
use quintet_policy::Limits;

fn limits() -> Limits {
    Limits {
        memory_bytes_max: 8 << 20,
        ..Limits::default()
    }
}

/// Runs a chunk as a call would; what it answered, and why it was stopped.
fn run(source: &str) -> (Result<String, String>, Option<Stop>) {
    let limits = limits();
    let meter = Arc::new(Meter::new(limits));
    let lua = sandbox::open(&limits, &meter, |_| {}).unwrap();
    meter.begin(meter.elapsed_ns());
    let answer = lua
        .load(source)
        .set_name("=test.lua")
        .call::<MultiValue>(())
        .map_err(|error| error.to_string())
        .map(|values| {
            let texts = values.iter().map(|value| value.to_string().unwrap());
            texts.collect::<Vec<_>>().join(" ")
        });
    (answer, meter.end())
}

#[track_caller]
fn is_stopped(source: &str) {
    let (answer, stop) = run(source);
    assert!(stop.is_some(), "not stopped: {source}: {answer:?}");
    assert!(answer.is_err(), "the stop was swallowed: {source}");
}

/// Fails by an error of its own, or of memory, or is stopped; but it ends.
#[track_caller]
fn fails(source: &str) {
    let (answer, _) = run(source);
    assert!(answer.is_err(), "did not fail: {source}: {answer:?}");
}

#[track_caller]
fn gives(source: &str, wanted: &str) {
    let (answer, stop) = run(source);
    assert_eq!(answer.as_deref(), Ok(wanted), "{source}");
    assert_eq!(stop, None);
}

#[test]
fn endless_loops_are_stopped() {
    is_stopped("while true do end");
    is_stopped("local function f() return f() end f()");
    is_stopped("for _ in function() return 1 end do end");
    is_stopped(
        "local t = setmetatable({}, {__index = function(t) return t.x end}) while true do local ok = pcall(function() return t.x end) end",
    );
}

#[test]
fn the_end_of_a_budget_cannot_be_caught() {
    is_stopped("while true do pcall(function() while true do end end) end");
    is_stopped("pcall(function() while true do end end) return 'survived'");
    is_stopped("while true do xpcall(function() while true do end end, function() end) end");
    is_stopped("xpcall(function() while true do end end, function() while true do end end)");
    is_stopped("pcall(pcall, pcall, function() while true do end end) return 1");
    is_stopped("local function f() pcall(f) end while true do f() end");
    is_stopped("string.gsub('x', 'x', function() while true do end end)");
    is_stopped("table.sort({3, 2, 1}, function() while true do end end)");
    is_stopped(
        "pcall(error, setmetatable({}, {__tostring = function() while true do end end})) while true do end",
    );
    is_stopped("error(setmetatable({}, {__tostring = function() while true do end end}))");
}

#[test]
fn finalizers_and_closing_methods_do_not_exist() {
    fails("setmetatable({}, {__gc = function() while true do end end})");
    fails("setmetatable({}, {__close = function() end})");
    fails("setmetatable({}, {__mode = 'k'})");
    fails(
        "local m = {} local t = setmetatable({}, m) m.__close = function() while true do end end
         local x <close> = t while true do end",
    );
    fails(
        "local t = setmetatable({}, {}) getmetatable(t).__close = function() while true do end end
         for _ in function() return 1 end, 1, 1, t do while true do end end",
    );
    gives(
        "local C = {} C.__index = C function C:f() return 5 end
         local o = setmetatable({}, C) return o:f(), getmetatable(o) == C",
        "5 true",
    );
}

#[test]
fn library_functions_cannot_outrun_the_budget() {
    is_stopped("return (''):rep(1 << 40), table.move({}, 1, 1 << 40, 2)");
    is_stopped("table.concat({}, '', 1, 1 << 40)");
    is_stopped("local t = {} for i = 1, 100000 do t[i] = -i end while true do table.sort(t) end");
    is_stopped(
        "local t = {} for i = 1, 100000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
    );
    is_stopped(
        "local t = {} for i = 1, 50000 do t[i] = i end while true do select('#', table.unpack(t)) end",
    );
    fails("table.sort(setmetatable({}, {__len = function() return 1 << 30 end}), rawequal)");
    fails("table.unpack({}, 1, 1 << 40)");
    is_stopped(
        "local t = {} for i = 1, 60000 do t['k' .. i] = 1 end for k in pairs(t) do t[k] = nil end while true do next(t) end",
    );
    is_stopped("local s = ('x'):rep(2 << 20) while true do local u = s:sub(2) end");
    is_stopped(
        "local t, s, i = {}, ('x'):rep(1 << 20), 0 while true do i = i + 1 local v = t[s .. i] end",
    );
    is_stopped(
        "local a, b = ('x'):rep(1 << 20) .. 'a', ('x'):rep(1 << 20) .. 'b' while true do local c = a == b end",
    );
}

#[test]
fn long_strings_cannot_outrun_the_budget() {
    is_stopped("local s = ('x'):rep(2 << 20) while true do s:upper() end");
    is_stopped("local s = ('x'):rep(2 << 20) while true do s:lower() end");
    is_stopped("local s = ('x'):rep(2 << 20) while true do s:reverse() end");
    is_stopped("while true do local s = ('x'):rep(2 << 20) end");
    is_stopped("while true do local s = ('x'):rep(1 << 20, '-') end");
    gives(
        "return ('aB1'):upper(), ('aB1'):lower(), ('aB1'):reverse()",
        "AB1 ab1 1Ba",
    );
}

#[test]
fn patterns_cannot_outrun_the_budget() {
    is_stopped("return ('a'):rep(60):find(('a?'):rep(60) .. ('a'):rep(60) .. 'b')");
    is_stopped("return ('a'):rep(100000):find('.-.-.-.-b')");
    is_stopped("return ('a'):rep(100000):match('a*a*a*a*b')");
    is_stopped("for _ in ('a'):rep(100000):gmatch('a*a*b') do end");
    is_stopped("return ('a'):rep(100000):gsub('a*a*a*b', '')");
    is_stopped("while true do ('a'):rep(100000):find('b', 1, true) end");
    fails("return ('('):rep(100000):find(('%b()'):rep(1000))");
    fails("return ('a'):rep(300):find(('a?'):rep(300))");
}

#[test]
fn memory_is_bounded() {
    fails("local t = {} for i = 1, 1 << 30 do t[i] = i end");
    fails("local s = 'x' while true do s = s .. s end");
    fails("return ('x'):rep(1 << 40)");
    fails("return ('x'):rep(1 << 22):gsub('x', ('y'):rep(1000))");
    fails("return ('%99d'):rep(1 << 20):format(1)");
    fails("local function f() return 1 + f() end return f()");
    fails(
        "local t = {} t = setmetatable(t, {__index = function(_, k) return t[k + 1] end}) return t[1]",
    );
}

/// Calls from Lua to Rust and back in each other end before the stack does.
#[test]
fn nesting_is_bounded() {
    fails("local function f() return (('x'):gsub('x', f)) end f()");
    fails("local function f() table.sort({1, 2}, f) end f()");
    fails(
        "local t = setmetatable({}, {__tostring = function(t) return tostring(t) end}) tostring(t)",
    );
    fails("local t = setmetatable({}, {__concat = function(a) return a .. a end}) return t .. t");
    fails(
        "local function f() return (('x'):gsub(('(' .. 'x'):rep(1) .. ')', function() return pcall(f) and f() end)) end f()",
    );
    fails("local s = ('('):rep(40) return s:find(s)");
}

#[test]
fn there_is_no_way_out() {
    for name in [
        "io",
        "os",
        "package",
        "debug",
        "require",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "collectgarbage",
        "coroutine",
        "warn",
        "string.dump",
    ] {
        gives(&format!("return {name}"), "nil");
    }
    fails("getmetatable('').__index = {}");
    gives("return getmetatable('')", "false");
    gives(
        "for k in pairs(_G) do assert(k ~= 'load') end return 1",
        "1",
    );
}

#[test]
fn ordinary_lua_works() {
    gives("return pcall(error, 'no')", "false no");
    gives("return pcall(function() return 1, 2, 3 end)", "true 1 2 3");
    gives(
        "return xpcall(function() error('a', 0) end, function(e) return e .. 'b' end)",
        "false ab",
    );
    gives(
        "return xpcall(function(...) return ... end, print, 4, 5)",
        "true 4 5",
    );
    gives(
        "local t = {3, 1, 2} table.sort(t) return table.concat(t, ',')",
        "1,2,3",
    );
    gives(
        "local t = {1, 2} table.insert(t, 3) table.insert(t, 1, 0) return table.remove(t), table.remove(t, 1), #t",
        "3 0 2",
    );
    gives("return table.unpack({1, 2, 3}, 2)", "2 3");
    gives(
        "return table.concat(table.move({1, 2, 3}, 1, 3, 2), ' ')",
        "1 1 2 3",
    );
    gives("return ('ab'):rep(3, '-')", "ab-ab-ab");
    gives("return ('hello world'):find('o w')", "5 7");
    gives("return ('hello'):find('l', 1, true)", "3 3");
    gives(
        "return ('k=v, a=b'):gsub('(%w+)=(%w+)', '%2=%1')",
        "v=k, b=a 2",
    );
    gives("return ('abc'):gsub('%w', {a = 1, b = false})", "1bc 3");
    gives(
        "local t = {} for k, v in ('a=1 b=2'):gmatch('(%w)=(%w)') do t[#t + 1] = k .. v end return table.concat(t)",
        "a1b2",
    );
    gives("return ('  x '):match('^%s*(.-)%s*$')", "x");
    gives(
        "return string.format('%5.1f|%s|%q', 1.25, 'a', 'b\\n')",
        "  1.2|a|\"b\\\n\"",
    );
    gives("return math.floor(2.5), utf8.char(228), #'x'", "2 ä 1");
}

/// The results of one call, or that it failed.
fn result(
    lua: &Lua,
    call: &str,
    source: &[u8],
    pattern: &[u8],
    with: &[u8],
) -> Option<Vec<String>> {
    let chunk = format!("local s, p, r = ... return {call}");
    let args = (
        lua.create_string(source).unwrap(),
        lua.create_string(pattern).unwrap(),
        lua.create_string(with).unwrap(),
    );
    let values = lua.load(chunk).call::<MultiValue>(args).ok()?;
    Some(values.iter().map(|value| format!("{value:?}")).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn patterns_answer_as_in_lua(
        source in "[ab(){}%. 1é]{0,12}",
        pattern in r"(\^)?(a|b|\.|%a|%d|%W|%b\(\)|%f\[[a1]\]|\[[ab^%1-]{1,3}\]|\[\^a\]|\(|\)|\(\)|%1|%|\*|\+|-|\?|\$|[(){}]){0,7}",
        with in r"(a|%0|%1|%2|%%|%|b){0,3}",
        init in -5i64..15,
    ) {
        let ours = {
            let limits = limits();
            let meter = Arc::new(Meter::new(limits));
            let lua = sandbox::open(&limits, &meter, |_| {}).unwrap();
            (lua, meter)
        };
        let theirs = Lua::new();
        for call in [
            format!("s:find(p, {init})"),
            format!("s:match(p, {init})"),
            "s:gsub(p, r)".to_owned(),
            format!("s:gsub(p, '<%0>', {init})"),
            "s:gsub(p, function(...) return select('#', ...) end)".to_owned(),
            format!("(function() local t = {{}} for a, b in s:gmatch(p, {init}) do t[#t + 1] = tostring(a) .. tostring(b) end return table.concat(t, '|') end)()"),
        ] {
            ours.1.begin(0);
            let answer = result(&ours.0, &call, source.as_bytes(), pattern.as_bytes(), with.as_bytes());
            let wanted = result(&theirs, &call, source.as_bytes(), pattern.as_bytes(), with.as_bytes());
            prop_assert_eq!(answer, wanted, "{} of {:?} and {:?}, {:?}", call, source, pattern, with);
        }
    }
}
