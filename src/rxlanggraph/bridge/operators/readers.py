"""ReaderRoom: the room that one reader has for the results of all streams that lead to it.

What breaks without it: ``merge``, ``flat_map`` and others subscribe to several streams, each of
which would take all of the room; and ``retry``, ``repeat`` and ``concat`` subscribe to the next one
as a result or an end arrives, which would not know of the reader.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

from reactivex import abc

from rxlanggraph.bridge.deadlocks import AnyOf, LoopThread, Waiter, begin_wait, end_wait
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.concurrency import waiters
from rxlanggraph.concurrency.forking import fork_safe_rlock

__all__ = ["HeldUpRun", "ReaderRoom", "StreamListener", "listener_here", "reader_here"]


class StreamListener:
    """A subscriber that waits for a stream in a way that RxPY does not have.

    Args:
        throughout: Whether it waits from the subscription until the end of the stream, instead of
            in blocks of `waiting`.
        unread: Returns how many items it has and has not read. Takes no lock but its own.
        bound: How many of those there may be, if more are to be withheld.
        loop: Returns the loop on which it reads them.
    """

    def __init__(
        self,
        *,
        throughout: bool,
        unread: Callable[[], int] = int,
        bound: int | None = None,
        loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self.run = current_run()
        self._loop = loop
        self.throughout = throughout
        self.unread = unread
        # One reference, replaced whole: None when it reads no more.
        self.bound = bound
        # An RLock by invariant 5. Guards the rest.
        self._lock = fork_safe_rlock()
        self._streams: list[AnyOf] = []
        # Kept by the subscriptions: here they would make a cycle, for the collector to find.
        self._rooms = WeakValueDictionary[_Place, ReaderRoom]()

    @property
    def reader(self) -> Waiter | None:
        """What has to go on for it to read: its run, or its loop. Any thread; never blocks."""
        if self.run is not None or self._loop is None:
            return self.run
        return LoopThread(self._loop())

    def attach(self, stream: AnyOf) -> None:
        """Note a stream that it waits for. Any thread; never blocks."""
        with self._lock:
            self._streams.append(stream)

    def detach(self, stream: AnyOf) -> None:
        """Undo `attach`. Any thread; never blocks."""
        with self._lock:
            if stream in self._streams:  # another thread may have ended it too
                self._streams.remove(stream)

    def room_at(self, place: _Place) -> ReaderRoom:
        """Return the room of the streams at ``place``. Any thread; never blocks."""
        with self._lock:
            return self._rooms.setdefault(place, ReaderRoom(self, place))

    def has_read(self) -> None:
        """Have the streams start what they withhold for lack of room. Without a lock."""
        with self._lock:
            # Not `values()`, which fails if another thread frees a room meanwhile.
            rooms = [room for ref in self._rooms.valuerefs() if (room := ref()) is not None]
        for room in rooms:
            room.go_on()

    def read_no_more(self) -> None:
        """Withhold nothing any more. Without a lock.

        What breaks without it: a source that is blocked by room while it is being subscribed to
        cannot be disposed of yet. It waits for the messages that are withheld.
        """
        self.bound = None
        self.has_read()

    @contextmanager
    def subscribing(self, place: _Place | None = None) -> Iterator[None]:
        """A block in which it subscribes; the streams are at ``place``, or directly before it."""
        token = _listener.set(_Here(self, current_run(), place or _Place(0, 0), emitting=False))
        try:
            yield
        finally:
            _listener.reset(token)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block in which it waits for the next item.

        Raises:
            DeadlockError: It would wait forever.
        """
        begun: list[AnyOf] = []
        try:
            if self.run is not None:
                with self._lock:
                    streams = [*self._streams]
                for stream in streams:
                    begin_wait(self.run, stream)
                    begun.append(stream)
            yield
        finally:
            for stream in begun:
                end_wait(self.run, stream)  # type: ignore[arg-type]  # there is one


class HeldUpRun:
    """A run that waits for room for its next chunk: a `deadlocks.Awaited`. Made on its loop.

    Args:
        reader: What has to go on for that.
    """

    __slots__ = ("awaited", "over", "waiter")
    remedy = (
        "for room for its next chunk, because what reads its stream waits for this run, directly "
        "or through others; read the stream in a task of its own, and do not block the thread of "
        "that task's event loop, as result() and a submission that waits for max_pending do"
    )

    def __init__(self, reader: Waiter) -> None:
        self.awaited = reader
        self.waiter = waiters.Waiter()
        self.waiter.prepare()
        self.over = False  # set under the lock of the bridge

    def is_over(self) -> bool:
        """See `deadlocks.Awaited`: the reader may wait before the run has noticed."""
        return self.over


class _Place(NamedTuple):
    """Where streams are, before a reader.

    Args:
        stage: The number of stages between them and the reader. The results of an earlier stage do
            not come to the reader.
        depth: In how many results that are being emitted they are nested, as by ``flat_map``, where
            that may block the emitting thread.
    """

    stage: int
    depth: int


class _Taker(Protocol):
    """A subscription whose results a reader gets."""

    def in_flight(self) -> Iterable[Waiter]:
        """Return its runs that were handed over and have not ended. Takes the bridge's lock."""


class ReaderRoom:
    """See the top of the module.

    A place is taken by each run in flight, until its result was passed on. All methods may be
    called in any thread, and never block; but for `go_on` also under the lock of a bridge.

    Args:
        listener: The reader, which has a bound.
        place: Where the streams are. Each place has all of the room.
    """

    def __init__(self, listener: StreamListener, place: _Place) -> None:
        self._listener = listener
        self._place = place
        # An RLock by invariant 5. Guards the rest.
        self._lock = fork_safe_rlock()
        self._taken: dict[_Taker, int] = {}
        self._total = 0
        # What starts the runs that are withheld, in the order in which they are to be served.
        self._withheld: OrderedDict[_Taker, Callable[[], object]] = OrderedDict()
        # What lets runs go on that are held up before their next chunk.
        self._held_up: dict[_Taker, Callable[[], object]] = {}
        self._going_on = False

    @property
    def reader(self) -> Waiter | None:
        """See `StreamListener`."""
        return self._listener.reader

    def unread(self) -> int:
        """See `StreamListener`."""
        return self._listener.unread()

    def take(self, taker: _Taker, taken: int, go_on: Callable[[], object]) -> bool:
        """Take a place for ``taker``, which has ``taken`` places; or note whom to call later."""
        with self._lock:
            self._note(taker, taken)
            if self._is_full():
                self._withheld.setdefault(taker, go_on)
                return False
            self._note(taker, taken + 1)
            return True

    def may_follow(self, taker: _Taker, taken: int, go_on: Callable[[], object]) -> bool:
        """Whether each run in flight has room for one item; if not, note whom to call later."""
        with self._lock:
            self._note(taker, taken)
            bound = self._listener.bound
            if bound is None or self.unread() + self._total <= bound:
                self._held_up.pop(taker, None)
                return True
            self._held_up[taker] = go_on
            return False

    def has_place(self, taker: _Taker, taken: int) -> bool:
        """Whether ``taker``, which has ``taken`` places, would get one more."""
        with self._lock:
            self._note(taker, taken)
            return not self._is_full()

    def keep(self, taker: _Taker, taken: int) -> None:
        """Note that ``taker`` has no more than ``taken`` places any more."""
        with self._lock:
            self._note(taker, taken)

    def leave(self, taker: _Taker) -> None:
        """Note that ``taker`` starts no more runs."""
        with self._lock:
            self._withheld.pop(taker, None)
            self._held_up.pop(taker, None)

    def in_flight(self) -> list[Waiter]:
        """Return the runs that have places."""
        with self._lock:
            takers = [*self._taken]
        return [run for each in takers for run in each.in_flight()]

    def go_on(self) -> None:
        """Have the streams go on, in turns, as far as there is room. Not under a lock.

        One thread at a time, which does not nest the calls: a stream that starts a run may call it.
        """
        with self._lock:
            held_up = [*self._held_up.values()]
            idle = not self._going_on and bool(self._withheld)
            self._going_on |= idle
        for each in held_up:
            each()
        if not idle:
            return
        try:
            while (start := self._next()) is not None:
                start()
        except BaseException:
            with self._lock:
                self._going_on = False
            raise

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if not self._withheld or self._is_full():
                self._going_on = False
                return None
            return self._withheld.popitem(last=False)[1]

    def _note(self, taker: _Taker, taken: int) -> None:
        self._total += taken - self._taken.pop(taker, 0)
        if taken:
            self._taken[taker] = taken

    def _is_full(self) -> bool:
        bound = self._listener.bound
        return bound is not None and self.unread() + self._total >= bound

    def behind(self, observer: abc.ObserverBase[Any]) -> abc.ObserverBase[Any]:
        """Return an observer that passes all on, and whose subscriptions have this room too."""
        return _OnTheWay(observer, self._listener, self._place)

    @contextmanager
    def subscribing_before(self) -> Iterator[None]:
        """A block in which a stage with this room subscribes to its source."""
        with self._listener.subscribing(self._place._replace(stage=self._place.stage + 1)):
            yield


class _OnTheWay(abc.ObserverBase[Any]):
    """Passes notifications on, as a part of what leads to a reader."""

    def __init__(
        self, observer: abc.ObserverBase[Any], listener: StreamListener, place: _Place
    ) -> None:
        self._observer = observer
        self._listener = listener
        self._place = place

    def on_next(self, value: Any) -> None:
        self._pass_on(self._observer.on_next, value)

    def on_error(self, error: Exception) -> None:
        self._pass_on(self._observer.on_error, error)

    def on_completed(self) -> None:
        self._pass_on(self._observer.on_completed)

    def _pass_on(self, notify: Callable[..., object], *value: Any) -> None:
        token = _listener.set(_Here(self._listener, current_run(), self._place, emitting=True))
        try:
            notify(*value)
        finally:
            _listener.reset(token)


class _Here(NamedTuple):
    """What is being subscribed for, by code of which run, and where."""

    listener: StreamListener
    run: Run | None
    place: _Place
    emitting: bool


# Contexts are copied, into runs for example. So it counts only in the run that has set it.
_listener: ContextVar[_Here | None] = ContextVar("rxlanggraph_listener", default=None)


def listener_here() -> StreamListener | None:
    """Return what subscribes at the moment, in the run of this code; None if nothing does."""
    here = _listener.get()
    return None if here is None or here.listener.run is not current_run() else here.listener


def reader_here(*, may_block: bool) -> ReaderRoom | None:
    """Return the room of what reads, with a bound, the stream that is being subscribed to.

    Args:
        may_block: Whether messages of the stream may block this thread. If that emits a result,
            their runs must not wait for places: those which it is to leave are behind the result.
    """
    here = _listener.get()
    if here is None or here.run is not current_run() or here.listener.bound is None:
        return None
    place = here.place
    if here.emitting and may_block:
        place = place._replace(depth=place.depth + 1)
    return here.listener.room_at(place)
