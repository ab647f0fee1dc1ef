// y-redis: two processes' copies of a Yjs document follow each other, and a third one comes later.
// packages: y-redis@1.0.3 yjs@13.6.33
import assert from "node:assert";
import { RedisPersistence } from "y-redis";
import * as Y from "yjs";

const redisOpts = { host: process.env.HOST, port: Number(process.env.PORT) };
const open = async (name) => {
  const doc = new Y.Doc();
  const persistence = new RedisPersistence({ redisOpts });
  await persistence.bindState(name, doc).synced;
  return { doc, persistence };
};
const all = [await open("apps-y"), await open("apps-y")];
for (let n = 0; n < 20; n++) {
  all[n % 2].doc.getArray("list").push([n]);
}
const len = ({ doc }) => doc.getArray("list").length;
while (all.some((one) => len(one) < 20)) await new Promise((done) => setTimeout(done, 10));
all.push(await open("apps-y"));
const texts = all.map(({ doc }) => JSON.stringify(doc.getArray("list").toJSON()));
assert.equal(new Set(texts).size, 1);
assert.equal(len(all[2]), 20);
await all[2].persistence.clearDocument("apps-y");
console.log("two copies of a document followed each other's 20 changes, and a third one found all");
process.exit(0);
