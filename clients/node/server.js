"use strict";
// The real binary on a fresh directory and a free port, for the tests of one file.

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { mkdtempSync, rmSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");
const readline = require("node:readline");

/** Starts a server that speaks `voice`, or what the arguments say if it is null; resolves when it is ready. */
async function start(voice, ...more) {
  const data = mkdtempSync(path.join(tmpdir(), "quintet-"));
  const binary = process.env.QUINTET || "quintet";
  const listen = voice ? ["--listen", `${voice}=127.0.0.1:0`] : [];
  const args = ["serve", "--data", data, "--sync", "50ms", ...listen, ...more];
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  let address;
  for await (const line of readline.createInterface({ input: child.stdout })) {
    const words = line.split(" ");
    if (words[0] === "listening") address = words[2];
    if (line === "quintet ready") {
      return {
        address,
        port: Number(address.split(":")[1]),
        async stop() {
          const ended = new Promise((resolve) => child.once("exit", resolve));
          child.kill("SIGTERM");
          assert.equal(await ended, 0);
          rmSync(data, { recursive: true });
        },
      };
    }
  }
  throw new Error("the server ended");
}

module.exports = { start };
