"""Opening, and the end of the interpreter."""

from __future__ import annotations

import atexit
import os
import traceback
import weakref
from typing import TYPE_CHECKING, Literal, TypedDict, Union

from . import _brooklet
from ._errors import Error, ForkedError

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path = Union[str, "os.PathLike[str]"]


class Options(TypedDict, total=False):
    """Options of `open` and `open_async`."""

    create: Literal["never", "if_missing", "new"]
    """What happens at a path without a store: "never" fails, "if_missing" creates a store (the default), "new" creates a
    store and fails if there is one."""
    read_only: bool
    """Opens for reading only. Nobody else may have the store open for writing."""
    beside_writer: bool
    """Opens for reading only, beside a process that writes: shows the state on stable media at the opening."""
    ring_size: int
    """Bytes of the ring, where commits are written first. Only a new store uses it."""
    ring_at: Path
    """The volume of the ring, if it has its own."""
    capacity: int
    """Most bytes of the store."""
    memory_budget: int
    """Most bytes of memory for entries that are not in runs yet."""
    cache_budget: int
    """Most bytes of memory for look-ups and reads."""
    max_payload: int
    """Most bytes of one payload."""
    linger: float
    """The longest time for which the store collects commits before it writes them, in seconds."""
    permissions: int
    """Permissions of a new file, such as 0o600."""


_opened: "weakref.WeakSet[_brooklet.Store]" = weakref.WeakSet()


def open(path: Path, **options: "Unpack[Options]") -> _brooklet.Store:
    """Opens the store at `path`, or creates it. The options are those of `Options`.

    >>> with brooklet.open(path) as store:
    ...     store.append("doc/7", b"an edit").wait()
    True

    Raises `CannotOpenError` if another process has the store open, or if the path holds something else.
    """
    store = _brooklet.open(path, **options)
    _opened.add(store)
    return store


def _end() -> None:
    """Closes the stores that are open at the end of the interpreter: appends in flight become durable."""
    for store in list(_opened):
        try:
            store.close()
        except ForkedError:
            pass  # The parent closes it.
        except Error:
            traceback.print_exc()
    _brooklet.end_callbacks()


atexit.register(_end)
