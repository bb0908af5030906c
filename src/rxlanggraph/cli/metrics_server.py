"""``--metrics``: the metrics of a run, served for Prometheus while the run lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rxlanggraph.cli.addresses import Address
from rxlanggraph.cli.errors import MetricsError

if TYPE_CHECKING:
    from rxlanggraph.telemetry import RunMetrics

__all__ = ["served_metrics"]


@contextlib.contextmanager
def served_metrics(
    address: Address,
) -> Iterator[tuple[RunMetrics, Address]]:
    """Serve metrics at ``address`` for the length of a block, from threads of its own.

    Yields:
        The hooks whose metrics are served; and where, as port 0 is any port that is free.

    Raises:
        MetricsError: The extra ``metrics`` is not installed, or the address cannot be had.
    """
    try:
        # Imported here: the SDK is slow to import, and of an extra.
        from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

        from rxlanggraph.telemetry import RunMetrics  # noqa: PLC0415
    except ImportError as error:
        raise MetricsError(
            "--metrics needs OpenTelemetry's exporter for Prometheus, which is not installed; "
            "install the extra 'metrics': pip install 'rxlanggraph[metrics]'"
        ) from error
    registry = CollectorRegistry()
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise MetricsError(
            f"cannot serve metrics on {address}: {error.strerror or error}; give a free address of "
            "this machine to --metrics"
        ) from error
    # Without the labels of the scope, as there is only one.
    reader = PrometheusMetricReader(
        disable_target_info=True, scope_info_enabled=False, registry=registry
    )
    # It ends with the block, and not at the exit of the interpreter.
    provider = MeterProvider([reader], shutdown_on_exit=False)
    try:
        yield RunMetrics(provider), Address(address.host, server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        provider.shutdown()
