-- Warns when the oldest message of a queue has waited longer than a minute:
-- once when that begins, and once when it is over. A table remembers the warning,
-- so a restart does not repeat it.
local TOO_LONG_MS = 60 * 1000

local late = quintet.table("late")

quintet.every(10 * 1000, function()
  for _, queue in ipairs(quintet.queues()) do
    local first = quintet.peek(queue)
    local is_late = first ~= nil and first.age_ms > TOO_LONG_MS
    local was_late = late:get(queue) ~= nil
    if is_late and not was_late then
      late:set(queue, true)
      quintet.put("alarms", queue .. " is late")
      quintet.log.warn(queue .. ": nobody takes fast enough")
    elseif was_late and not is_late then
      late:delete(queue)
      quintet.put("alarms", queue .. " has caught up")
    end
  end
end)
