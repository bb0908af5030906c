"""Paired ratios, the graph under test, and event loops in threads.

A machine that is shared drifts by more than the differences that matter here, so nothing is
compared with a figure from another run. Ours and its peer take turns, who goes first alternates,
each pair gives one ratio, and the median of those ratios is the result.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypedDict

import reactivex as rx
from langgraph.graph import END, START, StateGraph

#: No benchmark waits longer than this (in seconds) for work that should have ended.
DEADLINE = 600.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of paired ratios, and what it was made from (times in seconds per item)."""

    value: float
    low: float
    high: float
    ours: float
    peer: float
    pairs: int


def timed(work: Callable[[], Any]) -> float:
    """Run `work` once and return the seconds that it took.

    The garbage of earlier samples is collected first, so that no sample pays for another's. The
    collector stays on while `work` runs: its cost belongs to the side that keeps objects in flight.
    """
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def told(work: Callable[[], float]) -> float:
    """Run `work` once, as `timed` does, and return the seconds that it says it took."""
    gc.collect()
    return work()


def paired(
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    *,
    pairs: int,
    items: int = 1,
    peer_items: int | None = None,
    clock: Callable[[Callable[[], Any]], float] = timed,
    warm_up: bool = True,
) -> Ratio:
    """Time `ours` and `peer` in turn, `pairs` times, each over so many items.

    `clock` may return any figure that can be divided; with its own clock a pair can compare the
    seconds that a part of the work took, or bytes.
    """
    peer_items = items if peer_items is None else peer_items
    if warm_up:
        ours()
        peer()
    mine: list[float] = []
    theirs: list[float] = []
    for turn in range(pairs):
        if turn % 2 == 0:
            mine.append(clock(ours) / items)
            theirs.append(clock(peer) / peer_items)
        else:
            theirs.append(clock(peer) / peer_items)
            mine.append(clock(ours) / items)
    return _ratio(mine, theirs)


def in_turns(
    ours: Callable[[], Any], peer: Callable[[], Any], *, pairs: int, turns: int, items: int
) -> Ratio:
    """Compare the CPU seconds of all threads; each of `pairs` is the sum of so many turns.

    One turn of either is over `items`. What was there before is hidden from the collector: a full
    round of it over all imported modules is a hundred messages' time, and is triggered by one of
    the two for what both have left.
    """
    ours()
    peer()
    mine: list[float] = []
    theirs: list[float] = []
    gc.collect()
    gc.freeze()
    for pair in range(pairs):
        spent = [0.0, 0.0]
        for turn in range(turns):
            for who in (0, 1) if (pair + turn) % 2 == 0 else (1, 0):
                start = time.process_time()
                (ours, peer)[who]()
                spent[who] += time.process_time() - start
        mine.append(spent[0] / turns / items)
        theirs.append(spent[1] / turns / items)
    gc.unfreeze()
    return _ratio(mine, theirs)


def _ratio(mine: list[float], theirs: list[float]) -> Ratio:
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    return Ratio(
        value=statistics.median(ratios),
        low=min(ratios),
        high=max(ratios),
        ours=statistics.median(mine),
        peer=statistics.median(theirs),
        pairs=len(ratios),
    )


class State(TypedDict):
    """The state of the graph under test."""

    n: int


async def _add_one(state: State) -> State:
    return {"n": state["n"] + 1}


def one_node_graph(checkpointer: Any = None) -> Any:
    """Compile the smallest asynchronous graph, beside which overhead shows most clearly."""
    builder = StateGraph(State)
    builder.add_node("add_one", _add_one)
    builder.add_edge(START, "add_one")
    builder.add_edge("add_one", END)
    return builder.compile(checkpointer)


async def empty(_content: object = None) -> None:
    """Do nothing: a run of this is all overhead."""


class LoopThread:
    """An event loop in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="peer-loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Plain `run_coroutine_threadsafe`."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run `coroutine` in the loop and wait for its result."""
        return self.submit(coroutine).result(DEADLINE)


def drain(stream: rx.Observable[Any], expected: int) -> None:
    """Subscribe, wait for the end, and insist that nothing was lost on the way."""
    ended = threading.Event()
    errors: list[Exception] = []
    seen = 0

    def count(_item: object) -> None:
        nonlocal seen  # on_next is serialised by the Rx grammar: no lock
        seen += 1

    def failed(error: Exception) -> None:
        errors.append(error)
        ended.set()

    stream.subscribe(on_next=count, on_error=failed, on_completed=ended.set)
    if not ended.wait(DEADLINE):
        raise TimeoutError(f"after {DEADLINE} s, {seen} of {expected} results are out")
    if errors:
        raise errors[0]
    if seen != expected:
        raise AssertionError(f"{expected} messages went in, {seen} results came out")
