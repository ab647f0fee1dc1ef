"""python-socketio: two servers and a writer without a server share their rooms by its Redis manager.

packages: python-socketio==5.18.1 aiohttp==3.14.5 redis==8.1.0
"""

import asyncio
import os

import socketio
from aiohttp import web

URL = f"redis://{os.environ['HOST']}:{os.environ['PORT']}/0"


async def server():
    """A server at a port of its own."""
    sio = socketio.AsyncServer(client_manager=socketio.AsyncRedisManager(URL), async_mode="aiohttp")

    @sio.event
    async def join(sid, room):
        await sio.enter_room(sid, room)
        return room

    app = web.Application()
    sio.attach(app)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return sio, runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def client(url):
    heard, sio = asyncio.Queue(), socketio.AsyncClient()
    sio.on("news", heard.put)
    await sio.connect(url, wait_timeout=60)
    assert await sio.call("join", "room") == "room"
    return sio, heard


async def main():
    servers = [await server(), await server()]
    clients = [await client(url) for _, _, url in servers]
    writer = socketio.AsyncRedisManager(URL, write_only=True)
    # The managers begin to listen in the background.
    for _ in range(1200):
        await writer.emit("news", "ready", room="room")
        if all(not heard.empty() for _, heard in clients):
            break
        await asyncio.sleep(0.05)
    for sender, (sio, _, _) in enumerate(servers):
        await sio.emit("news", f"from {sender}", room="room")
    for _, heard in clients:
        told = set()
        while len(told) < 3:
            told.add(await asyncio.wait_for(heard.get(), 60))
        assert told == {"ready", "from 0", "from 1"}, told
    for sio, _ in clients:
        await sio.disconnect()
    print("an event of each server, and of a writer without one, reached the clients of both servers")
    os._exit(0)


asyncio.run(main())
