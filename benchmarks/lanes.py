"""Messages with a `thread_id`: what their lanes cost, alone and shared, and how fair lanes are.

A lane keeps the runs of a thread apart, one at a time. LangGraph itself takes longer for a call
with a thread in its config, so that is measured too, without a bridge.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import reactivex as rx
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.state import open_state_threadsafe

from .harness import (
    DEADLINE,
    LoopThread,
    Ratio,
    State,
    drain,
    in_turns,
    one_node_graph,
    paired,
    told,
)
from .peers import Bridge, Floor, Peer
from .servers import SERVERS

MESSAGES = 10_000
THREADS = 1_000
OTHERS = 99
SLOTS = 16
#: Both costs of a `thread_id`; that of the lanes, in which a function calls the graph without it;
#: and that of LangGraph, without a bridge.
WAYS = ("bridge", "bridge, lanes alone", "floor")
#: What has the messages that are queued before those of the other threads.
CROWDS = ("one thread", "no thread")
#: The backends of shared lanes, and how the messages are spread.
BACKENDS = ("memory", "sqlite")
SPREADS = ("one thread", "a thread per message")
_SHARED_MESSAGES = 200


def messages(count: int, threads: int | None = None) -> list[StreamMessage]:
    """So many messages, spread over so many threads in turn; None for no thread."""
    return [StreamMessage({"n": n}, str(n % threads) if threads else None) for n in range(count)]


def cpu_ratio(way: str, *, count: int = MESSAGES, threads: int = THREADS, pairs: int = 5) -> Ratio:
    """The CPU time of a stream of messages on threads over that of the same without threads."""
    graph, on_threads, without = one_node_graph(), messages(count, threads), messages(count)

    async def call(content: dict[str, int]) -> Any:
        return await graph.ainvoke(content)

    async def call_on_thread(content: dict[str, int]) -> Any:
        thread_id = str(content["n"] % threads)
        return await graph.ainvoke(content, {"configurable": {"thread_id": thread_id}})

    def stream(peer: Peer, target: Any, inputs: list[Any]) -> Callable[[], None]:
        return lambda: peer.stream(target, inputs)

    with Bridge(SLOTS) as bridge, Floor(SLOTS) as floor:
        contents = [message.content for message in without]
        ours, peer = {
            "bridge": (stream(bridge, graph, on_threads), stream(bridge, graph, without)),
            "bridge, lanes alone": (
                stream(bridge, call, on_threads),
                stream(bridge, call, without),
            ),
            "floor": (stream(floor, call_on_thread, contents), stream(floor, call, contents)),
        }[way]
        return in_turns(ours, peer, pairs=pairs, turns=1, items=count)


class Crowd(ExitStack):
    """A bridge, and a graph that notes when its node begins."""

    def __init__(self) -> None:
        super().__init__()
        self._bridge = self.enter_context(RxPyLangGraphBridge(max_concurrency=SLOTS))
        self._began: dict[int, float] = {}  # on the loop's thread, until the runs have ended

        async def begin(state: State) -> State:
            self._began[state["n"]] = time.perf_counter()
            return state

        builder = StateGraph(State).add_node("begin", begin).add_edge(START, "begin")
        self._graph: Any = builder.compile()

    def longest_wait(self, queued: int, crowd: str = "one thread", others: int = OTHERS) -> float:
        """The longest of the waits of so many threads with one message each, in seconds.

        A wait is from the submission to the beginning of the node. So many messages were queued
        before: on one thread, or on none.
        """
        bridge, submit, graph = self._bridge, self._bridge.create_future_task, self._graph
        gate: Future[None] = Future()
        if queued:
            thread_id = "crowd" if crowd == "one thread" else None
            for _ in range(1 if thread_id else SLOTS):
                submit(_pass, StreamMessage(gate, thread_id))
            for _ in range(queued):
                submit(graph, StreamMessage({"n": -1}, thread_id))
        gc.collect()
        gate.set_result(None)
        submitted: list[float] = []
        runs: list[Future[StreamMessage]] = []
        for n in range(others):
            message = StreamMessage({"n": n}, f"other-{n}")
            submitted.append(time.perf_counter())
            runs.append(submit(graph, message))
        for run in runs:
            run.result(DEADLINE)
        left = len(bridge.registry)
        bridge.cleanup_tasks(DEADLINE)
        if queued and crowd == "one thread" and not left:
            raise AssertionError(f"{queued} messages were over before those of other threads")
        return max(self._began.pop(n) - submitted[n] for n in range(others))


async def _pass(gate: Future[None]) -> None:
    await asyncio.wrap_future(gate)


def fairness_ratio(crowd: str, *, queued: int = MESSAGES, pairs: int = 11) -> Ratio:
    """The longest wait of 99 threads behind a crowd of messages, over that of the 99 alone."""
    with Crowd() as bench:
        return paired(
            lambda: bench.longest_wait(queued, crowd),
            lambda: bench.longest_wait(0),
            pairs=pairs,
            clock=told,
        )


class SharedLanes(ExitStack):
    """A bridge that shares its lanes through a state, and one that does not."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        url = self.enter_context(SERVERS[backend]())
        loop = self.enter_context(LoopThread()).loop
        state = self.enter_context(open_state_threadsafe(loop, url))
        options: Any = {"max_concurrency": SLOTS}
        self.shared = self.enter_context(RxPyLangGraphBridge(lanes=state, **options))
        self.own = self.enter_context(RxPyLangGraphBridge(**options))

    def stream(self, bridge: RxPyLangGraphBridge, spread: str, count: int) -> None:
        """Pass so many messages through a graph whose threads are all new."""
        graph = one_node_graph(InMemorySaver())
        threads = 1 if spread == "one thread" else count
        source = rx.from_iterable(messages(count, threads))
        drain(source.pipe(bridge.invoke(graph)), count)


def shared_ratio(
    backend: str, spread: str, *, count: int = _SHARED_MESSAGES, turns: int = 4, pairs: int = 7
) -> Ratio:
    """The CPU time of a run of a graph with a checkpointer, with shared lanes over without."""
    with SharedLanes(backend) as bench:
        return in_turns(
            lambda: bench.stream(bench.shared, spread, count),
            lambda: bench.stream(bench.own, spread, count),
            pairs=pairs,
            turns=turns,
            items=count,
        )


class LanesRatio:
    """Messages on 1,000 threads over messages without threads, in CPU time."""

    params = list(WAYS)
    param_names = ("way",)
    timeout = 600
    unit = "ratio"

    def track_cpu(self, way: str) -> float:
        return cpu_ratio(way, pairs=3).value


class Fairness:
    """The longest wait of 99 threads behind 10,000 messages, over that of the 99 alone."""

    params = list(CROWDS)
    param_names = ("crowd",)
    timeout = 600
    unit = "ratio"

    def track_longest_wait(self, crowd: str) -> float:
        return fairness_ratio(crowd, pairs=5).value


class SharedLanesRatio:
    """Shared lanes over those of one process, in CPU time."""

    params = (list(BACKENDS), list(SPREADS))
    param_names = ("backend", "spread")
    timeout = 600
    unit = "ratio"

    def track_cpu(self, backend: str, spread: str) -> float:
        return shared_ratio(backend, spread).value
