"use strict";
// The real binary on a fresh directory and a free port, for the tests of one file.

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { randomInt } = require("node:crypto");
const { mkdtempSync, rmSync, writeFileSync } = require("node:fs");
const net = require("node:net");
const { tmpdir } = require("node:os");
const path = require("node:path");
const readline = require("node:readline");

/** Small files: a server under test writes little. */
const SMALL = 'segment_bytes = "4MiB"\nspare_segments = 1\n';

/** How long a test waits before it asks again: the processor is for others then. */
const pause = () => new Promise((resolve) => setTimeout(resolve, 20));

/** Resolves with a port that the system gives to nobody while the server is down: those that it gives are higher. */
async function lastingPort() {
  for (;;) {
    const port = randomInt(23_000, 32_000);
    const probe = net.createServer();
    const free = await new Promise((resolve) => {
      probe.once("error", () => resolve(false));
      probe.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => probe.close(resolve));
    return port;
  }
}

/** Starts the binary; resolves with its process and where it listens when it is ready. */
async function launch(data, listen, more) {
  const binary = process.env.QUINTET || "quintet";
  const args = ["serve", "--data", data, "--sync", "50ms", ...listen, ...more];
  if (!more.includes("--config")) {
    const config = `${data}.toml`;
    writeFileSync(config, SMALL);
    args.push("--config", config);
  }
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  let address;
  for await (const line of readline.createInterface({ input: child.stdout })) {
    const words = line.split(" ");
    if (words[0] === "listening") address = words[2];
    if (line === "quintet ready") return { child, address };
  }
  throw new Error("the server ended");
}

/** Resolves with how it ended. */
async function end(child, signal) {
  const ended = new Promise((resolve) => child.once("exit", (code) => resolve(code)));
  child.kill(signal);
  return ended;
}

/** Starts a server that speaks `protocol`, or what the arguments say if it is null; resolves when it is ready. */
async function start(protocol, ...more) {
  const data = mkdtempSync(path.join(tmpdir(), "quintet-"));
  const listen = (address) => (protocol ? ["--listen", `${protocol}=${address}`] : []);
  const { child, address } = await launch(data, listen(`127.0.0.1:${await lastingPort()}`), more);
  let running = child;
  return {
    address,
    data,
    port: Number(address.split(":")[1]),
    /** Kills it as a crash does, and starts it again where it was. */
    async crash() {
      await end(running, "SIGKILL");
      running = (await launch(data, listen(address), more)).child;
    },
    async stop() {
      assert.equal(await end(running, "SIGTERM"), 0);
      rmSync(data, { recursive: true });
      rmSync(`${data}.toml`, { force: true });
    },
  };
}

module.exports = { lastingPort, pause, start };
