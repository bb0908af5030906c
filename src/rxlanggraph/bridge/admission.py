"""AdmissionLimiter: limits the runs admitted and not yet started; submitters wait for room."""

from __future__ import annotations

import threading
from collections import deque
from itertools import takewhile

from rxlanggraph.bridge.deadlocks import Waiter, review, waiting
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.errors import DeadlockError, LoopUnavailableError

__all__ = ["AdmissionLimiter"]


class AdmissionLimiter:
    """Room for ``limit`` runs that wait to start; submitters beyond it block.

    First come, first served. Blocked submitters are woken once a good part of the room is free, not
    for each place: a thread woken for a single place takes it, and blocks again.

    Safe to use from any thread. A signal handler that submits may wait here too: then no lock is
    held.

    Args:
        limit: None for no limit, which costs nothing.
        lock: The lock of the bridge.
    """

    def __init__(self, limit: int | None, lock: threading.RLock) -> None:
        self.bounded = limit is not None
        self._limit = limit or 0
        # Half of the room keeps the loop busy until the submitter has woken up.
        self._low = self._limit - max(1, self._limit // 2)
        # The lock of the bridge: guards the four below.
        self._lock = lock
        # The runs that have room. May be more than the limit: see hold().
        self._holders: set[Run] = set()
        self._gates: deque[tuple[threading.Lock, Run]] = deque()
        self._turned_away: dict[Run, LoopUnavailableError | DeadlockError] = {}
        self._closed = False

    def acquire(self, run: Run, *, may_block: bool) -> bool:
        """Take room for ``run``; if there is none, wait. Any thread; blocks if ``may_block``.

        An exception raised during the wait (Ctrl-C) gives the place back. After `close` it returns
        at once: the registry then refuses the run.

        Returns:
            False if there is no room and ``may_block`` is False.

        Raises:
            LoopUnavailableError: The loop paused during the wait: see `turn_away`.
            DeadlockError: Called in a run, or on a loop, that the room depends on.
        """
        with self._lock:  # one critical section: check and take
            if self._closed:
                return True
            if len(self._holders) < self._limit and not self._gates:
                self._holders.add(run)
                return True
            if not may_block:
                return False
            gate = threading.Lock()
            gate.acquire()
            self._gates.append((gate, run))
        try:
            with lock_released(self._lock), waiting(current_run(), _RoomFor(self, gate, run)):
                gate.acquire()
        except BaseException:
            with self._lock:
                if (gate, run) in self._gates:
                    self._gates.remove((gate, run))
                self._turned_away.pop(run, None)
            self.release(run)
            raise
        with self._lock:
            error = self._turned_away.pop(run, None)
        if error is not None:
            raise type(error)(*error.args)
        return True

    def crowd(self, gate: threading.Lock, run: Run) -> tuple[list[Waiter], int]:
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

    def release(self, run: Run) -> None:
        """Free the room that ``run`` has, if any. Any thread; never blocks."""
        with self._lock:
            self._holders.discard(run)
            if not self._gates or len(self._holders) > self._low:
                return
            while self._gates and len(self._holders) < self._limit:
                gate, next_run = self._gates.popleft()
                self._holders.add(next_run)
                gate.release()

    def turn_away(self, error: LoopUnavailableError) -> None:
        """Make every waiting submitter raise ``error`` instead. Any thread; never blocks."""
        with self._lock:
            gates, self._gates = self._gates, deque()
            for gate, run in gates:
                self._turned_away[run] = error
                gate.release()

    def refuse(self, gate: threading.Lock, run: Run, error: DeadlockError) -> None:
        """Make the submitter at ``gate`` raise ``error``; see `deadlocks.Room`. Never blocks."""
        with self._lock:
            if (gate, run) in self._gates:
                self._gates.remove((gate, run))
                self._turned_away[run] = error
                gate.release()

    def close(self) -> None:
        """Let all waiting submitters through, and later ones too. Any thread; never blocks."""
        with self._lock:
            self._closed = True
            gates, self._gates = self._gates, deque()
            self._holders.clear()
        for gate, _ in gates:
            gate.release()


class _RoomFor:
    """The room that one blocked submitter waits for."""

    def __init__(self, admission: AdmissionLimiter, gate: threading.Lock, run: Run) -> None:
        self._wanted = gate, run
        self._admission = admission

    def crowd(self) -> tuple[list[Waiter], int]:
        return self._admission.crowd(*self._wanted)

    def refuse(self, error: DeadlockError) -> None:
        self._admission.refuse(*self._wanted, error)
