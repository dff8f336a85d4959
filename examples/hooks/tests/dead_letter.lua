local function try(server, queue)
  local message = server.take { queue = queue, lease_ms = 1000 }
  server.release(message.id)
  return message
end

test("a dead message goes to the queue for its kind", function(server)
  server.configure("work", { attempts_max = 2 })
  server.put { queue = "work", body = "x" }
  try(server, "work")
  try(server, "work")
  expect(server.take("work"), nil)
  expect(server.take("dead.work").body, "x")
  expect(server.metric("dead.work"), 1)
end)

test("a mail gets one more chance", function(server)
  server.configure("mail", { attempts_max = 1 })
  server.put { queue = "mail", body = "m" }
  try(server, "mail")
  server.wait(3600 * 1000 - 1)
  expect(server.take("mail"), nil)
  server.wait(1)
  expect(try(server, "mail").body, "m")
  expect(server.take("dead.mail").body, "m")
end)
