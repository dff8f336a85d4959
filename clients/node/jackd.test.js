"use strict";
// The npm client jackd, unmodified, against the real binary, in both of its major versions. pauseTube
// of version 1 forgets the line's end: a pause is asked for with executeCommand, which version 2 has
// no more.

const assert = require("node:assert/strict");
const { after, afterEach, before, test } = require("node:test");
const { start } = require("./server.js");

const VERSIONS = [
  [1, require("jackd1")],
  [2, require("jackd")],
];

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

/** A job with its payload as text. */
const shown = ({ id, payload }) => ({ id, payload: payload.toString() });

for (const [version, Jackd] of VERSIONS) {
  const title = (what) => `${what} (version ${version})`;

  /** A client that uses and watches a tube of its own. */
  async function connect(tube = `jackd${(tubeNumber += 1)}`) {
    const client = new Jackd();
    await client.connect({ host: "127.0.0.1", port: server.port });
    clients.push(client);
    assert.equal(await client.use(tube), tube);
    assert.equal(Number(await client.watch(tube)), 2);
    assert.equal(Number(await client.ignore("default")), 1);
    return client;
  }

  test(title("a job from put to delete"), async () => {
    const client = await connect();
    const id = await client.put("some job");
    assert.deepEqual(shown(await client.reserve()), { id, payload: "some job" });
    await client.delete(id);
    await assert.rejects(client.delete(id), /NOT_FOUND/);
  });

  test(title("an object and a large job"), async () => {
    const client = await connect();
    await client.put({ foo: "bar" }, { priority: 1 });
    await client.put("a".repeat(50000), { priority: 2 });
    assert.equal(shown(await client.reserve()).payload, '{"foo":"bar"}');
    assert.equal((await client.reserve()).payload.toString().length, 50000);
    await assert.rejects(client.put("a".repeat(70000)), /JOB_TOO_BIG/);
  });

  test(title("waits"), async () => {
    const tube = `jackd-waits${version}`;
    const worker = await connect(tube);
    const producer = await connect(tube);
    await assert.rejects(worker.reserveWithTimeout(0), /TIMED_OUT/);
    const reserved = worker.reserve();
    const id = await producer.put("late");
    assert.equal((await reserved).id, id);
    await producer.put("delayed", { delay: 1 });
    assert.equal(shown(await worker.reserveWithTimeout(120)).payload, "delayed");
  });

  test(title("release, touch, bury, kick"), async () => {
    const client = await connect();
    const id = await client.put("a", { ttr: 100 });
    await client.reserve();
    await client.touch(id);
    await client.release(id, { priority: 5, delay: 3600 });
    await client.kickJob(id);
    await client.reserve();
    const bury = version === 1 ? { priority: 5 } : 5;
    await client.bury(id, bury);
    assert.deepEqual(shown(await client.peekBuried()), { id, payload: "a" });
    assert.deepEqual(shown(await client.peek(id)), { id, payload: "a" });
    await client.kick(10);
    assert.equal((await client.reserve()).id, id);
    await client.release(id);
    for (const call of [client.release(id), client.bury(id, bury), client.touch(id), client.kickJob(id)]) {
      await assert.rejects(call, /NOT_FOUND/);
    }
  });

  test(title("tubes"), async () => {
    const client = await connect();
    await client.use(`jackd-else${version}`);
    assert.equal(await client.getCurrentTube(), `jackd-else${version}`);
    await client.put("unseen");
    await assert.rejects(client.reserveWithTimeout(0), /TIMED_OUT/);
    assert.equal(Number(await client.watch(`jackd-else${version}`)), 2);
    assert.equal(shown(await client.reserve()).payload, "unseen");
  });

  test(title("many calls at once"), async () => {
    const client = await connect();
    const first = client.put("a");
    client.watch("jackd-x");
    client.use("jackd-y");
    const second = client.put("b");
    await client.delete(await first);
    await client.delete(await second);
  });

  if (version === 1) {
    test(title("what it has no word for"), async () => {
      const client = await connect(`jackd-pause${version}`);
      await assert.rejects(client.executeCommand("put 0 0\r\n"), /BAD_FORMAT/);
      await assert.rejects(client.executeCommand("random\r\n"), /UNKNOWN_COMMAND/);
      assert.equal(await client.executeCommand("pause-tube jackd-pause1 3600\r\n"), "PAUSED");
      const stats = await client.executeMultiPartCommand("stats\r\n");
      assert.match(stats, /^---\ncurrent-jobs-urgent: \d+\n/);
      assert.equal(client.isConnected(), true);
    });
  }
}
