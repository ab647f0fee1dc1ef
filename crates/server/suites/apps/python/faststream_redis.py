"""FastStream: subscribers of a channel, a pattern, a list and a stream; a reply to a request.

packages: faststream[redis]==0.7.8 redis==8.1.0
"""

import asyncio
import os

from faststream.redis import ListSub, PubSub, RedisBroker, StreamSub
from redis.asyncio import Redis

URL = f"redis://{os.environ['HOST']}:{os.environ['PORT']}/0"
broker = RedisBroker(URL)
heard = asyncio.Queue()


@broker.subscriber("apps-fs-in")
@broker.publisher("apps-fs-out")
async def relay(text: str) -> str:
    return text.upper()


@broker.subscriber("apps-fs-out")
async def out(text: str):
    await heard.put(("channel", text))


@broker.subscriber(PubSub("apps-fs-log.*", pattern=True))
async def pattern(text: str):
    await heard.put(("pattern", text))


@broker.subscriber(list=ListSub("apps-fs-list"))
async def element(text: str):
    await heard.put(("list", text))


@broker.subscriber(stream=StreamSub("apps-fs-stream", group="g", consumer="c"))
async def entry(text: str):
    await heard.put(("stream", text))


@broker.subscriber("apps-fs-ask")
async def answer(number: int) -> int:
    return number * 2


async def main():
    await broker.start()
    await asyncio.sleep(0.3)
    async with Redis.from_url(URL) as redis:
        channels = ("apps-fs-in", "apps-fs-out", "apps-fs-ask")
        while not all(dict(await redis.pubsub_numsub(*channels)).values()) or not await redis.pubsub_numpat():
            await asyncio.sleep(0.02)
    await broker.publish("a", "apps-fs-in")
    await broker.publish("b", "apps-fs-log.x")
    await broker.publish("c", list="apps-fs-list")
    await broker.publish("d", stream="apps-fs-stream")
    told = {await asyncio.wait_for(heard.get(), 60) for _ in range(4)}
    assert told == {("channel", "A"), ("pattern", "b"), ("list", "c"), ("stream", "d")}, told
    reply = await broker.request(21, "apps-fs-ask", timeout=60)
    assert await reply.decode() == 42
    await broker.stop()
    print("messages of a channel, a pattern, a list and a stream came, and a request was answered")


asyncio.run(asyncio.wait_for(main(), 150))
