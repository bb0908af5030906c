"""Graphs that send to many nodes at once, and a count of those that are on."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Send

__all__ = ["NodesOn", "counted_fan_out"]


class Fan(TypedDict, total=False):
    run: int
    done: Annotated[list[int], operator.add]


class NodesOn:
    """How many nodes of each run are on at once, and of how many runs."""

    def __init__(self) -> None:
        self.most_of_one_run = self.most_runs = 0
        self._on: Counter[Any] = Counter()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def on(self, run: Any) -> Iterator[None]:
        with self._lock:
            self._on[run] += 1
            self.most_of_one_run = max(self.most_of_one_run, self._on[run])
            self.most_runs = max(self.most_runs, len(+self._on))
        try:
            yield
        finally:
            with self._lock:
                self._on[run] -= 1


def counted_fan_out(on: NodesOn, times: int, *, in_threads: bool) -> Any:
    """A graph that sends ``times`` times to a node, which is counted in ``on``."""

    def send_all(state: Fan) -> list[Send]:
        return [Send("work", (state["run"], number)) for number in range(times)]

    def work(task: Any) -> Fan:
        with on.on(task[0]):
            threading.Event().wait(0.001)  # long enough for others to begin beside it
        return {"done": [task[1]]}

    async def work_async(task: Any) -> Fan:
        with on.on(task[0]):
            for _ in range(50):
                await asyncio.sleep(0)
        return {"done": [task[1]]}

    builder = StateGraph(Fan).add_node("work", work if in_threads else work_async)
    return builder.add_conditional_edges(START, send_all, ["work"]).compile()
