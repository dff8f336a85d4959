// Quintet console. Every page works without this file; it adds keys, selection, live
// figures, chart read-outs and the theme switch. Text is only ever set as text.
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
if (here) here.closest(".tabs").scrollLeft = here.offsetLeft - 60;

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

const pause = (ms) => new Promise((go) => { setTimeout(go, ms); });
/** At once, or when the tab is looked at again. */
const seen = async () => { if (document.hidden) await new Promise((go) => { document.addEventListener("visibilitychange", go, { once: true }); }); };

// ---- charts: the table below a chart is its data, which changes while one looks; all of a page
// have the same steps of time, and show the same one ----
const figures = $$("figure.chart").map((fig) => ({ fig, plot: $(".plot", fig), out: $("output", fig), now: null }));
function point(chart, share) {
  const rows = $$("tbody tr", chart.fig), names = $$("thead th", chart.fig).slice(1);
  const hair = $("line.hair", chart.plot);
  if (share === null || rows.length === 0) {
    if (chart.now !== null) chart.out.textContent = chart.now;
    chart.now = null;
    hair.setAttribute("visibility", "hidden");
    return;
  }
  const i = Math.max(0, Math.min(rows.length - 1, Math.round(share * (rows.length - 1))));
  const [time, ...values] = [...rows[i].cells].map((c) => c.textContent);
  if (chart.now === null) chart.now = chart.out.textContent;
  chart.out.textContent = time + "  " + values.map((v, k) => (names.length > 1 ? names[k].textContent + " " : "") + v).join(", ");
  for (const x of ["x1", "x2"]) hair.setAttribute(x, i / (rows.length - 1) * 600);
  hair.setAttribute("visibility", "visible");
}
for (const { plot } of figures) {
  plot.addEventListener("pointermove", (e) => {
    const box = plot.getBoundingClientRect();
    for (const chart of figures) point(chart, (e.clientX - box.left) / box.width);
  });
  plot.addEventListener("pointerleave", () => { for (const chart of figures) point(chart, null); });
}

// ---- times: the server writes UTC, which stays on hover; the page shows local time ----
const two = (n) => String(n).padStart(2, "0");
function local(at = document) {
  for (const el of $$("[data-t]", at)) {
    if (el.firstElementChild) continue;
    const utc = el.textContent, today = new Date().toISOString().slice(0, 11).replace("T", " ");
    const pattern = /^\d\d:\d\d$/.test(utc) ? /()(\d\d:\d\d)()/ : /(\d{4}-\d\d-\d\d )?(\d\d:\d\d)(:\d\d) UTC/;
    const here = utc.replace(pattern, (all, day, time, s) => {
      const t = new Date((day || today).trim() + "T" + time + (s || ":00") + "Z");
      const date = day ? t.getFullYear() + "-" + two(t.getMonth() + 1) + "-" + two(t.getDate()) + " " : "";
      return date + two(t.getHours()) + ":" + two(t.getMinutes()) + (s && ":" + two(t.getSeconds()));
    });
    el.removeAttribute("data-t");
    el.setAttribute("title", utc.includes("UTC") ? utc : utc + " UTC");
    el.textContent = here;
  }
  for (const el of $$("[data-zone]", at)) el.textContent = "";
}
local();

// ---- live figures: the page is fetched as it is now; figures change, nothing moves ----
const EVERY = 5000, main = $("main");
const dot = $("[data-act=live]");
let live = !/(?:^|; )live=off/.test(document.cookie);
const state = (text, lost) => { dot.textContent = text; dot.classList.toggle("off", !live); dot.classList.toggle("lost", lost); dot.setAttribute("aria-pressed", live); };
function swap(here, other) {
  if (!other || here.isEqualNode(other) || here.matches(".pick") || here.contains(document.activeElement)) return;
  if (here.closest("figure") ? $("figure:hover") : here.matches(":hover")) return;
  here.className.baseVal === undefined && (here.className = other.className);
  here.replaceChildren(...other.childNodes);
}
function refresh(now) {
  const all = new Map($$("[data-f]", now).map((e) => [e.dataset.f, e]));
  const order = (at) => $$("tr[data-f]", at).map((e) => e.dataset.f).join();
  const stale = $("[data-stale]");
  if (stale) stale.hidden = order(document) === order(now);
  for (const here of $$("[data-f]")) {
    const other = all.get(here.dataset.f);
    if (other && here.matches("tr")) [...here.cells].forEach((cell, i) => swap(cell, other.cells[i]));
    else swap(here, other);
  }
}
async function follow_figures() {
  const url = new URL(location.href);
  for (const word of ["notice", ...main.dataset.live.split(" ")]) url.searchParams.delete(word);
  for (let wait = EVERY; ; ) {
    await pause(wait);
    await seen();
    if (!live) continue;
    try {
      const reply = await fetch(url, { signal: AbortSignal.timeout(30000) });
      if (!reply.ok || reply.redirected) throw reply.status;
      const text = await reply.text();
      await seen();
      if (live) { const anew = new DOMParser().parseFromString(text, "text/html"); local(anew); refresh(anew); state("Live", false); }
      wait = EVERY;
    } catch {
      if (live) state("Not live", true);
      wait = Math.min(wait * 2, 30000);
    }
  }
}
if (dot) { state(live ? "Live" : "Stopped", false); follow_figures(); }

// ---- buttons ----
const acts = {
  theme() { const t = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % 3]; theme(t); tell("Theme: " + t); },
  live() { live = !live; state(live ? "Live" : "Stopped", false); document.cookie = "live=" + (live ? "on" : "off") + "; path=/; max-age=31536000; samesite=strict"; },
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
$("[data-places]")?.append($$("[data-go]").map((a) => a.dataset.go + " " + a.textContent).join(", "));
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
  else if (e.key === ".") { if (dot) acts.live(); }
  else if (e.key === "?") acts.keys();
});

