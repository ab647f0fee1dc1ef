// node documents.mjs SERVER SCRATCH [SCREENSHOT]: two windows edit one document.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [program, scratch, screenshot] = process.argv.slice(2);
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

// The example; it ends with its standard input.
const server = spawn(program, [0], { stdio: ["pipe", "pipe", "inherit"] });
const [line] = await once(createInterface(server.stdout), "line");
const address = line.trim();

async function eventually(what, holds, seconds = 60) {
  const until = Date.now() + seconds * 1000;
  for (;;) {
    const last = await holds().catch((error) => error);
    if (last === true) return;
    if (Date.now() > until) assert.fail(`${what}: ${last}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const value = (page, id) => page.locator(`#${id}`).inputValue();
const document = async () => (await fetch(`${address}v1/documents/shared`)).json();

async function both(what, pages, id, expected) {
  for (const page of pages) await eventually(what, async () => (await value(page, id)) === expected || (await value(page, id)));
  await eventually(`${what}, at the server`, async () => (await document())[id] === expected);
}

const browser = await chromium.launchPersistentContext(`${scratch}/documents`, {
  executablePath: "/usr/bin/chromium", args: ARGS, viewport: { width: 1000, height: 620 }, colorScheme: "light",
  timeout: 180_000,
});
browser.setDefaultTimeout(120_000);
try {
  const pages = [await browser.newPage(), await browser.newPage()];
  const [ada, bob] = pages;
  const complaints = [];
  for (const page of pages) {
    page.on("pageerror", (error) => complaints.push(String(error)));
    // A conflict, and a document that is there already, the browser says by itself.
    page.on("console", (message) => {
      if (["error", "warning"].includes(message.type()) && !/status of 412/.test(message.text())) complaints.push(message.text());
    });
    await page.goto(address);
    await eventually("it is live", async () => (await page.locator("#status").innerText()) === "Live");
  }
  await ada.locator("#author").fill("Ada");
  await bob.locator("#author").fill("Bob");

  // What one window types, the other shows; and each window's own text stays.
  await ada.locator("#title").fill("Plans for the garden");
  await both("a title comes over", pages, "title", "Plans for the garden");
  await ada.locator("#text").fill("peas\nbeans\n");
  await both("a text comes over", pages, "text", "peas\nbeans\n");
  await ada.locator("#text").press("Control+Home");
  await bob.locator("#text").press("Control+End");
  // Both type at once: at the begin, and at the end.
  await Promise.all([
    ada.locator("#text").pressSequentially("From Ada\n", { delay: 40 }),
    bob.locator("#text").pressSequentially("From Bob\n", { delay: 40 }),
  ]);
  await both("both texts are there", pages, "text", "From Ada\npeas\nbeans\nFrom Bob\n");

  // Tasks of both.
  await ada.locator("#task").fill("buy seeds");
  await ada.locator("#task").press("Enter");
  await bob.locator("#task").fill("dig the bed");
  await bob.locator("#task").press("Enter");
  for (const page of pages) await eventually("both tasks are there", async () => (await page.locator("#tasks li").count()) === 2);
  await bob.locator("#tasks input").first().check();
  await eventually("a check comes over", async () => (await ada.locator("#tasks li.done").count()) === 1);

  // Undo in one window, of the change of the other, and again; then redo.
  await ada.locator("#undo").click();
  await eventually("the check is undone", async () => (await bob.locator("#tasks li.done").count()) === 0);
  await ada.locator("#undo").click();
  await eventually("a task is undone", async () => (await bob.locator("#tasks li").count()) === 1);
  await bob.locator("#redo").click();
  await eventually("the task is there again", async () => (await ada.locator("#tasks li").count()) === 2);
  await bob.locator("#redo").click();
  await eventually("and the check", async () => (await ada.locator("#tasks li.done").count()) === 1);

  // Both windows have the whole history, and the same version.
  const version = await ada.locator("#version").innerText();
  await eventually("one version", async () => (await bob.locator("#version").innerText()) === version);
  const updates = (await (await fetch(`${address}v1/documents/shared?history`)).json()).updates;
  assert.equal(updates.at(-1).back_to !== null, true);
  assert.deepEqual(new Set(updates.map((update) => update.author)), new Set(["Ada", "Bob"]));
  const ids = updates.map((update) => update.request);
  assert.equal(new Set(ids).size, ids.length, "each request is there once");
  // A window that is opened now shows the same.
  const late = await browser.newPage();
  await late.goto(address);
  await both("it is there", [late], "text", "From Ada\npeas\nbeans\nFrom Bob\n");
  assert.deepEqual(complaints, []);
  if (screenshot) await ada.screenshot({ path: screenshot });
  console.log("two windows edit one document");
} finally {
  await browser.close();
  const ended = once(server, "exit");
  server.stdin.end();
  await ended;
}
