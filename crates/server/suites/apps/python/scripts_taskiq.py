"""taskiq's brokers on a stream and on a list, with results.

packages: taskiq==0.13.0 taskiq-redis==1.2.4
"""

import asyncio
import os

from taskiq.api import run_receiver_task
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker

URL = f"redis://{os.environ['HOST']}:{os.environ['PORT']}/3"


async def run(broker):
    broker = broker.with_result_backend(RedisAsyncResultBackend(URL))
    done = []

    @broker.task(task_name="add")
    async def add(a: int, b: int) -> int:
        done.append(a)
        return a + b

    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    tasks = [await add.kiq(n, 1) for n in range(20)]
    for n, task in enumerate(tasks):
        result = await task.wait_result(timeout=60)
        assert result.return_value == n + 1, result
    # A task that rests for longer than the timeout of the broker is delivered again.
    assert sorted(set(done)) == list(range(20)), done
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await broker.shutdown()


async def main():
    await run(RedisStreamBroker(URL, queue_name="stream", consumer_group_name="group", idle_timeout=100))
    await run(ListQueueBroker(URL, queue_name="list"))


asyncio.run(main())
print("taskiq: passed")
