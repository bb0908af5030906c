"""Threads that serve many, and so belong to none of those they serve.

From Python 3.14 on a thread may begin in a copy of the context of whoever starts it; without the
GIL it does. One that lasts would take the run, the turn and the variables of whoever happened to
come first for its own, and keep all of it alive.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import ParamSpec

__all__ = ["daemon"]

_P = ParamSpec("_P")


def daemon(
    name: str, target: Callable[_P, object], *args: _P.args, **kwargs: _P.kwargs
) -> threading.Thread:
    """Make a daemon thread that calls ``target`` in an empty context. Any thread; never blocks."""
    call = partial(target, *args, **kwargs)
    if sys.version_info >= (3, 14):
        return threading.Thread(target=call, name=name, daemon=True, context=Context())
    return threading.Thread(target=call, name=name, daemon=True)
