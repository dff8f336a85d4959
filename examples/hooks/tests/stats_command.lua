test("STATS counts", function(server)
  server.put { queue = "q", body = "x" }
  server.put { queue = "q", body = "y", delay_ms = 1000 }
  expect(server.command("STATS q"), "ready=1 delayed=1 reserved=0 puts=2")
  expect(server.command("stats"), "ready=1 delayed=1 reserved=0 puts=2")
  expect(server.command("STATS nothing"), "ready=0 delayed=0 reserved=0 puts=0")
end)

test("DRAIN empties", function(server)
  for i = 1, 3 do
    server.put { queue = "q", body = tostring(i) }
  end
  expect(server.command("DRAIN q"), "drained 3")
  expect(server.take("q"), nil)
  local _, why = server.command("DRAIN")
  expect(why, "usage: DRAIN queue")
end)

test("others do not exist", function(server)
  local _, why = server.command("OTHER")
  expect(why, "no such command")
end)
