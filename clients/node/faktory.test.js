"use strict";
// The npm client faktory-worker, unmodified, against the real binary: a producer and a worker.

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const { mkdtempSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");
const { after, before, beforeEach, test } = require("node:test");
const faktory = require("faktory-worker");
const { start } = require("./server.js");

let server;
let options;
let client;

before(async () => {
  const config = path.join(mkdtempSync(path.join(tmpdir(), "quintet-")), "quintet.toml");
  const listener = '[[listen]]\nvoice = "faktory"\naddress = "127.0.0.1:0"\npassword = "swordfish"\n';
  writeFileSync(config, listener, { mode: 0o600 });
  server = await start(null, "--config", config);
  options = { host: "127.0.0.1", port: server.port, password: "swordfish" };
  client = await faktory.connect(options);
});

beforeEach(() => client.flush());

after(async () => {
  await client.close();
  await server.stop();
});

const sets = async () => (await client.info()).faktory.sets;

/** Resolves when `right` says so of the sets. */
async function until(right) {
  while (!right(await sets())) await new Promise((resolve) => setImmediate(resolve));
}

test("a wrong password", async () => {
  await assert.rejects(faktory.connect({ ...options, password: "wrong" }), /Invalid password/);
});

test("jobs are pushed, one, many and for later", async () => {
  await client.job("Mail", "ann", { a: 1 }).push();
  assert.deepEqual(await client.pushBulk([client.job("Mail", 2), client.job("Mail", 3)]), {});
  const later = client.job("Later", 9);
  later.at = new Date(Date.now() + 3_600_000);
  await later.push();
  const { faktory: told } = await client.info();
  assert.deepEqual(told.queues, { default: 3 });
  assert.equal(told.sets.scheduled, 1);
  const job = await client.fetch("none", "default");
  assert.deepEqual(job.args, ["ann", { a: 1 }]);
  assert.equal(job.retry, 25);
  assert.equal((await sets()).working, 1);
  await client.ack(job.jid);
  assert.equal((await sets()).working, 0);
});

test("a job that fails is retried, dead and put back", async () => {
  const pushed = client.job("Fails", 1);
  pushed.retry = 1;
  await pushed.push();
  let job = await client.fetch("default");
  await client.fail(job.jid, new Error("boom"));
  assert.equal((await sets()).retries, 1);
  await client.retries.ofType("Fails").requeue();
  job = await client.fetch("default");
  assert.equal(job.failure.message, "boom");
  assert.equal(job.failure.retry_count, 0);
  await client.fail(job.jid, new Error("again"));
  assert.equal((await sets()).dead, 1);
  await client.dead.withJids(job.jid).requeue();
  job = await client.fetch("default");
  assert.equal(job.failure.message, "again");
  await client.ack(job.jid);
});

test("a worker runs jobs and says how they went", async () => {
  const ran = [];
  faktory.register("Adds", async (a, b) => ran.push(a + b));
  faktory.register("Throws", async () => {
    throw new Error("boom");
  });
  for (let i = 0; i < 20; i += 1) await client.job("Adds", i, 1).push();
  await client.job("Throws").push();
  const working = await faktory.work({ ...options, concurrency: 3, queues: ["default"] });
  await until((now) => now.retries === 1 && now.working === 0);
  while (ran.length < 20) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(ran.sort((a, b) => a - b), Array.from({ length: 20 }, (_, i) => i + 1));
  await working.stop();
});

/** Asks a worker by the command line to be quiet, or to end. */
function steer(act, wid) {
  execFileSync(process.env.QUINTET || "quintet", ["workers", act, wid, "--data", server.data]);
}

test("a worker that is asked to be quiet takes nothing more, and one that is asked to ends", async () => {
  const ran = [];
  const more = { ...options, concurrency: 1, queues: ["default"], beatInterval: 0.02 };
  const work = (how) => {
    const worker = faktory.create();
    worker.register("Notes", async (what) => ran.push(what));
    return worker.work(how);
  };
  const quiet = await work(more);
  await client.job("Notes", "before").push();
  await until((now) => ran.length === 1 && now.working === 0);
  steer("quiet", quiet.client.wid);
  while (!quiet.quieted) await new Promise((resolve) => setImmediate(resolve));
  // What it was waiting for it may have got; nothing after that.
  const ending = await work({ ...more, queues: ["other"] });
  steer("terminate", ending.client.wid);
  while (!ending.quieted) await new Promise((resolve) => setImmediate(resolve));
  await quiet.stop();
  await ending.stop();
  await client.job("Notes", "after").push();
  const { faktory: told } = await client.info();
  assert.deepEqual([told.queues.default, ran], [1, ["before"]]);
});

test("jobs that wait are thrown away, killed and put forward by what they are", async () => {
  for (const type of ["A", "A", "B", "C"]) {
    const later = client.job(type, type);
    later.at = new Date(Date.now() + 3_600_000);
    await later.push();
  }
  await client.scheduled.ofType("A").discard();
  assert.equal((await sets()).scheduled, 2);
  await client.scheduled.ofType("B").kill();
  await client.scheduled.matching("*C*").requeue();
  const { faktory: told } = await client.info();
  assert.deepEqual([told.queues.default, told.sets.scheduled, told.sets.dead], [1, 0, 1]);
  await client.dead.clear();
  assert.equal((await sets()).dead, 0);
});
