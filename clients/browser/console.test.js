"use strict";
// What a person does with the console, each act seen through another protocol.

const assert = require("node:assert/strict");
const { execFileSync } = require("node:child_process");
const { readFileSync, writeFileSync } = require("node:fs");
const path = require("node:path");
const { after, before, test } = require("node:test");
const { Beanstalk, Worker, browse, serve } = require("./world.js");

const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
// Longer than anything takes on a busy machine.
const PATIENCE_MS = 120_000;
// From the phone of the page before to the desk, where axe looks first.
const WIDTHS = [390, 320, 768, 1440];
const MARKUP = "<script>document.title='owned'</script><img src=x onerror=alert(1)>";

let server, beans, browser, page;
before(async () => {
  server = await serve();
  beans = new Beanstalk(server.beanstalk);
  browser = await browse();
  page = await browser.open();
});
after(async () => {
  if (browser) await browser.close();
  if (beans) beans.close();
  if (server) await server.stop();
});

const go = (path) => page.goto(server.site + path);
/** Clicks, and waits for the page behind it. */
const follow = (selector) => Promise.all([page.waitForNavigation(), page.click(selector)]);
/** A button or a link by its words. */
const named = (text) => `::-p-xpath(//main//*[self::a or self::button][contains(normalize-space(.), ${JSON.stringify(text)})])`;
const note = () => page.$eval(".note", (p) => p.textContent);
const text = () => page.$eval("main", (main) => main.innerText);
/** Waits until it is so on the page. It asks now and then, as each frame would be work for the processor. */
const seen = (so, ...values) => page.waitForFunction(so, { polling: 100, timeout: PATIENCE_MS }, ...values);

test("a storm of delayed messages comes due", async () => {
  // Looked at by the last test but some: its minute is over then.
  const messages = Array.from({ length: 600 }, () => ({ body: "x", delay_ms: 1000 }));
  for (let n = 0; n < 2; n += 1) {
    const reply = await fetch(`${server.site}/api/v1/queues/storm/messages`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ messages }) });
    assert.equal(reply.status, 201);
  }
});

test("put by the form", async () => {
  await go("/");
  await follow("a[data-key=p]");
  await page.type("#to", "work");
  await page.type("#body", '{"to":"ana"}');
  await follow("main form button.main");
  assert.match(await note(), /^Message \d+ was put into work/);
  const { body } = await (await beans.ask("use work"), beans.ask("peek-ready"));
  assert.equal(body, '{"to":"ana"}');
  assert.match(await text(), /"to": "ana"/);
});

test("browse: row by row with keys, filtered, one opened", async () => {
  for (let n = 0; n < 60; n += 1) await beans.put("many", `body ${n}.`);
  await go("/");
  await page.keyboard.press("/");
  await page.keyboard.type("many");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  assert.match(page.url(), /\/queues\/many$/);
  assert.equal((await page.$$("tbody a[data-row]")).length, 50);
  // Messages are in sight without scrolling.
  const top = await page.$eval("tbody a[data-row]", (a) => a.getBoundingClientRect().top);
  assert.ok(top < 700, `the first message is ${top} px below the top`);
  await follow(named("Next"));
  assert.equal((await page.$$("tbody a[data-row]")).length, 10);
  await page.type("#has", "body 17.");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  assert.equal((await page.$$("tbody a[data-row]")).length, 1);
  await follow("tbody a[data-row]");
  assert.match(await text(), /body 17\./);
  // Each way of showing it.
  await page.click("label[for=way-hex]");
  assert.match(await page.$eval(".w-hex pre", (pre) => pre.innerText), /^00000000 {2}62 6f 64 79/);
});

test("the help of keys lists the pages of the menu", async () => {
  await go("/");
  await page.keyboard.press("?");
  const told = await page.$eval("dialog[open] [data-places]", (dd) => dd.textContent);
  const menu = await page.$$eval("[data-go]", (all) => all.map((a) => `${a.dataset.go} ${a.textContent}`));
  assert.equal(told, menu.join(", "));
  assert.match(told, /^q Queues, d Waiting, l Leases/);
});

test("bury, and retry what was buried", async () => {
  const id = await beans.put("fails", "one");
  await go(`/messages/${id}`);
  await follow(named("Bury"));
  assert.equal(await beans.stat("fails", "current-jobs-buried"), 1);
  await go("/");
  assert.match(await text(), /fails set aside 1 failed message/);
  await follow('a[aria-label="Show the buried messages of fails"]');
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  assert.match(await page.$eval("[data-count]", (span) => span.textContent), /1 selected/);
  await follow('button[formaction$="/ask/retry"]');
  assert.match(await text(), /Retry 1 message\?/);
  await follow("main form button.main");
  assert.match(await note(), /1 message ready again/);
  assert.equal(await beans.stat("fails", "current-jobs-buried"), 0);
  assert.equal(await beans.stat("fails", "current-jobs-ready"), 1);
});

test("move all to another queue", async () => {
  await go("/queues/many");
  await page.click("th.pick input");
  await page.click("input[name=scope]");
  await follow('button[formaction$="/ask/move"]');
  await page.type("#to", "elsewhere");
  await follow("main form button.main");
  assert.match(await note(), /60 messages moved/);
  assert.equal(await beans.stat("elsewhere", "current-jobs-ready"), 60);
  assert.equal(await beans.stat("many", "current-jobs-ready"), 0);
});

test("purge asks, counts, and can be left", async () => {
  await go("/queues/elsewhere");
  await page.click("summary");
  await follow(named("Purge…"));
  assert.match(await text(), /60 are deleted/);
  await follow(named("Cancel"));
  assert.equal(await beans.stat("elsewhere", "current-jobs-ready"), 60);
  await go("/queues/elsewhere/ask/purge");
  const later = await beans.put("elsewhere", "later");
  await follow("button.last");
  assert.match(await note(), /60 messages deleted/);
  assert.equal((await beans.ask(`peek ${later}`)).body, "later");
});

test("a big deletion waits for the name", async () => {
  for (let n = 0; n < 1001; n += 1) await beans.put("big", "x");
  await go("/queues/big/ask/purge");
  assert.equal(await page.$eval("button.last", (button) => button.disabled), true);
  await page.type("#sure", "big");
  assert.equal(await page.$eval("button.last", (button) => button.disabled), false);
  await follow("button.last");
  assert.equal(await beans.stat("big", "current-jobs-ready"), 0);
});

test("pause and resume", async () => {
  await go("/queues/work");
  await follow(named("Pause"));
  assert.match(await note(), /^Paused/);
  await beans.ask("watch work");
  assert.equal((await beans.ask("reserve-with-timeout 0")).word, "TIMED_OUT");
  await go("/");
  await follow('button[aria-label="Resume work"]');
  assert.equal((await beans.ask("reserve-with-timeout 0")).word, "RESERVED");
});

test("a lease is put back, a connection closed", async () => {
  await go("/queues/work?state=reserved");
  await follow("tbody a[data-row]");
  await follow(named("Put back"));
  assert.equal(await beans.stat("work", "current-jobs-ready"), 1);
  const other = new Beanstalk(server.beanstalk);
  await other.put("work", "x");
  const closed = new Promise((resolve) => other.socket.once("close", resolve));
  await go("/connections?protocol=beanstalk");
  const ids = await page.$$eval("tbody button", (all) => all.map((b) => Number(b.getAttribute("aria-label").split(" ")[2])));
  await follow(`button[aria-label="Close connection ${Math.max(...ids)}"]`);
  await closed;
});

test("the leases of all queues: one is put back from the list", async () => {
  await beans.put("leased", "x");
  await beans.ask("watch leased");
  await beans.ask("ignore work");
  const { word, words } = await beans.ask("reserve-with-timeout 0");
  assert.equal(word, "RESERVED");
  await go("/");
  await page.keyboard.press("g");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("l")]);
  assert.match(page.url(), /\/leases$/);
  assert.match(await text(), /leased/);
  await follow(`button[aria-label="Put message ${words[1]} back"]`);
  assert.match(page.url(), /\/leases/);
  assert.match(await note(), /^Put back/);
  assert.equal(await beans.stat("leased", "current-jobs-ready"), 1);
});

test("what was begun on many messages is listed", async () => {
  await go("/operations");
  assert.match(await text(), /purge[^]*deleted/);
});

test("redrive sends dead letters back to where they came from", async () => {
  await beans.put("fragile", "x");
  await beans.ask("watch fragile");
  await beans.ask("ignore leased");
  const { words } = await beans.ask("reserve-with-timeout 0");
  await beans.ask(`release ${words[1]} 0 0`);
  assert.equal(await beans.stat("dead", "current-jobs-ready"), 1);
  await go("/queues/dead/ask/redrive");
  assert.match(await text(), /fragile/);
  await follow("main form button.main");
  assert.match(await note(), /1 message sent back/);
  assert.equal(await beans.stat("dead", "current-jobs-ready"), 0);
  assert.equal(await beans.stat("fragile", "current-jobs-ready"), 1);
});

test("a script is watched as it fails, and its log read", async () => {
  await go("/put?queue=job");
  await page.type("#body", "one");
  await follow("main form button.main");
  const until = Date.now() + PATIENCE_MS;
  while (!/out of memory/.test(await text())) {
    assert.ok(Date.now() < until, await text());
    await page.reload();
  }
  await go("/queues/job");
  await follow(named("script queue: RQ page"));
  assert.match(await page.$eval("body", (body) => body.innerText), /err: 1/);
  await follow("ul li a");
  await follow("::-p-xpath(//h2[.='Log']/following::a[.='follow'])");
  const red = await seen(() =>
    [...document.querySelectorAll("pre span")].find((span) => span.textContent.includes("red alert")));
  assert.notEqual(await red.evaluate((span) => span.className), "");
});

test("a log goes on by itself while its script runs, and tells its end", async () => {
  const id = await beans.put("slow", "one");
  await go(`/messages/${id}`);
  await seen(() => document.querySelector("pre.log .c2")?.textContent.includes("begun"));
  // Nobody loads it again: what comes is added, and as text.
  await page.evaluate(() => { window.same = true; });
  writeFileSync(path.join(server.data, "go-on"), "");
  await seen(() => document.querySelector("pre.log .c1")?.textContent.includes("<b>red</b>"));
  await seen(() => !document.querySelector("[data-over]").hidden);
  assert.equal(await page.evaluate(() => window.same), true);
  assert.match(await page.$eval("[data-over]", (a) => a.textContent), /It is buried/);
  await follow("[data-over]");
  assert.match(await text(), /buried/);
  assert.equal(await page.$eval("pre.log .c1", (span) => span.textContent), "<b>red</b>");
});

test("figures refresh themselves, and nothing moves", async () => {
  await beans.put("calm", "1");
  await beans.put("other", "1");
  await go("/?sort=name");
  await page.evaluate(() => { window.same = true; });
  const ready = (queue, number) => seen((queue, number) =>
    document.querySelector(`tr[data-f="q/${queue}"] [data-l=ready]`)?.textContent === number, queue, number);
  await ready("calm", "1");
  const rows = await page.$$eval("tr[data-f]", (all) => all.map((row) => row.dataset.f));
  await page.focus('a[href$="/queues/calm"]');
  await beans.put("calm", "2");
  await ready("calm", "2");
  assert.equal(await page.evaluate(() => window.same && document.activeElement.textContent), "calm");
  assert.equal(await page.$eval("[data-stale]", (a) => a.hidden), true);
  // A queue that is new makes no row, but a word.
  await beans.put("brand-new", "1");
  await seen(() => !document.querySelector("[data-stale]").hidden);
  assert.deepEqual(await page.$$eval("tr[data-f]", (all) => all.map((row) => row.dataset.f)), rows);
  // Nothing that changes is announced.
  const loud = await page.$$eval("[data-f]", (all) => all.filter((one) =>
    one.closest("[aria-live=polite], [aria-live=assertive], [role=status], [role=alert], [role=log], output:not([aria-live=off])")).length);
  assert.equal(loud, 0);
  // Stopped, it stays stopped on the next page, which asks for nothing; and goes on.
  await page.keyboard.press(".");
  await go("/queues/calm");
  assert.equal(await page.$eval("[data-act=live]", (b) => b.textContent + b.getAttribute("aria-pressed")), "Stoppedfalse");
  await page.click("[data-act=live]");
  const facts = await page.$eval(".facts", (dl) => dl.textContent);
  await page.type("#has", "typed");
  await beans.put("calm", "3");
  await seen((was) => document.querySelector(".facts").textContent !== was, facts);
  await seen(() => document.querySelector('[data-f="state/ready"] data').value === "3");
  assert.equal(await page.$eval("#has", (input) => input.value), "typed");
  assert.equal((await page.$$("tbody tr a[data-row]")).length, 2);
  // A tab nobody looks at asks for nothing until somebody does.
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => window.away });
    window.away = true;
  });
  await beans.put("calm", "4");
  await page.evaluate(() => { window.away = false; document.dispatchEvent(new Event("visibilitychange")); });
  await seen(() => document.querySelector('[data-f="state/ready"] data').value === "4");
});

test("queues with a script: what runs, and what failed last", async () => {
  await go("/");
  await page.keyboard.press("g");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("s")]);
  assert.match(page.url(), /\/scripts$/);
  assert.match(await text(), /job[^]*out of memory[^]*slow[^]*too slow/);
  await follow("tbody .sub a.id");
  assert.match(await text(), /out of memory[^]*Log of the runs[^]*red alert/);
});

test("several queues are selected and acted on, with the count first", async () => {
  for (const queue of ["bulk-a", "bulk-b", "bulk-c"]) for (let n = 0; n < 2; n += 1) await beans.put(queue, "x");
  await go("/?name=bulk-*&sort=name");
  const pick = (queue) => page.click(`input[aria-label="Select ${queue}"]`);
  assert.equal(await page.$eval('button[formaction$="/purge"]', (button) => button.disabled), true);
  await pick("bulk-a");
  await pick("bulk-b");
  assert.match(await page.$eval("[data-count]", (span) => span.textContent), /2 selected/);
  // What refreshes itself leaves the selection alone.
  await beans.put("bulk-c", "x");
  await seen(() => document.querySelector('tr[data-f="q/bulk-c"] [data-l=ready]').textContent === "3");
  assert.match(await page.$eval("[data-count]", (span) => span.textContent), /2 selected/);
  await follow('button[formaction$="/purge"]');
  assert.match(await text(), /Purge 2 queues\?/);
  await follow("button.last");
  assert.match(await note(), /4 messages of 2 queues deleted/);
  for (const [queue, left] of [["bulk-a", 0], ["bulk-b", 0], ["bulk-c", 3]]) {
    assert.equal(await beans.stat(queue, "current-jobs-ready"), left);
  }
  await go("/?name=bulk-*&sort=name");
  await page.click("th.pick input");
  await follow('button[formaction$="/pause"]');
  await follow("main form button.main");
  assert.match(await note(), /3 queues paused/);
  await go("/?name=bulk-*&sort=name");
  await page.click("th.pick input");
  await follow('button[formaction$="/delete"]');
  assert.equal(await page.$eval("button.last", (button) => button.disabled), true);
  await page.type("#sure", "3 queues");
  await follow("button.last");
  assert.match(await note(), /3 queues deleted/);
  // The connection that used it last keeps its name, and nothing in it.
  assert.equal(await beans.stat("bulk-c", "current-jobs-ready"), 0);
  assert.equal((await beans.ask("stats-tube bulk-a")).word, "NOT_FOUND");
});

test("what holds for a queue, and a reload", async () => {
  await go("/queues/fragile");
  await page.click("#setup summary");
  assert.match(await text(), /attempts_max[^]*1 file/);
  await go("/settings");
  await follow(named("Reload"));
  assert.match(await note(), /Configuration reloaded/);
});

test("a limit is changed, which counts at once, and undone by one click", async () => {
  await beans.put("limits", "a");
  await beans.put("limits", "b");
  await go("/queues/limits");
  await page.click("#setup summary");
  await follow("#setup a");
  assert.equal((await page.$$('input[aria-label="memory"]')).length, 0, "only the file says that");
  await page.type("#has", "most messages under a lease");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  const set = async (value) => {
    await page.click('input[aria-label="in_flight_max"]', { count: 3 });
    await page.keyboard.type(value);
    await follow('button[aria-label="Set in_flight_max"]');
  };
  await set("1");
  assert.match(await note(), /Changed: in_flight_max is 1 now\./);
  // By the browser's clock, with UTC on hover.
  const [said, title] = await page.$eval('tr:has([aria-label="Undo in_flight_max"]) .tag', (tag) => [tag.textContent, tag.title]);
  assert.match(said, /^set \d\d:\d\d:\d\d$/);
  assert.match(title, /^set \d\d:\d\d:\d\d UTC$/);
  const taker = new Beanstalk(server.beanstalk);
  await taker.ask("watch limits");
  await taker.ask("ignore default");
  assert.equal((await taker.ask("reserve-with-timeout 0")).word, "RESERVED");
  assert.equal((await taker.ask("reserve-with-timeout 0")).word, "TIMED_OUT");
  await set("many");
  assert.match(await note(), /Not changed: in_flight_max takes/);
  await follow('button[aria-label="Undo in_flight_max"]');
  assert.match(await note(), /Undone: in_flight_max is 0 again\./);
  assert.equal((await taker.ask("reserve-with-timeout 0")).word, "RESERVED");
  taker.close();
});

test("of two people who change the settings the second is told", async () => {
  await go("/queues/limits/settings");
  const first = await page.evaluate(async () => (await fetch("/api/v1/queues/limits/settings", {
    method: "PATCH", headers: { "content-type": "application/json" }, body: '{"take_rate": "5/s"}',
  })).status);
  assert.equal(first, 200);
  await page.click('input[aria-label="take_rate"]', { count: 3 });
  await page.keyboard.type("50/s");
  await follow('button[aria-label="Set take_rate"]');
  assert.match(await note(), /Not changed: another user changed the settings meanwhile\. take_rate is "5\/s"/);
});

test("what is scheduled, retried and dead over all queues", async () => {
  await beans.ask("use tomorrow");
  const { words } = await beans.ask("put 0 86400 60 1\r\nx");
  await go("/waiting");
  assert.match(await text(), new RegExp(`${words[1]}\\s+tomorrow`));
  await go("/");
  for (const n of [1, 2]) {
    await api("/queues/fragile/messages", { messages: [{ body: `job ${n}` }] });
    const { messages } = await api("/queues/fragile/reserve", { max: 10 });
    for (const { lease } of messages) await page.evaluate((lease, error) => fetch(`/api/v1/leases/${lease}/fail`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ error }) }), lease, `HTTP 50${n} at once`);
  }
  await go("/waiting?group=dead");
  assert.match(await text(), /HTTP 502 at once\s+from fragile/);
  await go("/queues/dead");
  await follow(named("Group by error"));
  assert.match(await page.$eval("#errors", (table) => table.innerText), /HTTP # at once[^]*\b[23]\b/);
  await follow("#errors a");
  const before = await beans.stat("dead", "current-jobs-ready");
  await page.click("td.pick input");
  await follow('button[formaction$="/ask/redrive"]');
  assert.match(await text(), /Redrive 1 message\?/);
  await follow("main form button.main");
  assert.match(await note(), /1 message sent back/);
  assert.equal(await beans.stat("dead", "current-jobs-ready"), before - 1);
});

test("JSON is folded, a copy put, the body changed", async () => {
  const id = await beans.put("shapes", '{"to":{"name":"ana","ids":[1,2,3]},"n":1.50}');
  await go(`/messages/${id}`);
  assert.match(await page.$eval(".tree", (tree) => tree.innerText), /"name": "ana"/);
  await page.click(".tree details details summary");
  assert.doesNotMatch(await page.$eval(".tree", (tree) => tree.innerText), /"name": "ana"/);
  await follow(named("Put a copy"));
  await follow("main form button.main");
  assert.equal(await beans.stat("shapes", "current-jobs-ready"), 2);
  await follow(named("Edit"));
  await page.click("#body", { count: 3 });
  await page.keyboard.type("other");
  await follow("main form button.main");
  assert.match(await note(), /Changed: the message has the id \d+ now\./);
  assert.match(await text(), /Timeline\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s+put/);
});

test("an address that is nowhere has the console's frame", async () => {
  const reply = await go("/nowhere");
  assert.equal(reply.status(), 404);
  assert.match(await text(), /Not found/);
  await follow(named("All queues"));
});

/** Asks the JSON API, from the browser's own page. */
const api = (path, body) => page.evaluate(async (path, body) => {
  const reply = await fetch(`/api/v1${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}, path, body);
const newBatch = (description, more) => api("/batches", { description, success: { queue: "reports", body: "done" }, ...more });

test("a batch is found, watched, committed and forgotten", async () => {
  await go("/");
  const { id } = await newBatch("March's reports");
  await newBatch(MARKUP, { parent: id });
  await page.keyboard.press("g");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("b")]);
  assert.match(page.url(), /\/batches$/);
  await page.keyboard.press("/");
  await page.keyboard.type("march");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  assert.match(page.url(), new RegExp(`/batches/${id}$`));
  // Its numbers go on by themselves.
  await page.evaluate(() => { window.same = true; });
  const { ids } = await api("/queues/pages/messages", { messages: [{ body: "1", batch: id }] });
  await seen(() => /Messages\s*1/.test(document.querySelector(".facts").innerText));
  assert.equal(await page.evaluate(() => window.same), true);
  await follow(named("Commit"));
  assert.match(await note(), /^Committed/);
  await go(`/messages/${ids[0]}`);
  await follow(`main a[href$="/batches/${id}"]`);
  await follow(named("Forget…"));
  assert.match(await text(), /1 message: kept as ordinary messages/);
  await follow(named("Cancel"));
  await follow(named("Forget…"));
  await follow("button.last");
  assert.match(await note(), /is forgotten/);
  assert.doesNotMatch(await text(), /March/);
});

test("a worker is asked to be quiet and to end", async () => {
  await go("/workers");
  assert.match(await text(), /No worker is known/);
  const worker = new Worker(server.faktory, { wid: "w1", hostname: "box", pid: 7, labels: ["mail"] });
  await worker.enter();
  await page.reload();
  assert.match(await text(), /w1[^]*mail[^]*box, process 7[^]*running/);
  await follow('a[aria-label="Quiet: w1"]');
  await follow("main form button.main");
  assert.match(await note(), /w1 gets no more jobs/);
  assert.equal(await worker.ask('BEAT {"wid":"w1"}'), '{"state":"quiet"}');
  await follow('a[aria-label="End: w1"]');
  await follow("main form button.main");
  assert.equal(await worker.ask('BEAT {"wid":"w1"}'), '{"state":"terminate"}');
  worker.close();
});

test("a queue in the words of SQS", async () => {
  await beans.put("orders", "x");
  await go("/queues/orders");
  await page.click("#elsewhere summary");
  assert.match(await text(), /Amazon SQS standard queue[^]*URL\s+http:\/\/127\.0\.0\.1:\d+\/000000000000\/orders[^]*\(visible\)\s+1/);
  // It stays open while its numbers go on.
  await beans.put("orders", "y");
  await seen(() => /\(visible\)\s+2/.test(document.querySelector("#elsewhere").innerText));
});

test("no script runs, whatever a name or a body says", async () => {
  const id = await beans.put("markup", MARKUP);
  for (const path of ["/queues/markup", `/messages/${id}`]) {
    await go(path);
    assert.match(await text(), /<script>document\.title/);
    assert.notEqual(await page.title(), "owned");
  }
  for (const name of ["../../etc", "\\xff\\x00raw", "<b>bold</b>"]) {
    await go("/put");
    await page.type("#to", name);
    await page.type("#body", "x");
    await follow("main form button.main");
    await go("/");
    await page.type("#find", name);
    await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
    assert.match(page.url(), /\/queues\/~[0-9a-f]+$/);
    assert.equal(await page.$eval("h1", (h1) => h1.textContent), name);
  }
});

/** Rules whose answer depends on colours, or on what a width shows and hides. */
const SEEN = ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "button-name", "link-name", "label", "select-name"];

/** Serious and critical violations of all rules, or of these, that axe finds on the page in this theme: their rules and elements. */
async function violations(theme, rules) {
  const found = await page.evaluate((theme, rules) => {
    document.documentElement.dataset.theme = theme;
    const only = rules ? { runOnly: { type: "rule", values: rules } } : {};
    return window.axe.run({ resultTypes: ["violations"], ...only });
  }, theme, rules);
  const grave = found.violations.filter((one) => ["serious", "critical"].includes(one.impact));
  return grave.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" ")}`);
}

/** Removes rows that differ from one before only in their words and numbers: axe would say the same of each. */
function thin() {
  for (const body of document.querySelectorAll("tbody")) {
    const shapes = new Set();
    for (const row of [...body.rows]) {
      const named = row.outerHTML.replace(/ (?!class|type|role|style|aria-(?!label))([a-z-]+)="[^"]+"/g, " $1=x");
      const shape = named.replace(/>[^<>]*[^<>\s][^<>]*/g, ">x");
      if (shapes.has(shape)) row.remove();
      shapes.add(shape);
    }
  }
}

test("what somebody cannot read or use is found", async () => {
  const rules = async (theme, only) => (await violations(theme, only)).map((one) => one.split(":")[0]).sort();
  await go("/put");
  await page.evaluate(AXE);
  assert.deepEqual(await rules("light"), []);
  assert.deepEqual(await rules("dark"), []);
  await page.evaluate(() => {
    document.querySelectorAll("label[for=body], label[for=to]").forEach((label) => label.remove());
    document.querySelectorAll("main form button").forEach((button) => { button.textContent = ""; });
    document.documentElement.removeAttribute("lang");
    document.querySelector("h1").style.color = "#ddd";
  });
  assert.deepEqual(await rules("light"), ["button-name", "color-contrast", "html-has-lang", "label", "label-title-only"]);
  assert.deepEqual(await rules("dark", SEEN), ["button-name", "label"]);
  await page.evaluate(() => { document.querySelector("h1").style.color = "#333"; });
  assert.deepEqual(await rules("dark", SEEN), ["button-name", "color-contrast", "label"]);
});

test("rows are left out if they differ in nothing but words", async () => {
  await page.setContent(`<table><tbody><tr><td class="n">1</td></tr><tr><td class="n">2</td></tr><tr><td></td></tr>
    <tr><td class="bad">3</td></tr><tr><td class="n"><a href="a">1</a></td></tr><tr><td class="n"><a href="b">2</a></td></tr></tbody></table>`);
  await page.evaluate(thin);
  assert.deepEqual(await page.$$eval("td", (all) => all.map((td) => td.className + td.textContent)), ["n1", "", "bad3", "n1"]);
});

/** The page can be read by all: its tables, its width, and what axe says, in one theme as a whole and on a phone in the other, by turns. */
async function readable(path, turn) {
  assert.equal(await page.$eval("html", (html) => html.dataset.theme), "dark");
  const uneven = await page.$$eval("table", (tables) => tables.flatMap((table) => {
    const wide = (row) => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0);
    return [...new Set([...table.rows].map(wide))].length > 1 ? [table.outerHTML.slice(0, 300)] : [];
  }));
  assert.deepEqual(uneven, [], `${path} has rows without headings`);
  // The policy of the pages lets no script in but their own: the test's comes by the protocol.
  await page.evaluate(AXE);
  for (const width of WIDTHS) {
    await page.setViewport({ width, height: 800 });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(wide <= 0, `${path} is ${wide} px too wide at ${width}`);
  }
  if (!process.env.QUINTET_LONG) await page.evaluate(thin);
  const themes = turn % 2 ? ["dark", "light"] : ["light", "dark"];
  const looks = [[1440, themes[0]], [390, themes[1], SEEN]];
  if (process.env.QUINTET_LONG) looks.push([390, themes[0]], [768, themes[0]], [768, themes[1], SEEN], [1440, themes[1], SEEN]);
  for (const [width, theme, rules] of looks) {
    await page.setViewport({ width, height: 800 });
    assert.deepEqual(await violations(theme, rules), [], `${path}, ${theme}, ${width}`);
  }
}

test("every page can be read by all, in both themes and on a phone", async () => {
  const id = await beans.put("fails", "{}");
  await go(`/messages/${id}`);
  await follow(named("Bury"));
  const long = "long-".repeat(40);
  await beans.put(long, "y".repeat(3000));
  await go("/");
  const batch = (await newBatch(long)).id;
  await newBatch("", { parent: batch });
  const worker = new Worker(server.faktory, { wid: `worker-${"x".repeat(60)}`, hostname: long, pid: 7, labels: ["a", "b"] });
  await worker.enter();
  await page.setCookie({ name: "theme", value: "dark", url: server.site });
  const slow = (await beans.ask("use slow"), await beans.ask("peek-buried")).words[1];
  // A worker is known for a minute after it said something: its pages come first.
  const paths = ["/workers", `/workers/${worker.hello.wid}/ask/quiet`, "/", `/messages/${slow}`, "/?sort=ready", "/put", "/queues/fails", "/queues/fails?state=buried", `/queues/${long}`,
    "/queues/fails/ask/purge", `/bulk/delete?queue=fails&queue=${long}&queue=job`, "/bulk/pause?queue=fails", "/queues/fails/ask/move", "/queues/fails/ask/drop", `/messages/${id}`, "/connections", "/schedules", "/leases",
    "/batches", "/batches?only=done", "/schedules/form", `/batches/${batch}`, `/batches/${batch}/ask/forget`, "/queues/orders",
    "/operations", "/scripts", "/settings", "/settings?only=said", "/hooks", "/log", "/queues/none",
    "/waiting", "/waiting?group=dead", "/waiting?group=all&has=x", "/queues/storm", "/queues/limits/settings", "/queues/limits/settings?has=take_rate", `/messages/${id}/edit`, `/put?copy=${id}`, "/queues/fails?state=buried&group=1", "/nowhere"];
  for (const [turn, path] of paths.entries()) {
    const reply = await go(path);
    assert.equal(reply.status(), ["/nowhere", "/queues/none"].includes(path) ? 404 : 200, path);
    await readable(path, turn);
  }
  const ann = execFileSync(process.env.QUINTET || "quintet", ["passwd", "ann"], { input: "hush\n", encoding: "utf8" });
  const guarded = await serve(["http"], ann);
  try {
    await page.goto(guarded.site);
    assert.match(page.url(), /\/login\?next=/);
    await readable("/login", 0);
    await page.type("#name", "ann");
    await page.type("#secret", "guess");
    await follow("button.main");
    assert.match(await text(), /Wrong name, password or token/);
    await readable("/login with a wrong password", 1);
  } finally {
    await guarded.stop();
  }
  await page.setViewport({ width: 1280, height: 900 });
  worker.close();
});

test("what came due is movement, and all charts show the same minute", async () => {
  const until = Date.now() + PATIENCE_MS;
  const due = () => page.$$eval("figure.chart", (all) => all.flatMap((fig) => {
    const at = [...fig.querySelectorAll("thead th")].findIndex((th) => th.textContent === "came due");
    return at < 0 ? [] : [...fig.querySelectorAll("tbody tr")].map((row) => parseFloat(row.cells[at].textContent));
  }));
  await go("/queues/storm");
  while (!(await due()).some((rate) => rate > 0)) {
    assert.ok(Date.now() < until, await text());
    await new Promise((done) => { setTimeout(done, 500); });
    await page.reload();
  }
  for (const path of ["/queues/storm", "/"]) {
    await go(path);
    const shown = () => page.$$eval("figure.chart", (all) => all.map((fig) => {
      const hair = fig.querySelector("line.hair");
      return [fig.querySelector("output").textContent, hair.getAttribute("visibility"), hair.getAttribute("x1")];
    }));
    const before = await shown();
    assert.ok(before.length > 1, path);
    await page.$eval(".plot", (plot) => plot.scrollIntoView({ block: "center" }));
    const box = await (await page.$(".plot")).boundingBox();
    await page.mouse.move(box.x + box.width / 3, box.y + 20);
    const pointed = await shown();
    const minutes = new Set(pointed.map(([words]) => words.match(/^\d\d:\d\d  /)?.[0]));
    assert.equal(minutes.size, 1, JSON.stringify(pointed));
    assert.ok(![...minutes].includes(undefined), JSON.stringify(pointed));
    assert.equal(new Set(pointed.map(([, seen, x]) => seen + x)).size, 1);
    assert.equal(pointed[0][1], "visible");
    await page.mouse.move(1, 1);
    assert.deepEqual((await shown()).map(([, seen]) => seen), before.map(() => "hidden"));
  }
});

test("a message that vanishes while its page is open", async () => {
  for (const act of ["Bury", "Edit"]) {
    const id = await beans.put("vanishing", "x");
    await go(`/messages/${id}`);
    if (act === "Edit") await follow(named(act));
    assert.equal((await beans.ask(`delete ${id}`)).word, "DELETED");
    await follow(act === "Edit" ? "main form button.main" : named(act));
    assert.match(await text(), new RegExp(`message ${id} was deleted`), act);
  }
});

test("without JavaScript all of it works", async () => {
  await page.setJavaScriptEnabled(false);
  const id = await beans.put("plain", "x");
  await go("/queues/plain");
  await follow('button[formaction$="/ask/delete"]');
  assert.match(await note(), /Nothing was selected/);
  await page.click("tbody input[name=id]");
  await follow('button[formaction$="/ask/delete"]');
  await follow("button.last");
  assert.match(await note(), /1 message deleted/);
  assert.equal((await beans.ask(`peek ${id}`)).word, "NOT_FOUND");
  await page.setJavaScriptEnabled(true);
});

test("nothing complained", () => {
  assert.deepEqual(browser.complaints, []);
});
