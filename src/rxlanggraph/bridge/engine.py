"""Engine: what happens to a run between its submission and its end.

Threads meet the loop in `LoopInbox` alone. What is marked "on the loop" is confined to the loop's
thread; the rest may be called from any thread. What breaks without one place for a run's end: its
slot is given back twice or never, or its future is resolved while its threads still run.

Invariants kept here (numbers as in docs/design.md): 1, 2 and 9. A run gives back its slot, leaves
the registry and resolves its future in that order and once, after its coroutine and the worker
threads it started have ended. Where its future has to be resolved earlier (cancelled, timed out,
loop gone), the slot and the registry entry are still held until the real end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import Context
from functools import partial

from rxlanggraph.bridge import exits
from rxlanggraph.bridge.admission import AdmissionLimiter, next_reservation
from rxlanggraph.bridge.deadlocks import dedicated_to
from rxlanggraph.bridge.draining import not_begun
from rxlanggraph.bridge.execution import Execution, enter_scope
from rxlanggraph.bridge.graph_loops import GraphLoops
from rxlanggraph.bridge.graphs.configs import context_of_its_own
from rxlanggraph.bridge.graphs.interrupts import (
    UnnamedAnswers,
)
from rxlanggraph.bridge.inbox import LoopInbox
from rxlanggraph.bridge.lanes import ThreadLanes, ThreadLease
from rxlanggraph.bridge.loops import AbsentLoop, AdoptedLoop, LoopHost, OwnedLoop
from rxlanggraph.bridge.multitasking import Multitasking
from rxlanggraph.bridge.observers import Listener, Observed, Observers
from rxlanggraph.bridge.overflow import Overflow
from rxlanggraph.bridge.reports import report_blocked, report_end, report_queued
from rxlanggraph.bridge.run import (
    Phase,
    Run,
    RunOptions,
    current_run,
    run_scope,
)
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.bridge.run_threads import RunThreads
from rxlanggraph.bridge.scheduler import RunScheduler
from rxlanggraph.concurrency.clock import SYSTEM_CLOCK, Clock
from rxlanggraph.concurrency.forking import fork_safe_rlock, register_after_fork, wrong_process
from rxlanggraph.concurrency.loop_watch import LoopWatch
from rxlanggraph.concurrency.stacks import context_of, format_frames, format_task, tasks_where
from rxlanggraph.concurrency.tasks import EagerTaskStarter, silence_pending_warning
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.concurrency.user_code import is_interrupt, raise_on_loop
from rxlanggraph.errors import (
    BlockingCallError,
    BridgeClosedError,
    LaneLostError,
    LoopUnavailableError,
    RegistryClosedError,
    ThreadBusyError,
)
from rxlanggraph.executors.contract import Workers
from rxlanggraph.hooks import Hooks
from rxlanggraph.limits.rules import ModelRules
from rxlanggraph.messages import Status, StreamMessage
from rxlanggraph.registry import Outcome, Trackable

__all__ = ["Engine"]

# Runs started before other callbacks of the loop get a chance. A guess, as is the inbox's batch.
_BURST = 64
# Seconds after which a loop counts as blocked, where hooks alone ask for it. A guess: long before a
# person notices, and longer than a burst of starts takes.
_BLOCKED_AFTER = 0.5
# Exceptions with which a callback ends an asyncio loop.
_ENDING_LOOPS = (KeyboardInterrupt, SystemExit)


class Engine:
    """Everything of a bridge behind its public API.

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
        workers: Where the graphs are called; None on the loop.
        loops: On how many loops in threads they are called; 1 on the bridge's own.
        clock: By which the bridge measures time.
        host_of: Makes the host of a loop of another kind; None for one that is owned or adopted.
    """

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
        # lock_released); it is an RLock by invariant 5. Guards _started here.
        self.lock = fork_safe_rlock()
        self.max_concurrency = max_concurrency
        self.clock = clock
        self._now = clock.now
        self.registry = RunRegistry(lock=self.lock, inside=current_run, clock=clock)
        self.threads = RunThreads(name, self.lock, spare_threads)
        self.inbox = LoopInbox(self.registry, self._process, self.loop_stopped, self.lock, clock)
        self.inbox.max_concurrency = max_concurrency
        self.admission = AdmissionLimiter(max_pending, self.lock, overflow, name, clock)
        self._answers = UnnamedAnswers(self.lock)
        self.name = name
        self.host: LoopHost = (host_of or partial(_host_of, loop))(self)
        # Confined to the loop's thread.
        self._lanes = lanes
        if lanes is not None:
            lanes.hooks, lanes.slots = self, max_concurrency
        self._scheduler = RunScheduler(max_concurrency, lanes)
        self._multitasking = Multitasking(
            self._scheduler,
            max_pending_per_thread,
            enqueue=self._enqueue,
            end_unstarted=self._end_unstarted,
            stop=self._stop,
        )
        self._tasks = EagerTaskStarter()
        # Guarded by the lock; read without it: one reference, replaced as a whole.
        self._observers: Observers | None = None
        self._watch: LoopWatch | None = None  # likewise; only ever set
        self._starting = False  # whether _start_ready is at work
        self._started = False
        self._stopped = False  # whether the loop was asked to end
        self._models = models
        if loops > 1:
            workers = GraphLoops(name, loops, self.threads, self.lock, self.inbox)
        self.workers = workers
        self._execution = self._new_execution()
        self._pid = os.getpid()
        register_after_fork(self)

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
        try:
            if not await self.admission.acquire_async(run):
                return self._turn_down(run)
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
        run = Run(message, options, context_of_its_own(), self.inbox, owner, callbacks=callbacks)
        if options.adapter.takes_answers:
            self._answers.given(run)
        observers = self._observers
        if observers is not None:
            try:
                report_queued(run, observers)
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
        reservation = next_reservation.get()
        if reservation is not None and self.admission.pass_on(reservation, run):
            return True
        on_loop = self.on_own_loop()
        if (on_loop and self._delivers_result()) or run.message.status != "ok":
            run.downstream = True
            self.admission.hold(run)
        elif self.admission.overflow != "block":
            loser = self.admission.claim(run)
            if loser is not None and loser is not run:
                self._drop(loser)
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
        sinks = (run.sink for run in self._runs())
        return any(sink is not None and sink.loop is loop for sink in sinks)

    def reject(self, run: Run) -> None:
        """Resolve ``run``, which got no room, or not in time. Any thread; calls its callbacks."""
        self._let_go(run)
        if run.expired is not None:
            self.registry.count_unadmitted("failed")
            self._reject_with(run, run.unanswered("timed_out"))
            return
        self.registry.count_unadmitted("dropped")
        self._reject_with(run, run.unanswered("rejected", self.admission.rejection()))

    def _reject_with(self, run: Run, result: StreamMessage) -> None:
        try:
            run.reject(result)
        finally:
            if run.observed is not None:
                _raise_if(report_end(run, result))

    def _report_refusal(self, run: Run, error: BaseException) -> None:
        """Tell hooks of the end of ``run``, which its submitter does not get. Any thread."""
        status: Status = "rejected" if isinstance(error, Exception) else "cancelled"
        _raise_if(report_end(run, run.unanswered(status, error)))

    def _turn_down(self, run: Run) -> Run:
        if self.admission.overflow == "error":
            raise self.admission.rejection()
        self.reject(run)
        return run

    def _drop(self, run: Run) -> None:
        """Resolve ``run``, whose room another one has got, as rejected.

        Any thread; calls its callbacks. If the loop has not seen it, it never will; otherwise the
        loop only removes it from where it waits.
        """
        # A run that is withheld is not handed over at all: its subscription sees its end.
        seen = not self.inbox.withdraw(run) and run.withheld_by is None
        result = run.unanswered("rejected", run.rejection)
        outcome: Outcome = "cancelled" if run.cancelled() else "dropped"
        self._let_go(run)
        try:
            reject = partial(self._reject_with, run)
            if not self.registry.leave(run, outcome, reject, result):
                reject(result)
        finally:
            if seen:
                self.inbox.post(run)

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
        except (RegistryClosedError, LoopUnavailableError) as error:
            if self.registry.state == "open":
                raise
            raise self.why_closed() from error

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
        if self.inbox.loop is None:
            raise self.why_closed()
        return self.inbox.loop

    def why_closed(self) -> BridgeClosedError | LoopUnavailableError:
        """Make the error of what comes too late. Any thread; never blocks."""
        if self.registry.state == "open":
            return LoopUnavailableError(
                f"the event loop of the bridge {self.name} has ended; make a new bridge"
            )
        return BridgeClosedError(
            f"the bridge {self.name} is closed and takes no more messages; make a new one"
        )

    def drop(self, run: Run) -> None:
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
        """Whether ``run``, which has ended, was ended by its loop or by the close of the bridge."""
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

    def listen(self, hooks: Hooks) -> Listener:
        """Tell ``hooks`` of all runs that arrive from now on. Any thread; never blocks.

        Raises:
            InvalidTypeError: As in `Listener`.
        """
        listener = Listener(hooks)
        with self.lock:
            others = () if self._observers is None else self._observers.listeners
            self._observers = Observers((*others, listener))
        if listener.hears("on_blocked"):
            self.watch_loop(_BLOCKED_AFTER)
        return listener

    def listen_to_runs_in_flight(self, listener: Listener) -> None:
        """Tell ``listener`` of the rest of the runs that have arrived before it, too.

        Any thread; never blocks: the loop does it soon.
        """
        loop = self.inbox.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: its runs are over
                loop.call_soon_threadsafe(self._add_to_runs, listener)

    def _add_to_runs(self, listener: Listener) -> None:
        """On the loop: only there, no run is between two looks at who observes it."""
        alone = Observers((listener,))
        extended: dict[Observers, Observers] = {}  # many runs share theirs
        for run in self._runs():
            observed = run.observed
            if observed is not None:
                by = observed.by
                if by not in extended:
                    others = tuple(each for each in by.listeners if each is not listener)
                    extended[by] = Observers((*others, listener))
                observed.by = extended[by]
            elif not run.done():
                late = Observed(alone, self._now())
                late.handed_over, late.begun = True, run.task is not None
                run.observed = late

    def watch_loop(self, blocked_after: float) -> None:
        """Measure the lag of the loop while there are runs, and name what blocks it. Any thread.

        It has no effect if that is done already.

        Args:
            blocked_after: Seconds after which the loop counts as blocked.
        """
        watch = LoopWatch(
            f"{self.name}-lag",
            blocked_after,
            loop=lambda: self.inbox.loop,
            thread_id=lambda: self.host.thread_id,
            is_busy=lambda: not self.registry.is_idle(),
            on_blocked=lambda blockage: report_blocked(self.name, self._observers, blockage),
        )
        with self.lock:
            if self._watch is not None:
                return
            self._watch = watch
        if self._stopped:
            watch.stop()
        elif self.inbox.loop is not None:
            watch.wake()

    @property
    def loop_lag(self) -> float | None:
        """See `RxPyLangGraphBridge.loop_lag`."""
        watch = self._watch
        return None if watch is None else watch.lag

    @property
    def active(self) -> int:
        """How many runs hold a slot. Any thread: one number is read, which the loop writes."""
        return self.inbox.max_concurrency - self._scheduler.free

    def stop_listening(self, listener: Listener) -> None:
        """Tell the hooks of ``listener`` nothing more, once. Any thread; never blocks."""
        listener.gone = True
        with self.lock:
            others = () if self._observers is None else self._observers.listeners
            left = tuple(other for other in others if other is not listener)
            self._observers = Observers(left) if left else None

    # -- on the loop ---------------------------------------------------------------------------

    def _process(self, run: Run) -> None:
        if self._watch is not None:
            self._watch.wake()
        if run.phase is Phase.NEW and not run.done():
            self._admit(run)
        elif run.done():  # cancelled, dropped, or given up while the loop was paused
            if run.phase is Phase.RUNNING:
                if run.task is not None and (run.cancelled() or not run.task.cancelling()):
                    run.task.cancel()
            else:
                self._forget_unstarted(run)

    def _forget_unstarted(self, run: Run) -> None:
        # Also if it ended before it was registered, as a run that is cancelled between the two.
        waited, run.phase = run.phase is Phase.WAITING, Phase.ENDED
        if run.lease is not None:
            self._remove(run)
        self._retire(run, run.unanswered("cancelled"))
        if waited and run.rejection is not None:
            self._remove(run)

    def _admit(self, run: Run) -> None:
        if self._execution.draining and self._execution.may_drain(run):
            self._turn_away(run)
            return
        if run.options.timed:
            late = run.too_late()
            if late is not None:  # it neither begins nor interrupts another one
                self._end_unstarted(run, late)
                return
            self._execution.limit_wait(run)
        if run.options.multitask_strategy == "enqueue" and self._multitasking.limit is None:
            self._enqueue(run)
        else:
            self._multitasking.admit(run)

    def _remove(self, run: Run) -> None:
        self._scheduler.discard(run)
        self._start_ready()  # those that waited behind it may be ready

    def _enqueue(self, run: Run) -> None:
        if self._scheduler.enqueue(run):
            self._start_run(run, in_place=False)
        elif self._scheduler.free:
            self._start_ready()

    def _drain(self) -> None:
        """Ask the runs that can go on later to stop; those that have not begun do not begin."""
        waiting: deque[Run] = deque()
        for run in self._runs():
            if run.control is not None:
                run.control.request_drain("the bridge drains")
            elif run.phase is Phase.WAITING:
                waiting.append(run)
        self._turn_away_waiting(waiting)

    def _turn_away_waiting(self, waiting: deque[Run]) -> None:
        """End these runs, a burst of them per iteration of the loop: others go on meanwhile."""
        for _ in range(min(_BURST, len(waiting))):
            run = waiting.popleft()
            if run.phase is Phase.WAITING and not run.done() and self._execution.may_drain(run):
                self._turn_away(run)  # the scheduler skips it
        self._start_ready()
        if waiting:
            asyncio.get_running_loop().call_soon(self._turn_away_waiting, waiting)

    def _turn_away(self, run: Run) -> None:
        """End ``run``, which has not begun: its message can be sent to another bridge."""
        run.cut_off = True
        run.interruption = not_begun(run)
        self._end_unstarted(run, run.unanswered("rejected", run.interruption))

    def _stop(self, run: Run) -> None:
        """Cancel ``run``, which has been interrupted, and resolve it."""
        if run.task is not None:  # otherwise its first step, still to come, sees it
            run.task.cancel()
            self.resolve_early(run, "interrupted", run.interruption)

    def _end_unstarted(self, run: Run, result: StreamMessage) -> None:
        run.phase = Phase.ENDED
        if run.lease is not None:
            self._remove(run)
        context = run.context
        del run.context
        context.run(self._retire_in_scope, run, result)

    def _retire_in_scope(self, run: Run, result: StreamMessage) -> None:
        enter_scope(run)  # as in _pass_on
        self._retire(run, result)

    # -- shared lanes, on the loop ---------------------------------------------------------------

    def lane_granted(self, run: Run) -> None:
        """Go on with ``run``, which has got the lease of its thread."""
        self._scheduler.lane_granted(run)
        self._start_ready()

    def lane_refused(self, run: Run, error: BaseException) -> None:
        """End ``run``, which does not get the lease of its thread."""
        status: Status = "rejected" if isinstance(error, ThreadBusyError) else "error"
        self._end_unstarted(run, run.unanswered(status, error))

    def lane_lost(self, lease: ThreadLease, error: LaneLostError) -> None:
        """Cancel the run that has that lease, and resolve it."""
        run = self._scheduler.holder(lease.thread_id)
        if run is None or run.lease is not lease or run.phase is not Phase.RUNNING:
            return  # one that waits for its slot asks again when it gets that
        if run.task is None:
            run.obstacle = error
        elif not run.done() and run.interruption is None:
            run.lane_lost = error
            run.task.cancel()
            self.resolve_early(run, "error", error)

    def lane_taken_over(self, thread_id: str, message_id: str) -> None:
        """Interrupt what is on a thread for a message in another process."""
        self._multitasking.take_over(thread_id, message_id)

    # -- the start and the end of a run ----------------------------------------------------------

    def _start_ready(self, *, in_place: bool = False) -> None:
        """Start the runs that are ready, at most one burst of them per iteration of the loop.

        Not re-entrant: a run that ends within its first step leaves the next one to the outer call.
        """
        if self._starting:
            return
        self._starting = True
        try:
            for _ in range(_BURST):
                run = self._scheduler.next_ready() if self._scheduler.free else None
                if run is None:
                    return
                if run.lease is not None and self._lanes and not self._lanes.start(run):
                    self._scheduler.repeat_lane(run)
                else:
                    self._start_run(run, in_place=in_place)
        finally:
            self._starting = False
        asyncio.get_running_loop().call_soon(self._start_ready)

    def _start_run(self, run: Run, *, in_place: bool) -> None:
        # Its timer is due as well then, but the loop has not come to it.
        late = run.too_late() if run.options.timed else None
        run.since = self._now()
        run.phase = Phase.RUNNING
        run.executor = self.threads
        if run.options.timed:
            self._execution.limit_run(run)
        if self.admission.bounded and not self.admission.start(run):
            self._finish(run, run.unanswered("rejected", run.rejection))
            return
        name, context = run.options.name, run.context
        del run.context  # it has a variable that refers to the run: a cycle for each message
        # A result was queued all the same, so as not to overtake earlier runs of its thread.
        ready = late if run.message.status == "ok" else run.message
        if ready is not None:
            context.run(self._pass_on, run, ready)
            return
        coroutine = self._execution.execute(run)
        try:
            task = self._tasks.start(coroutine, name=name, context=context, in_place=in_place)
        except BaseException as error:  # from the loop's own task factory
            coroutine.close()
            self._finish(run, run.unanswered("error", error))
            if is_interrupt(error):
                raise_on_loop(error)
        else:
            if run.task is None and not task.done():  # its first step is still to come
                task.add_done_callback(partial(self._never_began, run))

    def _pass_on(self, run: Run, result: StreamMessage) -> None:
        enter_scope(run)  # its callbacks are downstream of this run, as of any other
        self._finish(run, result)

    def _never_began(self, run: Run, task: asyncio.Task[None]) -> None:
        # execute() lets no cancellation out; so the task was cancelled before its first step.
        if task.cancelled():
            self._finish(run, run.unanswered("cancelled"))

    def resolve_early(self, run: Run, status: Status, error: BaseException | None = None) -> None:
        """See `Execution`: resolve the future of ``run``, which goes on to its real end."""
        assert run.task is not None
        result = run.unanswered(status, error, self._now() - run.since)
        observed = run.observed
        if observed is not None and not run.done():
            observed.resolved_early = result
        # Callbacks run in the context of the run, as at its end: in a copy, because the original
        # may be entered at the moment.
        context_of(run.task).copy().run(run.resolve, result)

    def _new_execution(self) -> Execution:
        now = self._now
        return Execution(
            self.threads, self.registry, self._answers, now, ends=self, models=self._models
        )

    def ended(self, run: Run, result: StreamMessage, error: BaseException | None) -> None:
        """See `Execution`: the coroutine of ``run`` has come to its end."""
        if run.threaded and self._wait_for_threads(run, result):
            run.resolve(result)  # the future does not wait for a thread that cannot be stopped
        elif result.status == "cancelled" and not run.cancelled():
            # From outside: most likely the loop is ending. Its guard has to be told first.
            asyncio.get_running_loop().call_soon(self._finish, run, result)
        else:
            self._finish(run, result)
        if error is not None and not self.host.owned and isinstance(error, _ENDING_LOOPS):
            raise_on_loop(error)  # as asyncio does; user code must not end a loop of ours

    def end_waiting(self, run: Run, result: StreamMessage) -> None:
        """See `Execution`: ``run``, which has not begun, does not begin any more."""
        self._end_unstarted(run, result)
        self._remove(run)

    def _wait_for_threads(self, run: Run, result: StreamMessage) -> bool:
        loop = asyncio.get_running_loop()
        return self.threads.on_idle(run, partial(self._thread_ended, loop, run, result))

    def _thread_ended(
        self, loop: asyncio.AbstractEventLoop, run: Run, result: StreamMessage
    ) -> None:
        # In the run's last worker thread.
        try:
            loop.call_soon_threadsafe(self._finish, run, result)
        except RuntimeError:  # the loop is closed: there is no slot to give back
            self._retire(run, result)

    def _finish(self, run: Run, result: StreamMessage) -> None:
        if run.phase is Phase.ENDED:
            return
        run.phase = Phase.ENDED
        if result.status == "cancelled" and self.inbox.refuses():
            run.cut_off = True
        others = self._scheduler.release(run)
        self._retire(run, result)  # first, or its thread's next run could end before it
        if others:
            self._start_ready(in_place=True)

    # -- in any thread -------------------------------------------------------------------------

    def _retire(self, run: Run, result: StreamMessage) -> None:
        """Remove ``run`` from admission and registry, and resolve its future if still pending.

        Where its thread's lease is being given back, it leaves the registry after that.
        """
        if self.admission.bounded and run.executor is None:  # not begun: it still has its room
            self.admission.release(run)
        if self._answers.waiting:
            self._answers.forget(run)
        if run.timers:
            for timer in run.timers.values():
                timer.cancel()
            run.timers = run.overran = None  # they refer to the run
        lease = run.lease
        if lease is not None and lease.holds_back(partial(self._leave, run, result)):
            run.resolve(result)
        else:
            self._leave(run, result)

    def _leave(self, run: Run, result: StreamMessage) -> None:
        """Remove ``run`` from the registry, and resolve its future if still pending."""
        outcome, settle = run.leaves_as(result)
        resolve = run.resolve if run.observed is None else partial(_resolve_observed, run)
        if not self.registry.leave(run, outcome, resolve, result, settle):
            resolve(result)  # it was discarded; its future is to resolve all the same
        run.owner = run.parent = None
        if run.scope is not None:
            run.scope.run = None
            run.scope = None
        if run.lease is not None:
            run.lease = None

    def loop_stopping(self, error: LoopUnavailableError) -> None:
        """On the loop: accept nothing more, cancel what runs, resolve what has not started."""
        self.inbox.refuse(error)
        self.admission.close()
        if self._lanes is not None:
            self._lanes.close()
        for run in self._runs():
            if run.phase is not Phase.RUNNING:
                run.phase = Phase.ENDED
                run.cut_off = True
                self._retire(run, run.unanswered("error", error))
            elif run.task is not None and not run.task.cancelling():
                # The loop cancels all its tasks itself, except for those started since then in the
                # place of a cancelled one. Cancelling a task twice would cut its cleanup short.
                run.task.cancel()
        if self.workers is not None:
            self.workers.stop()

    def loop_stopped(self, error: LoopUnavailableError) -> None:
        """In any thread: nothing runs on the loop any more. Resolve everything (invariant 1)."""
        if self._watch is not None:
            self._watch.stop()
        self.inbox.refuse(error)
        self.admission.close()
        self.inbox.discard_pending()
        if self._lanes is not None:
            self._lanes.close()
        if self.workers is not None:
            self.workers.disconnect()
        for run, result in self._cut_off(self._runs(), error):
            silence_pending_warning(run.task)
            if self.threads.on_idle(run, partial(self._retire, run, result)):
                run.resolve(result)
            else:
                self._retire(run, result)

    def loop_paused(self, error: LoopUnavailableError) -> None:
        """In any thread: the loop may not run again. Give up what waits for it (invariant 1).

        Called repeatedly during the pause: a run submitted just before it is seen by the next call.
        """
        self.admission.turn_away(error)
        runs = self._runs()
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
            observed = run.observed
            if observed is not None and not run.done():
                observed.resolved_early = result
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

        Those of runs that have not begun do not begin. All others go on.
        """
        self._execution.draining = True
        loop = self.inbox.loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: nothing runs there
                loop.call_soon_threadsafe(self._drain, context=Context())

    def stop_loop(self) -> None:
        """Ask the loop to end, or give it back. Any thread; never blocks."""
        with self.lock:
            self._started = True  # nothing starts it after this
            self._stopped, watch = True, self._watch
        if watch is not None:
            watch.stop()
        loop = self.inbox.loop
        if self.workers is not None and loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed: there are no calls
                loop.call_soon_threadsafe(self.workers.stop, context=Context())
        self.host.stop()
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
        """Wait until the loop has ended or was given back, at most ``timeout`` seconds."""
        with lock_released(self.lock), contextlib.suppress(TimeoutError):
            self.host.stopped.result(timeout)
        if self._watch is not None:
            self._watch.join(timeout)

    def stopped(self) -> list[Future[None]]:
        """What is done when the loop has ended, or was given back. Any thread; never blocks."""
        watch = self._watch
        if watch is None or watch.is_inside():  # one of its hooks waits
            return [self.host.stopped]
        return [self.host.stopped, watch.ended]

    def _after_fork(self) -> None:
        """In a forked child: become a bridge without its loop; unstarted, stay as good as new.

        The loop, the threads, and what they were doing are the parent's. See `forking`.
        """
        self._pid = os.getpid()
        runs = self._runs()
        self.registry.after_fork()
        if not (self._started or self.host.begun):
            return
        error = wrong_process(
            f"the bridge {self.name}", "make a new one here: RxPyLangGraphBridge()"
        )
        self._started = True
        self._watch = None
        exits.discard(self)
        self.host = AbsentLoop(error)
        self.threads = RunThreads(self.name, self.lock, 0)
        self.inbox.after_fork(error)
        self.admission.after_fork()
        self._answers = UnnamedAnswers(self.lock)
        self._execution = self._new_execution()
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

    def _runs(self) -> list[Run]:
        return [task for task in self.registry.tasks() if isinstance(task, Run)]


def _resolve_observed(run: Run, result: StreamMessage) -> None:
    """Resolve ``run``, and then tell hooks of its end. Any thread."""
    run.resolve(result)
    interrupt = report_end(run, result)
    if interrupt is not None:
        raise_on_loop(interrupt)


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
