"""TaskWait: whether a task of a run still waits for what it began to wait for.

What breaks without it: a wait that was given up, as by ``asyncio.wait_for`` over ``asyncio.shield``
when its time is over, leaves no trace. The run would count as waiting until the other one ends, and
that one could not wait for it: `deadlocks` would refuse a wait that ends.

A future that nothing waits for has no callback. The callback of a task that awaits it belongs to
that task, which in turn is waited for or not, up to the run's own task; likewise that of ``shield``
or ``gather``. Any other, as of a node of LangGraph, counts as waiting. A run that waits for a task
in the background only by an event that the task sets is taken for one that goes on: it is better to
miss a deadlock than to refuse a wait that ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from rxlanggraph.bridge.deadlocks import Waiter
from rxlanggraph.concurrency import interpreter

__all__ = ["RunWait", "TaskWait"]


class _InTask(Protocol):
    task: asyncio.Task[None] | None
    """That of the run, once it has begun."""


class TaskWait:
    """One wait that begins now, in the running task.

    Args:
        run: The run that this code belongs to.
        future: What is awaited; None if that is not known.
    """

    # All written once.
    def __init__(self, run: _InTask, future: asyncio.Future[Any] | None = None) -> None:
        self._run = run
        self._future = future
        running = asyncio._get_running_loop()
        self._task = None if running is None else asyncio.current_task(running)

    def is_over(self) -> bool:
        """Whether the run does not wait any more. Any thread; never blocks."""
        itself, task, future = self._run.task, self._task, self._future
        if not interpreter.can_look_into(_loop_of(task, future)):
            return False
        if itself is None or (task is not None and asyncio.current_task(task.get_loop()) is task):
            return False  # in the step in which the wait begins: what is to wait comes after that
        if future is not None:
            return not _is_waited_for(_without_own(future), itself)
        return task is not None and task is not itself and not _is_waited_for(_of(task), itself)


def _loop_of(
    task: asyncio.Task[Any] | None, future: asyncio.Future[Any] | None
) -> asyncio.AbstractEventLoop | None:
    awaited = task if future is None else future
    return None if awaited is None else awaited.get_loop()


class RunWait(TaskWait):
    """A wait for another run: `deadlocks.Awaited`.

    Args:
        run: The run that this code belongs to.
        awaited: The run that it waits for.
        callback: What ``asyncio.wrap_future`` has attached to that, if it is awaited in this way.
    """

    def __init__(
        self, run: _InTask, awaited: Waiter, callback: Callable[..., object] | None = None
    ) -> None:
        cells = (cell.cell_contents for cell in getattr(callback, "__closure__", None) or ())
        super().__init__(run, next(filter(asyncio.isfuture, cells), None))
        self.awaited = awaited


_Callback = Callable[..., object]


def _is_waited_for(callbacks: Iterable[_Callback], itself: asyncio.Task[None]) -> bool:
    """Whether what has these callbacks is waited for by ``itself``, or by something unknown."""
    due, seen = list(callbacks), set[asyncio.Future[Any]]()
    while due:
        others = _those_behind(due.pop())
        if others is None or itself in others:
            return True
        for each in others:
            if each not in seen:
                seen.add(each)
                due += _of(each)
    return False


def _those_behind(callback: _Callback) -> list[asyncio.Future[Any]] | None:
    """The futures that wait if this callback waits; None if it does, as far as can be told."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return [owner]
    if isinstance(owner, set):
        return []  # it keeps tasks in the background, as asyncio's documentation advises
    if owner is not None or getattr(callback, "__module__", "") != "asyncio.tasks":
        return None
    # Of shield, gather and wait: it leads to the future that they return, or await. One that knows
    # of tasks alone, or of nothing, is there for asyncio's own reports.
    cells = [cell.cell_contents for cell in getattr(callback, "__closure__", None) or ()]
    futures = [each for each in cells if asyncio.isfuture(each)]
    waiting = [each for each in futures if not isinstance(each, asyncio.Task)]
    return waiting if waiting or len(futures) == len(cells) else None


def _of(future: asyncio.Future[Any]) -> list[_Callback]:
    # Not public, and there is no public way. The futures of asyncio have it, in C and in Python; a
    # future without it counts as waited for.
    callbacks = getattr(future, "_callbacks", ((_unknown, None),))
    return [callback for callback, _ in callbacks or ()]


def _unknown() -> None:
    """Stand for callbacks that cannot be read."""


def _without_own(future: asyncio.Future[Any]) -> Iterable[_Callback]:
    """The callbacks of ``future``, but for those by which it passes its own cancellation on."""
    return (each for each in _of(future) if getattr(each, "__module__", "") != "asyncio.futures")
