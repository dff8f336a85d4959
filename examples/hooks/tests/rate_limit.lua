local function put(server, key)
  local id = server.put { queue = "q", body = "x", key = key }
  return id ~= nil
end

test("the eleventh in a second is refused", function(server)
  for _ = 1, 10 do
    expect(put(server, "a"), true)
  end
  expect(put(server, "a"), false)
  expect(put(server, "b"), true)
  expect(put(server, nil), true)
end)

test("the next second begins anew", function(server)
  for _ = 1, 11 do
    put(server, "a")
  end
  server.wait(999)
  expect(put(server, "a"), false)
  server.wait(1)
  expect(put(server, "a"), true)
end)
