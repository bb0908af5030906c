"""``--metrics``: the metrics of a run, served for Prometheus while the run lasts."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rxlanggraph.cli.addresses import Address
from rxlanggraph.cli.errors import MetricsError

if TYPE_CHECKING:
    from rxlanggraph.telemetry.prometheus import PrometheusMetrics

__all__ = ["served_metrics"]


_log = logging.getLogger("rxlanggraph")


@contextlib.contextmanager
def served_metrics(
    address: Address,
) -> Iterator[tuple[PrometheusMetrics, Address]]:
    """Serve metrics at ``address`` for the length of a block, from threads of its own.

    Yields:
        The hooks whose metrics are served; and where, as port 0 is any port that is free.

    Raises:
        MetricsError: The extra ``metrics`` is not installed, or the address cannot be had.
    """
    try:
        # Imported here: of an extra, and only needed with the option.
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415

        from rxlanggraph.telemetry.prometheus import PrometheusMetrics  # noqa: PLC0415
    except ImportError as error:
        raise MetricsError(
            "--metrics needs the client of Prometheus, which is not installed; install the extra "
            "'metrics': pip install 'rxlanggraph[metrics]'"
        ) from error
    metrics = PrometheusMetrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except (OSError, UnicodeError) as error:  # a host that no name can have is a UnicodeError
        reason = getattr(error, "strerror", None) or str(error)
        raise MetricsError(
            f"cannot serve metrics on {address}: {reason}; give a free address of this machine to "
            "--metrics"
        ) from error
    server.handle_error = _ignore_lost_client  # type: ignore[method-assign]
    try:
        yield metrics, Address(address.host, server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _ignore_lost_client(request: object, client_address: object) -> None:
    """Take the place of a method that writes a traceback to standard error, in its ``except``.

    What breaks without it: each scrape that is given up, and each port scan, does that.
    """
    if not isinstance(sys.exception(), OSError):
        _log.exception("a request for the metrics has failed")
