"""Metrics as a reader collects them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

__all__ = ["Metrics"]


class Metrics:
    """A meter provider, and what it has measured."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def points(self, name: str) -> list[Any]:
        """The points of a metric, one for each set of labels; none if nothing was measured."""
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def values(self, name: str) -> dict[str, Any]:
        """The values of a metric, or the counts of a histogram, by their labels."""
        return {
            " ".join(str(value) for _, value in sorted(point.attributes.items())): getattr(
                point, "value", getattr(point, "count", None)
            )
            for point in self.points(name)
        }

    def total(self, name: str) -> Any:
        return sum(self.values(name).values())
