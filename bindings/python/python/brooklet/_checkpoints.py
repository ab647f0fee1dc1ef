"""How `brooklet.langgraph` stores checkpoints: the keys of the logs, and their entries.

A checkpoint has one log, its pending writes have another. The keys of a namespace of a thread are in descending order of
the checkpoints' identifiers.
"""

from __future__ import annotations

import hashlib
import struct
from typing import List, NamedTuple, Sequence, Tuple

from ._errors import InvalidError

Typed = Tuple[str, bytes]
"""A serialized value: its type and its bytes."""

CHECKPOINT, HEAD, WRITES = b"c", b"h", b"w"
"""The last byte of a key says what the log holds. The writes follow their checkpoint. A namespace has one head."""
_BEHIND = b"\xff"

# A longer name is in the key by its hash: a key has at most 1,024 bytes.
_LONGEST = 200
# No byte of a name in UTF-8 is as great: it marks a hash, and it ends an inverted identifier.
_MARK = b"\xff"
_END = b"\0\0"
_INVERTED = bytes(max(0, 254 - byte) for byte in range(256))

_FORMAT = 1
_LENGTH = struct.Struct("<I")


def utf8(string: str) -> bytes:
    """Returns the bytes of any string, in the order of the strings."""
    return string.encode("utf-8", "surrogatepass")


def text(data: bytes) -> str:
    """Returns the string of `utf8`."""
    return data.decode("utf-8", "surrogatepass")


def part(name: str) -> bytes:
    """Returns the part of a key that is for a name of any characters and any length. None is the beginning of another."""
    data = utf8(name)
    escaped = data.replace(b"\0", b"\0\xff")
    return _MARK + hashlib.sha256(data).digest() if len(escaped) > _LONGEST else escaped + _END


def _behind(key: bytes, at: int) -> int:
    """Returns where the part of a key that begins at `at` ends."""
    return at + 33 if key[at : at + 1] == _MARK else key.index(_END, at) + 2


def place(space: bytes, identifier: str) -> bytes:
    """Returns the key of a checkpoint in a namespace, without its last byte. A greater identifier has a smaller key."""
    return space + utf8(identifier).translate(_INVERTED) + _MARK


def behind(space: bytes, identifier: str) -> bytes:
    """Returns the key from which the keys of smaller identifiers begin."""
    return place(space, identifier) + _BEHIND


def space_of(root: bytes, key: bytes) -> bytes:
    """Returns the beginning of a key that stands for its thread and namespace."""
    return key[: _behind(key, _behind(key, len(root)))]


def order(root: bytes, key: bytes) -> bytes:
    """Returns the part of a key that sorts the checkpoints of all threads, the latest one first."""
    return key[len(space_of(root, key)) :]


def _packed(parts: Sequence[bytes]) -> bytes:
    return bytes([_FORMAT]) + b"".join(_LENGTH.pack(len(data)) + data for data in parts)


def _unpacked(entry: bytes) -> List[bytes]:
    if entry[:1] != bytes([_FORMAT]):
        raise InvalidError("an entry of another format is where a checkpoint should be: use another `name` for the saver")
    parts, at = [], 1
    while at < len(entry):
        (size,) = _LENGTH.unpack_from(entry, at)
        at += _LENGTH.size + size
        parts.append(entry[at - size : at])
    return parts


class Record(NamedTuple):
    """A checkpoint."""

    thread: str
    namespace: str
    id: str
    parent: str
    """Empty if there is none."""
    checkpoint: Typed
    metadata: Typed

    def encoded(self) -> bytes:
        """Returns the entry."""
        texts = self.thread, self.namespace, self.id, self.parent, self.checkpoint[0], self.metadata[0]
        return _packed([*map(utf8, texts), self.checkpoint[1], self.metadata[1]])

    @classmethod
    def decoded(cls, entry: bytes) -> Record:
        """Returns the checkpoint of an entry."""
        *texts, checkpoint, metadata = _unpacked(entry)
        thread, namespace, identifier, parent, kind, kind_of_metadata = map(text, texts)
        return cls(thread, namespace, identifier, parent, (kind, checkpoint), (kind_of_metadata, metadata))


class Write(NamedTuple):
    """A pending write of a task."""

    task: str
    path: str
    number: int
    """Negative for the special writes, of which the last one counts. Of the others, the first one counts."""
    channel: str
    value: Typed


def encoded_writes(writes: Sequence[Write]) -> bytes:
    """Returns the entry of some writes."""
    parts: List[bytes] = []
    for write in writes:
        texts = write.task, write.path, str(write.number), write.channel, write.value[0]
        parts += [*map(utf8, texts), write.value[1]]
    return _packed(parts)


def decoded_writes(entry: bytes) -> List[Write]:
    """Returns the writes of an entry."""
    parts = _unpacked(entry)
    writes = []
    for at in range(0, len(parts), 6):
        task, path, number, channel, kind = map(text, parts[at : at + 5])
        writes.append(Write(task, path, int(number), channel, (kind, parts[at + 5])))
    return writes
