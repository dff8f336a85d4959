// Follows a file: asks for what lies behind the bytes it has, and shows ANSI
// colours. Every piece of text is set as text, never as markup.
"use strict";
const log = document.getElementById("log");
const file = log.dataset.file;
const state = log.dataset.state;
const decoder = new TextDecoder();
const shownMax = 2000000;
let at = 0;
let pending = "";
let style = new Set();
let idle = 0;

function code(n) {
  if (n === 0) style.clear();
  else if (n === 1) style.add("b");
  else if (n === 3) style.add("i");
  else if (n === 4) style.add("u");
  else if (n === 22) style.delete("b");
  else if (n === 23) style.delete("i");
  else if (n === 24) style.delete("u");
  else {
    const kind = n >= 90 && n <= 97 ? ["c", n - 90] : n >= 30 && n <= 39 ? ["c", n - 30]
      : n >= 100 && n <= 107 ? ["k", n - 100] : n >= 40 && n <= 49 ? ["k", n - 40] : null;
    if (kind === null) return;
    for (const name of [...style]) if (name.length === 2 && name[0] === kind[0]) style.delete(name);
    if (kind[1] < 8) style.add(kind[0] + kind[1]);
  }
}

function put(text) {
  if (text === "") return;
  const span = document.createElement("span");
  span.className = [...style].join(" ");
  span.textContent = text;
  log.append(span);
}

function show(text) {
  text = pending + text;
  pending = "";
  const escape = /\x1b\[([0-9;?]*)([A-Za-z])/g;
  let from = 0;
  for (let found; (found = escape.exec(text)) !== null; from = escape.lastIndex) {
    put(text.slice(from, found.index));
    if (found[2] === "m") for (const n of found[1].split(";")) code(Number(n || 0));
  }
  const rest = text.slice(from);
  // A sequence that is not whole yet waits for its end.
  const open = rest.match(/\x1b(\[[0-9;?]{0,32})?$/);
  if (open) pending = open[0];
  put(open ? rest.slice(0, open.index) : rest);
  while (log.textContent.length > shownMax && log.firstChild) log.firstChild.remove();
}

async function poll() {
  const bottom = innerHeight + scrollY >= document.body.scrollHeight - 50;
  try {
    const reply = await fetch(file, { headers: { Range: "bytes=" + at + "-" } });
    if (reply.status === 206 || (reply.status === 200 && at === 0)) {
      const bytes = await reply.arrayBuffer();
      at += bytes.byteLength;
      show(decoder.decode(bytes, { stream: true }));
      idle = bytes.byteLength === 0 ? idle + 1 : 0;
      if (bottom) scrollTo(0, document.body.scrollHeight);
    } else {
      idle += 1;
    }
    const now = await (await fetch(state)).json();
    document.getElementById("state").textContent = now[0];
    // Once it runs no more, one look behind the end is enough.
    if (now[0] !== "run" && now[0] !== "que" && idle > 1) return;
  } catch (error) {
    document.getElementById("state").textContent = "no answer";
  }
  setTimeout(poll, 1000);
}
poll();
