"""Appends by several threads and by tasks, and prints each entry once it is acknowledged, until it is killed."""

import asyncio
import os
import sys
import threading

import brooklet

THREADS = 6
LOGS = 50


def payload(writer: int, write: int) -> bytes:
    return b"writer %d, write %d, and some more" % (writer, write)


def acknowledged(key: str, seq: int, writer: int, write: int) -> None:
    # One call a line: a kill may cut the last one.
    os.write(1, f"{key} {seq} {writer} {write}\n".encode())


def in_a_thread(store: brooklet.Store, writer: int) -> None:
    write = 0
    while True:
        key = f"log/{(write * THREADS + writer) % LOGS}"
        ticket = store.append(key, payload(writer, write))
        ticket.wait()
        acknowledged(key, ticket.seq, writer, write)
        write += 1


async def in_a_task(store: brooklet.AsyncStore, writer: int) -> None:
    write = 0
    while True:
        key = f"log/{(write * THREADS + writer) % LOGS}"
        acknowledged(key, await store.append(key, payload(writer, write)), writer, write)
        write += 1


async def tasks(store: brooklet.Store) -> None:
    opened = brooklet.AsyncStore(store)
    await asyncio.gather(*(in_a_task(opened, writer) for writer in range(THREADS, 2 * THREADS)))


if __name__ == "__main__":
    opened = brooklet.open(sys.argv[1])
    for number in range(THREADS):
        threading.Thread(target=in_a_thread, args=(opened, number), daemon=True).start()
    asyncio.run(tasks(opened))
