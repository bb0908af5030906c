"""Queues of work: adding, claiming, and results."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, TypeVar

from uuid_utils import uuid7

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, StateUnavailableError
from rxlanggraph.state.administration import check_states
from rxlanggraph.state.backend import (
    COMPLETED,
    MAX_PER_STEP,
    DeadLetter,
    DeadTask,
    NewTask,
    QueueStats,
    Task,
    TaskState,
)
from rxlanggraph.state.backoff import Backoff
from rxlanggraph.state.claims import Claim, complete_claims, result_pairs
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.codec import EXPIRED, decode, encode
from rxlanggraph.state.paging import Paged, batched, in_steps
from rxlanggraph.state.retention import purge_old
from rxlanggraph.validation import (
    check_attempts,
    check_duration,
    check_identifier,
    check_identifiers,
    check_integer,
    check_wait,
    shortened,
)

__all__ = ["MAX_ITEMS", "QueueOperations"]

_T = TypeVar("_T")

# Items in one call of `State.add_tasks`: meanwhile the server executes nothing else.
MAX_ITEMS: Final = 10_000


class QueueOperations:
    """The methods of a `State` for queues of work. Confined to its loop.

    A queue needs no creation: it is identified by its name alone. For every method: it
    raises InvalidTypeError or InvalidArgumentError, before anything is sent, for an invalid
    argument; StateUnavailableError if the server does not answer; StateClosedError once the state
    is closed; WrongThreadError on another loop.
    """

    def __init__(self, client: BackendClient, max_attempts: int) -> None:
        self._client = client
        self._max_attempts = max_attempts
        self._worker = f"{socket.gethostname()}:{os.getpid()}:{uuid7().hex[-8:]}"

    def declare_queue(
        self, queue: str, *, backoff: Backoff | None = None, max_claimed: int | None = None
    ) -> None:
        """Declare how this state works on ``queue``; never blocks.

        It replaces an earlier declaration as a whole, and is not stored: each process that works on
        the queue declares it.

        Args:
            queue: The queue.
            backoff: How long failed tasks wait for their next attempt, if a claim of this state
                fails without ``retry_in``, also by an exception in its block. A lease that expires
                is not a failure, and makes its task claimable at once. None: they do not wait.
            max_claimed: How many tasks of the queue may be claimed at once, by all processes
                together: while there are as many, this state claims none, and a claim with
                ``wait=`` waits. A lease that was renewed too late is lost if another task has been
                claimed instead. None: any number.

        Raises:
            InvalidTypeError, InvalidArgumentError: An argument is invalid; nothing was declared.
        """
        check_identifier("queue", queue)
        if not (backoff is None or isinstance(backoff, Backoff)):
            raise InvalidTypeError(f"backoff must be a Backoff or None, not {shortened(backoff)}")
        limit = None if max_claimed is None else check_attempts("max_claimed", max_claimed)
        client = self._client
        client.check_open()
        _declare(client.backoffs, queue, backoff)
        _declare(client.max_claimed, queue, limit)
        self._notify(queue)  # a claim may be waiting for an earlier limit

    async def add_tasks(
        self, queue: str, items: Iterable[Any], *, max_attempts: int | None = None
    ) -> list[str]:
        """Add ``items`` to ``queue``, all in one step; return their ids.

        If cancelled, all of them were added or none.

        Args:
            queue: The queue.
            items: JSON values, or `Task` objects, which carry options; 10,000 at most. If the queue
                has a task with the same key already, in whatever state, the item is not added, and
                the id of that task is returned.
            max_attempts: How often each may be claimed before it is dead; None: the number given to
                ``open_state``.
        """
        check_identifier("queue", queue)
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise InvalidTypeError(f"items must be a list of items, not {type(items).__name__}")
        attempts = self._max_attempts
        if max_attempts is not None:
            attempts = check_attempts("max_attempts", max_attempts)
        tasks = [_new_task(item, attempts) for item in islice(items, MAX_ITEMS + 1)]
        if len(tasks) > MAX_ITEMS:
            raise InvalidArgumentError(
                f"items must be {MAX_ITEMS:,} at most, as they are added in one step; use several "
                f"calls to add more to {queue!r}"
            )
        if not tasks:
            return []
        backend = self._client.backend
        ids = await self._client.call(backend.tasks_add, queue, tasks, repeatable=True)
        self._notify(queue, len(tasks))
        return ids

    async def claim_task(
        self,
        queue: str,
        *,
        worker: str | None = None,
        lease: float = 30.0,
        wait: float | None = None,
    ) -> Claim | None:
        """Claim the next item of ``queue``: no other claim gets it while its lease lasts.

        Highest priority first, then the order of adding; of each thread one at a time, in order;
        and no more at once than `declare_queue` has declared. If cancelled, it has claimed nothing.

        Args:
            queue: The queue.
            worker: Name of the worker, as shown by `stats` and dead letters; None: a name made of
                host and process.
            lease: Seconds until the item of a dead worker may be claimed again. Renewed in the
                background while the claim is open.
            wait: Seconds to wait for an item; None or 0: do not wait.

        Returns:
            The claim; None if there was nothing to claim, or as many tasks are claimed as may be.
        """
        claims = await self._claim_waiting(queue, 1, worker, lease, wait)
        return claims[0] if claims else None

    async def claim_tasks(
        self,
        queue: str,
        count: int,
        *,
        worker: str | None = None,
        lease: float = 30.0,
        wait: float | None = None,
    ) -> list[Claim]:
        """Claim the next items of ``queue`` in one step, as many calls of `claim_task` would.

        For many short items: one call of the server for all of them. Each claim has a lease of its
        own, and ends by itself, or together with others by `complete_tasks`. If cancelled, it has
        claimed nothing.

        Args:
            queue: The queue.
            count: How many items to claim at most, up to 500.
            worker: As for `claim_task`.
            lease: As for `claim_task`; each claim has that lease.
            wait: Seconds to wait for the first item; None or 0: do not wait. It does not wait for
                more than that one.

        Returns:
            The claims, in the order in which `claim_task` would have returned them; none if there
            was nothing to claim. Perhaps fewer than there are items: only an empty list says that
            there are none, or that as many are claimed as may be.

        Raises:
            InvalidArgumentError: ``count`` is out of range.
        """
        if not 1 <= check_integer("count", count) <= MAX_PER_STEP:
            raise InvalidArgumentError(
                f"count must be 1 to {MAX_PER_STEP}, as the items are claimed in one step, not "
                f"{count}"
            )
        return await self._claim_waiting(queue, count, worker, lease, wait)

    async def complete_tasks(self, results: Iterable[tuple[Claim, Any]]) -> list[Claim]:
        """Complete claims of this state, each with its JSON value as the result, in few steps.

        As `Claim.complete` for each; but a claim that is no longer current is returned, and keeps
        no other from being completed. In steps of up to 500 claims of one queue. If cancelled, or
        after an error, each claim either was completed or is still open.

        Args:
            results: Claims, each with its result.

        Returns:
            The claims that are lost, because another worker has claimed the task since, or it is
            dead or purged. Their results were dropped.

        Raises:
            InvalidTypeError: A result is not a JSON value, something is not a claim of this state,
                or not a pair; nothing was completed.
            UsageError: A claim has ended already, or is named twice; nothing was completed.
            StateUnavailableError: The server does not answer; what was not completed stays open.
        """
        return await complete_claims(self._client, result_pairs(results))

    async def _claim_waiting(
        self, queue: str, count: int, worker: str | None, lease: float, wait: float | None
    ) -> list[Claim]:
        check_identifier("queue", queue)
        name = self._worker if worker is None else check_identifier("worker", worker)
        seconds = check_duration("lease", lease)
        wait_seconds = 0.0 if wait is None else check_wait(wait)
        if not wait_seconds:
            return await self._claim(queue, count, name, seconds)
        with self._client.notifier.poll(("queue", queue), wait_seconds) as schedule:
            try:
                while True:
                    schedule.notified.clear()
                    claims = await self._claim(queue, count, name, seconds)
                    if claims:
                        return claims
                    self._client.watch_arrivals()
                    if not await schedule.pause():
                        return claims
            finally:
                if schedule.notified.is_set():  # for a task that is left to others
                    self._notify(queue, 1)

    async def _claim(self, queue: str, count: int, worker: str, lease: float) -> list[Claim]:
        client = self._client
        began = client.loop.time()
        limit = client.max_claimed.get(queue)
        try:
            if count == 1:
                task = await client.call(client.backend.task_claim, queue, worker, lease, limit)
                tasks = [] if task is None else [task]
            else:
                tasks = await client.call(
                    client.backend.tasks_claim, queue, worker, lease, count, limit
                )
        except BaseException:
            # Workers of this process may be waiting for the items that were given back, or for
            # which this one was woken.
            self._notify(queue, count)
            raise
        if client.closed:
            client.check_open()  # raises: a closed state would not renew the leases
        return [Claim(client, queue, worker, task, lease=lease, began=began) for task in tasks]

    async def dead_letters(
        self, queue: str, *, keys: Collection[str] | None = None
    ) -> list[DeadLetter]:
        """Return the dead tasks of ``queue``, in the order of adding: they get no more attempts.

        Cancelling it changes nothing. More than 500 are not a snapshot of one moment: they are read
        in pages, so that other calls proceed. `iter_dead_letters` holds one page at a time.

        Args:
            queue: The queue.
            keys: Only tasks with these keys; None: all. With more than 500 keys, the order of
                adding is kept within each 500 keys.
        """
        if keys is None:
            return [letter async for letter in self.iter_dead_letters(queue)]
        check_identifier("queue", queue)
        letters: list[DeadLetter] = []
        for batch in batched(check_identifiers("keys", keys)):
            await asyncio.sleep(0)
            found = await self._client.call(
                self._client.backend.tasks_dead, queue, batch, repeatable=True
            )
            letters += [_dead_letter(queue, task) for task in found]
        return letters

    def iter_dead_letters(self, queue: str) -> Paged[DeadLetter]:
        """Return the dead tasks of ``queue``, in the order of adding, for an ``async for`` loop.

        They are read in pages, each when it is needed: so the first ones arrive at once, however
        many there are. Tasks that are requeued meanwhile may or may not be included.

        Args:
            queue: The queue.
        """
        check_identifier("queue", queue)
        read = partial(self._client.backend.tasks_dead_page, queue)
        return Paged(self._client, read, partial(_dead_letter, queue))

    async def requeue(self, queue: str, ids: Collection[str] | None = None) -> int:
        """Put dead tasks back at the end of ``queue``, due at once, with attempts counted from 0.

        In steps of 500, with other calls in between. If cancelled, or after an error, some tasks
        were requeued, the first ones first; calling it again continues with the rest.

        Args:
            queue: The queue.
            ids: The ids of the tasks; None: all that are dead when it begins. Ids of other tasks
                are ignored. With more than 500, the order of adding is kept within each 500.

        Returns:
            How many were requeued; perhaps fewer than really were, if an answer of the server was
            lost.
        """
        check_identifier("queue", queue)
        backend = self._client.backend
        if ids is None:
            return await in_steps(
                self._client,
                partial(backend.tasks_requeue_step, queue),
                partial(self._notify, queue),
            )
        count = 0
        for batch in batched(check_identifiers("ids", ids)):
            await asyncio.sleep(0)
            try:
                count += await self._client.call(backend.tasks_requeue, queue, batch)
            except StateUnavailableError as error:
                error.in_doubt |= count > 0
                raise
            self._notify(queue)
        return count

    def _notify(self, queue: str, count: int | None = None) -> None:
        """Wake workers that wait for a task: no more than can get one; None: all of them."""
        self._client.notifier.notify(("queue", queue), count)

    async def results(
        self,
        queue: str,
        *,
        ids: Collection[str] | None = None,
        keys: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Return the results of completed tasks, by id, or by key if ``keys`` is given.

        Other tasks are left out. Cancelling it changes nothing. More than 500 are not a snapshot of
        one moment, as for `dead_letters`. `iter_results` holds one page at a time.

        Args:
            queue: The queue.
            ids: Only tasks with these ids; None: all completed tasks.
            keys: Only tasks with these keys; instead of ``ids``.
        """
        check_identifier("queue", queue)
        if ids is not None and keys is not None:
            raise InvalidArgumentError("results() takes ids= or keys=, not both")
        if ids is None and keys is None:
            return {name: result async for name, result in self.iter_results(queue)}
        by: Literal["id", "key"] = "id" if keys is None else "key"
        results: dict[str, Any] = {}
        for batch in batched(check_identifiers(f"{by}s", ids if keys is None else keys)):
            await asyncio.sleep(0)
            texts = await self._client.call(
                self._client.backend.tasks_results, queue, by, batch, repeatable=True
            )
            results |= {
                name: decode(text, "the result of task", name) for name, text in texts.items()
            }
        return results

    def iter_results(self, queue: str) -> Paged[tuple[str, Any]]:
        """Return the ids and results of completed tasks, in any order, for an ``async for`` loop.

        They are read in pages, each when it is needed. Tasks that are completed or purged meanwhile
        may or may not be included.

        Args:
            queue: The queue.
        """
        check_identifier("queue", queue)
        read = partial(self._client.backend.tasks_results_page, queue)
        return Paged(self._client, read, _result)

    async def stats(self, queue: str) -> QueueStats:
        """Count the tasks of ``queue``, as of one moment. Cancelling it changes nothing."""
        check_identifier("queue", queue)
        return await self._client.call(self._client.backend.tasks_stats, queue, repeatable=True)

    async def purge(
        self,
        queue: str,
        states: Collection[TaskState] = COMPLETED,
        *,
        older_than: float | None = None,
        keep: int | None = None,
    ) -> int:
        """Delete the tasks in these states, with their keys and results; return how many.

        A completed task is kept until it is purged, so that its key is known and its result can be
        read. The claim of a task that is purged is lost. It works in steps, as `requeue` does: if
        cancelled, or after an error, some tasks were deleted.

        Args:
            queue: The queue.
            states: Any of ``"waiting"`` (delayed ones too), ``"claimed"``, ``"completed"`` and
                ``"dead"``.
            older_than: Only tasks that have been in their state for more than so many seconds: as
                told by `QueuedTask.age`.
            keep: Keep so many of them that came into their state last, whatever their age.
        """
        check_identifier("queue", queue)
        wanted = check_states(states)
        if not wanted:
            self._client.check_open()
            return 0
        if older_than is not None or keep is not None:
            if older_than is not None:
                check_duration("older_than", older_than, zero=True)
            if keep is not None and check_integer("keep", keep) < 0:
                raise InvalidArgumentError(f"keep must be 0 or more, not {keep}")
            return await purge_old(
                self._client,
                queue,
                wanted,
                older_than=older_than,
                keep=keep,
                on_step=partial(self._notify, queue),
            )
        step = partial(self._client.backend.tasks_purge_step, queue, wanted)
        return await in_steps(self._client, step, partial(self._notify, queue))


def _declare(declared: dict[str, _T], queue: str, value: _T | None) -> None:
    if value is None:
        declared.pop(queue, None)
    else:
        declared[queue] = value


def _new_task(item: Any, max_attempts: int) -> NewTask:
    task = item if isinstance(item, Task) else Task(item)
    return NewTask(
        id=uuid7().hex,
        text=encode(task.item),
        key=None if task.key is None else check_identifier("key", task.key),
        priority=check_integer("priority", task.priority, bits=32),
        delay=check_duration("delay", task.delay, zero=True),
        thread_id=None if task.thread_id is None else check_identifier("thread_id", task.thread_id),
        max_attempts=max_attempts,
    )


def _result(row: tuple[str, str]) -> tuple[str, Any]:
    task_id, text = row
    return task_id, decode(text, "the result of task", task_id)


def _dead_letter(queue: str, task: DeadTask) -> DeadLetter:
    return DeadLetter(
        id=task.id,
        queue=queue,
        item=decode(task.text, "the item of task", task.id),
        key=task.key,
        thread_id=task.thread_id,
        attempts=task.attempts,
        worker=task.worker,
        error=(EXPIRED if task.error is None else decode(task.error, "the error of task", task.id)),
    )
