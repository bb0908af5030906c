"""Who waits for whom, where runs wait for runs: a circle is refused to whoever would close it.

What breaks without it: a node that sends a message to its own thread and waits for the answer, or
parents that hold every slot and wait for children, stand still for ever without a word.

A run that waits goes on when each run that it waits for has ended. A run that has begun ends,
unless it waits itself. One that has not begins when nobody on its thread has to end before, its
group has room, and its bridge a slot; so what it needs is that not all of those who hold these wait
for ever. The largest set of waiting runs in which each needs the others is the deadlock. It can
only come about by a wait that begins, and so it is looked for then, and nowhere else.

Of all bridges together, as circles may go through several. What waits in the context of a run waits
for it, with a time-out or without; what a node starts outside of its context is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rxlanggraph.errors import DeadlockError
from rxlanggraph.forking import fork_safe_rlock

__all__ = ["Room", "Waiter", "begin_wait", "end_wait", "waiting"]


class _Place(Protocol):
    """The bridge of a run."""

    max_concurrency: int


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
        # A run that ended, and left something behind that waits, holds nothing any more.
        stuck = {each for each in _waits if each.running()}
        if not run.running() or _comes(target, stuck):
            return
        while freed := {each for each in stuck if _goes_on(each, stuck)}:
            stuck -= freed
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


@contextmanager
def waiting(run: Waiter | None, target: Waiter | Room) -> Iterator[None]:
    """A block in which ``run``, if there is one, waits for ``target``.

    Raises:
        DeadlockError: It would wait for ever.
    """
    if run is None:
        yield
        return
    begin_wait(run, target)
    try:
        yield
    finally:
        end_wait(run, target)


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
    if run.running():
        return run not in stuck
    return not (_lane_is_stuck(run, stuck) or _slots_are_stuck(run, stuck))


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
            "with a larger max_pending, or send from outside of runs"
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
