"""Several loops in one process: how many times faster two are than one, without the GIL.

Only the rate counts here, not CPU time: that of several threads adds up. With a GIL, loops take
turns, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import reactivex as rx

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.concurrency.interpreter import gil_enabled

from . import worker_graphs
from .harness import Ratio, drain, paired

#: Messages by graph: about two seconds on one loop.
MESSAGES = {"cpu_on_loop": 100, "trivial": 3_000}
GRAPHS = tuple(MESSAGES)
LOOPS = 2
#: Runs at a time, with each number of loops.
SLOTS = 64
NOT_TAKEN = "not taken: this Python has a GIL, with which loops take turns"


@contextmanager
def on(loops: int, graph: str) -> Iterator[Callable[[], None]]:
    count = MESSAGES[graph]
    with RxPyLangGraphBridge(max_concurrency=SLOTS, loops=loops) as bridge:

        def stream() -> None:
            source = rx.from_iterable([{"n": n} for n in range(count)])
            drain(source.pipe(bridge.invoke(getattr(worker_graphs, graph))), count)

        yield stream


def rate_ratio(graph: str, *, pairs: int = 5) -> Ratio:
    """The time of a stream on one loop over that on several: how many times faster these are."""
    with on(1, graph) as peer, on(LOOPS, graph) as ours:
        return paired(peer, ours, pairs=pairs, items=MESSAGES[graph])


class Loops:
    """The time over that of one loop."""

    params = list(GRAPHS)
    param_names = ("graph",)
    timeout = 600
    unit = "ratio"

    def setup(self, graph: str) -> None:
        if gil_enabled():
            raise NotImplementedError(NOT_TAKEN)

    def track_time(self, graph: str) -> float:
        return 1 / rate_ratio(graph, pairs=3).value


if __name__ == "__main__":
    if gil_enabled():
        print(NOT_TAKEN)
    else:
        for each in GRAPHS:
            found = rate_ratio(each)
            print(
                f"{each}: {LOOPS} loops are {found.value:.2f} times faster than one "
                f"({found.low:.2f}-{found.high:.2f})",
                flush=True,
            )
