"use strict";
// The npm client faktory-worker, unmodified, against the real binary: a producer and a worker.

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const { mkdtempSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");
const { after, before, beforeEach, test } = require("node:test");
const faktory = require("faktory-worker");
const { lastingPort, pause, start } = require("./server.js");

let server;
let options;
let client;

before(async () => {
  const config = path.join(mkdtempSync(path.join(tmpdir(), "quintet-")), "quintet.toml");
  // It is to be found again when it was killed.
  const address = `127.0.0.1:${await lastingPort()}`;
  const listener = `[[listen]]\nprotocol = "faktory"\naddress = "${address}"\npassword = "swordfish"\n`;
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

/** Resolves when `so` does, with what it answers. */
async function until(so) {
  const end = Date.now() + 120_000;
  for (;;) {
    const answer = await so();
    if (answer) return answer;
    assert.ok(Date.now() < end, "it did not come to pass");
    await pause();
  }
}

/** The ids of a queue's jobs that an operator sees in this state. */
function browse(queue, state) {
  const options = ["--state", state, "--count", "1000", "--json", "--data", server.data];
  const told = execFileSync(process.env.QUINTET || "quintet", ["browse", queue, ...options]);
  const lines = told.toString().split("\n").filter((line) => line);
  return new Set(lines.map((line) => JSON.parse(line).name));
}

test("a wrong password", async () => {
  await assert.rejects(faktory.connect({ ...options, password: "wrong" }), /Invalid password/);
});

test("jobs are pushed, one, many and for later", async () => {
  await client.job("Mail", "ann", { a: 1 }).push();
  assert.deepEqual(await client.pushBulk([client.job("Mail", 2), client.job("Mail", 3)]), {});
  const endless = client.job("Mail", 4);
  endless.reserveFor = 86_401;
  const { [endless.jid]: refused, ...others } = await client.pushBulk([endless]);
  assert.equal(refused.reason, "jobs cannot be reserved for more than one day");
  assert.deepEqual(others, {});
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
  await until(async () => {
    const now = await sets();
    return now.retries === 1 && now.working === 0 && ran.length === 20;
  });
  assert.deepEqual(ran.sort((a, b) => a - b), Array.from({ length: 20 }, (_, i) => i + 1));
  await working.stop();
});

/** Asks a worker by the command line to be quiet, or to end. */
function steer(act, wid) {
  execFileSync(process.env.QUINTET || "quintet", ["workers", act, wid, "--data", server.data]);
}

test("a worker that is asked to be quiet takes nothing more, and one that is asked to ends", async (t) => {
  const ran = [];
  const more = { ...options, concurrency: 1, queues: ["default"], beatInterval: 0.02 };
  const work = (how) => {
    const worker = faktory.create();
    worker.register("Notes", async (what) => ran.push(what));
    return worker.work(how);
  };
  const quiet = await work(more);
  t.after(() => quiet.stop());
  await client.job("Notes", "before").push();
  await until(async () => ran.length === 1 && (await sets()).working === 0);
  steer("quiet", quiet.client.wid);
  await until(() => quiet.quieted);
  // What it was waiting for it may have got; nothing after that.
  const ending = await work({ ...more, queues: ["other"] });
  const stop = ending.stop.bind(ending);
  let ended = false;
  ending.stop = () => stop().then(() => (ended = true));
  t.after(() => ended || stop());
  steer("terminate", ending.client.wid);
  await until(() => ended);
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
  // What failed, and what is dead.
  for (const type of ["A", "B", "C"]) await client.job(type, type).push();
  const jids = {};
  for (let n = 0; n < 4; n += 1) {
    const job = await client.fetch("default");
    jids[job.jobtype] = job.jid;
    await client.fail(job.jid, new Error("boom"));
  }
  await client.retries.ofType("A").kill();
  await client.retries.ofType("B").discard();
  assert.deepEqual([(await sets()).retries, (await sets()).dead], [2, 1]);
  await client.retries.clear();
  await client.dead.withJids(jids.C).discard();
  assert.deepEqual([(await sets()).retries, (await sets()).dead], [0, 1]);
  await client.dead.matching("*A*").discard();
  assert.equal((await sets()).dead, 0);
});

test("a job comes when it is due, and not before", async () => {
  const job = client.job("Soon", 1);
  const due = new Date(new Date((await client.info()).now).getTime() + 500);
  job.at = due;
  await job.push();
  assert.equal((await sets()).scheduled, 1);
  const got = await until(() => client.fetch("default"));
  assert.deepEqual(got.args, [1]);
  assert.ok(new Date((await client.info()).now) >= due);
  await client.ack(got.jid);
});

test("a thousand jobs by ten workers outlive a kill", async (t) => {
  // The client says there how often nobody listened.
  t.mock.method(console, "error", () => {});
  const jobs = 1000;
  const jid = (number) => `number-${number}`;
  for (let from = 0; from < jobs; from += 100) {
    const some = Array.from({ length: 100 }, (_, n) => {
      const job = client.job("Counts", from + n);
      job.jid = jid(from + n);
      job.queue = "many";
      return job;
    });
    assert.deepEqual(await client.pushBulk(some), {});
  }
  const done = new Set();
  // The last ones wait for the kill, so that it comes in between however fast the others are.
  let kill;
  const killed = new Promise((resolve) => (kill = resolve));
  const workers = [];
  t.after(() => {
    kill();
    return Promise.all(workers.map((worker) => worker.stop()));
  });
  for (let n = 0; n < 10; n += 1) {
    const worker = faktory.create();
    worker.register("Counts", async (number) => {
      if (number >= jobs - 100) await killed;
      done.add(jid(number));
    });
    const working = await worker.work({ ...options, concurrency: 1, queues: ["many"] });
    // What the kill cuts off; they go on by themselves.
    working.on("error", () => {});
    workers.push(working);
  }
  await until(() => done.size >= jobs / 2);
  await server.crash();
  kill();
  const told = await until(async () => {
    const now = await client.info().catch(() => null);
    const ready = now?.faktory.queues.many;
    return ready === 0 && workers.every((worker) => worker.working.size === 0) && now.faktory;
  });
  // What nobody did was handed out in the moment of the kill, and is under its reservation.
  const reserved = browse("many", "reserved");
  const missing = Array.from({ length: jobs }, (_, n) => jid(n)).filter((id) => !done.has(id));
  assert.deepEqual(missing.filter((id) => !reserved.has(id)), []);
  assert.ok(reserved.size <= 10, [...reserved].join(" "));
  assert.deepEqual([told.sets.retries, told.sets.dead], [0, 0]);
});
