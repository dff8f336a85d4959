// The log of a message's page goes on while its script runs. Comes after console.js, whose helpers
// it uses; text is only ever set as text.
"use strict";

// ---- a log in ANSI colours: SGR is understood, every other sequence is dropped ----
class Ansi {
  constructor(to) { this.to = to; this.on = new Map(); this.rest = ""; }
  code(all) {
    for (let i = 0; i < all.length; i += 1) {
      let n = all[i];
      if (n === 38 || n === 48) {
        const small = all[i + 1] === 5 && all[i + 2] < 16;
        i += all[i + 1] === 5 ? 2 : 4;
        n = small ? n - 8 + all[i] % 8 : n + 1;
      }
      if (n === 0) this.on.clear();
      else if (n >= 1 && n <= 4) this.on.set("BDIU"[n - 1], "BDIU"[n - 1]);
      else if (n === 22) { this.on.delete("B"); this.on.delete("D"); }
      else if (n === 23 || n === 24) this.on.delete("IU"[n - 23]);
      else for (const [at, kind] of [[30, "c"], [90, "c"], [40, "k"], [100, "k"]]) {
        if (n >= at && n <= at + 7) this.on.set(kind, kind + (n - at));
        else if (n === at + 9) this.on.delete(kind);
      }
    }
  }
  put(text) {
    if (text === "") return;
    const span = document.createElement("span");
    span.className = [...this.on.values()].join(" ");
    span.textContent = text.replace(/\r\n?/g, "\n").replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, "");
    this.to.append(span);
  }
  show(text) {
    text = this.rest + text;
    const open = text.match(/(?:\r|\x1b)(?:\[[0-9;:?]{0,32}|\][^\x07\x1b]{0,256})?$/);
    this.rest = open ? open[0] : "";
    if (open) text = text.slice(0, open.index);
    let from = 0;
    for (const m of text.matchAll(/\x1b\[([0-9;:?]*)([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)/g)) {
      this.put(text.slice(from, m.index));
      from = m.index + m[0].length;
      if (m[2] === "m") this.code(m[1].split(";").map(Number));
    }
    this.put(text.slice(from));
  }
}
const PIECE = 262144, KEPT = 2000000;
async function follow(log) {
  const button = $("[data-act=follow]"), ansi = new Ansi(log), decoder = new TextDecoder();
  let on = true, at = Number(log.dataset.from), fresh = true, quiet = 0;
  const set = (v) => { on = v; button.setAttribute("aria-pressed", v); button.textContent = v ? "Following" : "Follow"; if (on) log.scrollTop = log.scrollHeight; };
  log.addEventListener("scroll", () => { const end = log.scrollTop + log.clientHeight > log.scrollHeight - 30; if (end !== on) set(end); });
  button.addEventListener("click", () => set(!on));
  for (let wait = 1000; ; await pause(wait)) {
    await seen();
    let reply, bytes;
    try {
      reply = await fetch(log.dataset.follow, { headers: { Range: `bytes=${at}-${at + PIECE - 1}` } });
      bytes = await reply.arrayBuffer();
    } catch { wait = Math.min(wait * 2, 30000); continue; }
    const news = reply.status === 206 ? bytes.byteLength : 0;
    if (news) {
      if (fresh) log.replaceChildren();
      fresh = false;
      at += news;
      ansi.show(decoder.decode(bytes, { stream: true }));
      while (log.textContent.length > KEPT && log.firstChild !== log.lastChild) log.firstChild.remove();
      if (on) log.scrollTop = log.scrollHeight;
    }
    const state = reply.headers.get("quintet-state") || (reply.status === 404 ? "gone" : "");
    quiet = news || /^$|ready|reserved/.test(state) ? 0 : quiet + 1;
    wait = news === PIECE ? 0 : state === "" ? Math.min(wait * 2 + 1, 30000) : 1000;
    // Behind its end one more look: the rest is in the file before the state changes.
    if (quiet < 2) continue;
    const over = $("[data-over]");
    over.textContent = `It is ${state}: load again`;
    over.hidden = false;
    button.hidden = true;
    tell(`The message is ${state}`);
    return;
  }
}
for (const log of $$("pre.log")) { log.scrollTop = log.scrollHeight; if (log.dataset.follow) follow(log); }
