-- Rejects a message whose `dedupe-id` attribute, or else whose body, was put
-- into the same queue within the last ten minutes. The table is durable. Its
-- reads and writes are one step with the put, so if two clients put the same at
-- the same time, one gets an error.
local WINDOW_MS = 10 * 60 * 1000

local seen = quintet.table("dedupe")

function before_put(msg)
  local id = msg.queue .. "\0" .. (msg.attrs["dedupe-id"] or msg.body)
  if #id > 1000 then
    return -- too long to remember; large messages are rarely repeated
  end
  if seen:get(id) then
    return false, "duplicate message"
  end
  seen:set(id, true, { ttl_ms = WINDOW_MS })
end
