---@meta
-- What Quintet's hooks have, for the Lua language server. Not loaded by
-- Quintet. Reference: hooks.md.

---Who is behind an event.
---@class quintet.Conn
---@field id integer Number of the connection.
---@field voice "memcache"|"lineup"|"jobqueue"|"pinpriq"|"beanstalk"|string The protocol it speaks.
---@field peer string Its address.
---@field user string Who it said it is; empty if it did not.

---A message to be put. All but `size` and `id` can be set.
---@class quintet.Put
---@field queue string
---@field body string? Nil for one over 64 KiB, which is in the log already.
---@field size integer Bytes of the body.
---@field rank integer? 0 is the most urgent; nil: the queue's default.
---@field key string? Groups messages.
---@field name string? The message's own name.
---@field batch string|quintet.Batch|nil The batch it is counted in. Read, it is the id.
---@field tracked boolean What becomes of it is known by its name.
---@field attrs table<string, string> A copy; set it as a whole.
---@field delay_ms integer? Not taken before so long.
---@field due_ms integer? Not taken before this time, ms since 1970.
---@field ttl_ms integer? Gone after so long; 0: never.
---@field expires_ms integer? Gone at this time, ms since 1970.
---@field ttr_ms integer? Time to run.
---@field flags integer
---@field held_back boolean Leaves only with others of its key.
---@field dedupe string|quintet.Dedupe|nil A put with the same id is answered as the first, a day if the queue's settings say nothing. Read, it is the id.
---@field id integer? In after_put.

---The fields of a put, each as it would be if left out.
---@class quintet.Fields
---@field queue string?
---@field body string?
---@field rank integer?
---@field key string?
---@field name string?
---@field batch string|quintet.Batch|nil
---@field tracked boolean?
---@field attrs table<string, string>?
---@field delay_ms integer?
---@field due_ms integer?
---@field ttl_ms integer?
---@field expires_ms integer?
---@field ttr_ms integer?
---@field flags integer?
---@field held_back boolean?
---@field dedupe string|quintet.Dedupe|nil

---What makes a put a repeat; what is left out is as its queue's settings say.
---@class quintet.Dedupe
---@field id string Compared within the queue.
---@field window_ms integer? For how long it counts at most; 0: as long as scope says.
---@field scope ("time"|"waiting"|"started"|"done")? What ends it sooner.
---@field on_repeat ("refuse"|"first"|"replace")? What a repeat does.

---A stored message.
---@class quintet.Message
---@field id integer
---@field queue string
---@field body string? Nil for one over 64 KiB. In after_take: what the client is sent.
---@field size integer
---@field rank integer
---@field key string?
---@field name string?
---@field batch string?
---@field tracked boolean
---@field state "ready"|"delayed"|"reserved"|"buried"|"prepared"|"done"|"relayed"
---@field reserves integer Leases so far.
---@field timeouts integer Leases that ran out.
---@field releases integer Times it was given back.
---@field created_ms integer
---@field age_ms integer
---@field due_ms integer?
---@field expires_ms integer?
---@field ttr_ms integer?
---@field flags integer
---@field held_back boolean
---@field status string
---@field attrs table<string, string>

---@class quintet.Take
---@field queue string? The first queue.
---@field queues string[]
---@field lease boolean
---@field waits boolean

---@class quintet.Command
---@field name string
---@field queue string?
---@field id integer?

---@class quintet.Settle: quintet.Command
---@field how "finish"|"archive"|"release"|"bury"|"delete"

---@class quintet.Ttl
---@field ttl_ms integer?

---A durable table.
---@class quintet.Table
---@field name string
local Table = {}
---@param key string|integer
---@return any
function Table:get(key) end
---@param key string|integer
---@param value any Nil removes it.
---@param options quintet.Ttl?
function Table:set(key, value, options) end
---@param key string|integer
function Table:delete(key) end
---@param key string|integer
---@param by number? 1 if left out.
---@param options quintet.Ttl?
---@return number sum
function Table:add(key, by, options) end
---@param key string|integer
---@param old any
---@param new any
---@param options quintet.Ttl?
---@return boolean was_old
function Table:cas(key, old, new, options) end
---@return fun(): string?, any
function Table:each() end

---A number shared by all threads, gone with a restart.
---@class quintet.Counter
---@field name string
local Counter = {}
---@param by integer? 1 if left out.
---@param options quintet.Ttl? How long it lives, if it does not exist.
---@return integer sum
function Counter:add(by, options) end
---@return integer
function Counter:get() end
---@param old integer
---@param new integer
---@param options quintet.Ttl?
---@return boolean was_old
function Counter:cas(old, new, options) end

---A callback of a batch.
---@class quintet.Callback
---@field queue string
---@field body string?
---@field rank integer?
---@field ttr_ms integer?
---@field name string?
---@field attrs table<string, string>?

---A batch that is to be made; one of the two callbacks there has to be.
---@class quintet.NewBatch
---@field complete quintet.Callback? Put when all members have run.
---@field success quintet.Callback? Put when all have succeeded.
---@field description string?
---@field parent string|quintet.Batch|nil The batch whose callbacks wait for this one's.

---How far a batch is.
---@class quintet.BatchShown
---@field id string
---@field description string
---@field parent string?
---@field created_ms integer
---@field open boolean Members may be added.
---@field total integer
---@field pending integer Those that have not succeeded.
---@field failed integer Those of them that have run.
---@field complete "no"|"put"|"done"
---@field success "no"|"put"|"done"

---Messages that are counted together.
---@class quintet.Batch
---@field id string
local Batch = {}
---No members are added any more: the last thing of the step.
function Batch:commit() end
---@return quintet.BatchShown? Nil: there is none, or not yet.
function Batch:show() end

---What became of a tracked message.
---@class quintet.Track
---@field name string
---@field queue string
---@field state "waiting"|"reserved"|"failed"|"buried"|"done"|"gone"
---@field progress integer? Percent.
---@field status string
---@field changed_ms integer

quintet = {}

---@alias quintet.Event "start"|"stop"|"connect"|"disconnect"|"command"|"before_put"|"after_put"|"before_take"|"after_take"|"settle"|"empty"|"expire"|"lease_end"|"dead_letter"|"full"|"auth"|"on_error"|"error"

---Calls a function for an event. While the file is loaded only.
---@param event quintet.Event
---@param fn function
function quintet.on(event, fn) end
---@param ms integer 10 at least.
---@param fn fun()
function quintet.every(ms, fn) end
---@param cron string Minute, hour, day, month, weekday, in UTC.
---@param fn fun()
function quintet.at(cron, fn) end
---Adds a command to the voices of lines of text.
---@param word string
---@param fn fun(args: string[], conn: quintet.Conn): (string|integer|boolean|nil), string?
function quintet.command(word, fn) end

---@param queue string
---@param body string
---@param fields quintet.Fields?
---@overload fun(message: quintet.Fields)
function quintet.put(queue, body, fields) end
---Makes a batch, or names one that was made.
---@param batch quintet.NewBatch|string
---@return quintet.Batch
function quintet.batch(batch) end
---@param queue string
---@param name string The message's own.
---@return quintet.Track?
function quintet.track(queue, name) end
---@param queue string
---@return quintet.Message?
function quintet.peek(queue) end
---@param queue string
---@return quintet.Message?
function quintet.take(queue) end
---@param id integer|quintet.Message
---@return quintet.Message?
function quintet.get(id) end
---@param message integer|quintet.Message
function quintet.delete(message) end
---@param message integer|quintet.Message
---@param queue string
function quintet.move(message, queue) end
---@param message integer|quintet.Message
---@param reason string?
function quintet.bury(message, reason) end
---@param message integer|quintet.Message
function quintet.kick(message) end
---@return string[]
function quintet.queues() end
---@param queue string? All queues if left out.
---@return table<string, integer>
function quintet.stats(queue) end
---@param name string
---@return quintet.Table
function quintet.table(name) end
---@param name string
---@return quintet.Counter
function quintet.counter(name) end
---@param name string
---@param value number? 1 if left out.
function quintet.metric(name, value) end
---@param m integer?
---@param n integer?
---@return number
function quintet.random(m, n) end

quintet.log = {}
---@param text string
function quintet.log.info(text) end
---@param text string
function quintet.log.warn(text) end
---@param text string
function quintet.log.error(text) end

quintet.time = {}
---@return integer ms Since 1970.
function quintet.time.now() end
---@param ms integer? Now if left out.
---@return string
function quintet.time.iso(ms) end

quintet.json = {}
quintet.json.null = nil ---@type userdata
---@param value any
---@return string
function quintet.json.encode(value) end
---@param text string
---@return any value
---@return string? why
function quintet.json.decode(text) end

---@type fun()
start = nil
---@type fun()
stop = nil
---@type fun(conn: quintet.Conn): boolean?, string?
connect = nil
---@type fun(conn: quintet.Conn)
disconnect = nil
---@type fun(user: string, secret: string, conn: quintet.Conn): boolean?
auth = nil
---@type fun(cmd: quintet.Command, conn: quintet.Conn): (boolean|string)?, string?
command = nil
---@type fun(msg: quintet.Put, conn: quintet.Conn): (boolean|string|quintet.Fields|quintet.Fields[])?, string?
before_put = nil
---@type fun(msg: quintet.Put, conn: quintet.Conn)
after_put = nil
---@type fun(msg: quintet.Put, conn: quintet.Conn): (boolean|string|quintet.Fields|quintet.Fields[])?, string?
full = nil
---@type fun(take: quintet.Take, conn: quintet.Conn): (boolean|string|string[])?, string?
before_take = nil
---@type fun(msg: quintet.Message, conn: quintet.Conn): (boolean|string)?, integer?
after_take = nil
---@type fun(queue: string, conn: quintet.Conn): (boolean|string|quintet.Fields|quintet.Fields[])?, string?
empty = nil
---@type fun(settle: quintet.Settle, conn: quintet.Conn): boolean?, string?
settle = nil
---@type fun(msg: quintet.Message): (boolean|string)?
expire = nil
---@type fun(msg: quintet.Message): (boolean|string)?
lease_end = nil
---@type fun(msg: quintet.Message): (boolean|string)?
dead_letter = nil
---@type fun(text: string, conn: quintet.Conn): string?
on_error = nil
