-- Messages become more urgent as they wait. Once a minute the messages of `slow`
-- that have waited five minutes go to the tail of `fast`, a hundred at a time, so
-- that one run stays short.
local AGE_MS = 5 * 60 * 1000
local AT_ONCE = 100

quintet.every(60 * 1000, function()
  for _ = 1, AT_ONCE do
    local message = quintet.peek("slow")
    if not message or message.age_ms < AGE_MS then
      return
    end
    quintet.move(message, "fast")
  end
end)
