"""The checkpointer of LangGraph: its project's conformance suite, and what that leaves open."""

import asyncio
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, AsyncIterator, Dict, List, Optional

import pytest

import brooklet
from conftest import SMALL

pytest.importorskip("langgraph.checkpoint.conformance")

from langgraph.checkpoint.base import empty_checkpoint  # noqa: E402
from langgraph.checkpoint.conformance import checkpointer_test, validate  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.checkpoint.serde.types import ERROR, RESUME  # noqa: E402

from brooklet.langgraph import BrookletSaver  # noqa: E402

# Of any characters and lengths, and such that one begins another or stands beside its end.
NAMES = ["a", "a\0", "a\0\0", "a\0\xff", "ab", "\0", "é/ü:|", "\ud800", "h", "x" * 200, "x" * 201, "x" * 202, "\0" * 101]
NAMES += ["y" * 100_000, "é" * 300]


def config(thread: Any, namespace: str = "", identifier: Optional[str] = None) -> Any:
    asked = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": asked if identifier is None else {**asked, "checkpoint_id": identifier}}


def checkpoint(identifier: Optional[str] = None, value: Any = None) -> Any:
    made: Any = empty_checkpoint()
    made["id"] = identifier or made["id"]
    made["channel_values"], made["channel_versions"] = {"value": value}, {"value": made["id"]}
    return made


def put(saver: Any, thread: Any, identifier: Optional[str] = None, namespace: str = "", **metadata: Any) -> Any:
    made = checkpoint(identifier)
    return saver.put(config(thread, namespace), made, metadata, made["channel_versions"])


def ids(found: Any) -> List[str]:
    return [item.config["configurable"]["checkpoint_id"] for item in found]


@pytest.fixture
def saver(store: brooklet.Store) -> BrookletSaver:
    return BrookletSaver(store)


def test_conformance(tmp_path: Path) -> None:
    stores = iter(range(100))

    @checkpointer_test(name="BrookletSaver")
    async def made() -> AsyncIterator[BrookletSaver]:
        async with brooklet.open_async(tmp_path / str(next(stores)), **SMALL) as store:
            yield BrookletSaver(store)

    report = asyncio.run(validate(made))
    results = report.results.values()
    assert [failure for result in results for failure in result.failures] == []
    assert len(report.results) == 8 and all(result.passed for result in results)
    assert sum(result.tests_passed for result in results) == 81


def test_brooklet_does_not_import_langgraph() -> None:
    code = "import sys, brooklet; sys.exit(any(name.startswith('lang') for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)


def plain(found: Any) -> Any:
    """Returns what two savers have to agree about."""
    if found is None:
        return None
    parent = found.parent_config and found.parent_config["configurable"]
    return found.config["configurable"], found.checkpoint, found.metadata, parent, found.pending_writes


@pytest.mark.parametrize("seed", range(4))
def test_like_the_saver_in_memory(saver: BrookletSaver, seed: int) -> None:
    chance, reference = random.Random(seed), InMemorySaver()
    known: List[Any] = []
    threads, namespaces = ["a", "b"], ["", "child:1", "child:1|x"]
    for step in range(300):
        thread, namespace = chance.choice(threads), chance.choice(namespaces)
        which = config(thread, namespace)
        if known and chance.random() < 0.5:
            which = chance.choice(known)
        kind = chance.random()
        if kind < 0.35:
            made = checkpoint(f"{chance.randrange(40):02}-{step}", [step])
            metadata: Any = {"source": chance.choice(["loop", "input"]), "step": step % 3}
            stored = saver.put(which, made, metadata, made["channel_versions"])
            assert stored == reference.put(which, made, metadata, made["channel_versions"])
            known.append(stored)
        elif kind < 0.7 and known:
            channels = chance.choices(["x", "y", ERROR, RESUME], k=3)
            where, task = chance.choice(known), f"t{chance.randrange(3)}"
            for each in (saver, reference):
                each.put_writes(where, [(name, step) for name in channels], task, f"path{task[-1]}")
        elif kind < 0.72:
            saver.delete_thread(thread)
            reference.delete_thread(thread)
            known = [item for item in known if item["configurable"]["thread_id"] != thread]
        elif kind < 0.85:
            assert plain(saver.get_tuple(which)) == plain(reference.get_tuple(which))
        else:
            options: Dict[str, Any] = {}
            if chance.random() < 0.5:
                options["filter"] = {"source": "loop"}
            if chance.random() < 0.3:
                options["limit"] = chance.randrange(4)
            if known and chance.random() < 0.5:
                options["before"] = chance.choice(known)
            found = [plain(item) for item in saver.list(which, **options)]
            assert found == [plain(item) for item in reference.list(which, **options)]
    for wide in (None, {"configurable": {"thread_id": "a"}}):
        found = [plain(item) for item in saver.list(wide)]  # type: ignore[arg-type]
        other = [plain(item) for item in reference.list(wide)]  # type: ignore[arg-type]
        latest_first = sorted(found, key=lambda item: str(item[0]["checkpoint_id"]), reverse=True)
        assert found == latest_first
        assert len(found) == len(other) and all(item in other for item in found)


def test_names_of_any_characters_and_lengths(saver: BrookletSaver) -> None:
    for name in NAMES:
        for namespace in NAMES:
            put(saver, name, f"{len(name)}-{len(namespace)}", namespace)
    for name in NAMES:
        assert len(list(saver.list({"configurable": {"thread_id": name}}))) == len(NAMES)
        for namespace in NAMES:
            [found] = saver.list(config(name, namespace))
            assert found.config == config(name, namespace, f"{len(name)}-{len(namespace)}")
            assert found == saver.get_tuple(config(name, namespace)) == saver.get_tuple(found.config)
    for left, name in reversed(list(enumerate(NAMES))):
        saver.delete_thread(name)
        assert len(list(saver.list(None))) == left * len(NAMES)


def test_identifiers_are_in_their_order(saver: BrookletSaver) -> None:
    names = ["a", "a\0", "a\0b", "ab", "b", "é", "\uffff", "\U0001f600", "\ud800", "1f0", "1f", "z" * 300]
    random.Random(1).shuffle(names)
    for number, name in enumerate(names):
        put(saver, "t", name)
        latest = saver.get_tuple(config("t"))
        assert latest is not None and ids([latest]) == [max(names[: number + 1])]
    ordered = sorted(names, reverse=True)
    wides: List[Any] = [config("t"), {"configurable": {"thread_id": "t"}}, None]
    for wide in wides:
        assert ids(saver.list(wide)) == ordered
        for number, name in enumerate(ordered):
            before = config("t", "", name)
            assert ids(saver.list(wide, before=before)) == ordered[number + 1 :]
            assert ids(saver.list(wide, before=before, limit=2)) == ordered[number + 1 : number + 3]
    assert ids(saver.list({"configurable": {"thread_id": "t", "checkpoint_id": "a\0"}})) == ["a\0"]


def test_writes_may_come_before_their_checkpoint(saver: BrookletSaver) -> None:
    where = config("t", "", "2")
    saver.put_writes(where, [], "task")
    assert list(saver.store.scan()) == []
    saver.put_writes(where, [("x", 1), ("y", 2)], "task")
    saver.put_writes(where, [("x", 3), (ERROR, "first")], "task")
    saver.put_writes(where, [(ERROR, "second")], "task")
    assert saver.get_tuple(config("t")) is None and list(saver.list(config("t"))) == []
    put(saver, "t", "1")
    saver.prune(["t"])
    put(saver, "t", "2")
    found = saver.get_tuple(config("t"))
    assert found is not None
    assert found.pending_writes == [("task", ERROR, "second"), ("task", "x", 1), ("task", "y", 2)]


class Counting:
    """A store that counts calls by name."""

    def __init__(self, store: brooklet.Store) -> None:
        self.store, self.calls = store, dict[str, int]()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] = self.calls.get(name, 0) + 1
        return getattr(self.store, name)


def test_the_latest_checkpoint_is_found_by_its_key(saver: BrookletSaver) -> None:
    for number in range(300):
        put(saver, "t", f"{number:04}")
    counting: Any = Counting(saver.store)
    saver.store = counting
    found = saver.get_tuple(config("t"))
    assert found is not None and found.checkpoint["id"] == "0299"
    assert counting.calls == {"last": 2, "read_available": 1}
    assert ids(saver.list(config("t"), limit=3)) == ["0299", "0298", "0297"]
    assert counting.calls == {"last": 5, "read_available": 4, "scan": 1}


def test_the_latest_checkpoint_after_deletions(saver: BrookletSaver) -> None:
    for number in range(5):
        put(saver, "t", str(number), run_id=f"run{number}")
    saver.put_writes(config("t", "", "4"), [("x", 1)], "task")
    saver.delete_for_runs(["run4", "run2", "other"])
    assert ids(saver.list(config("t"))) == ["3", "1", "0"]
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "3"
    put(saver, "t", "2")  # It is not the latest one.
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "3"
    saver.delete_thread("t")
    assert list(saver.store.scan()) == []
    put(saver, "t", "1")
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "1"


def test_a_copy(saver: BrookletSaver) -> None:
    for namespace in ("", "child"):
        for number in ("1", "2"):
            saver.put_writes(put(saver, "source", number, namespace), [("x", number), (ERROR, "e")], "task")
    put(saver, "target", "0")
    for _ in range(2):
        saver.copy_thread("source", "target")
        copied, source = list(saver.list(config("target", ""))), list(saver.list(config("source", "")))
        assert ids(copied) == ["2", "1", "0"]
        assert [item.pending_writes for item in copied[:2]] == [item.pending_writes for item in source]
        assert {item.config["configurable"]["thread_id"] for item in copied} == {"target"}
        assert saver.get_tuple(config("target", "")) == copied[0]
        assert len(list(saver.list(config("target", "child")))) == 2
    saver.copy_thread("source", "source")
    assert list(saver.list(config("source", ""))) == source
    put(saver, "target", "1")
    latest = saver.get_tuple(config("target"))
    assert latest is not None and latest.checkpoint["id"] == "2"


def test_names_of_savers(store: brooklet.Store) -> None:
    one, other = BrookletSaver(store, name="a"), BrookletSaver(store, name="ab")
    put(one, "bt", "1")
    assert list(other.list(None)) == [] and ids(BrookletSaver(store, name="a").list(None)) == ["1"]
    other.delete_thread("t")
    assert ids(one.list(None)) == ["1"]


def test_puts_and_deletions_of_one_thread_at_once(saver: BrookletSaver) -> None:
    failed: List[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    def puts(writer: int) -> None:
        chance = random.Random(writer)
        for number in range(40):
            put(saver, "t", f"{chance.randrange(10**6):06}")

    def deletions() -> None:
        for _ in range(15):
            saver.delete_thread("t")

    for round in range(4):
        with_deletions = [deletions, deletions] if round % 2 else []
        work = [lambda writer=writer: puts(writer) for writer in range(round * 6, round * 6 + 6)]
        threads = [threading.Thread(target=run, args=(one,)) for one in [*work, *with_deletions]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        left = ids(saver.list(config("t")))
        latest = saver.get_tuple(config("t"))
        assert (latest.checkpoint["id"] if latest else None) == (left[0] if left else None)
        if not round:
            assert len(left) == 240
        saver.delete_thread("t")
        assert list(saver.store.scan()) == []


class Late(BrookletSaver):
    """A saver that other calls overtake once, between its look at the head and its commit."""

    overtake: Any = None

    def _head(self, space: bytes) -> Optional[brooklet.Entry]:
        found = super()._head(space)
        overtake, self.overtake = self.overtake, None
        if overtake:
            overtake()
        return found


@pytest.mark.parametrize("is_first", [True, False])
def test_a_put_that_another_one_overtakes(saver: BrookletSaver, is_first: bool) -> None:
    late = Late(saver.store)
    if not is_first:
        put(saver, "t", "1")
    late.overtake = lambda: put(saver, "t", "9")
    put(late, "t", "5")
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "9"


def test_a_put_that_a_deletion_and_another_put_overtake(saver: BrookletSaver) -> None:
    late = Late(saver.store)
    put(saver, "t", "1")

    def overtake() -> None:
        saver.delete_thread("t")
        put(saver, "t", "9")

    late.overtake = overtake
    put(late, "t", "5")
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "9"


def test_a_put_while_a_thread_is_deleted(saver: BrookletSaver) -> None:
    class Slow(BrookletSaver):
        def _delete(self, checkpoints: List[List[bytes]]) -> None:
            super()._delete(checkpoints)
            put(saver, "t", "9")

    put(saver, "t", "1")
    Slow(saver.store).delete_thread("t")
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "9"


class Ends:
    """A store whose user ends after some calls that write."""

    def __init__(self, store: brooklet.Store, calls: int) -> None:
        self._store, self._calls = store, calls

    def __getattr__(self, name: str) -> Any:
        if name in ("append", "commit", "snapshot"):
            if not self._calls:
                raise KeyboardInterrupt
            self._calls -= 1
        return getattr(self._store, name)


def cut_short(saver: BrookletSaver, calls: int) -> BrookletSaver:
    short = BrookletSaver(saver.store)
    short.store = Ends(saver.store, calls)  # type: ignore[assignment]
    return short


def test_a_deletion_that_is_cut_short_leaves_the_latest_checkpoints(saver: BrookletSaver) -> None:
    for number in range(5):
        put(saver, "t", str(number))
    with pytest.raises(KeyboardInterrupt):
        cut_short(saver, 2).delete_thread("t")
    saver.store.flush()
    assert ids(saver.list(config("t"))) == ["4", "3", "2"]


def test_a_head_that_a_retention_has_emptied(saver: BrookletSaver) -> None:
    def empty() -> None:
        (head,) = (log.key for log in saver.store.scan() if log.key.endswith(b"h"))
        saver.store.trim(head, saver.store.bounds(head).next).wait()

    put(saver, "t", "1")
    empty()
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "1"
    # In an earlier state, the put was made again and again.
    put(cut_short(saver, 2), "t", "2")
    latest = saver.get_tuple(config("t"))
    assert latest is not None and latest.checkpoint["id"] == "2"
    empty()
    saver.copy_thread("t", "u")
    latest = saver.get_tuple(config("u"))
    assert latest is not None and latest.checkpoint["id"] == "2"


def test_a_copy_that_is_cut_short_has_the_oldest_checkpoints_with_their_writes(saver: BrookletSaver) -> None:
    for number in range(3):
        saver.put_writes(put(saver, "t", str(number)), [("x", number)], "task")
    # The head is the first call. Each checkpoint follows its writes.
    expected: List[List[str]] = [[], [], [], ["0"], ["0"], ["1", "0"], ["1", "0"]]
    for calls, there in enumerate(expected):
        with pytest.raises(KeyboardInterrupt):
            cut_short(saver, calls).copy_thread("t", "copy")
        saver.store.flush()
        found = list(saver.list(config("copy")))
        assert ids(found) == there
        assert all(len(item.pending_writes or []) == 1 for item in found)
        saver.delete_thread("copy")
    cut_short(saver, 7).copy_thread("t", "copy")
    assert ids(saver.list(config("copy"))) == ["2", "1", "0"]


def test_a_checkpoint_that_is_its_own_ancestor(saver: BrookletSaver) -> None:
    class Bounded(BrookletSaver):
        calls = 0

        def get_tuple(self, config: Any) -> Any:
            self.calls += 1
            assert self.calls < 10
            return super().get_tuple(config)

    made = checkpoint("1")
    itself = saver.put(config("t", "", "1"), made, {}, made["channel_versions"])
    history = Bounded(saver.store).get_delta_channel_history(config=itself, channels=["other"])
    assert history == {"other": {"writes": []}}


def test_tasks_at_once(path: Path) -> None:
    async def thread(saver: BrookletSaver, number: int) -> None:
        where = config(str(number % 20))
        for step in range(10):
            made = checkpoint(f"{step:02}-{number:03}")
            where = await saver.aput(where, made, {"step": step}, {})
            await saver.aput_writes(where, [("x", number)], "task")

    async def main() -> None:
        async with brooklet.open_async(path, **SMALL) as store:
            saver = BrookletSaver(store)
            await asyncio.gather(*(thread(saver, number) for number in range(60)))
            for number in range(20):
                found = [item async for item in saver.alist(config(str(number)))]
                assert len(found) == 30 and found[0] == await saver.aget_tuple(config(str(number)))
                assert all(item.pending_writes for item in found)
                assert ids(found) == sorted(ids(found), reverse=True)

    asyncio.run(main())


def test_wrong_calls(saver: BrookletSaver) -> None:
    put(saver, "t", "1")
    for call in (saver.get_tuple, lambda config: list(saver.list(config)), lambda where: put(saver, None)):
        with pytest.raises(brooklet.InvalidError, match="thread_id"):
            call({"configurable": {}})
    with pytest.raises(brooklet.InvalidError, match="checkpoint_id"):
        saver.put_writes(config("t"), [("x", 1)], "task")
    with pytest.raises(brooklet.InvalidError, match="no strategy 'all'"):
        saver.prune(["t"], strategy="all")
    with pytest.raises(brooklet.InvalidError, match="max_payload"):
        saver.put(config("t"), checkpoint("2", "x" * (2 << 20)), {}, {})
    with pytest.raises(brooklet.InvalidError, match="1024 bytes"):
        put(saver, "t", "i" * 2000)
    with pytest.raises(brooklet.InvalidError, match="max_payload"):
        asyncio.run(saver.aput(config("t"), checkpoint("2", "x" * (2 << 20)), {}, {}))
    assert ids(saver.list(None)) == ["1"]
    key = next(log.key for log in saver.store.scan() if log.key.endswith(b"c"))
    saver.store.snapshot(key, b"\xfe another format").wait()
    with pytest.raises(brooklet.InvalidError, match="another format"):
        saver.get_tuple(config("t"))
    saver.store.close()
    with pytest.raises(brooklet.ClosedError):
        put(saver, "t", "3")
