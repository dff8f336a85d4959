#!/usr/bin/env node
// Copies its message to each queue named in param2, separated by spaces. If a
// queue does not accept it, the script tries that queue again later. A file keeps
// the queues that are left, so the others get no second copy.

import { existsSync, readFileSync, readSync, writeFileSync, writeSync } from "node:fs";

const { RQ_WRITE, RQ_READ, RQ_PARAM2 } = process.env;
const tell = (word, text) => writeSync(Number(RQ_WRITE), `${word} ${text}\n`);

function answer() {
  const byte = Buffer.alloc(1);
  let line = "";
  while (readSync(Number(RQ_READ), byte) === 1 && byte[0] !== 10) {
    line += byte.toString("latin1");
  }
  return line;
}

const rest = existsSync("left") ? readFileSync("left", "utf8") : RQ_PARAM2;
const left = rest.split(/\s+/).filter((queue) => {
  if (!queue) return false;
  tell("dup", `0-X-${queue}`);
  const said = answer();
  console.log(`${queue}: ${said}`);
  return !said.startsWith("ok ");
});
writeFileSync("left", left.join(" "));
if (left.length) tell("resend", `60-not taken by ${left.join(", ")}`);
else tell("done", "passed on");
