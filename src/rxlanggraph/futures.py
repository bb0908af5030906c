"""LightFuture: a ``concurrent.futures.Future`` that costs a backlog of many next to nothing.

The stock future makes a Condition, a lock and a dozen objects for the collector to visit, each
time, mostly for nobody: with ten thousand messages in flight that is more work than the messages.
Here the lock is shared by all futures of a bridge, and a waiting thread brings its own gate.

``wait`` and ``as_completed`` of the standard library know a future by its private ``_condition``
(which they only acquire and release), ``_state``, ``_waiters`` and ``_result``: these keep their
names and meanings, unchanged since Python 3.2.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from rxlanggraph.locking import letting_go

__all__ = ["LightFuture"]

_T = TypeVar("_T")
_log = logging.getLogger("concurrent.futures")

_PENDING = "PENDING"
_CANCELLED = "CANCELLED"
_NOTIFIED = "CANCELLED_AND_NOTIFIED"
_FINISHED = "FINISHED"


class LightFuture(Future[_T]):
    """A future that is resolved once, by `settle`, and cancelled by anyone before.

    Args:
        lock: Shared by many futures. A leaf: held over a few assignments, and while ``wait`` of
            the standard library looks at its futures.
    """

    def __init__(self, lock: threading.RLock) -> None:
        # Not super().__init__(): see above. All fields are guarded by the lock; _state is also
        # read without it: one reference, which only ever goes forward, last to be written.
        self._condition: Any = lock
        self._state = _PENDING
        self._result: _T | None = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._callbacks: list[Callable[[Any], object]] | None = None
        self._gates: list[threading.Lock] | None = None

    def done(self) -> bool:
        """Whether it is resolved or cancelled. Any thread; never blocks."""
        return self._state is not _PENDING

    def cancelled(self) -> bool:
        """Whether it was cancelled. Any thread; never blocks."""
        state = self._state
        return state is _CANCELLED or state is _NOTIFIED

    def running(self) -> bool:
        """False: what runs is known by whoever runs it. Any thread; never blocks."""
        return False

    def cancel(self) -> bool:
        """Resolve it as cancelled, unless it is resolved. Any thread; runs the callbacks.

        Returns:
            False if it has a result or an exception already.
        """
        with self._condition:
            if self._state is not _PENDING:
                return self._state is not _FINISHED
            self._state = _CANCELLED
        self._announce()
        return True

    def settle(self, result: _T | None, exception: BaseException | None) -> bool:
        """Resolve it, if nobody has. Any thread; runs the callbacks.

        One that was cancelled stays so; ``wait`` and ``as_completed`` hear of it only now, as
        with every executor's futures.

        Returns:
            False if it was resolved or cancelled before.
        """
        with self._condition:
            if self._state is _PENDING:
                self._result, self._exception = result, exception
                self._state = _FINISHED
                tell = "add_result" if exception is None else "add_exception"
            elif self._state is _CANCELLED:
                self._state = _NOTIFIED
                tell = "add_cancelled"
            else:
                return False
            for waiter in self._waiters:
                getattr(waiter, tell)(self)
        if self._state is _NOTIFIED:
            return False
        self._announce()
        return True

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Have ``fn`` called with this future once it is done; at once if it is.

        Any thread. Called in the thread that resolves or cancels it; an exception is logged.
        """
        with self._condition:
            if self._state is _PENDING:
                if self._callbacks is None:
                    self._callbacks = [fn]
                else:
                    self._callbacks.append(fn)
                return
        self._call(fn)

    def result(self, timeout: float | None = None) -> _T:
        """Wait for the result. Any thread; blocks.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            TimeoutError: Not done in time.
            CancelledError: It was cancelled.
            BaseException: The one that it was resolved with.
        """
        self._wait(timeout)
        try:
            if self._exception is not None:
                raise self._exception
            return self._result  # type: ignore[return-value]
        finally:
            del self  # or the exception's traceback would keep the future alive, and it that

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the exception; None if there is a result. Any thread; blocks.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            TimeoutError: Not done in time.
            CancelledError: It was cancelled.
        """
        self._wait(timeout)
        return self._exception

    def peek(self) -> _T | None:
        """The result, if it is there; else None. Any thread; never blocks."""
        return self._result if self._state is _FINISHED else None

    def _wait(self, timeout: float | None) -> None:
        if self._state is _PENDING:
            gate = threading.Lock()
            gate.acquire()
            with self._condition:
                pending = self._state is _PENDING
                if pending:
                    self._gates = [*(self._gates or ()), gate]
            if pending:
                try:
                    with letting_go(self._condition):
                        gate.acquire(timeout=-1 if timeout is None else max(timeout, 0))
                finally:
                    with self._condition:
                        self._gates = [other for other in self._gates or () if other is not gate]
        with self._condition:  # so that whatever was written before the state is seen
            state = self._state
        if state is _PENDING:
            raise TimeoutError
        if state is not _FINISHED:
            raise CancelledError

    def _announce(self) -> None:
        with self._condition:
            gates, self._gates = self._gates, None
            callbacks, self._callbacks = self._callbacks, None
        for gate in gates or ():
            gate.release()
        for callback in callbacks or ():
            self._call(callback)

    def _call(self, callback: Callable[[Any], object]) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("exception calling callback for %r", self)
