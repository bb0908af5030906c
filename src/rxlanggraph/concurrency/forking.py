"""What becomes of our objects in the child of a fork.

A child has one thread, the one that called ``os.fork``, and a copy of everything else as it was at
that moment: locks that other threads held, and will never let go of; event loops that claim to be
running; futures that nobody resolves. So in the child every lock made here is a free one, and every
object that was announced here is told, once, before the child's own code goes on.

Nothing is taken before the fork: a fork that waited for locks could wait for a thread that waits,
in a finalizer, for one of those that the fork has taken already. Hence a child may find the work of
another thread half done, and trusts nothing that the parent had in flight.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

from rxlanggraph.errors import WrongProcessError

__all__ = ["Forkable", "announce", "fork_safe_rlock", "wrong_process"]


class Forkable(Protocol):
    """An object that has something to do in a forked child."""

    def _after_fork(self) -> None:
        """Come to terms with being a copy. In the child, which has one thread; must not raise."""


# Each is added to by any thread, in one call of a built-in set; read in a child, in its one thread.
_locks: weakref.WeakSet[threading.RLock] = weakref.WeakSet()
_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()


def fork_safe_rlock() -> threading.RLock:
    """Make an RLock that a forked child never finds held by another thread of its parent.

    Any thread; never blocks.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def announce(thing: Forkable) -> None:
    """Have ``thing._after_fork()`` called in each forked child. Known weakly. Any thread."""
    _objects.add(thing)


def wrong_process(what: str, remedy: str) -> WrongProcessError:
    """Make the error for ``what`` belongs to the parent of this process."""
    return WrongProcessError(
        f"{what} belongs to the process that this one was forked from: its threads are there, and "
        f"here is nothing but a copy; {remedy}"
    )


def _renew_all() -> None:
    for lock in tuple(_locks):
        # The same call by which the standard library renews its own. A lock of this very thread,
        # which forks in a signal handler or a callback, is let go of by who took it.
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]
    for thing in tuple(_objects):
        thing._after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_renew_all)
