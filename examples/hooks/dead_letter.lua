-- Dead letters go to a queue for each kind of work. Mails get one more try an
-- hour later before that. Set `attempts_max` for these queues.
local RETRY_MS = 3600 * 1000

function dead_letter(msg)
  if msg.queue == "mail" and not msg.attrs.retried then
    local attrs = msg.attrs
    attrs.retried = "1"
    quintet.put { queue = msg.queue, body = msg.body, priority = msg.priority, attrs = attrs, delay_ms = RETRY_MS }
    return false -- the new message replaces this one
  end
  quintet.metric("dead." .. msg.queue)
  quintet.log.warn("message " .. msg.id .. " of " .. msg.queue .. " was tried " .. msg.reserves .. " times")
  return "dead." .. msg.queue
end
