// graphql-redis-subscriptions: a PubSub engine for GraphQL, with triggers and patterns.
// packages: graphql-redis-subscriptions@2.7.0 graphql-subscriptions@3.0.0 graphql@16.13.0 ioredis@6.0.0
import assert from "node:assert";
import { RedisPubSub } from "graphql-redis-subscriptions";
import { Redis } from "ioredis";

const connection = { host: process.env.HOST, port: Number(process.env.PORT) };
const pubsub = new RedisPubSub({ connection });
const asks = new Redis(connection);
const heard = [];
const ids = [
  await pubsub.subscribe("apps-gql.a", (payload) => heard.push(["a", payload.n])),
  await pubsub.subscribe("apps-gql.*", (payload) => heard.push(["*", payload.n]), { pattern: true }),
];
const iterator = pubsub.asyncIterator("apps-gql.b");
const next = iterator.next();
// An iterator does not tell when it is subscribed.
while ((await asks.pubsub("CHANNELS", "apps-gql.b")).length < 1) await new Promise((done) => setTimeout(done, 10));
await pubsub.publish("apps-gql.a", { n: 1 });
await pubsub.publish("apps-gql.b", { n: 2 });
assert.deepEqual((await next).value, { n: 2 });
while (heard.length < 3) await new Promise((done) => setTimeout(done, 10));
assert.deepEqual(heard.sort(), [["*", 1], ["*", 2], ["a", 1]]);
ids.forEach((id) => pubsub.unsubscribe(id));
console.log("a trigger, a pattern and an iterator got their messages");
process.exit(0);
