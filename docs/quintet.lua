---@meta
-- Annotations of Quintet's hooks for the Lua language server. Quintet does not
-- load this file. Reference: hooks.md.

---The client that caused an event.
---@class quintet.Conn
---@field id integer Number of the connection.
---@field protocol "memcache"|"lineup"|"jobqueue"|"pinpriq"|"beanstalk"|string The protocol it speaks.
---@field peer string Its address.
---@field user string Its login; empty without one.

---A message of a put. All fields but `size` and `id` can be set.
---@class quintet.Put
---@field queue string
---@field body string? Nil for a body over 64 KiB.
---@field size integer Bytes of the body.
---@field priority integer? 0 is the most urgent; nil: the queue's default.
---@field key string? Its message group.
---@field name string? The message's own name.
---@field batch string|quintet.Batch|nil Its batch. Read, it is the id.
---@field tracked boolean Its outcome is kept under its name.
---@field reply_to string?
---@field after table? Messages to wait for: ids and names, with `on` and `if_failed`.
---@field attrs table<string, string> A copy; set it as a whole.
---@field delay_ms integer? Time until it is ready.
---@field due_ms integer? When it becomes ready, ms since 1970.
---@field ttl_ms integer? Time until it expires; 0: never.
---@field expires_ms integer? When it expires, ms since 1970.
---@field ttr_ms integer? Time to run.
---@field flags integer
---@field not_selectable boolean Not selectable: leaves only with others of its key.
---@field dedupe string|quintet.Dedupe|nil The deduplication id: a repeat gets the reply of the first, for a day unless the queue's settings differ. Read, it is the id.
---@field id integer? In after_put.

---Fields of a put. A field left out has its default.
---@class quintet.Fields
---@field queue string?
---@field body string?
---@field priority integer?
---@field key string?
---@field name string?
---@field batch string|quintet.Batch|nil
---@field tracked boolean?
---@field reply_to string? Queue that gets its result.
---@field after table? Messages to wait for: ids and names, with `on` and `if_failed`.
---@field attrs table<string, string>?
---@field delay_ms integer?
---@field due_ms integer?
---@field ttl_ms integer?
---@field expires_ms integer?
---@field ttr_ms integer?
---@field flags integer?
---@field not_selectable boolean?
---@field dedupe string|quintet.Dedupe|nil

---Deduplication of a put. Fields left out are as the queue's `unique_` settings.
---@class quintet.Dedupe
---@field id string Compared within the queue.
---@field window_ms integer? Longest time that the id is remembered; 0: until the end in `scope`.
---@field scope ("time"|"waiting"|"started"|"done")? Earlier end of the id.
---@field on_repeat ("refuse"|"first"|"replace")? Effect of a repeat.

---A stored message.
---@class quintet.Message
---@field id integer
---@field queue string
---@field body string? Nil for a body over 64 KiB. In after_take: the bytes that the client gets.
---@field size integer
---@field priority integer
---@field key string?
---@field name string?
---@field batch string?
---@field tracked boolean
---@field after {id: integer, state: string}[]? The messages that it waits for, or waited.
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
---@field not_selectable boolean
---@field status string
---@field cancelled string? The reason, if it is cancelled and its worker may still end its work.
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
---@field how "finish"|"archive"|"release"|"fail"|"bury"|"delete"|"cancel"
---@field message_name string?

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

---A number shared by all threads, lost at a restart.
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
---@field priority integer?
---@field ttr_ms integer?
---@field name string?
---@field attrs table<string, string>?

---A new batch. It needs one of the two callbacks.
---@class quintet.NewBatch
---@field complete quintet.Callback? Put when all members have run.
---@field success quintet.Callback? Put when all have succeeded.
---@field description string?
---@field parent string|quintet.Batch|nil A batch whose callbacks wait for those of this one.
---@field cancelled "failed"|"finished"|nil How cancelled members count; failed if nil.

---The progress of a batch.
---@class quintet.BatchShown
---@field id string
---@field description string
---@field parent string?
---@field cancelled "failed"|"finished"
---@field created_ms integer
---@field open boolean Members may be added.
---@field total integer
---@field pending integer Members that have not succeeded.
---@field failed integer Pending members that have run.
---@field complete "no"|"put"|"done"
---@field success "no"|"put"|"done"

---A group of messages with callbacks.
---@class quintet.Batch
---@field id string
local Batch = {}
---Ends adding members. It must be the last part of the step.
function Batch:commit() end
---@return quintet.BatchShown? Nil: it does not exist, or not yet.
function Batch:show() end

---The outcome of a tracked message.
---@class quintet.Track
---@field name string
---@field queue string
---@field state "waiting"|"reserved"|"failed"|"buried"|"done"|"gone"
---@field progress integer? Percent.
---@field status string
---@field changed_ms integer

quintet = {}

---@alias quintet.Event "start"|"stop"|"connect"|"disconnect"|"command"|"before_put"|"after_put"|"before_take"|"after_take"|"settle"|"empty"|"expire"|"lease_end"|"dead_letter"|"full"|"auth"|"on_error"|"error"

---Registers a function for an event. Only while the file is loaded.
---@param event quintet.Event
---@param fn function
function quintet.on(event, fn) end
---@param ms integer At least 10.
---@param fn fun()
function quintet.every(ms, fn) end
---@param cron string Minute, hour, day, month, weekday, in UTC.
---@param fn fun()
function quintet.at(cron, fn) end
---Adds a command to protocols that use lines of text.
---@param word string
---@param fn fun(args: string[], conn: quintet.Conn): (string|integer|boolean|nil), string?
function quintet.command(word, fn) end

---@param queue string
---@param body string
---@param fields quintet.Fields?
---@overload fun(message: quintet.Fields)
function quintet.put(queue, body, fields) end
---Creates a batch, or returns an existing one.
---@param batch quintet.NewBatch|string
---@return quintet.Batch
function quintet.batch(batch) end
---@param queue string
---@param name string The message's own.
---@return quintet.Track?
function quintet.track(queue, name) end
---How a message ended.
---@param id integer|quintet.Message
---@return {state: "pending"|"done"|"failed"|"dead"|"expired"|"cancelled"|"gone"|"moved", result: string?, error: string?}?
function quintet.result(id) end
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
---Cancels a message; a worker that holds it may end its work meanwhile.
---@param message integer|quintet.Message
---@param reason string?
---@param grace_ms integer? 30 s if left out, a week at most.
function quintet.cancel(message, reason, grace_ms) end
---@param message integer|quintet.Message
---@param queue string
function quintet.move(message, queue) end
---@param message integer|quintet.Message
---@param reason string?
function quintet.bury(message, reason) end
---@param message integer|quintet.Message
function quintet.kick(message) end
---Holds a message group, or a whole queue: no message of it is delivered meanwhile.
---@param queue string
---@param key string? Nil: all of the queue.
---@param ms integer A week at most; 0 ends it.
function quintet.hold(queue, key, ms) end
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
