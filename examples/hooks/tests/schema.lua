local function refusal(server, body)
  local _, why = server.put { queue = "orders", body = body }
  return why
end

test("an order is let in", function(server)
  expect(refusal(server, '{"id": 1, "customer": "c", "items": ["i"]}'), nil)
end)

test("what is none is not", function(server)
  expect(refusal(server, "x"):sub(1, 17), "not a JSON object")
  expect(refusal(server, "5"), "not a JSON object")
  expect(refusal(server, '{"id": 0, "customer": "c", "items": [1]}'), "order: field id is missing or wrong")
  expect(refusal(server, '{"id": 1, "items": [1]}'), "order: field customer is missing or wrong")
  expect(refusal(server, '{"id": 1, "customer": "c", "items": []}'), "order: field items is missing or wrong")
end)

test("other queues take anything", function(server)
  expect(server.put { queue = "q", body = "x" }, 1)
end)
