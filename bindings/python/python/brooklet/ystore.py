"""Documents of pycrdt: a store for pycrdt-store, and so for pycrdt-websocket. Needs `pip install brooklet[ystore]`.

A document is one log. An entry is an update, with its metadata and its time.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from logging import Logger, getLogger
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Optional, Tuple, Union

from anyio import Lock
from pycrdt import merge_updates
from pycrdt.store import BaseYStore, YDocNotFound

import brooklet

# The version, the time, and the bytes of the metadata, which follows; then the update.
_HEAD = struct.Struct("<idI")

# Most bytes that one commit of a move copies, if it copies more than one update.
_COPIED = 256 << 10

# The stores that are open, by path, with the number of documents that use them.
_open: Dict[str, Tuple[brooklet.AsyncStore, int]] = {}
# Held while they change: each thread may run an event loop.
_changing = threading.Lock()


def _begin() -> None:
    """Begins anew in the child of a fork: its parent has the stores, and maybe the lock."""
    global _open, _changing
    _open, _changing = {}, threading.Lock()


os.register_at_fork(after_in_child=_begin)


class BrookletYStore(BaseYStore):
    """A YStore that keeps all documents in one store: a write returns when the update is on stable media.

    Subclass to point to your store:

        class MyYStore(BrookletYStore):
            store_path = "documents.brooklet"

    All subclasses with one path share the store, which is open while a document is. Needs asyncio, not trio.
    """

    store_path: Union[str, "os.PathLike[str]"] = "ystore.brooklet"
    """The store."""
    squash_above: Optional[int] = None
    """Replaces the updates of a document by one when there are more than this. None: keeps the history."""

    def __init__(
        self,
        path: str,
        metadata_callback: Optional[Callable[[], Union[Awaitable[bytes], bytes]]] = None,
        log: Optional[Logger] = None,
    ) -> None:
        self.path = path
        self.metadata_callback = metadata_callback
        self.log = log or getLogger(__name__)
        self.lock = Lock()
        self._store: Optional[brooklet.AsyncStore] = None

    async def start(self, **options: Any) -> None:
        """Opens the store, unless another document has it open."""
        if self._store is not None:
            raise RuntimeError("YStore already running")
        name = os.path.abspath(self.store_path)
        with _changing:
            store, users = _open.get(name) or (brooklet.AsyncStore(brooklet.open(name)), 0)
            _open[name] = (store, users + 1)
        self._store, self._name, self._checked, self._squash_from = store, name, False, 0
        try:
            await super().start(**options)
        except BaseException:
            await self._leave()
            raise

    async def stop(self) -> None:
        """Closes the store, unless another document needs it."""
        try:
            await self._leave()
        finally:
            # Also if the store fails to close: the task of `start` waits for this.
            await super().stop()

    async def _leave(self) -> None:
        if self._store is None:
            return
        self._store = None
        with _changing:
            store, users = _open.pop(self._name)
            if users > 1:
                _open[self._name] = (store, users - 1)
            else:
                # On this thread: another document may open the store next.
                store.store.close()

    def _running(self) -> brooklet.AsyncStore:
        if self._store is None:
            raise RuntimeError("YStore not started")
        return self._store

    async def read(self) -> AsyncIterator[Tuple[bytes, bytes, float]]:
        """Yields (update, metadata, time) of each update of the document."""
        store = self._running()
        async with self.lock:
            await self._check_version(store)
        found = False
        async for entry in store.read_available(self.path):
            found = True
            _, update, metadata, written = _decoded(entry.payload)
            yield update, metadata, written
        if not found:
            raise YDocNotFound

    async def write(self, data: bytes) -> None:
        """Stores an update. Returns when it is on stable media."""
        store = self._running()
        async with self.lock:
            await self._check_version(store)
            seq = await store.append(self.path, await self._encoded(data))
            if self.squash_above is not None and seq >= self._squash_from:
                await self._try_squash(store, seq, self.squash_above)

    async def _encoded(self, update: bytes) -> bytes:
        metadata = await self.get_metadata()
        return _HEAD.pack(self.version, time.time(), len(metadata)) + metadata + update

    async def _try_squash(self, store: brooklet.AsyncStore, seq: int, above: int) -> None:
        """Squashes the updates up to number `seq` if they are more than `above`. The last one counts also if that fails."""
        try:
            if seq + 1 - (await store.bounds(self.path)).first > above:
                await self._squash(store, seq + 1)
        except Exception:
            # It reads the whole document: not at each write.
            self._squash_from = seq + above
            self.log.warning("could not squash the updates of %s", self.path, exc_info=True)

    async def _squash(self, store: brooklet.AsyncStore, end: int) -> None:
        """Replaces the updates before number `end` by one.

        Merges the updates themselves. A document that has applied them would leave out those that wait for an
        update which has not come yet.
        """
        updates = [_decoded(entry.payload)[1] async for entry in store.read_available(self.path, None, end)]
        whole = await self._encoded(merge_updates(*updates))
        try:
            await store.commit(brooklet.Commit().expect_next(self.path, end).snapshot(self.path, whole))
        except brooklet.ConflictError:
            pass  # Somebody else wrote; the next write squashes.

    async def _check_version(self, store: brooklet.AsyncStore) -> None:
        """Moves a document of another version out of the way, once after the start."""
        if self._checked:
            return
        last = await store.last(self.path)
        if last is not None and _decoded(last.payload)[0] != self.version:
            await self._move(store)
        # A move that failed is made again.
        self._checked = True

    async def _move(self, store: brooklet.AsyncStore) -> None:
        """Moves the document to a new name."""
        number = 1
        while await store.exists(f"{self.path}({number})"):
            number += 1
        other = f"{self.path}({number})"
        self.log.warning("YStore version mismatch, moving %s to %s", self.path, other)
        commit, size, end = brooklet.Commit(), 0, 0
        async for entry in store.read_available(self.path):
            if 0 < size and size + len(entry.payload) > _COPIED:
                await store.commit(commit)
                commit, size = brooklet.Commit(), 0
            commit.append(other, entry.payload)
            size, end = size + len(entry.payload), entry.seq + 1
        if size > _COPIED:
            await store.commit(commit)
            commit.clear()
        # The document goes with the last part of its copy.
        await store.commit(commit.expect_next(self.path, end).delete(self.path))


def _decoded(entry: bytes) -> Tuple[int, bytes, bytes, float]:
    """Returns the version, the update, the metadata and the time of an entry."""
    version, written, metadata = _HEAD.unpack_from(entry)
    update = _HEAD.size + metadata
    return version, entry[update:], entry[_HEAD.size : update], written
