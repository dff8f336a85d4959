# Dalli, unmodified, which speaks memcached's binary protocol: address, name and
# password are the arguments. The process fails if something is not as it has to be.

require "dalli"

Dalli.logger.level = Logger::FATAL
ADDRESS, NAME, SECRET = ARGV

def connect(secret = SECRET, name = NAME)
  login = name ? { username: name, password: secret } : {}
  Dalli::Client.new(ADDRESS, socket_timeout: 120, socket_max_failures: 0, **login)
end

def is(found, wanted)
  raise "#{found.inspect}, not #{wanted.inspect}" unless found == wanted
end

def fails
  yield
rescue Dalli::DalliError
  nil
else
  raise "it did not fail"
end

queue = connect
is queue.get("work"), nil
values = ["text", { "n" => [1, nil] }, 7, "", "\x00\xff\r\n".b, "x" * 1_000_000]
values.each { |value| raise "not stored" unless queue.set("work", value) }
values.each { |value| is queue.get("work"), value }
is queue.get("work"), nil

other = connect
%w[a b].each { |item| queue.set("work", item, 3600, raw: true) }
is queue.get("work/open"), "a"
is other.get("work/peek"), "b"
is queue.get("work/abort"), nil
is queue.get("work/open/t=100"), "a"
is queue.get("work/close/open"), "b"
queue.close
is other.get("work/t=100000"), "b"
is other.get("work"), nil

queue = connect
queue.multi { %w[a b].each { |item| queue.set("work", item) } }
is queue.get_multi("work", "none"), "work" => "a"
fails { queue.get("work/opne") }
fails { queue.add("work", "x") }
fails { queue.incr("work") }
is queue.get("work"), "b"
queue.set("work", "a")
is queue.delete("work"), true
is queue.get("work"), nil

if NAME
  fails { queue.set("others", "a") }
  fails { connect("guess").set("work", "a") }
  fails { connect(nil, nil).set("work", "a") }
  is queue.get("work"), nil
else
  # Who may not see them has an error for an answer, which Dalli does not take for the end.
  queue.set("work", "a")
  is queue.stats.values.first["queue_work_items"], "1"
end
