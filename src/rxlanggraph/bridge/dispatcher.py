"""Dispatcher: what happens to a run on the loop, from the inbox to its end.

What breaks without one place for a run's end: its slot is given back twice or never, or its future
is resolved while its threads still run.

Invariants kept here (numbers as in docs/design.md): 1, 2 and 9. A run gives back its slot, leaves
the registry and resolves its future in that order and once, after its coroutine and the worker
threads it started have ended. Where its future has to be resolved earlier (cancelled, timed out,
loop gone), the slot and the registry entry are still held until the real end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from rxlanggraph.bridge.admission import AdmissionLimiter
from rxlanggraph.bridge.draining import not_begun
from rxlanggraph.bridge.execution import Execution, enter_scope
from rxlanggraph.bridge.graphs.interrupts import UnnamedAnswers
from rxlanggraph.bridge.inbox import LoopInbox
from rxlanggraph.bridge.lanes import ThreadLanes, ThreadLease
from rxlanggraph.bridge.listeners import Listeners
from rxlanggraph.bridge.loops import LoopHost
from rxlanggraph.bridge.multitasking import Multitasking
from rxlanggraph.bridge.reports import report_end
from rxlanggraph.bridge.run import Phase, Run
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.bridge.run_threads import RunThreads
from rxlanggraph.bridge.scheduler import RunScheduler
from rxlanggraph.concurrency.future import ToNotify
from rxlanggraph.concurrency.stacks import context_of
from rxlanggraph.concurrency.tasks import EagerTaskStarter
from rxlanggraph.concurrency.user_code import is_interrupt, raise_on_loop
from rxlanggraph.errors import LaneLostError, LoopUnavailableError, ThreadBusyError
from rxlanggraph.limits.rules import ModelRules
from rxlanggraph.messages import Status, StreamMessage
from rxlanggraph.registry import Outcome

__all__ = ["Dispatcher"]

# Runs started before other callbacks of the loop get a chance. A guess, as is the inbox's batch.
_BURST = 64
# Exceptions with which a callback ends an asyncio loop.
_ENDING_LOOPS = (KeyboardInterrupt, SystemExit)


class Dispatcher:
    """Admits the runs of a bridge, starts each in its turn, and ends it. Confined to the loop.

    What may be called from any other thread says so.

    Args:
        registry: Has the runs until they end.
        inbox: Where they come from; it has the limit of the bridge, and its clock.
        admission: Where they had room until they start.
        listeners: The hooks of the bridge.
        threads: Its worker threads.
        answers: The answers that name no question.
        host: The host of the loop.
        max_pending_per_thread: How many may wait on one thread; None for no limit.
        lanes: The lanes that are shared with other processes; None if there are none.
        models: What applies to the models that runs call; None if nothing does.
    """

    def __init__(
        self,
        registry: RunRegistry,
        inbox: LoopInbox,
        admission: AdmissionLimiter,
        listeners: Listeners,
        *,
        threads: RunThreads,
        answers: UnnamedAnswers,
        host: LoopHost,
        max_pending_per_thread: int | None,
        lanes: ThreadLanes | None,
        models: ModelRules | None,
    ) -> None:
        self._registry = registry
        self._inbox = inbox
        self._admission = admission
        self._threads = threads
        self._answers = answers
        self._listeners = listeners
        self._host = host
        self._now = inbox.clock.now
        self._lanes = lanes
        if lanes is not None:
            lanes.dispatcher, lanes.slots = self, inbox.max_concurrency
        self._scheduler = RunScheduler(inbox.max_concurrency, lanes)
        self._multitasking = Multitasking(
            self._scheduler,
            max_pending_per_thread,
            enqueue=self._enqueue,
            end_unstarted=self._end_unstarted,
            stop=self._stop,
        )
        self._tasks = EagerTaskStarter()
        self._execution = Execution(threads, registry, answers, self._now, ends=self, models=models)
        self._starting = False  # whether _start_ready is at work

    @property
    def active(self) -> int:
        """How many runs hold a slot. Any thread: one number is read, which the loop writes."""
        return self._inbox.max_concurrency - self._scheduler.free

    def begin_draining(self) -> None:
        """Let no run begin that can go on later; `drain` is to follow. Any thread; never blocks."""
        self._execution.draining = True

    def process(self, run: Run) -> None:
        """Take up ``run``, or its end, as the inbox brings it.

        The run may take its first step in here. If that fails, the traceback of its error refers to
        the frames from here to `_start_run`. They drop the run, which would refer to itself.
        """
        watch = self._listeners.watch
        if watch is not None:
            watch.wake()
        if run.phase is Phase.NEW and not run.done():
            self._admit(run)
        elif run.done():  # cancelled, dropped, or given up while the loop was paused
            if run.phase is Phase.RUNNING:
                if run.task is not None and not run.task.cancelling():
                    run.task.cancel()  # once: again, it would cut its cleanup short
            else:
                self._forget_unstarted(run)
        del run

    def _forget_unstarted(self, run: Run) -> None:
        # Also if it ended before it was registered, as a run that is cancelled between the two.
        waited, run.phase = run.phase is Phase.WAITING, Phase.ENDED
        if run.lease is not None:
            self._remove(run)
        self.retire(run, run.unanswered("cancelled"))
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
        del run

    def _remove(self, run: Run) -> None:
        self._scheduler.discard(run)
        self._start_ready()  # those that waited behind it may be ready

    def _enqueue(self, run: Run) -> None:
        if self._scheduler.enqueue(run):
            self._start_run(run, in_place=False)
        elif self._scheduler.free:
            self._start_ready()
        del run

    def drain(self) -> None:
        """Ask the runs that can go on later to stop; those that have not begun do not begin."""
        waiting: deque[Run] = deque()
        for run in self._registry.runs():
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
        enter_scope(run)  # as in `_pass_on`
        self.retire(run, result)

    # -- shared lanes ---------------------------------------------------------------------------

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
        """Interrupt the runs on a thread, for a message in another process."""
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
        # If its time is over, its timer is due as well, but the loop has not come to that.
        late = run.too_late() if run.options.timed else None
        run.since = self._now()
        run.phase = Phase.RUNNING
        run.executor = self._threads
        if run.options.timed:
            self._execution.limit_run(run)
        if self._admission.bounded and not self._admission.start(run):
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
        del run

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
        # Callbacks run in the context of the run, as at its end: in a copy, because the original
        # may be entered at the moment.
        context_of(run.task).copy().run(run.resolve, result)

    def ended(self, run: Run, result: StreamMessage, error: BaseException | None) -> None:
        """See `Execution`: the coroutine of ``run`` has come to its end."""
        if run.threaded and self._wait_for_threads(run, result):
            run.resolve(result)  # the future does not wait for a thread that cannot be stopped
        elif result.status == "cancelled" and not run.cancelled():
            # From outside: most likely the loop is ending. Its guard has to be told first.
            asyncio.get_running_loop().call_soon(self._finish, run, result)
        else:
            self._finish(run, result)
        if error is not None and not self._host.owned and isinstance(error, _ENDING_LOOPS):
            raise_on_loop(error)  # as asyncio does; user code must not end a loop of ours

    def end_waiting(self, run: Run, result: StreamMessage) -> None:
        """See `Execution`: ``run``, which has not begun, does not begin any more."""
        self._end_unstarted(run, result)
        self._remove(run)

    def _wait_for_threads(self, run: Run, result: StreamMessage) -> bool:
        loop = asyncio.get_running_loop()
        return self._threads.on_idle(run, partial(self._thread_ended, loop, run, result))

    def _thread_ended(
        self, loop: asyncio.AbstractEventLoop, run: Run, result: StreamMessage
    ) -> None:
        # In the run's last worker thread.
        try:
            loop.call_soon_threadsafe(self._finish, run, result)
        except RuntimeError:  # the loop is closed: there is no slot to give back
            self.retire(run, result)

    def _finish(self, run: Run, result: StreamMessage) -> None:
        if run.phase is Phase.ENDED:
            return
        run.phase = Phase.ENDED
        if result.status == "cancelled" and self._inbox.refuses():
            run.cut_off = True
        others = self._scheduler.release(run)
        self.retire(run, result)  # first, or its thread's next run could end before it
        if others:
            self._start_ready(in_place=True)

    def stop(self, error: LoopUnavailableError) -> None:
        """Cancel what runs, and resolve what has not started with ``error``."""
        for run in self._registry.runs():
            if run.phase is not Phase.RUNNING:
                run.phase = Phase.ENDED
                run.cut_off = True
                self.retire(run, run.unanswered("error", error))
            elif run.task is not None and not run.task.cancelling():
                # The loop cancels all its tasks itself, except for those started since then in the
                # place of a cancelled one. Cancelling a task twice would cut its cleanup short.
                run.task.cancel()

    # -- in any thread -------------------------------------------------------------------------

    def retire(self, run: Run, result: StreamMessage) -> None:
        """Remove ``run`` from admission and registry, and resolve its future if still pending.

        Where its thread's lease is being given back, it leaves the registry after that.
        """
        if self._admission.bounded and run.executor is None:  # not begun: it still has its room
            self._admission.release(run)
        if self._answers.waiting:
            self._answers.forget(run)
        timers = run.timers  # read once, as below: two threads may end a run whose loop is gone
        if timers:
            for timer in timers.values():
                timer.cancel()
            run.timers = run.overran = None  # they refer to the run
        lease = run.lease
        if lease is not None and lease.holds_back(partial(self._leave, run, result)):
            run.resolve(result)
        else:
            self._leave(run, result)

    def _leave(self, run: Run, result: StreamMessage) -> None:
        """Remove ``run`` from the registry, and resolve its future if still pending."""
        if not self._registry.leave(run, None, None, result, _settle):
            with run.lock:  # it was discarded; its future is to resolve all the same
                to_notify = run.settle_with(result)
            _tell(to_notify, run, result)
        run.owner = run.parent = None
        scope = run.scope
        if run.lease is not None:
            with run.lock:  # in one step for what checks the lease: see `fenced_saver`
                run.lease = None
                if scope is not None:
                    scope.run = None
        if scope is not None:
            run.scope = scope.run = None


def _settle(
    run: Run, result: StreamMessage
) -> tuple[Outcome, Callable[[Run, StreamMessage], object] | None]:
    """See `TaskRegistry._leave`. Any thread; under the lock."""
    to_notify = run.settle_with(result)
    quiet = to_notify is None and run.observed is None
    return run.counts_as(), None if quiet else partial(_tell, to_notify)


def _tell(to_notify: ToNotify | None, run: Run, result: StreamMessage) -> None:
    """Tell what waits for ``run`` that it is resolved, and then hooks of its end. Any thread."""
    interrupt = run.tell(to_notify)
    if run.observed is not None:
        interrupt = report_end(run, result) or interrupt
    if interrupt is not None:
        raise_on_loop(interrupt)
