"""Engine: the parts behind a bridge, the way of a message to its loop, and the end of both.

Threads meet the loop in `LoopInbox` alone: everything here may be called from any thread, unless it
says otherwise. What happens on the loop is in `Dispatcher`.

Invariants kept here (numbers as in docs/design.md): 1 and 2. A run whose loop is gone, or pauses,
is resolved from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import Context
from functools import partial

from rxlanggraph.bridge import exits
from rxlanggraph.bridge.admission import AdmissionLimiter, next_reservation
from rxlanggraph.bridge.deadlocks import LoopThread, dedicated_to
from rxlanggraph.bridge.dispatcher import Dispatcher
from rxlanggraph.bridge.graph_loops import GraphLoops
from rxlanggraph.bridge.graphs.configs import context_for_run
from rxlanggraph.bridge.graphs.interrupts import UnnamedAnswers
from rxlanggraph.bridge.hook_calls import Observed
from rxlanggraph.bridge.inbox import LoopInbox
from rxlanggraph.bridge.lanes import ThreadLanes
from rxlanggraph.bridge.listeners import Listeners
from rxlanggraph.bridge.loops import AbsentLoop, AdoptedLoop, LoopHost, OwnedLoop
from rxlanggraph.bridge.overflow import Overflow
from rxlanggraph.bridge.reports import report_end, report_queued
from rxlanggraph.bridge.run import Run, current_run, run_scope
from rxlanggraph.bridge.run_options import RunOptions
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.bridge.run_threads import RunThreads
from rxlanggraph.concurrency.clock import SYSTEM_CLOCK, Clock
from rxlanggraph.concurrency.forking import fork_safe_rlock, register_after_fork, wrong_process
from rxlanggraph.concurrency.future import ToNotify
from rxlanggraph.concurrency.stacks import format_frames, format_task, tasks_where
from rxlanggraph.concurrency.tasks import silence_pending_warning
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.concurrency.user_code import raise_on_loop
from rxlanggraph.errors import (
    BlockingCallError,
    BridgeClosedError,
    LoopUnavailableError,
    RegistryClosedError,
)
from rxlanggraph.executors.contract import Workers
from rxlanggraph.limits.rules import ModelRules
from rxlanggraph.messages import Status, StreamMessage
from rxlanggraph.registry import Outcome, Trackable

__all__ = ["Engine"]


class Engine:
    """Everything behind the public API of a bridge.

    The loop's thread refers to this and not to the bridge, so that a bridge that is dropped
    unclosed can be collected, and then ends its loop.

    Args:
        loop: The loop to adopt; None to own one.
        max_concurrency: How many runs may be active at once.
        max_pending: How many may be admitted and not started; None for no limit.
        max_pending_per_thread: How many may wait on one thread; None for no limit.
        name: Prefix of the threads' names.
        overflow: What happens to those beyond ``max_pending``.
        spare_threads: How many worker threads there may be in addition to one for each run.
        lanes: The lanes that are shared with other processes; None if there are none.
        models: What applies to the models that runs call; None if nothing does.
        workers: Where the graphs are called; None: on the loop.
        loops: On how many loops in threads they are called; 1: on the bridge's own.
        clock: By which the bridge measures time.
        host_of: Makes the host of a loop of another kind; None for one that is owned or adopted.
    """

    listeners_of: type[Listeners] = Listeners

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop | None,
        max_concurrency: int,
        max_pending: int | None,
        name: str,
        *,
        max_pending_per_thread: int | None = None,
        overflow: Overflow = "block",
        spare_threads: int = 0,
        lanes: ThreadLanes | None = None,
        models: ModelRules | None = None,
        workers: Workers | None = None,
        loops: int = 1,
        clock: Clock = SYSTEM_CLOCK,
        host_of: Callable[[Engine], LoopHost] | None = None,
    ) -> None:
        # The one lock of a bridge, shared by all its parts: a leaf, held for a few assignments at a
        # time. There is only one, so that a waiting thread knows what to release (see
        # lock_released); it is an RLock by invariant 5. Guards _started here, which is only ever
        # set; a read of it without the lock makes nothing else visible.
        self.lock = fork_safe_rlock()
        self.max_concurrency = max_concurrency
        self.clock = clock
        self.registry = RunRegistry(lock=self.lock, inside=current_run, clock=clock)
        self.threads = RunThreads(name, self.lock, spare_threads)
        self.inbox = LoopInbox(self.registry, self.loop_stopped, self.lock, max_concurrency, clock)
        self.admission = AdmissionLimiter(
            max_pending, self.lock, overflow, name, clock, look_soon=self.inbox.look_soon
        )
        self._answers = UnnamedAnswers(self.lock)
        self.name = name
        self.host: LoopHost = (host_of or partial(_host_of, loop))(self)
        self.listeners = self.listeners_of(name, self.registry, self.inbox, self.host)
        self._lanes = lanes
        self._models = models
        self._max_pending_per_thread = max_pending_per_thread
        self._dispatcher = self._make_dispatcher()
        self.inbox.process = self._dispatcher.process
        if loops > 1:
            workers = GraphLoops(name, loops, self.threads, self.lock, self.inbox)
        self.workers = workers
        self._started = False
        self._pid = os.getpid()
        register_after_fork(self)

    def _make_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self.registry,
            self.inbox,
            self.admission,
            self.listeners,
            threads=self.threads,
            answers=self._answers,
            host=self.host,
            max_pending_per_thread=self._max_pending_per_thread,
            lanes=self._lanes,
            models=self._models,
        )

    # -- from a message to the inbox, in any thread --------------------------------------------

    def submit(self, message: StreamMessage, options: RunOptions, owner: object) -> Run:
        """Make a run, wait for room, and hand it over.

        Raises:
            BridgeClosedError, LoopUnavailableError: As `hand_over`.
            BlockingCallError: As `enter`.
            BacklogFullError: As `send`.
        """
        return self.send(self.new_run(message, options, owner))

    def send(self, run: Run) -> Run:
        """Wait for room for a run that was just made, and hand it over. Returns the run.

        A run that gets no room, because the bridge drops what is newest, is resolved at once.

        Raises:
            BridgeClosedError, LoopUnavailableError: As `hand_over`.
            BlockingCallError: As `enter`.
            BacklogFullError: There is no room, and the bridge has ``overflow="error"``.
        """
        try:
            if self.admission.bounded and not self.enter(run):
                return self._turn_down(run)
            self.hand_over(run)
            if self.admission.may_drop:
                self.admission.expose(run)
        except BaseException as error:  # also from a signal handler, half-way through admission
            self._take_back(run, error)
            raise
        return run

    async def send_async(self, run: Run) -> Run:
        """Do what `send` does, but await room instead of blocking. Any loop, the bridge's own too.

        A run that a result led to waits like any other: here nothing keeps the loop from making
        room. Cancelling the wait gives the place up.

        Raises:
            BridgeClosedError, LoopUnavailableError, BacklogFullError: As `send`.
            DeadlockError: Awaited in a run that the room depends on.
        """
        bounded, may_wait = self.admission.bounded, self.admission.overflow == "block"
        if not bounded or not may_wait or run.message.status != "ok":
            return self.send(run)
        # It waits for this loop, too, which does not turn while other code blocks it.
        loop = LoopThread(asyncio.get_running_loop())
        run.withheld_by = lambda _: (loop,)
        try:
            if not await self.admission.acquire_async(run):
                return self._turn_down(run)
            run.withheld_by = None
            self.hand_over(run)
        except BaseException as error:
            self._take_back(run, error)
            raise
        return run

    def _take_back(self, run: Run, error: BaseException) -> None:
        try:
            if run in self.registry:
                run.cancel()
            elif run.observed is not None:
                self._report_refusal(run, error)
        finally:
            self._withdraw(run)

    def check_run_of_rx(self) -> None:
        """Check that ``Observable.run`` may wait for a stream here. Any thread; never blocks.

        Raises:
            BlockingCallError: It would block what lets time pass (`rxlanggraph.testing`).
        """

    def new_run(
        self,
        message: StreamMessage,
        options: RunOptions,
        owner: object,
        callbacks: Sequence[Callable[[Run], object]] | None = None,
    ) -> Run:
        """Make a run that sees the caller's contextvars. Any thread; never blocks.

        Args:
            message: The message to run on.
            options: The options of the run.
            owner: Kept alive by the run until it has ended: its bridge.
            callbacks: Its first done-callbacks; may be shared. There from the start: of two runs
                of one thread, the second could otherwise end before the first one's submitter has
                added its callback.
        """
        run = Run(message, options, context_for_run(), self.inbox, owner, callbacks=callbacks)
        if options.adapter.takes_answers:
            self._answers.given(run)
        listeners = self.listeners.current
        if listeners is not None:
            try:
                report_queued(run, listeners)
            except BaseException as error:
                self._let_go(run)
                self._report_refusal(run, error)
                raise
        return run

    def enter(self, run: Run) -> bool:
        """Get room for ``run``: one of ``max_pending`` places for runs that wait to start.

        Waits for it, or takes it from another run, which is then dropped. Any thread; not called
        without a limit.

        A run that a result of this bridge led to, on the loop's thread (a later stage of the
        pipeline), is admitted at once and starts before all others; so is a run that will execute
        nothing. Each takes over from a run that was admitted before, so there are never more of
        them than of those.

        Returns:
            False if ``run`` itself has to give way: see `reject`.

        Raises:
            BlockingCallError: There is no room, and this is the thread of the bridge's loop, or of
                one on which the stream of a run is read.
        """
        reservation, executes = next_reservation.get(), run.message.status == "ok"
        if executes and reservation is not None and self.admission.pass_on(reservation, run):
            return True
        on_loop = self.on_own_loop()
        if (on_loop and self._delivers_result()) or not executes:
            run.downstream = True
            self.admission.hold(run)
        elif self.admission.overflow != "block":
            loser = self.admission.claim(run)
            if loser is not None and loser is not run:
                self._evict(loser)
            return loser is not run
        elif not self._acquire(run, on_loop):
            if run.expired is not None:
                return False
            if not on_loop:
                raise BlockingCallError(
                    f"the bridge {self.name} is full (max_pending runs are waiting to start), and "
                    "blocking here would stop this thread's event loop, which is reading another "
                    "run's stream; read that stream first, use 'await bridge.submit(...)', submit "
                    "from another thread, or make the bridge with max_pending=None"
                )
            raise BlockingCallError(
                f"the bridge {self.name} is full (max_pending runs are waiting to start), and "
                "blocking here would stop the event loop that has to start them; use 'await "
                "bridge.submit(...)' or bridge.from_iterable(...) there, submit from another "
                "thread, or make the bridge with max_pending=None"
            )
        return True

    def _acquire(self, run: Run, on_loop: bool) -> bool:
        loop = asyncio._get_running_loop()
        if loop is None:
            return self.admission.acquire(run, may_block=True)
        # In the thread of another loop it may block, unless that stops a reader which holds a run
        # up: the run would never end, and so make no room.
        return self.admission.acquire(run, may_block=False) or (
            not (on_loop or self._is_read_on(loop)) and self.admission.acquire(run, may_block=True)
        )

    def _is_read_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        sinks = (run.sink for run in self.registry.runs())
        return any(sink is not None and sink.loop is loop for sink in sinks)

    def reject(self, run: Run) -> None:
        """Resolve ``run``, which got no room, or not in time. Any thread; calls its callbacks."""
        if run.expired is not None:
            self._end_unadmitted(run, run.unanswered("timed_out"))
        else:
            self._end_unadmitted(run, run.unanswered("rejected", self.admission.rejection()))

    def fail(self, run: Run, error: Exception) -> None:
        """Resolve ``run``, whose message cannot be used. Any thread; calls its callbacks."""
        self._end_unadmitted(run, run.unanswered("error", error))

    def _end_unadmitted(self, run: Run, result: StreamMessage) -> None:
        self._let_go(run)
        self._tell(self.registry.end_unadmitted(run, result), run, result)

    def _tell(self, to_notify: ToNotify | None, run: Run, result: StreamMessage) -> None:
        """Tell what waits for ``run`` that it is resolved, and hooks. In the submitter's thread."""
        try:
            interrupt = run.tell(to_notify)
            if interrupt is not None:
                raise interrupt
        finally:
            if run.observed is not None:
                _raise_if(report_end(run, result))

    def _report_refusal(self, run: Run, error: BaseException) -> None:
        """Tell hooks of the end of ``run``, whose submitter gets an error instead. Any thread."""
        status: Status = "rejected" if isinstance(error, Exception) else "cancelled"
        _raise_if(report_end(run, run.unanswered(status, error)))

    def _turn_down(self, run: Run) -> Run:
        if self.admission.overflow == "error":
            raise self.admission.rejection()
        self.reject(run)
        return run

    def _evict(self, run: Run) -> None:
        """Resolve ``run``, whose room another one has got, as rejected.

        Any thread; calls its callbacks. If the loop has not seen it, it never will; otherwise the
        loop only removes it from where it waits.
        """
        # A run that is withheld is not handed over at all: its subscription sees its end.
        seen = not self.inbox.withdraw(run) and run.withheld_by is None
        result = run.unanswered("rejected", run.rejection)
        self._let_go(run)
        try:
            if not self.registry.leave(run, None, None, result, self._settle):
                with self.lock:  # if it is withheld, it will not be handed over
                    withheld = run.withheld_by is not None
                    settle = self.registry.end_unadmitted if withheld else Run.settle_with
                    to_notify = settle(run, result)
                self._tell(to_notify, run, result)
        finally:
            if seen:
                self.inbox.post(run)

    def _settle(
        self, run: Run, result: StreamMessage
    ) -> tuple[Outcome, Callable[[Run, StreamMessage], object]]:
        to_notify = run.settle_with(result)
        return run.counts_as(), partial(self._tell, to_notify)

    def _let_go(self, run: Run) -> None:
        run.owner = run.parent = None
        if self._answers.waiting:
            self._answers.forget(run)

    def on_own_loop(self) -> bool:
        """Whether the caller is in a step of a loop of the bridge's, on its thread."""
        running = asyncio._get_running_loop()
        return running is not None and (
            running is self.host.loop or dedicated_to(running) is self.inbox
        )

    def _delivers_result(self) -> bool:
        # Callbacks and observers run in the context of the run that ended, as does what they
        # schedule on the loop.
        scope = run_scope.get()
        return scope is not None and scope.is_over(self.inbox)

    def hand_over(self, run: Run) -> None:
        """Register ``run`` and hand it to the loop. Any thread; never blocks.

        Raises:
            BridgeClosedError: The bridge is closed.
            LoopUnavailableError: The loop is closed, stopped or dying.
        """
        observed = run.observed
        if observed is not None and not observed.handed_over:
            self._hand_over_observed(run, observed)
            return
        try:
            if not self._started:
                self._start()
            if not self.host.owned:
                loop = self.inbox.loop
                if loop is None or not loop.is_running():
                    self.host.check()
            if not self.inbox.post(run, admit=True):
                raise self.inbox.why_refused()
        except (RegistryClosedError, LoopUnavailableError):
            self._count_refused(run)
            if self.registry.state == "open":
                raise
            raise self.why_closed() from None  # the loop has ended because the bridge is closed

    def _count_refused(self, run: Run) -> None:
        if self.admission.bounded and not self.admission.release(run):
            self.registry.count_dropped(run)  # nothing else does: it was not admitted

    def _hand_over_observed(self, run: Run, observed: Observed) -> None:
        observed.handed_over = True
        try:
            self.hand_over(run)
        except BaseException as error:
            if run not in self.registry:
                self._report_refusal(run, error)
            raise

    def started_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which is started if need be. Any thread; never blocks.

        Raises:
            BridgeClosedError: The bridge is closed.
            LoopUnavailableError: The loop is closed, or not running.
        """
        if self.registry.state != "open":
            raise self.why_closed()
        if not self._started:
            self._start()
        if not self.host.owned:
            self.host.check()
        with self.lock:  # it was written before `_started`, which was read without the lock
            loop = self.inbox.loop
        if loop is None:
            raise self.why_closed()
        return loop

    def why_closed(self) -> BridgeClosedError | LoopUnavailableError:
        """Make the error for a call that comes too late. Any thread; never blocks."""
        if self.registry.state == "open":
            return LoopUnavailableError(
                f"the event loop of the bridge {self.name} has ended; make a new bridge"
            )
        return BridgeClosedError(
            f"the bridge {self.name} is closed and takes no more messages; make a new one"
        )

    def cancel(self, run: Run) -> None:
        """Cancel ``run``, at whatever stage it is. Any thread; never blocks."""
        try:
            run.cancel()
        finally:
            self._withdraw(run)

    def _withdraw(self, run: Run) -> None:
        """Give back the room of ``run``, which is cancelled; without a loop, unregister it too."""
        self.admission.withdraw(run)
        if self._answers.waiting:
            self._answers.forget(run)
        left = False
        if self.inbox.loop is None:  # otherwise the loop processes it
            left = self.registry.leave(run, "cancelled")
        observed = run.observed
        if observed is not None and (left or not observed.handed_over):
            _raise_if(report_end(run, run.unanswered("cancelled")))

    def was_cut_off(self, run: Run) -> bool:
        """Whether ``run``, which has ended, ended because of its loop, or of its bridge's close."""
        return run.cut_off or (run.cancelled() and self.registry.state != "open")

    def _start(self) -> None:
        with self.lock:  # held while the thread starts: two first callers make one loop
            if self._started:
                return
            self.inbox.loop = self.host.start()
            # A daemon thread would be cut off at exit in the middle of a run's own cleanup.
            exits.add(self)
            self._started = True
            if self.registry.state != "open":
                self.stop_loop()  # a signal handler closed the bridge during this call

    @property
    def active(self) -> int:
        """How many runs hold a slot. Any thread; never blocks."""
        return self._dispatcher.active

    # -- the end of the loop, and of the bridge --------------------------------------------------

    def loop_stopping(self, error: LoopUnavailableError) -> None:
        """On the loop: accept nothing more, cancel what runs, resolve what has not started."""
        self.inbox.refuse(error)
        self.admission.close()
        if self._lanes is not None:
            self._lanes.close()
        self._dispatcher.stop(error)
        if self.workers is not None:
            self.workers.stop()

    def loop_stopped(self, error: LoopUnavailableError) -> None:
        """In any thread: nothing runs on the loop any more. Resolve everything (invariant 1)."""
        self.listeners.stop_watching()
        self.inbox.refuse(error)
        self.admission.close()
        self.inbox.discard_pending()
        if self._lanes is not None:
            self._lanes.close()
        if self.workers is not None:
            self.workers.disconnect()
        for run, result in self._cut_off(self.registry.runs(), error):
            silence_pending_warning(run.task)
            if self.threads.on_idle(run, partial(self._dispatcher.retire, run, result)):
                run.resolve(result)
            else:
                self._dispatcher.retire(run, result)

    def loop_paused(self, error: LoopUnavailableError) -> None:
        """In any thread: the loop may not run again. Give up what waits for it (invariant 1).

        Called repeatedly during the pause: a run submitted just before it is seen by the next call.
        """
        self.admission.turn_away(error)
        runs = self.registry.runs()
        for run in runs:
            if run.cancelled():
                run.set_outcome(None, None)  # only now are `wait` and `as_completed` told
        given_up = self._cut_off([run for run in runs if not run.done()], error)
        for run, _ in given_up:
            self.inbox.post(run)  # it is cancelled, or never begins, when the loop resumes
        for run, result in given_up:
            run.resolve(result)

    def _cut_off(
        self, runs: list[Run], error: LoopUnavailableError
    ) -> list[tuple[Run, StreamMessage]]:
        """Resolve ``runs`` with ``error``, without calling any callback yet.

        Otherwise a callback that waits for another of these runs would wait for itself.
        """
        results = [(run, run.unanswered("error", error)) for run in runs]
        for run, result in results:
            run.cut_off = True
            run.resolve(result, call_back=False)
        return results

    def is_due(self) -> bool:
        """In any thread: whether the loop still has to process a run."""
        return self.inbox.is_due()

    def close_admission(self) -> None:
        """Admit nothing more. Any thread; never blocks."""
        self.registry.close()
        self.admission.close()

    def request_drain(self) -> None:
        """Ask the graphs that can go on later to stop between supersteps. Any thread; never blocks.

        Their runs that have not begun do not begin. All other runs go on.
        """
        self._dispatcher.begin_draining()
        loop = self.inbox.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: nothing runs there
                loop.call_soon_threadsafe(self._dispatcher.drain, context=Context())

    def stop_loop(self) -> None:
        """Ask the loop to end, or give it back. Any thread; never blocks."""
        with self.lock:
            self._started = True  # nothing starts it after this
        self.listeners.stop_watching()
        loop = self.inbox.loop
        if self.workers is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: there are no calls
                loop.call_soon_threadsafe(self.workers.stop, context=Context())
        self.host.stop()
        # Not before: an exit meanwhile, as after Ctrl-C in `close`, would cut off what cleans up.
        self.host.stopped.add_done_callback(self._at_rest)

    def _at_rest(self, _: Future[None]) -> None:
        exits.discard(self)

    def abandon(self) -> None:
        """End without waiting: for a bridge that is dropped unclosed. Any thread; never blocks."""
        if self._pid != os.getpid():
            return  # collected in a forked child, before its locks were renewed
        self.close_admission()
        self.registry.cancel_all()
        self.stop_loop()
        self.end_workers(wait=False)

    def end_workers(self, *, wait: bool) -> Future[None]:
        """Let the worker threads end, and end worker processes, or further loops. Any thread.

        Args:
            wait: Wait for the threads that are idle.

        Returns:
            Done when the processes or loops have ended.
        """
        self.threads.shutdown(wait=wait)
        if self.workers is not None:
            return self.workers.disconnect()
        ended: Future[None] = Future()
        ended.set_result(None)
        return ended

    def begin_exit(self) -> None:
        """Admit nothing more, and cancel what is in flight. Any thread; never blocks."""
        self.close_admission()
        self.registry.cancel_all()

    def wait_idle(self, timeout: float) -> bool:
        """Wait until nothing is in flight, at most ``timeout`` seconds; return whether it is so."""
        return self.registry.wait_idle(timeout)

    def wait_stopped(self, timeout: float | None) -> None:
        """Wait until the loop has ended or was given back, at most ``timeout`` seconds. Blocks."""
        with lock_released(self.lock), contextlib.suppress(TimeoutError):
            self.host.stopped.result(timeout)
        self.listeners.join_watch(timeout)

    def stopped(self) -> list[Future[None]]:
        """Return futures of the end, or return, of the loop, and of the end of its watch."""
        watch_ended = self.listeners.watch_ended()
        return [self.host.stopped] if watch_ended is None else [self.host.stopped, watch_ended]

    def _after_fork(self) -> None:
        """In a forked child: become a bridge without its loop; unstarted, stay as good as new.

        The loop, the threads, and what they were doing are the parent's. See `forking`.
        """
        self._pid = os.getpid()
        runs = self.registry.runs()
        self.registry.after_fork()
        if not (self._started or self.host.begun):
            return
        error = wrong_process(
            f"the bridge {self.name}", "make a new one here: RxPyLangGraphBridge()"
        )
        self._started = True
        self.listeners.after_fork()
        exits.discard(self)
        self.host = AbsentLoop(error)
        self.threads = RunThreads(self.name, self.lock, 0)
        self.inbox.after_fork(error)
        self.admission.after_fork()
        self._dispatcher = self._make_dispatcher()
        for run in runs:
            silence_pending_warning(run.task)
            run.owner = run.observed = None
            run.abandon(error)

    def stack(self, task: Trackable) -> str:
        """Where a run is at the moment, as text. Any thread; never blocks."""
        if not isinstance(task, Run):
            return ""
        parts = []
        # Read once: the run may end meanwhile.
        itself, scope, away = task.task, task.scope, task.away
        if itself is not None:
            started = tasks_where(itself.get_loop(), run_scope, scope)
            tasks = [itself, *(each for each in started if each is not itself)]
            parts += [format_task(each, self.host.thread_id) for each in tasks]
        if away is not None and away.loop is not None:
            tasks = tasks_where(away.loop, run_scope, scope)
            parts += [format_task(each, away.thread_id) for each in tasks]
        parts.append(format_frames(self.threads.frames(task)))
        return "\n".join(part for part in parts if part)


def _raise_if(interrupt: BaseException | None) -> None:
    if interrupt is None:
        return
    if asyncio._get_running_loop() is None:
        raise interrupt
    raise_on_loop(interrupt)


def _host_of(loop: asyncio.AbstractEventLoop | None, engine: Engine) -> LoopHost:
    if loop is None:
        return OwnedLoop(engine.name, engine.threads, engine)
    return AdoptedLoop(loop, engine.name, engine)
