"""AwaitedStream: detects that a run awaits a stream that can never emit.

What breaks without it: a node that awaits a stream of its own bridge holds a slot, and perhaps a
thread, that the runs of the stream need. If that was the last one, both wait forever. `deadlocks`
detects waits for single runs, but not waits for a stream, which happen inside RxPY.

A run awaits a stream if it subscribes with ``await source.pipe(...)``, with ``source.run()``, or
through a `StreamListener`. The stream can still emit if one of its current runs can end or, while
its source is active, a future run can. This is checked when a run arrives at a stream that has no
others, when a run has ended, and when the source ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from reactivex import abc

from rxlanggraph.bridge.admission import Reservation
from rxlanggraph.bridge.deadlocks import (
    Waiter,
    begin_wait,
    blocked_here,
    end_wait,
    is_waiting,
    review,
)
from rxlanggraph.bridge.operators.on_loop import loop_behind
from rxlanggraph.bridge.operators.readers import StreamListener, listener_here
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.bridge.task_waits import TaskWait
from rxlanggraph.errors import DeadlockError

__all__ = ["AwaitedStream", "is_of_run", "waiters_for"]


# A guess: a few of the oldest runs of a stream, of which one is mostly at work.
_FEW = 4


class _NextRun:
    """The run of the source's next item, as far as `deadlocks` wants to know it."""

    lane = None
    lane_label = ""
    label = "the next run of a stream"

    def __init__(self, inbox: Any, group: Any) -> None:
        self.inbox = inbox
        self.group = group

    def ahead(self) -> Iterable[Waiter]:
        return ()

    def room(self) -> None:
        return None

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return False


class AwaitedStream:
    """One subscription that a run awaits, or the thread of an event loop: a `deadlocks.AnyOf`.

    Args:
        inbox: That of its bridge.
        group: The concurrency group of the subscription.
        pending: Returns its unfinished runs, so many of them or all, and whether more may come;
            None while a result is on its way. Takes the bridge's lock.
        fail: Ends the subscription with an error.
        waiters: What waits until it is over.
        listener: What waits for its next item, if that is another thing.
    """

    def __init__(
        self,
        inbox: Any,
        group: Any,
        pending: Callable[[int | None], tuple[list[Run], bool] | None],
        fail: Callable[[BaseException], object],
        waiters: Iterable[Waiter],
        *,
        listener: StreamListener | None,
    ) -> None:
        self._next_run: Waiter = _NextRun(inbox, group)
        self._group = group
        self._pending = pending
        self._fail = fail
        self._waiters = tuple(waiters)
        self._listener = listener
        self._unread = int if listener is None else listener.unread
        if listener is not None:
            listener.attach(self)
        run = current_run()
        self._wait = None if run is None else TaskWait(run)
        for waiter in self._waiters:
            begin_wait(waiter, self)

    def any_of(self) -> Iterable[Waiter] | None:
        """See `deadlocks.AnyOf`."""
        # Mostly one of the first will do, of any number.
        found = self._pending(_FEW)
        if found is None or self._unread():
            return None  # there is something already
        first, _ = found
        # Without runs nothing is known of a source yet, unless it waits for room.
        return self._each(first) if first or self._next_run.room() is not None else None

    def _each(self, first: list[Run]) -> Iterator[Waiter]:
        yield from first
        runs, goes_on = self._pending(None) or ([], True)
        yield from runs
        if goes_on:
            yield self._next_run

    @property
    def remedy(self) -> str:
        """See `deadlocks.AnyOf`."""
        if self._next_run.room() is not None:
            return (
                "for a result of a stream, because its source waits for room (max_pending), which "
                "only runs have that this one, or others that wait, hold up; make the bridge with "
                "a larger max_pending, or send the messages of those runs to other threads"
            )
        return (
            "for a result of a stream, because none of its runs can begin and end before it; raise "
            "max_concurrency above the number of runs that wait, have runs of this kind on a "
            "bridge of their own, send its messages to other threads or none, or do not wait for "
            "the stream; and in the thread of an event loop use 'await' instead of run()"
        )

    def fed_by(self, item: Reservation) -> None:
        """Note that its source is pulled, and waits for room for ``item``. Before it emits."""
        item.group = self._group
        self._next_run = item

    def is_over(self) -> bool:
        """See `deadlocks.Awaited`: whether the run that has subscribed does not wait any more."""
        return self._wait is not None and self._wait.is_over()

    def refuse(self, error: DeadlockError) -> None:
        """See `deadlocks.AnyOf`. Calls the observer's ``on_error``."""
        self._fail(error)

    def changed(self) -> None:
        """Look whether it may still be waited for. Any thread, without a lock."""
        oldest, _ = self._pending(1) or ([], True)
        # One that is at work will end, and be looked at then. With none, there is nothing to refuse
        # but the wait of a source for room.
        if any(not run.running() or is_waiting(run) for run in oldest) or (
            not oldest and self._next_run.room() is not None
        ):
            review()

    def end(self) -> None:
        """Note that it is over. Any thread; never blocks."""
        for waiter in self._waiters:
            end_wait(waiter, self)
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.detach(self)


def waiters_for(
    scheduler: abc.SchedulerBase | None,
) -> tuple[list[Waiter], StreamListener | None] | None:
    """Return what awaits the stream that is being subscribed to, and how; None if nothing does.

    Args:
        scheduler: That of the subscription, by which RxPY's own ways to wait are recognized.
    """
    run, listener = current_run(), listener_here()
    if listener is not None:
        if run is None:
            return None
        return ([run], None) if listener.throughout else ([], listener)
    if loop_behind(scheduler) is not None:
        return None if run is None else ([run], None)
    if is_of_run(scheduler) and _is_in_run():
        here = blocked_here(run)
        return (here, None) if here else None
    return None


def is_of_run(scheduler: abc.SchedulerBase | None) -> bool:
    """Whether ``Observable.run`` subscribes with this scheduler. Any thread; never blocks."""
    # It passes this one object; other code has no reason to. Not imported before.
    own = getattr(sys.modules.get("reactivex.run"), "_default_scheduler", None)
    return scheduler is not None and scheduler is own


def _is_in_run() -> bool:
    """Whether ``Observable.run`` blocks this thread: inner streams inherit its scheduler elsewhere.

    Those of ``concat_map``, ``flat_map`` and others, which subscribe where a result arrives.
    """
    code = sys.modules["reactivex.run"].run.__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
