// What a program written with ioredis counts on, told to the server at HOST:PORT and checked.
import assert from "node:assert/strict";
import test from "node:test";
import { Redis } from "ioredis";

const { HOST, PORT, REDIS_PASSWORD } = process.env;

for (const protocol of [2, 3]) {
  const connect = (more) => new Redis({ host: HOST, port: +PORT, password: REDIS_PASSWORD, protocol, ...more });

  // Each on an empty server; what it connects is closed.
  const each = (name, run) =>
    test(`${name} by RESP${protocol}`, { timeout: 120_000 }, async () => {
      const clients = [];
      const more = (options) => (clients.push(connect(options)), clients.at(-1));
      try {
        const redis = more();
        await redis.flushall();
        await run(redis, more);
      } finally {
        clients.forEach((client) => client.disconnect());
      }
    });

  each("values", async (redis) => {
    assert.equal(await redis.ping(), "PONG");
    const bytes = Buffer.from([0, 13, 10, 255, 128, 36]);
    assert.equal(await redis.set(bytes, bytes, "EX", 100), "OK");
    assert.deepEqual(await redis.getBuffer(bytes), bytes);
    assert.equal(await redis.get("none"), null);
    assert.equal(await redis.set("n", 1, "NX"), "OK");
    assert.equal(await redis.set("n", 2, "NX"), null);
    assert.equal(await redis.incrby("n", 41), 42);
    await redis.hset("h", { a: 1, b: "zwei" });
    assert.deepEqual({ ...(await redis.hgetall("h")) }, { a: "1", b: "zwei" });
    assert.equal(await redis.rpush("l", "a", "b", "c"), 3);
    assert.deepEqual(await redis.lrange("l", 0, -1), ["a", "b", "c"]);
    assert.equal(await redis.lmove("l", "m", "LEFT", "RIGHT"), "a");
    await assert.rejects(redis.lpush("n", 1), /WRONGTYPE/);
    await assert.rejects(redis.call("NOSUCHCOMMAND"), /unknown command/);
    const big = "x".repeat(5_000_000);
    await redis.set("big", big);
    assert.equal(await redis.get("big"), big);
  });

  each("what is sent at once is answered in order", async (redis) => {
    const replies = await Promise.all(Array.from({ length: 5000 }, (_, at) => redis.rpush("l", at)));
    assert.deepEqual(replies, Array.from({ length: 5000 }, (_, at) => at + 1));
    const results = await redis.pipeline().llen("l").incr("l").llen("l").exec();
    assert.equal(results[0][1], 5000);
    assert.match(results[1][0].message, /WRONGTYPE/);
    assert.equal(results[2][1], 5000);
  });

  each("transactions", async (redis, more) => {
    const results = await redis.multi().rpush("l", 1).set("k", "v").lrange("l", 0, -1).exec();
    assert.deepEqual(results, [[null, 1], [null, "OK"], [null, ["1"]]]);
    await assert.rejects(redis.multi().rpush("l", 2).call("NOSUCHCOMMAND").exec(), /EXECABORT/);
    assert.equal(await redis.llen("l"), 1);
    await redis.watch("k");
    await more().set("k", "other");
    assert.equal(await redis.multi().rpush("l", 2).exec(), null);
    assert.equal(await redis.llen("l"), 1);
  });

  each("a scan sees all", async (redis) => {
    const pipeline = redis.pipeline();
    for (let at = 0; at < 2000; at++) pipeline.rpush(`key:${at}`, at);
    await pipeline.exec();
    const seen = new Set();
    for await (const keys of redis.scanStream({ match: "key:*", count: 100 })) keys.forEach((key) => seen.add(key));
    assert.equal(seen.size, 2000);
  });

  each("pops that wait", async (redis, more) => {
    const waits = more().blpop("a", "b", 60);
    setTimeout(() => redis.rpush("b", "x"), 100);
    assert.deepEqual(await waits, ["b", "x"]);
    assert.equal(await more().blpop("none", 0.1), null);
  });

  each("streams and groups", async (redis, more) => {
    await redis.xgroup("CREATE", "s", "g", "$", "MKSTREAM");
    const waits = more().xreadgroup("GROUP", "g", "c", "BLOCK", 60_000, "STREAMS", "s", ">");
    const follows = more().xread("BLOCK", 60_000, "STREAMS", "s", "$");
    // What `$` is, is told when the command comes.
    while (!(await redis.info("clients")).includes("blocked_clients:2")) await new Promise((done) => setTimeout(done, 20));
    assert.equal(await redis.xadd("s", "1-1", "k", "v"), "1-1");
    // A list of pairs by RESP2, a map by RESP3.
    for (const reply of [await waits, await follows]) {
      const entries = Array.isArray(reply) ? Object.fromEntries(reply) : reply instanceof Map ? Object.fromEntries(reply) : reply;
      assert.deepEqual(entries.s, [["1-1", ["k", "v"]]]);
    }
    assert.equal((await redis.xpending("s", "g"))[0], 1);
    assert.equal(await redis.xack("s", "g", "1-1"), 1);
  });
}
