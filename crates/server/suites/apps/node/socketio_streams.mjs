// Socket.IO: two servers share their rooms by the Redis streams adapter, which also has channels of its own.
// packages: socket.io@4.8.4 socket.io-client@4.8.4 @socket.io/redis-streams-adapter@0.3.1 redis@6.3.1
import assert from "node:assert";
import { createServer } from "node:http";
import { createAdapter } from "@socket.io/redis-streams-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";
import { io as connect } from "socket.io-client";

async function server() {
  const client = createClient({ url: `redis://${process.env.HOST}:${process.env.PORT}` });
  await client.connect();
  const http = createServer();
  const adapter = createAdapter(client, { streamName: "apps-socket.io", useShardedPubSub: true });
  const io = new Server(http, { adapter });
  io.on("connection", (socket) => socket.on("join", async (room, done) => done(await socket.join(room))));
  await new Promise((done) => http.listen(0, "127.0.0.1", done));
  return { io, url: `http://127.0.0.1:${http.address().port}` };
}

const servers = [await server(), await server()];
const heard = [];
for (const { url } of servers) {
  const client = connect(url, { transports: ["websocket"] });
  client.on("news", (news, answer) => heard.push(news) && answer && answer("yes"));
  await new Promise((done) => client.on("connect", done));
  await client.emitWithAck("join", "room");
}
while ((await servers[0].io.in("room").fetchSockets()).length < 2) await new Promise((done) => setTimeout(done, 50));
servers[1].io.to("room").emit("news", "plain");
const answers = await servers[0].io.to("room").timeout(60000).emitWithAck("news", "asked");
assert.deepEqual(answers, ["yes", "yes"]);
while (heard.length < 4) await new Promise((done) => setTimeout(done, 10));
assert.deepEqual(heard.sort(), ["asked", "asked", "plain", "plain"]);
console.log("two servers shared rooms by a stream, and acknowledgements by channels");
process.exit(0);
