-- Replaces what could outrun a budget. Runs once for each state, before any
-- hook file; `charge` takes from the budget, `check` fails once it is used up.
local charge, check, note = ...

local pcall, error, type, tostring = pcall, error, type, tostring
local getmetatable, setmetatable, rawget, rawlen, select = getmetatable, setmetatable, rawget, rawlen, select
local tsort, tconcat, tunpack, tmove = table.sort, table.concat, table.unpack, table.move
local tinsert, tremove = table.insert, table.remove

-- The end of a budget passes through every pcall.
local function caught(ok, err, ...)
  check()
  if not ok and type(err) == "userdata" then
    err = tostring(err)
  end
  return ok, err, ...
end

function _G.pcall(f, ...)
  return caught(pcall(f, ...))
end

-- The handler runs after the stack is unwound: where an error is raised, a
-- handler would not be counted.
local function handled(handler, ok, ...)
  if ok then
    return ok, ...
  end
  return false, select(2, caught(pcall(handler, (...))))
end

function _G.xpcall(f, handler, ...)
  return handled(handler, caught(pcall(f, ...)))
end

-- Finalizers and closing methods run where nothing is counted, and weak tables
-- make the collector slow. What is set is a copy that nobody can reach, so that
-- they cannot be added later either; `getmetatable` answers the original.
local events = {
  "__index", "__newindex", "__call", "__tostring", "__name", "__len", "__pairs",
  "__eq", "__lt", "__le", "__concat", "__unm", "__add", "__sub", "__mul", "__div", "__mod",
  "__pow", "__idiv", "__band", "__bor", "__bxor", "__bnot", "__shl", "__shr",
}

function _G.setmetatable(object, meta)
  if type(object) ~= "table" or type(meta) ~= "table" then
    error("setmetatable expects two tables", 2)
  end
  for i = 1, 3 do
    local name = i == 1 and "__gc" or i == 2 and "__close" or "__mode"
    if rawget(meta, name) ~= nil then
      error("hooks cannot use " .. name, 2)
    end
  end
  local copy = {}
  for i = 1, #events do
    copy[events[i]] = rawget(meta, events[i])
  end
  copy.__metatable = rawget(meta, "__metatable")
  if copy.__metatable == nil then
    copy.__metatable = meta
  end
  return setmetatable(object, copy)
end

local function plain(object, name)
  if type(object) ~= "table" then
    error("bad argument #1 to '" .. name .. "' (table expected, got " .. type(object) .. ")", 3)
  end
  if getmetatable(object) ~= nil then
    error("bad argument #1 to '" .. name .. "' (a table without metatable expected)", 3)
  end
  return rawlen(object)
end

function table.sort(list, less)
  local n = plain(list, "sort")
  local bits, rest = 1, n
  while rest > 1 do
    bits, rest = bits + 1, rest // 2
  end
  charge(2 * n * bits)
  return tsort(list, less)
end

function table.concat(list, separator, from, to)
  local n = plain(list, "concat")
  -- A number takes longer to write than an instruction does.
  charge(8 * ((to or n) - (from or 1) + 1))
  return tconcat(list, separator, from, to)
end

function table.unpack(list, from, to)
  local n = plain(list, "unpack")
  charge((to or n) - (from or 1) + 1)
  return tunpack(list, from, to)
end

function table.move(list, from, to, at, other)
  plain(list, "move")
  if other ~= nil then
    plain(other, "move")
  end
  charge(to - from + 1)
  return tmove(list, from, to, at, other or list)
end

function table.insert(list, ...)
  local n = plain(list, "insert")
  if select("#", ...) == 2 and type((...)) == "number" then
    charge(n - (...) + 1)
  end
  return tinsert(list, ...)
end

function table.remove(list, at)
  local n = plain(list, "remove")
  if at == nil then
    return tremove(list)
  end
  if type(at) == "number" then
    charge(n - at + 1)
  end
  return tremove(list, at)
end

function _G.print(...)
  local parts = {}
  for i = 1, select("#", ...) do
    parts[i] = tostring((select(i, ...)))
  end
  note(tconcat(parts, "\t"))
end

-- Nobody else gets at the methods of strings.
getmetatable("").__metatable = false
