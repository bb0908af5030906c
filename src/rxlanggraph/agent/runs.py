"""What a run of an agent has started: its messages, its tasks, and the runs within it.

What breaks without it: a run that failed leaves half a turn in the memory, and tasks that go on
writing; and an agent that is asked by its own step, directly or through others, waits for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

from rxlanggraph.agent.memory import Memory
from rxlanggraph.stacks import tasks_where

__all__ = ["is_within", "one_run"]

_log = logging.getLogger("rxlanggraph")
_CANCEL_SECONDS = 5.0


class _Run:
    """One run, known to all that it has started, through their context."""

    __slots__ = ("outer", "over", "owner")

    def __init__(self, owner: object, outer: _Run | None) -> None:
        self.owner = owner
        self.outer = outer
        self.over = False  # set once, by the run itself; read by any thread


_current: ContextVar[_Run | None] = ContextVar("rxlanggraph_agent_run", default=None)


@contextlib.asynccontextmanager
async def one_run(owner: object, memory: Memory) -> AsyncIterator[None]:
    """Be a run of ``owner`` for a block.

    What the block adds to ``memory`` is added at its end, in one go. If it does not end well,
    nothing is added, and what it has started and not awaited is cancelled, and waited for.
    """
    run = _Run(owner, _current.get())
    token = _current.set(run)
    try:
        with memory.turn():
            yield
    except GeneratorExit:  # its loop is gone: nothing of it goes on, and nothing can be awaited
        raise
    except BaseException:
        await _end_tasks(run)
        raise
    finally:
        run.over = True
        with contextlib.suppress(ValueError):  # closed by a collector, in another context
            _current.reset(token)


def is_within(owner: object) -> bool:
    """Whether this code was started by a run of ``owner`` that is still on. Any thread."""
    return any(run.owner is owner and not run.over for run in _runs(_current.get()))


def _runs(run: _Run | None) -> list[_Run]:
    """``run``, and the runs that it is part of."""
    runs = []
    while run is not None:
        runs.append(run)
        run = run.outer
    return runs


async def _end_tasks(run: _Run) -> None:
    """Cancel what ``run`` has started and not awaited, and wait for its end."""
    own = asyncio.current_task()
    loop = asyncio.get_running_loop()
    started: list[asyncio.Task[Any]] = tasks_where(loop, _current, lambda of: run in _runs(of))
    left = [task for task in started if task is not own]
    for task in left:
        task.cancel()
    if left:
        _, stuck = await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        for task in stuck:
            _log.warning("%r was cancelled with its run, and goes on", task)
