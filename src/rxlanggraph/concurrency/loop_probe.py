"""LoopProbe: whether a loop still runs, checked from outside. Standard library only.

asyncio sends no notification when a loop stops, and ``is_running`` describes one moment only: a
loop that is run many times, briefly each, would be found stopped by chance.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

__all__ = ["LoopProbe"]


class LoopProbe:
    """Probes one loop. Confined to one thread, other than the loop's.

    Args:
        loop: The loop to probe.
        on_resume: Called on the loop when it runs again after a probe found it stopped.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_resume: Callable[[], object] | None = None
    ) -> None:
        self._loop = loop
        self._on_resume = on_resume
        self._ran = threading.Event()  # set by the loop when it has run since the last probe
        self._ran.set()

    def has_run(self) -> bool:
        """Whether the loop runs, or has run since the last probe; False once it is closed.

        Never blocks. The first probe of a loop that does not run always returns True.
        """
        if self._loop.is_closed():
            return False
        if self._loop.is_running():
            self._ran.set()
            return True
        if not self._ran.is_set():
            return False
        self._ran = threading.Event()
        with contextlib.suppress(RuntimeError):  # closed just now: the next probe notices
            self._loop.call_soon_threadsafe(self._mark_ran, self._ran)
        return True

    def _mark_ran(self, ran: threading.Event) -> None:
        if self._on_resume is not None:
            self._on_resume()
        ran.set()
