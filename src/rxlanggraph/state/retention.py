"""Deleting tasks by their age and number."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backend import StoredTask, TaskState
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.paging import Paged

__all__ = ["purge_old"]

# Seconds, as in `in_steps`.
_MAX_PAUSE: Final = 0.2


async def purge_old(
    client: BackendClient,
    queue: str,
    states: Collection[TaskState],
    *,
    older_than: float | None,
    keep: int | None,
    on_step: Callable[[], None],
) -> int:
    """Delete tasks in these states that are older and not among the newest; return how many.

    On the loop of the client. In steps: if cancelled, or after an error, some tasks were deleted.

    Args:
        client: Of the state.
        queue: The queue.
        states: The states.
        older_than: Only tasks with a larger age, in seconds; None: of any age.
        keep: How many of the newest ones to keep, whatever their age; None: none.
        on_step: Called after each step.

    Raises:
        StateUnavailableError: The server does not answer; in doubt, if some were deleted before.
    """
    oldest = None if not keep else await _oldest_kept(client, queue, states, keep)
    if keep and oldest is None:
        return 0  # there are no more than that
    total, paged = 0, _paged(client, queue)
    try:
        while not paged.ended:
            page, began = await paged.next_page(), client.loop.time()
            ids = [
                task.id
                for task in page
                if task.state in states
                and (older_than is None or task.age > older_than)
                and (oldest is None or _order(task) < oldest)
            ]
            if ids:
                total += await client.call(client.backend.tasks_delete, queue, ids, states)
                on_step()
                await asyncio.sleep(min(client.loop.time() - began, _MAX_PAUSE))
    except StateUnavailableError as error:
        error.in_doubt |= total > 0
        raise
    return total


async def _oldest_kept(
    client: BackendClient, queue: str, states: Collection[TaskState], keep: int
) -> tuple[float, str] | None:
    """Return the oldest of the newest tasks; None if there are no others."""
    newest: set[str] = set()  # on Redis a task may be read twice
    heap: list[tuple[float, str]] = []
    is_more, paged = False, _paged(client, queue)
    while not paged.ended:
        for task in await paged.next_page():
            if task.state not in states or task.id in newest:
                continue
            newest.add(task.id)
            heapq.heappush(heap, _order(task))
            if len(heap) > keep:
                is_more = True
                newest.discard(heapq.heappop(heap)[1])
    return heap[0] if is_more else None


def _paged(client: BackendClient, queue: str) -> Paged[StoredTask]:
    return Paged(client, partial(client.backend.tasks_page, queue), lambda task: task)


def _order(task: StoredTask) -> tuple[float, str]:
    """Return what orders tasks: since when each is in its state; unknown times come first."""
    began = {"waiting": task.added, "claimed": task.claimed}.get(task.state, task.ended)
    return (began or 0.0, task.id)
