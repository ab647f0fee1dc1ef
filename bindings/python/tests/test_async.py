"""The calls of a store, for coroutines."""

import asyncio
import gc
import os
import select
import sys
import threading
import time
from pathlib import Path
from typing import Any, Awaitable, Callable, List

import pytest

import brooklet
from brooklet import Bounds, Commit, Entry, _brooklet
from conftest import SMALL

Body = Callable[[brooklet.AsyncStore], Awaitable[None]]


def run(path: Path, body: Body) -> None:
    async def main() -> None:
        async with brooklet.open_async(path, **SMALL) as store:
            await body(store)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_writes_and_reads(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        assert await store.append("doc", b"a") == 0
        assert await store.append_many("doc", [b"b", bytearray(b"c")]) == [1, 2]
        assert await store.commit(Commit().append("feed", b"x").append("doc", b"d")) == [0, 3]
        assert [entry async for entry in store.read("doc", 1, 3)] == [Entry(1, b"b"), Entry(2, b"c")]
        assert [entry.seq async for entry in store.read_available("doc", 2, 99, reverse=True)] == [3, 2]
        assert [log.key async for log in store.scan()] == [b"doc", b"feed"]
        assert await store.first("doc") == Entry(0, b"a") and await store.last("feed") == Entry(0, b"x")
        await store.trim("doc", 1)
        await store.truncate("doc", 3)
        assert await store.bounds("doc") == Bounds(1, 3)
        await store.set_retention("doc", entries=5)
        assert await store.snapshot("doc", b"s") == 3
        await store.append_many("doc", [b"e", b"f"])
        await store.keep_last("doc", 1)
        assert await store.get_bounds("doc") == Bounds(5, 6)
        await store.begin_at("later", 9)
        await store.delete("doc")
        assert not await store.exists("doc")
        await store.flush()
        await store.checkpoint()
        with pytest.raises(brooklet.ConflictError) as raised:
            await store.commit(Commit().expect_absent("feed").append("feed", b"y"))
        assert raised.value.next == 1
        with pytest.raises(brooklet.NotFoundError):
            async for _ in store.read("feed", 7):
                pass

    run(path, body)


def test_a_loop_that_refuses_a_reader_takes_the_next_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        def refuse(*_: Any) -> None:
            raise OSError("no room for a reader")

        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
            with pytest.raises(OSError):
                await store.append("doc", b"a")
        assert await asyncio.wait_for(store.append("doc", b"b"), 60) == 0

    run(path, body)


def test_many_appends_keep_their_order(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        before = threading.active_count()
        futures = [store.append("doc", b"%d" % n) for n in range(5000)]
        assert await asyncio.gather(*futures) == list(range(5000))
        assert threading.active_count() == before
        read = [entry.payload async for entry in store.read("doc")]
        assert read == [b"%d" % n for n in range(5000)]

    run(path, body)


def test_appends_wait_for_room_without_a_thread(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        # Several times the ring.
        futures = [store.append(f"doc/{n % 50}", bytes(60_000)) for n in range(400)]
        assert sum(await asyncio.gather(*futures)) == 50 * sum(range(8))

    run(path, body)


def test_reads_wait_for_no_other_store(path: Path) -> None:
    class Stalls:
        """A store whose device does not answer."""

        def __init__(self) -> None:
            self.over = threading.Event()

        def bounds(self, _: object) -> None:
            self.over.wait()

    async def body(store: brooklet.AsyncStore) -> None:
        stalls: Any = Stalls()
        reads = [asyncio.ensure_future(brooklet.AsyncStore(stalls).bounds("doc")) for _ in range(8)]
        await asyncio.sleep(0)
        try:
            assert not await asyncio.wait_for(store.exists("doc"), 60)
        finally:
            stalls.over.set()
        await asyncio.gather(*reads)

    run(path, body)


def test_a_ticket_is_awaited(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        ticket = store.store.append("doc", b"x")
        await ticket
        await ticket
        assert ticket.is_done

    run(path, body)


def test_a_tail_follows_and_loses_no_event(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        tail = store.tail("doc")
        for _ in range(50):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(tail.__anext__(), 0.001)

        async def follow() -> List[Any]:
            seen = []
            async for event in tail:
                seen.append(event)
                if len(seen) == 100:
                    break
            return seen

        follower = asyncio.create_task(follow())
        for n in range(100):
            await store.append("doc", b"%d" % n)
        assert await follower == [Entry(n, b"%d" % n) for n in range(100)]
        waits = asyncio.ensure_future(tail.__anext__())
        await asyncio.sleep(0)
        with pytest.raises(brooklet.InvalidError, match="another task"):
            await tail.__anext__()
        await store.append("doc", b"last")
        assert await waits == Entry(100, b"last")

    run(path, body)


def test_a_cancelled_wait_leaves_its_event_in_the_tail(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        tail = store.tail("doc")
        waits = asyncio.ensure_future(tail.__anext__())
        await asyncio.sleep(0)
        waits.cancel()
        await store.append("doc", b"x")
        await asyncio.sleep(0.05)
        assert await tail.__anext__() == Entry(0, b"x")

    run(path, body)


def test_a_wait_stays_although_its_future_raises(path: Path) -> None:
    class Fails:
        """A future of another event loop."""

        failure: Any = None
        ended = False

        def done(self) -> bool:
            if self.failure:
                raise self.failure
            return self.ended

        def set_result(self, _: object) -> None:
            self.ended = True

        def add_done_callback(self, _: object) -> None:
            pass

    with brooklet.open(path, **SMALL) as store:
        port, tail, waits = _brooklet.Port(), store.tail_stream("doc", 0), Fails()
        future: Any = waits
        port.tail(tail, future)
        waits.failure = ValueError("nobody knows")
        with pytest.raises(ValueError, match="nobody knows"):
            port.tail(tail, future)
        waits.failure = None
        store.append("doc", b"x").wait()
        assert select.select([port.fileno()], [], [], 60)[0]
        port.drain()
        assert waits.ended and tail.take() == Entry(0, b"x")


def test_a_cancelled_commit_that_waits_for_room_is_not_made(path: Path) -> None:
    async def waits(store: brooklet.AsyncStore, n: int) -> bool:
        def fill() -> "List[asyncio.Future[Any]]":
            # Several times the ring: the later calls wait for room, and are made in their order.
            return [store.append(f"full/{n}/{i % 50}", bytes(60_000)) for i in range(200)]

        calls = [*fill(), store.append(f"before/{n}", b"x"), *fill()]
        cancelled = store.commit(Commit().append(f"cancelled/{n}", b"x"))
        calls.append(store.append(f"after/{n}", b"x"))
        cancelled.cancel()
        await asyncio.sleep(0)
        has_left_in_time = not store.store.exists(f"before/{n}")
        await asyncio.gather(*calls)
        assert not (has_left_in_time and store.store.exists(f"cancelled/{n}"))
        return has_left_in_time

    async def body(store: brooklet.AsyncStore) -> None:
        for n in range(50):  # A slow turn of the loop may come after the room.
            if await waits(store, n):
                break
        else:
            raise AssertionError("no commit waited for room")

    run(path, body)


def test_a_cancelled_wait_leaves_nothing_behind(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        kind = type(asyncio.get_running_loop().create_future())
        for _ in range(500):
            # Each tail has its own wait, and its log never changes.
            task = asyncio.ensure_future(store.tail("none").__anext__())
            await asyncio.sleep(0)
            task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()
        assert sum(type(found) is kind for found in gc.get_objects()) < 100

    run(path, body)


def test_other_tasks_run_beside_a_tail_of_old_entries(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        await store.append_many("doc", [b"x"] * 5000)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counter = asyncio.ensure_future(count())
        seen = 0
        async for _ in store.tail("doc"):
            seen += 1
            if seen == 5000:
                break
        assert turns >= 10
        counter.cancel()

        async def follow() -> None:
            nonlocal seen
            async for _ in store.tail("doc"):
                seen += 1

        seen = 0
        task = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert seen < 5000

    run(path, body)


def read_here() -> int:
    """Returns how many bytes this thread has read."""
    with open("/proc/thread-self/io") as counts:
        return int(counts.readline().split()[1])


def test_a_tail_reads_old_entries_on_another_thread(path: Path) -> None:
    try:
        read_here()
    except OSError:
        pytest.skip("the system does not count the reads of a thread")
    entries, size = 64, 64 << 10
    with brooklet.open(path, **SMALL) as written:
        for _ in range(entries):
            written.append("doc", os.urandom(size)).wait()
        written.checkpoint()

    async def body(store: brooklet.AsyncStore) -> None:
        before, seen = read_here(), 0
        async for event in store.tail("doc"):
            assert isinstance(event, Entry) and (event.seq, len(event.payload)) == (seen, size)
            seen += 1
            if seen == entries:
                break
        assert read_here() - before < entries * size / 4

    run(path, body)


def test_a_tail_goes_on_after_a_reading_that_did_not_begin(path: Path) -> None:
    class Ended:
        """Threads that take nothing more, as those of an interpreter that ends."""

        def submit(self, _: object) -> None:
            raise RuntimeError("ended")

    async def body(store: brooklet.AsyncStore) -> None:
        tail: Any = store.tail("doc")
        readers, tail._readers = tail._readers, Ended()
        with pytest.raises(RuntimeError):
            await tail.__anext__()
        tail._readers = readers
        waits = asyncio.ensure_future(tail.__anext__())
        await store.append("doc", b"x")
        assert (await waits).seq == 0

    run(path, body)


def test_a_reading_that_was_given_up_takes_no_event(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        await store.append("doc", b"x")
        tail = store.store.tail_stream("doc", 0)
        assert tail.begin_reading() and not tail.begin_reading()
        # An executor that gets no thread fails, and an older thread of it reads all the same.
        tail.end_reading()
        tail.read()
        assert not tail.is_ready
        assert tail.begin_reading()
        tail.read()
        assert tail.is_ready and tail.take() == Entry(0, b"x")

    run(path, body)


def test_an_event_that_came_before_the_cancellation_stays_in_the_tail(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        from brooklet import _aio

        tail = store.tail("doc")
        loop = asyncio.get_running_loop()
        for n in range(20):

            async def follow() -> Any:
                return await tail.__anext__()

            task = asyncio.ensure_future(follow())
            await asyncio.sleep(0)
            store.store.append("doc", b"%d" % n).wait()
            time.sleep(0.005)  # The store wakes the tail.
            # The future of the wait ends here, and its task has not run yet.
            _aio._port(loop).drain()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await tail.__anext__() == Entry(n, b"%d" % n)
        await store.close()
        with pytest.raises(brooklet.ClosedError):
            await tail.__anext__()
        with pytest.raises(StopAsyncIteration):
            await tail.__anext__()

    run(path, body)


def test_a_task_waits_for_a_number(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        waits = asyncio.ensure_future(store.wait_for("doc", 2))
        await store.append("doc", b"a")
        assert not (await asyncio.wait([waits], timeout=0.02))[0]
        await store.append("doc", b"b")
        assert await waits is True
        for next in range(3):
            assert await store.wait_for("doc", next, 60)
        assert await store.wait_for("none", 0)
        assert not await store.wait_for("none", 1, 0.01) and not await store.wait_for("none", 1, 0)
        assert (await store.info()).memtable_logs > 0

    run(path, body)


def test_a_task_that_waits_counts_a_number_that_is_gone_again(path: Path) -> None:
    drops: List[Callable[[Commit, str], Commit]] = [
        lambda commit, key: commit.trim(key, 1),
        lambda commit, key: commit.truncate(key, 0),
        lambda commit, key: commit.delete(key),
    ]

    async def body(store: brooklet.AsyncStore) -> None:
        for pause in (0.0, 0.02):
            for number, drop in enumerate(drops):
                key = f"{number}/{pause}"
                waits = asyncio.ensure_future(store.wait_for(key, 1, 60))
                await asyncio.sleep(pause)
                await store.commit(drop(Commit().append(key, b"x"), key))
                assert await waits

    run(path, body)


def test_a_wait_of_a_task_ends_with_its_store(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        cancelled = asyncio.ensure_future(store.wait_for("doc", 1))
        waits = asyncio.ensure_future(store.wait_for("doc", 1))
        await asyncio.sleep(0.02)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await store.close()
        with pytest.raises(brooklet.ClosedError):
            await waits
        with pytest.raises(brooklet.ClosedError):
            await store.wait_for("doc", 0)
        with pytest.raises(brooklet.ClosedError):
            await store.info()

    run(path, body)


def test_a_tail_ends_with_its_store(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        tail = store.tail("doc")
        waits = asyncio.ensure_future(tail.__anext__())
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(brooklet.ClosedError):
            await waits
        assert [event async for event in tail] == []
        with pytest.raises(brooklet.ClosedError):
            await store.append("doc", b"x")
        with pytest.raises(brooklet.ClosedError):
            await store.bounds("doc")
        with pytest.raises(brooklet.ClosedError):
            store.tail("doc")

    run(path, body)


def test_event_loops_come_and_go(path: Path) -> None:
    with brooklet.open(path, **SMALL) as store:

        async def leave() -> None:
            waits = asyncio.ensure_future(brooklet.AsyncStore(store).tail("doc").__anext__())
            await brooklet.AsyncStore(store).append("other", b"x")
            assert not waits.done()

        for _ in range(20):
            asyncio.run(leave())
        threads = [threading.Thread(target=asyncio.run, args=(leave(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.bounds("other") == Bounds(0, 24)
        from brooklet import _aio

        asyncio.run(leave())
        # A loop that has gone may be freed at once.
        assert len(_aio._ports) <= 1


def test_a_tail_moves_to_another_event_loop(path: Path) -> None:
    with brooklet.open(path, **SMALL) as store:
        tail = brooklet.AsyncStore(store).tail("doc")

        async def leave() -> None:
            asyncio.ensure_future(tail.__anext__())
            await asyncio.sleep(0)

        async def go_on() -> None:
            waits = asyncio.ensure_future(brooklet.AsyncStore(store).tail("other").__anext__())
            await asyncio.sleep(0)
            await brooklet.AsyncStore(store).append("doc", b"x")
            assert await tail.__anext__() == Entry(0, b"x")
            assert not waits.done()

        asyncio.run(leave())
        asyncio.run(go_on())


def test_event_loops_of_many_threads_come_and_go(path: Path) -> None:
    """Threads begin and end event loops at the same moments."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with brooklet.open(path, **SMALL) as store:

            async def once() -> None:
                await brooklet.AsyncStore(store).append("other", b"x")

            def many() -> None:
                for _ in range(25):
                    asyncio.run(once())

            threads = [threading.Thread(target=many) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert store.bounds("other") == Bounds(0, 200)
    finally:
        sys.setswitchinterval(interval)


def test_a_close_releases_the_file_beside_waits(path: Path) -> None:
    async def main() -> None:
        store = brooklet.open(path, **SMALL)
        appended = brooklet.AsyncStore(store).append("doc", b"x")
        committed = brooklet.AsyncStore(store).commit(Commit().append("doc", b"y"))
        store.close()
        # No turn of the loop has taken the ends of the waits.
        with brooklet.open(path) as again:
            assert again.bounds("doc") == Bounds(0, 2)
        assert (await appended, await committed) == (0, [1])

    asyncio.run(main())


def test_opening_is_awaited(path: Path) -> None:
    async def main() -> None:
        store = await brooklet.open_async(path, **SMALL)
        with pytest.raises(brooklet.CannotOpenError):
            await brooklet.open_async(path)
        await store.close()
        await store.close()

    asyncio.run(main())


def test_wrong_arguments_are_refused_at_once(path: Path) -> None:
    async def body(store: brooklet.AsyncStore) -> None:
        with pytest.raises(TypeError, match="a payload is bytes-like, not str"):
            store.append("doc", "text")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            store.append_many("doc", None)  # type: ignore[arg-type]
        with pytest.raises(brooklet.InvalidError):
            await store.append("", b"x")

    run(path, body)
    with pytest.raises(RuntimeError, match="no running event loop"):
        with brooklet.open(path) as opened:
            brooklet.AsyncStore(opened).append("doc", b"x")
