"use strict";
// The npm client jackd, unmodified, against the real binary. Its version 2 was published without
// its code, and pauseTube of version 1 forgets the line's end: a pause is asked for with
// executeCommand.

const assert = require("node:assert/strict");
const { after, afterEach, before, test } = require("node:test");
const Jackd = require("jackd");
const { start } = require("./server.js");

let server;
let tubeNumber = 0;
const clients = [];

before(async () => {
  server = await start("beanstalk");
});

afterEach(async () => {
  for (const client of clients.splice(0)) await client.quit();
});

after(() => server.stop());

/** A client that uses and watches a tube of its own. */
async function connect(tube = `jackd${(tubeNumber += 1)}`) {
  const client = new Jackd();
  await client.connect({ host: "127.0.0.1", port: server.port });
  clients.push(client);
  assert.equal(await client.use(tube), tube);
  assert.equal(await client.watch(tube), "2");
  assert.equal(await client.ignore("default"), "1");
  return client;
}

test("a job from put to delete", async () => {
  const client = await connect();
  const id = await client.put("some job");
  assert.deepEqual(await client.reserve(), { id, payload: "some job" });
  await client.delete(id);
  await assert.rejects(client.delete(id), /NOT_FOUND/);
});

test("an object and a large job", async () => {
  const client = await connect();
  await client.put({ foo: "bar" }, { priority: 1 });
  await client.put("a".repeat(50000), { priority: 2 });
  assert.equal((await client.reserve()).payload, '{"foo":"bar"}');
  assert.equal((await client.reserve()).payload.length, 50000);
  await assert.rejects(client.put("a".repeat(70000)), /JOB_TOO_BIG/);
});

test("waits", async () => {
  const tube = "jackd-waits";
  const worker = await connect(tube);
  const producer = await connect(tube);
  await assert.rejects(worker.reserveWithTimeout(0), /TIMED_OUT/);
  const reserved = worker.reserve();
  const id = await producer.put("late");
  assert.equal((await reserved).id, id);
  await producer.put("delayed", { delay: 1 });
  assert.equal((await worker.reserveWithTimeout(120)).payload, "delayed");
});

test("release, touch, bury, kick", async () => {
  const client = await connect();
  const id = await client.put("a", { ttr: 100 });
  await client.reserve();
  await client.touch(id);
  await client.release(id, { priority: 5, delay: 3600 });
  await client.kickJob(id);
  await client.reserve();
  await client.bury(id, { priority: 5 });
  assert.deepEqual(await client.peekBuried(), { id, payload: "a" });
  assert.deepEqual(await client.peek(id), { id, payload: "a" });
  await client.kick(10);
  assert.equal((await client.reserve()).id, id);
  await client.release(id);
  for (const call of [client.release(id), client.bury(id), client.touch(id), client.kickJob(id)]) {
    await assert.rejects(call, /NOT_FOUND/);
  }
});

test("tubes", async () => {
  const client = await connect();
  await client.use("jackd-else");
  assert.equal(await client.getCurrentTube(), "jackd-else");
  await client.put("unseen");
  await assert.rejects(client.reserveWithTimeout(0), /TIMED_OUT/);
  assert.equal(await client.watch("jackd-else"), "2");
  assert.equal((await client.reserve()).payload, "unseen");
});

test("many calls at once", async () => {
  const client = await connect();
  const first = client.put("a");
  client.watch("jackd-x");
  client.use("jackd-y");
  const second = client.put("b");
  await client.delete(await first);
  await client.delete(await second);
});

test("what it has no word for", async () => {
  const client = await connect("jackd-pause");
  await assert.rejects(client.executeCommand("put 0 0\r\n"), /BAD_FORMAT/);
  await assert.rejects(client.executeCommand("random\r\n"), /UNKNOWN_COMMAND/);
  assert.equal(await client.executeCommand("pause-tube jackd-pause 3600\r\n"), "PAUSED");
  const stats = await client.executeMultiPartCommand("stats\r\n");
  assert.match(stats, /^---\ncurrent-jobs-urgent: \d+\n/);
  assert.equal(client.isConnected(), true);
});
