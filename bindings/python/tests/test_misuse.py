"""Wrong calls, and the ends of programs: each gets a clear error, and loses nothing."""

import asyncio
import gc
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, List, Tuple, Type

import pytest

import brooklet
from conftest import SMALL, Program


def test_calls_on_a_closed_store(store: brooklet.Store) -> None:
    ticket = store.append("doc", b"x")
    entries, tail = store.read_available("doc"), store.tail("doc")
    store.close()
    store.close()
    assert ticket.wait() and ticket.is_done
    calls: List[Callable[[], object]] = [
        lambda: store.append("doc", b"y"),
        lambda: store.append_many("doc", [b"y"]),
        lambda: store.commit(brooklet.Commit().append("doc", b"y")),
        lambda: store.trim("doc", 1),
        lambda: store.tail("doc"),
        lambda: store.wait_for("doc", 9),
        lambda: store.info(),
        lambda: store.bounds("doc"),
        lambda: store.flush(),
    ]
    for call in calls:
        with pytest.raises(brooklet.ClosedError, match="the store is closed"):
            call()
    assert len(list(entries)) <= 1
    with pytest.raises(brooklet.ClosedError):
        list(tail)


@pytest.mark.parametrize("wrong", [None, 7, 1.5, object(), ["a"]])
def test_wrong_types(store: brooklet.Store, wrong: Any) -> None:
    calls: List[Callable[[], object]] = [
        lambda: store.append(wrong, b"x"),
        lambda: store.append("doc", wrong),
        lambda: store.append_many("doc", [b"x", wrong]),
        lambda: store.read(wrong),
        lambda: store.bounds(wrong),
        lambda: store.commit(wrong),
        lambda: store.tail(wrong),
        lambda: brooklet.Commit().append("doc", wrong),
        lambda: brooklet.Commit().delete(wrong),
    ]
    for call in calls:
        with pytest.raises(TypeError):
            call()
    assert list(store.scan()) == []


def test_wrong_values(store: Any, path: Path) -> None:
    open: Any = brooklet.open
    ticket = store.append("doc", b"x")
    ticket.wait()
    calls: List[Tuple[Callable[[], object], Type[Exception], str]] = [
        (lambda: store.append("", b"x"), brooklet.InvalidError, "a key of 0 bytes"),
        (lambda: store.append(b"k" * 1025, b"x"), brooklet.InvalidError, "a key of 1025 bytes"),
        (lambda: store.append("doc", bytes(2 << 20)), brooklet.InvalidError, "max_payload"),
        (lambda: store.append("\ud800", b"x"), UnicodeEncodeError, "surrogates"),
        (lambda: store.append("doc", "text"), TypeError, "not str: encode it"),
        (lambda: store.append_many("doc", b"bytes"), TypeError, "not int"),
        (lambda: store.append_many("doc", []), brooklet.InvalidError, "no operation"),
        (lambda: store.commit(brooklet.Commit()), brooklet.InvalidError, "no operation"),
        (lambda: store.trim("doc", -1), OverflowError, "negative"),
        (lambda: store.read("doc", 1 << 64), OverflowError, "too big"),
        (lambda: ticket.wait(-1), ValueError, "use seconds, 0 or more"),
        (lambda: ticket.wait(float("nan")), ValueError, "no time"),
        (lambda: open(path.parent / "other", ring_size=1), brooklet.InvalidError, "ring"),
        (lambda: open(path.parent / "other", create="maybe"), ValueError, "create is none of"),
        (lambda: open(path.parent / "other", create="never"), brooklet.Error, "other"),
        (lambda: open(path.parent), brooklet.Error, "directory"),
        (lambda: open(path, speed=9), TypeError, "speed"),
        (lambda: open(None), TypeError, "NoneType"),
    ]
    for call, error, words in calls:
        with pytest.raises(error, match=words):
            call()
    assert store.bounds("doc") == (0, 1)


def test_a_failing_iterable_appends_nothing(store: brooklet.Store) -> None:
    def payloads() -> Any:
        yield b"x"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        store.append_many("doc", payloads())
    assert not store.exists("doc")


def test_huge_payloads(store: brooklet.Store) -> None:
    huge = bytes(range(256)) * 4000
    store.append("doc", huge).wait()
    store.append("doc", bytearray(huge)).wait()
    assert [entry.payload == huge for entry in store.read("doc")] == [True, True]


def test_a_buffer_may_change_after_the_call(store: brooklet.Store) -> None:
    buffer = bytearray(b"before")
    ticket = store.append("doc", buffer)
    buffer[:] = b"after!"
    buffer.extend(b"more")  # Refused while somebody holds the buffer.
    ticket.wait()
    assert store.last("doc") == (0, b"before")


def test_an_iterator_is_used_by_one_thread(store: brooklet.Store) -> None:
    tail = store.tail("doc")
    began = threading.Event()
    seen: List[Any] = []

    def follow() -> None:
        began.set()
        while not seen:
            try:
                seen.append(next(tail))
            except brooklet.InvalidError:
                pass  # The other thread uses it at this moment.

    thread = threading.Thread(target=follow)
    thread.start()
    began.wait()
    with pytest.raises(brooklet.InvalidError, match="another thread uses"):
        while True:
            tail.try_next()
    store.append("doc", b"x")
    thread.join()
    assert seen == [(0, b"x")]


def test_objects_end_in_the_middle_of_calls(path: Path) -> None:
    def work(store: Any) -> None:
        for _ in range(10):
            ticket = store.append("doc", bytes(1000))
            ticket.on_done(lambda error, ticket=ticket: gc.collect(0))
            del ticket
            gc.collect()

    threads = [threading.Thread(target=work, args=(brooklet.open(path, **SMALL),))]
    store = threads[0]._args[0]  # type: ignore[attr-defined]
    threads += [threading.Thread(target=work, args=(store,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    del store
    for thread in threads:
        thread.join()
    del threads, thread
    gc.collect()
    with brooklet.open(path) as store:
        assert store.bounds("doc") == (0, 40)


def test_an_exception_in_a_callback(store: brooklet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: List[Any] = []
    done = threading.Event()

    def hook(args: Any) -> None:
        seen.append(args.exc_value)
        done.set()

    monkeypatch.setattr(sys, "unraisablehook", hook)

    def callback(error: Any) -> None:
        raise KeyError("mine")

    store.append("doc", b"x").on_done(callback)
    assert done.wait(60)
    assert repr(seen) == "[KeyError('mine')]"
    store.append("doc", b"y").wait()
    done.clear()
    store.append("doc", b"z").on_done(None)  # type: ignore[arg-type]
    assert done.wait(60) and isinstance(seen[1], TypeError)


def test_a_callback_may_use_and_close_the_store(store: brooklet.Store) -> None:
    done = threading.Event()

    def callback(error: Any) -> None:
        store.append("doc", b"second").wait()
        assert store.bounds("doc") == (0, 2)
        store.close()
        done.set()

    store.append("doc", b"first").on_done(callback)
    assert done.wait(60)


def test_a_child_of_a_fork_is_refused(program: Program) -> None:
    child = program(
        """
        import asyncio, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Newer interpreters warn of forks with threads.
        store = brooklet.open(path)
        ticket = store.append("doc", b"x")
        ticket.wait()
        tail = store.tail("doc", 1)
        async def append(): await brooklet.AsyncStore(store).append("doc", b"y")
        async def bounds(): await brooklet.AsyncStore(store).bounds("doc")
        asyncio.run(bounds())  # The threads of reads are not in the child.
        pid = os.fork()
        if pid == 0:
            calls = [lambda: store.append("doc", b"y"), lambda: store.bounds("doc"), store.flush, store.checkpoint,
                     lambda: store.commit(brooklet.Commit().delete("doc")), lambda: list(store.read("doc")),
                     lambda: next(tail), lambda: store.wait_for("doc", 9)]
            calls += [lambda: asyncio.run(append()), lambda: asyncio.run(bounds())]
            for number, call in enumerate(calls):
                try:
                    call()
                except brooklet.ForkedError as error:
                    assert "fork" in str(error), error
                else:
                    print("allowed:", number)
            sys.exit(7)  # With the ends that the interpreter has.
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        store.append("doc", b"after").wait()
        print(list(store.read("doc")))
        """
    )
    out, err = child.communicate(timeout=300)
    assert (out, err) == ("[Entry(seq=0, payload=b'x'), Entry(seq=1, payload=b'after')]\n", "")


def test_a_child_of_a_fork_ends_beside_a_callback_of_its_parent(program: Program) -> None:
    child = program(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Newer interpreters warn of forks with threads.
        store = brooklet.open(path)
        began, go = threading.Event(), threading.Event()
        def callback(error):
            began.set()
            go.wait()
        threading.Thread(target=lambda: store.append("doc", b"x").on_done(callback)).start()
        began.wait()
        pid = os.fork()
        if pid == 0:
            done = []
            with brooklet.open(path + ".child") as own:
                own.append("doc", b"y").on_done(done.append)
                own.close()
                while not done: pass
            sys.exit(7)
        for _ in range(20000):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended: break
            time.sleep(0.01)
        else:
            os.kill(pid, signal.SIGKILL)
            status = os.waitpid(pid, 0)[1]
        go.set()
        print(os.waitstatus_to_exitcode(status))
        """
    )
    out, err = child.communicate(timeout=300)
    assert (out, err) == ("7\n", "")


def test_a_callback_may_fork(program: Program) -> None:
    child = program(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        store = brooklet.open(path)
        done = threading.Event()
        def callback(error):
            pid = os.fork()
            if pid == 0:
                return
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            done.set()
        store.append("doc", b"x").on_done(callback)
        done.wait()
        """
    )
    out, err = child.communicate(timeout=300)
    assert (child.returncode, out, err) == (0, "", "")


def test_a_write_that_fails_is_done(program: Program) -> None:
    child = program(
        """
        import resource
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = brooklet.open(path)
        store.append("doc", b"x").wait()
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, most))  # The kernel refuses writes to files.
        ticket = store.append("doc", b"y")
        try:
            ticket.wait()
        except brooklet.StoppedError:
            print(ticket.is_done, ticket.is_durable, ticket, flush=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        os._exit(0)
        """
    )
    out, err = child.communicate(timeout=300)
    assert (out, err) == ("True False Ticket(seqs=[1], is_done=True)\n", "")


def test_the_interpreter_ends_with_appends_in_flight(program: Program, path: Path) -> None:
    child = program(
        """
        import asyncio
        store = brooklet.open(path)
        calls = []
        for n in range(5000):
            store.append("doc", b"%d" % n).on_done(calls.append)
        threading.Thread(target=lambda: list(store.tail("doc")), daemon=True).start()
        threading.Thread(target=lambda kept: time.sleep(1e6), args=(store,), daemon=True).start()
        async def leave():
            asyncio.ensure_future(brooklet.AsyncStore(store).tail("none").__anext__())
            for n in range(5000): brooklet.AsyncStore(store).append("doc", b"x")
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave())
        store.commit(brooklet.Commit().append("doc", b"late").defer(3600))
        """
    )
    out, err = child.communicate(timeout=300)
    assert child.returncode == 0 and "Fatal" not in err and "panicked" not in err, err
    with brooklet.open(path) as store:
        assert store.bounds("doc") == (0, 10_001)


def test_a_tail_outlives_its_event_loop(program: Program) -> None:
    child = program(
        """
        import asyncio, gc
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # As in tools of the command line.
        store = brooklet.open(path)
        opened = brooklet.AsyncStore(store)
        tail = opened.tail("doc")
        async def leave():
            asyncio.ensure_future(tail.__anext__())
            await asyncio.sleep(0)
        async def append():
            await opened.append("other", b"x")
        asyncio.run(leave())
        asyncio.run(append())  # Nothing of the first loop is left.
        gc.collect()
        store.append("doc", b"x").wait()
        store.close()
        print("lives")
        """
    )
    out, err = child.communicate(timeout=300)
    assert (child.returncode, out, err) == (0, "lives\n", "")


def test_an_uncaught_exception_ends_the_program_as_ever(program: Program) -> None:
    child = program(
        """
        with brooklet.open(path) as store:
            store.append("doc", b"x")
            raise KeyError("mine")
        """
    )
    _, err = child.communicate(timeout=300)
    assert child.returncode == 1 and err.endswith("KeyError: 'mine'\n")


def test_ctrl_c_ends_a_wait_of_a_child_whose_parent_was_a_thread(program: Program) -> None:
    child = program(
        """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Newer interpreters warn of forks with threads.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        store = brooklet.open(path)
        reader, writer = os.pipe()
        def work():
            store.append("doc", b"x").wait()
            pid = os.fork()
            if pid == 0:
                try:
                    own = brooklet.open(path + ".child")
                    os.write(writer, b"x")
                    own.wait_for("doc", 9)
                except KeyboardInterrupt:
                    os._exit(7)
            os.read(reader, 1)
            for _ in range(200):
                time.sleep(0.1)
                os.kill(pid, signal.SIGINT)
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended: break
            else:
                os.kill(pid, signal.SIGKILL)
                status = os.waitpid(pid, 0)[1]
            print(os.waitstatus_to_exitcode(status))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """
    )
    out, err = child.communicate(timeout=300)
    assert (out, err) == ("7\n", "")


def test_an_interrupt_loses_no_entry(store: brooklet.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt  # As the handler of a signal, which runs when Python makes the result.

    store.append_many("doc", [b"a", b"b"]).wait()
    tail, entries, batches = store.tail("doc"), store.read("doc"), store.read("doc")
    waiting = brooklet.AsyncStore(store).tail("doc")
    with monkeypatch.context() as patch:
        patch.setattr(brooklet.Entry, "__new__", interrupted)
        calls: List[Callable[[], object]] = [
            tail.try_next,
            lambda: tail.next_timeout(60),
            lambda: next(tail),
            lambda: next(entries),
            batches.take,
        ]
        for call in calls:
            with pytest.raises(KeyboardInterrupt):
                call()
        assert tail.position == 0

        async def follow() -> None:
            with pytest.raises(KeyboardInterrupt):
                await waiting.__anext__()

        asyncio.run(follow())
    both = [brooklet.Entry(0, b"a"), brooklet.Entry(1, b"b")]
    assert [tail.next_timeout(60) for _ in both] == both
    assert list(entries) == both and batches.take() == both

    async def go_on() -> None:
        assert await waiting.__anext__() == both[0]

    asyncio.run(go_on())


WAITS = ["next(store.tail('doc'))", "store.wait_for('doc', 9)", "store.tail('doc').next_timeout(9e9)"]


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(program: Program, path: Path, wait: str) -> None:
    # A shell starts programs in the background with the signal ignored, and so these tests.
    child = program(
        f"""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        store = brooklet.open(path)
        store.append("other", b"x")
        try:
            print("waits", flush=True)
            {wait}
        except KeyboardInterrupt:
            print("interrupted")
        print(store.append("other", b"y").wait())
        """
    )
    assert child.stdout is not None and child.stdout.readline() == "waits\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    assert (out, err) == ("interrupted\nTrue\n", "")
