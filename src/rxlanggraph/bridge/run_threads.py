"""RunThreads: where sync functions and sync graph nodes of runs are executed.

Why not a ``ThreadPoolExecutor``: its limit would be a second, lower one beside
``max_concurrency`` (LangGraph's sync nodes use the loop's default executor, which has few threads);
the fan-out of one run would make all others wait; it cannot tell which runs still keep a thread
busy after their cancellation; and the interpreter waits for its threads at exit, forever if one is
stuck.

Here each run gets a thread of its own when it first needs one. Its further threads come from a
fixed number of spare ones, which the runs take in turn. As a run holds a slot until it has ended,
there are never more threads than ``max_concurrency`` plus the spare ones. All are daemons, and end
after they have been idle for a while.

How calls get here: LangGraph, LangChain and ``asyncio.to_thread`` all call
``loop.run_in_executor(None, ...)``. `route_runs` overrides that method, on that one loop, with one
that determines which run the call belongs to. The loop's default executor stays whatever the host
application has made it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any, ParamSpec, Self, TypeVar

from rxlanggraph.bridge.run import Phase, Run, current_run
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.stacks import frame_of
from rxlanggraph.concurrency.threads import lock_released, start_detached
from rxlanggraph.errors import InvalidTypeError

__all__ = ["RunRouting", "RunThreads", "active_run", "check_routable", "route_runs"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Seconds after which an idle thread ends. A guess: longer than the pauses of a busy pipeline,
# shorter than it takes a person to look at a list of threads.
_IDLE_TIMEOUT = 10.0
# Seconds for an idle thread to end when it is told to. A guess: far more than it needs.
_LEAVING = 1.0


class _Share:
    """The unfinished jobs of one run. Guarded by the lock of the bridge."""

    __slots__ = ("executing", "on_idle", "waiting")

    def __init__(self) -> None:
        # Jobs that have begun, with their threads.
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


class _Worker:
    """One thread, and how it is handed its next job.

    Not by a queue with a timeout: before Python 3.13, the ``get`` of a `queue.SimpleQueue` may wait
    forever once its timeout has passed, if another thread takes the item; and the lock of a
    `queue.Queue` cannot be taken by a signal handler that has interrupted its own thread there.
    """

    __slots__ = ("_handed", "_job", "thread")

    def __init__(self, job: _Job) -> None:
        # Written before `_handed` is released, read after it was acquired.
        self._job: _Job | None = job
        self._handed = threading.Lock()  # locked, but while a job has been handed over
        self._handed.acquire()
        self.thread: threading.Thread  # written before it starts

    def hand(self, job: _Job | None) -> None:
        """Give the thread, which is idle or about to be, its next job; None ends it."""
        self._job = job
        self._handed.release()

    def wait(self, timeout: float = -1) -> bool:
        """Wait in the thread until it is handed a job; -1: however long. Return whether it was."""
        return self._handed.acquire(timeout=timeout)

    def take(self) -> _Job | None:
        """Return the job, which this does not keep alive any longer."""
        job, self._job = self._job, None
        return job


class RunThreads(Executor):
    """An executor that knows which run each of its threads works for.

    Calls that belong to no run share the quota of one additional run.

    Args:
        name: Prefix of the threads' names.
        lock: The lock of the bridge.
        spare: How many threads there may be in addition to one for each run.
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
        # The lock of the bridge: guards everything below but the two queues, and every share.
        self._lock = lock
        self._spare = spare  # how many spare threads are free
        # Jobs count from submit on: a run cancelled just after it would give its slot back too
        # early.
        self._shares: dict[Run | None, _Share] = {}
        # Shares with waiting jobs, in the order in which they get the next spare thread. While
        # there is one, no spare thread is free, unless one could not be started; and each of these
        # shares has a thread at work.
        self._hungry: dict[_Share, None] = {}
        # The threads that wait for a job or are on their way to do so, the one that was at work
        # last at the end: it is the next to be handed one, so those that are not needed time out.
        # A thread is here from the end of its job on, within the same critical section: code that
        # learns of that end and submits at once finds the thread idle, so the limit is never
        # exceeded.
        self._idle: dict[_Worker, None] = {}
        self._shut = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Execute ``fn(*args, **kwargs)`` in a thread, for the calling run. Never blocks.

        On the thread of the run's loop, or of that on which its graph is called. Cancelling the
        future before its thread has begun withdraws the call; after that the thread runs on, its
        result is dropped, and its run holds its slot until the thread ends. Works after `shutdown`
        too, as unfinished runs may continue; the thread then ends with the call.

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
            idle = self._pop_idle()
            if idle is not None:
                idle.hand(job)
        if idle is None:
            self._start_thread(job)
        return job.future

    def _start_thread(self, job: _Job) -> None:
        worker = _Worker(job)
        worker.thread = threading.Thread(
            target=self._work, args=(worker,), name=f"{self._name}-worker", daemon=True
        )
        try:
            start_detached(worker.thread)
        except RuntimeError as error:
            for stranded in self._end_job(job, None):
                if stranded.future.set_running_or_notify_cancel():
                    stranded.future.set_exception(error)
            raise

    def on_idle(self, run: Run, callback: Callable[[], object]) -> bool:
        """Call ``callback``, in the run's last thread, once no thread works for ``run`` any more.

        Any thread; never blocks.

        Returns:
            False if no thread works for it now; then ``callback`` is not called.
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
        return [frame for ident in idents if (frame := frame_of(ident)) is not None]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end as soon as they are idle; ``wait`` for those that are idle now.

        Any thread. A busy thread is not waited for: it is a daemon, and the cleanup report names
        it if it works for a run.
        """
        with self._lock:
            self._shut = True
            idle = self._dismiss_idle()
        if not wait:
            return
        until = monotonic() + _LEAVING
        with lock_released(self._lock):
            for worker in idle:
                # This may be called in one of them, by a callback of its last job.
                if worker.thread is not threading.current_thread():
                    worker.thread.join(max(0.0, until - monotonic()))

    # -- in the threads ------------------------------------------------------------------------

    def _work(self, worker: _Worker) -> None:
        while (job := worker.take()) is not None:
            self._execute(job, worker)
            del job  # otherwise an idle thread keeps the last run and its result alive
            if not worker.wait(self.idle_timeout):
                with self._lock:
                    if worker in self._idle:
                        del self._idle[worker]
                        return
                worker.wait()  # it has been handed a job just now

    def _execute(self, job: _Job, worker: _Worker) -> None:
        if not job.future.set_running_or_notify_cancel():
            self._end_job(job, worker)
            return
        with self._lock:
            job.share.executing[job] = threading.get_ident()
        try:
            result = job.call()
        except BaseException as error:
            # Ended before resolved: code that continues on the result finds the thread free.
            self._end_job(job, worker)
            # Without this frame, which is still executed when the loop clears those of the
            # traceback: without the GIL, that is a race with its end. It would also keep the job.
            traceback = error.__traceback__
            job.future.set_exception(error.with_traceback(traceback and traceback.tb_next))
            del error, traceback, job
        else:
            self._end_job(job, worker)
            job.future.set_result(result)

    def _end_job(self, job: _Job, worker: _Worker | None) -> Iterable[_Job]:
        """Count ``job`` no longer, and give ``worker``, which has done it, its next one.

        Returns:
            If no thread has started for it: the waiting jobs that none will do now.
        """
        share = job.share
        stranded: deque[_Job] = deque()
        with self._lock:
            del share.executing[job]
            if worker is not None:
                self._go_on(share, worker)
            elif share.executing:
                self._spare += 1
            else:
                # It was to be the run's own thread.
                share.waiting, stranded = stranded, share.waiting
                self._hungry.pop(share, None)
            if share.executing:
                return stranded
            del self._shares[job.run]
            callback = share.on_idle
        if callback is not None:
            callback()
        return stranded

    def _go_on(self, share: _Share, worker: _Worker) -> None:
        """Give ``worker``, which has done a job of ``share``, its next one. Under the lock."""
        if not share.executing:
            # This was the run's own thread.
            successor = share if share.waiting else None
        elif self._hungry:
            successor = next(iter(self._hungry))
        else:
            self._spare += 1
            successor = None
        if successor is None:
            self._idle[worker] = None
            if self._shut:  # read after counting it; `shutdown` writes it before
                self._dismiss_idle()
            return
        job = successor.waiting.popleft()
        del self._hungry[successor]
        if successor.waiting:
            self._hungry[successor] = None  # behind the others
        successor.executing[job] = None
        worker.hand(job)

    def _pop_idle(self) -> _Worker | None:
        """Take an idle thread to be handed a job, if there is one. Under the lock."""
        try:
            return self._idle.popitem()[0]
        except KeyError:
            return None

    def _dismiss_idle(self) -> list[_Worker]:
        """Make the idle threads end, and return them. Under the lock."""
        dismissed = []
        while (worker := self._pop_idle()) is not None:
            worker.hand(None)
            dismissed.append(worker)
        return dismissed


# -- routing calls to the executor -----------------------------------------------------------------


def active_run() -> Run | None:
    """The run that this code executes for, unless it has ended. On any loop.

    Only on the loops of the run is it certain that it has not ended before this call is counted.
    """
    run = current_run()
    if run is None or run.phase is not Phase.RUNNING:
        return None
    return run if run.executes_on(asyncio._get_running_loop()) else None


class RunRouting:
    """A loop's ``run_in_executor``, which sends sync code of runs to their bridges' threads.

    It overrides the method on one loop while a bridge uses that loop; made by `route_runs`. Calls
    that name an executor, and those that belong to no run of this loop, pass through unchanged.
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
            executor = self._otherwise if run is None else run.executor
        return self._overridden(executor, func, *args)

    def release(self) -> None:
        """Drop one user. On the loop's thread, or while the loop does not run."""
        with _routing_lock:
            self._users -= 1
            # If the method has been wrapped by other code since, this stays inside the wrapper.
            if not self._users and vars(self._loop).get(_METHOD) is self:
                del vars(self._loop)[_METHOD]

    def use(self) -> Self:
        """Add one user. Under the lock."""
        self._users += 1
        return self


_METHOD = "run_in_executor"
# Guards the users of every RunRouting, and with them the attribute of the loop: users of one loop
# mostly come and go on its own thread, but those of a stopped loop do so on any. Held for a few
# lines.
_routing_lock = fork_safe_rlock()


def route_runs(loop: asyncio.AbstractEventLoop, otherwise: Executor | None = None) -> RunRouting:
    """Execute sync code of runs on ``loop`` in the threads of their own bridges.

    On the loop's thread, or before it runs. Bridges that share a loop share the override; the last
    one to release it removes it.

    Args:
        loop: The loop.
        otherwise: The executor for calls that belong to no run; None for the loop's default
            executor. The first user's choice holds.
    """
    with _routing_lock:
        routing = vars(loop).get(_METHOD)
        if not isinstance(routing, RunRouting):
            routing = vars(loop)[_METHOD] = RunRouting(loop, otherwise)
        return routing.use()


def check_routable(loop: asyncio.AbstractEventLoop) -> None:
    """Check that `route_runs` works with ``loop``. Any thread; never blocks.

    Raises:
        InvalidTypeError: Its type does not allow new attributes.
    """
    if not hasattr(loop, "__dict__"):
        raise InvalidTypeError(
            f"{loop!r} cannot be adopted: run_in_executor, by which sync code of runs is sent to "
            "threads of their bridge, cannot be overridden on it; adopt a loop of asyncio or "
            "uvloop, or let the bridge own its loop: RxPyLangGraphBridge()"
        )
