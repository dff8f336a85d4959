-- The part of `quintet` that is Lua; `raw` has the functions it is made of.
local quintet, raw = ...

local Table = {}
Table.__index = Table
Table.__name = "quintet.table"

function Table:get(key)
  return raw["table:get"](self.name, key)
end

function Table:set(key, value, options)
  raw["table:set"](self.name, key, value, options)
end

function Table:delete(key)
  raw["table:set"](self.name, key, nil, nil)
end

function Table:cas(key, old, new, options)
  return raw["table:cas"](self.name, key, old, new, options)
end

function Table:add(key, by, options)
  local value = raw["table:get"](self.name, key)
  if value ~= nil and math.type(value) == nil then
    error("table:add: a number expected under this key, got " .. type(value), 2)
  end
  if by ~= nil and math.type(by) == nil then
    error("table:add: a number to add expected, got " .. type(by), 2)
  end
  value = (value or 0) + (by or 1)
  raw["table:set"](self.name, key, value, options)
  return value
end

function Table:each()
  local page, at, last = raw["table:each"](self.name, nil), 0, nil
  return function()
    at = at + 1
    if at > #page and #page > 0 then
      page, at = raw["table:each"](self.name, last), 1
    end
    local entry = page[at]
    if entry ~= nil then
      last = entry[1]
      return entry[1], entry[2]
    end
  end
end

local function named(name, what)
  if type(name) ~= "string" or name == "" then
    error("quintet." .. what .. ": a name expected, got " .. type(name), 3)
  end
  return name
end

function quintet.table(name)
  return setmetatable({ name = named(name, "table") }, Table)
end

local Counter = {}
Counter.__index = Counter
Counter.__name = "quintet.counter"

function Counter:add(by, options)
  return raw["counter:add"](self.name, by or 1, options)
end

function Counter:get()
  return raw["counter:get"](self.name)
end

function Counter:cas(old, new, options)
  return raw["counter:cas"](self.name, old, new, options)
end

function quintet.counter(name)
  return setmetatable({ name = named(name, "counter") }, Counter)
end

local Batch = {}
Batch.__index = Batch
Batch.__name = "quintet.batch"

function Batch:commit()
  raw["batch:commit"](self.id)
end

function Batch:show()
  return raw["batch:show"](self.id)
end

function quintet.batch(of)
  if type(of) ~= "string" then
    of = raw.batch(of)
  end
  return setmetatable({ id = of }, Batch)
end

quintet.random = math.random
