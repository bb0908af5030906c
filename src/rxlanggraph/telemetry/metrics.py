"""RunMetrics: what runs are there, how long they take, and how long they wait; OpenTelemetry's.

The sums are `Counts`, which the SDK asks for when it collects. Its histograms cannot be asked for:
each duration is recorded as it is known.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.hooks import RunEnded, RunStarted
from rxlanggraph.telemetry.api import (
    SCHEMA_URL,
    SCOPE,
    VERSION,
    CallbackOptions,
    Meter,
    MeterProvider,
    Observation,
    check_provider,
    get_meter,
    get_meter_provider,
)
from rxlanggraph.telemetry.counts import BOUNDS, Counts, RunCounts
from rxlanggraph.telemetry.families import NUMBERS, RUN, WAIT, Number

__all__ = ["RunMetrics"]


class RunMetrics(RunCounts):
    """Hooks that count and time runs, with OpenTelemetry's API.

    Give it to `RxPyLangGraphBridge.add_hooks`, once to each bridge: the values are sums over all
    bridges, and over all objects with one meter provider. The labels are ``graph``, and of
    ``rxlanggraph.runs`` and ``rxlanggraph.run`` also ``status``. Never blocks. Dispose of it when
    nothing is in flight: it would not be told of the end of what is, and count that forever.

    Args:
        meter_provider: What makes the meter; None: the global one.
        durations: Whether the two histograms are recorded too: how long runs took, and how long
            messages waited. They are most of the cost.

    Raises:
        InvalidTypeError: ``meter_provider`` makes no meters.
    """

    def __init__(
        self, meter_provider: MeterProvider | None = None, *, durations: bool = True
    ) -> None:
        check_provider("meter_provider", meter_provider, "get_meter")
        instruments = _instruments_of(meter_provider)
        super().__init__(instruments.counts)
        self._waits, self._durations = instruments.waits, instruments.durations
        self._records = durations

    def on_started(self, event: RunStarted) -> None:
        """Measure how long the message has waited."""
        self._counts.started(event.name, event.waited)
        if self._records:
            self._waits.record(event.waited, {"graph": self._counts.label_of(event.name)})

    def on_ended(self, event: RunEnded) -> None:
        """Count the run, and measure how long it took."""
        super().on_ended(event)
        if self._records and event.duration is not None:
            labels = {"graph": self._counts.label_of(event.name), "status": event.result.status}
            self._durations.record(event.duration, labels)


class _Instruments:
    """What is made once for each meter provider, and the counts that it observes."""

    def __init__(self, meter: Meter) -> None:
        self.counts = Counts()
        self.waits, self.durations = (
            meter.create_histogram(
                f"rxlanggraph.{times.name}",
                "s",
                times.description,
                explicit_bucket_boundaries_advisory=BOUNDS,
            )
            for times in (WAIT, RUN)
        )
        makers = {
            "counter": meter.create_observable_counter,
            "sum": meter.create_observable_up_down_counter,
            "gauge": meter.create_observable_gauge,
        }
        for number in NUMBERS:
            make = makers[number.kind]
            name = f"rxlanggraph.{number.name}"
            make(name, [self._observing(number)], number.unit, number.description)

    def _observing(self, number: Number) -> Callable[[CallbackOptions], Iterable[Observation]]:
        """Return what the thread of a reader of the metrics calls."""
        return lambda _: [
            Observation(value, dict(zip(number.labels, labels, strict=True)))
            for labels, value in number.values(self.counts.snapshot())
        ]


# Held while a provider makes its instruments, in the making of a RunMetrics; no hook takes it.
# Guards the two after it: one provider has its instruments once, as the SDK asks only those that
# were made first; and those of the global one that were made before it was set, which
# OpenTelemetry's API passes on to it.
_lock = fork_safe_rlock()
_instruments: weakref.WeakKeyDictionary[MeterProvider, _Instruments] = weakref.WeakKeyDictionary()
_of_global: list[_Instruments] = []


def _instruments_of(provider: MeterProvider | None) -> _Instruments:
    with _lock:
        current = get_meter_provider()
        provider = provider or current
        known = _instruments.get(provider)
        if known is None and provider is current and _of_global:
            (known,) = _of_global
        if known is None:
            known = _Instruments(get_meter(SCOPE, VERSION, provider, SCHEMA_URL))
        _instruments[provider] = known
        if provider is current:
            _of_global[:] = [known]
        return known
