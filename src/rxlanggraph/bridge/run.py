"""Run: one message on its way through one graph, and the future that its submitter holds.

What breaks with a plain future: cancelling it does not reach the coroutine, and a wait for it on
the loop that it needs, or in a run that it has to wait for, never ends.
"""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from rxlanggraph.bridge.deadlocks import Waiter, begin_wait, end_wait, waiting
from rxlanggraph.bridge.hook_calls import Observed
from rxlanggraph.bridge.run_options import ConcurrencyGroup, RunOptions
from rxlanggraph.bridge.task_waits import RunWait
from rxlanggraph.bridge.time_limits import TimeLimit, overrun
from rxlanggraph.concurrency.clock import Clock, Gate
from rxlanggraph.concurrency.forking import not_portable
from rxlanggraph.concurrency.future import SharedLockFuture, ToNotify
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.concurrency.user_code import raise_on_loop
from rxlanggraph.errors import (
    BacklogFullError,
    BlockingCallError,
    RunCancelledError,
    RunDrainedError,
    RunDroppedError,
    RunInterruptedError,
    RunTimeoutError,
    WrongProcessError,
)
from rxlanggraph.messages import Status, StreamMessage, answer_to, failure_of
from rxlanggraph.registry import Outcome

if TYPE_CHECKING:
    from rxlanggraph.bridge.graphs.drain_control import DrainControl

__all__ = [
    "ChunkSink",
    "Phase",
    "Run",
    "RunScope",
    "ThreadHold",
    "current_run",
    "run_scope",
]


_COUNTS_AS: dict[Status, Outcome] = {
    "ok": "succeeded",
    "interrupted": "succeeded",
    "error": "failed",
    "timed_out": "failed",
    "rejected": "failed",
    "cancelled": "cancelled",
}


class Phase(enum.Enum):
    """The stage of a run. Written on the loop's thread alone; other threads may only read it."""

    NEW = enum.auto()
    WAITING = enum.auto()
    RUNNING = enum.auto()
    ENDED = enum.auto()


class ChunkSink(Protocol):
    """Where the chunks of a run that is executed as a stream go."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which they are read, if it is known. Any thread."""

    def put(self, chunk: StreamMessage) -> Awaitable[None] | None:
        """Take ``chunk``. On the loop, in the run's task.

        Returns:
            None if there is room for the next one; otherwise what the run awaits before it takes
            that.
        """


class ThreadHold(Protocol):
    """The lease of a thread, for which a run waits, or which it has. See `lanes`."""

    @property
    def lost(self) -> bool:
        """Whether another process may have the thread by now. Any thread; never blocks."""

    @property
    def remaining(self) -> float:
        """Seconds until it is lost, unless it is renewed; 0 if it is. Any thread; never blocks."""

    def check(self) -> None:
        """Raise LaneLostError if the lease is `lost`. Any thread; never blocks."""

    def holds_back(self, callback: Callable[[], object]) -> bool:
        """Whether a run that has ended has to wait until it was given back. On the loop."""


class _Inbox(Protocol):
    loop: asyncio.AbstractEventLoop | None

    lock: threading.RLock

    elsewhere: WrongProcessError | None

    max_concurrency: int

    clock: Clock

    def post(self, run: Run) -> bool: ...


class _Away(Protocol):
    loop: asyncio.AbstractEventLoop | None

    thread_id: int | None


class Run(SharedLockFuture[StreamMessage]):
    """A ``concurrent.futures.Future`` whose cancellation reaches the coroutine behind it.

    `cancel` resolves the future at once and asks the coroutine to stop; the run stays in the
    registry until it has really ended. May be used from any thread.

    Where the stock future would wait forever, ``result`` and ``exception`` raise instead:
    BlockingCallError on the loop that the run itself needs; DeadlockError in a run that this one
    can only begin, or end, after.
    """

    # These are in the class, so that other runs do without.
    # Where its chunks go, if it streams. Written once, before the run is handed over.
    sink: ChunkSink | None = None
    # Why it had to end: for another message of its thread, or because its bridge drains. Written
    # once, on the loop's thread.
    interruption: RunInterruptedError | RunDrainedError | None = None
    # Of a run whose graph can stop between supersteps. Written at its start, on the loop's thread.
    control: DrainControl | None = None
    # How many attempts with a limit, or a retry, have begun. Written on the loop's thread.
    attempts = 0
    # Whether an earlier run has its lane. Written on the loop's thread; read by any.
    behind = False
    # Where its graph is called at the moment, if that is another loop than that of its bridge.
    # Written on that loop; read by any thread. See `graph_loops`.
    away: _Away | None = None
    # The nodes at work in another process, if hooks listen to nodes, by numbers of their own.
    # Written on the loop's thread, by single calls of a dict; read by any thread in one call.
    nodes_elsewhere: dict[int, str] | None = None
    # Whether its graph has stopped at a breakpoint. Confined to the loop.
    at_breakpoint = False
    # Whether a result of the same bridge led to it. Written before its hand-over.
    downstream = False
    # Of a run that is not handed over yet: returns what has to end, or go on, before. Any thread.
    withheld_by: Callable[[Run], Iterable[Waiter]] | None = None
    # Whether a run made in its context was cancelled. Any thread; never reset.
    child_cancelled = False
    # The limit that it has exceeded. Until the hand-over its submitter's, which may have waited too
    # long for room; then confined to the loop.
    expired: TimeLimit | None = None
    # Confined to the loop: the nodes in which it was then.
    expired_in: str | None = None
    # Confined to the loop: the timer of its attempt; and the error with which it has timed out, to
    # tell that from one of another run.
    timer: asyncio.TimerHandle | None = None
    timeout_error: BaseException | None = None
    # Whether it ended because its loop did, or was paused, or because its bridge drains.
    cut_off = False
    # Whether it ever used a worker thread.
    threaded = False
    # Of an answer that names no question: whether another run has used its thread since it was
    # given. Written under the lock, before that run's result can be seen; read at its start.
    overtaken = False
    # Of a run with other limits than that of an attempt: its timers, by limit. Confined to the
    # loop; after the end of that, to the thread that ends the run.
    timers: dict[TimeLimit, asyncio.TimerHandle] | None = None
    # Ends an attempt that exceeds a limit for its chunks. Written at its start.
    overran: Callable[[Run, TimeLimit], None] | None = None
    # Why it was dropped after it had got room. Written once, under the lock of the bridge.
    rejection: RunDroppedError | None = None
    # Confined to the loop: the run for which this one is rolled back; and why this one must not
    # begin, as the run before it could not be rolled back, or the lease of its thread was lost.
    rolled_back_for: Run | None = None
    obstacle: BaseException | None = None
    # With lanes: the lease of its thread, from the request for it on; and the error of a lease that
    # was lost in the middle of the run. Written on the loop's thread, and read by the run's worker
    # threads; the lease is removed under the lock, together with the run of its scope.
    lease: ThreadHold | None = None
    lane_lost: BaseException | None = None

    def __init__(
        self,
        message: StreamMessage,
        options: RunOptions,
        context: Context,
        inbox: _Inbox,
        owner: object,
        *,
        callbacks: Sequence[Callable[[Any], object]] | None = None,
    ) -> None:
        super().__init__(inbox.lock, callbacks)
        # Written only here, before the run is handed over:
        self.message = message
        self.options = options
        self.context = context
        self.inbox = inbox  # that of its bridge
        # Runs with the same lane take turns. Mostly the thread_id.
        self.lane = options.lane if message.thread_id is None else message.thread_id
        # The unfinished run in whose context this one was made. Removed when this one has ended, by
        # the thread that takes it out of the registry: others read it once.
        parent = current_run()
        self.parent: Run | None = None if parent is None or parent.done() else parent
        # A reference to this future keeps its bridge from being collected while the run is active.
        self.owner: object = owner
        # Of a run that hooks listen to, until they were told of its end. Written by its submitter,
        # and removed under the lock. Not in the class: most runs have it, or none, and CPython
        # gives each that has a field which the first ones had not a dictionary of its own.
        self.observed: Observed | None = None
        # Confined to the loop's thread, from its hand-over on:
        self.phase = Phase.NEW
        # From its start to its end, where it is removed as its parent is.
        self.scope: RunScope | None = None
        self.task: asyncio.Task[None] | None = None
        self.executor: Executor | None = None  # of its bridge, from its start on
        # When it began; before that, when it was made, if it has limits to wait within.
        self.since = inbox.clock.now() if options.timed else 0.0

    def cancel(self) -> bool:
        """Cancel the run, started or not.

        Any thread; never blocks. The future is resolved at once; the coroutine is only asked to
        stop, and its own cleanup continues: `RxPyLangGraphBridge.cleanup_tasks` waits for that.

        Returns:
            False if the run has already ended.
        """
        try:
            cancelled, interrupt = self._cancel()
        finally:  # also if a signal handler raises meanwhile
            if self.cancelled():
                self.inbox.post(self)
        if interrupt is not None:
            raise interrupt
        return cancelled

    def _mark_cancelled(self) -> bool:
        parent = self.parent  # read once: it is removed when this run has ended, in any thread
        if parent is not None and not self.done():
            parent.child_cancelled = True  # before any waiter can see the cancellation
        return super()._mark_cancelled()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, or copied."""
        raise not_portable(self.label, "send its result, which can be")

    def __await__(self) -> Generator[Any, None, StreamMessage]:
        """Await the result, on any asyncio loop: ``result = await run``.

        As with ``asyncio.wrap_future``, cancelling the awaiting task cancels the run;
        ``asyncio.shield`` prevents that. A run that was cancelled raises ``CancelledError``.
        """
        return asyncio.wrap_future(self, loop=asyncio.get_running_loop()).__await__()

    def running(self) -> bool:
        """Whether its coroutine has started and not ended yet. Any thread; never blocks."""
        return self.phase is Phase.RUNNING

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` with this future once it is done; at once if it is done already.

        Any thread. ``fn`` is called in the thread that resolves or cancels the future; what it
        raises is logged.

        Raises:
            DeadlockError: ``fn`` is the one of ``asyncio.wrap_future``, in a run that would wait
                forever: see `Run`.
        """
        run = current_run()
        # asyncio waits for foreign futures in this way alone, `__await__` included.
        if run is not None and not self.done() and _is_of_asyncio(fn):
            wait = RunWait(run, self, fn)
            begin_wait(run, wait)
            super().add_done_callback(lambda _: end_wait(run, wait))
        super().add_done_callback(fn)

    def _wait(self, timeout: float | None) -> None:
        if self.inbox.elsewhere is not None and not self.done():
            self.abandon(self.inbox.elsewhere)  # in flight when the parent forked
        run, running = current_run(), asyncio._get_running_loop()
        now = self.done() or (timeout is not None and timeout <= 0)
        observed = self.observed
        if observed is not None and observed.announced_by == threading.get_ident() and not now:
            raise BlockingCallError(
                f"waiting for {self.label} in on_queued would last forever, as the run is not "
                "handed over before the hook returns; use on_ended"
            )
        if now or (run is None and running is None):
            super()._wait(timeout)
        elif running is not None and running is self.inbox.loop:
            raise BlockingCallError(
                f"waiting for {self.label} here would block the event loop that it needs; "
                "use 'await future' there, or add_done_callback"
            )
        else:
            with lock_released(self._lock), waiting(run, self):
                super()._wait(timeout)

    @property
    def clock(self) -> Clock:
        """The clock of its bridge. Any thread; never blocks."""
        return self.inbox.clock

    def _new_gate(self) -> Gate:
        return self.inbox.clock.gate()

    def get_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that the run executes on. Any thread; never blocks."""
        return self.inbox.loop

    def executes_on(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Whether the code of its graph executes on ``loop``, if it does at all. On that loop."""
        away = self.away
        return loop is not None and (loop is self.inbox.loop or (away and away.loop) is loop)

    # -- for the deadlock detector -------------------------------------------------------------

    @property
    def label(self) -> str:
        """What the run is called in messages for people. Any thread; never blocks."""
        return f"the run of message {self.message.id} on {self.options.adapter.name!r}"

    @property
    def lane_label(self) -> str:
        """What its lane is called in messages for people. Any thread; never blocks."""
        thread_id = self.message.thread_id
        return "its subscription" if thread_id is None else f"the thread {thread_id!r}"

    @property
    def lock(self) -> threading.RLock:
        """The lock of its bridge. Any thread; never blocks."""
        return self._lock

    @property
    def group(self) -> ConcurrencyGroup | None:
        """The subscription whose limit the run shares, if any. Any thread; never blocks."""
        return self.options.group

    @property
    def thread_id(self) -> str | None:
        """The thread_id that the run works on, if any. Any thread; never blocks."""
        return self.message.thread_id

    def ahead(self) -> Iterable[Waiter]:
        """What has to end, or go on, before this one is handed over. Any thread; never blocks."""
        withheld_by = self.withheld_by
        return () if withheld_by is None else withheld_by(self)

    def room(self) -> None:
        """See `deadlocks.Waiter`. Any thread; never blocks."""
        return

    # -- for the rest of the bridge --------------------------------------------------------------

    def unanswered(
        self, status: Status, error: BaseException | None = None, duration: float | None = None
    ) -> StreamMessage:
        """Make the result that says why this run has no answer; its error too, if there is none."""
        if error is None and status == "timed_out":
            error = self._timeout_error()
        elif error is None:
            error = RunCancelledError(f"{self.label} was cancelled")
        return answer_to(self.message, status, None, error, duration)

    def begin_attempt(self) -> None:
        """Count an attempt, whose time begins anew. On the loop."""
        self.attempts += 1
        self.expired = self.expired_in = None

    def _timeout_error(self) -> RunTimeoutError:
        limit, options = self.expired, self.options
        assert limit is not None
        seconds = options.deadline if limit == "deadline" else getattr(options.limits, limit)
        waited = limit == "deadline" and self.phase in {Phase.NEW, Phase.WAITING}
        suffix = "; it has not begun" if waited else ""
        return RunTimeoutError(
            f"{self.label} {overrun(limit, seconds)}{suffix}", limit=limit, node=self.expired_in
        )

    def waiting_limits(self) -> list[tuple[TimeLimit, float]]:
        """What limits its wait for its start, each with the seconds that are left. Any thread."""
        limits: list[tuple[TimeLimit, float | None]] = [
            ("start", self.options.limits.start),
            ("deadline", self.options.deadline),
        ]
        waited = self.inbox.clock.now() - self.since
        return [(limit, seconds - waited) for limit, seconds in limits if seconds is not None]

    def nearest_limit(self) -> tuple[TimeLimit | None, float | None]:
        """The first of `waiting_limits` to be exceeded; None, and None, if there is none."""
        return min(self.waiting_limits(), key=lambda each: each[1], default=(None, None))

    def too_late(self) -> StreamMessage | None:
        """Make its result if the time for its start is over; what executes nothing is never late.

        On the loop, before its start.
        """
        limit, seconds = self.nearest_limit()
        if seconds is None or seconds > 0 or self.done() or self.message.status != "ok":
            return None
        self.expired = limit
        return self.unanswered("timed_out")

    def resolve(self, result: StreamMessage, *, call_back: bool = True) -> None:
        """Resolve the future, once: later calls change nothing. Calls its callbacks.

        Args:
            result: The result to resolve it with.
            call_back: False leaves the callbacks to the next call.
        """
        with self._lock:
            to_notify = self.settle_with(result, call_back=call_back)
        interrupt = self.tell(to_notify)
        if interrupt is not None:
            raise_on_loop(interrupt)

    def settle_with(self, result: StreamMessage, *, call_back: bool = True) -> ToNotify | None:
        """Do what `resolve` does, but for what needs the lock not to be held: see `settle`."""
        failure = None
        if result.status != "ok" and self.options.errors != "emit":
            failure = failure_of(result)
        if failure is not None and result.status == "cancelled":
            self._mark_cancelled()
        return self.settle(result, failure, call_back=call_back)

    def counts_as(self) -> Outcome:
        """How it is counted: as its future, which is resolved, says. Under the lock."""
        result = self._result
        if result is None:
            return "cancelled" if self.cancelled() else "failed"
        if result.error is not None:
            if result.error is self.interruption:
                return "cancelled"
            turned_away = result.status == "rejected" and self.message.status == "ok"
            if turned_away and isinstance(result.error, RunDroppedError | BacklogFullError):
                return "dropped"
        return _COUNTS_AS[result.status]


def _is_of_asyncio(callback: object) -> bool:
    return getattr(callback, "__module__", None) == "asyncio.futures"


class RunScope:
    """What a context knows of the run that its code belongs to.

    A copy of a context may live for any length of time, so the scope drops its reference to the run
    when the run has ended.
    """

    __slots__ = ("inbox", "run")

    # Both are written when the run starts. One reference each, replaced whole.
    inbox: _Inbox
    run: Run | None  # until the run has left the registry: then None, by the removing thread

    def is_over(self, inbox: _Inbox) -> bool:
        """Whether the run belongs to the bridge of ``inbox``, and is done. Any thread."""
        run = self.run
        return self.inbox is inbox and (run is None or run.done())


run_scope: ContextVar[RunScope | None] = ContextVar("rxlanggraph_run_scope", default=None)
"""The scope of the run that this code belongs to: by it, worker threads belong to the run too."""


def current_run() -> Run | None:
    """The run in whose context this code executes, unless it has left the registry. Any thread."""
    scope = run_scope.get()
    return None if scope is None else scope.run
