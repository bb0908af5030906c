"""RunMetrics: what runs are there, how long they take, and how long they wait.

The labels are bounded: the name of the graph and the status of the result. What is bounded by
nothing, such as threads and messages, is for traces.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from rxlanggraph.bridge.bridge import RxPyLangGraphBridge
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import InvalidTypeError, RunDroppedError
from rxlanggraph.hooks import Hooks, RunEnded, RunQueued, RunStarted
from rxlanggraph.messages import Status
from rxlanggraph.telemetry.api import (
    SCHEMA_URL,
    SCOPE,
    VERSION,
    CallbackOptions,
    MeterProvider,
    Observation,
    check_provider,
    get_meter,
)

__all__ = ["RunMetrics"]

# Seconds: those of the conventions for the duration of GenAI operations.
_BUCKETS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28),
    *(2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
# How many graphs have a name of their own in the labels. A guess: names are those of code, and a
# program that has more of them makes them of its data.
_GRAPHS = 100
_OTHER = "_OTHER"  # as in the conventions, where a value is not one of those that are told apart


class RunMetrics(Hooks):
    """Hooks that count and time runs, with OpenTelemetry's API.

    Give it to `RxPyLangGraphBridge.add_hooks`, once to each bridge, one object to all bridges of a
    process: the values are sums over them. The labels are ``graph``, and of ``rxlanggraph.runs``
    and ``rxlanggraph.run`` also ``status``. Never blocks. Dispose of it when nothing is in flight:
    it would not be told of the end of what is, and count that forever.

    Args:
        meter_provider: What makes the meter; None: the global one.

    Raises:
        InvalidTypeError: ``meter_provider`` makes no meters.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        check_provider("meter_provider", meter_provider, "get_meter")
        meter = get_meter(SCOPE, VERSION, meter_provider, SCHEMA_URL)
        self._runs = meter.create_counter(
            "rxlanggraph.runs", "{run}", "Messages that have ended, whether they began or not."
        )
        self._dropped = meter.create_counter(
            "rxlanggraph.dropped", "{message}", "Messages that were dropped for lack of room."
        )
        self._in_flight = meter.create_up_down_counter(
            "rxlanggraph.in_flight", "{message}", "Messages that have arrived and not ended."
        )
        self._pending = meter.create_up_down_counter(
            "rxlanggraph.pending", "{message}", "Messages that have arrived and not begun."
        )
        self._durations = meter.create_histogram(
            "rxlanggraph.run",
            "s",
            "From the start of a run to its real end.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._waits = meter.create_histogram(
            "rxlanggraph.queue_wait",
            "s",
            "From the arrival of a message to the start of its run.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        meter.create_observable_gauge(
            "rxlanggraph.loop_lag",
            [self._observe_lag],
            "s",
            "How long a callback waits for the loop at present; of several loops, the longest.",
        )
        # The labels by the name of a graph. Single calls of a dict, by any thread; only added to.
        self._labels: dict[str, dict[str, str]] = {}
        # A leaf, held for an assignment; an RLock like all locks that a bridge may call into.
        # Guards the writing of the bridges: one reference, replaced as a whole.
        self._lock = fork_safe_rlock()
        self._bridges: tuple[weakref.ref[RxPyLangGraphBridge], ...] = ()

    def observe_loop(self, bridge: RxPyLangGraphBridge) -> None:
        """Have the lag of the loop of ``bridge`` measured as well. Any thread; never blocks.

        It is known if the bridge was made with ``blocked_after``, or has hooks that override
        ``on_blocked``. The bridge is held weakly. Of several objects with one meter provider, the
        SDK asks the first alone for the lag.

        Raises:
            InvalidTypeError: It is not a bridge.
        """
        if not isinstance(bridge, RxPyLangGraphBridge):
            raise InvalidTypeError(f"bridge must be an RxPyLangGraphBridge, not {bridge!r}")
        with self._lock:
            others = (each for each in self._bridges if each() not in {None, bridge})
            self._bridges = (*others, weakref.ref(bridge))

    def on_queued(self, event: RunQueued) -> None:
        """Count a message that waits."""
        labels = self._labels_of(event.name)
        self._in_flight.add(1, labels)
        self._pending.add(1, labels)

    def on_started(self, event: RunStarted) -> None:
        """Measure how long the message has waited."""
        labels = self._labels_of(event.name)
        self._pending.add(-1, labels)
        self._waits.record(event.waited, labels)

    def on_ended(self, event: RunEnded) -> None:
        """Count the run, and measure how long it took."""
        labels = self._labels_of(event.name)
        ended: dict[str, str | Status] = {**labels, "status": event.status}
        self._in_flight.add(-1, labels)
        self._runs.add(1, ended)
        if event.duration is not None:
            self._durations.record(event.duration, ended)
            return
        self._pending.add(-1, labels)
        # A result that passes through was dropped in an earlier stage, and counted there.
        if isinstance(event.error, RunDroppedError) and event.result is not event.message:
            self._dropped.add(1, labels)

    def _labels_of(self, name: str) -> dict[str, str]:
        labels = self._labels.get(name)
        if labels is None:
            if len(self._labels) >= _GRAPHS:
                return {"graph": _OTHER}
            labels = self._labels.setdefault(name, {"graph": name})
        return labels

    def _observe_lag(self, _: CallbackOptions) -> Iterable[Observation]:
        """In the thread of the reader of the metrics."""
        bridges = [bridge for each in self._bridges if (bridge := each()) is not None]
        lags = [lag for bridge in bridges if (lag := bridge.loop_lag) is not None]
        return [Observation(max(lags))] if lags else []
