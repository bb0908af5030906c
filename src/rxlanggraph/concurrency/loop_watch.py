"""LoopWatch: how long a loop takes to get to a callback, and what blocks it.

What breaks without it: one callback that computes, or waits in the sync way, stops all that is on
its loop, and nothing says which one it was.

A thread makes the loop call back now and then, and reads the loop's stack when that takes too long;
without work, it sleeps without a timeout. A timer of the loop would not do: a blocked loop
cannot report itself, and the delay of a callback is the measurement.

Standard library only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context
from time import monotonic
from types import FrameType
from typing import NamedTuple

from rxlanggraph.concurrency import interpreter
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.stacks import UNREADABLE, format_frames, frame_of
from rxlanggraph.concurrency.threads import start_detached

__all__ = ["Blockage", "LoopWatch"]

# Checks per time after which the loop counts as blocked: every block that lasts a quarter longer is
# noticed. A guess.
_LOOKS = 4
# How many callbacks are named. A guess: with more, the first ones say enough.
_NAMED = 256
# Modules that run callbacks, and packages that pass calls on: neither blocks the loop.
_RUNS_CALLBACKS = frozenset({"asyncio.base_events", "asyncio.events", "asyncio.runners"})
_PASSES_ON = frozenset(
    {
        "asyncio",
        "concurrent",
        "contextlib",
        "functools",
        "langchain_core",
        "langgraph",
        "reactivex",
        "rxlanggraph",
        "tenacity",
        "threading",
        "uvloop",
    }
)


class Blockage(NamedTuple):
    """What blocks a loop."""

    where: str
    """The function that was called from the loop, or by what passes calls on; and its line.

    On Python 3.13 without the GIL, the task."""

    seconds: float
    """How long it has done so."""

    stack: str
    """That of the loop's thread, in the format of a traceback."""


class LoopWatch:
    """Watches over one loop while there is work, from `wake` on until `stop`.

    Args:
        name: The name of its thread.
        blocked_after: Seconds after which the loop counts as blocked.
        loop: Returns the loop, once there is one.
        thread_id: Returns the ident of the loop's thread.
        is_busy: Whether there is still work. Called without a lock.
        on_blocked: Called once for each callback that blocks the loop, in the thread of the watch.
    """

    def __init__(
        self,
        name: str,
        blocked_after: float,
        *,
        loop: Callable[[], asyncio.AbstractEventLoop | None],
        thread_id: Callable[[], int | None],
        is_busy: Callable[[], bool],
        on_blocked: Callable[[Blockage], object],
    ) -> None:
        self._name = name
        self._blocked_after = blocked_after
        self._loop = loop
        self._thread_id = thread_id
        self._is_busy = is_busy
        self._on_blocked = on_blocked
        # A leaf, with an RLock: a signal handler may enter in the loop's thread. Guards the rest,
        # but that `wake` reads `_awake` without it: work arrives under another lock, and `is_busy`
        # takes that after `_awake` was set to False. So one of the two sees the other.
        self._changed = threading.Condition(fork_safe_rlock())
        self._awake = False
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._posted: float | None = None  # since when the loop is to call back
        self._last: float | None = None  # how long it took the last time
        self._named: set[tuple[str, str]] = set()  # of the watch's thread
        # Done when the thread has nothing more to do, or there will be none.
        self.ended: Future[None] = Future()

    @property
    def lag(self) -> float | None:
        """Seconds that a callback waits for the loop, at present. Any thread; never blocks.

        None before the first measurement, and after `stop`, when the loop may never call back.
        Without work it is the last measurement.
        """
        with self._changed:
            if self._stopping:
                return None
            posted, last = self._posted, self._last
        if posted is None:
            return last
        return max(last or 0.0, monotonic() - posted)

    def wake(self) -> None:
        """Begin to watch, as there is work. Any thread; never blocks."""
        if self._awake:
            return
        with self._changed:
            if self._stopping:
                return
            self._awake = True
            self._changed.notify_all()
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                start_detached(self._thread)
            except RuntimeError:  # no more threads: the next run tries again
                self._thread, self._awake = None, False

    def stop(self) -> None:
        """End the thread. Any thread; never blocks."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            if self._thread is None and not self.ended.done():
                self.ended.set_result(None)

    def join(self, timeout: float | None) -> None:
        """Wait for the end of the thread, after `stop`, at most ``timeout`` seconds. Blocks.

        Called in that thread, by a hook, it does not wait.
        """
        if self._thread is not None and not self.is_inside():
            self._thread.join(timeout)

    def is_inside(self) -> bool:
        """Whether this is the thread of the watch. Any thread; never blocks."""
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        try:
            while self._wait_for_work() and self._look():
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, self._blocked_after / _LOOKS)
        finally:
            self.ended.set_result(None)

    def _wait_for_work(self) -> bool:
        """Return once there is work, or False when the watch is to end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._awake or self._stopping)
                if self._stopping:
                    return False
                self._awake = False  # before the check: work that comes after it wakes again
            if self._is_busy():
                with self._changed:
                    self._awake = True
                return True

    def _look(self) -> bool:
        """Make the loop call back, and name what keeps it from that. False if the loop is gone."""
        loop = self._loop()
        if loop is None or loop.is_closed():
            return False
        with self._changed:
            self._posted = monotonic()
        try:
            # In a context of its own, not in that of a submitter.
            loop.call_soon_threadsafe(self._called_back, context=Context())
        except RuntimeError:  # closed just now
            return False
        if not self._wait_for_call(self._blocked_after) and loop.is_running():
            self._name_what_blocks()
        while not self._wait_for_call(self._blocked_after):
            if loop.is_closed():
                return False
        return True

    def _wait_for_call(self, timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._posted is None or self._stopping, timeout)

    def _called_back(self) -> None:
        with self._changed:
            if self._posted is not None:
                self._last = monotonic() - self._posted
                self._posted = None
            self._changed.notify_all()

    def _name_what_blocks(self) -> None:
        with self._changed:
            posted = self._posted
        if posted is None:
            return
        if not interpreter.can_look_into(None):
            self._name_task(posted)
            return
        frame = frame_of(self._thread_id())
        blocking = None if frame is None else _blocking(frame)
        if frame is None or blocking is None:
            return
        code = blocking.f_code
        place = (code.co_filename, code.co_qualname)
        if place in self._named or len(self._named) >= _NAMED:
            return
        self._named.add(place)
        where = f"{code.co_qualname} ({code.co_filename}:{blocking.f_lineno})"
        stack = format_frames([frame])
        del frame, blocking  # they would keep what they refer to alive
        self._on_blocked(Blockage(where, monotonic() - posted, stack))

    def _name_task(self, posted: float) -> None:
        """Name the task that blocks the loop, where its stack cannot be read.

        Other callbacks are not named: they cannot be told from a loop that gets no processor.
        """
        loop = self._loop()
        task = None if loop is None else asyncio.current_task(loop)
        where = "" if task is None else f"the task {task.get_name()!r}"
        del task
        if where and (where, "") not in self._named and len(self._named) < _NAMED:
            self._named.add((where, ""))
            self._on_blocked(Blockage(where, monotonic() - posted, UNREADABLE))


def _blocking(innermost: FrameType) -> FrameType | None:
    """Return the frame of what was called from the loop; None if the loop itself is at work.

    Of the frames inside of the loop's own, the first that does not only pass a call on.
    """
    inside: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None and _module_of(frame) not in _RUNS_CALLBACKS:
        inside.append(frame)
        frame = frame.f_back
    if not inside or _module_of(innermost) == "selectors":
        return None
    inside.reverse()
    own = (each for each in inside if _module_of(each).partition(".")[0] not in _PASSES_ON)
    return next(own, inside[-1])


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))
