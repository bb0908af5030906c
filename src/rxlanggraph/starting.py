"""Threads that serve many, and so belong to none of those they serve.

From Python 3.14 on a thread may begin in a copy of the context of whoever starts it; without the
GIL it does. One that lasts would take the run, the turn and the variables of whoever happened to
come first for its own, and keep all of it alive.
"""

from __future__ import annotations

import threading
from contextvars import Context

__all__ = ["start_apart"]


def start_apart(thread: threading.Thread) -> None:
    """Start ``thread`` in an empty context. Any thread; never blocks.

    Raises:
        RuntimeError: No thread can be started.
    """
    Context().run(thread.start)
