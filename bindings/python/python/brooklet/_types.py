"""Results: named tuples, so that they compare, unpack and match."""

from __future__ import annotations

from typing import NamedTuple, Union


class Entry(NamedTuple):
    """An entry of a log.

    >>> seq, payload = brooklet.Entry(0, b"an edit")
    """

    seq: int
    """The number of the entry."""
    payload: bytes
    """The payload."""


class Bounds(NamedTuple):
    """The bounds of a log."""

    first: int
    """The number of the first entry that the log keeps."""
    next: int
    """The number that the next entry will get."""


class LogInfo(NamedTuple):
    """A log in a listing."""

    key: bytes
    """The key of the log."""
    bounds: Bounds
    """The bounds of the log."""


class Info(NamedTuple):
    """Numbers about a store. Sizes are bytes."""

    format: int
    """The format version of the store."""
    epoch: int
    """How often the store was opened for writing."""
    size: int
    """Size of the volume."""
    heap_free: int
    """Free space in the heap."""
    ring_size: int
    """Size that the ring may grow to."""
    ring_in_use: int
    """Size of the ring now."""
    memtable_logs: int
    """Number of logs with entries in memory that are not in runs yet."""
    memtable_bytes: int
    """Memory of these entries."""
    runs: int
    """Number of runs."""
    run_bytes: int
    """Size of the runs."""
    checkpointing: bool
    """Whether a checkpoint is running."""
    compacting: bool
    """Whether a compaction is running."""
    stopped: bool
    """Whether the store accepts no writes any more, after a failure."""


class Trimmed(NamedTuple):
    """The log dropped these entries before the tail returned them. The tail continues behind them."""

    start: int
    """The number of the first dropped entry."""
    stop: int
    """The number behind the last dropped entry."""


class Truncated(NamedTuple):
    """Entries that the tail returned, from `next` on, are no longer in the log."""

    next: int
    """The number of the next entry that the tail returns."""


class Deleted(NamedTuple):
    """The log was deleted. The tail waits for a log of the same key, from entry 0 on."""

    def __bool__(self) -> bool:
        """Each event is true, also this one, which is an empty tuple: a tail returns None for none."""
        return True


TailEvent = Union[Entry, Trimmed, Truncated, Deleted]
"""One step of a tail."""
