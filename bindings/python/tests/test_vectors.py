"""Plays ../../vectors/vectors.json. The other libraries play the same file."""

import json
from pathlib import Path
from typing import Any, Dict, Optional, Union

import pytest

import brooklet

from conftest import SMALL

CASES = json.loads((Path(__file__).parent.parent.parent / "vectors" / "vectors.json").read_text())
KINDS = {
    brooklet.InvalidError: "invalid",
    brooklet.NotFoundError: "not_found",
    brooklet.ConflictError: "conflict",
    brooklet.CannotOpenError: "cannot_open",
    brooklet.StoppedError: "stopped",
}
# The name of each operation, and its member beside the key.
OPERATIONS = {
    "append": "payload",
    "snapshot": "payload",
    "trim": "before",
    "truncate": "from",
    "keep_last": "n",
    "begin_at": "first",
    "delete": None,
    "set_retention": "entries",
    "expect_next": "next",
    "expect_absent": None,
}


def in_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    text: str = value["repeat"]
    return text.encode() * int(value["times"])


def apply(target: Union[brooklet.Store, brooklet.Commit], operation: Dict[str, Any]) -> Any:
    name = next(iter(operation))
    member = OPERATIONS[name]
    call, key = getattr(target, name), in_bytes(operation[name])
    if member is None:
        return call(key)
    if member == "payload":
        return call(key, in_bytes(operation["payload"]))
    if name == "set_retention":
        return call(key, entries=operation["entries"])
    return call(key, operation[member])


def outline(error: brooklet.Error) -> Dict[str, Any]:
    kind = next(kind for of, kind in KINDS.items() if isinstance(error, of))
    bounds = {name: getattr(error, name, None) for name in ("first", "next")}
    return {"kind": kind, **{name: number for name, number in bounds.items() if number is not None}}


def event_of(event: brooklet.TailEvent) -> Dict[str, Any]:
    if isinstance(event, brooklet.Entry):
        return {"entry": [event.seq, event.payload]}
    if isinstance(event, brooklet.Trimmed):
        return {"trimmed": [event.start, event.stop]}
    if isinstance(event, brooklet.Truncated):
        return {"truncated": event.next}
    return {"deleted": True}


class Player:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.tail: Optional[brooklet.Tail] = None
        self.store = brooklet.open(path, **SMALL)

    def play(self, step: Dict[str, Any]) -> Dict[str, Any]:
        """Plays a step, and returns what the store returned, in the form of the file."""
        store = self.store
        if "reopen" in step:
            self.tail = None
            store.close()
            self.store = brooklet.open(self.path, **step["reopen"], **SMALL)
        elif "call" in step:
            ticket = apply(store, step["call"])
            ticket.wait()
            return {"seq": ticket.seq} if "seq" in step else {}
        elif "commit" in step:
            commit = brooklet.Commit()
            for operation in step["commit"]:
                apply(commit, operation)
            ticket = store.commit(commit)
            ticket.wait()
            return {"seqs": ticket.seqs}
        elif "read" in step:
            read = store.read_available if step.get("available") else store.read
            return {"entries": [list(entry) for entry in read(in_bytes(step["read"]), step["from"], step.get("to"))]}
        elif "bounds" in step:
            return store.bounds(in_bytes(step["bounds"]))._asdict()
        elif "scan" in step:
            start = in_bytes(step["start"]) if "start" in step else None
            return {"logs": [[log.key, *log.bounds] for log in store.scan(in_bytes(step["scan"]), start)]}
        elif "tail" in step:
            self.tail = store.tail(in_bytes(step["tail"]), step["from"])
        elif "event" in step:
            assert self.tail is not None
            event = self.tail.next_timeout(60)
            assert event is not None
            return {"event": event_of(event)}
        else:
            getattr(store, next(name for name in ("flush", "checkpoint", "close") if name in step))()
        return {}


def expected(step: Dict[str, Any]) -> Dict[str, Any]:
    if "error" in step:
        return {"error": step["error"]}
    found: Dict[str, Any] = {name: step[name] for name in ("seq", "seqs", "event") if name in step}
    if "bounds" in step:
        found = {"first": step["first"], "next": step["next"]}
    if "entries" in step:
        found["entries"] = [[seq, in_bytes(payload)] for seq, payload in step["entries"]]
    if "logs" in step:
        found["logs"] = [[in_bytes(key), first, next] for key, first, next in step["logs"]]
    if "entry" in found.get("event", {}):
        seq, payload = found["event"]["entry"]
        found["event"] = {"entry": [seq, in_bytes(payload)]}
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_vector(case: Dict[str, Any], path: Path) -> None:
    player = Player(path)
    for step in case["steps"]:
        try:
            played = player.play(step)
        except brooklet.Error as error:
            played = {"error": outline(error)}
        assert played == expected(step), step
    player.tail = None
    player.store.close()
