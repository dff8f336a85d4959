test("what has waited long enough moves up", function(server)
  server.put { queue = "slow", body = "old" }
  server.wait(3 * 60 * 1000)
  server.put { queue = "slow", body = "young" }
  server.wait(2 * 60 * 1000 - 1)
  expect(server.take("fast"), nil)
  server.wait(1)
  expect(server.take("fast").body, "old")
  expect(server.take("fast"), nil)
  expect(server.take("slow").body, "young")
end)

test("a hundred move at once", function(server)
  for _ = 1, 150 do
    server.put { queue = "slow", body = "x" }
  end
  server.wait(5 * 60 * 1000)
  local count = 0
  while server.take("fast") do
    count = count + 1
  end
  expect(count, 100)
end)
