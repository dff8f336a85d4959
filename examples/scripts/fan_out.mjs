#!/usr/bin/env node
// Passes its message on to each queue named in param2, separated by spaces.
// A queue that cannot have it is tried again later; the others are not asked
// twice, as what is left is kept in a file.

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
