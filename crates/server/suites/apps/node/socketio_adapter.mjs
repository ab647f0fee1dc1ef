// Socket.IO: two servers share their rooms by the Redis adapter, with plain and with sharded channels.
// packages: socket.io@4.8.4 socket.io-client@4.8.4 @socket.io/redis-adapter@8.3.0 redis@6.3.1
import assert from "node:assert";
import { createServer } from "node:http";
import { createAdapter, createShardedAdapter } from "@socket.io/redis-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";
import { io as connect } from "socket.io-client";

const url = `redis://${process.env.HOST}:${process.env.PORT}`;

async function server(adapter) {
  const pub = createClient({ url });
  const sub = pub.duplicate();
  await Promise.all([pub.connect(), sub.connect()]);
  const http = createServer();
  const io = new Server(http, { adapter: adapter(pub, sub) });
  io.on("connection", (socket) => socket.on("join", async (room, done) => done(await socket.join(room))));
  await new Promise((done) => http.listen(0, "127.0.0.1", done));
  return { io, url: `http://127.0.0.1:${http.address().port}` };
}

async function use(adapter, room) {
  const servers = [await server(adapter), await server(adapter)];
  const heard = [];
  const clients = [];
  for (const { url } of servers) {
    const client = connect(url, { transports: ["websocket"] });
    client.on("news", (...news) => heard.push(...news.slice(0, 1)) && typeof news[1] === "function" && news[1]("yes"));
    await new Promise((done) => client.on("connect", done));
    await client.emitWithAck("join", room);
    clients.push(client);
  }
  while ((await servers[0].io.in(room).fetchSockets()).length < 2) await new Promise((done) => setTimeout(done, 50));
  servers[1].io.to(room).emit("news", "plain");
  const answers = await servers[0].io.to(room).timeout(60000).emitWithAck("news", "asked");
  assert.deepEqual(answers, ["yes", "yes"]);
  while (heard.length < 4) await new Promise((done) => setTimeout(done, 10));
  assert.deepEqual(heard.sort(), ["asked", "asked", "plain", "plain"]);
  clients.forEach((client) => client.close());
}

await use((pub, sub) => createAdapter(pub, sub, { requestsTimeout: 60000 }), "plain");
await use((pub, sub) => createShardedAdapter(pub, sub), "sharded");
console.log("two servers shared rooms, and acknowledgements, by plain and by sharded channels");
process.exit(0);
