"""Threads: waiting without a lock that the same thread may hold, and starting shared threads.

Standard library only.

What breaks without the latter: from Python 3.14 on, a thread may begin in a copy of the context of
the thread that starts it; without the GIL it does by default. A thread that serves many runs would
then act in the context of the first one, and keep that context alive.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import Context

__all__ = ["lock_released", "start_detached"]


@contextlib.contextmanager
def lock_released(lock: threading.RLock) -> Iterator[None]:
    """Release ``lock`` entirely in this block: for waiting, also inside a signal handler.

    A handler may have interrupted its own thread while that held the lock. If it waited with the
    lock held, the loop could not take the lock to finish the work that the handler waits for. Other
    threads may therefore enter between two lines of the interrupted section, which tolerates that:
    invariant 5 of docs/design.md.
    """
    levels = 0
    with contextlib.suppress(RuntimeError):  # not held, or no longer held
        while True:
            lock.release()
            levels += 1
    try:
        yield
    finally:
        for _ in range(levels):
            lock.acquire()


def start_detached(thread: threading.Thread) -> None:
    """Start ``thread`` in an empty context. Any thread; never blocks.

    Raises:
        RuntimeError: No thread can be started.
    """
    Context().run(thread.start)
