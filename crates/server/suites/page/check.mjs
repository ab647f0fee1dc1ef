// node check.mjs SERVER SCRATCH [SCREENSHOT]: what the page must do in a browser.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [program, scratch, screenshot] = process.argv.slice(2);
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

// The example; it ends with its standard input.
async function serve(port = 0) {
  const server = spawn(program, [port], { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = await once(createInterface(server.stdout), "line");
  return { server, address: line.trim() };
}

const stop = async (server) => {
  const ended = once(server, "exit");
  server.stdin.end();
  await ended;
};

const text = (page, selector) => page.locator(selector).innerText();

async function eventually(what, holds, seconds = 60) {
  const until = Date.now() + seconds * 1000;
  for (;;) {
    const last = await holds().catch((error) => error);
    if (last === true) return;
    if (Date.now() > until) assert.fail(`${what}: ${last}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function moves(page) {
  await eventually("it is live", async () => (await text(page, "#status")) === "Ready");
  const seen = new Set();
  await eventually("figures move", async () => {
    seen.add(await page.locator(".tile .figure").first().innerText());
    return seen.size > 3 || [...seen].join(" ");
  });
  await eventually("every tile has a figure", async () => {
    const tiles = await page.locator(".tile .figure").allInnerTexts();
    return tiles.slice(0, 6).every((figure) => Number(figure) > 0) || tiles.join(" ");
  });
  assert.equal(await page.locator("#stages tbody tr").count(), 5);
  for (const id of ["durable", "rates", "batch", "written"]) {
    await eventually(`chart ${id} has a line`, async () => {
      const line = await page.locator(`#chart-${id} path.line`).first().getAttribute("d");
      return line.split("L").length > 2 || line;
    });
  }
  await eventually("the busiest logs are told", async () => (await page.locator("#hot-logs tbody tr").count()) >= 5);
  await eventually("runs are told", async () => (await page.locator("#runs tbody tr").count()) >= 1, 180);
  assert.equal(await page.locator("#extra-clients tbody tr").count(), 2);
  assert.match(await text(page, "#extra-clients"), /48\.2\sMB/, "what faces tell has units");
  await page.locator("#chart-durable svg").focus();
  await page.keyboard.press("ArrowLeft");
  assert.match(await text(page, "#chart-durable .when"), /^at \d/, "a chart is read by keys");
}

async function browses(page) {
  await page.click("#to-logs");
  const pager = "#logs-pager [role=status]";
  await page.fill("#prefix", "many/");
  await eventually("a prefix is found", async () => (await text(page, "#logs-table tbody tr:first-child .key")) === "many/000");
  assert.match(await text(page, pager), /^Logs 1 to 50/);
  await page.click("#logs-pager >> text=Next");
  await eventually("the next page", async () => /^Logs 51 to 100/.test(await text(page, pager)));
  await page.click("#logs-pager >> text=Next");
  await eventually("the last page", async () => /^Logs 101 to 120/.test(await text(page, pager)));
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Previous", "the keyboard stays at the pager");
  assert(await page.locator("#logs-pager >> text=Next").isDisabled());
  await page.click("#logs-pager >> text=Previous");
  await eventually("back", async () => (await text(page, "#logs-table tbody tr:first-child .key")) === "many/050");
  await page.fill("#prefix", "nothing like it");
  await eventually("nothing is found", async () => (await text(page, pager)) === "No log has such a key");

  await page.fill("#prefix", "examples/");
  await eventually("examples", async () => (await page.locator("#logs-table tbody tr").count()) === 6);
  await page.click("#logs-table >> text=examples/json");
  await eventually("JSON is shown in lines", async () => /^\{\n  "exact": 12345678901234567890,/.test(await page.locator("pre.JSON").first().textContent()));
  const first = () => text(page, ".entry:first-child .entry-head b");
  assert.equal(await first(), "119", "the newest first");
  await page.click("#log-pager >> text=Older");
  await eventually("older ones", async () => (await first()) === "94");
  await page.getByLabel("Oldest first").check();
  await eventually("the oldest first", async () => (await first()) === "0");
  await page.fill("#log-from", "60");
  await page.click("#log-form >> text=Show");
  await eventually("from a number on", async () => (await first()) === "60");

  await page.click("#log-back");
  await page.click("#logs-table >> text=examples/binary");
  await eventually("bytes are shown", async () => /^000000  a5 a4 a7/.test(await page.locator("pre.binary").first().textContent()));
  await page.click("#log-back");
  await page.locator("#logs-table a", { hasText: "\\xff" }).click();
  await eventually("a key of bytes", async () => (await text(page, ".entry pre")) === "the key of this log is no text");
  await page.click("#log-back");
  await page.click("#logs-table >> text=<img src=x");
  await eventually("a key of markup", async () => (await text(page, ".entry pre")) === "the key of this log is no markup");
  assert.equal(await page.locator("#main img").count(), 0, "keys are text");
  await page.goto(`${page.url().split("#")[0]}#log?key=no%2Fsuch`);
  await eventually("what is missing is said", async () => /no\/such/.test(await text(page, "#log-pager [role=alert]")));
  await page.click("#to-live");
}

// Text and what is behind it, as they are painted.
async function contrast(page) {
  const worst = await page.evaluate(() => {
    const channels = (color) => color.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = (element) => {
      for (; element; element = element.parentElement) {
        const [r, g, b, a = 1] = channels(getComputedStyle(element).backgroundColor);
        if (a > 0.99) return [r, g, b];
      }
      return [255, 255, 255];
    };
    let worst = [99, ""];
    for (const element of document.querySelectorAll("h1, h2, h3, p, td, th, a, span, b, strong, text, dd, dt")) {
      if (!element.textContent.trim() || !element.checkVisibility()) continue;
      const style = getComputedStyle(element);
      const ink = element instanceof SVGElement ? style.fill : style.color;
      const [a, b] = [light(channels(ink)), light(ground(element))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < worst[0]) worst = [ratio, `${element.tagName}.${element.className?.baseVal ?? element.className} ${element.textContent.slice(0, 40)}`];
    }
    return worst;
  });
  assert(worst[0] >= 4.5, `text can be read: ${worst}`);
}

async function looks(page) {
  const grounds = [];
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await contrast(page);
    await page.screenshot({ path: `${scratch}/${colorScheme}.png`, fullPage: true });
  }
  assert.notEqual(grounds[0], grounds[1], "two schemes");
  for (const [width, height] of [[360, 740], [768, 1024], [1280, 900]]) {
    await page.setViewportSize({ width, height });
    for (const hash of ["#live", "#logs", "#log?key=examples%2Fbinary"]) {
      await page.evaluate((hash) => { location.hash = hash; }, hash);
      await page.waitForTimeout(400);
      const wide = () => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      await page.screenshot({ path: `${scratch}/${width}-${hash.slice(1, 5).replace("?", "")}.png`, fullPage: true });
      await eventually(`${hash} fits ${width} pixels`, async () => (await wide()) === 0 || (await wide()));
    }
  }
  await page.evaluate(() => { location.hash = "#live"; });
}

// A server that goes is said to be gone, and one that comes back is shown.
async function comesBack(page, server, address) {
  await stop(server);
  await eventually("that the server is gone is said", async () => (await text(page, "#status")) === "No answer");
  assert.match(await text(page, "#notice"), /does not answer/);
  await page.screenshot({ path: `${scratch}/gone.png` });
  const { server: another } = await serve(new URL(address).port);
  try {
    await eventually("it is back", async () => (await text(page, "#status")) === "Ready");
    assert(await page.locator("#notice").isHidden());
    const commits = () => text(page, "#tiles .tile:first-child .figure");
    const was = await commits();
    await eventually("its figures move", async () => (await commits()) !== was);
  } finally {
    await stop(another);
  }
}

const { server, address } = await serve();
const browser = await chromium.launchPersistentContext(`${scratch}/profile`, {
  executablePath: "/usr/bin/chromium", args: ARGS, viewport: { width: 1280, height: 900 }, colorScheme: "light",
  timeout: 180_000,
});
browser.setDefaultTimeout(120_000);
try {
  const page = await browser.newPage();
  const [complaints, asked] = [[], new Set()];
  // That a log is not there, and that the server is gone, the browser says by itself.
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => asked.add(new URL(request.url()).origin));
  await page.goto(address);
  await moves(page);
  assert.deepEqual(complaints, [], "nothing is complained of");
  await browses(page);
  assert.deepEqual(complaints.splice(0).filter((text) => !/status of 404/.test(text)), []);
  await looks(page);
  assert.deepEqual(complaints, []);
  assert.deepEqual([...asked], [new URL(address).origin], "nobody else is asked");
  if (screenshot) {
    await page.emulateMedia({ colorScheme: "light" });
    await page.waitForTimeout(60_000);
    await page.screenshot({ path: screenshot, fullPage: true });
  }
  await comesBack(page, server, address);
  console.log("the page does what it must");
} finally {
  await browser.close();
  server.stdin.end();
}
