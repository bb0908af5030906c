"""Fork safety: in a forked child, locks are free again, and objects adapt to being copies.

A child has one thread, the one that called ``os.fork``, and a copy of everything else at that
moment: locks that other threads held, and will never release; event loops that claim to be running;
futures that will never be resolved. So in the child every lock made here is reinitialized, and
every object registered here has its `Forkable._after_fork` called, before the child's own code
continues.

No lock is taken before the fork: a fork that waited for locks could wait for a thread that waits,
in a finalizer, for one of those that the fork has taken already. Hence a child may find another
thread's work half done, and trusts nothing that the parent had in flight.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from rxlanggraph.errors import InvalidTypeError, WrongProcessError

__all__ = [
    "Forkable",
    "fork_safe_rlock",
    "not_portable",
    "register_after_fork",
    "wrong_process",
]


class Forkable(Protocol):
    """An object that has to act in a forked child."""

    def _after_fork(self) -> None:
        """Adapt to being a copy. In the child, which has one thread; must not raise."""


# Any thread adds to both, in one call of a built-in set; only the one thread of a child reads them.
_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()


def fork_safe_rlock() -> threading.RLock:
    """Make an RLock that a forked child never finds held by another thread of its parent.

    Any thread; never blocks.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def register_after_fork(target: Forkable) -> None:
    """Call ``target._after_fork()`` in each forked child. Held weakly. Any thread."""
    _objects.add(target)


def wrong_process(what: str, remedy: str) -> WrongProcessError:
    """Make the error for ``what``, which belongs to the parent of this process."""
    return WrongProcessError(
        f"{what} belongs to the process that this one was forked from, as do its threads; in this "
        f"process there is only a copy: {remedy}"
    )


def not_portable(what: str, remedy: str) -> InvalidTypeError:
    """Make the error of pickling or copying ``what``, which belongs to this process."""
    return InvalidTypeError(
        f"{what} belongs to this process, as do its threads, and cannot be pickled for another "
        f"one, or copied: {remedy}"
    )


def _after_fork_in_child() -> None:
    for lock in tuple(_locks):
        # The standard library reinitializes its own locks by the same call. A lock that this thread
        # itself holds, as it forks in a signal handler or a callback, is released by its holder.
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]
    for target in tuple(_objects):
        target._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
