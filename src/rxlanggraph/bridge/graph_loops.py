"""GraphLoops: loops on which a bridge calls its graphs, each in a thread, beside its own loop.

What breaks with one loop: on Python without the GIL, all graphs share one CPU; and a node that
blocks its loop stops all other runs.

The graph is replaced, not the run, as by an executor: the run stays on the loop of the bridge. So a
call has two sides: *home*, where its run awaits it, and *away*, where the graph is called. Rules:

1. Each field of a call belongs to one side. What happens on one side is told to the other by
   ``call_soon_threadsafe`` alone, which keeps the order. So there is no lock, and nothing relies on
   the GIL (invariant 6).
2. A call ends at home when it has ended away, cleanup and LangGraph's own tasks included: a
   cancellation is only passed on (invariants 2 and 9).
3. A call whose loop has ended fails (invariant 1).
4. A run has at most one call at a time, so `Run.away` has one writer: the loop of that call.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import aclosing
from contextvars import Context, copy_context
from functools import partial, reduce
from typing import Any

from rxlanggraph.bridge.chunks import outruns
from rxlanggraph.bridge.deadlocks import dedicate
from rxlanggraph.bridge.graphs.configs import layers_of
from rxlanggraph.bridge.loops import OwnedLoop
from rxlanggraph.bridge.run import current_run, run_scope
from rxlanggraph.bridge.run_threads import RunThreads
from rxlanggraph.concurrency.tasks import start_eagerly
from rxlanggraph.errors import InvalidArgumentError, LoopUnavailableError
from rxlanggraph.executors.remote_graph import RemoteFunction, RemoteGraph, remote
from rxlanggraph.langgraph_tasks import LangGraphTasks

__all__ = ["GraphLoops"]

# Chunks that a call may be ahead of its reader, as many as `astream` buffers; and for how many at
# once the reader tells that it has read them: half of that, so the graph need not wait for it.
_WINDOW, _CREDIT = 16, 8


class _Seat:
    """One of the loops, and the calls on it."""

    def __init__(self, loops: GraphLoops, name: str, home: asyncio.AbstractEventLoop) -> None:
        self.host = OwnedLoop(name, loops.threads, self)
        self.pid = os.getpid()
        # At home: the calls; whether it gets no more of them.
        self.calls: set[_Call] = set()
        self.retired = False
        self.langgraph_tasks = LangGraphTasks(run_scope)  # away
        # Away: once the loop ends, why; and whether nothing has told it to.
        self.ending: LoopUnavailableError | None = None
        self.lost = False
        self._loops = loops
        self._home = home

    def loop_stopping(self, error: LoopUnavailableError) -> None:
        """Note that all tasks are about to be cancelled; what comes now does not begin. Away."""
        self.ending = error
        self.lost = not self.is_leaving()
        _tell(self._home, self._retire)  # before its calls end, or it would have the fewest

    def is_leaving(self) -> bool:
        """Whether it was told to end, or soon will be. Any thread; never blocks."""
        return self._loops.has_stopped()

    def _retire(self) -> None:
        self.retired = True

    def loop_stopped(self, error: LoopUnavailableError) -> None:
        """Fail the calls that have not ended: they never will. In the thread of the loop."""
        _tell(self._home, partial(self._loops.lose, self, error))


class _Call:
    """One call of a graph.

    Args:
        seat: Where it goes.
        work: The call itself; called, and awaited, away.
    """

    def __init__(self, seat: _Seat, work: Callable[[_Call], Coroutine[Any, Any, Any]]) -> None:
        # Never changed:
        self.seat = seat
        self.home = asyncio.get_running_loop()
        # Written at home before it is handed over; dropped away.
        self._work: Callable[[_Call], Coroutine[Any, Any, Any]] | None = work
        self._context: Context | None = copy_context()
        self._run = current_run()
        # At home: what has arrived and was not read; how it has ended; what wakes its reader.
        self.chunks: deque[Any] = deque()
        self.outcome: tuple[Any, BaseException | None] | None = None
        self._news = asyncio.Event()
        # Away.
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._credits = _WINDOW
        self._credited = asyncio.Event()

    # -- at home -----------------------------------------------------------------------------------

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Note its end, once."""
        if self.outcome is None:
            self.outcome = value, error
            self.seat.calls.discard(self)
            self._news.set()

    def _receive(self, chunk: Any) -> None:
        self.chunks.append(chunk)
        self._news.set()

    async def news(self) -> None:
        """Wait for a chunk, or its end."""
        self._news.clear()
        await self._news.wait()

    async def ended(self) -> None:
        """Wait for its end. Cancelling this cancels the call, and goes on to wait."""
        while self.outcome is None:
            try:
                await self.news()
            except asyncio.CancelledError:
                if self.outcome is not None:  # it has just ended
                    raise
                self.request_cancel()

    def request_cancel(self) -> None:
        """Have it cancelled; it ends later."""
        self.seat.host.tell(self._cancel)

    def give_credit(self) -> None:
        """Tell that `_CREDIT` chunks were read."""
        self.seat.host.tell(self._credit)

    def take(self) -> Any:
        """Return its result, or raise the exception that it has ended with."""
        assert self.outcome is not None
        value, error = self.outcome
        self.outcome = None, None  # the traceback of an error refers to what has it
        if error is None:
            return value
        try:
            raise error
        finally:
            del error

    # -- away --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start it."""
        work, context = self._work, self._context
        assert work is not None
        self._work = self._context = None
        if self.seat.ending is not None:
            _tell(self.home, partial(self.settle, None, self.seat.ending))
            return
        task = self._task = start_eagerly(self._carry_out(work), context=context)
        task.add_done_callback(self._settle_unbegun)

    def _settle_unbegun(self, task: asyncio.Task[None]) -> None:
        # Where tasks do not start eagerly, one may be cancelled before its first step.
        if task.cancelled():
            _tell(self.home, partial(self.settle, None, asyncio.CancelledError()))

    def _cancel(self) -> None:
        # At the end not a second time: that would cut short the cleanup that is waited for.
        again = self._cancelled and self.seat.is_leaving()
        if self._task is not None and self.seat.ending is None and not again:
            self._cancelled = True
            self._task.cancel()

    def _credit(self) -> None:
        self._credits += _CREDIT
        self._credited.set()

    async def _carry_out(self, work: Callable[[_Call], Coroutine[Any, Any, Any]]) -> None:
        run, seat = self._run, self.seat
        value, error = None, None
        if run is not None:
            run.away = seat.host
        try:
            value = await work(self)
        except BaseException as caught:
            if asyncio._get_running_loop() is None:
                raise  # GeneratorExit, from a loop closed while this ran: see `_Seat.loop_stopped`
            error = caught
        if self._cancelled or isinstance(error, asyncio.CancelledError):
            with contextlib.suppress(asyncio.CancelledError):  # the loop is ending
                await seat.langgraph_tasks.until_ended(run_scope.get())
            if seat.lost and isinstance(error, asyncio.CancelledError):
                error = seat.ending
        # Last: what the run leaves behind here does not count as the run's from now on.
        if run is not None:
            run.away = None
        self._run = self._task = None
        _tell(self.home, partial(self.settle, value, error))
        del run, work, value, error  # the traceback of the error refers to this frame

    def put(self, chunk: Any) -> Coroutine[Any, Any, None] | None:
        """Pass a chunk on; return what to await before the next one, if anything."""
        _tell(self.home, partial(self._receive, chunk))
        self._credits -= 1
        return None if self._credits > 0 else self._wait_for_credit()

    async def _wait_for_credit(self) -> None:
        while self._credits <= 0:
            self._credited.clear()
            await self._credited.wait()


class _Calls:
    """Calls of one graph: the `Caller` of what stands for it. At home."""

    def __init__(self, loops: GraphLoops, graph: Any) -> None:
        self._loops = loops
        self._graph = graph

    async def call(
        self, path: tuple[str, ...], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Call what is at ``path`` of the graph, away. Cancelling it cancels that, and waits."""
        target = reduce(getattr, path, self._graph)
        call = self._loops.hand_over(lambda _: target(*arguments, **options))
        await call.ended()
        return call.take()

    async def stream(
        self, path: tuple[str, ...], arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """As `call`, for what returns an async iterator. It is at most `_WINDOW` chunks ahead."""
        target = reduce(getattr, path, self._graph)
        call = self._loops.hand_over(partial(_pump, target, arguments, options))
        read = 0
        try:
            while call.chunks or call.outcome is None:
                while call.chunks:
                    chunk = call.chunks.popleft()
                    read += 1
                    if read % _CREDIT == 0:
                        call.give_credit()
                    yield chunk
                    del chunk
                if call.outcome is None:
                    await call.news()
        finally:
            if call.outcome is None:
                call.request_cancel()
                await call.ended()
        call.take()


async def _pump(
    target: Callable[..., Any],
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
    call: _Call,
) -> None:
    """Read a stream, away, and pass its chunks on. It holds up nodes at work too, by a `Pace`."""
    pace = None
    if "stream_mode" in options and outruns(options["stream_mode"], options.get("subgraphs")):
        from rxlanggraph.bridge.pacing import Pace  # noqa: PLC0415 - imports LangChain

        pace = Pace()
        content, config = arguments
        arguments = content, pace.among(config)
    stream = target(*arguments, **options)
    async with aclosing(stream):
        read = False
        try:
            async for chunk in stream:
                room = call.put(chunk)
                if room is not None:
                    await (room if pace is None else pace.hold(room))
            read = True
        finally:
            if pace is not None:
                pace.end(failed=not read)


class GraphLoops:
    """The loops of one bridge: `Workers`, in this process. A loop starts when all others have runs.

    Args:
        name: The name of the bridge.
        size: How many loops there are at most.
        threads: Those of the bridge: they execute the sync code of runs on all loops.
        lock: That of the bridge, an RLock.
        inbox: What the bridge is to the detector of deadlocks.
    """

    def __init__(
        self, name: str, size: int, threads: RunThreads, lock: threading.RLock, inbox: object
    ) -> None:
        self.threads = threads
        self._name = name
        self._size = size
        self._inbox = inbox
        # What stands for the latest graph. Any thread: one reference, replaced as a whole. Weak, so
        # that an idle bridge keeps no graph alive.
        self._latest: weakref.ref[RemoteGraph | RemoteFunction] | None = None
        # Held while a thread is started, so that `disconnect` leaves none behind.
        self._lock = lock
        self._stopped = False  # only ever set, by any thread
        # Replaced as a whole, at home, under the lock; read by any thread.
        self._seats: tuple[_Seat, ...] = ()
        self._started = 0  # at home: how many loops there have been

    # -- any thread --------------------------------------------------------------------------------

    def graph_for(self, graph: Any) -> Any:
        """Return what is called in the place of ``graph``. Any thread; never blocks.

        A sync function stays as it is: it is executed in a worker thread of the bridge anyway. So
        does an agent: it has its messages in their order, which several loops would not keep.

        Raises:
            InvalidArgumentError: It has a saver or a store that belongs to one loop.
        """
        if isinstance(graph, RemoteGraph | RemoteFunction):  # one of these
            return graph
        latest = None if self._latest is None else self._latest()
        if latest is not None and latest.local is graph:
            return latest
        if getattr(graph, "_takes_answers", False):  # an agent, or a pool of them
            return graph
        if not hasattr(graph, "ainvoke") and not _is_async(graph):
            return graph
        _check_movable(graph)
        standing_for = remote(graph, _Calls(self, graph), here=True)
        steps = getattr(graph, "steps", None)
        if isinstance(standing_for, RemoteGraph) and isinstance(steps, list):
            # A sequence, whose graphs are streamed one by one.
            standing_for.steps = [
                self.graph_for(step) if hasattr(step, "aget_state") else step for step in steps
            ]
        self._latest = weakref.ref(standing_for)
        return standing_for

    def has_stopped(self) -> bool:
        """Whether the loops were asked to end. Any thread; never blocks."""
        return self._stopped

    def disconnect(self) -> Future[None]:
        """End the loops, and what is left on them. Any thread; never blocks.

        Returns:
            Done when their threads have ended.
        """
        with self._lock:
            self._stopped = True
        # In a forked child, those of the parent are left alone.
        hosts = [seat.host for seat in self._seats if seat.pid == os.getpid()]
        for host in hosts:
            host.stop()
        ended: Future[None] = Future()
        _resolve_after([host.stopped for host in hosts], ended)
        return ended

    # -- at home -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Cancel all calls, and accept no more. Never blocks.

        The loops go on, for the cleanup of the calls: if they ended now, they would cancel these a
        second time, and cut that short.
        """
        with self._lock:
            self._stopped = True
        for seat in self._seats:
            for call in tuple(seat.calls):
                call.request_cancel()

    def hand_over(self, work: Callable[[_Call], Coroutine[Any, Any, Any]]) -> _Call:
        """Begin a call on the loop that has the fewest, in a copy of the context of this call.

        Raises:
            LoopUnavailableError: The bridge is closing, or no thread can be started.
        """
        while True:
            seat = self._choose()
            call = _Call(seat, work)
            seat.calls.add(call)
            if seat.host.tell(call.begin):
                return call
            seat.retired = True  # it has just ended
            seat.calls.discard(call)

    def _choose(self) -> _Seat:
        seats = [each for each in self._seats if not each.retired]
        seat = min(seats, key=lambda each: len(each.calls), default=None)
        if seat is not None and (not seat.calls or len(seats) >= self._size):
            return seat
        return self._add()

    def _add(self) -> _Seat:
        self._started += 1
        home = asyncio.get_running_loop()
        seat = _Seat(self, f"{self._name}-graphs-{self._started}", home)
        with self._lock:
            if self.has_stopped():
                raise LoopUnavailableError(
                    f"the loops on which the bridge {self._name} calls its graphs have ended; make "
                    "a new bridge"
                )
            dedicate(seat.host.start(), self._inbox)
            self._seats = (*self._seats, seat)
        if self.has_stopped():  # a signal handler has closed the bridge in between
            seat.host.stop()
        return seat

    def lose(self, seat: _Seat, error: LoopUnavailableError) -> None:
        """Fail the calls on a loop that has ended; another one takes its place."""
        with self._lock:
            self._seats = tuple(each for each in self._seats if each is not seat)
        for call in tuple(seat.calls):
            call.settle(None, error)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Have the loop at home do something. Any thread; nothing is done if it is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, context=Context())


def _resolve_after(futures: list[Future[None]], ended: Future[None]) -> None:
    """Resolve ``ended`` when all of ``futures`` are."""
    while futures:
        future = futures.pop()
        if not future.done():
            future.add_done_callback(lambda _: _resolve_after(futures, ended))
            return
    with contextlib.suppress(InvalidStateError):
        ended.set_result(None)


# -- which graphs can be called there --------------------------------------------------------------


def _is_async(function: Any) -> bool:
    called = getattr(function, "__call__", None)  # noqa: B004 - how it is called, not whether
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


# Those that were found to be movable: looking for subgraphs takes longer than a run. As with
# `chunks._breakpoints`, weak, and each access is one call of a built-in dict.
_movable: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()


def _check_movable(graph: Any) -> None:
    """Check that no part of ``graph`` belongs to one loop, as far as it can be seen.

    Raises:
        InvalidArgumentError: One does.
    """
    with contextlib.suppress(TypeError):  # neither hashable nor weakly referenced
        if graph in _movable:
            return
    for part in _parts_of(graph):
        for name in ("loop", "_loop"):  # as LangGraph's savers and stores have it
            if isinstance(getattr(part, name, None), asyncio.AbstractEventLoop):
                raise InvalidArgumentError(
                    f"the {type(part).__name__} of {graph!r} belongs to the event loop that it was "
                    "opened on, and with several loops graphs are called on others; use an "
                    "InMemorySaver or InMemoryStore, or loops=1, or a RayExecutor, each of whose "
                    "workers opens one of its own"
                )
    with contextlib.suppress(TypeError):
        _movable[graph] = None


def _parts_of(graph: Any) -> Iterator[Any]:
    """The savers and stores of a graph, of what it wraps, and of its subgraphs."""
    for layer in layers_of(graph):
        subgraphs = layer.get_subgraphs(recurse=True) if hasattr(layer, "get_subgraphs") else ()
        for each in (layer, *(subgraph for _, subgraph in subgraphs)):
            yield getattr(each, "checkpointer", None)
            yield getattr(each, "store", None)
