"""What is left in this process, counted without the help of the package."""

from __future__ import annotations

import asyncio
import gc
import threading
from time import monotonic

_before = set(threading.enumerate())


def tasks_left() -> int:
    """Unfinished asyncio tasks, on whichever loop."""
    return sum(
        1
        for thing in gc.get_objects()
        if issubclass(type(thing), asyncio.Task) and not thing.done()
    )


def threads_left() -> list[str]:
    """Names of the threads that began after this module was imported, and do not end."""
    deadline = monotonic() + 10
    threads = set(threading.enumerate()) - _before - {threading.current_thread()}
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    return sorted(thread.name for thread in threads if thread.is_alive())


class Meter:
    """How many nodes have begun and not ended, their own cleanup included. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._begun = threading.Semaphore(0)

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
        self._begun.release()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1

    @property
    def running(self) -> int:
        with self._lock:
            return self._running

    def wait_begun(self, count: int) -> None:
        """Wait until so many more have begun."""
        for _ in range(count):
            if not self._begun.acquire(timeout=60):
                raise TimeoutError("too few nodes have begun")
