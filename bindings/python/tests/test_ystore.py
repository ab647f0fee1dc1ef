"""The store of documents for pycrdt-store. `tests/run` also runs that project's own tests with it."""

import asyncio
import os
from pathlib import Path
from typing import Any, List

import pytest

import brooklet
from conftest import SMALL

pycrdt = pytest.importorskip("pycrdt")
pytest.importorskip("pycrdt.store")

from brooklet.ystore import BrookletYStore, _open  # noqa: E402


def made(path: Path, squash: Any = None) -> Any:
    class MyYStore(BrookletYStore):
        store_path = path
        squash_above = squash

    return MyYStore


def updates(document: Any, count: int) -> List[bytes]:
    array = document.get("array", type=pycrdt.Array)
    result = []
    for n in range(count):
        before = document.get_state()
        array.append(float(n))
        result.append(document.get_update(before))
    return result


def test_documents_share_a_store(path: Path) -> None:
    async def main() -> None:
        kind = made(path)
        async with kind("a") as a:
            async with kind("b") as b:
                for update in updates(pycrdt.Doc(), 5):
                    await a.write(update)
                with pytest.raises(Exception) as raised:
                    await b.apply_updates(pycrdt.Doc())
                assert "YDocNotFound" in repr(raised.value)
            await a.write(b"more")
            with pytest.raises(RuntimeError, match="not started"):
                await b.write(b"x")
            with pytest.raises(RuntimeError, match="already running"):
                await a.start()
        async with kind("a") as a:
            assert [update async for update, _, _ in a.read()][5:] == [b"more"]

    asyncio.run(main())
    with brooklet.open(path) as store:
        assert store.bounds("a") == (0, 6)


def test_updates_that_wait_for_another_one_are_squashed_with_the_rest(path: Path) -> None:
    async def main() -> None:
        first, late, *rest = updates(pycrdt.Doc(), 20)
        async with made(path, 5)("doc") as ystore:
            # One update is late: all that follow it wait for it, and are squashed meanwhile.
            for update in [first, *rest, late]:
                await ystore.write(update)
            assert len([update async for update, _, _ in ystore.read()]) <= 5
            document: Any = pycrdt.Doc()
            await ystore.apply_updates(document)
            assert document.get("array", type=pycrdt.Array).to_py() == [float(n) for n in range(20)]

    asyncio.run(main())


def test_squashed_updates_are_the_same_document(path: Path) -> None:
    async def main() -> None:
        async with made(path, 10)("doc") as ystore:
            for update in updates(pycrdt.Doc(), 95):
                await ystore.write(update)
            assert len([update async for update, _, _ in ystore.read()]) <= 10
            document: Any = pycrdt.Doc()
            await ystore.apply_updates(document)
            assert document.get("array", type=pycrdt.Array).to_py() == [float(n) for n in range(95)]

    asyncio.run(main())


def test_an_update_counts_although_the_squash_fails(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        # Each update fits into the store, and the whole does not.
        store = brooklet.open(path, **{**SMALL, "max_payload": 64 << 10})
        _open[os.path.abspath(path)] = (brooklet.AsyncStore(store), 0)
        async with made(path, 5)("doc") as document:
            source: Any = pycrdt.Doc()
            array = source.get("array", type=pycrdt.Array)
            for n in range(12):
                before = source.get_state()
                array.append("x" * 20_000)
                await document.write(source.get_update(before))
            assert len([update async for update, _, _ in document.read()]) == 12

    asyncio.run(main())
    # It is tried again when as many updates have come once more.
    assert len([message for message in caplog.messages if "squash" in message]) == 2


def test_a_stop_ends_the_start_although_the_close_fails(path: Path) -> None:
    class Fails:
        def close(self) -> None:
            raise brooklet.StoppedError("the device is gone")

    async def main() -> None:
        store: Any = brooklet.AsyncStore(brooklet.open(path))
        _open[os.path.abspath(path)] = (store, 0)
        document = made(path)("doc")
        starting = asyncio.ensure_future(document.start())
        await document.started.wait()
        opened, store._store = store._store, Fails()
        with pytest.raises(brooklet.StoppedError):
            await document.stop()
        opened.close()
        assert document.stopped.is_set()
        await starting

    asyncio.run(main())


def test_a_move_of_another_version_that_was_cancelled_is_made_again(path: Path) -> None:
    class Cancels(brooklet.AsyncStore):
        """Cancels the task at its second write."""

        writes = 0

        def append(self, key: Any, payload: Any) -> Any:
            self.count()
            return super().append(key, payload)

        def commit(self, commit: Any) -> Any:
            self.count()
            return super().commit(commit)

        def count(self) -> None:
            self.writes += 1
            if self.writes == 2:
                raise asyncio.CancelledError

    async def main() -> None:
        kind = made(path)
        async with kind("doc") as document:
            for _ in range(5):
                await document.write(bytes(100_000))
        _open[os.path.abspath(path)] = (Cancels(brooklet.open(path)), 0)
        newer = kind("doc")
        newer.version = kind.version + 1
        async with newer:
            with pytest.raises(asyncio.CancelledError):
                async for _ in newer.read():
                    pass
            await newer.write(b"new")
            assert [update async for update, _, _ in newer.read()] == [b"new"]

    asyncio.run(main())
    with brooklet.open(path) as store:
        assert store.bounds("doc") == (0, 1)
        # The copy that was begun stays.
        assert store.bounds("doc(2)") == (0, 5)
