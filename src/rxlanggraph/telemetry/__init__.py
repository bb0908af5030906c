"""Traces, metrics and logs of the runs of a bridge: the extra ``rxlanggraph[otel]``.

All are hooks (`rxlanggraph.hooks`). They need OpenTelemetry's API alone; where its SDK is not set
up, they do next to nothing. Only the metrics for Prometheus need its client (extra ``metrics``).

A map; each imports only from those above it.

    api          what is imported from OpenTelemetry's API, and helpers for its values
    sources      which span a result came from
    traces       RunTraces: a span for each message, run and node
    counts       the numbers of runs, their durations and waits
    families     the metrics: what each is called, and its values
    metrics      RunMetrics: the metrics, for OpenTelemetry
    prometheus   PrometheusMetrics: the metrics, for Prometheus's client
    logs         RunLogs: a structured log record for each message that did not end well
"""

from rxlanggraph.telemetry.logs import RunLogs
from rxlanggraph.telemetry.metrics import RunMetrics
from rxlanggraph.telemetry.traces import RunTraces

__all__ = ["RunLogs", "RunMetrics", "RunTraces"]
