"""Threads: waiting without a lock that the same thread may hold, and starting shared threads.

Standard library only.

A thread that serves many users belongs to none of them. From Python 3.14 on a thread may begin in a
copy of its starter's context; without the GIL it does. A long-lived thread would take the run, the
slot and the variables of its first user for its own, and keep all of it alive.
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

    A handler may have interrupted its own thread while that held the lock; if it waited with the
    lock held, the loop would need the lock to end what the handler waits for. Other threads may
    then run between two lines of the interrupted section: it tolerates that, by invariant 5 of
    docs/design.md.
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
