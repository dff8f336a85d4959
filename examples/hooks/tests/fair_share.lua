test("a tenant with much does not starve one with little", function(server)
  for i = 1, 3 do
    server.put { queue = "work", body = "a" .. i, key = "a" }
  end
  server.put { queue = "work", body = "b1", key = "b" }
  local got = {}
  for i = 1, 4 do
    got[i] = server.take("work").body
  end
  expect(got, { "a1", "b1", "a2", "a3" })
  expect(server.take("work"), nil)
end)

test("a waiting take gets what any tenant puts", function(server)
  server.put { queue = "work", body = "a1", key = "a" }
  server.put { queue = "work", body = "b1", key = "b" }
  server.take("work")
  server.take("work")
  local _, why = server.take({ queue = "work", wait_ms = 1000 }, 2)
  expect(why, "waits")
  server.put { queue = "work", body = "b2", key = "b" }
  expect(server.arrived().body, "b2")
end)

test("other queues are left alone", function(server)
  server.put { queue = "q", body = "x", key = "a" }
  expect(server.take("q").body, "x")
end)
