"""Graphs of LangGraph on a store: interrupts, time travel, threads at once, delta channels, and a process that is killed."""

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, List, TypedDict

import pytest

import brooklet
from conftest import SMALL, Program

pytest.importorskip("langgraph.graph")

from langgraph.channels import DeltaChannel  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.graph import START, StateGraph  # noqa: E402
from langgraph.types import Command, interrupt  # noqa: E402

from brooklet.langgraph import BrookletSaver  # noqa: E402


class State(TypedDict):
    steps: Annotated[List[str], operator.add]


def added(left: Any, writes: Any) -> List[str]:
    return [*(left or []), *(item for write in writes for item in write)]


class Deltas(TypedDict):
    steps: Annotated[List[str], DeltaChannel(added, snapshot_frequency=4)]


def graph(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"steps": ["one"]})
    builder.add_node("ask", lambda state: {"steps": [interrupt("which?")]})
    builder.add_node("two", lambda state: {"steps": ["two"]})
    for edge in ((START, "one"), ("one", "ask"), ("ask", "two")):
        builder.add_edge(*edge)
    return builder.compile(checkpointer=saver)


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def test_interrupt_resume_and_time_travel(path: Path) -> None:
    with brooklet.open(path, **SMALL) as store:
        asked = graph(BrookletSaver(store)).invoke({"steps": ["begin"]}, config("t"))
        assert asked["__interrupt__"][0].value == "which?"
    with brooklet.open(path, **SMALL) as store:
        runs = graph(BrookletSaver(store))
        assert runs.get_state(config("t")).next == ("ask",)
        assert runs.invoke(Command(resume="this"), config("t"))["steps"] == ["begin", "one", "this", "two"]
        history = list(runs.get_state_history(config("t")))
        before = next(state for state in history if state.next == ("ask",))
        # From the past on, with another answer, and with another state.
        assert "__interrupt__" in runs.invoke(None, before.config)
        assert runs.invoke(Command(resume="that"), config("t"))["steps"] == ["begin", "one", "that", "two"]
        fork = runs.update_state(before.config, {"steps": ["changed"]})
        runs.invoke(None, fork)
        assert runs.invoke(Command(resume="x"), config("t"))["steps"] == ["begin", "one", "changed", "x", "two"]
        assert runs.get_state(history[0].config).values["steps"] == ["begin", "one", "this", "two"]
        assert len(list(runs.get_state_history(config("t")))) > len(history)


def test_threads_at_once(store: brooklet.Store) -> None:
    runs = graph(BrookletSaver(store))

    def run(number: int) -> Any:
        runs.invoke({"steps": [str(number)]}, config(str(number)))
        return runs.invoke(Command(resume="r"), config(str(number)))["steps"]

    async def run_async(number: int) -> Any:
        await runs.ainvoke({"steps": [str(number)]}, config(f"a{number}"))
        return (await runs.ainvoke(Command(resume="r"), config(f"a{number}")))["steps"]

    async def main() -> Any:
        return await asyncio.gather(*map(run_async, range(30)))

    expected = [[str(number), "one", "r", "two"] for number in range(30)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(30))) == expected
    assert asyncio.run(main()) == expected


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_delta_channels(store: brooklet.Store, durability: Any) -> None:
    saver, reference = BrookletSaver(store), InMemorySaver()
    graphs = []
    for kind in (saver, reference):
        builder = StateGraph(Deltas)
        builder.add_node("one", lambda state: {"steps": ["one"]})
        builder.add_node("two", lambda state: {"steps": ["two"]})
        builder.add_edge(START, "one")
        builder.add_edge("one", "two")
        graphs.append(builder.compile(checkpointer=kind))
    runs, other = graphs
    for turn in range(11):
        for each in graphs:
            each.invoke({"steps": [str(turn)]}, config("t"), durability=durability)
        steps = other.get_state(config("t")).values["steps"]
        assert runs.get_state(config("t")).values["steps"] == steps and len(steps) == 3 * (turn + 1)
        saver.copy_thread("t", f"copy{turn}")
        before = len(list(saver.list(config("t"))))
        saver.prune(["t"])
        assert len(list(saver.list(config("t")))) <= before
        for thread in ("t", f"copy{turn}"):
            assert runs.get_state(config(thread)).values["steps"] == steps
            assert asyncio.run(runs.aget_state(config(thread))).values["steps"] == steps
    assert len(list(saver.list(config("t")))) < 30


GRAPH = """
    import operator
    from typing import Annotated, TypedDict
    from brooklet.langgraph import BrookletSaver
    from langgraph.graph import START, StateGraph

    class State(TypedDict):
        steps: Annotated[list, operator.add]

    thread = {"configurable": {"thread_id": "t"}}
    store = brooklet.open(path)
    saver = BrookletSaver(store)

    def step(name):
        def run(state):
            os.write(1, f"{name}\\n".encode())  # One write: tasks print at once.
            if name == "killed" and KILL:
                while not any(write[2] == ["beside"] for write in saver.get_tuple(thread).pending_writes):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            return {"steps": [name]}
        return run

    builder = StateGraph(State)
    for name in ("first", "beside", "killed", "last"):
        builder.add_node(name, step(name))
    builder.add_edge(START, "first")
    builder.add_edge("first", "beside")
    builder.add_edge("first", "killed")
    builder.add_edge(["beside", "killed"], "last")
    graph = builder.compile(checkpointer=saver)
"""


def test_a_killed_process_is_resumed(program: Program) -> None:
    begin = 'graph.invoke({"steps": []}, thread, durability="sync")\n'
    killed = program("KILL = True\n" + GRAPH.replace("\n    ", "\n") + begin)
    out, err = killed.communicate(timeout=300)
    assert killed.returncode == -9 and sorted(out.split()) == ["beside", "first", "killed"], err
    code = "KILL = False\n" + GRAPH.replace("\n    ", "\n")
    resumed = program(code + 'print(*sorted(graph.invoke(None, thread)["steps"]))\nstore.close()\n')
    out, err = resumed.communicate(timeout=300)
    # Neither the step before, nor the task beside that had ended, runs again.
    assert out.split("\n")[:-1] == ["killed", "last", "beside first killed last"], err


def test_kills_of_a_writer(program: Program, path: Path) -> None:
    code = """
    from brooklet.langgraph import BrookletSaver
    from langgraph.checkpoint.base import empty_checkpoint
    saver = BrookletSaver(brooklet.open(path))
    where = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    while True:
        where = saver.put(where, empty_checkpoint(), {}, {})
        print("c", where["configurable"]["checkpoint_id"], flush=True)
        saver.put_writes(where, [("x", 1), ("y", 2)], "task")
        print("w", where["configurable"]["checkpoint_id"], flush=True)
    """
    stored: List[List[str]] = []
    for _ in range(3):
        writer = program(code)
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(100)]
        writer.kill()
        lines += writer.communicate()[0].splitlines(keepends=True)
        stored += [line.split() for line in lines if line.endswith("\n")]
        with brooklet.open(path) as store:
            saver = BrookletSaver(store)
            found = {item.checkpoint["id"]: item for item in saver.list(config("t"))}
            for kind, identifier in stored:
                assert kind == "c" or len(found[identifier].pending_writes or []) == 2
                assert identifier in found
            latest = saver.get_tuple(config("t"))
            assert latest is not None and latest.checkpoint["id"] == max(found)
            assert all(len(item.pending_writes or []) in (0, 2) for item in found.values())
