"""The calls of a store, for threads."""

import gc
import os
import signal
import threading
from pathlib import Path
from typing import Any, List, Optional

import pytest

import brooklet
from brooklet import Bounds, Commit, Deleted, Entry, LogInfo, Trimmed, Truncated
from conftest import SMALL


def test_appends_are_read_back(store: brooklet.Store) -> None:
    first = store.append("doc/1", b"hello")
    assert (first.seq, first.seqs) == (0, [0])
    assert first.wait() and first.is_done and first.is_durable
    store.append(b"doc/1", bytearray(b"")).wait()
    parts: List[Any] = [b"a\0b", memoryview(b"xcx")[1:2], b"d"]
    many = store.append_many("doc/1", (part for part in parts))
    assert many.seqs == [2, 3, 4]
    many.wait()
    entries = [Entry(0, b"hello"), Entry(1, b""), Entry(2, b"a\0b"), Entry(3, b"c"), Entry(4, b"d")]
    assert list(store.read("doc/1")) == entries
    assert list(store.read("doc/1", 1, 3)) == entries[1:3]
    assert list(store.read("doc/1", reverse=True)) == entries[::-1]
    assert list(store.read_available("doc/1", 3, 99)) == entries[3:]
    assert list(store.read_available("nobody")) == []
    assert (store.first("doc/1"), store.last("doc/1"), store.last("nobody")) == (entries[0], entries[4], None)
    assert store.bounds("doc/1") == Bounds(0, 5) == store.get_bounds(memoryview(b"doc/1"))
    assert store.get_bounds("nobody") is None
    assert "doc/1" in store and not store.exists("nobody")


def test_a_strided_buffer_is_read_as_it_is_seen(store: brooklet.Store) -> None:
    store.append("k", memoryview(b"abcdef")[::2]).wait()
    assert store.last("k") == Entry(0, b"ace")


def test_logs_are_trimmed_and_deleted(store: brooklet.Store) -> None:
    store.append_many("doc", [b"a", b"b", b"c", b"d"]).wait()
    store.trim("doc", 1).wait()
    assert store.bounds("doc") == Bounds(1, 4)
    store.truncate("doc", 3).wait()
    assert store.bounds("doc") == Bounds(1, 3)
    store.keep_last("doc", 1).wait()
    assert store.bounds("doc") == Bounds(2, 3)
    assert store.snapshot("doc", b"all").seq == 3
    store.set_retention("doc", entries=2, bytes=1 << 20, age=3600).wait()
    store.append_many("doc", [b"e", b"f"]).wait()
    assert list(store.read("doc")) == [Entry(4, b"e"), Entry(5, b"f")]
    store.begin_at("later", 70).wait()
    assert store.append("later", b"x").seq == 70
    store.delete("doc").wait()
    with pytest.raises(brooklet.NotFoundError, match="doc"):
        store.bounds("doc")


def test_commits_are_all_or_nothing(store: brooklet.Store) -> None:
    commit = Commit().expect_absent("a").append("a", b"1").append("b", b"2").append("a", b"3")
    ticket = store.commit(commit)
    assert ticket.seqs == [0, 0, 1]
    ticket.wait()
    with pytest.raises(brooklet.ConflictError, match="expected to not exist") as raised:
        store.commit(commit)
    assert raised.value.next == 2
    with pytest.raises(brooklet.ConflictError) as raised:
        store.try_commit(commit.clear().expect_next("unknown", 4).delete("a"))
    assert raised.value.next is None
    assert store.bounds("a") == Bounds(0, 2)
    commit.clear().expect_next("a", 2).snapshot("a", b"s").trim("b", 1).set_retention("a", entries=9)
    commit.keep_last("a", 1).begin_at("c", 5).truncate("b", 1).delete("b")
    store.try_commit(commit).wait()
    assert store.bounds("a") == Bounds(2, 3) and not store.exists("b")
    durable = store.commit(Commit().append("a", b"now").defer(30).durable())
    durable.wait()
    assert durable.is_durable
    deferred = store.commit(Commit().append("a", b"late").defer(30))
    assert deferred.is_done
    deferred.wait_durable()
    assert deferred.is_durable


def test_an_error_names_the_bounds(store: brooklet.Store) -> None:
    store.append_many("doc", [b"a", b"b", b"c"]).wait()
    store.trim("doc", 1).wait()
    with pytest.raises(brooklet.NotFoundError, match="entry 0 is outside") as raised:
        store.read("doc", 0)
    assert (raised.value.first, raised.value.next) == (1, 3)
    assert isinstance(raised.value, LookupError)


def test_logs_are_listed(store: brooklet.Store) -> None:
    for key in ["b/1", "a/2", "a/1", "c"]:
        store.append(key, b"x").wait()
    assert [log.key for log in store.scan()] == [b"a/1", b"a/2", b"b/1", b"c"]
    assert list(store.scan("a/", "a/2")) == [LogInfo(b"a/2", Bounds(0, 1))]


def test_long_logs_are_read_in_batches(store: brooklet.Store) -> None:
    payloads = [b"%d" % n * 50 for n in range(5000)]
    store.append_many("long", payloads).wait()
    store.checkpoint()
    assert [entry.payload for entry in store.read("long")] == payloads
    batches = store.read("long")
    sizes = []
    while batch := batches.take():
        sizes.append(len(batch))
    assert sum(sizes) == 5000 and len(sizes) < 50
    for n in range(600):
        store.append(f"many/{n:03}", b"x")
    store.flush()
    assert len(list(store.scan("many/"))) == 600


def test_a_tail_follows(store: brooklet.Store) -> None:
    tail = store.tail("doc")
    assert tail.try_next() is None and tail.next_timeout(0.01) is None

    def write() -> None:
        store.append_many("doc", [b"a", b"b", b"c"]).wait()
        store.delete("doc").wait()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    for event in tail:
        seen.append(event)
        if isinstance(event, Deleted):
            break
    writer.join()
    # The log may be gone before the tail has read it.
    assert seen[:-1] == [Entry(0, b"a"), Entry(1, b"b"), Entry(2, b"c")][: len(seen) - 1]
    store.append_many("doc", [b"d", b"e", b"f"]).wait()
    assert next(tail) == Entry(0, b"d") and tail.position == 1
    store.trim("doc", 2).wait()
    late = store.tail("doc", 1)
    assert next(late) == Trimmed(1, 2) and next(late) == Entry(2, b"f")
    store.truncate("doc", 2).wait()
    assert next(late) == Truncated(2)


def test_each_event_of_a_tail_is_true(store: brooklet.Store) -> None:
    store.append("doc", b"").wait()
    tail = store.tail("doc")
    assert tail.next_timeout(60) == Entry(0, b"")
    store.delete("doc").wait()
    seen: List[object] = []
    while event := tail.next_timeout(60 if not seen else 0):
        seen.append(event)
    assert seen == [Deleted()]
    assert all([Entry(0, b""), Trimmed(0, 0), Truncated(0), Deleted()])


def test_a_tail_ends_with_its_store(store: brooklet.Store) -> None:
    tail = store.tail("doc")
    threading.Timer(0.05, store.close).start()
    with pytest.raises(brooklet.ClosedError):
        next(tail)
    assert list(tail) == []


def test_waits_have_timeouts(store: brooklet.Store) -> None:
    assert not store.wait_for("doc", 1, 0.01)
    threading.Timer(0.05, lambda: store.append("doc", b"x")).start()
    assert store.wait_for("doc", 1)
    assert store.wait_for("doc", 1, float("inf")) and store.append("doc", b"x").wait(60)


def test_a_wait_counts_a_number_that_is_gone_again(store: brooklet.Store) -> None:
    gone, over = Commit().append("doc", b"x").truncate("doc", 0), threading.Event()

    def send() -> None:
        while not over.wait(0.05):
            os.kill(os.getpid(), signal.SIGUSR1)

    def handle(*_: object) -> None:
        store.commit(gone).wait()

    # The main thread waits in slices, and handlers of signals run between two of them.
    former = signal.signal(signal.SIGUSR1, handle)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert store.wait_for("doc", 1, 30)
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR1, former)


def test_numbers_about_a_store(store: brooklet.Store) -> None:
    empty = store.info()
    store.append_many("doc", [b"a", b"b"]).wait()
    info = store.info()
    assert info.memtable_logs == empty.memtable_logs + 1 and info.memtable_bytes > 0
    assert info.ring_size >= info.ring_in_use > 0 and info.size >= info.ring_in_use
    assert info.format > 0 and info.epoch > 0 and info.heap_free >= 0
    assert (info.runs, info.run_bytes, info.stopped) == (0, 0, False)
    store.checkpoint()
    assert store.info().runs > 0 and store.info().run_bytes > 0
    assert isinstance(info, brooklet.Info) and isinstance(info.checkpointing or info.compacting, bool)


def test_callbacks_are_called_once(store: brooklet.Store) -> None:
    called: List[Optional[brooklet.Error]] = []
    done = threading.Event()

    def callback(error: Optional[brooklet.Error]) -> None:
        called.append(error)
        done.set()

    ticket = store.append("doc", b"x")
    ticket.on_done(callback)
    assert done.wait(60) and called == [None]
    ticket.on_done(called.append)
    assert called == [None, None]


def test_many_threads_share_a_store(store: brooklet.Store) -> None:
    numbers: List[int] = []

    def work(thread: int) -> None:
        for n in range(200):
            ticket = store.append("shared", b"%d/%d" % (thread, n))
            numbers.append(ticket.seq)
            list(store.read_available("shared", max(ticket.seq, 5) - 5))
            gc.collect(0)
        ticket.wait()

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1600))
    assert len({entry.payload for entry in store.read("shared")}) == 1600


def test_a_store_is_opened_again(path: Path) -> None:
    store = brooklet.open(path, create="new", permissions=0o600, linger=0.0, **SMALL)
    assert path.stat().st_mode & 0o777 == 0o600
    ticket = store.append("doc", b"x")
    with pytest.raises(brooklet.CannotOpenError, match="open already"):
        brooklet.open(path)
    del store  # Closes it.
    assert ticket.wait() is True
    kept = brooklet.open(path)
    entries, tail = kept.read("doc"), kept.tail("doc")
    kept.close()  # Releases the file, whoever has the object.
    with brooklet.open(path, read_only=True) as store:
        assert store.last("doc") == Entry(0, b"x")
        with pytest.raises(brooklet.StoppedError, match="read-only"):
            store.append("doc", b"y")
    with pytest.raises(brooklet.CannotOpenError, match="exists already"):
        brooklet.open(path, create="new")
    assert repr(kept) == "Store(closed)" and next(entries) == Entry(0, b"x")
    del tail
