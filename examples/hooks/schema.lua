-- Accepts only JSON with the fields of an order into `orders`. The error names
-- the wrong field.
local ORDER = {
  id = function(v) return math.type(v) == "integer" and v > 0 end,
  customer = function(v) return type(v) == "string" and v ~= "" end,
  items = function(v) return type(v) == "table" and #v > 0 end,
}

function before_put(msg)
  if msg.queue ~= "orders" then
    return
  end
  if not msg.body then
    return false, "an order is not that large"
  end
  local order, why = quintet.json.decode(msg.body)
  if type(order) ~= "table" then
    return false, "not a JSON object" .. (why and ": " .. why or "")
  end
  for _, field in ipairs { "id", "customer", "items" } do
    if not ORDER[field](order[field]) then
      return false, "order: field " .. field .. " is missing or wrong"
    end
  end
end
