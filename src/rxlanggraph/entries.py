"""What the registry keeps of a task, and what it tells of it.

Standard library only, and nothing here is shared: every object is made, and never changed again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rxlanggraph.errors import BlockingCallError, InvalidTypeError, WrongThreadError

__all__ = [
    "Entry",
    "Outcome",
    "RegistryStatistics",
    "Sweep",
    "TaskInfo",
    "TaskState",
    "Trackable",
    "cancel",
    "check_asyncio",
    "check_may_wait",
    "info_of",
    "outcome_of",
]

Trackable: TypeAlias = "Future[Any] | asyncio.Future[Any]"
Outcome = Literal["succeeded", "failed", "cancelled"]
TaskState = Literal["pending", "running", "cancelling", "finished"]


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task in flight, as it was when the snapshot was taken.

    Attributes:
        id: Counts admissions to this registry from 1; never used twice.
        name: As given to ``add``.
        thread_id: As given to ``add``: the conversation that the task works on.
        age: Seconds since it was admitted.
        state: ``pending`` (not started, or not known to be), ``running``, ``cancelling`` (asked to
            stop, not ended yet) or ``finished`` (about to leave).
    """

    id: int
    name: str | None
    thread_id: str | None
    age: float
    state: TaskState


@dataclass(frozen=True, slots=True)
class RegistryStatistics:
    """Counters of one registry, read in one critical section.

    Attributes:
        submitted: Tasks ever admitted. Always the sum of the next four, unless unfinished tasks
            were discarded by hand: those are counted here alone.
        succeeded: Tasks that left with a result.
        failed: Tasks that left with an exception.
        cancelled: Tasks that left cancelled.
        in_flight: Tasks admitted that have not left.
        peak_in_flight: The largest ``in_flight`` ever.
    """

    submitted: int
    succeeded: int
    failed: int
    cancelled: int
    in_flight: int
    peak_in_flight: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """What left between `TaskRegistry.begin_sweep` and `TaskRegistry.end_sweep`, and what did not.

    Attributes:
        succeeded: Tasks that left with a result.
        failed: Tasks that left with an exception.
        cancelled: Tasks that left cancelled.
        remaining: The tasks still in flight at the end, each with its info.
    """

    succeeded: int
    failed: int
    cancelled: int
    remaining: tuple[tuple[Trackable, TaskInfo], ...]


# What the table keeps of a task: (task, id, name, thread_id, admitted at). A plain tuple: making a
# named one takes five times as long, which is a tenth of a future's whole life in here.
Entry: TypeAlias = "tuple[Trackable, int, str | None, str | None, float]"


def info_of(entry: Entry, now: float) -> TaskInfo:
    """What is told of ``entry`` at the time ``now``. Any thread; without the registry's lock."""
    task, number, name, thread_id, since = entry
    return TaskInfo(number, name, thread_id, now - since, _state_of(task))


def outcome_of(task: Trackable) -> Outcome:
    """How ``task`` ended, which is done. Any thread; takes no lock."""
    # A done future never changes, so its fields may be read without its lock. The public
    # cancelled() and exception() take that lock once each: half the price of the whole registry.
    # Both kinds of future have had these two fields, with these values, since Python 3.2.
    if task._exception is not None:
        return "failed"
    return "succeeded" if task._state == "FINISHED" else "cancelled"


def cancel(task: Trackable) -> None:
    """Ask ``task`` to cancel, through its loop if that is another one. Any thread; never blocks."""
    loop = None if isinstance(task, Future) else _loop_of(task)
    if loop is None or loop is asyncio._get_running_loop():
        task.cancel()
        return
    with contextlib.suppress(RuntimeError):  # a closed loop runs nothing that could be cancelled
        loop.call_soon_threadsafe(task.cancel)


def check_asyncio(task: object) -> None:
    """Insist that ``task``, which is no stock future, is of asyncio and may be added here.

    Raises:
        InvalidTypeError: It is no future.
        WrongThreadError: Its loop runs in another thread.
    """
    if not asyncio.isfuture(task):
        raise InvalidTypeError(
            f"a TaskRegistry tracks futures and tasks, not {task!r}; "
            "start the coroutine first (loop.create_task, run_coroutine_threadsafe)"
        )
    loop = task.get_loop()
    if loop.is_running() and asyncio._get_running_loop() is not loop:
        raise WrongThreadError(
            f"{task!r} belongs to a loop that runs in another thread; add it on that loop, "
            "or hand the coroutine over with run_coroutine_threadsafe and add that future"
        )


def check_may_wait(tasks: Callable[[], Iterable[Trackable]]) -> None:
    """Insist that ``wait_idle`` may block here: on no loop that one of ``tasks()`` needs.

    Raises:
        BlockingCallError: It is one.
    """
    running = asyncio._get_running_loop()
    if running is None:
        return
    for task in tasks():
        if _loop_of(task) is running:
            raise BlockingCallError(
                "wait_idle() would block the event loop that the tasks it waits for run on; "
                "use 'await registry.wait_idle_async()' there"
            )


def _loop_of(task: Trackable) -> asyncio.AbstractEventLoop | None:
    get_loop: Callable[[], asyncio.AbstractEventLoop] | None = getattr(task, "get_loop", None)
    return None if get_loop is None else get_loop()


def _state_of(task: Trackable) -> TaskState:
    if task.cancelled():
        return "cancelling"
    if task.done():
        return "finished"
    if isinstance(task, asyncio.Task):
        return "cancelling" if task.cancelling() else "running"
    return "running" if isinstance(task, Future) and task.running() else "pending"
