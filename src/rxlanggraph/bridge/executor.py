"""RunExecutor: where sync functions and sync graph nodes of runs are executed.

Why not a ``ThreadPoolExecutor``: its bound would be a second one beside ``max_concurrency`` and
throttle below it (LangGraph's sync nodes take the loop's default executor: six threads on two
cores); one run's fan-out would make every other run wait; it does not tell whose thread is still
busy after a run was cancelled; and the interpreter waits for its threads at exit, for ever if one
is stuck.

Here each run has one thread for itself as soon as it needs one. What it asks for beyond that comes
out of a number of spare threads, for which the runs take turns. As a run that has not ended holds
a slot, there are never more than ``max_concurrency`` and the spare ones. All are daemons, and end
when they were idle for a while.

How calls get here: LangGraph, LangChain and ``asyncio.to_thread`` all call
``loop.run_in_executor(None, ...)``. `route_runs` puts a method in front of it, on that one loop,
which looks whose call it is. The loop's default executor stays whatever the host has made it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from types import FrameType
from typing import Any, ParamSpec, Self, TypeVar

from rxlanggraph.bridge.run import Phase, Run, current_run
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.threads import lock_released, start_detached
from rxlanggraph.errors import InvalidTypeError

__all__ = ["RunExecutor", "RunRouting", "active_run", "check_routable", "route_runs"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Seconds after which a thread that has nothing to do ends. A guess: longer than the pauses of a
# busy pipeline, shorter than anyone looks at a list of threads.
_IDLE_TIMEOUT = 10.0
# Seconds that an idle thread gets to end when it is told to. A guess: far more than it needs.
_LEAVING = 1.0


class _Share:
    """The jobs of one run that have not ended. Guarded by the lock of the bridge."""

    __slots__ = ("executing", "on_idle", "waiting")

    def __init__(self) -> None:
        # With their threads, once they have begun.
        self.executing: dict[_Job, int | None] = {}
        self.waiting: deque[_Job] = deque()
        self.on_idle: Callable[[], object] | None = None


class _Job:
    """One call, the run that it belongs to, and the future of its result."""

    __slots__ = ("call", "future", "run", "share")

    def __init__(self, run: Run | None, share: _Share, call: Callable[[], Any]) -> None:
        self.run = run
        self.share = share
        self.call = call
        self.future: Future[Any] = Future()


class RunExecutor(Executor):
    """An executor that knows which run each of its threads works for.

    Calls that belong to no run share the place of one more run.

    Args:
        name: Prefix of the threads' names.
        lock: The lock of the bridge.
        spare: How many threads there may be beside one for each run.
        idle_timeout: Seconds after which an idle thread ends.
    """

    def __init__(
        self,
        name: str,
        lock: threading.RLock,
        spare: int,
        *,
        idle_timeout: float = _IDLE_TIMEOUT,
    ) -> None:
        self.idle_timeout = idle_timeout
        self._name = name
        # The lock of the bridge: guards all below but the two queues, and every share.
        self._lock = lock
        self._spare = spare  # how many of them are free
        # Jobs count from submit on: else a run cancelled in between would give its slot back early.
        self._shares: dict[Run | None, _Share] = {}
        # Shares with jobs that wait, in the order in which they get the next spare thread. While
        # there is one, no spare thread is free, and each of them has a thread at work.
        self._hungry: dict[_Share, None] = {}
        # What a thread is to take next; None ends it. One queue for all: a thread that is awake
        # takes what comes, before others are woken for it.
        self._ready: SimpleQueue[_Job | None] = SimpleQueue()
        # Threads at that queue, or on their way to it, for which nothing is in it. A thread counts
        # from the end of its job on, in one section with that: whoever is told of that end and
        # submits at once finds it here, so that there are never more than allowed.
        self._idle = 0
        # How many were idle at all times since then: those nobody needed.
        self._least_idle = 0
        self._since = monotonic()
        self._shut = False
        self._leaving: SimpleQueue[threading.Thread] = SimpleQueue()  # told to end, and ending

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Execute ``fn(*args, **kwargs)`` in a thread, for the run that calls. Never blocks.

        On the loop's thread. Cancelling the future before its thread has begun takes it back;
        after that the thread runs on, its result is dropped, and its run holds its slot until it
        ends. After `shutdown` too, as runs that did not end may go on; the thread ends with it.

        Raises:
            RuntimeError: No thread can be started.
        """
        run = active_run()
        if run is not None:
            run.threaded = True
        with self._lock:
            share = self._shares.get(run)
            if share is None:
                share = self._shares[run] = _Share()
            job = _Job(run, share, partial(fn, *args, **kwargs))
            if share.executing and not self._spare:
                share.waiting.append(job)
                self._hungry.setdefault(share)
                return job.future
            if share.executing:
                self._spare -= 1
            share.executing[job] = None
            use_idle = self._idle > 0
            if use_idle:
                self._idle -= 1
                self._least_idle = min(self._least_idle, self._idle)
                self._ready.put(job)
        if not use_idle:
            self._start_thread(job)
        return job.future

    def _start_thread(self, job: _Job) -> None:
        # The job goes in with its thread, so that none is queued where no thread could start; in a
        # list, to be taken out, as a thread keeps its arguments for as long as it lasts.
        thread = threading.Thread(
            target=self._work, args=([job],), name=f"{self._name}-worker", daemon=True
        )
        try:
            start_detached(thread)
        except RuntimeError:
            self._end_job(job, goes_on=False)
            raise

    def on_idle(self, run: Run, callback: Callable[[], object]) -> bool:
        """Call ``callback``, in its last thread, once no thread works for ``run`` any more.

        Any thread; never blocks.

        Returns:
            False if none does now; then it is not called.
        """
        with self._lock:
            share = self._shares.get(run)
            if share is None:
                return False
            share.on_idle = callback
            return True

    def frames(self, run: Run) -> list[FrameType]:
        """The innermost frame of each thread that works for ``run``. Any thread; never blocks."""
        with self._lock:
            share = self._shares.get(run)
            idents = () if share is None else tuple(share.executing.values())
        current = sys._current_frames()
        return [current[ident] for ident in idents if ident in current]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end as soon as they are idle; ``wait`` for those that are.

        Any thread. A thread that is busy is not waited for: it is a daemon, and the clean-up
        report names it if it works for a run.
        """
        with self._lock:
            self._shut = True
            idle = self._dismiss(self._idle)
        with lock_released(self._lock), contextlib.suppress(Empty):
            for _ in range(idle if wait else 0):
                # In vain where this is called in one of them, by what was told of its last job.
                self._leaving.get(timeout=_LEAVING).join()

    # -- in the threads ------------------------------------------------------------------------

    def _work(self, first: list[_Job]) -> None:
        job: _Job | None = first.pop()
        while job is not None:
            self._execute(job)
            del job  # or an idle thread would keep the last run and its result alive
            job = self._next_job()

    def _next_job(self) -> _Job | None:
        try:
            job = self._ready.get(timeout=self.idle_timeout)
        except Empty:
            with self._lock:
                if self._idle > 0:
                    self._idle -= 1
                    self._least_idle = min(self._least_idle, self._idle)
                    return None
            job = self._ready.get()  # there is something for each that is not idle
        if job is None and self._shut:
            self._leaving.put(threading.current_thread())
        return job

    def _execute(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            self._end_job(job)
            return
        with self._lock:
            job.share.executing[job] = threading.get_ident()
        try:
            result = job.call()
        except BaseException as error:
            # Ended before resolved: whoever goes on because of the result finds the thread free.
            self._end_job(job)
            job.future.set_exception(error)
            del job  # the error refers to this frame, by its traceback, and the future to it
        else:
            self._end_job(job)
            job.future.set_result(result)

    def _end_job(self, job: _Job, *, goes_on: bool = True) -> None:
        share = job.share
        with self._lock:
            del share.executing[job]
            if goes_on:
                self._go_on(share)
            elif share.executing:
                self._spare += 1
            if share.executing:
                return
            del self._shares[job.run]
            callback = share.on_idle
        if callback is not None:
            callback()

    def _go_on(self, share: _Share) -> None:
        """Give a thread, done with a job of ``share``, something to do next. Under the lock."""
        if not share.executing:
            # It was the one thread that the run has for itself.
            successor = share if share.waiting else None
        elif self._hungry:
            successor = next(iter(self._hungry))
        else:
            self._spare += 1
            successor = None
        if successor is None:
            self._idle += 1
            self._dismiss(self._not_needed())
            return
        job = successor.waiting.popleft()
        del self._hungry[successor]
        if successor.waiting:
            self._hungry[successor] = None  # behind the others
        successor.executing[job] = None
        self._ready.put(job)

    def _not_needed(self) -> int:
        """How many idle threads to end, as work has come for others in turn. Under the lock."""
        if self._shut:  # looked at after the count, as `shutdown` writes it before it looks
            return self._idle
        now = monotonic()
        if now - self._since < self.idle_timeout:
            return 0
        not_needed, self._least_idle, self._since = self._least_idle, self._idle, now
        return not_needed

    def _dismiss(self, count: int) -> int:
        """Have ``count`` idle threads end, and return how many that are. Under the lock."""
        self._idle -= count
        self._least_idle = min(self._least_idle, self._idle)
        for _ in range(count):
            self._ready.put(None)
        return count


# -- which calls come here -------------------------------------------------------------------------


def active_run() -> Run | None:
    """The run in whose context this code executes, unless that has ended. On its loop."""
    run = current_run()
    return run if run is not None and run.phase is Phase.RUNNING else None


class RunRouting:
    """A loop's ``run_in_executor``, with sync code of runs sent to the threads of their own bridge.

    It overrides the method on that one loop while a bridge uses it; made by `route_runs`. Calls
    that name an executor, and those that belong to no run of this loop, go on as they came.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, otherwise: Executor | None) -> None:
        self._loop = loop
        self._otherwise = otherwise
        self._overridden = loop.run_in_executor
        self._users = 0  # guarded by _routing_lock

    def __call__(
        self, executor: Executor | None, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        """Do what ``loop.run_in_executor`` does. On the loop's thread; never blocks."""
        if executor is None:
            run = active_run()
            # Only on its own loop is it known to be still on when this call is counted.
            mine = run is not None and run.get_loop() is self._loop
            executor = run.executor if run is not None and mine else self._otherwise
        return self._overridden(executor, func, *args)

    def release(self) -> None:
        """Say that one user is done. On the loop's thread, or where the loop does not run."""
        with _routing_lock:
            self._users -= 1
            # If others have put something around it since, it stays inside of that.
            if not self._users and vars(self._loop).get(_METHOD) is self:
                del vars(self._loop)[_METHOD]

    def use(self) -> Self:
        """Count one user more. Under the lock."""
        self._users += 1
        return self


_METHOD = "run_in_executor"
# Guards the users of every RunRouting, and the attribute of the loop with it: of one loop they
# mostly come and go on its own thread, but on one that does not run in any. Held for a few lines.
_routing_lock = fork_safe_rlock()


def route_runs(loop: asyncio.AbstractEventLoop, otherwise: Executor | None = None) -> RunRouting:
    """Have sync code of runs on ``loop`` executed in the threads of their own bridges.

    On the loop's thread, or before it runs. Bridges that share a loop share the override; the last
    one to release it takes it away.

    Args:
        loop: The loop.
        otherwise: Where calls go that belong to no run; None for the loop's default executor. What
            the first user says holds.
    """
    with _routing_lock:
        routing = vars(loop).get(_METHOD)
        if not isinstance(routing, RunRouting):
            routing = vars(loop)[_METHOD] = RunRouting(loop, otherwise)
        return routing.use()


def check_routable(loop: asyncio.AbstractEventLoop) -> None:
    """Insist that `route_runs` works with ``loop``. Any thread; never blocks.

    Raises:
        InvalidTypeError: Its type leaves no place for an attribute.
    """
    if not hasattr(loop, "__dict__"):
        raise InvalidTypeError(
            f"{loop!r} cannot be adopted: run_in_executor, by which sync code of runs is sent to "
            "threads of their bridge, cannot be overridden on it; adopt a loop of asyncio or "
            "uvloop, or let the bridge own its loop: RxPyLangGraphBridge()"
        )
