test("the second of two is refused", function(server)
  expect(server.put { queue = "q", body = "x" }, 1)
  local id, why = server.put { queue = "q", body = "x" }
  expect(id, nil)
  expect(why, "duplicate message")
  expect(server.put { queue = "q", body = "y" }, 2)
  expect(server.put { queue = "other", body = "x" }, 3)
end)

test("an id counts for more than the body", function(server)
  expect(server.put { queue = "q", body = "x", attrs = { ["dedupe-id"] = "1" } }, 1)
  expect(server.put { queue = "q", body = "x", attrs = { ["dedupe-id"] = "2" } }, 2)
  expect(server.put { queue = "q", body = "y", attrs = { ["dedupe-id"] = "1" } }, nil)
end)

test("it is forgotten after ten minutes", function(server)
  server.put { queue = "q", body = "x" }
  server.wait(10 * 60 * 1000 - 1)
  expect(server.put { queue = "q", body = "x" }, nil)
  server.wait(1)
  expect(server.put { queue = "q", body = "x" }, 2)
end)
