"""Claims: each item of work is claimed by one worker at a time, and completed exactly once.

An item is processed at least once: if a worker dies, or is suspended for longer than its lease,
another worker claims its item. It is completed exactly once: the claim of the slow worker is no
longer current, and its result is refused. To make side effects idempotent, use ``claim.id`` as an
idempotency key, or fence them with ``claim.token``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from types import TracebackType
from typing import Any, Self

from rxlanggraph.concurrency.tasks import run_shielded
from rxlanggraph.errors import (
    ClosedError,
    InvalidArgumentError,
    InvalidTypeError,
    LeaseLostError,
    StateError,
    UsageError,
)
from rxlanggraph.state.backend import MAX_PER_STEP, ClaimedTask, DoneTask
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.codec import decode, encode, error_value
from rxlanggraph.state.leases import Heartbeat
from rxlanggraph.validation import check_duration, shortened

__all__ = ["Claim", "complete_claims", "result_pairs"]


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
        self.key = task.key
        self.thread_id = task.thread_id
        self.attempt = task.attempt
        self.worker = worker
        self.token = task.token
        self._client = client
        self._text: str | None = task.text  # None: it was decoded
        self._item: Any = None
        # How it has ended. Written once, on the loop; shown in any thread.
        self._end: str | None = None
        self._heartbeat = Heartbeat(client, self, lease, began)

    def __repr__(self) -> str:
        """Return task, queue, attempt, and how the claim ended."""
        end = self._end or ("lost" if self.lost else "open")
        return f"<Claim of task {self.id} in {self.queue!r}, attempt {self.attempt}, {end}>"

    @property
    def item(self) -> Any:
        """The JSON value to work on. Any thread; never blocks.

        It is decoded when it is first read: so one that cannot be, because it is nested too deep,
        fails its own attempt, not the call that has claimed it together with others.
        """
        # Two threads that are the first to read it may get two objects, which are equal.
        if (text := self._text) is not None:
            self._item = decode(text, "the item of task", self.id)
            self._text = None
        return self._item

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
        if await complete_claims(self._client, [(self, result)]):
            raise self._lost_error("completed")

    async def fail(self, error: Any, retry_in: float | None = None, *, final: bool = False) -> None:
        """End the attempt: the task waits for the next one, or is dead if this was the last.

        If cancelled, either the attempt has ended nevertheless, or the claim is still open.

        Args:
            error: An exception, or a JSON value; stored with the task, for its dead letter.
            retry_in: Seconds until it may be claimed again; None: as `State.declare_queue` has
                declared it for the queue, and at once if it has not.
            final: Whether another attempt would be pointless: the task is dead, however many
                attempts are left.

        Raises:
            LeaseLostError: Another worker has claimed the task since, or it is dead or purged.
            InvalidTypeError, InvalidArgumentError: An argument is invalid.
            UsageError: The claim has ended already.
            StateUnavailableError: The server does not answer; the claim stays open.
        """
        client, text = self._client, encode(error_value(error))
        if retry_in is not None:
            delay = check_duration("retry_in", retry_in, zero=True)
        else:
            backoff = client.backoffs.get(self.queue)
            delay = 0.0 if backoff is None else backoff.pause(self.attempt)
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
            LeaseLostError: Another worker has claimed the task since, or its place, or it is dead
                or purged.
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
            client.backend.task_renew,
            self.queue,
            self.id,
            self.token,
            seconds,
            client.max_claimed.get(self.queue),
            repeatable=True,
        )

    async def _finish(self, end: str, call: Callable[[], Awaitable[bool]]) -> None:
        async def one() -> list[bool]:
            return [await call()]

        self._client.check_open()
        if await _Ending([self], end, one).run(self._client):
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
            "has the task, or its place (max_claimed), or it is dead or purged"
        )


# -- ending claims -----------------------------------------------------------------------------


def result_pairs(results: object) -> list[tuple[Any, Any]]:
    """Return ``results``, each a claim with its result. Any thread; never blocks.

    Raises:
        InvalidTypeError: They are something else.
    """
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise InvalidTypeError(
            f"results must be a list of claims, each with its result, not {shortened(results)}"
        )
    pairs = []
    for pair in results:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidTypeError(
                f"results must be pairs of a claim and its result, not {shortened(pair)}"
            )
        pairs.append((pair[0], pair[1]))
    return pairs


async def complete_claims(
    client: BackendClient, results: Sequence[tuple[Claim, Any]]
) -> list[Claim]:
    """Complete claims of ``client``; return those that are lost. See `State.complete_tasks`."""
    client.check_open()
    for claim, _ in results:
        if getattr(claim, "_client", None) is not client:
            raise InvalidTypeError(
                f"{shortened(claim)} is not a claim of this state; complete it where it was claimed"
            )
        claim._check_open("completed")
    if len({id(claim) for claim, _ in results}) < len(results):
        raise UsageError("a claim is named twice, and can be completed once")
    texts = {claim: encode(result) for claim, result in results}
    lost: list[Claim] = []
    for queue, claims in groupby(texts, key=lambda claim: claim.queue):
        while batch := [*islice(claims, MAX_PER_STEP)]:
            call = partial(_complete, client, queue, batch, [texts[claim] for claim in batch])
            lost += await _Ending(batch, "completed", call).run(client)
    return lost


async def _complete(
    client: BackendClient, queue: str, claims: Sequence[Claim], texts: Sequence[str]
) -> list[bool]:
    if len(claims) == 1:
        (claim,), (text,) = claims, texts
        complete = client.backend.task_complete
        return [await client.call(complete, queue, claim.id, claim.token, text, repeatable=True)]
    done = [
        DoneTask(claim.id, claim.token, text) for claim, text in zip(claims, texts, strict=True)
    ]
    return await client.call(client.backend.tasks_complete, queue, done, repeatable=True)


class _Ending:
    """The end of claims of one queue by one call, even if callers are cancelled meanwhile.

    Args:
        claims: The claims.
        end: How they end.
        call: Ends them on the server; returns for each whether it was current.
    """

    def __init__(
        self, claims: Sequence[Claim], end: str, call: Callable[[], Awaitable[Sequence[bool]]]
    ) -> None:
        self._claims = claims
        self._end = end
        self._call = call
        self._began = False

    async def run(self, client: BackendClient) -> list[Claim]:
        """End the claims; return those that are lost. The state is open."""
        for claim in self._claims:
            claim._check_open(self._end)
        # Set before the first await: of two tasks that end a claim concurrently, the second gets
        # an error.
        self._mark(self._end)
        try:
            await run_shielded(self._end_all(client))
        finally:
            # If all tasks of the loop were cancelled, the shielded one may not have begun.
            if not self._began:
                self._mark(None)
        return [claim for claim in self._claims if claim._end == "lost"]

    async def _end_all(self, client: BackendClient) -> None:
        self._began = True
        claims = self._claims
        try:
            # Before the call: a renewal after it would be refused, and the claim taken for lost.
            await Heartbeat.stop(*(claim._heartbeat for claim in claims))
            current = await self._call()
        except BaseException:
            self._mark(None)
            for claim in claims:
                claim._heartbeat.resume()
            raise
        # For each of them another task may be claimable by now.
        queue = claims[0].queue
        has_freed = queue in client.max_claimed or any(c.thread_id is not None for c in claims)
        if has_freed or self._end != "completed":
            client.notifier.notify(("queue", queue), len(claims))
        for claim, was_current in zip(claims, current, strict=True):
            claim._end = self._end if was_current else "lost"

    def _mark(self, end: str | None) -> None:
        for claim in self._claims:
            claim._end = end
