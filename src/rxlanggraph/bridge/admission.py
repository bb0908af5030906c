"""AdmissionLimiter: at most ``max_pending`` runs are admitted and not yet started.

What breaks without it: a source that is faster than its graph fills the memory with runs that wait.
If there is no room, the submitter waits, or a run gives way, as `overflow` determines.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from itertools import takewhile
from threading import TIMEOUT_MAX
from typing import Any, Protocol, TypeAlias

from rxlanggraph.bridge.deadlocks import (
    LoopThread,
    Room,
    Waiter,
    begin_wait,
    end_wait,
    review,
    waiting,
)
from rxlanggraph.bridge.overflow import Overflow, drop_order
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.bridge.run_options import ConcurrencyGroup
from rxlanggraph.bridge.task_waits import TaskWait
from rxlanggraph.bridge.time_limits import TimeLimit
from rxlanggraph.concurrency import waiters
from rxlanggraph.concurrency.clock import SYSTEM_CLOCK, Clock, closed_gate
from rxlanggraph.concurrency.interpreter import gil_enabled
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.errors import (
    BacklogFullError,
    DeadlockError,
    LoopUnavailableError,
    RunDroppedError,
    RunRejectedError,
)

__all__ = ["AdmissionLimiter", "Reservation", "next_reservation"]

# How many runs a submitter has to find room for, at least, to be waited for: see `start`. A guess:
# with the time of so many starts, a few switches between threads are not noticed.
_BURST = 16
# Seconds within which a thread wakes up, if the machine has a processor for it.
_WAKING = 0.001
_GIL = gil_enabled()


class _Gate(Protocol):
    """Where one submitter waits: the lock of a thread, or a `_LoopGate`. It is opened once."""

    def release(self) -> object:
        """Open it. Any thread; never blocks. False: its waiter can never continue."""


class _ThreadGate:
    """Where a thread waits."""

    __slots__ = ("_awake", "_open")

    def __init__(self, clock: Clock) -> None:
        self._open = clock.gate()
        self._awake = closed_gate()

    def release(self) -> object:
        """See `_Gate`."""
        return self._open.release()

    def wait(self, timeout: float) -> bool:
        """Wait until it is open; False after ``timeout`` seconds, -1 being no limit. Blocks."""
        try:
            return self._open.acquire(timeout=timeout)
        finally:
            self._awake.release()

    def wait_until_awake(self) -> None:
        """Wait until the thread that it was opened for runs. Any other thread; blocks briefly."""
        self._awake.acquire(timeout=_WAKING)


class _LoopGate:
    """Where a coroutine waits, on its loop."""

    def __init__(self) -> None:
        self._waiter = waiters.Waiter()
        self._waiter.prepare()
        self._pid = os.getpid()

    def release(self) -> bool:
        """See `_Gate`. In a forked child the loop is the parent's, and is left alone."""
        return os.getpid() == self._pid and self._waiter.wake_threadsafe()

    async def wait(self) -> None:
        """Wait until it is open. On its loop."""
        await self._waiter.wait()


class Reservation:
    """Room for the run that the next item of a source leads to, before there is that run.

    What the limiter and `deadlocks` read of a run, they read of this too.
    """

    lane = thread_id = None
    lane_label = ""
    label = "the next item of a source"
    rejection = None
    # The subscription that its items are for, if a run awaits its results. Written once, before the
    # source begins.
    group: ConcurrencyGroup | None = None
    # The loop on which the source is iterated over, if any. Likewise.
    loop: asyncio.AbstractEventLoop | None = None
    # What it waits for. One reference, replaced whole by what waits.
    _room: Room | None = None

    def __init__(self, inbox: Any, admission: AdmissionLimiter) -> None:
        self.inbox = inbox
        self.admission = admission
        self.gone = False  # only ever set, by any thread: nothing follows
        # The thread that emits the item, while it does. Written by that thread.
        self.thread: int | None = None

    def ahead(self) -> Iterable[Waiter]:
        """See `deadlocks.Waiter`."""
        return () if self.loop is None else (LoopThread(self.loop),)

    def room(self) -> Room | None:
        """See `deadlocks.Waiter`."""
        return self._room

    @contextmanager
    def waiting(self, room: Room) -> Iterator[None]:
        """A block in which it waits for ``room``. Any thread; without a lock."""
        self._room = room
        try:
            review()  # a run that awaits the stream of these items may wait forever now
            yield
        finally:
            self._room = None

    def running(self) -> bool:
        """See `deadlocks.Waiter`."""
        return False

    def done(self) -> bool:
        """Whether nothing follows."""
        return self.gone


next_reservation: ContextVar[Reservation | None] = ContextVar(
    "rxlanggraph_next_reservation", default=None
)
"""Where a source emits an item that it got room for: that room."""

_Holder: TypeAlias = Run | Reservation


class AdmissionLimiter:
    """Room for ``limit`` runs that wait to start; what happens beyond it depends on ``overflow``.

    Submitters that wait are served first come, first served. They are woken once a good part of the
    room is free, not for each place: a thread woken for a single place takes it, and blocks again.

    Safe to use from any thread. A signal handler that submits may wait here too: then no lock is
    held.

    Args:
        limit: None for no limit, which costs nothing.
        lock: The lock of the bridge.
        overflow: What happens to a run for which there is no room.
        name: That of the bridge, for errors.
        clock: That of the bridge.
        look_soon: That of the inbox.
    """

    def __init__(
        self,
        limit: int | None,
        lock: threading.RLock,
        overflow: Overflow = "block",
        name: str = "",
        clock: Clock = SYSTEM_CLOCK,
        *,
        look_soon: Callable[[], object] = lambda: None,
    ) -> None:
        self.bounded = limit is not None
        self._look_soon = look_soon
        self.overflow = overflow
        self._name = name
        self._clock = clock
        self._limit = limit or 0
        # Half of the room keeps the loop busy until the submitter has woken up.
        burst = max(1, self._limit // 2)
        self._low = self._limit - burst
        self._waits_for_woken = _GIL and burst >= _BURST
        # The gate of a submitter that was just woken, and is to be waited for. Written under the
        # lock; removed on the loop, without it: a gate that is lost there is not waited for, which
        # does no harm.
        self._woken: _ThreadGate | None = None
        # The lock of the bridge: guards the six below.
        self._lock = lock
        # The runs that have room. May be more than the limit: see hold().
        self._holders: set[_Holder] = set()
        self._gates: deque[tuple[_Gate, _Holder]] = deque()
        self._turned_away: dict[_Holder, LoopUnavailableError | DeadlockError] = {}
        self._closed = False
        self._closing: list[Callable[[], None]] = []  # what is called at each close
        # Those of the holders that may give way to a newer run.
        self._drop_order = drop_order(overflow) if self.bounded else None
        self.may_drop = self._drop_order is not None

    def acquire(self, run: _Holder, *, may_block: bool) -> bool:
        """Take room for ``run``; if there is none, wait. Any thread; blocks if ``may_block``.

        An exception raised during the wait (Ctrl-C) gives the place back. After `close` it returns
        at once: the registry then refuses the run. A run that is cancelled gets no room, and does
        not wait any longer after `withdraw`.

        Returns:
            False if there is no room and ``may_block`` is False; or if the run's own time to wait
            was over first, which is then what has ``expired``.

        Raises:
            LoopUnavailableError: The loop paused during the wait: see `turn_away`.
            DeadlockError: Called in a run, or on a loop, that the room depends on.
        """
        with self._lock:  # one critical section: check and take
            if self._take(run):
                return True
            if not may_block:
                return False
            gate = _ThreadGate(self._clock)
            self._gates.append((gate, run))
        room = _RoomFor(self, gate, run)
        try:
            with lock_released(self._lock), _waiting(run, room):
                limit = _wait_at(gate, run)
        except BaseException:
            self._give_up(gate, run)
            raise
        return self._has_entered(gate, run, limit)

    async def acquire_async(self, run: _Holder) -> bool:
        """Take room for ``run``; if there is none, await it. Any loop, the bridge's own too.

        In the same queue as those that block. Cancelling it gives the place back.

        Returns:
            False if the run's own time to wait was over first, as for `acquire`.

        Raises:
            LoopUnavailableError, DeadlockError: As for `acquire`.
        """
        with self._lock:  # one critical section: check and take
            if self._take(run):
                return True
            gate = _LoopGate()
            self._gates.append((gate, run))
        inside = None if isinstance(run, Reservation) else current_run()
        room = _RoomFor(self, gate, run, None if inside is None else TaskWait(inside))
        try:
            with _awaiting(run, inside, room):
                limit = await _await_at(gate, run)
        except BaseException:
            self._give_up(gate, run)
            raise
        return self._has_entered(gate, run, limit)

    def _take(self, run: _Holder) -> bool:
        """Take room if there is any and no waiter for it. Under the lock."""
        if self._closed or run.done():
            return True
        if len(self._holders) < self._limit and not self._gates:
            self._holders.add(run)
            return True
        return False

    def _give_up(self, gate: _Gate, run: _Holder) -> None:
        with self._lock:
            if (gate, run) in self._gates:
                self._gates.remove((gate, run))
            self._turned_away.pop(run, None)
        self.release(run)

    def _has_entered(self, gate: _Gate, run: _Holder, limit: TimeLimit | None) -> bool:
        """Whether a wait has led to room; it has ended by ``limit``, or the gate is open."""
        with self._lock:
            error = self._turned_away.pop(run, None)
            too_late = limit is not None and (gate, run) in self._gates  # not opened just then
            if too_late:
                self._gates.remove((gate, run))
        if error is not None:
            raise type(error)(*error.args)
        if too_late and isinstance(run, Run):
            run.expired = limit
        return not too_late

    def claim(self, run: Run) -> Run | None:
        """Take room for ``run`` without waiting, from another run if need be. Any thread.

        Returns:
            The run that has to give way: one that had room, which is never started from now on; or
            ``run`` itself. None if there was room.
        """
        with self._lock:  # one critical section: check, take away and take
            if self._closed:
                return None
            loser = None
            if len(self._holders) >= self._limit:
                loser = None if self._drop_order is None else self._drop_order.first(run)
                if loser is None:
                    return run
                self._forget(loser)
                loser.rejection = self._dropped()
            self._holders.add(run)
        return loser

    def expose(self, run: Run) -> None:
        """From now on ``run`` may have to give way, if it still waits. Any thread; never blocks.

        Not from the moment in which it gets room: its submitter has to be done with it first.
        """
        with self._lock:
            if self._drop_order is not None and run in self._holders and not run.downstream:
                self._drop_order.add(run)

    def rejection(self) -> RunRejectedError:
        """Make the error of a run that gets no room. Any thread; never blocks."""
        if self.overflow == "error":
            return BacklogFullError(
                f"the bridge {self._name} is full: max_pending={self._limit} messages are waiting "
                "to start; send this one again later, or make the bridge with a larger "
                "max_pending, or with overflow='block' to wait for room"
            )
        return self._dropped()

    def _dropped(self) -> RunDroppedError:
        return RunDroppedError(
            f"dropped by overflow={self.overflow!r}: the bridge {self._name} already had "
            f"max_pending={self._limit} messages waiting to start"
        )

    def _forget(self, run: _Holder) -> None:
        self._holders.discard(run)
        if self._drop_order is not None:
            self._drop_order.discard(run)

    def crowd(self, gate: _Gate, run: _Holder) -> tuple[list[Waiter], int]:
        """See `deadlocks.Room`: for the room that ``gate`` opens to ``run``. Never blocks."""
        with self._lock:
            if (gate, run) not in self._gates:
                return [], 0  # it is open
            ahead = takewhile(lambda waiting: waiting != (gate, run), self._gates)
            return [*self._holders, *(other for _, other in ahead)], self._low

    def hold(self, run: Run) -> None:
        """Take room for ``run`` even beyond the limit. Any thread; never blocks.

        For runs that must not wait because they will make room: waiting submitters wait longer
        instead.
        """
        with self._lock:
            if not self._closed:
                self._holders.add(run)
            waited_for = bool(self._gates)
        if waited_for:
            with lock_released(self._lock):
                review()

    def pass_on(self, reservation: Reservation, run: Run) -> bool:
        """Give ``run`` the room of ``reservation``, if that is emitting. Any thread; never blocks.

        Where one item leads to several runs, all of them are let in, as in a later stage.
        """
        with self._lock:
            emitting = reservation.thread == threading.get_ident() and reservation.admission is self
            if emitting and not self._closed:
                self._holders.discard(reservation)
                self._holders.add(run)
            return emitting

    def release(self, run: _Holder) -> bool:
        """Free the room that ``run`` has, if any. Any thread; never blocks.

        Returns:
            False if it had to give way to another run: then it must not start.
        """
        with self._lock:
            if self._drop_order is None:
                self._holders.discard(run)
            else:
                self._forget(run)
            if self._gates and len(self._holders) <= self._low:
                self._let_in()
            return run.rejection is None

    def start(self, run: Run) -> bool:
        """Free the room of ``run``, which starts. On the loop.

        What breaks without the wait for a submitter that this has woken: the loop runs out of work
        before that submits anything. A thread that was just woken needs the GIL, and does not get
        it from a loop that is busy. The loop lets go of it in each iteration, but takes it back
        before the thread is there; and as that was notified, the switch interval, after which it
        could insist, begins anew.

        Returns:
            As `release`.
        """
        may_start = self.release(run)
        woken = self._woken
        if woken is not None:
            self._woken = None
            # Otherwise its first message wakes the loop, which lets go of the GIL: the loop gets
            # it, and the thread has to wait for it with all other messages still to come.
            self._look_soon()
            woken.wait_until_awake()
        return may_start

    def withdraw(self, run: _Holder) -> None:
        """Free the room that ``run`` has, or end its wait for it. Any thread; never blocks."""
        with self._lock:
            for gate, waiting_run in self._gates:
                if waiting_run is run:
                    self._gates.remove((gate, run))
                    gate.release()
                    break
        self.release(run)

    def _let_in(self) -> None:
        with self._lock:
            while self._gates and len(self._holders) < self._limit:
                gate, next_run = self._gates.popleft()
                self._holders.add(next_run)
                if gate.release() is False:
                    self._holders.discard(next_run)
                elif self._waits_for_woken and isinstance(gate, _ThreadGate):
                    self._woken = gate

    def turn_away(self, error: LoopUnavailableError) -> None:
        """Make every waiting submitter raise ``error`` instead. Any thread; never blocks."""
        with self._lock:
            gates, self._gates = self._gates, deque()
            for gate, run in gates:
                self._turned_away[run] = error
                gate.release()

    def refuse(self, gate: _Gate, run: _Holder, error: DeadlockError) -> None:
        """Make the submitter at ``gate`` raise ``error``; see `deadlocks.Room`. Never blocks."""
        with self._lock:
            if (gate, run) in self._gates:
                self._gates.remove((gate, run))
                self._turned_away[run] = error
                gate.release()

    def attach(self, on_close: Callable[[], None]) -> bool:
        """Have each `close` call ``on_close``; False if one was before. Any thread."""
        with self._lock:
            if not self._closed:
                self._closing.append(on_close)
            return not self._closed

    def detach(self, on_close: Callable[[], None]) -> None:
        """Undo `attach`, if need be. Any thread; never blocks."""
        with self._lock:
            if on_close in self._closing:
                self._closing.remove(on_close)

    def after_fork(self) -> None:
        """Let the waiting thread through that forked, and leave all else to the parent."""
        self._closing.clear()
        self.close()

    def close(self) -> None:
        """Let all waiting submitters through, and later ones too. Any thread; never blocks."""
        with self._lock:
            self._closed = True
            gates, self._gates = self._gates, deque()
            closing = list(self._closing)
        # First: what waits for room is not to take it for that.
        for on_close in closing:
            on_close()
        for gate, _ in gates:
            gate.release()


def _waiting(wanting: _Holder, room: Room) -> AbstractContextManager[None]:
    """A block in which the run that this code belongs to, if any, blocks to wait for ``room``.

    A source that is pulled waits beside the run that has subscribed to it, which goes on. If that
    awaits the stream, it waits for it, and not for the source.
    """
    if isinstance(wanting, Reservation):
        return wanting.waiting(room)
    return waiting(current_run(), room)


@contextmanager
def _awaiting(wanting: _Holder, inside: Run | None, room: Room) -> Iterator[None]:
    """As `_waiting`, where room is awaited in the run ``inside``, if any."""
    if isinstance(wanting, Reservation):
        with wanting.waiting(room):
            yield
    elif inside is None:
        yield
    else:
        begin_wait(inside, room)
        try:
            yield
        finally:
            end_wait(inside, room)


def _nearest_limit(run: _Holder) -> tuple[TimeLimit | None, float | None]:
    if isinstance(run, Run) and run.options.timed:
        return run.nearest_limit()
    return None, None


def _wait_at(gate: _ThreadGate, run: _Holder) -> TimeLimit | None:
    """Wait until ``gate`` is open; return which limit of ``run`` was exceeded before, if any."""
    limit, seconds = _nearest_limit(run)
    timeout = -1 if seconds is None else min(max(seconds, 0), TIMEOUT_MAX)
    return None if gate.wait(timeout) else limit


async def _await_at(gate: _LoopGate, run: _Holder) -> TimeLimit | None:
    """As `_wait_at`, for a gate that is awaited."""
    limit, seconds = _nearest_limit(run)
    if limit is None:
        await gate.wait()
        return None
    try:
        async with asyncio.timeout(seconds):
            await gate.wait()
    except TimeoutError:
        return limit
    return None


class _RoomFor:
    """The room that one submitter waits for."""

    remedy = (
        "for room (max_pending): there is none until runs begin that this one, or others that "
        "wait, hold up; make the bridge with a larger max_pending, or send from outside of runs, "
        "and not in the thread of an event loop; bridge.from_iterable(...) sends without blocking"
    )

    def __init__(
        self, admission: AdmissionLimiter, gate: _Gate, run: _Holder, wait: TaskWait | None = None
    ) -> None:
        self._wanted = gate, run
        self._admission = admission
        self._wait = wait  # where it is awaited in a run

    def is_over(self) -> bool:
        return self._wait is not None and self._wait.is_over()

    def crowd(self) -> tuple[list[Waiter], int]:
        return self._admission.crowd(*self._wanted)

    def refuse(self, error: DeadlockError) -> None:
        self._admission.refuse(*self._wanted, error)
