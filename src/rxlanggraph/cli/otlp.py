"""A tracer provider that exports by OTLP, as OpenTelemetry's variables say: the extra ``traces``.

What breaks without an exporter of our own: at the end of a run the SDK exports up to four batches
that are left, and waits for a collector that does not answer for each of them anew.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from rxlanggraph.cli.errors import TracesError

__all__ = ["new_provider"]

# Variables of OpenTelemetry, of which the first that is set counts, and the only value supported.
_SUPPORTED = (
    (("OTEL_TRACES_EXPORTER",), "otlp"),
    (("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"),
)
# Seconds: a collector that refuses a batch does so sooner, and may take the next one. A guess.
_PROMPT = 1.0


def new_provider() -> TracerProvider:
    """Return a provider whose ``shutdown`` exports what is left. Any thread; never blocks.

    Raises:
        TracesError: Another exporter is named.
        Exception: Whatever the SDK raises about the other variables.
    """
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
    provider.add_span_processor(_Processor(_Exporter()))
    return provider


class _Exporter(OTLPSpanExporter):
    """Gives up, once the run has ended, after the first batch that waits in vain."""

    def __init__(self) -> None:
        super().__init__()
        self._run_has_ended = False  # only ever set, by the thread that ends the run
        self._has_given_up = False  # of the thread that exports

    def hurry(self) -> None:
        """Note that the run has ended. Any thread; never blocks."""
        self._run_has_ended = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._has_given_up:
            return SpanExportResult.FAILURE
        since, result = time.monotonic(), SpanExportResult.FAILURE
        try:
            result = super().export(spans)
        finally:
            in_vain = result is not SpanExportResult.SUCCESS and time.monotonic() - since > _PROMPT
            self._has_given_up = self._run_has_ended and in_vain
        return result


class _Processor(BatchSpanProcessor):
    def __init__(self, exporter: _Exporter) -> None:
        super().__init__(exporter)
        self._own_exporter = exporter

    def shutdown(self) -> None:
        self._own_exporter.hurry()
        super().shutdown()  # type: ignore[no-untyped-call] # in some versions
