"""SharedLockFuture: a ``concurrent.futures.Future`` that is cheap in large numbers.

Each stock future makes a Condition with its lock and deque, mostly unused, for the collector to
visit: with many messages in flight, that is more work than the messages. Here all futures of a
bridge share one lock, and a waiting thread brings its own gate.

``wait`` and ``as_completed`` of the standard library use a future's private ``_condition``,
``_state``, ``_waiters`` and ``_result``, unchanged since Python 3.2. They lock the futures of one
call one after another, in the order of their ids, read their states, and add a waiter to each.

The lock that they acquire must not be the shared one, or the lock order is inverted: (a) one thread
holds ours, for a run with a low id, and waits for the lock of an executor's future; (b) another one
holds that lock, and waits for ours, for a run with a high id; (c) the loop waits for ours, forever.
So what they acquire excludes no other thread. It keeps the state that the acquiring thread has
seen; a waiter that is added meanwhile is notified, if need be, when that thread releases it.
Resolving a future never waits for a thread that is inside ``wait``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, TypeAlias, TypeVar

from rxlanggraph.concurrency.clock import Gate, closed_gate
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.concurrency.user_code import contain, raise_on_loop
from rxlanggraph.errors import UsageError

__all__ = ["PENDING", "SharedLockFuture", "ToNotify"]

_T = TypeVar("_T")
# What waits for a future: waiters of the standard library, gates of threads, and callbacks.
ToNotify: TypeAlias = (
    "tuple[Sequence[Any], list[Gate] | None, Sequence[Callable[[Any], object]] | None]"
)
_log = logging.getLogger("concurrent.futures")

PENDING = "PENDING"
_CANCELLED = "CANCELLED"
_NOTIFIED = "CANCELLED_AND_NOTIFIED"
_FINISHED = "FINISHED"
# The states in which the standard library's waiters have been notified.
_NOTIFIED_STATES = (_NOTIFIED, _FINISHED)
_NOT_YOURS = (
    "only its bridge can resolve {!r}; create a concurrent.futures.Future to resolve one yourself"
)


class _Block:
    """One ``with future._condition`` of one thread, from inside ``wait`` or ``as_completed``."""

    __slots__ = ("state", "waiters")

    def __init__(self, state: str) -> None:
        self.state = state  # at the start of the block; for this thread it stays so until the end
        self.waiters: list[Any] = []  # added in the block; notified from its end on


class _WaiterState:
    """The standard library's waiters for a future. Guarded by the future's lock."""

    __slots__ = ("blocks", "waiters")

    def __init__(self) -> None:
        # By thread; several if a signal handler waits while its own thread does.
        self.blocks: dict[int, list[_Block]] = {}
        self.waiters: list[Any] = []


class _Condition:
    """A future's ``_condition`` and ``_waiters``, as the standard library uses them."""

    __slots__ = ("_future",)

    def __init__(self, future: SharedLockFuture[Any]) -> None:
        self._future = future

    def acquire(self) -> bool:
        self._future._begin_block()
        return True

    def release(self) -> None:
        self._future._end_block()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self._future._end_block()

    def __len__(self) -> int:
        return self._future._count_waiters()

    def append(self, waiter: Any) -> None:
        self._future._add_waiter(waiter)

    def remove(self, waiter: Any) -> None:
        self._future._remove_waiter(waiter)


class SharedLockFuture(Future[_T]):
    """A future that is resolved once, by `set_outcome`, or cancelled from any thread before.

    Args:
        lock: Shared by many futures. A leaf, held over a few assignments.
        callbacks: The first done-callbacks. May be shared by many futures: it is only read.
    """

    # All fields are guarded by the lock. _progress, one reference that only advances, is also read
    # without it where nothing else is read: what was written before it need not be visible there.
    # What most futures never need is in the class alone.
    _exception: BaseException | None = None
    _gates: list[Gate] | None = None
    _waiting: _WaiterState | None = None

    def __init__(
        self, lock: threading.RLock, callbacks: Sequence[Callable[[Any], object]] | None = None
    ) -> None:
        # Not super().__init__(), which makes the Condition.
        self._lock = lock
        self._progress = PENDING
        self._result: _T | None = None
        self._callbacks = callbacks

    def done(self) -> bool:
        """Whether it is resolved or cancelled. Any thread; never blocks."""
        return self._progress is not PENDING

    def cancelled(self) -> bool:
        """Whether it was cancelled. Any thread; never blocks."""
        progress = self._progress
        return progress is _CANCELLED or progress is _NOTIFIED

    def running(self) -> bool:
        """False: only the owner knows whether its work is running. Any thread; never blocks."""
        return False

    def cancel(self) -> bool:
        """Resolve it as cancelled, unless it is resolved. Any thread; runs the callbacks.

        Returns:
            False if it has a result or an exception already.

        Raises:
            KeyboardInterrupt, SystemExit: In the main thread, from a callback or a signal handler;
                after all callbacks have been called.
        """
        cancelled, interrupt = self._cancel()
        if interrupt is not None:
            raise interrupt
        return cancelled

    def _cancel(self) -> tuple[bool, BaseException | None]:
        """Do what `cancel` does, but return the exception instead of raising it."""
        with self._lock:
            if not self._mark_cancelled():
                return self._progress is not _FINISHED, None
        return True, self._wake_and_call_back()

    def _mark_cancelled(self) -> bool:
        """Note that it is cancelled, unless it is resolved. Under the lock."""
        if self._progress is not PENDING:
            return False
        self._progress = _CANCELLED
        return True

    def set_outcome(
        self, result: _T | None, exception: BaseException | None, *, call_back: bool = True
    ) -> bool:
        """Resolve it, unless it is resolved. Any thread; runs the callbacks.

        A cancelled future stays cancelled; ``wait`` and ``as_completed`` are notified only now, as
        for the futures of every executor. Exceptions raised by callbacks do not propagate.

        Args:
            result: The result, if ``exception`` is None; otherwise what `result_nowait` returns.
            exception: The exception, if it is resolved with one.
            call_back: False leaves the callbacks to the next call of this method.

        Returns:
            False if it was resolved or cancelled before.
        """
        with self._lock:
            pending = self._progress is PENDING
            to_notify = self.settle(result, exception, call_back=call_back)
        interrupt = self.tell(to_notify)
        if interrupt is not None:
            raise_on_loop(interrupt)
        return pending

    def settle(
        self, result: _T | None, exception: BaseException | None, *, call_back: bool = True
    ) -> ToNotify | None:
        """Do what `set_outcome` does, but for what needs the lock not to be held.

        By a caller that holds the lock.

        Returns:
            What is then to be passed to `tell`, without the lock; None if there is nothing.
        """
        before = self._progress
        if before is PENDING:
            self._result = result
            if exception is not None:
                self._exception = exception
            self._progress = _FINISHED
        elif before is _CANCELLED:
            self._progress = _NOTIFIED
        if self._callbacks is None and self._gates is None and self._waiting is None:
            return None
        waiting = None if before in _NOTIFIED_STATES else self._waiting
        waiters = () if waiting is None else tuple(waiting.waiters)
        return waiters, *self._take_to_notify(call_back=call_back)

    def tell(self, to_notify: ToNotify | None) -> BaseException | None:
        """Tell what `settle` returned of the outcome. Any thread; runs the callbacks.

        Returns:
            An exception that a signal handler may have raised meanwhile.
        """
        if to_notify is None:
            return None
        waiters, gates, callbacks = to_notify
        if waiters:
            self._notify_waiters(waiters)
        return self._wake_each_and_call(gates, callbacks)

    def abandon(self, exception: BaseException) -> None:
        """Resolve it, unless it is resolved, notifying only the threads that wait for it.

        In a forked child, where callbacks and waiters may be in an inconsistent state.
        """
        self._callbacks = None
        if self._progress is _CANCELLED:
            self._progress = _NOTIFIED
        elif self._progress is PENDING:
            self._exception = exception
            self._progress = _FINISHED
        self._wake_and_call_back()

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` with this future once it is done; at once if it is done already.

        Any thread. ``fn`` is called in the thread that resolves or cancels the future; an exception
        is logged.

        Raises:
            KeyboardInterrupt, SystemExit: As for `cancel`, if ``fn`` is called at once.
        """
        with self._lock:
            if self._progress is PENDING:
                if isinstance(self._callbacks, list):
                    self._callbacks.append(fn)
                else:
                    self._callbacks = [*(self._callbacks or ()), fn]
                return
        interrupt = self._call(fn)
        if interrupt is not None:
            raise interrupt

    def result(self, timeout: float | None = None) -> _T:
        """Wait for the result. Any thread; blocks.

        Args:
            timeout: Seconds; None for no limit.

        Raises:
            TimeoutError: Not done in time.
            CancelledError: It was cancelled.
            BaseException: The exception that it was resolved with.
        """
        if self._settled() is not _FINISHED:
            self._wait(timeout)
        try:
            if self._exception is not None:
                raise self._exception
            return self._result  # type: ignore[return-value]
        finally:
            del self  # otherwise the future and its exception's traceback keep each other alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the exception; None if there is a result. Any thread; blocks.

        Args:
            timeout: Seconds; None for no limit.

        Raises:
            TimeoutError: Not done in time.
            CancelledError: It was cancelled.
        """
        if self._settled() is not _FINISHED:
            self._wait(timeout)
        return self._exception

    def result_nowait(self) -> _T | None:
        """Return the result that `set_outcome` was given, if any. Any thread; never blocks."""
        return self._result if self._settled() is _FINISHED else None

    def set_running_or_notify_cancel(self) -> bool:
        """Refuse: only the bridge resolves its futures, as an executor does."""
        raise UsageError(_NOT_YOURS.format(self))

    def set_result(self, result: _T) -> None:
        """Refuse, as `set_running_or_notify_cancel` does."""
        raise UsageError(_NOT_YOURS.format(self))

    def set_exception(self, exception: BaseException | None) -> None:
        """Refuse, as `set_running_or_notify_cancel` does."""
        raise UsageError(_NOT_YOURS.format(self))

    def _settled(self) -> str:
        """Return the progress; by the lock, what goes with it is visible in this thread too."""
        with self._lock:
            return self._progress

    def _wait(self, timeout: float | None) -> None:
        gate = self._new_gate()
        with self._lock:
            pending = self._progress is PENDING
            if pending:
                self._gates = [*(self._gates or ()), gate]
        if pending:
            try:
                with lock_released(self._lock):
                    gate.acquire(timeout=-1 if timeout is None else max(timeout, 0))
            finally:
                with self._lock:
                    self._gates = [other for other in self._gates or () if other is not gate]
        progress = self._settled()
        if progress is PENDING:
            raise TimeoutError
        if progress is not _FINISHED:
            raise CancelledError

    def _new_gate(self) -> Gate:
        return closed_gate()

    def _wake_and_call_back(self) -> BaseException | None:
        with self._lock:
            gates, callbacks = self._take_to_notify(call_back=True)
        return self._wake_each_and_call(gates, callbacks)

    def _take_to_notify(
        self, *, call_back: bool
    ) -> tuple[list[Gate] | None, Sequence[Callable[[Any], object]] | None]:
        """Remove what waits for it and, with ``call_back``, its callbacks. Under the lock."""
        gates = self._gates
        if gates is not None:
            self._gates = None
        if not call_back:
            return gates, None
        callbacks, self._callbacks = self._callbacks, None
        return gates, callbacks

    def _wake_each_and_call(
        self, gates: list[Gate] | None, callbacks: Sequence[Callable[[Any], object]] | None
    ) -> BaseException | None:
        for gate in gates or ():
            gate.release()
        interrupt = None
        for callback in callbacks or ():
            interrupt = self._call(callback) or interrupt
        return interrupt

    def _call(self, callback: Callable[[Any], object]) -> BaseException | None:
        try:
            callback(self)
        except BaseException as error:
            return contain(error, _log, "exception calling callback for %r", self)
        return None

    # -- for wait() and as_completed() of the standard library ---------------------------------

    # Their types there are those of the standard library's own fields.
    _condition: Any = property(_Condition)
    _waiters: Any = property(_Condition)
    _state: Any = property(lambda self: self._state_for_thread())

    def _get_snapshot(self) -> tuple[bool, bool, _T | None, BaseException | None]:
        # asyncio reads this, from Python 3.14 on.
        progress = self._settled()
        if progress is _FINISHED:
            return True, False, self._result, self._exception
        return progress is not PENDING, progress is not PENDING, None, None

    def _state_for_thread(self) -> str:
        if self._waiting is not None:
            with self._lock:
                blocks = self._waiting.blocks.get(threading.get_ident())
                if blocks:
                    return blocks[-1].state
        return self._progress

    def _begin_block(self) -> None:
        with self._lock:
            if self._waiting is None:
                self._waiting = _WaiterState()
            blocks = self._waiting.blocks.setdefault(threading.get_ident(), [])
            blocks.append(_Block(self._progress))

    def _end_block(self) -> None:
        ident = threading.get_ident()
        with self._lock:
            assert self._waiting is not None
            blocks = self._waiting.blocks[ident]
            block = blocks.pop()
            if not blocks:
                del self._waiting.blocks[ident]
            self._waiting.waiters += block.waiters
            missed = self._progress in _NOTIFIED_STATES and block.state not in _NOTIFIED_STATES
        if missed:
            self._notify_waiters(block.waiters)

    def _add_waiter(self, waiter: Any) -> None:
        with self._lock:
            assert self._waiting is not None
            self._waiting.blocks[threading.get_ident()][-1].waiters.append(waiter)

    def _remove_waiter(self, waiter: Any) -> None:
        with self._lock:
            assert self._waiting is not None
            self._waiting.waiters.remove(waiter)

    def _count_waiters(self) -> int:
        with self._lock:
            return 0 if self._waiting is None else len(self._waiting.waiters)

    def _notify_waiters(self, waiters: Sequence[Any]) -> None:
        for waiter in waiters:
            if self._progress is _NOTIFIED:
                waiter.add_cancelled(self)
            elif self._exception is None:
                waiter.add_result(self)
            else:
                waiter.add_exception(self)
