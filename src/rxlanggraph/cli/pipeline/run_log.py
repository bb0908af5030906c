"""RunLog: follows the runs of a job, for its log and for the records of their results.

Hooks cost every run some time, so they are added only where they are needed.
"""

from __future__ import annotations

import logging
import threading
from contextvars import ContextVar
from typing import Any

from tenacity import AsyncRetrying, RetryCallState

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.graphs.attempts import retry_policy
from rxlanggraph.cli.formats.failures import exception_record
from rxlanggraph.cli.formats.records import Record, result_record
from rxlanggraph.cli.pipeline.model_use import ModelUse
from rxlanggraph.hooks import Hooks, RunEnded, RunStarted
from rxlanggraph.messages import StreamMessage

__all__ = ["RunLog"]

_log = logging.getLogger("rxlanggraph.command")

_Failure = dict[str, Any]
# The message of the run in whose context it is read.
_message: ContextVar[StreamMessage | None] = ContextVar("message", default=None)


class RunLog(Hooks):
    """Hooks that follow the runs of a job.

    Args:
        bridge: The bridge of the job.
        retries: How often a message is retried.
        models: Their limits and usage of models. With limits, only transient failures are retried.
        tracebacks: Whether the error in a record has its traceback.

    Attributes:
        retry: The policy for the bridge's ``retry=``; None without retries.
    """

    def __init__(
        self, bridge: RxPyLangGraphBridge, retries: int, models: ModelUse, *, tracebacks: bool
    ) -> None:
        self._models = models
        self._tracebacks = tracebacks
        # A leaf; a plain Lock, since neither signal handlers nor finalizers come here. Guards the
        # field after it.
        self._lock = threading.Lock()
        # By the id of the message; only of those that have failed at least once.
        self._failed: dict[str, list[_Failure]] = {}
        self.retry: AsyncRetrying | None = None
        if retries:
            limits = models.limits
            retry = retry_policy(retries) if limits is None else limits.retrying(retries + 1)
            assert retry is not None
            self.retry = retry.copy(before_sleep=self._attempt_failed)
        if retries or _log.isEnabledFor(logging.INFO):
            bridge.add_hooks(self)

    def record_of(self, number: int, result: StreamMessage) -> Record:
        """Return the record of a line whose run has this result, once. Any thread.

        Args:
            number: The number of the line.
            result: The result of the run.
        """
        attempts: list[_Failure] = []
        if self.retry is not None:
            with self._lock:
                attempts = self._failed.pop((result.source or result).id, [])
        usage = None if self._models.usage is None else self._models.usage.models_of(result)
        return result_record(
            number,
            result,
            failed_attempts=attempts,
            tracebacks=self._tracebacks,
            usage=usage and {model: spent._asdict() for model, spent in usage.items()},
        )

    def on_started(self, event: RunStarted) -> None:
        """Note the message for `retry`. On the loop, in the context of the run."""
        _log.debug("line %s: started", event.message.metadata.get("line"))
        _message.set(event.message)

    def on_ended(self, event: RunEnded) -> None:
        """Log the end of the run."""
        line = event.message.metadata.get("line")
        if event.error is None:
            _log.debug("line %s: %s", line, event.status)
        elif event.status == "cancelled" and not event.attempt:
            _log.debug("line %s: not begun", line)
        else:
            _log.info("line %s: %s: %s", line, event.status, _told(exception_record(event.error)))

    def _attempt_failed(self, state: RetryCallState) -> None:
        """On the loop, in the context of the run, before the pause."""
        error = None if state.outcome is None else state.outcome.exception()
        message = _message.get()
        if error is None or message is None:
            return
        failure = exception_record(error)
        with self._lock:
            self._failed.setdefault(message.id, []).append(failure)
        line, number = message.metadata.get("line"), state.attempt_number
        _log.info("line %s: attempt %d failed, another follows: %s", line, number, _told(failure))


def _told(failure: _Failure) -> str:
    node = "" if failure["node"] is None else f" (node {failure['node']})"
    return f"{failure['type']}: {failure['message']}{node}"
