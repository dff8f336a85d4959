-- At most ten messages a second for each key; messages without a key share one.
-- Counters are shared by all threads and lost at a restart, which suits a limit
-- of this kind.
local PER_WINDOW = 10
local WINDOW_MS = 1000

function before_put(msg)
  local count = quintet.counter("rate:" .. (msg.key or "")):add(1, { ttl_ms = WINDOW_MS })
  if count > PER_WINDOW then
    return false, "slow down"
  end
end
