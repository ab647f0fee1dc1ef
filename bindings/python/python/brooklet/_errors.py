"""Exceptions: a class for each kind of error, which says how to react."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """An error of the store. The message states the failure, its place and the remedy."""


class InvalidError(Error, ValueError):
    """The call is wrong: change it."""


class NotFoundError(Error, LookupError):
    """The log or the range does not exist."""

    first: Optional[int] = None
    """The first entry of the log, if a number is outside of the log."""
    next: Optional[int] = None
    """The end of the log, if a number is outside of the log."""


class ConflictError(Error):
    """Another commit was first: read the log again and retry."""

    next: Optional[int] = None
    """The end of the log; None if the log does not exist."""


class CannotOpenError(Error):
    """The store cannot be opened with these arguments."""


class DamagedError(Error):
    """Data is damaged: restore it."""


class FullError(Error):
    """No room: free some room and retry."""


class BusyError(Error):
    """The call would have to wait: retry later."""


class StoppedError(Error):
    """The store does not accept writes any more: open it again."""


class ClosedError(StoppedError):
    """The store is closed."""


class ForkedError(StoppedError):
    """Another process, of which this one is a fork, opened the store."""


class IoError(Error, OSError):
    """The operating system refused an operation. `errno` has its reason."""
