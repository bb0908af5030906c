"""In a forked child: leave Ray's connection to the parent, also when the child ends.

What breaks without this: Ray's own shutdown at exit ends the processes of the parent, or crashes in
C++, which waits for threads that a child does not have. So do its destructors: some run when Python
collects what has them, others when the C library ends the process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any

__all__ = ["leave_to_parent"]

_library: Any = ctypes.CDLL(None) if hasattr(os, "fork") else None


def leave_to_parent(ray: Any) -> None:
    """Let the copies of Ray's objects be. In the child, which has one thread; never blocks.

    Args:
        ray: The module.
    """
    atexit.unregister(ray.shutdown)
    private: Any = getattr(ray, "_private", None)
    worker: Any = getattr(private, "worker", None)
    state: Any = getattr(private, "state", None)
    for owner in (
        getattr(worker, "global_worker", None),
        getattr(worker, "_global_node", None),
        getattr(state, "state", None),
    ):
        if owner is not None:  # what it has is never destroyed
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
    disconnected = getattr(getattr(worker, "global_worker", None), "set_is_connected", None)
    if disconnected is not None:
        disconnected(False)  # handles of actors that are collected tell it
    _end_without_destructors()


def _end_without_destructors() -> None:
    if hasattr(_library, "on_exit"):  # with glibc: passes the exit status on, as its first argument
        _library.on_exit(_library._exit, None)  # before Ray's, as it is registered later
