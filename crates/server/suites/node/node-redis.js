// What a program written with node-redis counts on, told to the server at HOST:PORT and checked.
import assert from "node:assert/strict";
import test from "node:test";
import { createClient, RESP_TYPES, WatchError } from "redis";

const { HOST, PORT, REDIS_PASSWORD } = process.env;

for (const RESP of [2, 3]) {
  const connect = () => createClient({ socket: { host: HOST, port: +PORT }, password: REDIS_PASSWORD, RESP }).connect();

  // Each on an empty server; what it connects is closed.
  const each = (name, run) =>
    test(`${name} by RESP${RESP}`, { timeout: 120_000 }, async () => {
      const clients = [];
      const more = async () => (clients.push(await connect()), clients.at(-1));
      try {
        const redis = await more();
        await redis.flushAll();
        await run(redis, more);
      } finally {
        clients.forEach((client) => client.destroy());
      }
    });

  each("values", async (redis) => {
    assert.equal(await redis.ping(), "PONG");
    const bytes = Buffer.from([0, 13, 10, 255, 128, 36]);
    assert.equal(await redis.set(bytes, bytes, { expiration: { type: "EX", value: 100 } }), "OK");
    const binary = redis.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
    assert.deepEqual(await binary.get(bytes), bytes);
    assert.equal(await redis.get("none"), null);
    assert.equal(await redis.incrBy("n", 42), 42);
    await redis.hSet("h", { a: 1, b: "zwei" });
    assert.deepEqual({ ...(await redis.hGetAll("h")) }, { a: "1", b: "zwei" });
    assert.equal(await redis.rPush("l", ["a", "b", "c"]), 3);
    assert.deepEqual(await redis.lRange("l", 0, -1), ["a", "b", "c"]);
    await assert.rejects(redis.lPush("n", "1"), /WRONGTYPE/);
    await assert.rejects(redis.sendCommand(["NOSUCHCOMMAND"]), /unknown command/);
    assert.ok((await redis.ttl(bytes)) > 50);
  });

  each("what is sent at once is answered in order", async (redis) => {
    const replies = await Promise.all(Array.from({ length: 5000 }, (_, at) => redis.rPush("l", `${at}`)));
    assert.deepEqual(replies, Array.from({ length: 5000 }, (_, at) => at + 1));
  });

  each("transactions", async (redis, more) => {
    assert.deepEqual(await redis.multi().rPush("l", "1").set("k", "v").lRange("l", 0, -1).exec(), [1, "OK", ["1"]]);
    await assert.rejects(redis.multi().rPush("l", "2").addCommand(["NOSUCHCOMMAND"]).exec());
    assert.equal(await redis.lLen("l"), 1);
    await redis.watch("k");
    await (await more()).set("k", "other");
    await assert.rejects(redis.multi().rPush("l", "2").exec(), WatchError);
    assert.equal(await redis.lLen("l"), 1);
  });

  each("a scan sees all", async (redis) => {
    await Promise.all(Array.from({ length: 2000 }, (_, at) => redis.rPush(`key:${at}`, "x")));
    const seen = new Set();
    for await (const keys of redis.scanIterator({ MATCH: "key:*", COUNT: 100 })) keys.forEach((key) => seen.add(key));
    assert.equal(seen.size, 2000);
  });

  each("pops that wait", async (redis, more) => {
    const waits = (await more()).blPop(["a", "b"], 60);
    setTimeout(() => redis.rPush("b", "x"), 100);
    assert.deepEqual({ ...(await waits) }, { key: "b", element: "x" });
    assert.equal(await (await more()).blPop("none", 0.1), null);
  });

  each("streams and groups", async (redis, more) => {
    await redis.xGroupCreate("s", "g", "$", { MKSTREAM: true });
    const waits = (await more()).xReadGroup("g", "c", { key: "s", id: ">" }, { BLOCK: 60_000 });
    await new Promise((done) => setTimeout(done, 200));
    assert.equal(await redis.xAdd("s", "1-1", { k: "v" }), "1-1");
    // What it makes of the reply differs between the protocols; the entry is in both.
    assert.match(JSON.stringify(await waits), /"1-1".*"k".*"v"/);
    assert.equal((await redis.xPending("s", "g")).pending, 1);
    assert.equal(await redis.xAck("s", "g", "1-1"), 1);
    assert.equal((await redis.xInfoStream("s")).length, 1);
  });
}
