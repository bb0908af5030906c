"""from_iterable: a source that gives its next item when the bridge has room for it.

What breaks without it: a source of Rx pushes. A blocked thread holds it back, but an async iterator
has no thread of its own to block: whatever iterates over it on a loop has to wait there, or fills
the memory with messages that wait.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from contextvars import copy_context
from functools import partial
from typing import Any

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rxlanggraph.bridge.admission import Reservation, next_reservation
from rxlanggraph.bridge.engine import Engine
from rxlanggraph.concurrency.tasks import close_left_behind
from rxlanggraph.concurrency.threads import start_detached
from rxlanggraph.concurrency.user_code import contain, raise_on_loop
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, LoopUnavailableError

__all__ = ["PulledSource", "from_iterable"]

_log = logging.getLogger("rxlanggraph")


def from_iterable(
    engine: Engine, owner: object, iterable: Iterable[Any] | AsyncIterable[Any]
) -> Observable[Any]:
    """Return the source that `RxPyLangGraphBridge.from_iterable` documents. Any thread.

    Args:
        engine: That of the bridge.
        owner: The bridge, kept alive while the source is subscribed to.
        iterable: As documented there.

    Raises:
        InvalidTypeError: It cannot be iterated over.
        InvalidArgumentError: The bridge has no ``max_pending``.
    """
    kind: type[_Pull] = _AsyncPull if hasattr(iterable, "__aiter__") else _ThreadPull
    if kind is _ThreadPull and not hasattr(iterable, "__iter__"):
        raise InvalidTypeError(
            f"from_iterable() takes an iterable or async iterable, not {iterable!r}"
        )
    if not engine.admission.bounded:
        raise InvalidArgumentError(
            "from_iterable() takes an item when the bridge has room for it, and without a bound "
            "there always is; make the bridge with max_pending, or use reactivex.from_iterable()"
        )

    return PulledSource(engine, partial(kind, engine, owner, iterable))


class PulledSource(Observable[Any]):
    """The source that `from_iterable` returns.

    Args:
        engine: That of the bridge, of which it waits for room.
        pull: Makes a subscription of an observer.
        room_for: Called with the room for the items of each subscription, before it begins.
    """

    def __init__(
        self,
        engine: Engine,
        pull: Callable[[abc.ObserverBase[Any]], _Pull],
        room_for: Callable[[Reservation], object] | None = None,
    ) -> None:
        super().__init__(self._pull_for)
        self._engine = engine
        self._pull = pull
        self._room_for = room_for

    def _pull_for(
        self, observer: abc.ObserverBase[Any], _: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        pull = self._pull(observer)
        if self._room_for is not None:
            self._room_for(pull.reservation)
        pull.start()
        return Disposable(pull.dispose)

    def with_room_for(
        self, engine: Engine, room_for: Callable[[Reservation], object]
    ) -> PulledSource:
        """Return the same source, which tells ``room_for`` of its room if that is of ``engine``."""
        return PulledSource(engine, self._pull, room_for) if engine is self._engine else self


class _Pull:
    """One subscription: what iterates, on a loop or in a thread of its own."""

    def __init__(
        self, engine: Engine, owner: object, iterable: Any, observer: abc.ObserverBase[Any]
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._iterable = iterable
        self._observer = observer
        self.reservation = Reservation(engine.inbox, engine.admission)
        # The loop of an async iterable. Written once, by `start`.
        self._loop: asyncio.AbstractEventLoop
        # Each is only ever set, by any thread.
        self._disposed = False
        self._closed = False

    def start(self) -> None:
        """Begin to iterate. Whatever it raises, nothing is left of it.

        Raises:
            BridgeClosedError, LoopUnavailableError: As for `Engine.started_loop`.
            RuntimeError: No thread can be started.
        """
        loop = self._engine.started_loop()
        self._loop = asyncio._get_running_loop() or loop
        if not self._engine.admission.attach(self.stop):
            raise self._engine.why_closed()
        try:
            self._begin()
        except BaseException:
            self.dispose()
            raise

    def _begin(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Take no more items: the bridge is closing. Any thread; never blocks."""
        self._closed = True
        self._interrupt()

    def dispose(self) -> None:
        """Take no more items, and emit nothing more. Any thread; never blocks."""
        self._disposed = True
        self._engine.admission.detach(self.stop)
        self.reservation.gone = True
        self._engine.admission.withdraw(self.reservation)
        self._interrupt()

    def _interrupt(self) -> None:
        """Have it notice that it is to end, if something can be done about that."""

    def _is_over(self) -> bool:
        return self._disposed or self._closed

    def _emit(self, item: Any) -> bool:
        """Emit ``item`` into the room that is reserved, and is given up; False to end."""
        try:
            if self._is_over():
                return False
            self.reservation.thread = threading.get_ident()
            token = next_reservation.set(self.reservation)
            try:
                self._observer.on_next(item)
            finally:
                next_reservation.reset(token)
                self.reservation.thread = None
        except BaseException as error:
            # An observer that raises is not the source's failure; its own chain has ended.
            interrupt = contain(error, _log, "an observer of a pulled source raised")
            if interrupt is not None:
                raise_on_loop(interrupt)
            return False
        finally:
            self._engine.admission.release(self.reservation)
        return True

    def _end(self, tell: Callable[[], None]) -> None:
        self._engine.admission.detach(self.stop)
        self._owner = None
        if not self._disposed:
            try:
                tell()
            except BaseException as error:
                interrupt = contain(error, _log, "an observer of a pulled source raised")
                if interrupt is not None:
                    raise_on_loop(interrupt)

    def _fail(self, error: BaseException) -> None:
        # on_error is typed for Exception, but RxPY passes anything on.
        self._end(lambda: self._observer.on_error(error))  # type: ignore[arg-type]


class _AsyncPull(_Pull):
    """Iterates in a task: of the loop that runs where it is subscribed, or else the bridge's."""

    # Confined to the loop. None while the task is not to be cancelled: the iterator, once told to
    # end, is left alone until it has.
    _task: asyncio.Task[Any] | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # What was sent to the loop, until its first step; the single call that takes it out begins
        # it, or prevents that.
        self._unbegun: list[Coroutine[Any, Any, None]] = []

    def _begin(self) -> None:
        self.reservation.loop = self._loop
        pulling = self._pull()
        self._unbegun.append(pulling)
        try:
            asyncio.run_coroutine_threadsafe(pulling, self._loop)
        except RuntimeError:  # the loop was closed just now
            if self._prevent():
                raise self._engine.why_closed() from None

    def _prevent(self) -> bool:
        """Keep it from its first step, on a loop that is closed. False if it had that."""
        try:
            pulling = self._unbegun.pop()
        except IndexError:
            return False
        close_left_behind(pulling, self._loop)
        return True

    def _interrupt(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed
            if self._prevent():
                self._fail(self._engine.why_closed())

    def _cancel(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _pull(self) -> None:
        self._unbegun.clear()
        try:
            await self._iterate()
        except asyncio.CancelledError as error:
            self._fail(self._cancelled_by(error))
        except BaseException as error:
            self._fail(error)
        else:
            if self._closed:
                self._fail(self._engine.why_closed())
            else:
                self._end(self._observer.on_completed)

    def _cancelled_by(self, error: asyncio.CancelledError) -> BaseException:
        if self._closed:
            return self._engine.why_closed()
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return error  # the iterator raised it
        return LoopUnavailableError("the event loop that iterates over the source is ending")

    async def _iterate(self) -> None:
        if self._is_over():
            return
        self._task = asyncio.current_task()
        iterator = aiter(self._iterable)
        try:
            async for item in iterator:
                await self._engine.admission.acquire_async(self.reservation)
                if not self._emit(item):
                    break
        except asyncio.CancelledError:
            if self._task is not None or not self._is_over():
                raise  # not by _cancel
        finally:
            self._task = None
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()


class _ThreadPull(_Pull):
    """Iterates in a daemon thread, where an iterator may block."""

    def _begin(self) -> None:
        thread = threading.Thread(
            target=copy_context().run, args=(self._pull,), name="rxlanggraph-pull", daemon=True
        )
        start_detached(thread)

    def _pull(self) -> None:
        try:
            self._iterate()
        except BaseException as error:
            self._fail(error)
            return
        if self._closed:
            self._fail(self._engine.why_closed())
        else:
            self._end(self._observer.on_completed)

    def _iterate(self) -> None:
        iterator = iter(self._iterable)
        try:
            for item in iterator:
                self._engine.admission.acquire(self.reservation, may_block=True)
                if not self._emit(item):
                    break
        finally:
            if inspect.isgenerator(iterator):  # not a file, which is its own iterator
                iterator.close()
