"use strict";
// The npm client memjs, unmodified, which speaks memcached's binary protocol.

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const { after, before, test } = require("node:test");
const { mkdtempSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");
const { Client } = require("memjs");
const { start } = require("./server.js");

const GRANTS = `
[[grant]]
user = "ann"
queues = ["guarded"]
rights = ["put", "take", "settle"]
`;
// What fails here is meant to: the clients' log is not for the screen.
const logger = { log() {} };

let open;
let guarded;
let folder;
const clients = [];

before(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "quintet-users-"));
  const binary = process.env.QUINTET || "quintet";
  const table = execFileSync(binary, ["passwd", "ann"], { input: "hush\n" });
  const config = path.join(folder, "quintet.toml");
  writeFileSync(config, `${table}${GRANTS}`, { mode: 0o600 });
  open = await start("memcache");
  guarded = await start("memcache", "--config", config);
});

after(async () => {
  for (const client of clients) client.close();
  if (open) await open.stop();
  if (guarded) await guarded.stop();
  rmSync(folder, { recursive: true });
});

function connect(server = open, login = {}) {
  const options = { timeout: 120, conntimeout: 120, retries: 1, logger, ...login };
  const client = Client.create(server.address, options);
  clients.push(client);
  return client;
}

async function take(client, key) {
  const { value } = await client.get(key);
  return value === null ? null : value.toString();
}

test("first in, first out", async () => {
  const queue = connect();
  assert.equal(await take(queue, "work"), null);
  for (const item of ["a", "b", ""]) assert.equal(await queue.set("work", item, {}), true);
  for (const item of ["a", "b", "", null]) assert.equal(await take(queue, "work"), item);
});

test("large items of any bytes", async () => {
  const queue = connect();
  for (const length of [65536, 65537, 1000000]) {
    const body = Buffer.alloc(length, Buffer.from([0, 1, 0x80, 0xff, 13, 10]));
    await queue.set("large", body, { expires: 3600 });
    assert.deepEqual((await queue.get("large")).value, body);
  }
});

test("open, close, abort, waiting", async () => {
  const queue = connect();
  const other = connect();
  await queue.set("jobs", "1", {});
  await queue.set("jobs", "2", {});
  assert.equal(await take(queue, "jobs/open"), "1");
  assert.equal(await take(other, "jobs/peek"), "2");
  assert.equal(await take(queue, "jobs/abort"), null);
  assert.equal(await take(queue, "jobs/open/t=100"), "1");
  assert.equal(await take(queue, "jobs/close/open"), "2");
  queue.close();
  assert.equal(await take(other, "jobs/t=100000"), "2");
  assert.equal(await take(other, "jobs"), null);
});

test("errors, and queues dropped", async () => {
  const queue = connect();
  await queue.set("errors", "a", {});
  await assert.rejects(queue.get("errors/opne"), /Invalid arguments/i);
  await assert.rejects(queue.add("errors", "x", {}));
  assert.equal(await queue.delete("errors"), true);
  assert.equal(await take(queue, "errors"), null);
});

test("who logs in may do what it may", async () => {
  const queue = connect(guarded, { username: "ann", password: "hush" });
  assert.equal(await queue.set("guarded", "a", {}), true);
  assert.equal(await take(queue, "guarded"), "a");
  await assert.rejects(queue.set("others", "a", {}));
});

test("nobody else is let in", async () => {
  for (const login of [{}, { username: "ann", password: "guess" }]) {
    await assert.rejects(connect(guarded, login).set("guarded", "a", {}));
  }
  const ann = connect(guarded, { username: "ann", password: "hush" });
  assert.equal(await take(ann, "guarded"), null);
});
