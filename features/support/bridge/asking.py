"""Graphs that ask, and savers that tell what they were asked for."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from support.concurrency.waiting import Gate, Log

__all__ = [
    "ASKING",
    "CountingSaver",
    "Said",
    "ask_and_end",
    "beside_a_question",
    "gated",
    "in_turn",
    "slow_to_take",
    "with_other_state",
]


class Said(TypedDict, total=False):
    said: Annotated[list[str], operator.add]


def _asks(*questions: str) -> Callable[[Said], Said]:
    def ask(_: Said) -> Said:
        return {"said": [f"{question} {interrupt(question)}" for question in questions]}

    return ask


def _graph(saver: Any, /, *, before: str = "", after: str = "", **nodes: Any) -> Any:
    """The nodes side by side."""
    builder: Any = StateGraph(Said)
    for name, node in nodes.items():
        builder.add_node(name, node).add_edge(START, name)
    stops = {"interrupt_before": before, "interrupt_after": after}
    return builder.compile(saver, **{name: [node] for name, node in stops.items() if node})


def _says(_: Said) -> Said:
    return {"said": ["done"]}


def in_turn(saver: Any) -> Any:
    """One node that asks three questions, one after the other."""
    return _graph(saver, ask=_asks("first?", "second?", "third?"))


def _stops_after(saver: Any) -> Any:
    builder: Any = StateGraph(Said).add_node("begin", _says).add_node("end", _says)
    builder.add_edge(START, "begin").add_edge("begin", "end")
    return builder.compile(saver, interrupt_after=["begin"])


def _functional(saver: Any) -> Any:
    @task
    async def ask(_: Any) -> str:
        return f"first? {interrupt('first?')}"

    @entrypoint(checkpointer=saver)
    async def flow(content: Any) -> dict[str, Any]:
        return {"said": [await ask(content)]}

    return flow


ASKING: dict[str, Callable[[Any], Any]] = {
    "one node": lambda saver: _graph(saver, ask=_asks("first?")),
    "a subgraph": lambda saver: _graph(saver, sub=_graph(None, ask=_asks("first?"))),
    "nodes side by side": lambda saver: _graph(saver, left=_asks("left?"), right=_asks("right?")),
    "the functional API": _functional,
    "a breakpoint before a node": lambda saver: _graph(saver, say=_says, before="say"),
    "a breakpoint after a node": _stops_after,
    "a breakpoint in a subgraph": lambda saver: _graph(
        saver, sub=_graph(None, say=_says, before="say")
    ),
}


def gated(saver: Any, entered: Log, gate: Gate) -> Any:
    """One node that waits for a gate before it asks each of two questions."""

    async def ask(_: Said) -> Said:
        said = []
        for question in ("first?", "second?"):
            entered.add(question)
            await gate.wait_async()
            said.append(f"{question} {interrupt(question)}")
        return {"said": said}

    return _graph(saver, ask=ask)


def slow_to_take(saver: Any, entered: Log, gate: Gate) -> Any:
    """One node that waits for a gate once it has its answer."""

    async def ask(_: Said) -> Said:
        answer = interrupt("first?")
        entered.add(answer)
        await gate.wait_async()
        return {"said": [f"first? {answer}"]}

    return _graph(saver, ask=ask)


def beside_a_question(saver: Any) -> Any:
    """A node that ends at once, and one beside it that asks."""
    return _graph(saver, ask=_asks("first?"), say=_says)


class Notes(TypedDict, total=False):
    notes: str


def with_other_state(saver: Any) -> Any:
    """A graph that asks, and has none of the channels of the others."""

    def note(state: Notes) -> Notes:
        return {"notes": f"{state['notes']}, {interrupt('note?')}"}

    return StateGraph(Notes).add_node("note", note).add_edge(START, "note").compile(saver)


class CountingSaver(InMemorySaver):
    """Counts how often the latest checkpoint of a thread is read, and can make that wait or fail.

    Its fields are set and read while nothing runs on it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.failures = 0
        self.gate: Gate | None = None
        self.entered = Log()

    async def aget_tuple(self, config: Any) -> Any:
        self.reads += 1
        if self.gate is not None:
            self.entered.add("reading")
            await self.gate.wait_async()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no checkpoints today")
        return await super().aget_tuple(config)


def ask_and_end(path: str) -> None:
    """Ask on a thread in SQLite, and end: the whole of another process."""

    async def work() -> None:
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            graph, message = in_turn(saver), StreamMessage({"said": ["hello"]}, "t")
            async with RxPyLangGraphBridge(asyncio.get_running_loop()) as bridge:
                result = await bridge.create_future_task(graph, message)
        print(result.status, result.interrupts[0].id)

    asyncio.run(work())
