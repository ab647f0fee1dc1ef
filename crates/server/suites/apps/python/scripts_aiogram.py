"""aiogram's RedisStorage and its isolation of events, which locks.

packages: aiogram==3.31.0 redis==8.1.0
"""

import asyncio
import os

from aiogram.fsm.state import State
from aiogram.fsm.storage.base import StorageKey
from aiogram.fsm.storage.redis import RedisStorage


async def main():
    storage = RedisStorage.from_url(f"redis://{os.environ['HOST']}:{os.environ['PORT']}/2")
    await storage.redis.flushdb()
    key = StorageKey(bot_id=1, chat_id=2, user_id=3)
    await storage.set_state(key, State("asked"))
    await storage.set_data(key, {"name": "Ada", "n": 1})
    assert await storage.get_data(key) == {"name": "Ada", "n": 1}
    assert (await storage.update_data(key, {"n": 2}))["n"] == 2
    isolation = storage.create_isolation()
    order = []

    async def worker(n):
        async with isolation.lock(key):
            order.append(("in", n))
            await asyncio.sleep(0.05)
            order.append(("out", n))

    await asyncio.gather(*(worker(n) for n in range(4)))
    assert all(order[i][1] == order[i + 1][1] for i in range(0, 8, 2)), order
    await storage.close()


asyncio.run(main())
print("aiogram: passed")
