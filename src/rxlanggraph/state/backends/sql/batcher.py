"""Micro-batching: while one batch of calls is on its way, the next one is collected.

So a database waits once for its disk, and the loop once for the database, for as many calls as
arrive in that time; a call that comes alone does not wait at all.
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

# So that other calls do not wait long for what the whole batch holds.
_MOST: Final = 64


class _Place(Generic[_C, _T]):
    """One call that waits for its batch, or is in it."""

    def __init__(self, call: _C) -> None:
        self.call = call
        self.outcome: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self.batch: _Batch[_C, _T] | None = None

    def fail(self, error: BaseException) -> None:
        """Have the caller raise ``error``, if it still waits."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # looked at: the caller may be cancelled before it does so


class _Batch(Generic[_C, _T]):
    """Calls that are sent together, by a task of their own: no caller can cancel it for others.

    Args:
        places: The calls.
        send: Does calls, and returns their outcomes.
        then: What is called at the end, with the error if it has failed.
    """

    def __init__(
        self,
        places: Sequence[_Place[_C, _T]],
        send: Callable[[Sequence[_C]], Awaitable[Sequence[_T]]],
        then: Callable[[Exception | None], None],
    ) -> None:
        self._places = places
        self._send = send
        self._then = then
        for place in places:
            place.batch = self
        self._task = asyncio.create_task(self._run())
        # And no `finally`: a task that is cancelled before its first step does not get there.
        self._task.add_done_callback(self._tell)

    async def _run(self) -> None:
        outcomes = await self._send([place.call for place in self._places])
        for place, outcome in zip(self._places, outcomes, strict=True):
            if not place.outcome.done():
                place.outcome.set_result(outcome)

    def _tell(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        for place in self._places:
            if error is not None:
                place.fail(error)
            else:
                place.outcome.cancel()  # unless it has its result
        self._then(error if isinstance(error, Exception) else None)

    async def end_if_deserted(self) -> None:
        """Cancel a batch that no caller waits for any more, and wait for its end."""
        if all(place.outcome.done() for place in self._places):
            self._task.cancel()
            await asyncio.wait([self._task])


class Batcher(Generic[_C, _T]):
    """Confined to the loop on which it is made.

    Args:
        send: Does calls, and returns an outcome for each, in their order. What it raises, each of
            them raises. Cancelled if no caller waits for it any more.
    """

    def __init__(self, send: Callable[[Sequence[_C]], Awaitable[Sequence[_T]]]) -> None:
        self._send = send
        self._is_busy = False
        self._waiting: deque[_Place[_C, _T]] = deque()

    async def call(self, call: _C) -> _T:
        """Send ``call``, at once or with the next batch; return its outcome.

        Cancelled, it is not sent any more; or it is done for all that, with others of its batch.
        What becomes of one that goes alone is the affair of ``send``, which is cancelled with it.

        Raises:
            StateUnavailableError: It was not sent, as the batch before it has failed. So it takes
                no longer for many than for two.
        """
        if self._is_busy:
            return await self._together(call)
        self._is_busy = True
        failure = None
        try:
            (outcome,) = await self._send([call])
        except Exception as error:
            failure = error
            raise
        finally:
            self._go_on(failure)
        return outcome

    async def _together(self, call: _C) -> _T:
        place: _Place[_C, _T] = _Place(call)
        self._waiting.append(place)
        try:
            return await place.outcome
        except asyncio.CancelledError:
            if place.batch is not None:
                await place.batch.end_if_deserted()
            raise

    def _go_on(self, failure: Exception | None) -> None:
        """Send the calls that have come meanwhile; if there are none, the next one goes alone."""
        if failure is not None:
            self._refuse_waiting(failure)
        places: list[_Place[_C, _T]] = []
        while self._waiting and len(places) < _MOST:
            place = self._waiting.popleft()
            if not place.outcome.cancelled():
                places.append(place)
        self._is_busy = bool(places)
        if places:
            _Batch(places, self._send, self._go_on)

    def _refuse_waiting(self, failure: Exception) -> None:
        for place in self._waiting:
            error = StateUnavailableError(
                f"the calls before this one have failed: {failure}", in_doubt=False
            )
            error.__cause__ = failure
            place.fail(error)
        self._waiting.clear()
