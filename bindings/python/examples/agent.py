"""A graph of LangGraph that asks a person, stops, and goes on later from its checkpoint."""

import sys
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

import brooklet
from brooklet.langgraph import BrookletSaver


class State(TypedDict, total=False):
    draft: str
    answer: str


def write(state: State) -> State:
    return {"draft": "a letter"}


def ask(state: State) -> State:
    return {"answer": interrupt(f"send {state['draft']}?")}


def graph_in(store: brooklet.Store) -> Any:
    builder = StateGraph(State)
    builder.add_node("write", write)
    builder.add_node("ask", ask)
    builder.add_edge(START, "write")
    builder.add_edge("write", "ask")
    return builder.compile(checkpointer=BrookletSaver(store))


def main(path: str) -> None:
    thread = {"configurable": {"thread_id": "7"}}
    with brooklet.open(path) as store:
        asked = graph_in(store).invoke({}, thread)
        print(asked["__interrupt__"][0].value)
    with brooklet.open(path) as store:  # As after a restart.
        graph = graph_in(store)
        print(graph.invoke(Command(resume="yes"), thread)["answer"])
        print([state.next for state in graph.get_state_history(thread)])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "agents.brooklet")
