"use strict";
// The npm client fivebeans, its worker included, unmodified, against the real binary.

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { after, before, test } = require("node:test");
const fivebeans = require("fivebeans");
const { start } = require("./server.js");

let server;
let tubeNumber = 0;
const clients = [];

before(async () => {
  server = await start("beanstalk");
});

after(async () => {
  for (const client of clients) client.end();
  await server.stop();
});

const freshTube = () => `fivebeans${(tubeNumber += 1)}`;

/** A client whose calls are promises of what their callbacks get, an error as a rejection. */
async function connect(tube) {
  const client = new fivebeans.client("127.0.0.1", server.port);
  clients.push(client);
  client.connect();
  await once(client, "connect");
  const call = (name, ...args) =>
    new Promise((resolve, reject) => {
      client[name](...args, (error, ...values) => (error ? reject(error) : resolve(values)));
    });
  if (tube) {
    assert.deepEqual(await call("use", tube), [tube]);
    assert.deepEqual(await call("watch", tube), ["2"]);
    assert.deepEqual(await call("ignore", "default"), ["1"]);
  }
  return { call, raw: client };
}

/** The error a call is answered with. */
const refused = (promise, error) => assert.rejects(promise, (why) => why === error);

test("a job from put to delete", async () => {
  const { call } = await connect(freshTube());
  const body = Buffer.from([0, 13, 10, 255]);
  const [id] = await call("put", 5, 0, 60, body);
  const [peeked, seen] = await call("peek_ready");
  assert.deepEqual([peeked, seen], [id, body]);
  assert.deepEqual(await call("reserve"), [id, body]);
  await call("touch", id);
  await call("destroy", id);
  await refused(call("destroy", id), "NOT_FOUND");
  await refused(call("reserve_with_timeout", 0), "TIMED_OUT");
});

test("release, bury, kick", async () => {
  const { call } = await connect(freshTube());
  const [id] = await call("put", 5, 0, 60, "a");
  await call("reserve");
  await call("release", id, 1, 3600);
  assert.equal((await call("peek_delayed"))[0], id);
  assert.deepEqual(await call("kick", 10), ["1"]);
  await call("reserve");
  await call("bury", id, fivebeans.LOWEST_PRIORITY);
  assert.equal((await call("peek_buried"))[0], id);
  await call("kick_job", id);
  assert.equal((await call("peek", id))[1].toString(), "a");
  await refused(call("peek_buried"), "NOT_FOUND");
  await refused(call("kick_job", id), "NOT_FOUND");
});

test("tubes and statistics", async () => {
  const tube = freshTube();
  const { call } = await connect(tube);
  assert.deepEqual(await call("list_tube_used"), [tube]);
  assert.deepEqual(await call("list_tubes_watched"), [[tube]]);
  assert.ok((await call("list_tubes"))[0].includes(tube));
  const [id] = await call("put", 5, 0, 90, "a");
  const [job] = await call("stats_job", id);
  assert.deepEqual([job.id, job.tube, job.state, job.ttr], [Number(id), tube, "ready", 90]);
  await call("pause_tube", tube, 3600);
  const [stats] = await call("stats_tube", tube);
  assert.deepEqual([stats.name, stats["current-jobs-ready"], stats.pause], [tube, 1, 3600]);
  await refused(call("reserve_with_timeout", 0), "TIMED_OUT");
  const [all] = await call("stats");
  assert.equal(all["max-job-size"], 65535);
  assert.equal(all.draining, false);
});

test("a client that quits gives back what it held", async () => {
  const tube = freshTube();
  const holder = await connect(tube);
  const other = await connect(tube);
  const [id] = await holder.call("put", 5, 0, 60, "a");
  await holder.call("reserve");
  await refused(other.call("destroy", id), "NOT_FOUND");
  const closed = once(holder.raw, "close");
  holder.raw.quit();
  await closed;
  assert.equal((await other.call("reserve"))[0], id);
});

test("its worker", async () => {
  const tube = freshTube();
  const { call } = await connect(tube);
  const did = [];
  const handler = (type, action) => ({
    type,
    work(payload, done) {
      did.push([type, payload]);
      done(action, 3600);
    },
  });
  const worker = new fivebeans.worker({
    id: "worker",
    host: "127.0.0.1",
    port: server.port,
    handlers: {
      good: handler("good", "success"),
      late: handler("late", "release"),
      bad: handler("bad", "bury"),
    },
    ignoreDefault: true,
    timeout: 1,
  });
  const put = (type) => call("put", 5, 0, 60, JSON.stringify({ type, payload: `for ${type}` }));
  const [good] = await put("good");
  const [late] = await put("late");
  const [bad] = await put("bad");
  const ended = {};
  const all = new Promise((resolve) => {
    for (const how of ["deleted", "released", "buried"]) {
      worker.on(`job.${how}`, (id) => {
        ended[how] = id;
        if (Object.keys(ended).length === 3) resolve();
      });
    }
  });
  worker.start([tube]);
  await all;
  assert.deepEqual(did, [
    ["good", "for good"],
    ["late", "for late"],
    ["bad", "for bad"],
  ]);
  assert.deepEqual(ended, { deleted: good, released: late, buried: bad });
  assert.equal((await call("stats_job", late))[0].state, "delayed");
  assert.equal((await call("stats_job", bad))[0].state, "buried");
  const stopped = once(worker, "stopped");
  worker.stop();
  await stopped;
});
