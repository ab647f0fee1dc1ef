"""Brooklet: an embedded store for millions of small append-only logs.

Append an entry to a log and wait until it is on stable media, read the log back, trim its head, delete the log. A store
is one file and needs no server.

>>> with brooklet.open(path) as store:
...     ticket = store.append("doc/7", b"insert 'h' at 0")  # its number at once, durability later
...     _ = ticket.wait()  # on stable media when it returns
...     for seq, payload in store.read("doc/7"):
...         print(seq, payload.decode())
0 insert 'h' at 0

Keys are `str`, which stands for its UTF-8 bytes, or bytes-like; keys that the store returns are `bytes`. Payloads are
bytes-like. Times are seconds. Exceptions are subclasses of `brooklet.Error`.
"""

from ._aio import AsyncStore, AsyncTail, open_async
from ._brooklet import Commit, Entries, Logs, Store, Tail, Ticket, __version__
from ._errors import (
    BusyError,
    CannotOpenError,
    ClosedError,
    ConflictError,
    DamagedError,
    Error,
    ForkedError,
    FullError,
    InvalidError,
    IoError,
    NotFoundError,
    StoppedError,
)
from ._store import Options, open
from ._types import Bounds, Deleted, Entry, Info, LogInfo, TailEvent, Trimmed, Truncated

__all__ = [
    "AsyncStore",
    "AsyncTail",
    "Bounds",
    "BusyError",
    "CannotOpenError",
    "ClosedError",
    "Commit",
    "ConflictError",
    "DamagedError",
    "Deleted",
    "Entries",
    "Entry",
    "Error",
    "ForkedError",
    "FullError",
    "Info",
    "InvalidError",
    "IoError",
    "LogInfo",
    "Logs",
    "NotFoundError",
    "Options",
    "StoppedError",
    "Store",
    "Tail",
    "TailEvent",
    "Ticket",
    "Trimmed",
    "Truncated",
    "__version__",
    "open",
    "open_async",
]

# The classes are those of this package, wherever it defines them.
for _name in __all__:
    _value = globals()[_name]
    if isinstance(_value, type) or callable(_value):
        try:
            _value.__module__ = __name__
        except (AttributeError, TypeError):
            pass  # Native classes say so themselves.
del _name, _value
