"""VirtualTimeLoop: an event loop whose clock is a virtual-time scheduler of RxPY.

There is one clock and one queue of actions: those of a ``VirtualTimeScheduler`` (or its subclasses
``TestScheduler`` and ``HistoricalScheduler``), which is used unchanged. The loop schedules actions
there like any other client: one at the time of its next timer, and one immediately if a callback is
added while the loop is not running. Such an action runs the loop until it is idle, in the thread
that runs the scheduler. So time advances only after the loop and its worker threads have nothing
left to do at the current time, and simultaneous actions run in the order in which they were
scheduled.

What breaks without it: two clocks drift apart. A loop that jumps ahead by itself does so while the
test is still preparing the next event, and a test scheduler unaware of the loop takes its next
action before the loop has finished the last one.

A thread that waits for a run (``future.result()``), for room or for an idle registry would wait
forever, because nothing else runs the loop. It runs the scheduler itself until the wait is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import Context, copy_context
from typing import Any, TypeVar

from reactivex import abc
from reactivex.scheduler import VirtualTimeScheduler

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.stacks import UNREADABLE, format_frames, frame_of
from rxlanggraph.errors import BlockingCallError, DeadlockError

__all__ = ["VirtualClock", "VirtualTimeLoop", "refuse_on_loop"]

_T = TypeVar("_T")
_log = logging.getLogger("rxlanggraph")

# Schedulers of RxPY keep time in microseconds.
_RESOLUTION = 1e-6
# Seconds from which on a timer is never due: a date that Python cannot express.
_NEVER = 1e11
# Real seconds after which a waiting thread checks again whether it has to run the scheduler. A
# guess; most tests have a single thread that does.
_LOOK_EVERY = 0.05
_local = threading.local()  # in a worker thread: its _Job


class _Selector(selectors.DefaultSelector):
    """Leaves it to its loop how to wait when no callback is ready."""

    wait: Callable[[float | None, Callable[[float | None], Any]], Any]

    def select(self, timeout: float | None = None) -> Any:
        return self.wait(timeout, super().select)


class _Job:
    """One call in a worker thread."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self.loop = loop
        self.thread: int | None = None  # written by that thread


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Runs when its scheduler does. Made, run and closed in one thread, but by no ``asyncio.run``.

    Args:
        scheduler: The scheduler, whose time and agenda it shares.
        idle_threshold: Real seconds during which nothing may happen before it counts as idle.
        thread_timeout: Real seconds that worker threads may take before it no longer waits.
    """

    def __init__(
        self, scheduler: VirtualTimeScheduler, idle_threshold: float, thread_timeout: float
    ) -> None:
        self.scheduler = scheduler
        # Called in the loop's thread whenever it has become idle.
        self.on_idle: Callable[[], object] = bool
        self._idle_threshold = idle_threshold
        self._thread_timeout = thread_timeout
        # Confined to the thread that runs the scheduler, as is all that is not said to be shared.
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._wake_at: float | None = None  # when an action for the next timer is scheduled
        self._until: list[Callable[[], bool]] = []  # what is waited for, innermost last
        self._has_run = False
        # Held by the thread that runs the loop or waits by running the scheduler; the latter may do
        # the former.
        self._driving = fork_safe_rlock()
        # Reentrant, as for every lock that a finalizer may want. Guards the three below.
        self.lock = fork_safe_rlock()
        self._requested = False  # whether an action for now is scheduled
        self._at_work: set[_Job] = set()
        self._given_up: set[_Job] = set()  # at work as well, for too long to hold up time
        selector = _Selector()
        selector.wait = self._wait
        super().__init__(selector)

    # -- what asyncio asks for -----------------------------------------------------------------

    def time(self) -> float:
        """The scheduler's time, in seconds. Any thread; never blocks."""
        return float(self.scheduler.to_seconds(self.scheduler.clock))

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.loop.call_soon`."""
        handle = super().call_soon(callback, *args, context=context)
        if not self.is_running():
            self._request()
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.loop.call_soon_threadsafe`."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._request()  # also if it runs: it may be about to end, as idle
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_at`. Timers of one moment run in the order of these calls."""
        context = copy_context() if context is None else context
        timer = asyncio.TimerHandle(when, callback, args, self, context)

        def run() -> None:
            if not timer.cancelled():
                callback(*args)

        def start() -> None:
            self.call_soon(run, context=context)

        heapq.heappush(self._timers, (when, next(self._numbers), timer, start))
        if not self.is_running():
            self._schedule_timer()
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        """See `asyncio.loop.run_in_executor`. Until it has ended, time does not pass."""
        if executor is None:
            return super().run_in_executor(None, func, *args)
        job = _Job(self)

        def call() -> _T:
            _local.job, job.thread = job, threading.get_ident()
            try:
                return func(*args)
            finally:
                _local.job = None

        with self.lock:
            self._at_work.add(job)
        try:
            called = executor.submit(call)
        except BaseException:
            self._end(job)
            raise
        future = asyncio.wrap_future(called, loop=self)

        def ended(_: Future[_T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.call_soon_threadsafe(self._end, job)

        called.add_done_callback(ended)  # behind the one that passes the result on
        return future

    def _end(self, job: _Job) -> None:
        with self.lock:
            self._at_work.discard(job)
            self._given_up.discard(job)

    # -- running -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Run until nothing is left to be done at this time. Blocks while worker threads work.

        Raises:
            BlockingCallError: An event loop runs in this thread.
            DeadlockError: A worker thread takes too long.
        """
        if self.is_closed():
            return
        refuse_on_loop()
        with self._driving:
            going = True
            while going:
                going = False
                try:
                    self.run_forever()
                except SystemExit:
                    _log.warning("SystemExit on a loop in virtual time, which continues")
                    going = True
        self.on_idle()

    def _wait(self, timeout: float | None, select: Callable[[float | None], Any]) -> Any:
        due = self._start_timers()
        if due or timeout is not None:
            return select(0)
        events = select(self._idle_threshold)
        if events:
            return events
        with self.lock:
            at_work = list(self._at_work)
        if not at_work:
            self.stop()
            return []
        events = select(self._thread_timeout)
        if not events:
            self._give_up(at_work)
        return events

    def _give_up(self, jobs: list[_Job]) -> None:
        with self.lock:
            late = self._at_work.intersection(jobs)
            self._at_work -= late
            self._given_up |= late
        frames = [frame for job in jobs if (frame := frame_of(job.thread)) is not None]
        stacks = format_frames(frames) or UNREADABLE
        raise DeadlockError(
            f"virtual time stands still, as a worker thread has been active for "
            f"{self._thread_timeout} real seconds; make it end, or make the bridge with a larger "
            f"thread_timeout. It is at\n{stacks}"
        )

    def _start_timers(self) -> bool:
        now, due = self.time() + _RESOLUTION, False
        while self._timers and (self._timers[0][0] <= now or self._timers[0][2].cancelled()):
            *_, timer, start = heapq.heappop(self._timers)
            if not timer.cancelled():
                start()
                due = True
        return due

    def next_timer(self) -> float | None:
        """When the next timer is due, if ever."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        when = self._timers[0][0] if self._timers else _NEVER
        return when if when < _NEVER else None

    # -- on the scheduler's agenda ---------------------------------------------------------------

    def _request(self) -> None:
        with self.lock:
            if self._requested or self.is_closed():
                return
            self._requested = True
        self.scheduler.schedule(self._run_now)

    def _schedule_timer(self) -> None:
        when = self.next_timer()
        if when is not None and (self._wake_at is None or when < self._wake_at):
            self._wake_at = when
            self.scheduler.schedule_absolute(when, self._run_timers)

    def _run_now(self, _: abc.SchedulerBase, __: object = None) -> None:
        with self.lock:
            self._requested = False
        self._run()

    def _run_timers(self, _: abc.SchedulerBase, __: object = None) -> None:
        self._wake_at = None
        self._run()

    def _run(self) -> None:
        self._has_run = True
        self.settle()
        self._schedule_timer()
        if self._until and self._until[-1]():
            self.scheduler.stop()

    # -- waiting ---------------------------------------------------------------------------------

    def drive(self, done: Callable[[], bool]) -> bool:
        """Run the scheduler until ``done()``, which is called whenever the loop is idle. Blocks.

        If called in an action of the scheduler, time passes for the loop alone: other actions are
        late, as if their thread had been blocked.

        Returns:
            False if another thread does so at the moment.

        Raises:
            BlockingCallError: An event loop runs in this thread.
            DeadlockError: Nothing is left that could happen.
        """
        refuse_on_loop()
        if not self._driving.acquire(blocking=False):
            return False
        try:
            while not done():
                if not (self._go_on(done) or self._wait_for_threads_again()):
                    raise DeadlockError(
                        "nothing is left to happen in virtual time, so this wait would never end; "
                        "schedule what it needs before, or wait with a timeout"
                    )
        finally:
            self._driving.release()
        return True

    def check_free(self) -> None:
        """Check that no other thread runs the scheduler at the moment. Any thread; never blocks.

        Raises:
            BlockingCallError: One does.
        """
        if not self._driving.acquire(blocking=False):
            raise BlockingCallError(
                "another thread lets virtual time pass at the moment; wait for a run here, with "
                "bridge.create_future_task(...).result()"
            )
        self._driving.release()

    def _go_on(self, done: Callable[[], bool]) -> bool:
        self._has_run = False
        self._request()
        self._until.append(done)
        try:
            VirtualTimeScheduler.start(self.scheduler)
        except BaseException:
            self.scheduler.stop()  # otherwise it counts as running forever
            raise
        finally:
            self._until.pop()
        if done() or self._has_run:
            return done()
        try:
            return self.go_on_alone() or done()  # the scheduler is in an action, this one
        finally:
            self._request()  # so that outer waits are checked again, too

    def _wait_for_threads_again(self) -> bool:
        """Let the worker threads that were given up hold up time again; False if there are none."""
        with self.lock:
            jobs, self._given_up = self._given_up, set()
            self._at_work |= jobs
        return bool(jobs)

    def go_on_alone(self, until: float = _NEVER) -> bool:
        """Let time pass to the next timer, without the scheduler; False if there is none."""
        self.settle()
        when = self.next_timer()
        if when is None or when > until:
            return False
        self.scheduler.sleep(max(when - self.time(), 0.0))
        self.settle()
        return True

    def rest(self, job: _Job, gate: _VirtualGate) -> None:
        """Count ``job`` as not at work until ``gate`` is open. In its thread; never blocks."""
        with self.lock:
            if gate.is_open:
                return
            gate.job = job
            self._at_work.discard(job)
            self._given_up.discard(job)
        self._poke()

    def resume(self, job: _Job | None) -> None:
        """Count ``job`` as at work again. Any thread, under the lock."""
        if job is not None:
            self._at_work.add(job)

    def _poke(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is closed
            self.call_soon_threadsafe(bool)


class _VirtualGate:
    """A gate whose wait lets virtual time pass. See `rxlanggraph.concurrency.clock.Gate`."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self._over = threading.Event()
        self.job: _Job | None = None  # what waits, if it is one; guarded by the lock of the loop
        self.is_open = False  # as well

    def release(self) -> None:
        """Open it. Any thread; never blocks."""
        self._end(is_open=True)

    def _end(self, *, is_open: bool) -> None:
        with self._loop.lock:
            self.is_open = self.is_open or is_open
            job, self.job = self.job, None
            self._loop.resume(job)  # before it is woken
        self._over.set()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait until it is open. Any thread."""
        if self.is_open or not blocking:
            return self.is_open
        timers: list[asyncio.TimerHandle] = []

        def set_timer() -> None:
            over = self._loop.call_later(timeout, self._end_of_time)
            timers.append(over)

        if timeout >= 0:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(set_timer)
        try:
            self._wait()
        finally:
            for timer in timers:
                timer.cancel()
        return self.is_open

    def _end_of_time(self) -> None:
        self._end(is_open=False)

    def _wait(self) -> None:
        job = getattr(_local, "job", None)
        if job is not None and job.loop is self._loop:
            self._loop.rest(job, self)
            self._over.wait()
            return
        while not self._over.is_set():
            if self._loop.is_closed() or not self._loop.drive(self._over.is_set):
                self._over.wait(_LOOK_EVERY)


class VirtualClock:
    """The time of a loop. See `rxlanggraph.concurrency.clock.Clock`."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop = loop
        self.now = loop.time

    def gate(self) -> _VirtualGate:
        """Make a closed gate. Any thread; never blocks."""
        return _VirtualGate(self._loop)


def refuse_on_loop() -> None:
    """Check that virtual time may pass in this thread.

    Raises:
        BlockingCallError: An event loop runs in it.
    """
    if asyncio._get_running_loop() is not None:
        raise BlockingCallError(
            "virtual time passes in a thread without a running event loop; make the test a plain "
            "function, and run its coroutines with bridge.run(...)"
        )
