"""Backlog: how many runs may be admitted and not yet started, and who waits for room."""

from __future__ import annotations

import threading
from collections import deque

from rxlanggraph.locking import letting_go
from rxlanggraph.runs import Run

__all__ = ["Backlog"]


class Backlog:
    """Room for ``limit`` runs that wait for their turn; submitters beyond it block.

    First come, first served. Safe from any thread. A signal handler that submits may wait here
    too: it holds no lock then.

    Args:
        limit: None for no bound, which costs nothing.
        lock: The lock of the bridge.
    """

    def __init__(self, limit: int | None, lock: threading.RLock) -> None:
        self.bounded = limit is not None
        # The lock of the bridge: guards the four below.
        self._lock = lock
        self._room = limit or 0
        self._holders: set[Run] = set()
        self._gates: deque[threading.Lock] = deque()
        self._closed = False

    def full(self) -> bool:
        """Whether `enter` would block now."""
        with self._lock:
            return self.bounded and not self._closed and self._room == 0

    def enter(self, run: Run) -> None:
        """Wait for room, and take it for ``run``. Any thread; blocks.

        An exception raised into the wait (Ctrl-C) gives the place back. After `close` it returns
        at once: the registry refuses the run then.
        """
        if not self.bounded:
            return
        gate = threading.Lock()
        gate.acquire()
        with self._lock:
            if self._closed:
                return
            if self._room:
                self._room -= 1
                self._holders.add(run)
                return
            self._gates.append(gate)
        try:
            with letting_go(self._lock):
                gate.acquire()
        except BaseException:
            with self._lock:
                waiting = gate in self._gates
                if waiting:
                    self._gates.remove(gate)
            if not waiting:
                self._free_one()
            raise
        with self._lock:
            self._holders.add(run)

    def leave(self, run: Run) -> None:
        """Free the room that ``run`` holds, if it holds any. Any thread; never blocks."""
        if not self.bounded:
            return
        with self._lock:
            if run not in self._holders:
                return
            self._holders.discard(run)
        self._free_one()

    def close(self) -> None:
        """Let everyone through who waits. Any thread; never blocks."""
        with self._lock:
            self._closed = True
            gates, self._gates = self._gates, deque()
        for gate in gates:
            gate.release()

    def _free_one(self) -> None:
        with self._lock:
            if not self._gates:
                self._room += 1
                return
            gate = self._gates.popleft()
        gate.release()
