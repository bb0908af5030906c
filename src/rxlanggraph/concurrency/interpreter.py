"""What the interpreter can do. A place of its own, so that a scenario can replace it."""

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
    """Whether this thread may look at the frames and contexts of what runs on ``loop``.

    What breaks without it: where another thread executes them at the same time, they may be freed
    while they are read, and the interpreter crashes (python/cpython issues 152355 and 155519). Any
    thread; never blocks.

    Args:
        loop: The loop; None for the stack of any other thread.
    """
    return gil_enabled() or (loop is not None and asyncio._get_running_loop() is loop)
