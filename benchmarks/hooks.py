"""What hooks cost: a bridge that has them beside one that has none, on the same graph."""

from __future__ import annotations

from contextlib import ExitStack

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from rxlanggraph.hooks import Hooks, NodeEnded, RunEnded, RunQueued, RunStarted
from rxlanggraph.telemetry import RunMetrics, RunTraces
from rxlanggraph.telemetry.prometheus import PrometheusMetrics

from .bridge import contents
from .harness import Ratio, in_turns, one_node_graph
from .peers import Bridge

#: What the hooks override, or are, with the target. OpenTelemetry's SDK measures, and records spans
#: that nothing exports.
WAYS: dict[str, float | None] = {
    "hooks for runs": 1.03,
    "hooks for nodes too": None,
    "metrics for Prometheus": 1.03,
    "metrics without durations": 1.03,
    "metrics": 1.03,
    "traces of runs": None,
    "traces, of nodes too": None,
}


class Counting(Hooks):
    """Counts, as metrics do."""

    def __init__(self) -> None:
        self.queued = self.started = self.nodes = 0
        self.seconds = 0.0

    def on_queued(self, event: RunQueued) -> None:
        self.queued += 1

    def on_started(self, event: RunStarted) -> None:
        self.started += 1
        self.seconds += event.waited

    def on_ended(self, event: RunEnded) -> None:
        self.seconds += event.duration or 0.0


class CountingNodes(Counting):
    """Counts nodes too."""

    def on_node(self, event: NodeEnded) -> None:
        self.nodes += 1
        self.seconds += event.duration


def _hooks(way: str) -> Hooks:
    if way == "metrics for Prometheus":
        return PrometheusMetrics()
    if way.startswith("metrics"):
        provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
        return RunMetrics(provider, durations=way == "metrics")
    if way.startswith("traces"):
        return RunTraces(TracerProvider(shutdown_on_exit=False), nodes="nodes" in way)
    return CountingNodes() if "nodes" in way else Counting()


def cpu_ratio(way: str, *, messages: int = 500, turns: int = 20, pairs: int = 7) -> Ratio:
    """The CPU time of a bridge with hooks over that of one without."""
    graph, inputs = one_node_graph(), contents(messages)
    hooks = _hooks(way)
    with ExitStack() as stack:
        ours = stack.enter_context(Bridge())
        peer = stack.enter_context(Bridge())
        ours.bridge.add_hooks(hooks)
        return in_turns(
            lambda: ours.stream(graph, inputs),
            lambda: peer.stream(graph, inputs),
            pairs=pairs,
            turns=turns,
            items=messages,
        )


class HooksRatio:
    """A bridge with hooks over one without, in CPU time."""

    params = list(WAYS)
    param_names = ("way",)
    timeout = 600
    unit = "ratio"

    def track_cpu(self, way: str) -> float:
        return cpu_ratio(way).value
