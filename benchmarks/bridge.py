"""Streams of messages through a graph: the bridge beside its floor, its peers and its own backlog.

The floor is sixteen coroutines in the loop that call `graph.ainvoke` one after another, without any
hand-over, tracking, tags or emission. What the bridge takes beyond that is its cost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from .harness import Ratio, empty, in_turns, one_node_graph, paired
from .peers import PEERS

IN_FLIGHT = 3_000
#: The ways of feeding a bridge that its CPU time is measured in.
WAYS = (
    "bridge",
    "bridge, max_pending=64",
    "bridge, ordered",
    "bridge, on an adopted loop",
)


def contents(count: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(count)]


def stream_ratio(peer: str, *, messages: int = 2_000, pairs: int = 9) -> Ratio:
    """The bridge at `max_concurrency=16` over a peer, on the same compiled graph."""
    graph, inputs = one_node_graph(), contents(messages)
    with ExitStack() as stack:
        ours = stack.enter_context(PEERS["bridge"]())
        theirs = stack.enter_context(PEERS[peer]())
        return paired(
            lambda: ours.stream(graph, inputs),
            lambda: theirs.stream(graph, inputs),
            pairs=pairs,
            items=messages,
        )


def cpu_ratio(way: str, *, messages: int = 500, turns: int = 20, pairs: int = 7) -> Ratio:
    """The CPU time of one of our ways over that of the floor, on the same compiled graph.

    A pair is so many short turns of both: a shared machine's speed changes within seconds, by more
    than the target.
    """
    graph, inputs = one_node_graph(), contents(messages)
    with ExitStack() as stack:
        ours = stack.enter_context(PEERS[way]())
        floor = stack.enter_context(PEERS["floor"]())
        return in_turns(
            lambda: ours.stream(graph, inputs),
            lambda: floor.stream(graph, inputs),
            pairs=pairs,
            turns=turns,
            items=messages,
        )


def backlog_ratio(
    large: int = 100_000, small: int = 1_000, *, pairs: int = 3, target: Any = None
) -> Ratio:
    """The cost per message with a backlog of `large` over that with one of `small`.

    The small ones are repeated until as many messages have passed, up to 10,000: one alone is
    over too soon to be measured.
    """
    graph = one_node_graph() if target is None else target
    much, little = contents(large), contents(small)
    rounds = max(1, min(large, 10_000) // small)

    with PEERS["bridge"]() as ours:

        def small_ones() -> None:
            for _ in range(rounds):
                ours.stream(graph, little)

        small_ones()
        return paired(
            lambda: ours.stream(graph, much),
            small_ones,
            pairs=pairs,
            items=large,
            peer_items=rounds * small,
            warm_up=False,
        )


class Stream:
    """Seconds for a stream of 3,000 messages through a graph, all of them there at once."""

    params = ["bridge", "floor", "plain-asyncio", "pool", "portal"]
    param_names = ("peer",)
    timeout = 300
    number = 1
    warmup_time = 0

    def setup(self, peer: str) -> None:
        self.graph = one_node_graph()
        self.inputs = contents(IN_FLIGHT)
        self.peer = PEERS[peer]()
        self.peer.__enter__()
        self.peer.stream(self.graph, self.inputs)

    def teardown(self, peer: str) -> None:
        self.peer.close()

    def time_stream(self, peer: str) -> None:
        self.peer.stream(self.graph, self.inputs)


class StreamRatio:
    """The bridge over each peer, in pairs."""

    params = (["floor", "plain-asyncio", "pool", "portal"], [1_000, IN_FLIGHT])
    param_names = ("peer", "messages")
    timeout = 600
    unit = "ratio"

    def track_stream(self, peer: str, messages: int) -> float:
        return stream_ratio(peer, messages=messages).value


class Backlog:
    """Seconds for a message, by backlog: flat means that waiting costs nothing."""

    params = ([1_000, 10_000, 100_000], ["graph", "empty"])
    param_names = ("backlog", "target")
    timeout = 600
    unit = "s/message"

    def track_cost_per_message(self, backlog: int, target: str) -> float:
        return backlog_ratio(backlog, pairs=1, target=self._target(target)).ours

    def track_ratio_to_1000(self, backlog: int, target: str) -> float:
        return backlog_ratio(backlog, pairs=1, target=self._target(target)).value

    def _target(self, name: str) -> Callable[..., Any] | None:
        return empty if name == "empty" else None


Backlog.track_ratio_to_1000.unit = "ratio"  # type: ignore[attr-defined]
