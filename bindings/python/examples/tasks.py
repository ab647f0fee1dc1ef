"""Tasks that append and a task that follows the log, in one thread."""

import asyncio
import sys

import brooklet


async def follow(store: brooklet.AsyncStore, entries: int) -> int:
    """Returns the bytes of the first entries of a log."""
    read = 0
    async for event in store.tail("feed"):
        if isinstance(event, brooklet.Entry):
            read += len(event.payload)
            if event.seq + 1 == entries:
                break
    return read


async def main(path: str) -> None:
    async with brooklet.open_async(path) as store:
        follower = asyncio.create_task(follow(store, 1000))
        await asyncio.gather(*(store.append("feed", b"message %d" % n) for n in range(1000)))
        print(f"{await follower} bytes came")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "feed.brooklet"))
