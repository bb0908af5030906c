"""Who waits for whom, where runs wait for runs: a circle is refused to whoever would close it.

What breaks without it: a node that sends a message to its own thread and waits for the answer, or
parents that hold every slot and wait for children, stand still for ever without a word.

A run that waits goes on when each run that it waits for has ended. A run that has begun ends,
unless it waits itself. One that has not begins when nobody on its thread has to end before, its
group has room, and its bridge a slot; so what it needs is that not all of those who hold these wait
for ever. The largest set of waiting runs in which each needs the others is the deadlock. It comes
about by a wait that begins, and is looked for then; or by a run that takes room without waiting for
it, from under those who wait for room already: see `review`.

Whoever waits in the thread of an event loop has that loop stand still: then no run on it begins or
ends before what is waited for. So the loop itself is one that waits, run or no run.

Of all bridges together, as circles may go through several. What waits in the context of a run waits
for it, with a time-out or without; what a node starts outside of its context is not known here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import DeadlockError

__all__ = ["Room", "Waiter", "begin_wait", "end_wait", "waiting"]


class _Place(Protocol):
    """The bridge of a run."""

    @property
    def max_concurrency(self) -> int:
        """How many of its runs may be on at once."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that they run on, once it is there."""


class Waiter(Protocol):
    """What is looked at of a run. Phases only go forward, so a late look errs on the safe side."""

    @property
    def label(self) -> str:
        """What it is, for people."""

    @property
    def place(self) -> _Place:
        """The bridge that it runs on."""

    @property
    def group(self) -> Any:
        """The subscription whose bound it shares, with its ``limit``; or None."""

    @property
    def thread_id(self) -> str | None:
        """The thread that it runs on."""

    def ahead(self) -> Iterable[Waiter]:
        """Those that have to end before it is handed over to its loop."""

    def running(self) -> bool:
        """Whether it has begun and not ended."""

    def done(self) -> bool:
        """Whether its future is resolved."""


class Room(Protocol):
    """Places for runs that have not begun, of which one is waited for."""

    def crowd(self) -> tuple[list[Waiter], int]:
        """The runs that have a place, or get one before, and how many of them may keep it.

        If more of them may not begin, the place that is waited for may never come.
        """

    def refuse(self, error: DeadlockError) -> None:
        """Have whoever waits for the place raise ``error``, unless it has come. Never blocks."""


@dataclass(frozen=True)
class _StandingLoop:
    """An event loop in whose thread somebody waits. A waiter, and its own place."""

    loop: asyncio.AbstractEventLoop
    max_concurrency = sys.maxsize
    group = None
    thread_id = None

    @property
    def label(self) -> str:
        return f"the event loop {self.loop!r}"

    @property
    def place(self) -> _Place:
        return self

    def ahead(self) -> Iterable[Waiter]:
        return ()

    def running(self) -> bool:
        return True

    def done(self) -> bool:
        return False


# A lock of its own, held over the search, and under it at most that of a bridge. Guards _waits.
_lock = fork_safe_rlock()
# What each run waits for; more than once, if several of its nodes wait.
_waits: dict[Waiter, list[Waiter | Room]] = {}


def begin_wait(run: Waiter, target: Waiter | Room) -> None:
    """Say that ``run`` is about to wait for ``target``, until `end_wait`. Any thread.

    Raises:
        DeadlockError: It would wait for ever.
    """
    with _lock:
        _waits.setdefault(run, []).append(target)
        if not run.running() or _comes(target, _who_waits()):
            return
        stuck = _who_is_stuck()
        if run not in stuck:
            return
        end_wait(run, target)
        reason = _reason(run, target, stuck)
    raise DeadlockError(reason)


def end_wait(run: Waiter, target: Waiter | Room) -> None:
    """Say that ``run`` does not wait for ``target`` any more. Any thread; never blocks."""
    with _lock:
        targets = _waits.get(run, [])
        if target in targets:
            targets.remove(target)
        if not targets:
            _waits.pop(run, None)


def review() -> None:
    """Refuse whoever waits for room that does not come any more. Any thread; never blocks.

    For what takes room without waiting: those who wait for it already began when it still came.
    """
    while _waits:
        with _lock:
            stuck = _who_is_stuck()
            rooms = (
                (run, target)
                for run in stuck
                for target in _waits[run]
                if hasattr(target, "crowd") and not _comes(target, stuck)
            )
            lost = next(rooms, None)
            if lost is None:
                return
            run, room = lost
            reason = _reason(run, room, stuck)
            for each in [each for each in _waits if room in _waits[each]]:
                end_wait(each, room)
        room.refuse(DeadlockError(reason))  # type: ignore[union-attr]  # it has a crowd


@contextmanager
def waiting(run: Waiter | None, target: Waiter | Room) -> Iterator[None]:
    """A block in which ``run``, if there is one, blocks its thread, to wait for ``target``.

    Raises:
        DeadlockError: It would wait for ever, or an event loop in whose thread this is.
    """
    loop = asyncio._get_running_loop()
    begun: list[Waiter] = []
    try:
        for waiter in (run, None if loop is None else _StandingLoop(loop)):
            if waiter is not None:
                begin_wait(waiter, target)
                begun.append(waiter)
        yield
    finally:
        for waiter in begun:
            end_wait(waiter, target)


def _who_waits() -> set[Waiter]:
    # A run that ended, and left something behind that waits, holds nothing any more.
    return {each for each in _waits if each.running()}


def _who_is_stuck() -> set[Waiter]:
    """The largest set of those that wait in which each needs the others. Under the lock."""
    stuck = _who_waits()
    while freed := {each for each in stuck if _goes_on(each, stuck)}:
        stuck -= freed
    return stuck


def _goes_on(run: Waiter, stuck: set[Waiter]) -> bool:
    return all(_comes(target, stuck) for target in _waits[run])


def _comes(target: Waiter | Room, stuck: set[Waiter]) -> bool:
    """Whether what is waited for comes, if all runs but those in ``stuck`` end."""
    if not hasattr(target, "crowd"):
        return _ends(target, stuck)
    crowd, may_stay = target.crowd()
    return sum(not _ends(each, stuck) for each in crowd) <= may_stay


def _ends(run: Waiter, stuck: set[Waiter]) -> bool:
    if run.done():
        return True
    if _loop_is_stuck(run, stuck):
        return False
    if run.running():
        return run not in stuck
    return (
        all(_ends(each, stuck) for each in run.ahead())
        and not _lane_is_stuck(run, stuck)
        and not _slots_are_stuck(run, stuck)
    )


def _loop_is_stuck(run: Waiter, stuck: set[Waiter]) -> bool:
    loop = run.place.loop
    return loop is not None and _StandingLoop(loop) in stuck


def _lane_is_stuck(run: Waiter, stuck: set[Waiter]) -> bool:
    thread_id, place = run.thread_id, run.place
    return thread_id is not None and any(
        each.thread_id == thread_id and each.place is place for each in stuck
    )


def _slots_are_stuck(run: Waiter, stuck: set[Waiter]) -> bool:
    group, place = run.group, run.place
    if sum(each.place is place for each in stuck) >= place.max_concurrency:
        return True
    return group is not None and sum(each.group is group for each in stuck) >= group.limit


def _reason(run: Waiter, target: Waiter | Room, stuck: set[Waiter]) -> str:
    would, what = f"{run.label} would wait for ever", getattr(target, "label", "")
    if hasattr(target, "crowd"):
        return (
            f"{would}: for room among those that wait for their start (max_pending), which there "
            "is only when runs begin that this one, or others that wait, hold up; make the bridge "
            "with a larger max_pending, or send from outside of runs, and not in the thread of an "
            "event loop"
        )
    if _loop_is_stuck(target, stuck) or isinstance(run, _StandingLoop):
        return (
            f"{would}: for {what}, which ends only when an event loop goes on that stands still, "
            "as somebody waits in its thread; 'await' there, instead of result() or exception()"
        )
    if target.running():
        return (
            f"{would}: for {what}, which waits for it, itself or through others; let one of "
            "them go on without the other's result"
        )
    if _lane_is_stuck(target, stuck):
        return (
            f"{would}: for {what}, which begins when the one before it on the thread "
            f"{target.thread_id!r} has ended, which waits; send it without waiting for it, or with "
            "another thread_id or none"
        )
    return (
        f"{would}: for {what}, which has not begun, while all runs that hold a slot wait as "
        "well; raise max_concurrency above the number of runs that wait, have runs of this kind "
        "on a bridge of their own, or send them without waiting for them"
    )
