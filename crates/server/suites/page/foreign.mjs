// node foreign.mjs BROOKLET SCRATCH: pages of other origins in a browser, against a server with its defaults, and against one
// that lets an origin in.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const [program, scratch] = process.argv.slice(2);
// Every name leads here, and the browser leaves the defence to the server.
const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP *.example 127.0.0.1",
  "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests"];

async function serve(name, ...flags) {
  const args = ["--json", "serve", `${scratch}/${name}`, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ring-size", "1M"];
  const server = spawn(program, [...args, ...flags], { stdio: ["ignore", "pipe", "ignore"] });
  const [line] = await Promise.race([once(createInterface(server.stdout), "line"), once(server, "exit").then(() => [""])]);
  assert.ok(line, `${program} does not serve`);
  const { redis: [redis], http: [http] } = JSON.parse(line);
  return { server, redis, http: `http://${http}` };
}

const stop = async ({ server }) => {
  const ended = once(server, "exit");
  server.kill("SIGTERM");
  await ended;
};

// The replies of the Redis port to commands in words.
async function ask(address, ...commands) {
  const [host, port] = address.split(":");
  const socket = connect(Number(port), host);
  socket.write([...commands, "QUIT"].map((line) => `${line}\r\n`).join(""));
  let replies = "";
  for await (const part of socket) replies += part;
  return replies.replace(/\+OK\r\n$/, "");
}

// What a page does to a server: all that a page may send without being asked, and all that it asks for first.
async function attack({ redis, http }) {
  const told = {};
  const attempt = async (name, work, patience = 60_000) => {
    try {
      told[name] = await Promise.race([work(), new Promise((done) => setTimeout(done, patience, "no reply"))]);
    } catch {
      told[name] = "refused";
    }
  };
  const blind = { mode: "no-cors", method: "POST", headers: { "content-type": "text/plain" } };
  await attempt("redis", async () => (await fetch(`http://${redis}/`, { ...blind, body: "\r\nFLUSHALL\r\nRPUSH pwned x\r\n" })).type, 3000);
  await attempt("append", async () => (await fetch(`${http}/v1/stream/s`, { ...blind, body: "theirs" })).type);
  for (const method of ["PUT", "DELETE"]) await attempt(method, async () => (await fetch(`${http}/v1/stream/s`, { method })).type);
  for (const path of ["/v1/stream/s", "/api/logs", "/metrics"]) await attempt(path, async () => (await fetch(http + path)).text());
  await attempt("image", () => new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => done("seen");
    image.onerror = failed;
    image.src = `${http}/v1/stream/picture`;
  }));
  return told;
}

const PICTURE = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==", "base64");
const put = (http, name, type, body, headers = {}) => fetch(`${http}/v1/stream/${name}`, { method: "PUT", headers: { "content-type": type, ...headers }, body });

const pages = createServer((_, reply) => reply.end("<!doctype html><title>a page</title>")).listen(0, "127.0.0.1");
await once(pages, "listening");
const { port } = pages.address();
const browser = await chromium.launchPersistentContext(`${scratch}/foreign`, { executablePath: "/usr/bin/chromium", args: ARGS, timeout: 180_000 });
browser.setDefaultTimeout(120_000);
try {
  const open = await serve("open");
  await ask(open.redis, "RPUSH precious x");
  await put(open.http, "s", "text/plain", "mine");
  await put(open.http, "picture", "image/png", PICTURE);
  const page = await browser.newPage();
  // Another site, and another port of the same site.
  for (const origin of [`http://evil.example:${port}`, `http://localhost:${port}`, `http://127.0.0.1:${port}`]) {
    await page.goto(origin);
    const { redis, append, ...asked } = await page.evaluate(attack, { redis: open.redis, http: open.http });
    assert.notEqual(redis, "opaque", `${origin} has a reply of the Redis port`);
    assert.ok(["opaque", "refused"].includes(append), append);
    for (const [name, got] of Object.entries(asked)) assert.equal(got, "refused", `${origin}: ${name}`);
    assert.equal(await ask(open.redis, "LLEN precious", "EXISTS pwned"), ":1\r\n:0\r\n", origin);
    assert.equal(await (await fetch(`${open.http}/v1/stream/s`)).text(), "mine", origin);
  }
  // A name that its owner points here.
  await page.goto(open.http.replace("127.0.0.1", "evil.example") + "/api/logs");
  assert.match(await page.locator("body").innerText(), /names? the server by its address/);
  // A body that is a page, at the origin of the server.
  await put(open.http, "page", "text/html", "<title>still</title><script>document.title = 'ran'</script>");
  await page.goto(`${open.http}/v1/stream/page`);
  assert.equal(await page.title(), "still");
  await stop(open);

  const app = `http://app.example:${port}`;
  const closed = await serve("closed", "--password", "pw", "--allow-origin", app);
  const use = async (http) => {
    const headers = { authorization: "Bearer pw", "content-type": "text/plain" };
    const made = await fetch(`${http}/v1/stream/s`, { method: "PUT", headers, body: "theirs" });
    const unknown = await fetch(`${http}/v1/stream/s`);
    const read = await fetch(`${http}/v1/stream/s`, { headers });
    return [made.status, made.headers.get("stream-next-offset") !== null, unknown.status, await read.text()];
  };
  await page.goto(app);
  assert.deepEqual(await page.evaluate(use, closed.http), [201, true, 401, "theirs"]);
  await page.goto(`http://evil.example:${port}`);
  await assert.rejects(page.evaluate(use, closed.http), /Failed to fetch/);
  await stop(closed);
  console.log("pages of other origins get nothing, and those that are let in get their streams");
} finally {
  await browser.close();
  pages.close();
}
