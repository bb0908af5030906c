"""TaskRegistry: which tasks are in flight.

What breaks without it: a plain set that threads fill and done-callbacks empty raises "Set changed
size during iteration", and ``list(tasks)`` followed by an await misses whatever arrives meanwhile.

Invariants kept here (numbers as in docs/design.md):

2. A task is in the table from before ``add`` returns until it has ended. It leaves exactly once:
   only the call that pops its entry counts it.
3. Admission and sealing are one critical section: what ``close`` returns is all that was admitted.
4. ``_lock`` is never held while a callback, ``cancel``, or any other user code runs.
5. ``_lock`` is an RLock: a signal handler or a finalizer may enter while its own thread holds it.
   Each section is therefore written so that a second one, run as a whole between any two of its
   lines, leaves both correct; where the order of two lines matters for that, a comment says so.
   Assumed of the interpreter: none runs *inside* ``self._n += 1`` on attributes or a single call
   into a built-in dict keyed by objects that hash by identity. CPython enters handlers and
   finalizers only at calls, loops and allocations.
6. Nothing relies on the GIL: every shared field is read and written under ``_lock``.

Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from rxlanggraph.concurrency.clock import SYSTEM_CLOCK, Clock
from rxlanggraph.concurrency.forking import fork_safe_rlock, register_after_fork
from rxlanggraph.concurrency.threads import lock_released
from rxlanggraph.concurrency.user_code import contain
from rxlanggraph.errors import (
    BlockingCallError,
    DeadlockError,
    InvalidTypeError,
    RegistryClosedError,
    WrongThreadError,
)
from rxlanggraph.validation import check_wait_limit

__all__ = [
    "Entry",
    "Outcome",
    "RegistryStatistics",
    "TaskInfo",
    "TaskRegistry",
    "TaskState",
    "Trackable",
    "info_of",
]

_log = logging.getLogger("rxlanggraph")
_T = TypeVar("_T")


Trackable: TypeAlias = "Future[Any] | asyncio.Future[Any]"
Outcome = Literal["succeeded", "failed", "dropped", "cancelled"]
TaskState = Literal["pending", "queued", "waiting_for_thread", "running", "cancelling", "finished"]


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task in flight, at the time of the snapshot.

    Attributes:
        id: Counts admissions to this registry from 1; never reused.
        name: The ``name`` passed to ``add``.
        thread_id: The ``thread_id`` passed to ``add``: the conversation that the task works on.
        age: Seconds since it was admitted.
        state: ``pending`` (not started as far as is known), ``running``, ``cancelling`` (asked to
            stop, not ended yet) or ``finished`` (about to leave). Instead of ``pending``, a run of
            a bridge is ``waiting_for_thread``, for an earlier run on its thread, or otherwise
            ``queued``.
        message_id: The id of the message of a run. This and the following are None for other tasks.
        waiting: Seconds that the run has waited to start, so far or until it did.
        attempt: Which attempt at its message is active, from 1; 0 before its start.
        node: The active node of its graph, as ``outer|inner`` in a subgraph; several nodes are
            separated by commas. None between two nodes, and for targets without nodes; on
            Python 3.13 without the GIL, also in all threads but that of the loop.
    """

    id: int
    name: str | None
    thread_id: str | None
    age: float
    state: TaskState
    message_id: str | None = None
    waiting: float | None = None
    attempt: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class RegistryStatistics:
    """Counters of one registry, read in one critical section.

    Attributes:
        submitted: Tasks ever admitted, or ended instead: dropped, out of time while they waited for
            room, or with a message that cannot be used. Always the sum of the next four, unless
            unfinished tasks were discarded by hand: those are counted only here.
        succeeded: Tasks that left with a result.
        failed: Tasks that left with an exception, and those that were dropped.
        cancelled: Tasks that left cancelled.
        in_flight: Tasks admitted that have not left.
        peak_in_flight: The largest ``in_flight`` ever.
        dropped: How many of those that failed were rejected before their start, because a bridge
            had no room for them; see its ``overflow``.
    """

    submitted: int
    succeeded: int
    failed: int
    cancelled: int
    in_flight: int
    peak_in_flight: int
    dropped: int = 0


# What is known of a task: (id, name, thread_id, admitted at). A plain tuple: making a named one
# takes five times as long, a tenth of a future's whole life in here. Without the task itself the
# collector has nothing to follow in it, and leaves it out.
Entry: TypeAlias = "tuple[int, str | None, str | None, float]"


# What resolves a task that leaves, under the lock; it returns how that is counted, and what is left
# to do without the lock.
Settle: TypeAlias = "Callable[[Any, _T], tuple[Outcome, Callable[[Any, _T], object] | None]]"


class _Sweeping(Protocol):
    def note(self, task: Trackable, entry: Entry, outcome: Outcome | None) -> None: ...


class TaskRegistry:
    """Every task in flight, under one lock: none lost, none leaked, always accounted for.

    Safe from any thread, from signal handlers and from finalizers. Nothing here blocks but
    `wait_idle`. Open, then closing (`close` was called, tasks are in flight), then closed (none).
    """

    def __init__(
        self,
        *,
        lock: threading.RLock | None = None,
        inside: Callable[[], Trackable | None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make an empty, open registry.

        Args:
            lock: Shared with other objects, one of which calls ``_after_fork``; None makes one.
            inside: Returns the task that the calling code is part of, so that it cannot wait for
                itself.
            clock: By which ages are measured, and timeouts of blocking waits.
        """
        if lock is None:
            lock = fork_safe_rlock()
            register_after_fork(self)
        # An RLock by invariant 5. It guards every field below; it is a leaf: no other lock is taken
        # while it is held. Held only for dict look-ups and counters, and for one copy.
        self._lock = lock
        self._entries: dict[Trackable, Entry] = {}
        # Tasks that were popped but whose future is being resolved: gone for len(), not for idle.
        self._leaving: dict[Trackable, Entry] = {}
        self._closed = False
        # Notified of each task that leaves; an ordered set: see `RunRegistry.begin_sweep`.
        self._sweeps: dict[_Sweeping, None] = {}
        # How many left, by outcome; None for those removed unfinished.
        self._ended: dict[Outcome | None, int] = {
            "succeeded": 0,
            "failed": 0,
            "dropped": 0,
            "cancelled": 0,
            None: 0,
        }
        self._peak = 0
        self._idle_waiters: list[Callable[[], object]] = []
        self._last_id = 0
        self._on_done = self._left
        self._inside = inside
        self._clock = clock
        self._now = clock.now

    # -- tasks come and go ---------------------------------------------------------------------

    def add(
        self, task: Trackable, *, name: str | None = None, thread_id: str | None = None
    ) -> None:
        """Track ``task`` until it is done. Adding it again while it is tracked has no effect.

        Any thread for a ``concurrent.futures.Future``; an ``asyncio`` task or future only on its
        own loop, or before that loop runs. Never blocks. During the sweep of a cleanup, the task
        is admitted and cancelled at once.

        Args:
            task: The future or task.
            name: Shown in snapshots and reports.
            thread_id: The conversation that it works on.

        Raises:
            RegistryClosedError: After `close`. The task is neither tracked nor touched.
            InvalidTypeError: ``task`` is not a future.
            WrongThreadError: ``task`` is an asyncio task of a loop that runs in another thread.
        """
        if not isinstance(task, Future):
            _check_asyncio(task)
        now, is_new = self._now(), False
        try:
            with self._lock:
                if task in self._entries:
                    return
                is_new = True
                welcome = self._insert(task, name, thread_id, now)
            task.add_done_callback(self._on_done)
        except BaseException:  # from a signal handler, or from a custom future
            if is_new:
                self._leave(task, None)
            raise
        if not welcome:
            task.cancel()

    def _insert(self, task: Trackable, name: str | None, thread_id: str | None, now: float) -> bool:
        """Admit ``task`` without watching it: its runner reports with `_leave` when it has ended.

        By a caller that holds the lock; never blocks.

        Args:
            task: The future or task.
            name: As for `add`.
            thread_id: As for `add`.
            now: The time.

        Returns:
            False during the sweep of a cleanup: the task must be cancelled at once.

        Raises:
            RegistryClosedError: After `close`.
        """
        entries = self._entries
        if task in entries:
            return True
        # Kept in a local: a handler that adds a task between two lines takes the next id.
        self._last_id = number = self._last_id + 1
        entries[task] = (number, name, thread_id, now)
        # Checked after the insertion: a handler that closes between two lines of this section
        # is noticed here (invariants 3 and 5).
        if self._closed:
            entries.pop(task, None)  # unless a handler closed, and cleaned up, in between
            raise RegistryClosedError(
                "this TaskRegistry is closed and takes no new tasks; make a new one, "
                "or add before close()"
            )
        if len(entries) > self._peak:
            self._peak = len(entries)
        return not self._sweeps

    def discard(self, task: Trackable) -> None:
        """Stop tracking ``task``, if it is tracked. A done task is counted by its outcome.

        Any thread; never blocks; neither cancels nor awaits the task. Anything else that is not
        tracked has no effect.
        """
        try:
            if task not in self:
                return
        except TypeError:  # it has no hash
            return
        done = task.done()
        if task in self:  # by the lock, what a run was resolved with is visible here, too
            self._leave(task, _outcome_of(task) if done else None)

    def _leave(
        self,
        task: Trackable,
        outcome: Outcome | None,
        resolve: Callable[[Any, _T], object] | None = None,
        result: _T | None = None,
        settle: Settle[_T] | None = None,
    ) -> bool:
        """Remove ``task``, which has ended, and count it; then call ``resolve(task, result)``.

        The registry is idle only after ``resolve`` returned, so that after a wait for idle the
        futures are done. Any thread; blocks as long as ``resolve`` does, without the lock.

        Args:
            task: The future or task; one that is not tracked has no effect.
            outcome: How it is counted; None for a task that is removed unfinished.
            resolve: What is left to do before the registry may count as idle.
            result: The second argument of ``resolve``.
            settle: Called first, under the lock, with the same: resolves ``task``, so that no other
                thread can do that in between, and returns what then takes the place of ``outcome``
                and ``resolve``.

        Returns:
            True for the one call that removed it, False for every later one.
        """
        with self._lock:
            entry = self._entries.pop(task, None)
            if entry is None:
                return False
            if settle is not None:
                outcome, resolve = settle(task, result)  # type: ignore[arg-type] # as below
            self._ended[outcome] += 1
            if self._sweeps:
                for sweep in tuple(self._sweeps):
                    sweep.note(task, entry, outcome)
            if resolve is None and (self._entries or not self._idle_waiters):
                return True
            self._leaving[task] = entry
        try:
            if resolve is not None:
                resolve(task, result)  # type: ignore[arg-type] # None only where there is no resolve
        finally:
            self._gone(task)
        return True

    def _left(self, task: Trackable) -> None:
        # Invariant 4: the future calls this without its lock, and ours is held for the table only.
        self._leave(task, _outcome_of(task))

    def _gone(self, task: Trackable) -> None:
        with self._lock:
            self._leaving.pop(task, None)  # not there if a future's callback forks
            if self._entries or self._leaving:
                return
            waiters, self._idle_waiters = self._idle_waiters, []
        for wake in waiters:
            wake()

    def _after_fork(self) -> None:
        """Forget all tasks but not the counters: the tasks are the parent's. See `forking`."""
        self._entries, self._leaving = {}, {}
        self._idle_waiters = []
        self._sweeps = {}

    # -- reading -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many tasks are in flight. Any thread; never blocks."""
        with self._lock:
            return len(self._entries)

    def __contains__(self, task: object) -> bool:
        """Whether ``task`` is in flight. Any thread; never blocks."""
        with self._lock:
            return task in self._entries

    def snapshot(self) -> tuple[TaskInfo, ...]:
        """Every task in flight, in order of admission.

        Any thread; never blocks. The table is copied under the lock, and the infos are made from
        the copy, outside it (4). ``copy`` makes every allocation that the collector counts before
        it reads the first entry, so that no finalizer can change the table half-way (5).
        """
        with self._lock:
            entries = self._entries.copy()
        return self._infos(entries)

    def _infos(self, entries: dict[Trackable, Entry]) -> tuple[TaskInfo, ...]:
        """Make the infos of these entries, in their order. Any thread; without the lock."""
        now = self._now()
        return tuple(info_of(task, entry, now) for task, entry in entries.items())

    def _tasks(self) -> list[Trackable]:
        """The futures and tasks in flight themselves. Any thread; never blocks."""
        with self._lock:
            return list(self._entries)

    def statistics(self) -> RegistryStatistics:
        """The counters, all read at one moment. Any thread; never blocks."""
        with self._lock:
            in_flight = len(self._entries)
            ended = self._ended
            return RegistryStatistics(
                submitted=sum(ended.values()) + in_flight,
                succeeded=ended["succeeded"],
                failed=ended["failed"] + ended["dropped"],
                cancelled=ended["cancelled"],
                in_flight=in_flight,
                peak_in_flight=max(self._peak, in_flight),  # a handler may read in between
                dropped=ended["dropped"],
            )

    # -- ending --------------------------------------------------------------------------------

    def close(self) -> tuple[TaskInfo, ...]:
        """End admission, and return what is in flight at that very moment.

        Nothing slips in between the two (invariant 3). Nothing is cancelled or awaited: see
        `cancel_all` and `wait_idle`. Any thread; never blocks. Calling it again only takes a new
        snapshot.
        """
        with self._lock:
            # The flag before the copy: an admission by a handler in between is refused.
            self._closed = True
            entries = self._entries.copy()
        return self._infos(entries)

    def cancel_all(self) -> int:
        """Ask every task in flight to cancel. Cancelled is not ended: wait for them afterwards.

        Any thread; never blocks. Tasks of another loop are cancelled through that loop.

        Returns:
            How many were asked.

        Raises:
            KeyboardInterrupt, SystemExit: In the main thread, from a done-callback or a signal
                handler, after all have been asked. Any other exception of theirs is logged.
        """
        return _cancel_each(self._tasks())

    def cancel(self, predicate: Callable[[TaskInfo], object]) -> int:
        """Ask each task in flight to cancel whose info ``predicate`` accepts.

        Any thread; blocks as long as ``predicate`` does, which is called with one info after
        another, without the lock, before any task is cancelled. As for `cancel_all`, cancelled is
        not ended.

        Args:
            predicate: Returns a true value for each task to cancel, as in
                ``lambda info: info.age > 60``.

        Returns:
            How many were asked.

        Raises:
            InvalidTypeError: ``predicate`` is not a function, or an async one; nothing was
                cancelled.
            BaseException: Whatever ``predicate`` raises; nothing was cancelled.
            KeyboardInterrupt, SystemExit: As for `cancel_all`.
        """
        if not callable(predicate):
            raise InvalidTypeError(
                f"cancel() takes a function of a TaskInfo, not {predicate!r}; to cancel one task, "
                "use its own cancel(), and for all of them cancel_all()"
            )
        with self._lock:
            entries = self._entries.copy()
        infos = self._infos(entries)
        return _cancel_each(
            [task for task, info in zip(entries, infos, strict=True) if _accepts(predicate, info)]
        )

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is in flight.

        Any thread but that of a loop on which a tracked task runs. Blocks.

        Args:
            timeout: Seconds; None for no limit, 0 only checks.

        Returns:
            True when nothing is in flight, False on timeout.

        Raises:
            InvalidArgumentError: ``timeout`` is not a number.
            BlockingCallError: Called on a loop that a tracked task needs; nothing was waited for.
            DeadlockError: Called in a run that is tracked; nothing was waited for.
        """
        timeout = check_wait_limit("timeout", timeout)
        gate = self._clock.gate()
        if not self._wait_begins(gate.release):
            return True
        try:
            if timeout == 0:
                return False
            _check_may_wait(self._tasks)
            self._check_outside("wait_idle()")
            with lock_released(self._lock):
                return gate.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            self._wait_ends(gate.release)

    def _check_outside(self, method: str) -> None:
        """Check that ``method``, which waits for all tasks, is not called in one of them.

        Any thread; never blocks.

        Raises:
            DeadlockError: It is.
        """
        task = self._inside()
        if task is not None and task in self:
            raise DeadlockError(
                f"{method} was called inside a task that it would wait for; call it from outside "
                "that task"
            )

    async def wait_idle_async(self, timeout: float | None = None) -> bool:
        """Wait until nothing is in flight, without blocking the running loop.

        Any loop. Cancelling the wait leaves the tasks as they are.

        Args:
            timeout: Seconds; None for no limit.

        Returns:
            True when nothing is in flight, False on timeout.

        Raises:
            InvalidArgumentError: ``timeout`` is not a number.
            DeadlockError: Awaited in a run that is tracked.
        """
        timeout = check_wait_limit("timeout", timeout)
        self._check_outside("wait_idle_async()")
        return await self._until_idle(timeout)

    async def _until_idle(self, timeout: float | None) -> bool:
        """Do what `wait_idle_async` does, even in a task that the wait is to cancel."""
        loop = asyncio.get_running_loop()
        idle = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the waiting loop is closed
                loop.call_soon_threadsafe(idle.set)

        if not self._wait_begins(wake):
            return True
        try:
            async with asyncio.timeout(timeout):
                await idle.wait()
        except TimeoutError:
            return False
        finally:
            self._wait_ends(wake)
        return True

    def _wait_begins(self, wake: Callable[[], object]) -> bool:
        with self._lock:
            if not self._entries and not self._leaving:
                return False
            self._idle_waiters.append(wake)
            return True

    def _wait_ends(self, wake: Callable[[], object]) -> None:
        with self._lock:
            if wake in self._idle_waiters:
                self._idle_waiters.remove(wake)


def info_of(task: Trackable, entry: Entry, now: float) -> TaskInfo:
    """Make the info of ``task`` at the time ``now``. Any thread; without the registry's lock."""
    number, name, thread_id, since = entry
    return TaskInfo(number, name, thread_id, now - since, _state_of(task))


def _outcome_of(task: Trackable) -> Outcome:
    """The outcome of ``task``, which is done. Any thread; takes no lock."""
    # A done future never changes, so its fields may be read without its lock: in the thread that
    # has resolved it, or after a look that takes a lock, as done() of the standard library's does.
    # The public cancelled() and exception() take it once each: half the cost of the whole registry.
    # Both kinds of future have had these two fields, with these values, since Python 3.2.
    if task._exception is not None:
        return "failed"
    return "succeeded" if task._state == "FINISHED" else "cancelled"


def _accepts(predicate: Callable[[TaskInfo], object], info: TaskInfo) -> bool:
    accepted = predicate(info)
    if isawaitable(accepted):  # it would be true, whatever its result
        if isinstance(accepted, Coroutine):
            accepted.close()
        raise InvalidTypeError(
            f"cancel() takes a function that returns True or False, and {predicate!r} has to be "
            "awaited; nothing was cancelled"
        )
    return bool(accepted)


def _cancel_each(tasks: Sequence[Trackable]) -> int:
    """Do what `TaskRegistry.cancel_all` does, for these tasks."""
    interrupt = None
    for task in tasks:
        try:
            _cancel(task)
        except BaseException as error:
            interrupt = contain(error, _log, "cancelling %r", task) or interrupt
    if interrupt is not None:
        raise interrupt
    return len(tasks)


def _cancel(task: Trackable) -> None:
    """Ask ``task`` to cancel, through its loop if that is another one. Any thread; never blocks."""
    loop = None if isinstance(task, Future) else _loop_of(task)
    if loop is None or loop is asyncio._get_running_loop():
        task.cancel()
        return
    with contextlib.suppress(RuntimeError):  # a closed loop runs nothing that could be cancelled
        loop.call_soon_threadsafe(task.cancel)


def _check_asyncio(task: object) -> None:
    """Check that ``task``, which is not a stock future, is of asyncio and may be added here.

    Raises:
        InvalidTypeError: It is not a future.
        WrongThreadError: Its loop runs in another thread.
    """
    if not asyncio.isfuture(task):
        raise InvalidTypeError(
            f"a TaskRegistry tracks futures and tasks, not {task!r}; "
            "start the coroutine first (loop.create_task, run_coroutine_threadsafe)"
        )
    loop = task.get_loop()
    if loop.is_running() and asyncio._get_running_loop() is not loop:
        raise WrongThreadError(
            f"{task!r} belongs to a loop that runs in another thread; add it on that loop, "
            "or hand the coroutine over with run_coroutine_threadsafe and add that future"
        )


def _check_may_wait(tasks: Callable[[], Iterable[Trackable]]) -> None:
    """Check that ``wait_idle`` may block here: not on a loop that one of ``tasks()`` needs.

    Raises:
        BlockingCallError: This is such a loop.
    """
    running = asyncio._get_running_loop()
    if running is None:
        return
    for task in tasks():
        if _loop_of(task) is running:
            raise BlockingCallError(
                "wait_idle() would block the event loop that the tasks it waits for run on; "
                "use 'await registry.wait_idle_async()' there"
            )


def _loop_of(task: Trackable) -> asyncio.AbstractEventLoop | None:
    get_loop: Callable[[], asyncio.AbstractEventLoop] | None = getattr(task, "get_loop", None)
    return None if get_loop is None else get_loop()


def _state_of(task: Trackable) -> TaskState:
    if task.cancelled():
        return "cancelling"
    if task.done():
        return "finished"
    if isinstance(task, asyncio.Task):
        return "cancelling" if task.cancelling() else "running"
    return "running" if isinstance(task, Future) and task.running() else "pending"
