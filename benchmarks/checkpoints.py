"""What `keep_checkpoints=1` costs: runs on threads of which the rest is deleted, over all kept."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import Any

import reactivex as rx
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from rxlanggraph import RxPyLangGraphBridge, StreamMessage

from .harness import LoopThread, Ratio, drain, in_turns, one_node_graph
from .servers import SERVERS

SAVERS = ("memory", "sqlite")
_MESSAGES = 200
#: Each has ten of the messages of a turn.
_THREADS = 20


class Bench(ExitStack):
    """A bridge on the loop of its checkpointer. In memory, each turn has a new one."""

    def __init__(self, saver: str) -> None:
        super().__init__()
        self._turns = itertools.count()
        self._saver: Any = None
        url = self.enter_context(SERVERS[saver]())
        loop = self.enter_context(LoopThread())
        if saver == "sqlite":
            opened = AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///"))
            self._saver = loop.run(opened.__aenter__())
            self.callback(lambda: loop.run(opened.__aexit__(None, None, None)))
        self._bridge = self.enter_context(RxPyLangGraphBridge(loop.loop, max_concurrency=16))

    def stream(self, keep: int | None, count: int) -> None:
        """Pass so many messages through a graph, on threads that are new."""
        turn = next(self._turns)
        graph = one_node_graph(self._saver or InMemorySaver())
        inputs = [StreamMessage({"n": n}, f"{turn}-{n % _THREADS}") for n in range(count)]
        operator = self._bridge.invoke(graph, keep_checkpoints=keep)
        drain(rx.from_iterable(inputs).pipe(operator), count)


def ratio(saver: str, *, count: int = _MESSAGES, turns: int = 4, pairs: int = 7) -> Ratio:
    """The CPU time of a run with `keep_checkpoints=1` over that of one without."""
    with Bench(saver) as bench:
        return in_turns(
            lambda: bench.stream(1, count),
            lambda: bench.stream(None, count),
            pairs=pairs,
            turns=turns,
            items=count,
        )


class KeepCheckpointsRatio:
    """Runs with `keep_checkpoints=1` over runs without, in CPU time."""

    params = list(SAVERS)
    param_names = ("saver",)
    timeout = 600
    unit = "ratio"

    def track_cpu(self, saver: str) -> float:
        return ratio(saver).value
