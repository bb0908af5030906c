"""letting_go: how to wait with a lock that the own thread may hold. Standard library only."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["letting_go"]


@contextlib.contextmanager
def letting_go(lock: threading.RLock) -> Iterator[None]:
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
