"""AwaitedStream: a run awaits a stream of results, and is told if none can ever come.

What breaks without it: a node that awaits a stream through its own bridge holds a slot, and
perhaps a thread, that the runs of that stream need. If it holds the last one, both wait for ever.
`deadlocks` sees waits for runs by themselves; a wait for a stream it cannot see, as it is RxPY's.

A stream is awaited in a run if that run subscribes by ``await source.pipe(...)``, by
``source.run()``, or by what `Listener` is for. The next result comes if any of the runs can end
that the stream has at the moment, or, while its source goes on, that it may have next. This is
looked at when a run arrives that is the only one, when one has ended, and when the source ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from reactivex import abc

from rxlanggraph.bridge.deadlocks import Waiter, begin_wait, blocked_here, end_wait, review
from rxlanggraph.bridge.operators.on_loop import loop_behind
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.errors import DeadlockError

__all__ = ["AwaitedStream", "Listener", "waiters_for"]


class Listener:
    """Who subscribes to a stream in order to wait for it, in ways that RxPY does not have.

    Args:
        throughout: Whether it waits from the subscription until the end of the stream, instead of
            in blocks of `waiting`.
    """

    def __init__(self, *, throughout: bool) -> None:
        self.run = current_run()
        self.throughout = throughout
        # Written while it subscribes, in that thread; read by the same run.
        self.streams: list[AwaitedStream] = []

    @contextmanager
    def subscribing(self) -> Iterator[None]:
        """A block in which it subscribes."""
        token = _listener.set(self)
        try:
            yield
        finally:
            _listener.reset(token)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block in which it waits for the next item.

        Raises:
            DeadlockError: It would wait forever.
        """
        begun: list[AwaitedStream] = []
        try:
            if self.run is not None:
                for stream in self.streams:
                    begin_wait(self.run, stream)
                    begun.append(stream)
            yield
        finally:
            for stream in begun:
                end_wait(self.run, stream)  # type: ignore[arg-type]  # there is one


# Contexts are copied, into runs for example. So it counts only in the run that has set it.
_listener: ContextVar[Listener | None] = ContextVar("rxlanggraph_listener", default=None)


class _NextRun:
    """The run of the source's next item, as far as `deadlocks` wants to know it."""

    lane = None
    lane_label = ""
    label = "the next run of a stream"

    def __init__(self, place: Any, group: Any) -> None:
        self.place = place
        self.group = group

    def ahead(self) -> Iterable[Waiter]:
        return ()

    def running(self) -> bool:
        return False

    def done(self) -> bool:
        return False


class AwaitedStream:
    """One subscription that a run awaits, or the thread of an event loop: a `deadlocks.Room`.

    Args:
        place: The inbox of its bridge.
        group: The concurrency group of the subscription.
        pending: Returns its unfinished runs, and whether more may come. Takes the bridge's lock.
        fail: Ends the subscription with an error.
        waiters: What waits until it is over.
    """

    remedy = (
        "for a result of a stream, none of whose runs can begin and end before it; raise "
        "max_concurrency above the number of runs that wait, have runs of this kind on a bridge of "
        "their own, send its messages to other threads or none, or do not wait for the stream; and "
        "in the thread of an event loop use 'await' instead of run()"
    )

    def __init__(
        self,
        place: Any,
        group: Any,
        pending: Callable[[], tuple[list[Run], bool]],
        fail: Callable[[BaseException], object],
        waiters: Iterable[Waiter],
    ) -> None:
        self._next_run = _NextRun(place, group)
        self._pending = pending
        self._fail = fail
        self._waiters = tuple(waiters)
        for waiter in self._waiters:
            begin_wait(waiter, self)

    def crowd(self) -> tuple[list[Waiter], int]:
        """See `deadlocks.Room`."""
        runs, goes_on = self._pending()
        crowd: list[Waiter] = [*runs]
        if not crowd:
            return [], 0  # nothing is known yet
        if goes_on:
            crowd.append(self._next_run)
        return crowd, len(crowd) - 1

    def refuse(self, error: DeadlockError) -> None:
        """See `deadlocks.Room`. Calls the observer's ``on_error``."""
        self._fail(error)

    def changed(self) -> None:
        """Look whether it may still be waited for. Any thread, without a lock."""
        review()

    def end(self) -> None:
        """Note that it is over. Any thread; never blocks."""
        for waiter in self._waiters:
            end_wait(waiter, self)


def waiters_for(scheduler: abc.SchedulerBase | None) -> tuple[list[Waiter], Listener | None] | None:
    """Return what awaits the stream that is being subscribed to, and how; None if nothing does.

    Args:
        scheduler: That of the subscription, by which RxPY's own ways to wait are recognized.
    """
    run, listener = current_run(), _listener.get()
    if listener is not None and listener.run is run:
        if run is None:
            return None
        return ([run], None) if listener.throughout else ([], listener)
    if loop_behind(scheduler) is not None:
        return None if run is None else ([run], None)
    if scheduler is not None and scheduler is _scheduler_of_run():
        here = blocked_here(run)
        return (here, None) if here else None
    return None


def _scheduler_of_run() -> object:
    # ``Observable.run`` passes this one object; other code has no reason to. Not imported before.
    return getattr(sys.modules.get("reactivex.run"), "_default_scheduler", asyncio)
