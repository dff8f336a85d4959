"use strict";
// The programs of docs/clients/node.md, as they stand there.

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { once } = require("node:events");
const { mkdtempSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const path = require("node:path");
const { after, before, test } = require("node:test");
const Jackd = require("jackd1");
const { pause, start } = require("./server.js");

const page = readFileSync(path.join(__dirname, "../../docs/clients/node.md"), "utf8");
const programs = new Map(
  [...page.matchAll(/^```js\n\/\/ (\S+)\n([^]*?)^```/gm)].map(([, name, text]) => [name, text]),
);
// Longer than anything takes on a busy machine.
const PATIENCE_MS = 120_000;

const [, config] = /^```toml\n([^]*?)^```/m.exec(page);

let server;
let folder;
const started = [];

before(async () => {
  // Beside the libraries, which are found from there.
  folder = mkdtempSync(path.join(__dirname, "node_modules", "quick-start-"));
});

after(async () => {
  for (const child of started) child.kill("SIGKILL");
  rmSync(folder, { recursive: true });
});

function run(name, library) {
  const file = path.join(folder, name);
  writeFileSync(file, programs.get(name).replace('require("jackd")', `require("${library}")`));
  const env = { ...process.env, QUEUE_PORT: String(server.port) };
  const child = spawn(process.execPath, [file], { env, stdio: ["ignore", "pipe", "inherit"] });
  child.said = "";
  child.stdout.on("data", (data) => {
    child.said += data;
  });
  child.ended = once(child, "close");
  started.push(child);
  return child;
}

/** Asks again and again, until it is so. */
async function until(condition) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < end, "it did not come to pass");
    await pause();
  }
}

for (const library of ["jackd", "jackd1"]) {
  test(`jobs are done, tried again and set aside (${library})`, async () => {
    const file = path.join(folder, `${library}.toml`);
    writeFileSync(file, config);
    server = await start("beanstalk", "--config", file);
    assert.deepEqual(await run("producer.js", library).ended, [0, null]);
    const worker = run("worker.js", library);
    const queue = new Jackd();
    await queue.connect({ host: "127.0.0.1", port: server.port });
    const number = async (key) => {
      const stats = await queue.executeMultiPartCommand("stats-tube mail\r\n");
      return Number(new RegExp(`^${key}: (\\d+)$`, "m").exec(stats)[1]);
    };
    await until(async () => (await number("current-jobs-buried")) === 1);
    await until(async () => (await number("current-jobs-reserved")) === 0);
    assert.equal(await number("current-jobs-ready"), 0);
    await queue.use("mail");
    assert.equal((await queue.peekBuried()).payload, '{"to":"nobody"}');
    await queue.quit();
    worker.kill("SIGTERM");
    assert.deepEqual(await worker.ended, [0, null], "it ends in good order");
    const lines = worker.said.trim().split("\n").sort();
    assert.deepEqual(lines, [
      ...Array(3).fill("failed: no address: nobody"),
      "sent to ada@example.org",
      "sent to grace@example.org",
    ]);
    await server.stop();
  });
}
