"""Looking after queues, keys and locks: what is there, and ending tasks from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final, TypeVar, cast, get_args

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.backend import (
    HeldLock,
    KeyInfo,
    Page,
    QueuedTask,
    StoredTask,
    TaskState,
)
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.codec import CANCELLED, EXPIRED, decode, encode
from rxlanggraph.state.paging import Paged, batched
from rxlanggraph.validation import check_duration, check_identifier, check_identifiers

__all__ = ["AdministrationOperations", "check_states"]

_T = TypeVar("_T")
# Names on one page.
_NAMES: Final = 500


class AdministrationOperations:
    """The methods of a `State` for its administration. Confined to its loop.

    For every method: it raises InvalidTypeError or InvalidArgumentError, before anything is sent,
    for an invalid argument; StateUnavailableError if the server does not answer; StateClosedError
    once the state is closed; WrongThreadError on another loop.

    What is read in pages is not a snapshot of one moment: other calls proceed in between. What is
    there from the first page to the last is included, on Redis perhaps twice.
    """

    def __init__(self, client: BackendClient) -> None:
        self._client = client

    async def queues(self) -> list[str]:
        """Return the names of the queues that have tasks, sorted. Cancelling it changes nothing.

        On Redis it looks at every key of the server, in steps.
        """
        names: set[str] = set()
        after = None
        while True:
            page = await self._client.call(
                self._client.backend.queues_page, after, _NAMES, repeatable=True
            )
            names.update(page.items)
            after = page.after
            if after is None:
                return sorted(names)
            await asyncio.sleep(0)

    def iter_tasks(
        self,
        queue: str,
        *,
        states: Collection[TaskState] | None = None,
        thread_id: str | None = None,
        older_than: float | None = None,
        newer_than: float | None = None,
    ) -> Paged[QueuedTask]:
        """Return tasks of ``queue``, without their items, for an ``async for`` loop.

        They are read in pages, each when it is needed: in SQL and in memory roughly in the order of
        adding, on Redis in any order. All tasks of the queue are read, however few are wanted.

        Args:
            queue: The queue.
            states: Only tasks in these states; None: in all.
            thread_id: Only tasks of this thread.
            older_than: Only tasks that have been in their state for longer than so many seconds
                (`QueuedTask.age`).
            newer_than: Only tasks that have not been in it for longer.
        """
        check_identifier("queue", queue)
        wanted = None if states is None else check_states(states)
        if thread_id is not None:
            check_identifier("thread_id", thread_id)
        least = None if older_than is None else check_duration("older_than", older_than, zero=True)
        most = None if newer_than is None else check_duration("newer_than", newer_than, zero=True)

        def is_wanted(task: StoredTask) -> bool:
            return (
                (wanted is None or task.state in wanted)
                and (thread_id is None or task.thread_id == thread_id)
                and (least is None or task.age > least)
                and (most is None or task.age <= most)
            )

        async def read(after: str | None, limit: int) -> Page[StoredTask]:
            page = await self._client.backend.tasks_page(queue, after, limit)
            return Page([task for task in page.items if is_wanted(task)], page.after)

        return Paged(self._client, read, partial(_queued_task, queue))

    async def task(self, queue: str, task_id: str) -> QueuedTask | None:
        """Return one task of ``queue``, with item, result and error; None if there is none.

        Cancelling it changes nothing.
        """
        check_identifier("queue", queue)
        check_identifier("task_id", task_id)
        task = await self._client.call(
            self._client.backend.task_read, queue, task_id, repeatable=True
        )
        return None if task is None else _queued_task(queue, task)

    async def cancel_tasks(self, queue: str, ids: Collection[str]) -> int:
        """End waiting and claimed tasks: they are dead letters, which `requeue` puts back.

        The claims of those in progress are lost: their workers learn it at the next heartbeat, and
        their results are refused; their code is not interrupted. In steps of 500. If cancelled, or
        after an error, some tasks were ended; repeat the call.

        Args:
            queue: The queue.
            ids: The ids of the tasks. Those of completed, dead and unknown tasks are ignored.

        Returns:
            How many were ended.
        """
        check_identifier("queue", queue)
        count, error = 0, encode(CANCELLED)
        for batch in batched(check_identifiers("ids", ids)):
            await asyncio.sleep(0)
            try:
                count += await self._client.call(
                    self._client.backend.tasks_cancel, queue, batch, error
                )
            except StateUnavailableError as failure:
                failure.in_doubt |= count > 0
                raise
            self._client.notifier.notify(("queue", queue))  # a thread may have been unblocked
        return count

    def iter_keys(self, prefix: str = "") -> Paged[KeyInfo]:
        """Return the keys that have values, for an ``async for`` loop; read in pages.

        On Redis it looks at every key of the server.

        Args:
            prefix: What the keys begin with.
        """
        if type(prefix) is not str or prefix:  # any other type is refused
            check_identifier("prefix", prefix)
        return Paged(self._client, partial(self._client.backend.keys_page, prefix), _same)

    def iter_locks(self) -> Paged[HeldLock]:
        """Return the locks that are held, for an ``async for`` loop; read in pages.

        On Redis it looks at every key of the server.
        """
        return Paged(self._client, self._client.backend.locks_page, _same)


def check_states(states: object) -> frozenset[TaskState]:
    """Return ``states`` as a set, if they are states of tasks.

    Raises:
        InvalidTypeError: They are not a collection of strings.
        InvalidArgumentError: One of them is not a state.
    """
    wanted = cast("frozenset[TaskState]", check_identifiers("states", states))
    if unknown := wanted.difference(get_args(TaskState)):
        raise InvalidArgumentError(
            f"states must be some of {', '.join(get_args(TaskState))}, not {min(unknown)}"
        )
    return wanted


def _same(row: _T) -> _T:
    return row


def _queued_task(queue: str, task: StoredTask) -> QueuedTask:
    has_expired = task.text is not None and task.state == "dead" and task.error is None
    return QueuedTask(
        id=task.id,
        queue=queue,
        key=task.key,
        thread_id=task.thread_id,
        priority=task.priority,
        state=task.state,
        attempts=task.attempts,
        max_attempts=task.max_attempts,
        worker=task.worker,
        due_in=task.due_in,
        age=max(0.0, task.age),  # the clock may have been set back since
        added=task.added,
        claimed=task.claimed,
        ended=task.ended,
        item=decode(task.text, "the item of task", task.id),
        result=decode(task.result, "the result of task", task.id),
        error=EXPIRED if has_expired else decode(task.error, "the error of task", task.id),
    )
