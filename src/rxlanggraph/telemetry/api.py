"""Imports from OpenTelemetry's API, and helpers for its values: the extra ``rxlanggraph[otel]``."""

from __future__ import annotations

from importlib.metadata import version

from rxlanggraph.errors import InvalidTypeError, MissingExtraError

try:
    from opentelemetry.context import Context, attach
    from opentelemetry.metrics import (
        CallbackOptions,
        Meter,
        MeterProvider,
        Observation,
        get_meter,
        get_meter_provider,
    )
    from opentelemetry.trace import (
        Link,
        Span,
        SpanContext,
        Status,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
        set_span_in_context,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtraError(
        "traces and metrics need OpenTelemetry's API, version 1.30 or later; install it with "
        "pip install 'rxlanggraph[otel]'"
    ) from error

__all__ = [
    "SCHEMA_URL",
    "SCOPE",
    "VERSION",
    "CallbackOptions",
    "Link",
    "Meter",
    "MeterProvider",
    "Observation",
    "Span",
    "SpanContext",
    "Status",
    "StatusCode",
    "Tracer",
    "TracerProvider",
    "attach",
    "check_provider",
    "clean",
    "get_meter",
    "get_meter_provider",
    "get_tracer",
    "nanoseconds",
    "set_span_in_context",
    "span_named_by",
    "text_of",
    "type_name",
]

SCOPE = "rxlanggraph"
"""The name of the instrumentation scope of all spans and metrics."""
VERSION = version("rxlanggraph")
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
"""The version of the semantic conventions that is followed; those for GenAI are in development."""
_W3C = TraceContextTextMapPropagator()


def check_provider(name: str, provider: object, method: str) -> None:
    """Check that ``provider`` is None or has ``method``. Any thread; never blocks.

    Raises:
        InvalidTypeError: It has not.
    """
    if provider is not None and not callable(getattr(provider, method, None)):
        raise InvalidTypeError(
            f"{name} must be one of OpenTelemetry's, with a {method} method, or None for the "
            f"global one, not {provider!r}"
        )


def clean(text: str) -> str:
    """Return ``text`` with lone surrogates escaped, one of which fails the export of all else.

    Any thread; never blocks.
    """
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def nanoseconds(seconds: float) -> int:
    """Return a time, or a duration, in the unit of spans. Any thread; never blocks."""
    return int(seconds * 1e9)


def type_name(error: BaseException) -> str:
    """Return the name of the class of ``error``, as in ``error.type``. Any thread; never blocks."""
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def span_named_by(traceparent: object) -> SpanContext | None:
    """Return the span that W3C's header names; None if it is not one. Any thread; never blocks."""
    if not isinstance(traceparent, str):
        return None
    named = _W3C.extract({"traceparent": traceparent}, Context())
    span = get_current_span(named).get_span_context()
    return span if span.is_valid else None


def text_of(error: BaseException) -> str:
    """Return the text of ``error``; "" if that raises, as it may be the user's. Any thread."""
    try:
        return str(error)
    except (Exception, SystemExit):
        return ""
