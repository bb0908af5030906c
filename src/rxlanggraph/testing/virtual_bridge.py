"""VirtualBridge: a bridge in virtual time, for tests of pipelines that wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from reactivex import Observable
from reactivex.internal.exceptions import SequenceContainsNoElementsError
from reactivex.scheduler import VirtualTimeScheduler
from reactivex.testing import TestScheduler

from rxlanggraph.bridge.bridge import RxPyLangGraphBridge
from rxlanggraph.bridge.engine import Engine
from rxlanggraph.bridge.listeners import Listeners
from rxlanggraph.bridge.overflow import Overflow
from rxlanggraph.bridge.run import Run, current_run
from rxlanggraph.bridge.run_threads import route_runs
from rxlanggraph.bridge.shutdown import CleanupReport
from rxlanggraph.bridge.time_limits import Timeout
from rxlanggraph.concurrency.tasks import silence_pending_warning
from rxlanggraph.errors import BlockingCallError, InvalidTypeError, LoopUnavailableError
from rxlanggraph.limits import Limits, Usage
from rxlanggraph.testing.virtual_time import VirtualClock, VirtualTimeLoop, refuse_on_loop
from rxlanggraph.validation import check_seconds

__all__ = ["VirtualBridge"]

_T = TypeVar("_T")
# Virtual seconds that tasks get to end when the bridge is closed, as on a loop in real time.
_LAST_ROUND = 1.0


class VirtualBridge(RxPyLangGraphBridge):
    """A bridge whose time is virtual: a node that sleeps for an hour takes no time at all.

    For tests. Its loop and RxPY's ``TestScheduler`` have one clock. Sleeps, timeouts, retries,
    time limits, deadlines and durations of runs follow it, and so do the operators of Rx that are
    given ``bridge.scheduler``, or are subscribed to with it::

        with VirtualBridge() as bridge:
            questions = bridge.scheduler.create_hot_observable(on_next(210, "why"))
            results = bridge.scheduler.start(lambda: questions.pipe(bridge.invoke(graph)))

    There is no thread for the loop: it runs when the scheduler does, in the same thread. So the
    order of events is the same every time, except among worker threads that are active at once.
    Time passes while that thread runs the scheduler (``start``, ``advance_by``, ``advance_to``),
    and while it waits: in `run`, for the result of a future, for room, or for the end of ``close``.
    It passes only when the loop has nothing left to do and no worker thread is active; one that
    itself waits for a run or for room is not.

    The loop does not know of threads and connections of other libraries, such as those of a
    database: they take no virtual time, but may need real time. For those, ``idle_threshold`` says
    for how long nothing may happen before time passes. ``loop_lag`` and ``on_blocked`` report
    nothing, as the loop does not run all the time. RxPY's scheduler itself lets a second pass when
    a hundred of its actions follow each other at the same time.

    Args:
        scheduler: A ``VirtualTimeScheduler`` of RxPY, which others may use too; None makes a
            ``TestScheduler``.
        idle_threshold: Real seconds in which nothing may happen before time passes.
        thread_timeout: Real seconds that worker threads may take before `DeadlockError` is raised.
        max_concurrency: As for `RxPyLangGraphBridge`.
        max_threads: As there.
        max_pending: As there. An action of the scheduler that is blocked by it lets time pass for
            runs alone; the scheduler's other actions are late then.
        max_pending_per_thread: As there.
        overflow: As there.
        timeout: As there.
        limits: As there.
        usage: As there.
        name: As there.

    Raises:
        InvalidArgumentError, InvalidTypeError: As there; or ``scheduler`` is of another kind.
    """

    def __init__(
        self,
        scheduler: VirtualTimeScheduler | None = None,
        *,
        idle_threshold: float = 0.0,
        thread_timeout: float = 10.0,
        max_concurrency: int = 32,
        max_threads: int | None = None,
        max_pending: int | None = None,
        max_pending_per_thread: int | None = None,
        overflow: Overflow = "block",
        timeout: Timeout | None = None,
        limits: Limits | None = None,
        usage: Usage | None = None,
        name: str | None = None,
    ) -> None:
        if scheduler is not None and not isinstance(scheduler, VirtualTimeScheduler):
            raise InvalidTypeError(
                f"scheduler must be a VirtualTimeScheduler of RxPY or None, not {scheduler!r}"
            )
        check_seconds("idle_threshold", idle_threshold)
        check_seconds("thread_timeout", thread_timeout)
        self._scheduler = TestScheduler() if scheduler is None else scheduler
        self._settings = idle_threshold, thread_timeout
        super().__init__(
            max_concurrency=max_concurrency,
            max_threads=max_threads,
            max_pending=max_pending,
            max_pending_per_thread=max_pending_per_thread,
            overflow=overflow,
            timeout=timeout,
            limits=limits,
            usage=usage,
            name=name,
        )

    def _make_engine(
        self, loop: asyncio.AbstractEventLoop | None, *arguments: Any, **options: Any
    ) -> Engine:
        virtual = VirtualTimeLoop(self._scheduler, *self._settings)
        return _VirtualEngine(
            loop,
            *arguments,
            clock=VirtualClock(virtual),
            host_of=lambda engine: _VirtualHost(virtual, engine),
            **options,
        )

    @property
    def scheduler(self) -> Any:
        """The scheduler that it was made with, a ``TestScheduler`` by default."""
        return self._scheduler

    def time(self) -> float:
        """The virtual time, in seconds: ``scheduler.clock``. Any thread; never blocks."""
        return self._engine.clock.now()

    def run(self, awaitable: Awaitable[_T] | Observable[_T]) -> _T:
        """Let time pass until ``awaitable`` is done, and return its result. Blocks for no time.

        For the coroutine of an async test, which may then await runs and streams; for a run; or for
        a stream, whose last item is returned. A stream is subscribed to with the scheduler. In the
        thread that runs the scheduler, also in one of its actions.

        Raises:
            BaseException: That of ``awaitable``.
            DeadlockError: Nothing is left that could happen, or a worker thread takes too long.
            BlockingCallError: An event loop runs in this thread, or another thread lets time pass.
            BridgeClosedError: The bridge is closed.
        """
        try:
            refuse_on_loop()
            loop = self._engine.started_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.check_free()
        except BaseException:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()  # it will not run
            raise
        if isinstance(awaitable, Observable):
            source: Observable[_T] = awaitable
            return self._run_stream(loop, source)

        async def result() -> Any:
            return await awaitable

        task = loop.create_task(result())
        try:
            loop.drive(task.done)
        except BaseException:
            task.cancel()
            with contextlib.suppress(Exception):
                loop.settle()
            raise
        outcome: _T = task.result()
        return outcome

    def _run_stream(self, loop: VirtualTimeLoop, source: Observable[_T]) -> _T:
        ended: Future[_T] = Future()
        latest: list[_T] = []

        def keep(item: _T) -> None:
            latest[:] = [item]

        def complete() -> None:
            if latest:
                ended.set_result(latest[0])
            else:
                ended.set_exception(SequenceContainsNoElementsError())

        subscription = source.subscribe(
            keep, ended.set_exception, complete, scheduler=self._scheduler
        )
        # The end may come out of an action of the scheduler: then it is the loop that notices.
        ended.add_done_callback(lambda _: loop.call_soon_threadsafe(bool))
        try:
            loop.drive(ended.done)
        finally:
            subscription.dispose()
        return ended.result(0)

    def from_iterable(self, iterable: Iterable[_T] | AsyncIterable[_T]) -> Observable[_T]:
        """As `RxPyLangGraphBridge.from_iterable`, but iterates over everything on the loop."""
        if hasattr(iterable, "__iter__") and not hasattr(iterable, "__aiter__"):
            iterable = _OnLoop(iterable)
        return super().from_iterable(iterable)

    async def aclose(
        self,
        timeout: float | None = 5.0,
        *,
        cancel_timeout: float | None = 5.0,
        drain_after: float | None = None,
    ) -> CleanupReport:
        """As `RxPyLangGraphBridge.close`: without a thread for its loop there is nothing to await.

        Args:
            timeout: As there.
            cancel_timeout: As there.
            drain_after: As there.

        Raises:
            BlockingCallError: A run is in flight, and an event loop runs in this thread.
        """
        return self.close(timeout, cancel_timeout=cancel_timeout, drain_after=drain_after)


class _Unwatched(Listeners):
    def watch_loop(self, blocked_after: float) -> None:
        """Do nothing: most of the time the loop does not run, and is not blocked for that."""


class _VirtualEngine(Engine):
    listeners_of = _Unwatched

    def new_run(self, *arguments: Any, **options: Any) -> Run:
        # What is sent in real time, and awaited there, would be awaited forever.
        if not isinstance(asyncio._get_running_loop(), VirtualTimeLoop):
            refuse_on_loop()
        return super().new_run(*arguments, **options)

    def check_run_of_rx(self) -> None:
        # Another thread may let time pass meanwhile; the one that runs the tests is alone.
        if current_run() is None and threading.current_thread() is threading.main_thread():
            raise BlockingCallError(
                "run() of RxPY would wait forever, as it lets no virtual time pass; use "
                "bridge.run(source)"
            )


class _OnLoop(AsyncIterable[_T]):
    def __init__(self, iterable: Iterable[_T]) -> None:
        self._iterable = iterable

    async def __aiter__(self) -> AsyncIterator[_T]:
        for item in self._iterable:
            yield item


class _VirtualHost:
    """See `rxlanggraph.bridge.loops.LoopHost`. Its loop is run by the scheduler."""

    owned = True
    look_every: float | None = None
    paused = False

    def __init__(self, loop: VirtualTimeLoop, engine: Engine) -> None:
        self.loop: asyncio.AbstractEventLoop | None = loop
        self.thread_id: int | None = None
        self.stopped: Future[None] = Future()
        self.begun = False
        self._loop = loop
        self._engine = engine
        self._stopping = False  # only ever set
        self._ending = False
        self._routing = route_runs(loop, engine.threads)
        loop.on_idle = self._end

    def start(self) -> asyncio.AbstractEventLoop:
        """Return the loop."""
        self.begun = True
        return self._loop

    def check(self) -> None:
        """Do nothing: the loop is there until the bridge is closed."""

    def stop(self) -> None:
        """End the loop; when it is idle, if it is running."""
        self._stopping = True
        if not self._loop.is_running():
            self._end()

    def _end(self) -> None:
        if not self._stopping or self._ending:
            return
        self._ending = True
        error = LoopUnavailableError(f"the event loop of {self._engine.name} was stopped")
        try:
            self._engine.loop_stopping(error)
            if asyncio._get_running_loop() is None:
                self._finish(self._loop)
        finally:
            self._routing.release()
            self._loop.close()
            self._engine.loop_stopped(error)
            with contextlib.suppress(InvalidStateError):
                self.stopped.set_result(None)

    def _finish(self, loop: VirtualTimeLoop) -> None:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        until = loop.time() + _LAST_ROUND
        loop.settle()
        while not all(task.done() for task in tasks) and loop.go_on_alone(until):
            pass
        if all(task.done() for task in tasks):
            loop.create_task(loop.shutdown_asyncgens())
            loop.settle()
        for task in asyncio.all_tasks(loop):
            silence_pending_warning(task)  # named in the cleanup report
