"""Micro-batching: while one batch of calls is pending, the next one is collected.

So a database waits for its disk once, and the loop for the database once, for all calls that arrive
in that time; a call that arrives when none is pending is sent at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from rxlanggraph.errors import StateUnavailableError

__all__ = ["Batcher"]

_C = TypeVar("_C")
_T = TypeVar("_T")

# Bounds the time for which a batch holds locks.
_MAX_CALLS: Final = 64


class _PendingCall(Generic[_C, _T]):
    """One call that waits for its batch, or is in it."""

    def __init__(self, call: _C) -> None:
        self.call = call
        self.outcome: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self.batch: _Batch[_C, _T] | None = None

    def fail(self, error: BaseException) -> None:
        """Have the caller raise ``error``, if it still waits."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # retrieved: a cancelled caller would not


class _Batch(Generic[_C, _T]):
    """Calls that are sent together, by a task of their own: one caller cannot cancel the others.

    Args:
        calls: The calls.
        send: Executes calls, and returns their outcomes.
        on_end: Called at the end, with the exception if the batch failed.
    """

    def __init__(
        self,
        calls: Sequence[_PendingCall[_C, _T]],
        send: Callable[[Sequence[_C]], Awaitable[Sequence[_T]]],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._calls = calls
        self._send = send
        self._on_end = on_end
        for pending in calls:
            pending.batch = self
        self._task = asyncio.create_task(self._run())
        # Not a `finally` in the task, which is not reached if the task is cancelled before its
        # first step.
        self._task.add_done_callback(self._on_done)

    async def _run(self) -> None:
        outcomes = await self._send([pending.call for pending in self._calls])
        for pending, outcome in zip(self._calls, outcomes, strict=True):
            if not pending.outcome.done():
                pending.outcome.set_result(outcome)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        for pending in self._calls:
            if error is not None:
                pending.fail(error)
            else:
                pending.outcome.cancel()  # no effect if it has a result
        self._on_end(error if isinstance(error, Exception) else None)

    async def cancel_if_abandoned(self) -> None:
        """Cancel the batch if no caller waits for it any more, and wait for its end."""
        if all(pending.outcome.done() for pending in self._calls):
            self._task.cancel()
            await asyncio.wait([self._task])


class Batcher(Generic[_C, _T]):
    """Sends concurrent calls in batches. Confined to the loop on which it is made.

    Args:
        send: Executes calls, and returns the outcome of each, in their order. If it raises, each
            call raises that. Cancelled if no caller waits for it any more.
    """

    def __init__(self, send: Callable[[Sequence[_C]], Awaitable[Sequence[_T]]]) -> None:
        self._send = send
        self._is_busy = False
        self._waiting: deque[_PendingCall[_C, _T]] = deque()

    async def call(self, call: _C) -> _T:
        """Send ``call``, at once or with the next batch; return its outcome.

        If cancelled before it is sent, it is not sent; in a batch, it is executed with the others
        nevertheless. If it is sent alone, ``send`` is cancelled.

        Raises:
            StateUnavailableError: It was not sent, as the batch before it has failed. So many
                waiting calls learn of a lost server in the time of one batch.
        """
        if self._is_busy:
            return await self._call_in_batch(call)
        self._is_busy = True
        failure = None
        try:
            (outcome,) = await self._send([call])
        except Exception as error:
            failure = error
            raise
        finally:
            self._send_next(failure)
        return outcome

    async def _call_in_batch(self, call: _C) -> _T:
        pending: _PendingCall[_C, _T] = _PendingCall(call)
        self._waiting.append(pending)
        try:
            return await pending.outcome
        except asyncio.CancelledError:
            if pending.batch is not None:
                await pending.batch.cancel_if_abandoned()
            raise

    def _send_next(self, failure: Exception | None) -> None:
        """Send the calls that have arrived meanwhile; if there are none, become idle."""
        if failure is not None:
            self._refuse_waiting(failure)
        calls: list[_PendingCall[_C, _T]] = []
        while self._waiting and len(calls) < _MAX_CALLS:
            pending = self._waiting.popleft()
            if not pending.outcome.cancelled():
                calls.append(pending)
        self._is_busy = bool(calls)
        if calls:
            _Batch(calls, self._send, self._send_next)

    def _refuse_waiting(self, failure: Exception) -> None:
        for pending in self._waiting:
            error = StateUnavailableError(
                f"not sent, as the batch before it has failed: {failure}", in_doubt=False
            )
            error.__cause__ = failure
            pending.fail(error)
        self._waiting.clear()
