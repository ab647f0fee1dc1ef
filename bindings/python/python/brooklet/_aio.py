"""The store for `asyncio`: writes, tails and waits have no thread, reads share a few threads."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    List,
    Optional,
    TypeVar,
    Union,
)

from . import _brooklet
from ._store import Options, Path, open
from ._types import Bounds, Entry, Info, LogInfo, TailEvent

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self, Unpack

    from ._brooklet import Key

T = TypeVar("T")

# Most events that a tail returns in one turn of the event loop.
_MOST_EVENTS = 64

_ports: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _brooklet.Port]"
# The threads of a store's reads: no store waits for the device of another one.
_readers: "weakref.WeakKeyDictionary[_brooklet.Store, ThreadPoolExecutor]"
_openers: ThreadPoolExecutor
# Held while ports and readers are added and removed: each thread may run an event loop.
_changing: threading.Lock


def _begin() -> None:
    """Makes what a process has of its own: a fork has neither the threads nor the event loops."""
    global _ports, _readers, _openers, _changing
    _ports = weakref.WeakKeyDictionary()
    _readers = weakref.WeakKeyDictionary()
    _openers = ThreadPoolExecutor(4, thread_name_prefix="brooklet")
    _changing = threading.Lock()


_begin()
os.register_at_fork(after_in_child=_begin)


def _port(loop: asyncio.AbstractEventLoop) -> _brooklet.Port:
    """Returns the port of an event loop."""
    port = _ports.get(loop)
    if port is None:
        port = _brooklet.Port()
        # First, because it may fail: without a reader, no write of the port would end.
        loop.add_reader(port.fileno(), port.drain)
        with _changing:
            closed = [other for other in _ports if other.is_closed()]
            left = [_ports.pop(other) for other in closed]
            _ports[loop] = port
        # What waits in a closed loop would wait for ever, and would keep the loop.
        for other in left:
            other.clear()
    return port


def acknowledged(ticket: _brooklet.Ticket) -> "asyncio.Future[None]":
    """Returns a future that ends when a write is acknowledged."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    _port(loop).ticket(ticket, future)
    return future


def _readers_of(store: _brooklet.Store) -> ThreadPoolExecutor:
    """Returns the threads of a store's reads. They end when it is gone."""
    with _changing:
        readers = _readers.get(store)
        if readers is None:
            readers = _readers[store] = ThreadPoolExecutor(4, thread_name_prefix="brooklet")
        return readers


async def _ask(store: _brooklet.Store, call: Callable[..., T], *arguments: Any) -> T:
    """Makes a call that may read from the volume of a store."""
    return await asyncio.get_running_loop().run_in_executor(_readers_of(store), call, *arguments)


class AsyncStore:
    """A store for coroutines: the calls of `Store`, to be awaited. Made by `open_async`."""

    def __init__(self, store: _brooklet.Store) -> None:
        self._store = store

    @property
    def store(self) -> _brooklet.Store:
        """The same store for threads."""
        return self._store

    def append(self, key: Key, payload: Buffer) -> "asyncio.Future[int]":
        """Appends an entry to a log. The future has its number when the entry is on stable media.

        The append begins with the call, also if nobody awaits the future. So a loop can append many times and await all.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        _port(loop).append(self._store, key, payload, future)
        return future

    def append_many(self, key: Key, payloads: Iterable[Buffer]) -> "asyncio.Future[List[int]]":
        """Appends entries to a log, all or none. The future has their numbers."""
        commit = _brooklet.Commit()
        for payload in payloads:
            commit.append(key, payload)
        return self.commit(commit)

    def commit(self, commit: _brooklet.Commit) -> "asyncio.Future[List[int]]":
        """Commits operations on many logs, all or none. The future has the numbers of all appended entries.

        The commit begins with the call. Cancelling the future cancels a commit that waits for room.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[List[int]] = loop.create_future()
        _port(loop).commit(self._store, commit, future)
        return future

    async def snapshot(self, key: Key, payload: Buffer) -> int:
        """Appends an entry that holds the whole state of a log, and trims all entries before it."""
        return (await self.commit(_brooklet.Commit().snapshot(key, payload)))[0]

    async def trim(self, key: Key, before: int) -> None:
        """Removes the entries of a log before number `before`."""
        await self.commit(_brooklet.Commit().trim(key, before))

    async def keep_last(self, key: Key, n: int) -> None:
        """Removes all but the last `n` entries of a log."""
        await self.commit(_brooklet.Commit().keep_last(key, n))

    async def begin_at(self, key: Key, first: int) -> None:
        """Has a log begin at number `first`."""
        await self.commit(_brooklet.Commit().begin_at(key, first))

    async def truncate(self, key: Key, start: int) -> None:
        """Removes the entries of a log from number `start` on."""
        await self.commit(_brooklet.Commit().truncate(key, start))

    async def delete(self, key: Key) -> None:
        """Deletes a log."""
        await self.commit(_brooklet.Commit().delete(key))

    async def set_retention(
        self, key: Key, *, entries: Optional[int] = None, bytes: Optional[int] = None, age: Optional[float] = None
    ) -> None:
        """Has a log keep its newest entries only: so many, so many bytes, not older than `age` seconds."""
        await self.commit(_brooklet.Commit().set_retention(key, entries=entries, bytes=bytes, age=age))

    async def read(
        self, key: Key, start: Optional[int] = None, stop: Optional[int] = None, *, reverse: bool = False
    ) -> AsyncIterator[Entry]:
        """Reads the entries of a log from number `start` on and before `stop`. A number outside of the log is an error."""
        entries = await _ask(self._store, partial(self._store.read, key, start, stop, reverse=reverse))
        while batch := await _ask(self._store, entries.take):
            for entry in batch:
                yield entry

    async def read_available(
        self, key: Key, start: Optional[int] = None, stop: Optional[int] = None, *, reverse: bool = False
    ) -> AsyncIterator[Entry]:
        """Reads like `read`, and leaves out the entries that the log does not have."""
        entries = await _ask(self._store, partial(self._store.read_available, key, start, stop, reverse=reverse))
        while batch := await _ask(self._store, entries.take):
            for entry in batch:
                yield entry

    async def scan(self, prefix: Optional[Key] = None, start: Optional[Key] = None) -> AsyncIterator[LogInfo]:
        """Lists the logs whose keys start with `prefix`, from the key `start` on."""
        logs = await _ask(self._store, self._store.scan, prefix, start)
        while batch := await _ask(self._store, logs.take):
            for log in batch:
                yield log

    async def first(self, key: Key) -> Optional[Entry]:
        """Returns the first entry of a log, or None."""
        return await _ask(self._store, self._store.first, key)

    async def last(self, key: Key) -> Optional[Entry]:
        """Returns the last entry of a log, or None."""
        return await _ask(self._store, self._store.last, key)

    async def bounds(self, key: Key) -> Bounds:
        """Returns the bounds of a log. An unknown log is an error."""
        return await _ask(self._store, self._store.bounds, key)

    async def get_bounds(self, key: Key) -> Optional[Bounds]:
        """Returns the bounds of a log, or None."""
        return await _ask(self._store, self._store.get_bounds, key)

    async def exists(self, key: Key) -> bool:
        """Returns whether a log exists."""
        return await _ask(self._store, self._store.exists, key)

    def tail(self, key: Key, start: int = 0) -> "AsyncTail":
        """Follows a log from entry `start` on. The log may be created later."""
        return AsyncTail(self._store.tail_stream(key, start), _readers_of(self._store))

    def wait_for(self, key: Key, next: int, timeout: Optional[float] = None) -> "Coroutine[Any, Any, bool]":
        """Waits until the next number of a log is at least `next`, for `timeout` seconds at most.

        Returns whether the log has reached the number, also if the log dropped the entries meanwhile. The wait begins with
        the call.
        """
        return self._reached(self._store.reach(key, next), timeout)

    async def _reached(self, reach: _brooklet.Reach, timeout: Optional[float]) -> bool:
        # The bounds of the log may be in the file.
        if await _ask(self._store, reach.look):
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        _port(loop).reach(reach, future)
        try:
            await asyncio.wait_for(future, timeout)
        except asyncio.TimeoutError:
            return False
        return True

    async def info(self) -> Info:
        """Returns numbers about the store."""
        return await _ask(self._store, self._store.info)

    async def flush(self) -> None:
        """Waits until every commit so far is on stable media, deferred ones too."""
        await _ask(self._store, self._store.flush)

    async def checkpoint(self) -> None:
        """Moves all entries from the ring into runs."""
        await _ask(self._store, self._store.checkpoint)

    async def close(self) -> None:
        """Waits until all commits are on stable media, and releases the file."""
        await _ask(self._store, self._store.close)
        with _changing:
            _readers.pop(self._store, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._store!r}"


class AsyncTail:
    """A reader that follows a log, for one coroutine: `async for` waits for the next event without end.

    A wait that is cancelled loses no event. An error ends the tail.
    """

    def __init__(self, tail: _brooklet.TailStream, readers: ThreadPoolExecutor) -> None:
        self._tail = tail
        self._readers = readers
        self._taken = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TailEvent:
        if self._taken == _MOST_EVENTS:
            # Old entries are there without a wait, and must not hold up other tasks.
            self._taken = 0
            await asyncio.sleep(0)
        while not self._tail.is_ready:
            await self._next()
        self._taken += 1
        # The event leaves the tail here, where no cancellation of the task comes between.
        return self._tail.take()

    def _next(self) -> "asyncio.Future[None]":
        """Returns a future that ends when the next event is there."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        # Old entries are in the file: another thread reads them, and the event loop has the new ones from memory.
        reads = self._tail.begin_reading()
        try:
            _port(loop).tail(self._tail, future)
            if reads:
                self._readers.submit(self._tail.read)
        except BaseException:
            # Nobody awaits it, and the next step has to find no wait.
            future.cancel()
            if reads:
                self._tail.end_reading()
            raise
        return future


class Opening:
    """A store that is being opened: to be awaited, or entered by `async with`."""

    def __init__(self, path: Path, options: Options) -> None:
        self._path, self._options = path, options
        self._store: Union[AsyncStore, None] = None

    async def _open(self) -> AsyncStore:
        opening = partial(open, self._path, **self._options)
        return AsyncStore(await asyncio.get_running_loop().run_in_executor(_openers, opening))

    def __await__(self) -> Generator[Any, None, AsyncStore]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncStore:
        self._store = await self._open()
        return self._store

    async def __aexit__(self, *raised: object) -> None:
        if self._store is not None:
            await self._store.close()


def open_async(path: Path, **options: "Unpack[Options]") -> Opening:
    """Opens the store at `path` for coroutines, or creates it. The options are those of `Options`.

    >>> async def main():
    ...     async with brooklet.open_async(path) as store:
    ...         print(await store.append("doc/7", b"an edit"))
    >>> asyncio.run(main())
    0
    """
    return Opening(path, options)
