"use strict";
// The real binary with its console and a second protocol, and a browser that looks at it.

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { mkdtempSync, rmSync, writeFileSync } = require("node:fs");
const net = require("node:net");
const { tmpdir } = require("node:os");
const path = require("node:path");
const readline = require("node:readline");
const puppeteer = require("puppeteer-core");

/** A script that says something in colour, and fails. */
const FAILS = `#!/bin/sh
printf '\\033[31mred alert\\033[0m\\n'
echo "err out of memory" >&3
`;

/** A script that waits in the middle, for a file. */
const SLOW = (gate) => `#!/bin/sh
printf '\\033[32mbegun\\033[0m\\n'
until [ -e '${gate}' ]; do sleep 0.05; done
printf '\\033[31m<b>red</b>\\033[0m\\n'
echo "err too slow" >&3
`;

/** What fails once in it is a dead letter. */
const FRAGILE = '[[queue]]\nname = "fragile"\nattempts_max = 1\ndead_letter = "dead"\n';

/** Starts a server with these listeners and more tables; resolves when it is ready. */
async function serve(protocols = ["http", "beanstalk", "faktory", "sqs"], more = "") {
  const data = mkdtempSync(path.join(tmpdir(), "quintet-"));
  const script = path.join(data, "job.sh");
  writeFileSync(script, FAILS, { mode: 0o755 });
  const slow = path.join(data, "slow.sh");
  writeFileSync(slow, SLOW(path.join(data, "go-on")), { mode: 0o755 });
  const scripts = { job: script, slow };
  const scripted = Object.entries(scripts).map(([name, file]) => `[[queue]]\nname = "${name}"\nscript = "${file}"\nexec_prefix = ""\n`);
  const tables = protocols.map((protocol) => `[[listen]]\nprotocol = "${protocol}"\naddress = "127.0.0.1:0"\n`);
  const config = path.join(data, "quintet.toml");
  // Small files: a server under test writes little.
  writeFileSync(config, `segment_bytes = "4MiB"\nspare_segments = 1\n${scripted.join("")}${FRAGILE}${tables.join("")}${more}`, { mode: 0o600 });
  const binary = process.env.QUINTET || "quintet";
  const args = ["serve", "--config", config, "--data", path.join(data, "data"), "--sync", "50ms"];
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  const ports = {};
  for await (const line of readline.createInterface({ input: child.stdout })) {
    const words = line.split(" ");
    if (words[0] === "listening") ports[words[1]] = Number(words[2].split(":")[1]);
    if (line === "quintet ready") {
      return {
        data,
        site: `http://127.0.0.1:${ports.http}`,
        beanstalk: ports.beanstalk,
        faktory: ports.faktory,
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

/** The other protocol: what the console has done is looked at over beanstalk. */
class Beanstalk {
  constructor(port) {
    this.socket = net.connect(port, "127.0.0.1");
    this.bytes = "";
    this.socket.setEncoding("latin1");
    this.socket.on("data", (text) => {
      this.bytes += text;
      if (this.wake) this.wake();
    });
  }
  async line() {
    while (!this.bytes.includes("\r\n")) await new Promise((wake) => { this.wake = wake; });
    const at = this.bytes.indexOf("\r\n");
    const line = this.bytes.slice(0, at);
    this.bytes = this.bytes.slice(at + 2);
    return line;
  }
  /** Asks; answers the line and the bytes that it announces. */
  async ask(text) {
    this.socket.write(text + "\r\n");
    const words = (await this.line()).split(" ");
    if (!["OK", "FOUND", "RESERVED"].includes(words[0])) return { word: words[0], words };
    const length = Number(words.at(-1));
    while (this.bytes.length < length + 2) await new Promise((wake) => { this.wake = wake; });
    const body = this.bytes.slice(0, length);
    this.bytes = this.bytes.slice(length + 2);
    return { word: words[0], words, body };
  }
  async put(tube, body) {
    await this.ask(`use ${tube}`);
    const { word, words } = await this.ask(`put 0 0 3600 ${Buffer.byteLength(body)}\r\n${body}`);
    assert.equal(word, "INSERTED");
    return Number(words[1]);
  }
  /** One number of a tube; 0 of one that is not there. */
  async stat(tube, name) {
    const { body } = await this.ask(`stats-tube ${tube}`);
    const found = body && body.match(new RegExp(`^${name}: (.*)$`, "m"));
    return found ? Number(found[1]) : 0;
  }
  close() {
    this.socket.destroy();
  }
}

/** A worker of the faktory protocol that has said its name. */
class Worker {
  constructor(port, hello) {
    this.socket = net.connect(port, "127.0.0.1");
    this.lines = readline.createInterface({ input: this.socket })[Symbol.asyncIterator]();
    this.hello = hello;
  }
  async line() {
    return (await this.lines.next()).value;
  }
  async enter() {
    assert.match(await this.line(), /^\+HI /);
    assert.equal(await this.ask(`HELLO ${JSON.stringify({ v: 2, ...this.hello })}`), "+OK");
  }
  /** Asks; answers the line, or the one that it announces. */
  async ask(text) {
    this.socket.write(text + "\r\n");
    const line = await this.line();
    return /^\$\d/.test(line) ? this.line() : line;
  }
  close() {
    this.socket.destroy();
  }
}

/** Chromium, and what its pages complain of. */
async function browse() {
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
    // Nothing foreign is loaded; in containers there is no room for its sandbox.
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
    protocolTimeout: 120_000,
    timeout: 120_000,
  });
  const complaints = [];
  const open = async (width = 1280) => {
    const page = await browser.newPage();
    await page.setViewport({ width, height: 900 });
    page.setDefaultTimeout(120_000);
    page.on("pageerror", (error) => complaints.push(String(error)));
    page.on("dialog", (dialog) => {
      complaints.push(`a script said ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on("console", (message) => {
      // What a page that is refused says of itself is no complaint.
      if (message.type() === "error" && !/status of 4\d\d/.test(message.text())) complaints.push(message.text());
    });
    return page;
  };
  return { open, complaints, close: () => browser.close() };
}

module.exports = { Beanstalk, Worker, browse, serve };
