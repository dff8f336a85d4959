-- Routes by content. JSON put into `events` goes to a queue for each of its
-- `topics`, images go to `images`, and other messages stay.
local IMAGES = { "\x89PNG", "\xff\xd8\xff", "GIF8" }

function before_put(msg)
  if msg.queue ~= "events" or not msg.body then
    return
  end
  for _, magic in ipairs(IMAGES) do
    if msg.body:sub(1, #magic) == magic then
      return "images"
    end
  end
  local event = quintet.json.decode(msg.body)
  if type(event) ~= "table" or type(event.topics) ~= "table" then
    return
  end
  local copies = {}
  for _, topic in ipairs(event.topics) do
    copies[#copies + 1] = { queue = "events." .. tostring(topic) }
  end
  if #copies > 0 then
    return copies
  end
end
