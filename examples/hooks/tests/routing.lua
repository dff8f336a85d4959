test("an event goes to each of its topics", function(server)
  local body = '{"topics": ["a", "b"], "n": 1}'
  server.put { queue = "events", body = body }
  expect(server.take("events.a").body, body)
  expect(server.take("events.b").body, body)
  expect(server.take("events"), nil)
end)

test("images and the rest", function(server)
  server.put { queue = "events", body = "GIF89a..." }
  server.put { queue = "events", body = "neither" }
  server.put { queue = "events", body = '{"topics": []}' }
  expect(server.take("images").body, "GIF89a...")
  expect(server.take("events").body, "neither")
  expect(server.take("events").body, '{"topics": []}')
end)
