"""Checkpoints of LangGraph: a checkpointer for its graphs. Needs `pip install brooklet[langgraph]`.

    with brooklet.open("agents.brooklet") as store:
        graph = builder.compile(checkpointer=BrookletSaver(store))
        graph.invoke(state, {"configurable": {"thread_id": "7"}})

Each checkpoint is one log, and its pending writes are another, so checkpoints are deleted one by one. Each namespace of a
thread has one more log, its head, with the latest identifier: the latest checkpoint is found by its key, however many the
thread has. Each call of `put` and of `put_writes` is one commit: a crash leaves all of it or nothing.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from itertools import groupby
from typing import (
    Any,
    AsyncIterator,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

import brooklet

from ._aio import _ask
from ._checkpoints import (
    CHECKPOINT,
    HEAD,
    WRITES,
    Record,
    Write,
    behind,
    decoded_writes,
    encoded_writes,
    order,
    part,
    place,
    space_of,
    text,
    utf8,
)


class BrookletSaver(BaseCheckpointSaver[int]):
    """A checkpointer that keeps the threads in a store. A call that writes returns when it is on stable media.

    Threads, tasks and event loops may share one, and several may use one store. Those of one `name` have the same threads.
    A checkpoint, and the writes of one call, are one payload: `max_payload` of the store limits them.
    """

    def __init__(
        self,
        store: Union[brooklet.Store, brooklet.AsyncStore],
        *,
        name: str = "langgraph",
        serde: Optional[SerializerProtocol] = None,
    ) -> None:
        super().__init__(serde=serde)
        self.store = store.store if isinstance(store, brooklet.AsyncStore) else store
        self._root = part(name)

    # Writing.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint, or replaces the one of the same identifier. Returns its config."""
        space, record = self._record(config, checkpoint, metadata)
        while True:
            try:
                self.store.commit(_put(space, record, self._head(space))).wait()
                return _config(record, record.id)
            except brooklet.ConflictError:
                pass  # Another put of this namespace was first.

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint like `put`."""
        space, record = self._record(config, checkpoint, metadata)
        while True:
            head = await _ask(self.store, self._head, space)
            try:
                await brooklet.AsyncStore(self.store).commit(_put(space, record, head))
                return _config(record, record.id)
            except brooklet.ConflictError:
                pass

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[Tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores writes of a task, all or none. The checkpoint may be stored later.

        A write that the task has stored before stays as it is, unless it is a special one, such as an error.
        """
        if writes:
            self.store.append(*self._writes(config, writes, task_id, task_path)).wait()

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[Tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores writes of a task like `put_writes`."""
        if writes:
            await brooklet.AsyncStore(self.store).append(*self._writes(config, writes, task_id, task_path))

    def _record(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> Tuple[bytes, Record]:
        asked = config["configurable"]
        record = Record(
            str(_asked(config, "thread_id")),
            asked.get("checkpoint_ns") or "",
            checkpoint["id"],
            asked.get("checkpoint_id") or "",
            self.serde.dumps_typed(checkpoint),
            self.serde.dumps_typed(get_checkpoint_metadata(config, metadata)),
        )
        return self._space(config), record

    def _writes(
        self, config: RunnableConfig, writes: Sequence[Tuple[str, Any]], task: str, path: str
    ) -> Tuple[bytes, bytes]:
        encoded = [
            Write(task, path, WRITES_IDX_MAP.get(channel, index), channel, self.serde.dumps_typed(value))
            for index, (channel, value) in enumerate(writes)
        ]
        key = place(self._space(config), _asked(config, "checkpoint_id")) + WRITES
        return key, encoded_writes(encoded)

    # Reading.

    def get_tuple(self, config: RunnableConfig) -> Optional[CheckpointTuple]:
        """Returns the checkpoint of a config; without an identifier, the latest one of the thread's namespace."""
        space = self._space(config)
        if identifier := config["configurable"].get("checkpoint_id"):
            return self._tuple(place(space, identifier) + CHECKPOINT)
        head = self._head(space)
        if head is None:
            return None
        if found := self._tuple(place(space, text(head.payload)) + CHECKPOINT):
            return found
        # That one was deleted: the next one is the first in the order of the keys.
        return next((found for key in self._keys(space) if (found := self._tuple(key))), None)

    async def aget_tuple(self, config: RunnableConfig) -> Optional[CheckpointTuple]:
        """Returns a checkpoint like `get_tuple`."""
        return await _ask(self.store, self.get_tuple, config)

    def list(
        self,
        config: Optional[RunnableConfig],
        *,
        filter: Optional[Dict[str, Any]] = None,
        before: Optional[RunnableConfig] = None,
        limit: Optional[int] = None,
    ) -> Iterator[CheckpointTuple]:
        """Yields checkpoints, the latest one first: of a namespace, of a thread, or of all threads.

        `filter` has values of the metadata. `before` is a config: those before its checkpoint are listed. A list of one
        namespace reads what it yields and no more. The others read the keys of all checkpoints first.
        """
        if limit is not None and limit <= 0:
            return
        for key in self._listed(config, before):
            record = self._found(key)
            if record is None or (filter and not self._matches(record, filter)):
                continue
            yield self._loaded(key, record)
            if limit is not None:
                limit -= 1
                if limit == 0:
                    return

    async def alist(
        self,
        config: Optional[RunnableConfig],
        *,
        filter: Optional[Dict[str, Any]] = None,
        before: Optional[RunnableConfig] = None,
        limit: Optional[int] = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yields checkpoints like `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (item := await _ask(self.store, next, found, None)) is not None:
            yield item

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns the writes that made the values of channels, from their last stored values on."""
        history: Dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        target = self.get_tuple(config) if channels else None
        newest_first: Dict[str, List[PendingWrite]] = {channel: [] for channel in channels}
        for ancestor, missing in self._ancestors(target, set(channels)):
            for write in reversed(ancestor.pending_writes or []):
                if write[1] in missing:
                    newest_first[write[1]].append(write)
            values = ancestor.checkpoint["channel_values"]
            for channel in missing & values.keys():
                history[channel]["seed"] = values[channel]
        for channel in history:
            history[channel]["writes"] = newest_first[channel][::-1]
        return history

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns writes like `get_delta_channel_history`."""
        return await _ask(self.store, lambda: self.get_delta_channel_history(config=config, channels=channels))

    def _ancestors(
        self, checkpoint: Optional[CheckpointTuple], channels: Set[str]
    ) -> Iterator[Tuple[CheckpointTuple, Set[str]]]:
        """Yields the ancestors of a checkpoint, with the channels whose values none before had, until all are found."""
        missing, seen = set(channels), set()
        while missing and checkpoint is not None and checkpoint.parent_config is not None:
            identifier = checkpoint.parent_config["configurable"]["checkpoint_id"]
            if identifier in seen:
                return  # A checkpoint that was replaced can be its own ancestor.
            seen.add(identifier)
            checkpoint = self.get_tuple(checkpoint.parent_config)
            if checkpoint is not None:
                yield checkpoint, missing
                missing = missing - checkpoint.checkpoint["channel_values"].keys()

    def _space(self, config: RunnableConfig) -> bytes:
        """Returns the beginning of the keys of a thread's namespace."""
        return self._thread(_asked(config, "thread_id")) + part(config["configurable"].get("checkpoint_ns") or "")

    def _thread(self, thread: str) -> bytes:
        return self._root + part(str(thread))

    def _head(self, space: bytes) -> Optional[brooklet.Entry]:
        """Returns the head of a namespace: no checkpoint there has a greater identifier. None: there is no checkpoint."""
        return self._at(space + HEAD)

    def _at(self, key: bytes) -> Optional[brooklet.Entry]:
        """Returns a head. One that a retention has emptied has an identifier that is less than all."""
        while (entry := self.store.last(key)) is None:
            bounds = self.store.get_bounds(key)
            if bounds is None:
                return None
            if bounds.first == bounds.next:
                return brooklet.Entry(bounds.next - 1, b"")
        return entry

    def _keys(self, prefix: bytes, start: Optional[bytes] = None) -> Iterator[bytes]:
        """Yields the keys of checkpoints."""
        return (key for key, _ in self.store.scan(prefix, start) if key.endswith(CHECKPOINT))

    def _listed(self, config: Optional[RunnableConfig], before: Optional[RunnableConfig]) -> Iterable[bytes]:
        """Returns the keys of the checkpoints that a call of `list` is about, the latest one first."""
        asked = config["configurable"] if config else {}
        end = before["configurable"].get("checkpoint_id") if before else None
        identifier = asked.get("checkpoint_id")
        if config is not None and asked.get("checkpoint_ns") is not None:
            space = self._space(config)
            if identifier:
                return [place(space, identifier) + CHECKPOINT] if not end or identifier < end else []
            return self._keys(space, behind(space, end) if end else None)
        prefix = self._thread(_asked(config, "thread_id")) if config else self._root
        found = [(order(self._root, key), key) for key in self._keys(prefix)]
        if end:
            found = [item for item in found if item[0] > behind(b"", end)]
        if identifier:
            found = [item for item in found if item[0] == place(b"", identifier) + CHECKPOINT]
        return [key for _, key in sorted(found)]

    def _found(self, key: bytes) -> Optional[Record]:
        entry = self.store.last(key)
        return None if entry is None else Record.decoded(entry.payload)

    def _tuple(self, key: bytes) -> Optional[CheckpointTuple]:
        record = self._found(key)
        return None if record is None else self._loaded(key, record)

    def _loaded(self, key: bytes, record: Record) -> CheckpointTuple:
        return CheckpointTuple(
            config=_config(record, record.id),
            checkpoint=self.serde.loads_typed(record.checkpoint),
            metadata=self.serde.loads_typed(record.metadata),
            parent_config=_config(record, record.parent) if record.parent else None,
            pending_writes=self._pending(key[:-1] + WRITES),
        )

    def _pending(self, key: bytes) -> List[PendingWrite]:
        counted: Dict[Tuple[str, int], Write] = {}
        for _, payload in self.store.read_available(key):
            for write in decoded_writes(payload):
                if write.number < 0 or (write.task, write.number) not in counted:
                    counted[write.task, write.number] = write
        ordered = sorted(counted.values(), key=lambda write: writes_sort_key(write.path, write.task, write.number))
        return [(write.task, write.channel, self.serde.loads_typed(write.value)) for write in ordered]

    def _matches(self, record: Record, filter: Dict[str, Any]) -> bool:
        metadata = self.serde.loads_typed(record.metadata)
        return all(metadata.get(name) == value for name, value in filter.items())

    # Deleting and copying.

    def delete_thread(self, thread_id: str) -> None:
        """Deletes all checkpoints and writes of a thread, the oldest ones first."""
        prefix = self._thread(thread_id)
        heads = [log for log in self.store.scan(prefix) if log.key.endswith(HEAD)]
        self._delete(list(self._checkpoints(prefix)))
        for key, bounds in heads:
            # The head stays if a checkpoint came after the look at the thread.
            with suppress(brooklet.ConflictError, brooklet.NotFoundError):
                self.store.commit(brooklet.Commit().expect_next(key, bounds.next).delete(key)).wait()

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes a thread like `delete_thread`."""
        await _ask(self.store, self.delete_thread, thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints whose metadata has one of these runs, and their writes. Reads all checkpoints.

        A value of a `DeltaChannel` is lost if a deleted checkpoint, or its writes, were part of its history.
        """
        runs = set(run_ids)
        self._delete([keys for keys in self._checkpoints(self._root) if self._run(keys[0]) in runs] if runs else [])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes checkpoints like `delete_for_runs`."""
        await _ask(self.store, self.delete_for_runs, run_ids)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes all but the latest checkpoint of each namespace of these threads; with "delete", the threads.

        Keeps the checkpoints from which the latest one takes the value of a `DeltaChannel`, too.
        """
        if strategy not in ("keep_latest", "delete"):
            raise brooklet.InvalidError(f'there is no strategy {strategy!r}: use "keep_latest" or "delete"')
        for thread in thread_ids:
            if strategy == "delete":
                self.delete_thread(thread)
            else:
                self._keep_latest(self._thread(thread))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Deletes checkpoints like `prune`."""
        await _ask(self.store, lambda: self.prune(thread_ids, strategy=strategy))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all checkpoints and writes of a thread to another one, the oldest ones first.

        The target keeps its other checkpoints. A copy that a crash has cut short can be made again.
        """
        source, target = self._thread(source_thread_id), self._thread(target_thread_id)
        if source == target:
            return
        for key, _ in self.store.scan(source):
            if key.endswith(HEAD) and (head := self._at(key)):
                self._raise(target + key[len(source) :], head.payload)
        tickets = []
        for keys in reversed(list(self._checkpoints(source))):
            for key in reversed(keys):  # The writes first: a checkpoint without them would repeat its tasks.
                copy = target + key[len(source) :]
                for _, payload in self.store.read_available(key):
                    if key.endswith(WRITES):
                        tickets.append(self.store.append(copy, payload))
                    else:
                        record = Record.decoded(payload)._replace(thread=str(target_thread_id))
                        tickets.append(self.store.snapshot(copy, record.encoded()))
        for ticket in tickets:
            ticket.wait()

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread like `copy_thread`."""
        await _ask(self.store, self.copy_thread, source_thread_id, target_thread_id)

    def _raise(self, key: bytes, identifier: bytes) -> None:
        """Raises a head."""
        while True:
            try:
                self.store.commit(_raised(brooklet.Commit(), key, self._at(key), identifier)).wait()
                return
            except brooklet.ConflictError:
                pass

    def _checkpoints(self, prefix: bytes) -> Iterator[List[bytes]]:
        """Yields the keys of each checkpoint: its own, and that of its writes. One of them may be missing."""
        keys_of_all = (key for key, _ in self.store.scan(prefix) if not key.endswith(HEAD))
        for _, keys in groupby(keys_of_all, lambda key: key[:-1]):
            yield [*keys]

    def _run(self, key: bytes) -> Any:
        """Returns the run of a checkpoint; None for writes whose checkpoint is not stored."""
        record = self._found(key) if key.endswith(CHECKPOINT) else None
        return None if record is None else self.serde.loads_typed(record.metadata).get("run_id")

    def _keep_latest(self, thread: bytes) -> None:
        for space, checkpoints in groupby(self._checkpoints(thread), lambda keys: space_of(self._root, keys[0])):
            latest, older = None, []
            for keys in checkpoints:
                if latest is not None:
                    older.append(keys)
                elif keys[0].endswith(CHECKPOINT):
                    latest = self._tuple(keys[0])
            kept = {place(space, identifier) for identifier in self._history(latest)}
            self._delete([keys for keys in older if keys[0][:-1] not in kept])

    def _history(self, latest: Optional[CheckpointTuple]) -> Iterator[str]:
        """Yields the ancestors that have the writes of channels which a checkpoint has no values of."""
        if latest is not None:
            deltas = latest.metadata.get("counters_since_delta_snapshot", {}).keys()
            for ancestor, _ in self._ancestors(latest, deltas - latest.checkpoint["channel_values"].keys()):
                yield ancestor.checkpoint["id"]

    def _delete(self, checkpoints: List[List[bytes]]) -> None:
        """Deletes checkpoints, the last ones first: each with its writes, or not at all."""
        tickets = []
        for keys in reversed(checkpoints):
            commit = brooklet.Commit()
            for key in keys:
                commit.delete(key)
            try:
                tickets.append(self.store.commit(commit))
            except brooklet.NotFoundError:  # Somebody else deletes them, too.
                for key in keys:
                    with suppress(brooklet.NotFoundError):
                        tickets.append(self.store.delete(key))
        for ticket in tickets:
            ticket.wait()


def _put(space: bytes, record: Record, head: Optional[brooklet.Entry]) -> brooklet.Commit:
    """Returns the commit of a checkpoint, which fails if the head is another one by then."""
    commit = brooklet.Commit().snapshot(place(space, record.id) + CHECKPOINT, record.encoded())
    return _raised(commit, space + HEAD, head, utf8(record.id))


def _raised(commit: brooklet.Commit, key: bytes, head: Optional[brooklet.Entry], identifier: bytes) -> brooklet.Commit:
    """Adds to a commit that a head is no less than an identifier. Every put writes the head, so that puts and deletions
    see one another."""
    if head is None:
        # A head that was deleted and made again has other numbers: a put that saw the old one fails.
        return commit.expect_absent(key).begin_at(key, secrets.randbits(48)).append(key, identifier)
    return commit.expect_next(key, head.seq + 1).snapshot(key, max(head.payload, identifier))


def _config(record: Record, identifier: str) -> RunnableConfig:
    asked = {"thread_id": record.thread, "checkpoint_ns": record.namespace, "checkpoint_id": identifier}
    return {"configurable": asked}


def _asked(config: RunnableConfig, name: str) -> Any:
    """Returns what a config has to have."""
    value = config.get("configurable", {}).get(name)
    if value is None:
        raise brooklet.InvalidError(f'the config has no "{name}" in "configurable"')
    return value
