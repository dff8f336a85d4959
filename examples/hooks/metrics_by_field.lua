-- Counts messages and bytes by a field of the body: how many orders came from
-- each country. Only known countries get a metric of their own, so that clients
-- cannot create names without limit.
local COUNTRIES = { DE = true, FR = true, US = true }

function after_put(msg)
  if msg.queue ~= "orders" then
    return
  end
  local order = msg.body and quintet.json.decode(msg.body)
  local country = type(order) == "table" and order.country
  if not COUNTRIES[country] then
    country = "other"
  end
  quintet.metric("orders." .. country)
  quintet.metric("orders_bytes." .. country, msg.size)
end
