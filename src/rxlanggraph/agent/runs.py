"""What a run of an agent has started: its messages, its tasks, and the runs within it.

What breaks without it: a run that failed leaves half a turn in the memory, and tasks that go on
writing; one that will not be cancelled keeps its caller beyond every deadline; and an agent that is
asked by its own step, directly or through others, waits for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from rxlanggraph.agent.memory import Memory
from rxlanggraph.errors import RunTimeoutError
from rxlanggraph.stacks import context_of

__all__ = ["deadline", "is_within", "one_run", "see_through"]

_log = logging.getLogger("rxlanggraph")
_CANCEL_SECONDS = 5.0
_T = TypeVar("_T")


class _Run:
    """One run, known to all that it has started, through their context."""

    __slots__ = ("outer", "over", "owner")

    def __init__(self, owner: object, outer: _Run | None) -> None:
        self.owner = owner
        self.outer = outer
        self.over = False  # set once, by the run itself; read by any thread

    def chain(self) -> Iterator[_Run]:
        """This run, and those that it is part of."""
        run: _Run | None = self
        while run is not None:
            yield run
            run = run.outer


_current: ContextVar[_Run | None] = ContextVar("rxlanggraph_agent_run", default=None)


def is_within(owner: object) -> bool:
    """Whether this code was started by a run of ``owner`` that is still on. Any thread."""
    run = _current.get()
    return run is not None and any(r.owner is owner and not r.over for r in run.chain())


@contextlib.asynccontextmanager
async def one_run(owner: object, memory: Memory) -> AsyncIterator[None]:
    """Be a run of ``owner`` for a block.

    What the block adds to ``memory`` is added at its end, in one go. If it does not end well,
    nothing is added, and what it has started and not awaited is cancelled, and waited for.
    """
    outer = _current.get()
    while outer is not None and outer.over:  # or runs that start each other would make a long chain
        outer = outer.outer
    run = _Run(owner, outer)
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


async def _end_tasks(run: _Run) -> None:
    """Cancel what ``run`` has started and not awaited, and wait for its end."""
    own = asyncio.current_task()
    while left := [task for task in _tasks.of(run) if task is not own and not task.done()]:
        for task in left:
            task.cancel()
        if await _wait_out(left):
            return


async def _wait_out(tasks: Collection[asyncio.Task[Any]]) -> Collection[asyncio.Task[Any]]:
    """Wait for cancelled ``tasks``, also if cancelled meanwhile; return, and name, who stays."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _CANCEL_SECONDS
    while tasks and (rest := until - loop.time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):  # the caller is about to raise anyway
            await asyncio.wait(tasks, timeout=rest)
        tasks = [task for task in tasks if not task.done()]
    for task in tasks:
        _log.warning("%r was cancelled with its run, and goes on", task)
    return tasks


class _TasksOfRuns(threading.local):
    """Which tasks of this thread's loop belong to which run.

    asyncio knows all tasks, and each its context. To look at all of them for each of a thousand
    runs that fail together would freeze the loop: so one look serves a whole turn of the loop.
    """

    def __init__(self) -> None:
        self._seen: dict[_Run, list[asyncio.Task[Any]]] | None = None

    def of(self, run: _Run) -> list[asyncio.Task[Any]]:
        if self._seen is None:
            loop = asyncio.get_running_loop()
            self._seen = defaultdict(list)
            for task in asyncio.all_tasks(loop):
                innermost = context_of(task).get(_current)
                for each in () if innermost is None else innermost.chain():
                    self._seen[each].append(task)
            loop.call_soon(self._forget)
        return self._seen.get(run, [])

    def _forget(self) -> None:
        self._seen = None


_tasks = _TasksOfRuns()


@contextlib.asynccontextmanager
async def deadline(whose: str, seconds: float) -> AsyncIterator[None]:
    """Have the block end in time; ``math.inf`` for ever.

    Raises:
        RunTimeoutError: It was cancelled, since it did not.
    """
    timeout = asyncio.timeout(None if seconds == math.inf else seconds)
    try:
        async with timeout:
            yield
    except TimeoutError as error:
        if not timeout.expired():
            raise  # the block's own
        raise _out_of_time(whose, seconds) from error


async def see_through(whose: str, work: Coroutine[Any, Any, _T], seconds: float) -> _T:
    """Await ``work``, which has a `deadline`, in a task of its own.

    Cancelled, cancels it. One that will not end then is left behind, and named in the log.

    Raises:
        RunTimeoutError: It is out of time, was cancelled, and has not ended.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(_look_at)
    limit = None if seconds == math.inf else seconds + _CANCEL_SECONDS
    try:
        await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        task.cancel()
        await _wait_out([task])
        raise
    if task.done():
        return task.result()
    _log.warning("%r is over its time, was cancelled, and goes on", task)
    raise _out_of_time(whose, seconds)


def _out_of_time(whose: str, seconds: float) -> RunTimeoutError:
    return RunTimeoutError(f"the run of agent {whose!r} did not end within {seconds} s")


def _look_at(task: asyncio.Task[Any]) -> None:
    """Or asyncio complains, of a task that was left behind, that nobody has."""
    if not task.cancelled():
        task.exception()
