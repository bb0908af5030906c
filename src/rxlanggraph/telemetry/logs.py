"""RunLogs: a structured log record for each message that did not end well.

The fields are attributes of the record, as those of ``extra=`` are in `logging`: a JSON formatter
or OpenTelemetry's handler passes them on. Ids of threads and messages belong here and in traces,
not in metrics, whose labels are bounded.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Final

from rxlanggraph.errors import InvalidTypeError, RunDroppedError, RunTimeoutError
from rxlanggraph.hooks import Hooks, RunEnded
from rxlanggraph.telemetry.api import clean, text_of, type_name
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
# Of every record; None where they do not apply.
_FIELDS: Final = (
    *("event", "graph", "message_id", "thread_id", "status", "error_type", "limit"),
    *("attempt", "duration", "trace_id", "span_id", "stack"),
)


class RunLogs(Hooks):
    """Hooks that log each message that did not end well.

    Give it to `RxPyLangGraphBridge.add_hooks`, one object to all bridges of a process. A record has
    the attributes ``event``, ``graph``, ``message_id``, ``thread_id``, ``status``, ``error_type``,
    ``limit`` (which time limit was exceeded), ``attempt``, ``duration`` (seconds), ``trace_id`` and
    ``span_id`` (with ``traces``), and ``stack``; those that do not apply are None. The events are
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
        if not isinstance(logger, logging.Logger | None):
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
        error, message = event.error, event.message
        if isinstance(error, RunDroppedError):
            name = "run_dropped"
        span = None if self._traces is None else self._traces.span_of(event)
        self._write(
            level,
            f"{name}: message {message.id} of {event.name}"
            + ("" if message.thread_id is None else f" on thread {message.thread_id!r}")
            + ("" if error is None else f": {type(error).__name__}: {text_of(error)}"),
            error if event.status == "error" else None,
            event=name,
            graph=event.name,
            message_id=message.id,
            thread_id=message.thread_id,
            status=event.status,
            error_type=None if error is None else type_name(error),
            limit=error.limit if isinstance(error, RunTimeoutError) else None,
            attempt=event.attempt,
            duration=event.duration,
            trace_id=None if span is None else f"{span.trace_id:032x}",
            span_id=None if span is None else f"{span.span_id:016x}",
        )

    def log_report(self, report: CleanupReport) -> None:
        """Log each run that a report names as stuck, as ``run_stuck``. Any thread.

        Args:
            report: What ``cleanup_tasks`` or ``close`` of a bridge has returned.
        """
        for stuck in report.stuck:
            self._write(
                logging.ERROR,
                f"run_stuck: a run of {stuck.name} has not ended, {stuck.age:.3g} s after it was "
                "admitted",
                None,
                event="run_stuck",
                graph=stuck.name,
                thread_id=stuck.thread_id,
                duration=stuck.age,
                stack=stuck.stack,
            )

    def _write(
        self, level: int, text: str, error: BaseException | None, **fields: str | float | None
    ) -> None:
        logger = self._logger
        if not logger.isEnabledFor(level):
            return
        exception = None if error is None else (type(error), error, error.__traceback__)
        # A lone surrogate loses the record in a file, and all records of a batch that is exported.
        args = (clean(text),)
        record = logger.makeRecord(logger.name, level, __file__, 0, "%s", args, exception)
        if error is not None and args[0] != text:
            # Formatters take this where it is set, instead of formatting the exception.
            record.exc_text = clean("".join(traceback.format_exception(error))).rstrip()
        # Not by extra=, which refuses names that the application's record factory has set.
        for name in _FIELDS:
            value = fields.get(name)
            if isinstance(value, str):
                value = clean(value)
            if value is not None or not hasattr(record, name):
                setattr(record, name, value)
        logger.handle(record)
