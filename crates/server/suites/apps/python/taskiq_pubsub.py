"""taskiq: two workers get each task by its PubSubBroker, and their results come back.

packages: taskiq==0.13.0 taskiq-redis==1.2.4 redis==8.1.0
"""

import asyncio
import os

from redis.asyncio import Redis
from taskiq.api import run_receiver_task
from taskiq_redis import PubSubBroker, RedisAsyncResultBackend

URL = f"redis://{os.environ['HOST']}:{os.environ['PORT']}/0"
ran = []


def broker(worker):
    made = PubSubBroker(URL, queue_name="apps-taskiq").with_result_backend(RedisAsyncResultBackend(URL))

    @made.task(task_name="add")
    async def add(a, b):
        ran.append(worker)
        return a + b

    return made, add


async def main():
    workers = [broker(n)[0] for n in range(2)]
    tasks = []
    for worker in workers:
        await worker.startup()
        tasks.append(asyncio.create_task(run_receiver_task(worker)))
    async with Redis.from_url(URL) as redis:
        while dict(await redis.pubsub_numsub("apps-taskiq")).get(b"apps-taskiq", 0) < 2:
            await asyncio.sleep(0.02)
    sender, add = broker("sender")
    await sender.startup()
    sent = [await add.kiq(n, 1) for n in range(10)]
    results = [await task.wait_result(timeout=60) for task in sent]
    assert [result.return_value for result in results] == list(range(1, 11))
    while len(ran) < 20:
        await asyncio.sleep(0.02)
    assert ran.count(0) == ran.count(1) == 10, ran
    for task in tasks:
        task.cancel()
    print("10 tasks ran at each of 2 workers, and their results came back")


asyncio.run(asyncio.wait_for(main(), 150))
os._exit(0)
