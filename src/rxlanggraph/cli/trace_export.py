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
    from opentelemetry.trace import TracerProvider

    from rxlanggraph.telemetry import RunTraces

__all__ = ["exported_traces"]

_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@contextlib.contextmanager
def exported_traces() -> Iterator[RunTraces | None]:
    """Export the traces of runs for the length of a block. Its end blocks, to export the rest.

    Yields:
        The hooks whose traces are exported; None if OpenTelemetry is disabled.

    Raises:
        TracesError: The extra ``traces`` is not installed, another exporter is named, or a variable
            of OpenTelemetry has a value that its SDK refuses.
    """
    if _is_true("OTEL_SDK_DISABLED"):
        print_stderr("--traces exports nothing, because OTEL_SDK_DISABLED is true")
        yield None
        return
    provider, is_own = _provider()
    # Imported here, as in `_provider`.
    from rxlanggraph.telemetry import RunTraces  # noqa: PLC0415

    try:
        yield RunTraces(provider, content=_is_true(_CONTENT))
    finally:
        # One that the graph's code has set up need not be the SDK's, and may have neither method.
        end = getattr(provider, "shutdown" if is_own else "force_flush", None)
        try:
            if callable(end):
                end()
        except Exception as error:  # a processor of the graph's own: its run is none the worse
            print_stderr(f"--traces: the traces that were left may be lost: {error!r}")


def _provider() -> tuple[TracerProvider, bool]:
    """Return the provider of the process, and whether it was set up here."""
    try:
        # Imported here: of an extra, and slow to import.
        from opentelemetry import trace  # noqa: PLC0415

        provider = trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider):
            return provider, False
        from rxlanggraph.cli.otlp import new_provider  # noqa: PLC0415

        own = new_provider()
    except TracesError:
        raise
    except ImportError as error:
        raise TracesError(
            "--traces needs OpenTelemetry's SDK and its exporter for OTLP over HTTP, which are not "
            "installed; install the extra 'traces': pip install 'rxlanggraph[traces]'"
        ) from error
    except Exception as error:
        raise TracesError(
            f"--traces cannot be set up, because of {error!r}; correct or unset the variable of "
            "OpenTelemetry, OTEL_..., that asks for it"
        ) from error
    trace.set_tracer_provider(own)
    return own, True


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "").strip().lower() == "true"
