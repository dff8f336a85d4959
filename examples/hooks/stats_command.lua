-- A new command for lineup: `STATS queue` replies with the messages of a queue,
-- `STATS` with those of the server.
quintet.command("STATS", function(args)
  local stats = quintet.stats(args[1])
  return string.format("ready=%d delayed=%d reserved=%d puts=%d", stats.ready, stats.delayed, stats.reserved, stats.puts)
end)

-- `DRAIN queue` empties a queue, a hundred messages at a time, for the operator
-- on this machine only.
quintet.command("DRAIN", function(args, conn)
  if conn.peer:sub(1, 4) ~= "127." then
    return false, "not from there"
  end
  if not args[1] then
    return false, "usage: DRAIN queue"
  end
  for count = 0, 99 do
    if not quintet.take(args[1]) then
      return "drained " .. count
    end
  end
  return "drained 100, perhaps not all"
end)
