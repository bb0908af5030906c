"""What the interpreter can do. A place of its own, so that a scenario can replace it."""

from __future__ import annotations

import sys

__all__ = ["gil_enabled"]


def gil_enabled() -> bool:
    """Whether threads take turns in executing Python. Any thread; never blocks.

    On a free-threaded build too, if it was asked for, or since a module was imported that needs it.
    """
    enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return enabled
