"""Threads: waiting without a lock that the own thread may hold, and starting one for everybody.

Standard library only.

A thread that serves many belongs to none of those it serves. From Python 3.14 on a thread may begin
in a copy of the context of its starter; without the GIL it does. A thread that lasts would take the
run, the turn and the variables of its first user for its own, and keep all of it alive.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import Context

__all__ = ["lock_released", "start_detached"]


@contextlib.contextmanager
def lock_released(lock: threading.RLock) -> Iterator[None]:
    """Hold ``lock`` at no level in this block: for waiting, inside a signal handler too.

    A handler may have interrupted its own thread while that held the lock; if it waited with it,
    the loop would need the lock to end what the handler waits for. Others may then run between
    two lines of the interrupted section: which it bears, by invariant 5 of docs/design.md.
    """
    levels = 0
    with contextlib.suppress(RuntimeError):  # not held, or not any more
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
