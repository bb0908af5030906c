"""The handlers of signals, which Ray replaces when it connects, in C and without a word.

What breaks without this: a program that drains on SIGTERM prints a stack of Ray's first. Python's
``signal`` cannot see a handler that is not Python's, and sets handlers in the main thread alone; so
they are read and written by ``sigaction``, as Ray does.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
from collections.abc import Iterator

__all__ = ["signals_kept"]

# Those by which programs are asked to end. What reports a crash may be Ray's.
_KEPT = (signal.SIGINT, signal.SIGTERM)
# More than a ``struct sigaction`` has on any system.
_ROOM = 512


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Give SIGINT and SIGTERM the handlers back that they had before the block. Any thread."""
    sigaction = ctypes.CDLL(None).sigaction
    before = {}
    for number in _KEPT:
        before[number] = ctypes.create_string_buffer(_ROOM)
        sigaction(int(number), None, before[number])
    try:
        yield
    finally:
        for number, action in before.items():
            sigaction(int(number), action, None)
