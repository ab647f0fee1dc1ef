"""Many calls leave no memory behind."""

import asyncio
import gc
from typing import List, Optional

import brooklet


def resident() -> int:
    """Returns the bytes of memory of this process."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
    raise OSError("no VmRSS")


def calls(store: brooklet.Store) -> None:
    async def main() -> None:
        opened = brooklet.AsyncStore(store)
        await asyncio.gather(*(opened.append("async", b"x" * 100) for _ in range(500)))
        tail = opened.tail("none")
        for _ in range(300):
            task = asyncio.ensure_future(tail.__anext__())
            await asyncio.sleep(0)
            task.cancel()

    seen: List[Optional[brooklet.Error]] = []
    for n in range(2000):
        ticket = store.append("doc", b"x" * 100)
        ticket.on_done(seen.append)
        try:
            store.read("doc", 1 << 60)
        except brooklet.NotFoundError:
            pass
    store.append_many("doc", [bytearray(100)] * 1000)
    asyncio.run(main())
    store.flush()
    for _ in range(3):
        assert sum(1 for _ in store.read_available("doc")) > 0
    tail = store.tail("doc")
    while tail.try_next() is not None:
        pass
    for key in ["doc", "async"]:
        store.delete(key).wait()


def test_memory_does_not_grow(store: brooklet.Store) -> None:
    for _ in range(8):  # The store's budgets fill.
        calls(store)
    gc.collect()
    for _ in range(4):
        before, objects = resident(), len(gc.get_objects())
        for _ in range(15):
            calls(store)
        gc.collect()
        # 100,000 calls: a leak of 100 bytes a call would be 10 MB, each time.
        grown = (resident() - before, len(gc.get_objects()) - objects)
        if grown[0] < 5 << 20 and grown[1] < 500:
            return
    raise AssertionError(grown)
