"""Measures in Python the calls that `bindings/c/examples/speed.rs` measures in Rust. `tests/speed` runs both in turns.

With the word "memory" behind the path, it makes ten million calls, and prints the memory of the process after each fifth of them.
"""

import asyncio
import gc
import resource
import sys
import time
from typing import Callable

import brooklet

APPENDS = 200_000
LOGS = 10_000
BATCH = 1_000
ENTRIES = 1_000
READS = 500
PAYLOAD = b"x" * 200


def rate(name: str, count: int, work: Callable[[], None]) -> None:
    work()  # The first round makes the logs, and the ring grows.
    start = time.perf_counter()
    work()
    print(f"{name}: {count / (time.perf_counter() - start):.0f}", flush=True)


def single(store: brooklet.Store) -> None:
    for n in range(APPENDS):
        store.append(f"log/{n % LOGS}", PAYLOAD)
    store.flush()


def many(store: brooklet.Store) -> None:
    batch = [PAYLOAD] * BATCH
    for n in range(5 * APPENDS // BATCH):
        store.append_many(f"log/{n % LOGS}", batch)
    store.flush()


def reads(store: brooklet.Store) -> None:
    for _ in range(READS):
        assert sum(len(entry.payload) for entry in store.read("one")) == ENTRIES * len(PAYLOAD)


def tasks(store: brooklet.Store) -> None:
    async def main() -> None:
        opened = brooklet.AsyncStore(store)
        for _ in range(APPENDS // 4 // BATCH):
            await asyncio.gather(*(opened.append(b"tasks", PAYLOAD) for _ in range(BATCH)))

    asyncio.run(main())


def resident() -> int:
    """Returns the memory of the process in bytes."""
    gc.collect()
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * resource.getpagesize()


def memory(store: brooklet.Store) -> None:
    calls = 10_000_000
    commit = brooklet.Commit()
    for n in range(1, calls + 1):
        key, kind = f"log/{n // 5 % LOGS}", n % 5
        if kind == 0:
            store.append(key, PAYLOAD)
        elif kind == 1:
            store.commit(commit.clear().append(key, PAYLOAD).keep_last(key, 10))
        elif kind == 2:
            try:
                store.bounds("none")
            except brooklet.NotFoundError:
                pass
        elif kind == 3:
            for _ in store.read_available(key):
                pass
        else:
            store.last(key)
        if n % (calls // 5) == 0:
            print(f"bytes of memory after {n} calls: {resident()}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        # Little of the store's own, so that growth shows.
        with brooklet.open(
            sys.argv[1], ring_size=4 << 20, max_payload=1 << 20, memory_budget=16 << 20, cache_budget=8 << 20
        ) as store:
            memory(store)
        sys.exit()
    with brooklet.open(sys.argv[1]) as store:
        rate("appends/s that nobody waits for", APPENDS, lambda: single(store))
        rate("entries/s by append_many of 1,000", 5 * APPENDS, lambda: many(store))
        store.append_many("one", [PAYLOAD] * ENTRIES).wait()
        rate("reads/s of a log of 1000 entries", READS, lambda: reads(store))
        rate("appends/s awaited, 1,000 at a time", APPENDS // 4, lambda: tasks(store))
        ticket = store.append("one", PAYLOAD)

        def waits() -> None:
            for _ in range(300):
                store.append("one", PAYLOAD).wait()

        rate("appends/s, each waited for", 300, waits)
