"""What the interpreter can do. A module of its own, so that a scenario can replace it."""

from __future__ import annotations

import asyncio
import sys

__all__ = ["can_look_into", "gil_enabled"]


def gil_enabled() -> bool:
    """Whether threads take turns in executing Python. Any thread; never blocks.

    On a free-threaded build too, if it was asked for, or since a module was imported that needs it.
    """
    enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return enabled


def can_look_into(loop: asyncio.AbstractEventLoop | None) -> bool:
    """Whether this thread may look at the frames, contexts and callbacks of what runs on ``loop``.

    What breaks without it: Python 3.13 without the GIL frees them in one thread while another one
    reads them, and crashes. Python 3.14 locks them: frames and asyncio's futures from its first
    release on, contexts since August 2026 (python/cpython issues 152355 and 155519). Any thread;
    never blocks.

    Args:
        loop: The loop; None for the stack of any other thread.
    """
    if sys.version_info >= (3, 14) or gil_enabled():
        return True
    return loop is not None and asyncio._get_running_loop() is loop
