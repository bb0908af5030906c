"""The interpreter's exit: all open bridges end together.

What breaks with a handler for each: a bridge whose run is stuck takes its time, and the next one
begins only after that.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from rxlanggraph.concurrency.forking import fork_safe_rlock

__all__ = ["add", "discard"]

# Seconds that the runs of all bridges, and then their loops, get to end. A guess: about as long as
# a person waits without wondering.
_AT_EXIT = 1.0


class _Engine(Protocol):
    """That of a bridge whose loop has been started."""

    def begin_exit(self) -> None:
        """Admit nothing more, and cancel what is in flight. Never blocks."""

    def wait_idle(self, timeout: float) -> object:
        """Wait until nothing is in flight, at most ``timeout`` seconds."""

    def stop_loop(self) -> None:
        """Ask the loop to end, or give it back. Never blocks."""

    def wait_stopped(self, timeout: float | None) -> None:
        """Wait until that is done, at most ``timeout`` seconds."""


# A leaf; an RLock, as finalizers discard too. Guards the set, and the order of what `atexit` calls:
# on Python 3.13 without the GIL, two threads that register at once would damage its list.
_lock = fork_safe_rlock()
_open: set[_Engine] = set()


def add(engine: _Engine) -> None:
    """End ``engine`` at the interpreter's exit, unless it is discarded. Any thread; never blocks.

    Before what was registered with `atexit` until now. Two threads may register the handler twice:
    the second call then finds nothing to do.
    """
    with _lock:
        _open.add(engine)
        atexit.unregister(_exit)
        atexit.register(_exit)


def discard(engine: _Engine) -> None:
    """Leave ``engine`` alone: it has ended, or is another process's. Any thread; never blocks."""
    with _lock:
        _open.discard(engine)


def _exit() -> None:
    """Cancel what is in flight on all bridges, and give it a moment."""
    with _lock:
        engines = list(_open)  # one call of a built-in, unlike tuple(): a finalizer may enter
    _call(engine.begin_exit for engine in engines)
    _wait(engine.wait_idle for engine in engines)
    _call(engine.stop_loop for engine in engines)
    _wait(engine.wait_stopped for engine in engines)


def _call(calls: Iterable[Callable[[], object]]) -> None:
    with contextlib.ExitStack() as stack:  # each is called whatever the others raise
        for call in calls:
            stack.callback(call)


def _wait(waits: Iterable[Callable[[float], object]]) -> None:
    """Call all of them with what is left of the time that they have together."""
    until = time.monotonic() + _AT_EXIT
    _call(partial(_wait_until, until, wait) for wait in waits)


def _wait_until(until: float, wait: Callable[[float], object]) -> None:
    wait(max(0.0, until - time.monotonic()))
