"""What agents count on that keep their conversations by RedisSession of the OpenAI Agents SDK, on the server at HOST:PORT.

Each test is a coroutine `test_...` on an empty server; `run` beside this file starts it. The one agent that runs has a model
that is a few lines below: nothing leaves the machine.
"""

import asyncio
import os
import sys
import time
import traceback

import redis.asyncio
from agents import Agent, Model, ModelResponse, Runner, Usage
from agents.extensions.memory import RedisSession
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

HOST, PORT = os.environ.get("HOST", "127.0.0.1"), os.environ["PORT"]
PASSWORD = os.environ.get("REDIS_PASSWORD")
URL = f"redis://{f':{PASSWORD}@' if PASSWORD else ''}{HOST}:{PORT}/0"


def said(text):
    return {"role": "user", "content": text}


def open_session(name, **options):
    return RedisSession.from_url(name, url=URL, **options)


def equal(found, expected):
    assert found == expected, f"{found!r} where {expected!r} was expected"


async def test_items(client):
    session = open_session("one")
    assert await session.ping()
    equal(await session.get_items(), [])
    equal(await session.pop_item(), None)
    await session.add_items([said("1"), said("2 ä€😀\r\n\0"), said("3")])
    await session.add_items([said("4")])
    equal(await session.get_items(), [said("1"), said("2 ä€😀\r\n\0"), said("3"), said("4")])
    equal(await session.get_items(limit=2), [said("3"), said("4")])
    equal(await session.get_items(limit=100), await session.get_items())
    equal(await session.pop_item(), said("4"))
    equal(await session.get_items(limit=1), [said("3")])
    await session.clear_session()
    equal(await session.get_items(), [])
    equal(await client.dbsize(), 0)
    await session.close()


async def test_what_is_kept(client):
    session = open_session("one")
    await session.add_items([said("1")])
    equal(await client.type("agents:session:one"), b"hash")
    equal(await client.type("agents:session:one:messages"), b"list")
    kept = await client.hgetall("agents:session:one")
    equal(kept[b"session_id"], b"one")
    assert abs(int(kept[b"created_at"]) - time.time()) < 60
    await session.close()


async def test_time_to_live(client):
    lasting = open_session("lasting", ttl=100)
    await lasting.add_items([said("2")])
    for _ in range(10):
        session = open_session("short", ttl=4)
        begin = time.monotonic()
        await session.add_items([said("1")])
        left = await client.pttl("agents:session:short:messages")
        await asyncio.sleep(2.4)
        added = time.monotonic()
        # Each addition gives the conversation its whole time again.
        await session.add_items([said("3")])
        late = time.monotonic() - begin >= 4
        await asyncio.sleep(2.4)
        items = await session.get_items()
        if not late and time.monotonic() - added < 4:
            break
        # A busy machine was too late.
        await session.clear_session()
        await session.close()
    assert 0 < left <= 4000
    equal(len(items), 2)
    await asyncio.sleep(2.4)
    equal(await session.get_items(), [])
    equal(await lasting.get_items(), [said("2")])
    equal(await client.dbsize(), 2)
    await session.close()
    await lasting.close()


async def test_two_sessions(client):
    one, two = open_session("one"), open_session("two")

    async def talk(session, name):
        for at in range(100):
            await session.add_items([said(f"{name} {at}"), said(f"answer {at}")])
            equal((await session.get_items(limit=2))[0], said(f"{name} {at}"))

    await asyncio.gather(talk(one, "one"), talk(two, "two"))
    for session, name in ((one, "one"), (two, "two")):
        equal([item["content"] for item in await session.get_items()][::2], [f"{name} {at}" for at in range(100)])
    await one.clear_session()
    equal(len(await two.get_items()), 200)
    await one.close()
    await two.close()


async def test_many_writers(client):
    """Writers with connections of their own to one conversation: nothing is lost, each writer's items stay in order."""

    async def write(number):
        session = open_session("shared")
        for at in range(20):
            await session.add_items([said(f"{number} {at} a"), said(f"{number} {at} b")])
        await session.close()

    await asyncio.gather(*(write(number) for number in range(16)))
    session = open_session("shared")
    texts = [item["content"] for item in await session.get_items()]
    equal(len(texts), 16 * 20 * 2)
    for number in range(16):
        own = [text for text in texts if text.startswith(f"{number} ")]
        equal(own, [f"{number} {at} {half}" for at in range(20) for half in "ab"])
    # What was added at once stays together.
    equal([text[:-1] for text in texts[::2]], [text[:-1] for text in texts[1::2]])
    await session.close()


async def test_many_poppers(client):
    session = open_session("shared")
    await session.add_items([said(str(at)) for at in range(200)])

    async def pop():
        own, found = open_session("shared"), []
        while (item := await own.pop_item()) is not None:
            found.append(int(item["content"]))
        await own.close()
        return found

    found = await asyncio.gather(*(pop() for _ in range(8)))
    equal(sorted(at for each in found for at in each), list(range(200)))
    await session.close()


async def test_many_sessions(client):
    async def talk(number):
        session = RedisSession(f"user-{number}", redis_client=client)
        await session.add_items([said(f"hello {number}"), said("x" * 2000)])
        equal((await session.get_items())[0], said(f"hello {number}"))

    for start in range(0, 500, 50):
        await asyncio.gather(*(talk(number) for number in range(start, start + 50)))
    equal(await client.dbsize(), 1000)


async def test_wrong_type(client):
    await client.set("agents:session:one:messages", "no list")
    session = open_session("one")
    try:
        await session.add_items([said("1")])
    except redis.ResponseError as error:
        assert "WRONGTYPE" in str(error)
    else:
        raise AssertionError("items were added to a string")
    # WATCH is over and the connection is of use.
    await client.delete("agents:session:one:messages")
    await session.add_items([said("1")])
    equal(await session.get_items(), [said("1")])
    await session.close()


class Echo(Model):
    """Answers with the number of items that it was given."""

    async def get_response(self, system_instructions, input, *args, **options):
        text = ResponseOutputText(text=f"{len(input)} items", type="output_text", annotations=[])
        message = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args, **options):
        raise NotImplementedError


async def test_an_agent_remembers(client):
    agent = Agent(name="agent", model=Echo())
    session = open_session("talk")
    for items in (1, 3, 5):
        result = await Runner.run(agent, "hello", session=session)
        equal(result.final_output, f"{items} items")
    await session.close()
    # Another process would find the same.
    session = open_session("talk")
    equal(len(await session.get_items()), 6)
    await session.close()


async def run(test):
    client = redis.asyncio.Redis.from_url(URL, max_connections=100)
    try:
        await client.flushall()
        await asyncio.wait_for(test(client), 150)
        return True
    except Exception:
        print(f"failed: {test.__name__}")
        traceback.print_exc(limit=-3)
        return False
    finally:
        await client.aclose()


async def main():
    tests = [test for name, test in globals().items() if name.startswith("test_")]
    results = [await run(test) for test in tests]
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    asyncio.run(main())
