-- Tenants share the workers of the queue `work` fairly, however much each tenant
-- puts. Messages go to a queue for each tenant, named by the key. Takes of `work`
-- visit the queues that have messages in turn.
local SHARED = "work"
local PREFIX = SHARED .. "."

local tenants = quintet.table("tenants")

function before_put(msg)
  if msg.queue ~= SHARED then
    return
  end
  local tenant = msg.key or "anonymous"
  if not tenants:get(tenant) then
    tenants:set(tenant, true)
  end
  return PREFIX .. tenant
end

function before_take(take)
  if take.queue ~= SHARED then
    return
  end
  local names = {}
  for tenant in tenants:each() do
    names[#names + 1] = tenant
  end
  if #names == 0 then
    return
  end
  -- The next tenant after the last one served that has messages.
  local turn = quintet.counter("turn"):add(1)
  for i = 1, #names do
    local queue = PREFIX .. names[(turn + i - 2) % #names + 1]
    if quintet.stats(queue).ready > 0 then
      return queue
    end
  end
  -- All queues are empty: wait for the first message of any.
  for i = 1, #names do
    names[i] = PREFIX .. names[i]
  end
  return names
end
