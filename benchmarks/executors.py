"""Graphs in worker processes: what they gain and cost, over one process and over bare Ray actors.

Only the rate counts here, not CPU time: that of the workers is not this process's.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import reactivex as rx

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.executors import RayExecutor

from . import worker_graphs
from .harness import Ratio, drain, paired

#: Messages by graph: about two seconds in one process.
MESSAGES = {"cpu": 100, "io": 3_000, "trivial": 3_000}
GRAPHS = tuple(MESSAGES)
WAYS = ("1 worker", "2 workers", "plain actors")
#: Runs at a time, in each of the ways.
SLOTS = 64

Stream = Callable[[], None]


@contextmanager
def in_process(graph: str) -> Iterator[Stream]:
    with RxPyLangGraphBridge(max_concurrency=SLOTS) as bridge:
        yield lambda: _through(bridge, graph)


@contextmanager
def in_workers(graph: str, workers: int) -> Iterator[Stream]:
    executor = RayExecutor(f"benchmarks.worker_graphs:{graph}", workers=workers)
    bridge = RxPyLangGraphBridge(max_concurrency=SLOTS, executor=executor)
    with executor.connected(), bridge:
        yield lambda: _through(bridge, graph)


def _through(bridge: RxPyLangGraphBridge, graph: str) -> None:
    count = MESSAGES[graph]
    source = rx.from_iterable([{"n": n} for n in range(count)])
    drain(source.pipe(bridge.invoke(getattr(worker_graphs, graph))), count)


@contextmanager
def plain_actors(graph: str, workers: int = 2) -> Iterator[Stream]:
    """Two async actors of Ray's, called in turn, a call for each message: no bridge."""
    import ray

    class Plain:
        def __init__(self, path: list[str]) -> None:
            import importlib
            import sys

            sys.path += path
            module = importlib.import_module("benchmarks.worker_graphs")
            self._graph = getattr(module, graph)

        async def run(self, content: Any) -> Any:
            return await self._graph.ainvoke(content)

    async def stream(actors: list[Any]) -> None:
        slots, turns = asyncio.Semaphore(SLOTS), itertools.cycle(actors)

        async def call(n: int) -> None:
            async with slots:
                await next(turns).run.remote({"n": n})

        await asyncio.gather(*map(call, range(MESSAGES[graph])))

    import sys

    with RayExecutor("benchmarks.worker_graphs:cpu").connected():
        actor = ray.remote(Plain).options(num_cpus=0, max_concurrency=SLOTS)
        actors = [actor.remote(list(sys.path)) for _ in range(workers)]
        yield lambda: asyncio.run(stream(actors))
        for each in actors:
            ray.kill(each)


def rate_ratio(graph: str, way: str, *, pairs: int = 5) -> Ratio:
    """The time of a stream in one process over that of another way: how many times faster it is."""
    other = plain_actors(graph) if way == "plain actors" else in_workers(graph, int(way[0]))
    with in_process(graph) as peer, other as ours:
        return paired(peer, ours, pairs=pairs, items=MESSAGES[graph])


class Scaling:
    """The time over that of one process."""

    params = (list(GRAPHS), list(WAYS))
    param_names = ("graph", "way")
    timeout = 600
    unit = "ratio"

    def track_time(self, graph: str, way: str) -> float:
        return 1 / rate_ratio(graph, way, pairs=3).value


if __name__ == "__main__":
    for each in GRAPHS:
        for how in WAYS:
            found = rate_ratio(each, how, pairs=3)
            print(
                f"{each}, {how}: {found.value:.2f} times faster than one process "
                f"({found.low:.2f}-{found.high:.2f}); {found.ours * 1e6:.0f} against "
                f"{found.peer * 1e6:.0f} us a message",
                flush=True,
            )
