"""Execution: a run from its first step to its end. Confined to the loop.

It makes the attempts, limits their time, and determines the run's status from how they end. What
breaks without that: a timeout, a cancellation and a ``CancelledError`` of the graph's own look
alike to the caller. The `Dispatcher` starts a run here, and is called when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import Any, Protocol

from rxlanggraph.bridge.draining import drained, new_control, not_begun
from rxlanggraph.bridge.graphs.attempts import of_other_loop, retried
from rxlanggraph.bridge.graphs.configs import Config, configurable_of
from rxlanggraph.bridge.graphs.interrupts import (
    INTERRUPT,
    Refusal,
    UnnamedAnswers,
    asked,
    overtaken_answer,
)
from rxlanggraph.bridge.graphs.retention import prune_thread
from rxlanggraph.bridge.graphs.rollback import Undo, remember_thread
from rxlanggraph.bridge.graphs.tracebacks import without_machinery
from rxlanggraph.bridge.remote import companions_of
from rxlanggraph.bridge.reports import report_started
from rxlanggraph.bridge.run import Phase, Run, RunScope, run_scope
from rxlanggraph.bridge.run_info import NodeFinder
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.bridge.run_threads import RunThreads
from rxlanggraph.bridge.time_limits import TimeLimit
from rxlanggraph.errors import LaneLostError, RunError
from rxlanggraph.executors.companions import accompanying
from rxlanggraph.langgraph_tasks import LangGraphTasks
from rxlanggraph.limits.rules import ModelRules
from rxlanggraph.messages import Status, StreamMessage, answer_to, interrupted_answer

__all__ = ["Execution", "enter_scope"]

_log = logging.getLogger("rxlanggraph")


class _Ends(Protocol):
    """How a run ends, in each of the ways in which it can. On the loop."""

    def ended(self, run: Run, result: StreamMessage, error: BaseException | None) -> None:
        """It has come to its end: ``error`` is what has left the graph, if anything has."""

    def resolve_early(self, run: Run, status: Status, error: BaseException | None = None) -> None:
        """Its future is to be resolved, before it has come to its end."""

    def end_waiting(self, run: Run, result: StreamMessage) -> None:
        """It will not begin."""


class Execution:
    """Executes the runs of a bridge.

    Args:
        threads: The worker threads of the runs.
        registry: That of the bridge; an attempt is not repeated once it is closed.
        answers: Answers that name no question; each run overtakes those of its thread.
        now: The clock.
        ends: What to do when a run ends.
        models: What applies to the models that runs call; None if nothing does.
    """

    def __init__(
        self,
        threads: RunThreads,
        registry: RunRegistry,
        answers: UnnamedAnswers,
        now: Callable[[], float],
        ends: _Ends,
        *,
        models: ModelRules | None = None,
    ) -> None:
        self._threads = threads
        self._registry = registry
        self._answers = answers
        self._now = now
        self._ends = ends
        self._models = models
        self._langgraph_tasks = LangGraphTasks(run_scope)
        self._nodes = NodeFinder()
        self.draining = False
        """Whether graphs were asked to stop between supersteps. Only ever set, by any thread."""

    async def execute(self, run: Run) -> None:
        """Run ``run``, from its first step to its end. In a task and a context of its own.

        Raises no exception of the graph's.
        """
        enter_scope(run)
        run.task = asyncio.current_task()
        result: StreamMessage | None = None
        error: BaseException | None = None
        status: Status = "ok"
        try:
            result = self._answer(run, await self._attempts(run))
            if run.options.retention is not None:
                await _prune(run, result)
        except asyncio.CancelledError as caught:
            status, error = self._cancelled_by(run, caught)
            with contextlib.suppress(asyncio.CancelledError):  # the loop is ending
                await self._langgraph_tasks.until_ended(run.scope)
        except BaseException as caught:
            if asyncio._get_running_loop() is None:
                raise  # GeneratorExit, from a loop closed while this ran: see loop_stopped()
            status, error = await self._failed_by(run, caught)
        run.task = None
        if result is None:
            result = run.unanswered(status, error, self._now() - run.since)
        self._ends.ended(run, result, error)
        # The error's traceback refers to this frame and its callers' frames, and those to the
        # error.
        del run, error, result

    # -- what the end of the graph says about the run ----------------------------------------------

    def _answer(self, run: Run, content: Any) -> StreamMessage:
        if self._answers.waiting:
            self._answers.overtaken_by(run)
        duration = self._now() - run.since
        # Of a run that had to end, but swallowed the cancellation and continued:
        if run.interruption is not None:
            return run.unanswered("interrupted", run.interruption, duration)
        if run.expired and run.options.retry is None:
            return run.unanswered("timed_out", None, duration)
        if run.lease is not None and (error := _error_of_lane(run)) is not None:
            return run.unanswered("error", error, duration)
        if type(content) is dict and INTERRUPT in content:
            return interrupted_answer(run.message, content, asked(content), duration)
        if type(content) is list and (questions := asked(content)):
            return interrupted_answer(run.message, content, questions, duration)
        status: Status = "interrupted" if run.at_breakpoint else "ok"
        return answer_to(run.message, status, content, None, duration)

    def _cancelled_by(
        self, run: Run, caught: asyncio.CancelledError
    ) -> tuple[Status, BaseException | None]:
        """Determine what a ``CancelledError`` that leaves a run says about it."""
        if self._answers.waiting:
            self._answers.overtaken_by(run)
        if run.cancelled():
            return "cancelled", None
        if run.interruption is not None:
            return "interrupted", run.interruption
        if run.expired:
            return "timed_out", None
        if run.lane_lost is not None:
            return "error", run.lane_lost
        task = asyncio.current_task()
        if not run.child_cancelled or (task is not None and task.cancelling()):
            return "cancelled", None  # from outside, or by the graph itself
        error = RunError(f"the run of message {run.message.id} waited for a run that was cancelled")
        error.__cause__ = caught
        return "error", error

    async def _failed_by(
        self, run: Run, caught: BaseException
    ) -> tuple[Status, BaseException | None]:
        """Determine what any other exception that leaves a run says about it."""
        if isinstance(caught, Refusal):
            return "rejected", caught.error
        if self._answers.waiting:
            self._answers.overtaken_by(run)
        if run.control is not None and run.control.has_stopped(caught):
            return await self._drained_by(run)
        status: Status = "timed_out" if caught is run.timeout_error else "error"
        return status, of_other_loop(run.options.graph, without_machinery(caught))

    async def _drained_by(self, run: Run) -> tuple[Status, BaseException | None]:
        """Determine where a run whose graph has stopped can go on."""
        if run.interruption is None:
            try:
                error = await drained(run)
            except asyncio.CancelledError as caught:
                return self._cancelled_by(run, caught)
            if run.interruption is None:  # no message has taken its thread over meanwhile
                run.interruption = error
            run.cut_off = True
        return "interrupted", run.interruption

    # -- attempts ----------------------------------------------------------------------------------

    def _attempts(self, run: Run) -> Awaitable[Any]:
        # It may have ended since its start, before this first step, or in a pause of the loop.
        if run.done() or run.interruption is not None:
            raise asyncio.CancelledError
        if run.overtaken:
            raise overtaken_answer(run.message)
        observed = run.observed
        if observed is not None:
            report_started(run, observed)
        if run.obstacle is not None:
            raise run.obstacle
        undoes = run.options.saver is not None and run.message.thread_id is not None
        attempts = self._with_rollback if undoes else self._with_retries
        if run.options.remote:
            accompanying.set(companions_of(run, self._models))
        elif self._models is not None:
            return self._with_model_rules(run, self._models, attempts)
        return attempts(run)

    async def _with_model_rules(
        self, run: Run, models: ModelRules, attempts: Callable[[Run], Awaitable[Any]]
    ) -> Any:
        """Make the attempts, with the limits and the counts of the models that they call."""
        scope = run.scope
        calls = models.calls_of(run.message, run.clock, lambda: run_scope.get() is scope)
        run.add_done_callback(calls.resolved)
        calls.enter()
        try:
            return await attempts(run)
        finally:
            calls.end()
            del run, calls  # the exception refers to this frame

    def _with_retries(self, run: Run) -> Awaitable[Any]:
        message, options = run.message, run.options
        config, arguments = options.config, options.arguments
        observed = run.observed
        if observed is not None and observed.by.node is not None and not options.remote:
            config = _with_node_callbacks(run, config)
        if options.drains and self.may_drain(run):
            if self.draining:  # since its start
                run.cut_off = True
                run.interruption = not_begun(run)
                raise Refusal(run.interruption)
            run.control = new_control(run)
            arguments = {**arguments, "control": run.control}
        if options.retry is not None:
            attempt = options.adapter.attempts(message, config, arguments)
            return retried(
                options.retry,
                partial(self._timed_attempt, run, attempt),
                partial(self._may_retry, run),
            )
        if options.limits.attempt is None and not options.timed:
            return options.adapter.call(message, config, arguments)
        attempt = partial(options.adapter.call, message, config, arguments)
        return self._timed_attempt(run, attempt)

    def may_drain(self, run: Run) -> bool:
        """Whether ``run`` can stop, and go on later, or can be sent again.

        A run that a node waits for cannot: its graph would fail.
        """
        parent = run.parent  # read once: a submitter may take its run back
        return (
            run.options.drains and run.message.status == "ok" and (parent is None or parent.done())
        )

    async def _with_rollback(self, run: Run) -> Any:
        options, thread_id = run.options, run.message.thread_id
        assert thread_id is not None
        checkpoint_id = configurable_of(options.graph, options.config or {}).get("checkpoint_id")
        undo = await remember_thread(options.saver, thread_id, checkpoint_id)
        try:
            return await self._with_retries(run)
        finally:
            if run.rolled_back_for is not None and asyncio._get_running_loop() is not None:
                await self._roll_back(run, undo)
            del run  # the exception refers to this frame

    async def _roll_back(self, run: Run, undo: Undo) -> None:
        try:
            await self._langgraph_tasks.until_ended(run.scope)
            await self._threads_ended(run)
            if run.lease is not None:
                run.lease.check()
            await undo()
        except (Exception, asyncio.CancelledError) as error:
            successor = run.rolled_back_for  # read now: a later one may have taken its place
            assert successor is not None
            successor.obstacle = RunError(
                f"{run.label} was interrupted and could not be rolled back, so {successor.label} "
                "was not begun; send it again to continue from what has been saved"
            )
            successor.obstacle.__cause__ = error

    def _may_retry(self, run: Run) -> bool:
        task = asyncio.current_task()
        assert task is not None
        if run.control is not None and run.control.asked:
            return False
        if run.lease is not None and run.lease.lost:
            return False
        # Also if an attempt turned its cancellation into an exception of its own.
        return not (run.done() or task.cancelling() or self._registry.state != "open")

    async def _timed_attempt(self, run: Run, attempt: Callable[[], Awaitable[Any]]) -> Any:
        options = run.options
        loop = asyncio.get_running_loop()
        run.begin_attempt()
        seconds = options.limits.attempt
        if seconds is not None:
            # In a context of its own: a handle keeps its context until it is due, even if
            # cancelled.
            run.timer = loop.call_later(seconds, self._expire, run, "attempt", context=Context())
        try:
            return await attempt()
        except asyncio.CancelledError:
            only_expired = run.expired and not run.cancelled() and run.interruption is None
            if not only_expired or options.retry is None:
                raise
            asyncio.current_task(loop).uncancel()  # type: ignore[union-attr]
            await self._langgraph_tasks.until_ended(run.scope)
            await self._threads_ended(run)
            run.timeout_error = run.unanswered("timed_out").error
            assert run.timeout_error is not None
            raise run.timeout_error from None
        finally:
            if run.timer is not None:
                run.timer.cancel()
            del run, attempt  # the exception refers to this frame

    async def _threads_ended(self, run: Run) -> None:
        # The next attempt must not overlap with a thread that the last one left running.
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits there
                loop.call_soon_threadsafe(ended.set)

        if self._threads.on_idle(run, wake):
            await ended.wait()

    # -- limits of time ----------------------------------------------------------------------------

    def limit_wait(self, run: Run) -> None:
        """Have ``run`` end if it waits too long."""
        run.timers = {}
        for limit, seconds in run.waiting_limits():
            self._set_timer(run, limit, seconds)

    def limit_run(self, run: Run) -> None:
        """Have ``run``, which begins, end if it takes too long."""
        assert run.timers is not None
        if "start" in run.timers:
            run.timers.pop("start").cancel()
        if run.options.limits.run is not None:
            self._set_timer(run, "run", run.options.limits.run)
        run.overran = self._expire

    def _set_timer(self, run: Run, limit: TimeLimit, seconds: float) -> None:
        assert run.timers is not None
        loop = asyncio.get_running_loop()
        timer = loop.call_later(seconds, self._run_out, run, limit, context=Context())
        run.timers[limit] = timer

    def _run_out(self, run: Run, limit: TimeLimit) -> None:
        """End ``run``, which has exceeded ``limit``, whether it has begun or not."""
        if run.done():
            return
        run.expired = limit
        if run.phase is not Phase.RUNNING:
            self._ends.end_waiting(run, run.unanswered("timed_out"))
        elif run.task is not None:
            run.expired_in = self._nodes.nodes_of(run)
            if not run.task.cancelling():
                run.task.cancel()
            self._ends.resolve_early(run, "timed_out")

    def _expire(self, run: Run, limit: TimeLimit) -> None:
        """End the attempt of ``run``, which has exceeded ``limit``."""
        if run.task is None:
            return
        if not run.expired:
            run.expired, run.expired_in = limit, self._nodes.nodes_of(run)
            run.task.cancel()
            if run.options.retry is None:
                self._ends.resolve_early(run, "timed_out")
            else:
                # A stuck attempt cannot be followed by another; after the same time again, give up.
                loop = asyncio.get_running_loop()
                seconds = getattr(run.options.limits, limit)
                run.timer = loop.call_later(seconds, self._give_up, run, context=Context())

    def _give_up(self, run: Run) -> None:
        self._ends.resolve_early(run, "timed_out")
        if run.task is not None:
            run.task.cancel()


async def _prune(run: Run, result: StreamMessage) -> None:
    """Delete what is not to be kept of the thread of ``run``, which was answered. On the loop."""
    retention, thread_id = run.options.retention, run.message.thread_id
    if retention is None or thread_id is None or result.status != "ok" or run.done():
        return
    run.resolve(result)  # only the thread waits for what follows
    try:
        if run.lease is not None:
            run.lease.check()
        await prune_thread(retention.saver, thread_id, retention.keep)
    except (Exception, asyncio.CancelledError) as error:  # the loop is ending
        _log.warning(
            "the checkpoints of thread %r could not be deleted down to %d; the next answered run "
            "tries again: %r",
            thread_id,
            retention.keep,
            error,
        )


def _error_of_lane(run: Run) -> BaseException | None:
    """Why a run that has swallowed its cancellation, or was too late, has no result."""
    if run.lane_lost is None and run.lease is not None:
        try:
            run.lease.check()
        except LaneLostError as error:
            return error
    return run.lane_lost


def _with_node_callbacks(run: Run, config: Config | None) -> Config:
    """Add to ``config`` what tells hooks of the nodes of ``run``. On the loop."""
    from rxlanggraph.bridge.callbacks import (  # noqa: PLC0415 - imports LangChain
        NodeCallbacks,
        RunNodes,
        with_callbacks,
    )

    return with_callbacks(config, [NodeCallbacks(RunNodes(run))])


def enter_scope(run: Run) -> None:
    """Make the code of this context, and what it starts, part of ``run``. On the loop."""
    scope = RunScope()
    scope.inbox, scope.run = run.inbox, run
    run.scope = scope
    run_scope.set(scope)
