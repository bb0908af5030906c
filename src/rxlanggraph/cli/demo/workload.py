"""The workload of the demo: count the airports of each state, with a LangGraph graph.

A state is a thread, and its count is in the thread's checkpoints. The node reads the count, awaits,
and writes count + 1. The await is a sleep in place of a model, so that the demo needs no network
and no key.
"""

from __future__ import annotations

import asyncio
import csv
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from time import perf_counter
from typing import Any, TypedDict

import reactivex as rx
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge, StreamMessage

__all__ = ["MODEL_SECONDS", "Airport", "Tally", "airports", "through_asyncio", "through_bridge"]

MODEL_SECONDS = 0.005
"""Duration of the sleep in place of a model call."""


class Airport(TypedDict):
    """One message: an airport's code, and the state that it is in."""

    iata: str
    state: str


class _Count(Airport, total=False):
    airports: int


async def _count(state: _Count) -> dict[str, int]:
    before = state.get("airports", 0)
    await asyncio.sleep(MODEL_SECONDS)
    return {"airports": before + 1}


def _graph() -> Any:
    builder = StateGraph(_Count)
    builder.add_node("count", _count)
    builder.add_edge(START, "count")
    builder.add_edge("count", END)
    return builder.compile(checkpointer=InMemorySaver())


def airports() -> list[Airport]:
    """Return the airports of the United States, in the order of their codes.

    Any thread; reads one small file of the package.
    """
    text = resources.files(__package__).joinpath("airports.csv").read_text("utf-8")
    return [Airport(iata=r["iata"], state=r["state"]) for r in csv.DictReader(text.splitlines())]


@dataclass(frozen=True, slots=True)
class Tally:
    """The outcome of one way of running the workload, compared with a count in plain Python.

    Args:
        messages: The number of messages.
        results: The number of results.
        wrong: The number of results whose count differs from that of plain Python.
        lost: The number of updates that the final counts lack.
        seconds: The duration.
    """

    messages: int
    results: int
    wrong: int
    lost: int
    seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / max(self.seconds, 1e-9)


def through_asyncio(messages: Sequence[Airport]) -> Tally:
    """Run the graph with plain asyncio: ``flat_map`` and ``run_coroutine_threadsafe``.

    Any thread without a running loop; blocks until the last result is there.
    """
    graph = _graph()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="demo-loop", daemon=True)
    thread.start()

    def invoke(message: Airport) -> rx.Observable[Any]:
        config = {"configurable": {"thread_id": message["state"]}}
        call = graph.ainvoke(message, config)
        return rx.from_future(asyncio.run_coroutine_threadsafe(call, loop))

    started = perf_counter()
    try:
        results = rx.from_iterable(messages).pipe(ops.flat_map(invoke), ops.to_list()).run()
        return _tally(graph, messages, results, perf_counter() - started)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def through_bridge(messages: Sequence[Airport]) -> Tally:
    """Run an equal graph through the bridge.

    Any thread without a running loop; blocks until the last result is there.
    """
    graph = _graph()
    started = perf_counter()
    with RxPyLangGraphBridge(name="demo") as bridge:
        results = (
            rx.from_iterable([StreamMessage(m, thread_id=m["state"]) for m in messages])
            .pipe(bridge.invoke(graph), ops.map(_content), ops.to_list())
            .run()
        )
    return _tally(graph, messages, results, perf_counter() - started)


def _content(result: StreamMessage) -> Any:
    return result.content


def _tally(
    graph: Any, messages: Sequence[Airport], results: Sequence[_Count], seconds: float
) -> Tally:
    """Compare the results and the final counts with a count in plain Python."""
    total: Counter[str] = Counter()
    expected = {}
    for message in messages:
        total[message["state"]] += 1
        expected[message["iata"]] = total[message["state"]]
    wrong = sum(expected[result["iata"]] != result["airports"] for result in results)
    reached = 0
    for state in total:
        last = graph.get_state({"configurable": {"thread_id": state}})
        reached += last.values["airports"]
    return Tally(len(messages), len(results), wrong, len(messages) - reached, seconds)
