test("a queue that nobody takes from is told of once", function(server)
  server.put { queue = "work", body = "x" }
  server.wait(60 * 1000)
  expect(server.take("alarms"), nil)
  server.wait(40 * 1000)
  expect(server.take("alarms").body, "work is late")
  expect(server.take("alarms"), nil)
  expect(server.log(), { "work: nobody takes fast enough" })
end)

test("and when it has caught up", function(server)
  server.put { queue = "work", body = "x" }
  server.wait(70 * 1000)
  server.take("alarms")
  server.take("work")
  server.wait(10 * 1000)
  expect(server.take("alarms").body, "work has caught up")
end)
