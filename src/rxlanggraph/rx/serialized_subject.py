"""SerializedSubject: a hot Observable fed from any number of threads, in one order.

What breaks without it: RxPY's ``Subject`` calls its observers from every thread that feeds it,
several at a time. If an observer raises, the observers after it miss the item, and the exception
reaches the feeding code. And a task or message that an observer starts belongs, by the context that
it inherits, to the run that put the item: it is cancelled with that run, and refused once the run
is over.
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import threading
from typing import Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxlanggraph.concurrency.user_code import contain
from rxlanggraph.rx.serialized_observer import SerializedObserver

__all__ = ["SerializedSubject"]

_log = logging.getLogger("rxlanggraph")
_T = TypeVar("_T")


class SerializedSubject(Generic[_T]):
    """Passes each item on to all subscribed observers: to each in order, one at a time.

    A late subscriber gets the items put from then on. An observer that raises is unsubscribed, and
    the error is logged; neither the other observers nor the feeding code are affected. It never
    completes.

    Observers are called in an empty context: they see no context variable of the feeding code, and
    what they start is not part of its run. The run would be arbitrary anyway, as a thread that is
    already calling the observers may call them with other threads' items too.

    Putting and flushing are two steps, so that the owner can fix the order under its own lock and
    call the observers outside of it.

    Args:
        what: What is published, for the log.
        lock: The owner's lock (invariant 5). Guards the list of observers too.

    Attributes:
        observed: Whether there is any observer. Without one, there is no need to put or flush.
    """

    def __init__(self, what: str, lock: threading.RLock) -> None:
        self._what = what
        self._lock = lock
        self._observers: list[SerializedObserver[_T]] = []
        # Written under the lock. Read without it by a thread that has put an item: what it has put
        # into an observer keeps that one there.
        self.observed = False
        self._observable: Observable[_T] = Observable(self._subscribe)

    @property
    def observable(self) -> Observable[_T]:
        """The Observable; subscribing and disposing are allowed in any thread."""
        return self._observable

    def put(self, item: _T) -> None:
        """Queue ``item`` for all observers. Any thread; never blocks; calls no user code."""
        with self._lock:
            for observer in self._observers.copy():
                observer.put_next(item)

    def flush(self) -> None:
        """Call the observers with what is queued. Any thread, not under the lock.

        Blocks for as long as the observers do. It does not wait for an observer that is being
        called in another thread: that thread emits what is queued here.

        Raises:
            KeyboardInterrupt, SystemExit: In the main thread, from an observer or a signal handler;
                after all observers have been called.
        """
        with self._lock:
            observers = self._observers.copy()
        if observers:
            contextvars.Context().run(self._emit, observers)

    def _emit(self, observers: list[SerializedObserver[_T]]) -> None:
        interrupt = None
        for observer in observers:
            try:
                observer.flush()
            except BaseException as error:
                self._unsubscribe(observer)
                message = "an observer of %s raised; it is unsubscribed"
                interrupt = contain(error, _log, message, self._what) or interrupt
        if interrupt is not None:
            raise interrupt

    def _subscribe(
        self, observer: abc.ObserverBase[_T], _scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        serialized = SerializedObserver(observer, self._lock)
        with self._lock:
            self._observers.append(serialized)
            self.observed = True
        return Disposable(lambda: self._unsubscribe(serialized))

    def _unsubscribe(self, observer: SerializedObserver[_T]) -> None:
        observer.stop()
        with self._lock, contextlib.suppress(ValueError):  # removed already
            self._observers.remove(observer)
            self.observed = bool(self._observers)
