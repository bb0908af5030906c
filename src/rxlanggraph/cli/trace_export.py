"""``--traces``: the traces of a run, exported by OTLP.

The standard variables of OpenTelemetry say where they go, and everything else. A tracer provider
that the graph's code or ``opentelemetry-instrument`` has set up is used as it is; otherwise one is
set up here, for the graph's own spans too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rxlanggraph.cli.errors import TracesError
from rxlanggraph.cli.stdio import print_stderr

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from rxlanggraph.telemetry import RunTraces

__all__ = ["exported_traces"]

# What the variables of OpenTelemetry may say, where they are set: the first that is set counts.
_SUPPORTED = (
    (("OTEL_TRACES_EXPORTER",), "otlp"),
    (("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"),
)
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@contextlib.contextmanager
def exported_traces() -> Iterator[RunTraces | None]:
    """Export the traces of runs, for the length of a block; at its end all that are left. Blocks.

    Yields:
        The hooks whose traces are exported; None if OpenTelemetry is disabled.

    Raises:
        TracesError: The extra ``traces`` is not installed, or another exporter is named.
    """
    if _is_true("OTEL_SDK_DISABLED"):
        print_stderr("--traces exports nothing, because OTEL_SDK_DISABLED is true")
        yield None
        return
    try:
        # Imported here: of an extra, and slow to import.
        from opentelemetry import trace  # noqa: PLC0415

        from rxlanggraph.telemetry import RunTraces  # noqa: PLC0415

        provider = trace.get_tracer_provider()
        own = _new_provider() if isinstance(provider, trace.ProxyTracerProvider) else None
    except ImportError as error:
        raise TracesError(
            "--traces needs OpenTelemetry's SDK and its exporter for OTLP over HTTP, which are not "
            "installed; install the extra 'traces': pip install 'rxlanggraph[traces]'"
        ) from error
    if own is not None:
        trace.set_tracer_provider(own)
    try:
        yield RunTraces(own or provider, content=_is_true(_CONTENT))
    finally:
        if own is not None:
            own.shutdown()
        elif callable(flush := getattr(provider, "force_flush", None)):
            flush()


def _new_provider() -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    for names, supported in _SUPPORTED:
        name = next((name for name in names if os.environ.get(name)), None)
        if name is not None and os.environ[name] != supported:
            raise TracesError(
                f"--traces exports by {supported}, and {name} is {os.environ[name]!r}; unset that, "
                "or run the command under opentelemetry-instrument, which knows other exporters"
            )
    named = "service.name" in OTELResourceDetector().detect().attributes
    resource = Resource.create({} if named else {"service.name": "rxlanggraph"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() == "true"
