"use strict";
// Takes the pictures of docs/console.md: a working day's queues, some minutes of traffic.
//
//   npm ci && QUINTET=../../target/release/quintet node pictures.js ../../docs/console [MINUTES]
//   cd ../../docs/console && pngquant --force --ext .png --quality 80-98 *.png && optipng *.png

const { mkdirSync } = require("node:fs");
const path = require("node:path");
const { Beanstalk, browse, serve } = require("./world.js");

const [out = "pictures", minutes = "4"] = process.argv.slice(2);

/** What is there before anything moves. */
async function fill(beans) {
  for (let n = 0; n < 340; n += 1) await beans.put("mail.welcome", JSON.stringify({ to: `user${n}@example.org`, template: "welcome" }));
  for (let n = 0; n < 48; n += 1) await beans.put("invoices.pdf", JSON.stringify({ invoice: 20000 + n, pages: 1 + (n % 7) }));
  for (let n = 0; n < 12; n += 1) await beans.put("thumbnails", `/photos/${n}.jpg`);
  await beans.ask("use reports.nightly");
  for (let n = 0; n < 6; n += 1) {
    const body = `{"report": ${100000 + n}}`;
    await beans.ask(`put 0 ${7200 + n * 600} 60 ${body.length}\r\n${body}`);
  }
  // Some fail for good, and some are held.
  for (const [queue, count] of [["fragile", 3], ["payments", 5]]) {
    for (let n = 0; n < count; n += 1) await beans.put(queue, JSON.stringify({ order: 7000 + n, amount: "19.90" }));
  }
  await beans.ask("watch payments");
  await beans.ask("ignore default");
  for (let n = 0; n < 2; n += 1) {
    const { words } = await beans.ask("reserve-with-timeout 0");
    await beans.ask(`bury ${words[1]} 0`);
  }
  await beans.ask("watch fragile");
  await beans.ask("ignore payments");
  for (let n = 0; n < 3; n += 1) {
    const { words } = await beans.ask("reserve-with-timeout 0");
    await beans.ask(`release ${words[1]} 0 0`);
  }
}

/** Puts and takes for so long; answers who holds leases at the end. */
async function move(server, seconds) {
  const producer = new Beanstalk(server.beanstalk);
  const worker = new Beanstalk(server.beanstalk);
  const holder = new Beanstalk(server.beanstalk);
  for (const [who, tube] of [[worker, "mail.welcome"], [holder, "invoices.pdf"]]) {
    await who.ask(`watch ${tube}`);
    await who.ask("ignore default");
  }
  const end = Date.now() + seconds * 1000;
  for (let n = 0; Date.now() < end; n += 1) {
    await producer.put("mail.welcome", JSON.stringify({ to: `late${n}@example.org`, template: "welcome" }));
    if (n % 10 < 8 + Math.sin(n / 200) * 2) {
      const { words } = await worker.ask("reserve-with-timeout 0");
      if (words[0] === "RESERVED") await worker.ask(`delete ${words[1]}`);
    }
    await new Promise((done) => { setTimeout(done, 25); });
  }
  for (let n = 0; n < 3; n += 1) await holder.ask("reserve-with-timeout 0");
  return [producer, worker, holder];
}

async function main() {
  mkdirSync(out, { recursive: true });
  const server = await serve();
  const beans = new Beanstalk(server.beanstalk);
  const browser = await browse();
  let moving = [];
  try {
    await fill(beans);
    moving = await move(server, Number(minutes) * 60);
    const payments = await (await beans.ask("use payments"), beans.ask("peek-buried"));
    const pages = [
      ["overview", "/"],
      ["queue", "/queues/mail.welcome"],
      ["message", `/messages/${payments.words[1]}`],
      ["leases", "/leases"],
      ["settings", "/settings"],
      ["purge", "/queues/payments/ask/purge"],
      ["overview-dark", "/", "dark"],
      ["phone", "/", "light", 390],
    ];
    for (const [name, address, theme = "light", width = 1280] of pages) {
      const page = await browser.open(width);
      await page.setViewport({ width, height: width < 500 ? 844 : 860 });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
      await page.goto(server.site + address);
      await page.screenshot({ path: path.join(out, `${name}.png`) });
      await page.close();
    }
  } finally {
    for (const one of [beans, ...moving]) one.close();
    await browser.close();
    await server.stop();
  }
}

main();
