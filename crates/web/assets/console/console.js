// Quintet console. Every page works without this file; it adds keys, selection, live
// figures, the log that follows, chart read-outs and the theme switch. Text is only ever
// set as text.
"use strict";
const $ = (s, at = document) => at.querySelector(s);
const $$ = (s, at = document) => [...at.querySelectorAll(s)];
const root = document.documentElement;
root.classList.add("js");

// What a screen reader is told: acts and alarms, never moving figures.
const told = document.createElement("div");
told.className = "hush";
told.setAttribute("role", "status");
document.body.append(told);
const tell = (text) => { told.textContent = ""; setTimeout(() => { told.textContent = text; }, 50); };

// On a phone the places are a strip: the one we are in is brought into sight.
const here = $(".tabs [aria-current]");
if (here) here.parentElement.scrollLeft = here.offsetLeft - 60;

// ---- theme: the server reads the same cookie, so the next page comes right at once ----
const themes = ["auto", "light", "dark"];
const kept = (document.cookie.match(/(?:^|; )theme=(auto|light|dark)/) || [])[1];
function theme(name) {
  if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
  for (const b of $$("[data-act=theme]")) b.setAttribute("aria-label", "Theme: " + name + ". Change");
  document.cookie = "theme=" + name + "; path=/; max-age=31536000; samesite=strict";
}
if (kept) theme(kept);

// ---- selection in a table, shift for a range ----
for (const form of $$("form[data-pick]")) {
  const rows = () => $$("td.pick input", form);
  const all = $("th.pick input", form);
  const bar = $(".bulk", form);
  const idle = bar && $("[data-count]", bar).textContent;
  let last = null;
  const show = () => {
    const on = rows().filter((r) => r.checked);
    for (const r of rows()) r.closest("tr").classList.toggle("on", r.checked);
    if (all) { all.checked = on.length > 0 && on.length === rows().length; all.indeterminate = on.length > 0 && !all.checked; }
    if (!bar) return;
        const every = $("[name=scope][value=all]", bar);
    const total = every && every.checked;
    bar.classList.toggle("some", on.length > 0 || Boolean(total));
    $("[data-count]", bar).textContent = total ? bar.dataset.all + " match" : on.length === 0 ? idle : on.length + " selected";
    for (const b of $$("button[data-needs]", bar)) b.disabled = on.length === 0 && !total;
  };
  form.addEventListener("click", (e) => {
    if (!e.target.matches("td.pick input")) return;
    if (e.shiftKey && last) {
      const list = rows();
      const [a, b] = [list.indexOf(last), list.indexOf(e.target)].sort((x, y) => x - y);
      for (const r of list.slice(a, b + 1)) r.checked = e.target.checked;
    }
    last = e.target;
  });
  form.addEventListener("change", (e) => {
    if (e.target === all) for (const r of rows()) r.checked = all.checked;
    show();
  });
  show();
}

// ---- filter of what is on this page, at once; Enter asks the server for all of it ----
for (const box of $$("input[data-filter]")) {
  const rows = $$(box.dataset.filter);
  const none = $("[data-none]");
  box.addEventListener("input", () => {
    const want = box.value.trim().toLowerCase();
    let n = 0;
    for (const r of rows) { r.hidden = want !== "" && !r.textContent.toLowerCase().includes(want); if (!r.hidden) n += 1; }
    if (none) none.hidden = n > 0;
  });
}

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
const pause = (ms) => new Promise((go) => { setTimeout(go, ms); });
/** At once, or when the tab is looked at again. */
const seen = async () => { if (document.hidden) await new Promise((go) => { document.addEventListener("visibilitychange", go, { once: true }); }); };
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

// ---- charts: the table below a chart is its data ----
for (const fig of $$("figure.chart")) {
  const plot = $(".plot", fig), out = $("output", fig), line = $("line.hair", fig);
  const rows = $$("tbody tr", fig).map((r) => [...r.cells].map((c) => c.textContent));
  if (!plot || rows.length === 0) continue;
  const names = $$("thead th", fig).slice(1).map((h) => h.textContent);
  const now = out.textContent;
  plot.addEventListener("pointermove", (e) => {
    const box = plot.getBoundingClientRect();
    const i = Math.max(0, Math.min(rows.length - 1, Math.round((e.clientX - box.left) / box.width * (rows.length - 1))));
    const [at, ...values] = rows[i];
    out.textContent = at + "  " + values.map((v, k) => (names.length > 1 ? names[k] + " " : "") + v).join(", ");
    const x = i / (rows.length - 1) * 600;
    line.setAttribute("x1", x); line.setAttribute("x2", x); line.removeAttribute("visibility");
  });
  plot.addEventListener("pointerleave", () => { out.textContent = now; line.setAttribute("visibility", "hidden"); });
}

// ---- buttons ----
let live = true;
const acts = {
  theme() { const t = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % 3]; theme(t); tell("Theme: " + t); },
  live(b) { live = !live; b.classList.toggle("off", !live); b.textContent = live ? "Live" : "Stopped"; b.setAttribute("aria-pressed", live); },
  keys() { const d = $("dialog"); if (d && !d.open) d.showModal(); },
  async copy(b) { try { await navigator.clipboard.writeText($(b.dataset.what).textContent); tell("Copied"); b.lastChild.textContent = "Copied"; } catch { tell("The browser did not allow it"); } },
};
addEventListener("click", (e) => {
  const b = e.target.closest("[data-act]");
  if (b && acts[b.dataset.act]) acts[b.dataset.act](b);
  for (const m of $$("details.menu[open]")) if (!m.contains(e.target)) m.open = false;
});

// A name typed for a big deletion: the button waits for it. The server asks again.
for (const box of $$("input[data-must]")) {
  const go = $("button.last", box.form);
  const same = () => { go.disabled = box.value !== box.dataset.must; };
  box.addEventListener("input", same); same();
}

// ---- keys: single ones only outside of fields, all of them in the list under "?" ----
const places = Object.fromEntries($$("[data-go]").map((a) => [a.dataset.go, a.href]));
let gone = 0;
const step = (by) => {
  const links = $$("tbody tr:not([hidden]) a[data-row]");
  const at = links.findIndex((a) => a.closest("tr").contains(document.activeElement));
  const to = links[Math.max(0, Math.min(links.length - 1, at + by))];
  if (to) to.focus();
};
addEventListener("keydown", (e) => {
  if (e.key === "Escape") { for (const m of $$("details.menu[open]")) { m.open = false; $("summary", m).focus(); } if (e.target.matches("input[type=search]")) e.target.blur(); return; }
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input:not([type=checkbox]):not([type=radio]), select, textarea") || root.dataset.keys === "off") return;
  if (Date.now() - gone < 1200) { gone = 0; if (places[e.key]) location.href = places[e.key]; return; }
  const row = document.activeElement.closest && document.activeElement.closest("tr");
  if (e.key === "g") gone = Date.now();
  else if (e.key === "/") { e.preventDefault(); ($("input[data-filter]") || $(".find input")).focus(); }
  else if (e.key === "j") step(1);
  else if (e.key === "k") step(-1);
  else if (e.key === "x" && row && $("td.pick input", row)) $("td.pick input", row).click();
  else if (e.key === "p" && $("[data-key=p]")) location.href = $("[data-key=p]").href;
  else if (e.key === ".") { const b = $("[data-act=live]"); if (b) acts.live(b); }
  else if (e.key === "?") acts.keys();
});

