"""PrometheusMetrics: the same metrics for Prometheus's own client, without OpenTelemetry's SDK."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from rxlanggraph.errors import MissingExtraError
from rxlanggraph.telemetry.counts import BOUNDS, Counts, RunCounts, Snapshot, Times
from rxlanggraph.telemetry.families import NUMBERS, TIMES

try:
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
except ImportError as error:
    raise MissingExtraError(
        "metrics for Prometheus need its client, version 0.20 or later; install it with "
        "pip install 'rxlanggraph[metrics]'"
    ) from error

if TYPE_CHECKING:
    from prometheus_client.core import Metric

__all__ = ["PrometheusMetrics"]

_ENDS = (*map(str, BOUNDS), "+Inf")


class PrometheusMetrics(RunCounts):
    """Hooks that count and time runs, and a collector for ``prometheus_client``.

    Give it to `RxPyLangGraphBridge.add_hooks`, once to each bridge, one object to all bridges of a
    process, and register it: ``prometheus_client.REGISTRY.register(metrics)``. The values are sums
    over the bridges. Never blocks. It has nothing to do with OpenTelemetry's SDK, and costs a
    fraction of it. Dispose of it when nothing is in flight: it would not be told of the end of what
    is, and count that forever.
    """

    def __init__(self) -> None:
        super().__init__(Counts())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics, all of one moment. Any thread."""
        return _families(self._counts.snapshot())

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values. Any thread; never blocks.

        By their names, a registry refuses others with the same ones, and finds those that a scrape
        asks for (``name[]``).
        """
        return _families(Snapshot([], {}, None))


def _families(counts: Snapshot) -> Iterator[Metric]:
    for number in NUMBERS:
        kind = CounterMetricFamily if number.kind == "counter" else GaugeMetricFamily
        name = f"rxlanggraph_{number.name}{'_seconds' * (number.unit == 's')}"
        family = kind(name, number.description, labels=number.labels)
        for labels, value in number.values(counts):
            family.add_metric(labels, value)
        yield family
    for times in TIMES:
        name = f"rxlanggraph_{times.name}_seconds"
        histograms = HistogramMetricFamily(name, times.description, labels=times.labels)
        for labels, durations in times.values(counts):
            histograms.add_metric(labels, _buckets(durations), durations.seconds)
        yield histograms


def _buckets(times: Times) -> list[tuple[str, float]]:
    return list(zip(_ENDS, accumulate(times.counts), strict=True))
