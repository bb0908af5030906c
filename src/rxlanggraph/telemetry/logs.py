"""RunLogs: a structured log record for each message that did not end well.

The fields are attributes of the record, as `logging` makes them of ``extra=``, so a JSON formatter
or OpenTelemetry's handler passes them on. Ids of threads and messages belong here and in traces,
not in metrics, whose labels are bounded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from rxlanggraph.errors import InvalidTypeError, RunDroppedError, RunTimeoutError
from rxlanggraph.hooks import Hooks, RunEnded
from rxlanggraph.telemetry.api import text_of, type_name
from rxlanggraph.telemetry.traces import RunTraces

if TYPE_CHECKING:
    from rxlanggraph.bridge.shutdown import CleanupReport

__all__ = ["RunLogs"]

# By the status of the result: the name of the event, and its level.
_EVENTS: Final = {
    "error": ("run_failed", logging.ERROR),
    "timed_out": ("run_timed_out", logging.WARNING),
    "rejected": ("run_rejected", logging.WARNING),
    "cancelled": ("run_cancelled", logging.INFO),
    "interrupted": ("run_interrupted", logging.INFO),
}


class RunLogs(Hooks):
    """Hooks that log each message that did not end well.

    Give it to `RxPyLangGraphBridge.add_hooks`, one object to all bridges of a process. A record has
    the attributes ``event``, ``graph``, ``message_id``, ``thread_id``, ``status``, ``error_type``,
    ``limit`` (which time limit was exceeded), ``attempt``, ``duration`` (seconds), and with
    ``traces`` also ``trace_id`` and ``span_id``; those that do not apply are None. The events are
    ``run_failed`` (ERROR, with the traceback); ``run_timed_out``, ``run_rejected`` and
    ``run_dropped`` (WARNING); ``run_cancelled`` and ``run_interrupted`` (INFO); and ``run_stuck``
    (ERROR), see `log_report`. The content of messages is in no record; the texts of exceptions are.
    Callbacks that block the loop are logged by the bridge itself: with ``blocked_after``, as
    ``loop_blocked`` in the logger ``rxlanggraph``.

    Any thread. It blocks if a handler of the logger does, and the loop with it: where that may be,
    use a `logging.handlers.QueueHandler`.

    Args:
        logger: The logger; None for the one called ``rxlanggraph.runs``.
        traces: The traces of the same bridges, for the ids of the spans.

    Raises:
        InvalidTypeError: An argument has the wrong type.
    """

    def __init__(
        self, logger: logging.Logger | None = None, *, traces: RunTraces | None = None
    ) -> None:
        if not isinstance(logger, logging.Logger | logging.LoggerAdapter | None):
            raise InvalidTypeError(f"logger must be a logging.Logger or None, not {logger!r}")
        if not isinstance(traces, RunTraces | None):
            raise InvalidTypeError(f"traces must be a RunTraces or None, not {traces!r}")
        self._logger = logging.getLogger("rxlanggraph.runs") if logger is None else logger
        self._traces = traces

    def on_ended(self, event: RunEnded) -> None:
        """Log how the message ended, unless all is well or an earlier stage has logged it."""
        known = _EVENTS.get(event.status)
        if known is None or event.result is event.message:
            return
        name, level = known
        if not self._logger.isEnabledFor(level):
            return
        error, message = event.error, event.message
        if isinstance(error, RunDroppedError):
            name = "run_dropped"
        extra: dict[str, Any] = {
            "event": name,
            "graph": event.name,
            "message_id": message.id,
            "thread_id": message.thread_id,
            "status": event.status,
            "error_type": None if error is None else type_name(error),
            "limit": error.limit if isinstance(error, RunTimeoutError) else None,
            "attempt": event.attempt,
            "duration": event.duration,
            "trace_id": None,
            "span_id": None,
        }
        span = None if self._traces is None else self._traces.span_of(message)
        if span is not None:
            extra |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
        self._logger.log(
            level,
            "%s: message %s of %s%s%s",
            name,
            message.id,
            event.name,
            "" if message.thread_id is None else f" on thread {message.thread_id!r}",
            "" if error is None else f": {type(error).__name__}: {text_of(error)}",
            extra=extra,
            exc_info=error if event.status == "error" else None,
        )

    def log_report(self, report: CleanupReport) -> None:
        """Log each run that a report names as stuck, as ``run_stuck``. Any thread.

        Args:
            report: What ``cleanup_tasks`` or ``close`` of a bridge has returned.
        """
        for stuck in report.stuck:
            self._logger.error(
                "run_stuck: a run of %s has not ended, %.3g s after it was admitted",
                stuck.name,
                stuck.age,
                extra={
                    "event": "run_stuck",
                    "graph": stuck.name,
                    "thread_id": stuck.thread_id,
                    "duration": stuck.age,
                    "stack": stuck.stack,
                },
            )
