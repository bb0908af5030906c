"""Engine: what happens to a run between its submission and its end.

Threads meet the loop in `Handoff` alone. Everything here whose comment says so is confined to the
loop's thread; the rest may be called from any.

Invariants kept here (numbers as in docs/design.md): 1, 2 and 9. A run gives back its turn, leaves
the registry and resolves its future in that order and once, after its coroutine and the worker
threads it started have ended. Where its future has to be resolved before (cancelled, timed out,
loop gone), the turn and the registry entry still wait for the real end.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Any

from rxlanggraph.attempts import retried
from rxlanggraph.backlog import Backlog
from rxlanggraph.errors import LoopUnavailableError, RunError
from rxlanggraph.forking import announce, fork_safe_rlock, wrong_process
from rxlanggraph.handoff import Handoff
from rxlanggraph.homes import AbsentLoop, AdoptedLoop, Home, OwnedLoop
from rxlanggraph.locking import letting_go
from rxlanggraph.messages import Status, StreamMessage, passes_through
from rxlanggraph.registry import TaskRegistry, Trackable
from rxlanggraph.runs import Phase, Run, RunScope, current_run, run_scope
from rxlanggraph.stacks import format_frames, format_task, tasks_where
from rxlanggraph.tasks import TaskStarter, keep_quiet
from rxlanggraph.threads import WorkerThreads
from rxlanggraph.tracebacks import without_machinery
from rxlanggraph.turns import Turns
from rxlanggraph.usercode import is_interrupt, raise_on_loop

__all__ = ["Engine"]

# Runs started before the loop gets to do something else. A guess, as for the hand-off's batch.
_BURST = 64
# Seconds that runs, and then the loop, get to end when the interpreter exits. A guess: as long as
# a person waits without wondering.
_AT_EXIT = 1.0


class Engine:
    """Everything of a bridge but its public face.

    The loop's thread refers to this and not to the bridge, so that a bridge that was dropped
    without being closed can be collected, and then ends its loop.

    Args:
        loop: The loop to adopt; None to own one.
        max_concurrency: How many runs may be on at once.
        max_pending: How many may be admitted and not started; None for any number.
        name: Prefix of the threads' names.
        spare_threads: How many worker threads there may be beside one for each run.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None,
        max_concurrency: int,
        max_pending: int | None,
        name: str,
        *,
        spare_threads: int = 0,
    ) -> None:
        # The one lock of a bridge, shared by all its parts: a leaf, held over a few assignments
        # at a time. One, so that whoever waits knows what to let go of (see letting_go); an RLock
        # by invariant 5. Guards _started here.
        self.lock = fork_safe_rlock()
        self.registry = TaskRegistry(lock=self.lock, inside=current_run)
        self.threads = WorkerThreads(name, self.lock, spare_threads)
        self.handoff = Handoff(self.registry, self._visit, self.loop_gone, self.lock)
        self.handoff.max_concurrency = max_concurrency
        self.backlog = Backlog(max_pending, self.lock)
        self.home: Home = (
            OwnedLoop(name, self.threads, self) if loop is None else AdoptedLoop(loop, name, self)
        )
        # Confined to the loop's thread.
        self._turns = Turns(max_concurrency)
        self._tasks = TaskStarter()
        self._starting = False  # whether _start_ready is at work
        self._started = False
        self._name = name
        self._pid = os.getpid()
        announce(self)

    def submit(self, run: Run) -> None:
        """Let ``run`` in. Any thread; never blocks.

        Raises:
            RegistryClosedError: The registry is closed.
            LoopUnavailableError: The loop is closed, stopped or dying.
        """
        if not self._started:
            self._start()
        if not self.home.owned:
            self.home.check()
        self.handoff.submit(run)

    def withdraw(self, run: Run) -> None:
        """Take ``run``, which is cancelled, out of what it has not got into. Any thread."""
        self.backlog.leave(run)
        if self.handoff.loop is None:  # the loop will look at it otherwise
            self.registry.leave(run, "cancelled")

    def _start(self) -> None:
        with self.lock:  # held over the start of a thread, so that two first users make one loop
            if self._started:
                return
            self.handoff.loop = self.home.start()
            # A daemon thread would be cut off at exit in the middle of a run's own clean-up.
            atexit.register(self.exit)
            self._started = True
            if self.registry.state != "open":
                self.leave()  # a signal handler closed the bridge on top of this very call

    # -- on the loop ---------------------------------------------------------------------------

    def _visit(self, run: Run) -> None:
        if run.phase is Phase.NEW and not run.done():
            self._turns.arrive(run)
            self._start_ready()
        elif run.done():  # cancelled, or given up while the loop was paused
            if run.phase is Phase.RUNNING:
                if run.task is not None and (run.cancelled() or not run.task.cancelling()):
                    run.task.cancel()
            else:
                # Also where it ended before it was registered: a run cancelled between the two.
                run.phase = Phase.ENDED
                self._part(run, run.outcome("cancelled", None, None, None))

    def _start_ready(self, *, in_place: bool = False) -> None:
        """Start whoever may start; not more than a burst of them in one turn of the loop.

        Not nested: a run that ends within its first step leaves the next one to the loop here.
        """
        if self._starting:
            return
        self._starting = True
        try:
            for _ in range(_BURST):
                run = self._turns.take()
                if run is None:
                    return
                self._start_run(run, in_place=in_place)
        finally:
            self._starting = False
        asyncio.get_running_loop().call_soon(self._start_ready)

    def _start_run(self, run: Run, *, in_place: bool) -> None:
        run.phase = Phase.RUNNING
        run.since = monotonic()
        run.executor = self.threads
        if self.backlog.bounded:
            self.backlog.leave(run)
        name, context = run.options.name, run.context
        del run.context  # it has a variable that refers to the run: a cycle for each message
        if passes_through(run.message):
            # It had to take its turn, so as not to overtake what came before it on its thread.
            context.run(self._finish, run, run.message)
            return
        coroutine = self._execute(run)
        try:
            task = self._tasks.start(coroutine, name=name, context=context, in_place=in_place)
        except BaseException as error:  # of the loop's own task factory
            coroutine.close()
            self._finish(run, run.outcome("error", None, error, None))
            if is_interrupt(error):
                raise_on_loop(error)
        else:
            if not task.done():
                task.add_done_callback(partial(self._never_began, run))

    def _never_began(self, run: Run, task: asyncio.Task[None]) -> None:
        # _execute lets no cancelling out; so it was cancelled, by whomever, before its first step.
        if task.cancelled():
            self._finish(run, run.outcome("cancelled", None, None, None))

    async def _execute(self, run: Run) -> None:
        run.scope = RunScope(run)
        run_scope.set(run.scope)
        run.task = asyncio.current_task()
        content: Any = None
        error: BaseException | None = None
        status: Status = "ok"
        try:
            content = await self._attempts(run)
            if run.expired and run.options.retry is None:
                status, content = "timed_out", None  # it swallowed the cancelling, and went on
        except asyncio.CancelledError as caught:
            status, error = self._cancelled_by(run, caught)
        except BaseException as caught:
            if asyncio._get_running_loop() is None:
                raise  # GeneratorExit, from a loop that was closed over us: see loop_gone()
            status = "timed_out" if caught is run.timeout_error else "error"
            error = without_machinery(caught)
        run.task = None
        result = run.outcome(status, content, error, monotonic() - run.since)
        if run.threaded and self._wait_for_threads(run, result):
            run.resolve(result)  # its future does not wait for a thread that nobody can stop
        elif status == "cancelled" and not run.cancelled():
            # By others: by a loop that ends, most likely. Its guard has to hear of it first.
            asyncio.get_running_loop().call_soon(self._finish, run, result)
        else:
            self._finish(run, result)
        if isinstance(error, KeyboardInterrupt | SystemExit) and not self.home.owned:
            raise_on_loop(error)  # as asyncio has it; a loop of ours is nobody else's to end
        # The error's traceback refers to this frame, as what called its own, and these to it.
        del run, content, error, result

    def _cancelled_by(
        self, run: Run, caught: asyncio.CancelledError
    ) -> tuple[Status, BaseException | None]:
        """Tell what a ``CancelledError`` that comes out of a run says about it."""
        if run.cancelled():
            return "cancelled", None
        if run.expired:
            return "timed_out", None
        task = asyncio.current_task()
        if not run.child_cancelled or (task is not None and task.cancelling()):
            return "cancelled", None  # by others, or by the graph itself
        error = RunError(f"the run of message {run.message.id} waited for a run that was cancelled")
        error.__cause__ = caught
        return "error", error

    def _attempts(self, run: Run) -> Awaitable[Any]:
        if run.done():  # between its start and this, its first step, or in a pause of the loop
            raise asyncio.CancelledError
        message, options = run.message, run.options
        if options.retry is not None:
            attempt = options.target.attempts(message, options.config, self.threads)
            return retried(
                options.retry,
                partial(self._timed_attempt, run, attempt),
                partial(self._may_retry, run),
            )
        if options.timeout is None:
            return options.target.call(message, options.config, self.threads)
        attempt = partial(options.target.call, message, options.config, self.threads)
        return self._timed_attempt(run, attempt)

    def _may_retry(self, run: Run) -> bool:
        task = asyncio.current_task()
        assert task is not None
        # Also where an attempt made an exception of its own out of being cancelled.
        return not (run.done() or task.cancelling() or self.registry.state != "open")

    async def _timed_attempt(self, run: Run, attempt: Callable[[], Awaitable[Any]]) -> Any:
        options = run.options
        loop = asyncio.get_running_loop()
        run.expired = False
        if options.timeout is not None:
            # In a context of its own: a handle keeps that for its whole time, also cancelled.
            run.timer = loop.call_later(options.timeout, self._expire, run, context=Context())
        try:
            return await attempt()
        except asyncio.CancelledError:
            if not run.expired or run.cancelled() or options.retry is None:
                raise
            asyncio.current_task(loop).uncancel()  # type: ignore[union-attr]
            await self._threads_ended(run)
            run.timeout_error = run.outcome("timed_out", None, None, None).error
            assert run.timeout_error is not None
            raise run.timeout_error from None
        finally:
            if run.timer is not None:
                run.timer.cancel()
            del run, attempt  # what fails refers to this frame

    async def _threads_ended(self, run: Run) -> None:
        # The next attempt must not overlap with what the last one left behind in a thread.
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        if self.threads.when_free(run, partial(loop.call_soon_threadsafe, ended.set)):
            await ended.wait()

    def _expire(self, run: Run) -> None:
        if run.task is None:
            return
        if not run.expired:
            run.expired = True
            run.task.cancel()
            if run.options.retry is None:
                self._resolve_early(run, "timed_out")
            else:
                # A stuck attempt cannot be followed by another; after as long again, give up.
                loop = asyncio.get_running_loop()
                time = run.options.timeout or 0
                run.timer = loop.call_later(time, self._give_up, run, context=Context())

    def _give_up(self, run: Run) -> None:
        self._resolve_early(run, "timed_out")
        if run.task is not None:
            run.task.cancel()

    def _resolve_early(self, run: Run, status: Status) -> None:
        run.resolve(run.outcome(status, None, None, monotonic() - run.since))

    def _wait_for_threads(self, run: Run, result: StreamMessage) -> bool:
        loop = asyncio.get_running_loop()
        return self.threads.when_free(run, partial(self._thread_ended, loop, run, result))

    def _thread_ended(
        self, loop: asyncio.AbstractEventLoop, run: Run, result: StreamMessage
    ) -> None:
        # In the run's last worker thread.
        try:
            loop.call_soon_threadsafe(self._finish, run, result)
        except RuntimeError:  # the loop is closed: there is no turn to give back
            self._part(run, result)

    def _finish(self, run: Run, result: StreamMessage) -> None:
        if run.phase is Phase.ENDED:
            return
        run.phase = Phase.ENDED
        if result.status == "cancelled" and self.handoff.refuses():
            run.cut_off = True
        self._turns.depart(run)
        self._part(run, result)  # first, or the next one of its thread could be over before it
        self._start_ready(in_place=True)

    # -- in any thread -------------------------------------------------------------------------

    def _part(self, run: Run, result: StreamMessage) -> None:
        """Take ``run`` off the books, and resolve its future if nobody has."""
        if self.backlog.bounded:
            self.backlog.leave(run)
        self.registry.leave(run, run.counts_as(result.status), run.resolve, result)
        run.owner = run.parent = None
        if run.scope is not None:
            run.scope.run = None
            run.scope = None

    def loop_going(self, error: LoopUnavailableError) -> None:
        """On the loop: take nothing more, cancel what runs, and resolve what has not started."""
        self.handoff.refuse(error)
        self.backlog.close()
        for run in self._runs():
            if run.phase is not Phase.RUNNING:
                run.phase = Phase.ENDED
                run.cut_off = True
                self._part(run, run.outcome("error", None, error, None))
            elif run.task is not None and not run.task.cancelling():
                # The loop cancels all its tasks itself, but for those that have started since, in
                # the place of one that was cancelled. Twice would cut a clean-up short.
                run.task.cancel()

    def loop_gone(self, error: LoopUnavailableError) -> None:
        """In any thread: nothing runs on the loop any more. Resolve everything (invariant 1)."""
        self.handoff.refuse(error)
        self.backlog.close()
        self.handoff.forget()
        for run, result in self._cut_off(self._runs(), error):
            keep_quiet(run.task)
            if self.threads.when_free(run, partial(self._part, run, result)):
                run.resolve(result)
            else:
                self._part(run, result)

    def loop_paused(self, error: LoopUnavailableError) -> None:
        """In any thread: the loop may run again or not. Give up what waits for it (invariant 1).

        Said again and again while it is paused: what comes in just before is seen the next time.
        """
        self.backlog.turn_away(error)
        runs = self._runs()
        for run in runs:
            if run.cancelled():
                run.settle(None, None)  # `wait` and `as_completed` hear only now that it was
        given_up = self._cut_off([run for run in runs if not run.done()], error)
        for run, _ in given_up:
            self.handoff.attend(run)  # it is cancelled, or never begins, when the loop goes on
        for run, result in given_up:
            run.resolve(result)

    def _cut_off(
        self, runs: list[Run], error: LoopUnavailableError
    ) -> list[tuple[Run, StreamMessage]]:
        """Resolve ``runs`` with ``error``, and call nobody back yet.

        So that a callback which waits for another of them does not wait for itself.
        """
        results = [(run, run.outcome("error", None, error, None)) for run in runs]
        for run, result in results:
            run.cut_off = True
            run.resolve(result, call_back=False)
        return results

    def is_due(self) -> bool:
        """In any thread: whether the loop still has to look at a run."""
        return self.handoff.is_due()

    def seal(self) -> None:
        """Admit nothing more. Any thread; never blocks."""
        self.registry.close()
        self.backlog.close()

    def leave(self) -> None:
        """Ask the loop to end, or give it back. Any thread; never blocks."""
        with self.lock:
            self._started = True  # nothing starts it after this
        self.home.leave()
        atexit.unregister(self.exit)

    def abandon(self) -> None:
        """End without waiting: for a bridge that was dropped unclosed. Any thread; never blocks."""
        if self._pid != os.getpid():
            return  # collected in a forked child, before that was told and has its locks renewed
        self.seal()
        self.registry.cancel_all()
        self.leave()
        self.threads.shutdown(wait=False)

    def exit(self) -> None:
        """At interpreter exit: cancel what is in flight, and give it a moment."""
        self.seal()
        self.registry.cancel_all()
        self.registry.wait_idle(_AT_EXIT)
        self.leave()
        self.wait_left(_AT_EXIT)

    def wait_left(self, timeout: float | None) -> None:
        """Wait until the loop has ended or was given back, for ``timeout`` seconds at most."""
        with letting_go(self.lock), contextlib.suppress(TimeoutError):
            self.home.left.result(timeout)

    def after_fork(self) -> None:
        """In a forked child: be a bridge whose loop is gone; if no loop ran yet, as good as new.

        The loop, the threads, and what they were doing are the parent's. See `forking`.
        """
        self._pid = os.getpid()
        runs = self._runs()
        self.registry.after_fork()
        if not (self._started or self.home.begun):
            return
        error = wrong_process(
            f"the bridge {self._name}", "make a new one here: RxPyLangGraphBridge()"
        )
        self._started = True
        atexit.unregister(self.exit)
        self.home = AbsentLoop(error)
        self.threads = WorkerThreads(self._name, self.lock, 0)
        self.handoff.after_fork(error)
        self.backlog.close()
        for run in runs:
            keep_quiet(run.task)
            run.owner = None
            run.abandon(error)

    def stack(self, task: Trackable) -> str:
        """Where a run is right now, as text. Any thread; never blocks."""
        if not isinstance(task, Run):
            return ""
        parts = []
        if task.task is not None:
            started = tasks_where(task.task.get_loop(), run_scope, task.scope)
            tasks = [task.task, *(each for each in started if each is not task.task)]
            parts += [format_task(each, self.home.thread_id) for each in tasks]
        parts.append(format_frames(self.threads.frames(task)))
        return "\n".join(part for part in parts if part)

    def _runs(self) -> list[Run]:
        return [task for task in self.registry.tasks() if isinstance(task, Run)]
