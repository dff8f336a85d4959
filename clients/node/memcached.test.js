"use strict";
// The npm client memcached, unmodified, against the real binary.

const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { promisify } = require("node:util");
const Memcached = require("memcached");
const { pause, start } = require("./server.js");

let server;
let address;
let queueNumber = 0;
const clients = [];

before(async () => {
  server = await start("memcache");
  address = server.address;
});

after(async () => {
  for (const client of clients) client.end();
  await server.stop();
});

/** A client with one connection: open reads belong to a connection. */
function connect() {
  const client = new Memcached(address, { poolSize: 1, timeout: 120000, retries: 0 });
  clients.push(client);
  const call = (name) => promisify(client[name].bind(client));
  return {
    get: call("get"),
    set: (key, value, lifetime = 0) => call("set")(key, value, lifetime),
    add: (key, value) => call("add")(key, value, 0),
    del: call("del"),
    stats: call("stats"),
    version: call("version"),
    end: () => client.end(),
  };
}

function freshQueue() {
  queueNumber += 1;
  return `node${queueNumber}`;
}

test("first in, first out", async () => {
  const queue = connect();
  const name = freshQueue();
  assert.equal(await queue.get(name), undefined);
  for (const item of ["a", "b", "c"]) assert.equal(await queue.set(name, item), true);
  for (const item of ["a", "b", "c", undefined]) assert.equal(await queue.get(name), item);
});

test("types come back", async () => {
  const queue = connect();
  const name = freshQueue();
  const values = ["text", "", 7, { a: [1, null] }, Buffer.from([1, 2, 0xc3, 0xa9]), "x".repeat(200000)];
  for (const value of values) {
    await queue.set(name, value);
    assert.deepEqual(await queue.get(name), value);
  }
});

test("waiting", async () => {
  const waiting = connect();
  const putting = connect();
  const name = freshQueue();
  assert.equal(await waiting.get(`${name}/t=50`), undefined);
  const taken = waiting.get(`${name}/t=100000`);
  for (const until = Date.now() + 120000; ; ) {
    const [stats] = await putting.stats();
    if (Number(stats[`queue_${name}_waiters`]) === 1) break;
    assert.ok(Date.now() < until, "nobody waits");
    await pause();
  }
  await putting.set(name, "now");
  assert.equal(await taken, "now");
});

test("open, close, abort", async () => {
  const queue = connect();
  const other = connect();
  const name = freshQueue();
  await queue.set(name, 1);
  await queue.set(name, 2);
  assert.equal(await queue.get(`${name}/open`), 1);
  assert.equal(await other.get(`${name}/peek`), 2);
  assert.equal(await queue.get(`${name}/abort`), undefined);
  assert.equal(await queue.get(`${name}/open`), 1);
  assert.equal(await queue.get(`${name}/close/open`), 2);
  queue.end();
  assert.equal(await other.get(`${name}/t=100000`), 2);
  assert.equal(await other.get(name), undefined);
});

test("errors", async () => {
  const name = freshQueue();
  await connect().set(name, "a");
  const queue = connect();
  assert.equal(await queue.get(`${name}/open`), "a");
  await assert.rejects(queue.get(name), /close current item first/);
  assert.equal(await connect().get(`${name}/t=100000`), "a");
  await assert.rejects(connect().get(`${name}/opne`), /bad option/);
  await assert.rejects(connect().add(name, "x"), /not supported/);
  assert.equal(await connect().get(name), undefined);
});

test("queues", async () => {
  const queue = connect();
  const name = freshQueue();
  await queue.set(name, "a");
  assert.equal(await queue.del(name), true);
  assert.equal(await queue.del(name), true);
  assert.equal(await queue.get(name), undefined);
  await queue.set(name, "first", 60);
  await queue.set(name, "second", 3600);
  const [version] = await queue.version();
  assert.ok(version.version);
  assert.equal(await queue.get(name), "first");
  assert.equal(await queue.get(name), "second");
});
