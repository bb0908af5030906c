"""Deadlock detection: a wait that would close a cycle of runs waiting for runs is refused.

What breaks without it: a node that sends a message to its own thread and waits for the answer, or
parents that hold every slot and wait for children, hang forever without any message.

Rules:

1. A run that has begun ends, unless it waits. A run that waits continues when each run that it
   waits for has ended.
2. A run that has not begun begins when no run has to end before it on its thread, its group has
   room, and its bridge has a free slot. So it can begin unless all holders of one of these wait
   forever.
3. A deadlock is the largest set of waiting runs in which each needs the others. It can arise when a
   wait begins, or when a run takes room ahead of those that wait for room, or the source of a
   stream that is awaited waits for room (see `review`); so it is searched for then.
4. A wait that blocks the thread of an event loop stops that loop: until the awaited run has ended,
   no run on the loop begins or ends, and what the loop reads or pulls goes no further. So the loop
   itself counts as a waiter, with or without a run, and `ahead` of a run may name it.
   Where a bridge calls graphs on several loops, a wait that would block one of those is refused.

All bridges are covered together, as cycles may span several. A wait in the context of a run counts
as that run's, with or without a timeout, until it ends or is given up (see `task_waits`); what a
node starts outside of its context is not known.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import BlockingCallError, DeadlockError

__all__ = [
    "AnyOf",
    "Awaited",
    "LoopThread",
    "Room",
    "Target",
    "Waiter",
    "begin_wait",
    "blocked_here",
    "dedicate",
    "dedicated_to",
    "end_wait",
    "is_waiting",
    "review",
    "waiting",
]


class _Inbox(Protocol):
    """The bridge of a run."""

    @property
    def max_concurrency(self) -> int:
        """How many of its runs may be active at once."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that they run on, once it exists."""


class Waiter(Protocol):
    """What the detector reads of a run. Phases only advance, so a late read is on the safe side."""

    @property
    def label(self) -> str:
        """What it is called in messages for people."""

    @property
    def inbox(self) -> _Inbox:
        """The bridge that it runs on."""

    @property
    def group(self) -> Any:
        """The subscription whose concurrency limit it shares, with its ``limit``; or None."""

    @property
    def lane(self) -> Hashable:
        """What it has to itself while it runs: its thread_id, or its subscription has one."""

    @property
    def lane_label(self) -> str:
        """What its lane is called in messages for people."""

    def ahead(self) -> Iterable[Waiter]:
        """The runs that have to end, and loops that have to turn, before its loop gets it."""

    def room(self) -> Room | None:
        """The room that has to be found for it before it exists; None for a run, which does."""

    def running(self) -> bool:
        """Whether it has begun and not ended."""

    def done(self) -> bool:
        """Whether its future is resolved."""


class _Refusable(Protocol):
    """What is waited for when it is not a single run."""

    @property
    def remedy(self) -> str:
        """What is waited for, and what to do, for people to read after "would wait forever "."""

    def refuse(self, error: DeadlockError) -> None:
        """Make the wait for it raise ``error``, unless it has succeeded. Never blocks."""


class AnyOf(_Refusable, Protocol):
    """Any one of some runs: the next result of a stream."""

    def any_of(self) -> Iterable[Waiter] | None:
        """The runs, one of which has to end; None if the wait may succeed anyway."""


class Room(_Refusable, Protocol):
    """A limited number of places for runs that have not begun, one of which is waited for."""

    def crowd(self) -> tuple[list[Waiter], int]:
        """The runs that have a place, or get one earlier, and how many of them may keep it.

        If more than that many cannot begin, the awaited place may never become free.
        """


class Awaited(Protocol):
    """What is waited for on a loop. The wait may be given up without notice."""

    awaited: Waiter
    """The run, or the loop."""

    def is_over(self) -> bool:
        """Whether the wait was given up. Other targets may tell this too. Never blocks."""


Target: TypeAlias = "Waiter | Room | AnyOf | Awaited"
"""What a run waits for."""


@dataclass(frozen=True)
class LoopThread:
    """The thread of an event loop, which a wait may block. A waiter, and its own inbox.

    Args:
        loop: The loop.
    """

    loop: asyncio.AbstractEventLoop
    max_concurrency = sys.maxsize
    group = None
    lane = None
    lane_label = ""

    @property
    def label(self) -> str:
        """See `Waiter`."""
        return f"the event loop {self.loop!r}"

    @property
    def inbox(self) -> _Inbox:
        """See `Waiter`."""
        return self

    def ahead(self) -> Iterable[Waiter]:
        """See `Waiter`."""
        return ()

    def room(self) -> None:
        """See `Waiter`."""
        return

    def running(self) -> bool:
        """See `Waiter`."""
        return True

    def done(self) -> bool:
        """See `Waiter`."""
        return False


# A lock of its own, held during the search; at most a bridge's lock is taken under it. Guards
# _waits and _dispensable.
_lock = fork_safe_rlock()
# What each run waits for; several entries if several of its nodes wait.
_waits: dict[Waiter, list[Target]] = {}
# The attribute of a loop, see `dedicate`.
_DEDICATED = "_rxlanggraph_dedicated_to"
# What runs wait for and can do without, and what to call when they have to.
_dispensable: dict[Waiter, tuple[Target, Callable[[], object]]] = {}


def begin_wait(
    run: Waiter,
    target: Target,
    go_on: Callable[[], object] | None = None,
    *,
    refused_last: bool = False,
) -> None:
    """Record that ``run`` is about to wait for ``target``, until `end_wait`. Any thread.

    Args:
        run: What waits.
        target: What it waits for.
        go_on: For a wait that ``run`` can do without: ends it, and is called when the wait turns
            out to be in a deadlock later on. Never blocks.
        refused_last: Whether waits for room, or for a stream, are refused before this one.

    Raises:
        DeadlockError: It would wait forever.
    """
    with _lock:
        _waits.setdefault(run, []).append(target)
        if go_on is not None:
            _dispensable[run] = target, go_on
        if not run.running() or _comes(target, _who_waits()):
            return
        stuck = _who_is_stuck()
        if run in stuck and go_on is None and _end_dispensable(stuck):
            stuck = _who_is_stuck()
        if run not in stuck:
            return
        if not refused_last:
            raise _refused(run, target, stuck)
    review()
    with _lock:
        stuck = _who_is_stuck()
        if run in stuck:
            raise _refused(run, target, stuck)


def _end_dispensable(stuck: set[Waiter]) -> bool:
    """End the waits that some of ``stuck`` can do without, if there are any. Under the lock."""
    others = [each for each in stuck if each in _dispensable]
    for each in others:
        target, go_on = _dispensable.pop(each)
        end_wait(each, target)
        go_on()
    return bool(others)


def _refused(run: Waiter, target: Target, stuck: set[Waiter]) -> DeadlockError:
    """End the wait, and make the error that says why. Under the lock."""
    end_wait(run, target)
    return DeadlockError(_reason(run, target, stuck))


def end_wait(run: Waiter, target: Target) -> None:
    """Record that ``run`` no longer waits for ``target``. Any thread; never blocks."""
    with _lock:
        targets = _waits.get(run, [])
        if target in targets:
            targets.remove(target)
        if not targets:
            _waits.pop(run, None)
        if run in _dispensable and _dispensable[run][0] is target:
            del _dispensable[run]


def is_waiting(run: Waiter) -> bool:
    """Whether ``run`` waits for anything at the moment. Any thread; never blocks."""
    return run in _waits


def review() -> None:
    """Refuse the waits for room, or a stream, that can no longer succeed. Any thread; never blocks.

    Called when a run took room without waiting, a source begins to wait for room, or a stream that
    is awaited has one run less: the waits began when they could still succeed.
    """
    while _waits:
        with _lock:
            stuck = _who_is_stuck()
            rooms = (
                (run, target)
                for run in stuck
                for target in _waits[run]
                if hasattr(target, "refuse") and not (_comes(target, stuck) or _is_over(target))
            )
            lost = next(rooms, None)
            if lost is None:
                return
            run, room = lost
            reason = _reason(run, room, stuck)
            for each in [each for each in _waits if room in _waits[each]]:
                end_wait(each, room)
        room.refuse(DeadlockError(reason))


@contextmanager
def waiting(run: Waiter | None, target: Target) -> Iterator[None]:
    """A block in which ``run``, if there is one, blocks its thread to wait for ``target``.

    Raises:
        DeadlockError: The run, or the event loop of this thread, would wait forever.
    """
    begun: list[Waiter] = []
    try:
        for waiter in blocked_here(run):
            begin_wait(waiter, target)
            begun.append(waiter)
        yield
    finally:
        for waiter in begun:
            end_wait(waiter, target)


def dedicate(loop: asyncio.AbstractEventLoop, inbox: object) -> None:
    """Note that the bridge of ``inbox`` calls graphs on ``loop``, beside its own. Never blocks."""
    vars(loop)[_DEDICATED] = inbox


def dedicated_to(loop: asyncio.AbstractEventLoop | None) -> object:
    """Return the bridge that ``loop`` was dedicated to, or None. Any thread; never blocks."""
    return getattr(loop, _DEDICATED, None)


def blocked_here(run: Waiter | None) -> list[Waiter]:
    """Return what waits if this thread blocks: ``run``, if any, and its event loop, if any.

    Raises:
        BlockingCallError: The loop is one of several on which a bridge calls graphs. Which runs
            need it is not known before they begin.
    """
    loop = asyncio._get_running_loop()
    if dedicated_to(loop) is not None:
        raise BlockingCallError(
            "waiting in this thread would block an event loop on which graphs are called; use "
            "'await' there, or wait in a thread: asyncio.to_thread(...)"
        )
    here: list[Waiter] = [] if run is None else [run]
    return here if loop is None else [*here, LoopThread(loop)]


def _who_waits() -> set[Waiter]:
    # A run that ended, and left code behind that still waits, no longer holds anything.
    return {each for each in _waits if each.running()}


def _who_is_stuck() -> set[Waiter]:
    """The largest set of waiting runs in which each needs the others. Under the lock."""
    stuck = _who_waits()
    while freed := {each for each in stuck if _goes_on(each, stuck)}:
        stuck -= freed
    return stuck


def _goes_on(run: Waiter, stuck: set[Waiter]) -> bool:
    return all(_comes(target, stuck) or _is_over(target) for target in _waits[run])


def _is_over(target: Target) -> bool:
    """Whether the wait for ``target`` was given up, as far as that can be told."""
    return hasattr(target, "is_over") and target.is_over()


def _run_of(target: Target) -> Waiter:
    return target.awaited if hasattr(target, "awaited") else target  # type: ignore[return-value]


def _comes(target: Target, stuck: set[Waiter]) -> bool:
    """Whether the target is reached if all runs but those in ``stuck`` end."""
    if hasattr(target, "any_of"):
        runs = target.any_of()
        return runs is None or any(_ends(each, stuck) for each in runs)
    if not hasattr(target, "crowd"):
        return _ends(_run_of(target), stuck)
    crowd, may_stay = target.crowd()  # type: ignore[union-attr]  # it has one
    return sum(not _ends(each, stuck) for each in crowd) <= may_stay


def _ends(run: Waiter, stuck: set[Waiter]) -> bool:
    if run.done():
        return True
    if _loop_is_stuck(run, stuck):
        return False
    if run.running():
        return run not in stuck
    room = run.room()
    return (
        (room is None or _comes(room, stuck))
        and all(_ends(each, stuck) for each in run.ahead())
        and not _lane_is_stuck(run, stuck)
        and not _slots_are_stuck(run, stuck)
    )


def _loop_is_stuck(run: Waiter, stuck: set[Waiter]) -> bool:
    loop = run.inbox.loop
    return loop is not None and LoopThread(loop) in stuck


def _lane_is_stuck(run: Waiter, stuck: set[Waiter]) -> bool:
    lane, inbox = run.lane, run.inbox
    return lane is not None and any(each.lane == lane and each.inbox is inbox for each in stuck)


def _slots_are_stuck(run: Waiter, stuck: set[Waiter]) -> bool:
    group, inbox = run.group, run.inbox
    if sum(each.inbox is inbox for each in stuck) >= inbox.max_concurrency:
        return True
    return group is not None and sum(each.group is group for each in stuck) >= group.limit


def _reason(run: Waiter, target: Target, stuck: set[Waiter]) -> str:
    would = f"{run.label} would wait forever"
    if hasattr(target, "remedy"):
        return f"{would} {target.remedy}"
    awaited = _run_of(target)
    what = awaited.label
    if _loop_is_stuck(awaited, stuck) or isinstance(run, LoopThread):
        return (
            f"{would} for {what}, which cannot end while result() or exception() blocks the thread "
            "of an event loop; use 'await' there instead"
        )
    if awaited.running():
        return (
            f"{would} for {what}, which is itself waiting for {run.label}, directly or through "
            "other runs; let one of them go on without the other's result"
        )
    if _lane_is_stuck(awaited, stuck):
        return (
            f"{would} for {what}, which cannot begin until the run ahead of it on "
            f"{awaited.lane_label} ends, and that run is waiting too; do not wait for it, or send "
            "it with another thread_id or none"
        )
    return (
        f"{would} for {what}, which has not begun, and every run that holds a slot is waiting too; "
        "raise max_concurrency above the number of runs that wait, have runs of this kind on a "
        "bridge of their own, or do not wait for them"
    )
