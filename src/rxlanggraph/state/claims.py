"""Claims: each item of work is claimed by one worker at a time, and completed exactly once.

An item is processed at least once: if a worker dies, or is suspended for longer than its lease,
another worker claims its item. It is completed exactly once: the claim of the slow worker is no
longer current, and its result is refused. To make side effects idempotent, use ``claim.id`` as an
idempotency key, or fence them with ``claim.token``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from rxlanggraph.concurrency.tasks import run_shielded
from rxlanggraph.errors import (
    ClosedError,
    InvalidArgumentError,
    LeaseLostError,
    StateError,
    UsageError,
)
from rxlanggraph.state.backend import ClaimedTask
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.codec import decode, encode, error_value
from rxlanggraph.state.leases import Heartbeat
from rxlanggraph.validation import check_duration

__all__ = ["Claim"]


class Claim:
    """One item of work, claimed by one worker; made by ``claim_task``.

    While it is open, its lease is renewed in the background; `complete`, `fail` or `release` end
    it. ``async with claim:`` ends it with the block, if the block itself has not: it completes it,
    or fails it after an exception. Cancellation inside the block releases it: the attempt does not
    count. A claim that is garbage-collected while open is no longer renewed.

    Used on the loop of its state; `lost` and the attributes from any thread.

    Attributes:
        id: The id of the task, as ``add_tasks`` returned it.
        queue: The queue of the task.
        item: The JSON value to work on.
        key: The task's key, if it has one.
        thread_id: The task's thread, if it has one.
        attempt: How often the task has been claimed, this time included.
        worker: The worker that claimed it.
        token: Larger than that of every earlier claim; fences writes, as that of a `Lease` does.
    """

    def __init__(
        self,
        client: BackendClient,
        queue: str,
        worker: str,
        task: ClaimedTask,
        *,
        lease: float,
        began: float,
    ) -> None:
        self.id = task.id
        self.queue = queue
        self.item: Any = decode(task.text)
        self.key = task.key
        self.thread_id = task.thread_id
        self.attempt = task.attempt
        self.worker = worker
        self.token = task.token
        self._client = client
        self._end: str | None = None
        self._end_began = False
        self._heartbeat = Heartbeat(client, self, lease, began)

    def __repr__(self) -> str:
        """Return task, queue, attempt, and how the claim ended."""
        end = self._end or ("lost" if self.lost else "open")
        return f"<Claim of task {self.id} in {self.queue!r}, attempt {self.attempt}, {end}>"

    @property
    def lost(self) -> bool:
        """Whether the lease is over, as far as is known here. Any thread; never blocks.

        Another worker may have the item by now; the code of this one is not interrupted. As long as
        no other worker has it, a later heartbeat may renew the lease after all.
        """
        return self._heartbeat.lost

    async def complete(self, result: Any = None) -> None:
        """Complete the task, with a JSON value as its result.

        If cancelled, either the task was completed nevertheless, or the claim is still open.

        Raises:
            LeaseLostError: Another worker has claimed the task since, or it is dead or purged:
                ``result`` was dropped.
            InvalidTypeError: ``result`` is not a JSON value.
            UsageError: The claim has ended already.
            StateUnavailableError: The server does not answer; the claim stays open.
        """
        client, text = self._client, encode(result)
        await self._finish(
            "completed",
            lambda: client.call(
                client.backend.task_complete, self.queue, self.id, self.token, text, repeatable=True
            ),
        )

    async def fail(self, error: Any, retry_in: float | None = None, *, final: bool = False) -> None:
        """End the attempt: the task waits for the next one, or is dead if this was the last.

        If cancelled, either the attempt has ended nevertheless, or the claim is still open.

        Args:
            error: An exception, or a JSON value; stored with the task, for its dead letter.
            retry_in: Seconds until it may be claimed again; None: at once.
            final: Whether another attempt would be pointless: the task is dead, however many
                attempts are left.

        Raises:
            LeaseLostError: Another worker has claimed the task since, or it is dead or purged.
            InvalidTypeError, InvalidArgumentError: An argument is invalid.
            UsageError: The claim has ended already.
            StateUnavailableError: The server does not answer; the claim stays open.
        """
        client, text = self._client, encode(error_value(error))
        delay = 0.0 if retry_in is None else check_duration("retry_in", retry_in, zero=True)
        pause = None if final else delay
        await self._finish(
            "failed",
            lambda: client.call(
                client.backend.task_fail, self.queue, self.id, self.token, text, pause
            ),
        )

    async def release(self) -> None:
        """Give the item back; the attempt does not count.

        If cancelled, either the item was given back nevertheless, or the claim is still open.

        Raises:
            LeaseLostError, UsageError, StateUnavailableError: As for `complete`.
        """
        client = self._client
        await self._finish(
            "released",
            lambda: client.call(client.backend.task_release, self.queue, self.id, self.token),
        )

    async def extend(self, lease: float | None = None) -> None:
        """Renew the lease now; heartbeats do this regularly anyway.

        Args:
            lease: Seconds that it lasts from now on; None: as before.

        Raises:
            LeaseLostError: Another worker has claimed the task since, or it is dead or purged.
            InvalidTypeError, InvalidArgumentError: ``lease`` is not a duration.
            UsageError: The claim has ended already.
            StateUnavailableError: The server does not answer.
        """
        self._check_open("extended")
        seconds = None if lease is None else check_duration("lease", lease)
        if not await self._heartbeat.renew(self, seconds):
            self._check_open("extended")  # it may have ended meanwhile
            self._end = "lost"
            raise self._lost_error("extended")

    async def __aenter__(self) -> Self:
        """Return the claim itself."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """`complete`, or `fail` after an exception, unless the claim has ended inside."""
        if self._end is not None:
            return
        if exc is None:
            await self.complete()
            return
        try:
            await (self.fail(exc) if isinstance(exc, Exception) else self.release())
        except (StateError, ClosedError, InvalidArgumentError) as error:
            # The error of the block is the one that propagates; the task comes back when its lease
            # ends.
            exc.add_note(f"and its claim could not be ended: {error}")

    def _renew(self, seconds: float) -> Awaitable[bool]:
        client = self._client
        return client.call(
            client.backend.task_renew, self.queue, self.id, self.token, seconds, repeatable=True
        )

    async def _finish(self, end: str, call: Callable[[], Awaitable[bool]]) -> None:
        self._client.check_open()
        self._check_open(end)
        # Set before the first await: of two tasks that end the claim concurrently, the second gets
        # an error.
        self._end, self._end_began = end, False
        try:
            await run_shielded(self._end_it(end, call))
        finally:
            # If all tasks of the loop were cancelled, the shielded one may not have begun.
            if not self._end_began:
                self._end = None

    async def _end_it(self, end: str, call: Callable[[], Awaitable[bool]]) -> None:
        self._end_began = True
        try:
            # Before the call: a renewal after it would be refused, and the claim taken for lost.
            await self._heartbeat.stop()
            current = await call()
        except BaseException:
            self._end = None
            self._heartbeat.resume()
            raise
        if self.thread_id is not None or end != "completed":  # a task may be claimable by now
            self._client.notifier.notify(("queue", self.queue))
        if not current:
            self._end = "lost"
            raise self._lost_error(end)

    def _check_open(self, what: str) -> None:
        if self._end == "lost":
            raise self._lost_error(what)
        if self._end is not None:
            raise UsageError(
                f"the claim of task {self.id} has ended already: {self._end}; a claim can be ended "
                "once, and not extended after that"
            )

    def _lost_error(self, what: str) -> LeaseLostError:
        return LeaseLostError(
            f"task {self.id} of {self.queue!r} was not {what}: the claim of {self.worker!r} "
            f"(attempt {self.attempt}, token {self.token}) is no longer current; another worker "
            "has the task, or it is dead or purged"
        )
