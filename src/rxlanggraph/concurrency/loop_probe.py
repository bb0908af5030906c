"""LoopProbe: whether a loop still runs, checked from outside. Standard library only.

asyncio sends no notification when a loop stops, and ``is_running`` tells only about one moment: a
loop that its program runs again and again, for a moment each, would be found stopped by chance.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

__all__ = ["LoopProbe"]


class LoopProbe:
    """Probes of a loop by one observer. Confined to one thread; not that of the loop.

    Args:
        loop: The loop.
        on_turn: Called on the loop when it runs again after it was found stopped.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_turn: Callable[[], object] | None = None
    ) -> None:
        self._loop = loop
        self._on_turn = on_turn
        self._turned = threading.Event()  # set by the loop when it has run since the last probe
        self._turned.set()

    def has_turned(self) -> bool:
        """Whether the loop runs, or has run since the last probe; False once it is closed.

        Never blocks. The first probe of a loop that does not run always returns True.
        """
        if self._loop.is_closed():
            return False
        if self._loop.is_running():
            self._turned.set()
            return True
        if not self._turned.is_set():
            return False
        self._turned = threading.Event()
        with contextlib.suppress(RuntimeError):  # closed just now: the next probe notices
            self._loop.call_soon_threadsafe(self._turn, self._turned)
        return True

    def _turn(self, turned: threading.Event) -> None:
        if self._on_turn is not None:
            self._on_turn()
        turned.set()
