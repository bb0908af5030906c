"""SerializedObserver: the Rx grammar for notifications from several threads (invariant 7)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Generic, TypeVar

from reactivex import abc

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.user_code import contain

__all__ = ["SerializedObserver"]

_T = TypeVar("_T")
_log = logging.getLogger("rxlanggraph")


class SerializedObserver(Generic[_T]):
    """Passes notifications on to one observer, one at a time, in the order in which they were put.

    The first thread to flush also emits what other threads put meanwhile; so no thread waits for
    another, and the observer is called without a lock. Nothing follows a terminal notification, or
    `stop`.

    Putting and flushing are two steps, so that the caller can fix the order under its own lock
    and emit outside of it.

    Args:
        observer: Receives the notifications.
        lock: The lock of the code that puts; None makes one.
    """

    def __init__(self, observer: abc.ObserverBase[_T], lock: threading.RLock | None = None) -> None:
        self._observer = observer
        # An RLock by invariant 5, shared with the code that puts. Guards the rest.
        self._lock = fork_safe_rlock() if lock is None else lock
        self._notifications: deque[tuple[Callable[[Any], object], Any, Context | None]] = deque()
        self._emitting = False
        self._closed = False

    def put_next(self, value: _T, context: Context | None = None) -> None:
        """Queue an item. Any thread; never blocks.

        Args:
            value: The item.
            context: The context to call the observer in, used for nothing else; None for that of
                the emitting thread.
        """
        with self._lock:
            if not self._closed:
                self._notifications.append((self._observer.on_next, value, context))

    def put_error(self, error: BaseException) -> None:
        """Queue ``on_error``, the last notification. Any thread; never blocks."""
        # on_error is typed for Exception, but RxPY passes anything on.
        self._put_last(self._observer.on_error, error)

    def put_completed(self) -> None:
        """Queue ``on_completed``, the last notification. Any thread; never blocks."""
        self._put_last(lambda _: self._observer.on_completed(), None)

    def put_call(self, function: Callable[[], object]) -> bool:
        """Queue a call of ``function`` behind the items. Any thread; never blocks.

        Returns:
            False if nothing follows any more; then it is not called.
        """
        with self._lock:
            if not self._closed:
                self._notifications.append((lambda _: function(), None, None))
            return not self._closed

    def is_busy(self) -> bool:
        """Whether something is queued, or being emitted by another thread. Any thread."""
        with self._lock:
            return self._emitting or bool(self._notifications)

    def count_undelivered(self) -> int:
        """How many notifications are queued, or being emitted. Any thread."""
        with self._lock:
            return len(self._notifications) + self._emitting

    def stop(self) -> None:
        """Emit nothing more, not even what is queued. Any thread; never blocks."""
        with self._lock:
            self._closed = True
            self._notifications.clear()

    def flush(self) -> None:
        """Emit what is queued, unless another call of this is emitting. Calls the observer.

        Any thread, not under a lock; blocks for as long as the observer does.

        Raises:
            BaseException: Whatever the observer raised; nothing is emitted after that.
        """
        emitting = False
        try:
            while True:
                with self._lock:
                    # Reset before the queue is checked: what a signal handler puts between these
                    # lines, it then emits itself. Once the flag is set again, it leaves that to
                    # this loop.
                    if emitting:
                        self._emitting = emitting = False
                    if self._emitting or not self._notifications:
                        return
                    emitting = self._emitting = True
                    try:
                        notify, value, context = self._notifications.popleft()
                    except IndexError:  # a handler has emitted it
                        continue
                self._notify(notify, value, context)
        except BaseException:
            self.stop()
            raise
        finally:
            if emitting:
                with self._lock:
                    self._emitting = False

    def _notify(self, notify: Callable[[Any], object], value: Any, context: Context | None) -> None:
        try:
            if context is None:
                notify(value)
            else:
                context.run(notify, value)
        except Exception:
            raise
        except BaseException as error:
            if notify == self._observer.on_next:
                self._end_with(error)
            raise

    def _end_with(self, error: BaseException) -> None:
        # RxPY's operators turn an Exception raised by a function into on_error, and let any other
        # BaseException through: operators behind them would wait for an end forever.
        try:
            # on_error is typed for Exception, but RxPY passes anything on.
            self._observer.on_error(error)  # type: ignore[arg-type]
        except BaseException as second:
            if second is not error:
                contain(second, _log, "on_error of %s", type(self._observer).__name__)

    def _put_last(self, notify: Callable[[Any], None], value: Any) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._notifications.append((notify, value, None))
