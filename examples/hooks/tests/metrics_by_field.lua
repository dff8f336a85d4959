test("orders are counted by country", function(server)
  server.put { queue = "orders", body = '{"country":"DE"}' }
  server.put { queue = "orders", body = '{"country":"DE"}' }
  server.put { queue = "orders", body = '{"country":"XX"}' }
  server.put { queue = "orders", body = "nonsense" }
  server.put { queue = "q", body = '{"country":"DE"}' }
  expect(server.metric("orders.DE"), 2.0)
  expect(server.metric("orders_bytes.DE"), 32.0)
  expect(server.metric("orders.other"), 2.0)
end)
