"""RunCounts: hooks that count and time runs, in numbers of their own.

What breaks without it: the SDK of OpenTelemetry takes as long for one number as a run takes for all
of its hooks, so six of them for each message cost more than everything else that the bridge does.
Here a message costs additions under a lock; what collects metrics reads the sums, now and then.

The labels are bounded: the name of the graph and the status of the result. What is bounded by
nothing, such as threads and messages, is for traces.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from typing import Final, NamedTuple

from rxlanggraph.bridge.bridge import RxPyLangGraphBridge
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, RunDroppedError
from rxlanggraph.hooks import Hooks, RunEnded, RunQueued, RunStarted
from rxlanggraph.telemetry.api import clean

__all__ = ["BOUNDS", "Counts", "GraphCounts", "RunCounts", "Snapshot", "Times"]

BOUNDS: Final = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28),
    *(2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
"""The upper ends of the buckets of a histogram, in seconds: those of the conventions for the
duration of GenAI operations."""
# How many graphs, and queues, have a name of their own in the labels. A guess: names are those of
# code, and a program that has more of them makes them of its data.
_NAMES = 100
_OTHER = "_OTHER"  # as in the conventions, where a value is not one of those that are told apart


class Times(NamedTuple):
    """A histogram of durations, copied.

    Attributes:
        counts: How many there are in each bucket of `BOUNDS`, and above the last.
        seconds: Their sum.
    """

    counts: tuple[int, ...]
    seconds: float


class GraphCounts(NamedTuple):
    """What is known of the runs of one graph, at one moment.

    Attributes:
        graph: Its name.
        runs: How many messages have ended, by the status of the result.
        durations: How long the runs of those that had begun took, by the same.
        waits: How long messages have waited to begin.
        in_flight: How many have arrived and not ended.
        pending: How many of these have not begun.
        dropped: How many were dropped for lack of room.
    """

    graph: str
    runs: dict[str, int]
    durations: dict[str, Times]
    waits: Times
    in_flight: int
    pending: int
    dropped: int


class Snapshot(NamedTuple):
    """All counts, of one moment.

    Attributes:
        graphs: Those of each graph.
        claims: How many tasks were claimed, by their queue.
        loop_lag: The longest lag of the loops that are observed; None if none is known.
    """

    graphs: list[GraphCounts]
    claims: dict[str, int]
    loop_lag: float | None


class _Histogram:
    """Durations by bucket. Guarded by the lock of `Counts`."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def copy(self) -> Times:
        return Times(tuple(self.counts), self.seconds)


class _Ended:
    """Messages of one graph that have ended with one status. Guarded by the lock of `Counts`."""

    __slots__ = ("durations", "unbegun")

    def __init__(self) -> None:
        self.unbegun = 0
        self.durations = _Histogram()


class _Graph:
    """The messages of one graph. Guarded by the lock of `Counts`."""

    __slots__ = ("arrived", "dropped", "ended", "label", "waits")

    def __init__(self, label: str) -> None:
        self.label = label
        self.arrived = self.dropped = 0
        self.waits = _Histogram()
        self.ended: dict[str, _Ended] = {}

    def ended_as(self, status: str) -> _Ended:
        return self.ended.get(status) or self.ended.setdefault(status, _Ended())

    def copy(self) -> GraphCounts:
        by_status = dict(self.ended)  # a signal handler may send a message meanwhile
        durations = {status: ended.durations.copy() for status, ended in by_status.items()}
        begun = {status: sum(times.counts) for status, times in durations.items()}
        runs = {status: ended.unbegun + begun[status] for status, ended in by_status.items()}
        unbegun = sum(ended.unbegun for ended in by_status.values())
        waits = self.waits.copy()
        return GraphCounts(
            self.label,
            runs,
            {status: times for status, times in durations.items() if begun[status]},
            waits,
            self.arrived - sum(runs.values()),
            self.arrived - sum(waits.counts) - unbegun,
            self.dropped,
        )


class Counts:
    """The numbers. Any thread; never blocks for longer than a few additions take."""

    def __init__(self) -> None:
        # A leaf; an RLock like all locks that a bridge may call into. Guards all that is below, but
        # for `label_of`: one look-up, of what never changes.
        self._lock = fork_safe_rlock()
        self._graphs: dict[str, _Graph] = {}  # by name
        self._claims: dict[str, int] = {}
        self._bridges: tuple[weakref.ref[RxPyLangGraphBridge], ...] = ()

    def queued(self, name: str) -> None:
        """Count a message that has arrived."""
        with self._lock:
            (self._graphs.get(name) or self._graph(name)).arrived += 1

    def started(self, name: str, waited: float) -> None:
        """Count a message that begins."""
        with self._lock:
            (self._graphs.get(name) or self._graph(name)).waits.add(waited)

    def ended(self, name: str, status: str, duration: float) -> None:
        """Count a message whose run has ended."""
        with self._lock:
            (self._graphs.get(name) or self._graph(name)).ended_as(status).durations.add(duration)

    def never_began(self, name: str, status: str, *, dropped: bool) -> None:
        """Count a message that has ended without a run."""
        with self._lock:
            graph = self._graphs.get(name) or self._graph(name)
            graph.ended_as(status).unbegun += 1
            graph.dropped += dropped

    def claimed(self, queue: str, count: int) -> None:
        """Count claims of tasks."""
        queue = clean(queue)
        with self._lock:
            claims = self._claims
            if queue not in claims and len(claims) >= _NAMES:
                queue = _OTHER
            claims[queue] = claims.get(queue, 0) + count

    def observe_loop(self, bridge: RxPyLangGraphBridge) -> None:
        """Take the lag of the loop of ``bridge`` into account. It is held weakly."""
        with self._lock:
            others = (each for each in self._bridges if each() not in {None, bridge})
            self._bridges = (*others, weakref.ref(bridge))

    def snapshot(self) -> Snapshot:
        """Return all counts. Any thread; for the time that copying them takes, all others wait."""
        with self._lock:
            graphs = [graph.copy() for graph in dict.fromkeys(self._graphs.values())]
            claims, references = dict(self._claims), self._bridges
        bridges = [bridge for each in references if (bridge := each()) is not None]
        lags = [lag for bridge in bridges if (lag := bridge.loop_lag) is not None]
        return Snapshot(graphs, claims, max(lags, default=None))

    def label_of(self, name: str) -> str:
        """Return the label of a graph that has been counted. Any thread; never blocks."""
        graph = self._graphs.get(name)
        return _OTHER if graph is None else graph.label

    def _graph(self, name: str) -> _Graph:
        """Return the counts of a graph that is new, or has no name of its own."""
        if len(self._graphs) >= _NAMES:
            return self._graphs.get(_OTHER) or self._graphs.setdefault(_OTHER, _Graph(_OTHER))
        label = clean(name)
        # Several names may have one label, whose counts Prometheus takes once.
        same = (graph for graph in self._graphs.values() if graph.label == label)
        return self._graphs.setdefault(name, next(same, None) or _Graph(label))


class RunCounts(Hooks):
    """What `RunMetrics` and `PrometheusMetrics` have in common.

    Args:
        counts: The numbers.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def observe_loop(self, bridge: RxPyLangGraphBridge) -> None:
        """Have the lag of the loop of ``bridge`` measured as well. Any thread; never blocks.

        It is known if the bridge was made with ``blocked_after``, or has hooks that override
        ``on_blocked``. The bridge is held weakly.

        Raises:
            InvalidTypeError: It is not a bridge.
        """
        if not isinstance(bridge, RxPyLangGraphBridge):
            raise InvalidTypeError(f"bridge must be an RxPyLangGraphBridge, not {bridge!r}")
        self._counts.observe_loop(bridge)

    def count_claims(self, queue: str, count: int = 1) -> None:
        """Count tasks that were claimed from a queue of shared state. Any thread; never blocks.

        The command calls it for its journal; a worker of your own calls it for each claim.

        Args:
            queue: The name of the queue.
            count: How many tasks.

        Raises:
            InvalidTypeError: ``queue`` is not a string, or ``count`` not an integer.
            InvalidArgumentError: ``count`` is negative.
        """
        if not isinstance(queue, str):
            raise InvalidTypeError(f"queue must be a string, not {queue!r}")
        if not isinstance(count, int):
            raise InvalidTypeError(f"count must be an integer, not {count!r}")
        if count < 0:
            raise InvalidArgumentError(f"count must be 0 or more, not {count!r}")
        if count:
            self._counts.claimed(queue, count)

    def on_queued(self, event: RunQueued) -> None:
        """Count a message that waits."""
        self._counts.queued(event.name)

    def on_started(self, event: RunStarted) -> None:
        """Measure how long the message has waited."""
        self._counts.started(event.name, event.waited)

    def on_ended(self, event: RunEnded) -> None:
        """Count the run, and measure how long it took."""
        name, result, duration = event.name, event.result, event.duration
        if duration is not None:
            self._counts.ended(name, result.status, duration)
            return
        # A result that passes through was dropped in an earlier stage, and counted there.
        dropped = isinstance(result.error, RunDroppedError) and result is not event.message
        self._counts.never_began(name, result.status, dropped=dropped)
