"""Streams awaited and iterated over on a loop, whatever threads they emit on.

What breaks without it: ``await source`` of RxPY resolves a future of asyncio in the thread that
emits, which wakes no loop. And a loop that iterates takes items when it gets to it, while a source
pushes them: a queue in between grows without a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar, get_args

from reactivex import Observable, abc
from reactivex.disposable import SingleAssignmentDisposable
from reactivex.internal.exceptions import SequenceContainsNoElementsError

from rxlanggraph.bridge.deadlocks import waiting
from rxlanggraph.bridge.operators.readers import StreamListener
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.concurrency.closing import AsyncClosingContext
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.concurrency.user_code import contain
from rxlanggraph.concurrency.waiters import Waiter
from rxlanggraph.errors import (
    BacklogFullError,
    BlockingCallError,
    DeadlockError,
    InvalidArgumentError,
    InvalidTypeError,
)
from rxlanggraph.validation import check_whole

__all__ = ["BufferOverflow", "ObservableIterator", "iterate", "last_item"]

_T = TypeVar("_T")
_log = logging.getLogger("rxlanggraph")

BufferOverflow: TypeAlias = Literal["block", "error", "drop_newest", "drop_oldest"]
# How often, in seconds, a blocked thread looks whether the loop that it waits for is closed, which
# nothing else would tell it. A guess, as for adopted loops.
_LOOK_EVERY = 0.25


class _Blocked:
    """An item whose thread waits until there is room for it."""

    __slots__ = ("gate", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.gate = threading.Lock()
        self.gate.acquire()


class _Buffer(abc.ObserverBase[_T]):
    """What the source fills, and the iterator empties.

    Apart from the iterator, so that a source that refers to this does not keep that alive.
    """

    def __init__(self, max_buffered: int, overflow: BufferOverflow, reader: Run | None) -> None:
        self._max = max_buffered
        self._overflow = overflow
        self._reader = reader
        self.source = SingleAssignmentDisposable()
        # The thread that subscribes, as long as it does. Written by that thread.
        self.subscribing: int | None = None
        # The loop of the latest read. One reference, replaced whole, on that loop.
        self.loop = asyncio.get_running_loop()
        # An RLock by invariant 5. Guards the rest.
        self._lock = fork_safe_rlock()
        self._items: deque[_T] = deque()
        self._blocked: deque[_Blocked] = deque()
        self._waiters: list[Waiter] = []
        self._error: BaseException | None = None
        self._ended = False
        self.dropped = 0

    # -- from the source, in any thread --------------------------------------------------------

    def on_next(self, value: _T) -> None:
        blocked, refusal = self._put(value)
        if blocked is not None:
            self._wait_for_room(blocked)
        elif refusal is not None:
            self.on_error(refusal)
            self.source.dispose()
            if self.subscribing == threading.get_ident():
                raise refusal  # it cannot be disposed of before it has returned
        else:
            self._wake()

    def _put(self, value: _T) -> tuple[_Blocked | None, BaseException | None]:
        with self._lock:
            if self._ended:
                return None, None
            if len(self._items) < self._max:
                self._items.append(value)
            elif self._overflow == "drop_newest":
                self.dropped += 1
            elif self._overflow == "drop_oldest":
                self._items.popleft()
                self._items.append(value)
                self.dropped += 1
            elif self._overflow == "block" and asyncio._get_running_loop() is None:
                self._blocked.append(blocked := _Blocked(value))
                return blocked, None
            else:
                return None, self._refusal()
        return None, None

    def on_error(self, error: BaseException) -> None:
        with self._lock:
            if not self._ended:
                self._ended, self._error = True, error
        self._wake()

    def on_completed(self) -> None:
        with self._lock:
            self._ended = True
        self._wake()

    def _refusal(self) -> BaseException:
        full = f"the {self._max} items that may be buffered have not been read"
        remedy = "read faster, raise max_buffered, or drop items with overflow='drop_oldest'"
        if self._overflow == "error":
            return BacklogFullError(f"{full}; {remedy}")
        return BlockingCallError(
            f"{full}, and the source emits in the thread of an event loop, which waiting for room "
            f"would block; {remedy}, or have the source emit in a thread of its own, as by "
            "ops.subscribe_on(NewThreadScheduler())"
        )

    def _wait_for_room(self, blocked: _Blocked) -> None:
        run = current_run()
        # That it waits for itself would not be true: its tasks take turns.
        reader = None if run is None or run is self._reader else self._reader
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(lock_released(self._lock))
                if reader is not None:
                    stack.enter_context(waiting(run, reader))
                while not blocked.gate.acquire(timeout=_LOOK_EVERY):
                    if self.loop.is_closed():
                        self.close()
        except BaseException as error:
            with self._lock:
                if blocked in self._blocked:
                    self._blocked.remove(blocked)
            if not isinstance(error, DeadlockError):
                raise  # Ctrl-C
            self.on_error(error)
            self.source.dispose()

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.wake_threadsafe()

    # -- from the iterator ---------------------------------------------------------------------

    def take(self) -> tuple[_T] | None:
        """Return the next item, in a tuple; None if it has to be waited for. Any thread.

        Raises:
            StopAsyncIteration: There is none any more.
            BaseException: As the last one, once: that of ``on_error``.
        """
        with self._lock:
            if self._items:
                item = self._items.popleft()
                if self._blocked:
                    next_one = self._blocked.popleft()
                    self._items.append(next_one.value)
                    next_one.gate.release()
                return (item,)
            if not self._ended:
                return None
            error, self._error = self._error, None
        if error is None:
            raise StopAsyncIteration
        try:
            raise _raisable(error)
        finally:
            del error  # its traceback refers to this frame

    def unread(self) -> int:
        """How many items are there, those included whose threads are blocked. Any thread."""
        with self._lock:
            return len(self._items) + len(self._blocked)

    async def wait(self) -> None:
        """Wait until there is something to `take`. Any loop; can be cancelled."""
        waiter = Waiter()
        waiter.prepare()
        with self._lock:
            if self._items or self._ended:
                return
            self._waiters.append(waiter)
        try:
            await waiter.wait()
        finally:
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def close(self) -> None:
        """Take no more, and let blocked threads go on. Any thread; never blocks."""
        with self._lock:
            self._ended, self._error = True, None
            self._items.clear()
            blocked, self._blocked = self._blocked, deque()
        for each in blocked:
            each.gate.release()
        self._wake()
        self.source.dispose()


class ObservableIterator(AsyncClosingContext, AsyncIterator[_T], Generic[_T]):
    """``async for`` over the items of a stream. Made by `rxlanggraph.operators.to_async_iterable`.

    On any loop; one task at a time. Its subscription ends with the stream, and when it is closed,
    dropped or left (``break``, an exception, a cancellation). As an async context manager it is
    closed at the end of the block.
    """

    def __init__(self, source: Observable[_T], max_buffered: int, overflow: BufferOverflow) -> None:
        self._buffer: _Buffer[_T] = _Buffer(max_buffered, overflow, current_run())
        buffer = self._buffer
        bound = max_buffered if overflow in ("block", "error") else None
        self._listener = StreamListener(
            throughout=False, unread=buffer.unread, bound=bound, loop=lambda: buffer.loop
        )
        buffer.subscribing = threading.get_ident()
        try:
            with self._listener.subscribing():
                buffer.source.disposable = source.subscribe(buffer)
        except Exception as error:
            buffer.on_error(error)  # unless that is why it has ended
        finally:
            buffer.subscribing = None

    @property
    def dropped(self) -> int:
        """How many items ``overflow`` has dropped so far. Any thread; never blocks."""
        return self._buffer.dropped

    def __aiter__(self) -> Self:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> _T:
        """Return the next item. Any loop. If cancelled, it has taken nothing.

        Raises:
            StopAsyncIteration: The stream has completed, or the iterator was closed.
            DeadlockError: It would wait forever: see `rxlanggraph.operators.to_async_iterable`.
            BaseException: That of the stream's ``on_error``, after the items before it.
        """
        self._buffer.loop = asyncio.get_running_loop()
        while (found := self._buffer.take()) is None:
            with self._listener.waiting():
                await self._buffer.wait()
        self._listener.has_read()
        return found[0]

    async def aclose(self) -> None:
        """Dispose of the subscription. Any loop; never waits. A step that waits ends too."""
        self._buffer.close()
        self._listener.read_no_more()

    def __del__(self) -> None:
        """Dispose of the subscription."""
        buffer = getattr(self, "_buffer", None)
        if buffer is not None:
            try:
                buffer.close()
                self._listener.read_no_more()
            except BaseException as error:  # from the source
                contain(error, _log, "disposing of a source that is not read any more")


def iterate(
    source: Observable[_T], max_buffered: int, overflow: BufferOverflow
) -> ObservableIterator[_T]:
    """Subscribe to ``source``. On the loop that iterates.

    Args:
        source: As for `rxlanggraph.operators.to_async_iterable`.
        max_buffered: As there.
        overflow: As there.

    Raises:
        InvalidTypeError, InvalidArgumentError, RuntimeError: As there.
    """
    _check_source(source)
    check_whole("max_buffered", max_buffered, least=1)
    if overflow not in get_args(BufferOverflow):
        known = ", ".join(map(repr, get_args(BufferOverflow)))
        raise InvalidArgumentError(f"overflow must be one of {known}, not {overflow!r}")
    return ObservableIterator(source, max_buffered, overflow)


class _LastItem(abc.ObserverBase[_T]):
    """Keeps the latest item, and resolves a future of ``loop`` with it at the end."""

    def __init__(self, future: asyncio.Future[_T]) -> None:
        self._future = future
        self._loop = future.get_loop()
        # One reference, replaced whole, by the thread that emits.
        self._latest: tuple[_T] | None = None

    def on_next(self, value: _T) -> None:
        self._latest = (value,)

    def on_error(self, error: BaseException) -> None:
        self._resolve(None, error)

    def on_completed(self) -> None:
        latest, self._latest = self._latest, None
        self._resolve(latest, SequenceContainsNoElementsError() if latest is None else None)

    def _resolve(self, latest: tuple[_T] | None, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits there
            self._loop.call_soon_threadsafe(self._set, latest, error)

    def _set(self, latest: tuple[_T] | None, error: BaseException | None) -> None:
        if self._future.done():
            return
        if latest is not None:
            self._future.set_result(latest[0])
        elif isinstance(error, asyncio.CancelledError):
            self._future.cancel()
        elif error is not None:
            self._future.set_exception(_raisable(error))


def last_item(source: Observable[_T]) -> asyncio.Future[_T]:
    """Subscribe to ``source``, and return the future of its last item. On the loop that awaits it.

    Args:
        source: As for `rxlanggraph.operators.to_future`.

    Raises:
        InvalidTypeError, RuntimeError: As there.
    """
    _check_source(source)
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    observer, disposable = _LastItem(future), SingleAssignmentDisposable()
    future.add_done_callback(lambda _: disposable.dispose())
    with StreamListener(throughout=True).subscribing():
        disposable.disposable = source.subscribe(observer)
    return future


def _raisable(error: BaseException) -> BaseException:
    # These would look like the end of the iteration; futures refuse one of them.
    if not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    wrapped = RuntimeError(f"the stream has failed with {error!r}")
    wrapped.__cause__ = error
    return wrapped


def _check_source(source: object) -> None:
    if not isinstance(source, Observable):
        raise InvalidTypeError(
            f"this operator takes an Observable, not {source!r}; call it in source.pipe(...)"
        )
