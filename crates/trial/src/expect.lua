-- `expect(got, wanted)`: fails unless they are the same, tables by their contents.
local function shown(value)
  if type(value) == "string" then
    return string.format("%q", value)
  elseif type(value) ~= "table" then
    return tostring(value)
  end
  local parts = {}
  for key, item in pairs(value) do
    parts[#parts + 1] = tostring(key) .. "=" .. shown(item)
  end
  table.sort(parts)
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then
    return a == b
  end
  for key, value in pairs(a) do
    if not same(value, b[key]) then
      return false
    end
  end
  for key in pairs(b) do
    if a[key] == nil then
      return false
    end
  end
  return true
end

function expect(got, wanted)
  if not same(got, wanted) then
    error("expected " .. shown(wanted) .. ", got " .. shown(got), 2)
  end
end
