"""WorkerThreads: where sync functions and sync graph nodes of runs are executed.

Why not a ``ThreadPoolExecutor``: its bound would be a second one beside ``max_concurrency`` and
throttle below it (LangGraph's sync nodes take the loop's default executor: six threads on two
cores); it does not tell whose thread is still busy after a run was cancelled; and the interpreter
waits for its threads at exit, for ever if one is stuck.

Here the runs are bounded and the threads are not; each busy thread is known by its run; and all
are daemons. Work from outside any run goes to the executor that served the loop before, or to the
ordinary pool that this class inherits from: a loop accepts no other kind as its default.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from queue import SimpleQueue
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from rxlanggraph.locking import letting_go
from rxlanggraph.runs import Phase, Run, current_run
from rxlanggraph.starting import start_apart

__all__ = ["WorkerThreads"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Job:
    """One call, the run that it belongs to, and the future of its result."""

    __slots__ = ("call", "future", "run")

    def __init__(self, run: Run, call: Callable[[], Any]) -> None:
        self.run = run
        self.call = call
        self.future: Future[Any] = Future()


class WorkerThreads(ThreadPoolExecutor):
    """An executor that knows which run each of its threads works for.

    Args:
        name: Prefix of the threads' names.
        lock: The lock of the bridge.
    """

    def __init__(self, name: str, lock: threading.RLock) -> None:
        super().__init__(thread_name_prefix=f"{name}-pool")
        # Written on the loop, when it is adopted: the executor for work that belongs to no run;
        # None for the pool that this class inherits from.
        self.elsewhere: ThreadPoolExecutor | None = None
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # The lock of the bridge: guards the five below.
        self._busy_lock = lock
        self._idle = 0
        self._shut = False
        # The jobs of each run that have not ended, with their thread once it has begun. Counted
        # from submit on: else a run cancelled in between would give its slot back too early.
        self._jobs_of: dict[Run, dict[_Job, int | None]] = {}
        self._when_free: dict[Run, Callable[[], object]] = {}
        self._workers: set[threading.Thread] = set()

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Execute ``fn(*args, **kwargs)`` in a thread. Any thread; never blocks.

        Cancelling the future before its thread has begun takes it back; after that the thread
        runs on, its result is dropped, and its run holds its slot until it ends.

        Raises:
            RuntimeError: No thread can be started, or `shutdown` was called.
        """
        run = current_run.get()
        if run is None or run.phase is not Phase.RUNNING:
            if self.elsewhere is not None:
                return self.elsewhere.submit(fn, *args, **kwargs)
            return Context().run(super().submit, fn, *args, **kwargs)  # see starting.py
        run.threaded = True
        job = _Job(run, lambda: fn(*args, **kwargs))
        with self._busy_lock:
            if self._shut:
                raise RuntimeError(f"the worker threads of {self._name} are shut down")
            self._jobs_of.setdefault(run, {})[job] = None
            use_idle = self._idle > 0
            if use_idle:
                self._idle -= 1
        if use_idle:
            self._jobs.put(job)
        else:
            self._start_worker(job)
        return job.future

    def _start_worker(self, job: _Job) -> None:
        # The job goes in with its thread, so that none is queued where no thread could start; in a
        # list, to be taken out, as a thread keeps its arguments for as long as it lasts.
        worker = threading.Thread(
            target=self._work, args=([job],), name=f"{self._name}-worker", daemon=True
        )
        with self._busy_lock:
            self._workers.add(worker)
        try:
            start_apart(worker)
        except RuntimeError:
            with self._busy_lock:
                self._workers.discard(worker)
            self._job_ended(job)
            raise

    def when_free(self, run: Run, callback: Callable[[], object]) -> bool:
        """Call ``callback``, in its last thread, once no thread works for ``run`` any more.

        Any thread; never blocks.

        Returns:
            False if none does now; then it is not called.
        """
        with self._busy_lock:
            if run not in self._jobs_of:
                return False
            self._when_free[run] = callback
            return True

    def frames(self, run: Run) -> list[FrameType]:
        """The innermost frame of each thread that works for ``run``. Any thread; never blocks."""
        with self._busy_lock:
            idents = tuple(self._jobs_of.get(run, {}).values())
        current = sys._current_frames()
        return [current[ident] for ident in idents if ident in current]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end as soon as they are idle; ``wait`` for those that are.

        Any thread. A thread that is busy with a run is not waited for: it is a daemon, and the
        clean-up report names it.
        """
        with self._busy_lock:
            self._shut = True
            workers = tuple(self._workers)
            busy = {ident for jobs in self._jobs_of.values() for ident in jobs.values()}
        for _ in workers:
            self._jobs.put(None)
        for worker in workers:
            if wait and worker.ident not in busy and worker is not threading.current_thread():
                with letting_go(self._busy_lock):
                    worker.join()
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _work(self, first: list[_Job]) -> None:
        job: _Job | None = first.pop()
        while job is not None:
            self._perform(job)
            del job  # or an idle thread would keep the last run and its result alive
            with self._busy_lock:
                self._idle += 1
            job = self._jobs.get()
        with self._busy_lock:
            self._workers.discard(threading.current_thread())

    def _perform(self, job: _Job) -> None:
        with self._busy_lock:
            self._jobs_of[job.run][job] = threading.get_ident()
        if not job.future.set_running_or_notify_cancel():
            self._job_ended(job)
            return
        try:
            result = job.call()
        except BaseException as error:
            # Ended before resolved: whoever goes on because of the result finds the thread gone.
            self._job_ended(job)
            job.future.set_exception(error)
        else:
            self._job_ended(job)
            job.future.set_result(result)

    def _job_ended(self, job: _Job) -> None:
        with self._busy_lock:
            jobs = self._jobs_of[job.run]
            del jobs[job]
            if jobs:
                return
            del self._jobs_of[job.run]
            callback = self._when_free.pop(job.run, None)
        if callback is not None:
            callback()
