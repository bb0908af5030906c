"""Graphs that are called on several loops: nothing in them belongs to one."""

from __future__ import annotations

import asyncio
import operator
import threading
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from support.concurrency.waiting import Gate, Log

__all__ = [
    "GRAPHS",
    "Cleaning",
    "State",
    "asking",
    "chain",
    "fanning_out",
    "logging_thread",
    "one_node",
    "sequence",
    "talking",
    "talking_in_a_subgraph",
]


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[Any], operator.add]


def one_node(node: Any, **options: Any) -> Any:
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile(**options)


def chain(threads: set[str]) -> Any:
    """Async and sync nodes in turn; ``threads`` are those of the async ones."""

    async def first(state: State) -> State:
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        return {"n": state["n"] + 1, "log": ["first"]}

    def second(state: State) -> State:
        return {"n": state["n"] * 2, "log": ["second"]}

    builder = StateGraph(State).add_node("first", first).add_node("second", second)
    return builder.add_edge(START, "first").add_edge("first", "second").compile()


def _with_subgraph(threads: set[str]) -> Any:
    return one_node(chain(threads))


def _sending(threads: set[str]) -> Any:
    async def part(state: State) -> State:
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        return {"log": [state["n"]]}

    def parts(state: State) -> list[Send]:
        return [Send("part", {"n": state["n"] * 10 + i}) for i in range(5)]

    builder = StateGraph(State).add_node("part", part).add_conditional_edges(START, parts, ["part"])
    return builder.add_edge("part", END).compile()


def _function(threads: set[str]) -> Any:
    async def answer(content: State, *, message: Any) -> Any:
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        return content["n"], message.content["n"]

    return answer


def _runnable(threads: set[str]) -> Any:
    async def answer(content: State) -> int:
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        return content["n"] + 7

    return RunnableLambda(answer) | RunnableLambda(lambda n: n * 2)


def sequence(threads: set[str], checkpointer: Any = None) -> Any:
    """Two graphs and a function between them."""
    first = asking(checkpointer) if checkpointer is not None else chain(threads)
    return first | RunnableLambda(lambda state: {"n": len(state["log"])}) | chain(threads)


GRAPHS = {
    "async and sync nodes": chain,
    "a subgraph": _with_subgraph,
    "nodes that are sent by Send": _sending,
    "an async function": _function,
    "a Runnable": _runnable,
    "a sequence of graphs": sequence,
}


def talking(made: Log) -> Any:
    """A graph with many chunks, of many supersteps; ``made`` are those that it has come to."""

    async def talk(state: State) -> State:
        made.add(state["n"])
        return {"n": state["n"] - 1}

    builder = StateGraph(State).add_node("talk", talk).add_edge(START, "talk")
    builder.add_conditional_edges("talk", lambda state: "talk" if state["n"] else END)
    return builder.compile()


def talking_in_a_subgraph(model: Any) -> Any:
    """A graph with chunks in all modes, some of a subgraph."""

    async def say(state: State) -> State:
        write = get_stream_writer()
        for number in range(5):
            write({"number": number})
        answer = await model.ainvoke("hello")
        return {"log": [answer.content]}

    def end(state: State) -> State:
        get_stream_writer()({"number": "last"})
        return {"n": len(state["log"])}

    builder = StateGraph(State).add_node("inner", one_node(say)).add_node("end", end)
    return builder.add_edge(START, "inner").add_edge("inner", "end").compile()


def asking(checkpointer: Any) -> Any:
    async def ask(state: State) -> State:
        await asyncio.sleep(0)
        return {"log": [interrupt(f"question {state['n']}")]}

    return one_node(ask, checkpointer=checkpointer)


def logging_thread(checkpointer: Any) -> Any:
    """Keeps the numbers of its thread's messages, in their order."""

    async def note(state: State) -> State:
        await asyncio.sleep(0)
        return {"log": [state["n"]]}

    return one_node(note, checkpointer=checkpointer)


def fanning_out(width: int, node: Any) -> Any:
    builder = StateGraph(State)
    for number in range(width):
        builder.add_node(f"node{number}", node).add_edge(START, f"node{number}")
    return builder.compile()


class Cleaning:
    """A node that waits until it is cancelled, and then cleans up until it is told to end that."""

    def __init__(self, attempts: int = 1_000_000) -> None:
        self.log = Log()
        self.begun = Log()
        self.may_end = Gate()
        self._attempts = attempts  # how many of them wait; the next ones end at once

    async def __call__(self, state: State) -> State:
        self.begun.add(state["n"])
        self.log.add("begun")
        if len(self.begun) > self._attempts:
            return {"log": ["answered"]}
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.log.add("cancelled")
            await self.may_end.wait_async()
            self.log.add("clean")
            raise
        return {}
