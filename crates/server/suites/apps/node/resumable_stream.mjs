// resumable-stream, which the AI SDK's chats resume by: a second reader follows a stream from its beginning.
// packages: resumable-stream@2.2.13 redis@6.3.1 ioredis@6.0.0
import assert from "node:assert";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { createResumableStreamContext } from "resumable-stream";
import { createResumableStreamContext as createByIoredis } from "resumable-stream/ioredis";

const { HOST, PORT } = process.env;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// The stream rests in its middle until `rest` is over, so that whoever comes late does not find it ended.
const words = (rest) =>
  new ReadableStream({
    async start(controller) {
      for (let n = 0; n < 20; n++) {
        if (n === 10) await rest;
        controller.enqueue(`word ${n};`);
        await pause(20);
      }
      controller.close();
    },
  });

async function read(stream) {
  let text = "";
  for await (const part of stream) text += part;
  return text;
}

async function use(context, id) {
  let goOn;
  const rest = new Promise((done) => (goOn = done));
  const first = read(await context.createNewResumableStream(id, () => words(rest)));
  await pause(100);
  const second = read(await context.resumeExistingStream(id));
  const late = read(await context.resumeExistingStream(id, 14));
  goOn();
  const all = Array.from({ length: 20 }, (_, n) => `word ${n};`).join("");
  assert.deepEqual(await Promise.all([first, second, late]), [all, all, all.slice(14)]);
  await Promise.all(waiting);
  assert.equal(await context.resumeExistingStream(id), null);
}

const waiting = [];
const client = () => createClient({ url: `redis://${HOST}:${PORT}` }).connect();
const common = { waitUntil: (promise) => waiting.push(promise), keyPrefix: "apps" };
await use(createResumableStreamContext({ ...common, publisher: await client(), subscriber: await client() }), "a");
const second = () => new Redis({ host: HOST, port: Number(PORT) });
await use(createByIoredis({ ...common, publisher: second(), subscriber: second() }), "b");
console.log("readers that came late followed a stream from its beginning, by node-redis and ioredis");
process.exit(0);
