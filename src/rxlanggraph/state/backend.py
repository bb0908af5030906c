"""The contract of shared state: what callers see, and what a backend must do.

Callers see `Versioned`, `Task`, `QueueStats` and `DeadLetter`. A backend implements `Backend`: few
operations, each of them atomic on its server. Everything else (JSON, waiting, retrying, heartbeats,
watching, blocking calls) is built on top of it once, in the other modules of `rxlanggraph.state`.

Rules for every backend, cited by number below and in the conformance suite:

1. **Atomic.** Each method takes effect as a whole or not at all, in one step on the server,
   whatever else is called concurrently, from this process or another. A read followed by a write
   is not one step.
2. **The server's clock.** Times to live, leases and delays are measured where the data is, never
   by comparing clocks of two callers. All durations are seconds, as floats.
3. **One counter.** Versions of keys and tokens of locks and claims are drawn from one counter per
   namespace that only grows, forever: it survives deletion, expiry, release and restart. Of two
   writes of one key the later one has the larger version; of two holders of one lock the later one
   has the larger token. Gaps are fine. (So a key that is gone leaves no version to keep.)
4. **Text in, text out.** Values, items, results and errors arrive as JSON text in ASCII; they are
   stored unchanged, and the server parses none but the integer of `increment`. Names (keys, queues,
   workers, threads, ids) are 1 to 512 characters of valid UTF-8 without NUL, compared exactly:
   case, accents and trailing blanks count.
5. **Separate names.** Keys of values, keys of locks and names of queues are independent of each
   other, and so are two namespaces.
6. **Loss of the server.** A call ends: after a bounded time without an answer it raises
   `StateUnavailableError`, with ``in_doubt=False`` if the call certainly had no effect. Once the
   server is back, the backend reconnects by itself. A call that the server refuses temporarily and
   without effect (deadlock, serialization failure, busy) is repeated by the backend.
7. **Cancellation.** A call that is cancelled has taken effect as a whole or not at all (it is not
   known which), and leaves nothing behind: no task, no connection in use, no open transaction.
   `task_claim` and `tasks_claim` guarantee more: if cancelled, they have claimed nothing when they
   raise. If they are cancelled again, and the server takes five seconds longer to answer, or with
   all other tasks of the loop, or while closing the state is cancelled, or if the server stays
   away, a claimed task comes back when its lease ends. For a call that cannot be withdrawn there is
   `rxlanggraph.concurrency.tasks.run_shielded`, which gives back what the call has claimed.
8. **One loop.** Methods are called on the loop that opened the backend, by any number of tasks at
   once. After `close` none is called.
9. **Short.** However much data there is, no call delays others on the same server for longer than a
   fraction of a second. Operations on any number of tasks are therefore divided into steps, and
   reads into pages: each handles at most `MAX_PER_STEP` tasks and is atomic by itself, other calls
   proceed between two of them, and a call after a crash completes the rest. Callers name at most
   that many keys or ids in one call.
10. **What has ended is forgotten.** Nothing is kept forever of a key that is gone, of a lock whose
    lease is over, or of a queue without tasks: a later write by any caller deletes the remains. A
    fence outlives its key by `FENCE_RETENTION` seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, StaleTokenError

__all__ = [
    "COMPLETED",
    "FENCE_RETENTION",
    "MAX_PER_STEP",
    "Backend",
    "ClaimedTask",
    "DeadLetter",
    "DeadTask",
    "DoneTask",
    "HeldLock",
    "ImmediateBackend",
    "KeyInfo",
    "NewTask",
    "NotifyingBackend",
    "Page",
    "QueueStats",
    "QueuedTask",
    "SchemaVersion",
    "Step",
    "StoredTask",
    "StoredValue",
    "Task",
    "TaskState",
    "Versioned",
    "Write",
    "WriteResult",
    "as_immediate",
    "as_notifying",
    "counter_overflow",
    "not_an_integer",
    "other_version",
    "stale_token",
]

TaskState = Literal["waiting", "claimed", "completed", "dead"]
COMPLETED: tuple[TaskState, ...] = ("completed",)
# Tasks in one step (rule 9). A guess: well below a fraction of a second on every server.
MAX_PER_STEP: Final = 500
# Seconds (rule 10). A guess: longer than a writer is suspended before it continues with its token
# (a laptop over a holiday).
FENCE_RETENTION: Final = 7 * 86400.0

_T = TypeVar("_T")

# -- what callers see ------------------------------------------------------------------------------


class Versioned(NamedTuple):
    """A value, and the version to pass to ``compare_and_set``.

    Attributes:
        value: The JSON value; None if there is no such key, too.
        version: Grows with every write of the key, by one or more; 0 if there is no such key.
    """

    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class Task:
    """One item of work for ``add_tasks``, with options.

    Attributes:
        item: The JSON value to work on.
        key: Makes adding idempotent: while the queue has a task with this key, in whatever state,
            it is not added again.
        priority: Higher ones are claimed first; any 32-bit integer.
        delay: Seconds before it may be claimed.
        thread_id: Items of one thread are processed one at a time, in the order of their adding.
    """

    item: Any
    key: str | None = None
    priority: int = 0
    delay: float = 0.0
    thread_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that gets no more attempts; ``requeue`` puts it back.

    Attributes:
        id: As ``add_tasks`` returned it.
        queue: The queue that it belongs to.
        item: Its JSON value.
        key: Its key, if it has one.
        thread_id: Its thread, if it has one.
        attempts: How often it was claimed.
        worker: The worker that claimed it last; empty if none has: it was cancelled.
        error: The error of its last attempt; for an exception a mapping of ``type`` and
            ``message``, as also for a lease that expired.
    """

    id: str
    queue: str
    item: Any
    key: str | None
    thread_id: str | None
    attempts: int
    worker: str
    error: Any


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many tasks of a queue are in which state, at one moment.

    Attributes:
        waiting: Due; includes tasks behind an earlier one of their thread, and tasks whose lease
            has expired.
        delayed: Not due yet.
        claimed: In progress, under a valid lease.
        completed: Completed, and not purged yet.
        dead: Dead letters.
        expired: Dead letters whose last lease expired: no worker reported an error.
        by_worker: How many claimed tasks each worker has.
    """

    waiting: int = 0
    delayed: int = 0
    claimed: int = 0
    completed: int = 0
    dead: int = 0
    expired: int = 0
    by_worker: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task of a queue at one moment, for administration.

    Times are seconds since 1970 on the clock of the server. A time is None if that has not
    happened, or happened before the store recorded times.

    Attributes:
        id: As ``add_tasks`` returned it.
        queue: The queue that it belongs to.
        key: Its key, if it has one.
        thread_id: Its thread, if it has one.
        priority: Its priority.
        state: Its state.
        attempts: How often it was claimed.
        max_attempts: How often it may be claimed.
        worker: The worker that claimed it last; None: none has.
        due_in: Seconds: of a waiting task until it may be claimed (0: now), of a claimed one until
            its lease ends; None otherwise.
        age: Seconds in this state: since it was claimed or ended, and of a waiting task since it
            was added. Of an unknown time: since the store records times.
        added: When it was added.
        claimed: When it was last claimed.
        ended: When it was completed, or dead.
        item: Its JSON value; None unless it was read alone, by ``task``, as the next two.
        result: The result of a completed task.
        error: The error of a dead task, as for `DeadLetter`.
    """

    id: str
    queue: str
    key: str | None
    thread_id: str | None
    priority: int
    state: TaskState
    attempts: int
    max_attempts: int
    worker: str | None
    due_in: float | None
    age: float
    added: float | None
    claimed: float | None
    ended: float | None
    item: Any = None
    result: Any = None
    error: Any = None


class KeyInfo(NamedTuple):
    """A key with a value.

    Attributes:
        key: The key.
        version: The version of its value.
        expires_in: Seconds until it expires; None: never.
    """

    key: str
    version: int
    expires_in: float | None


class HeldLock(NamedTuple):
    """A lock that is held.

    Attributes:
        key: Its key.
        token: The fencing token of the holder.
        expires_in: Seconds until the lease ends, unless it is renewed.
    """

    key: str
    token: int
    expires_in: float


# -- arguments and results of a backend ------------------------------------------------------------


class StoredValue(NamedTuple):
    """A key as it is stored: JSON text (None: no such key) and version (0: no such key)."""

    text: str | None
    version: int


class Write(NamedTuple):
    """What `Backend.commit` does to one key.

    Attributes:
        text: The new JSON text; None deletes the key.
        ttl: Seconds until the key expires; None: never. Replaces an earlier one in either case.
        token: The fencing token of the writer, or None.
    """

    text: str | None
    ttl: float | None = None
    token: int | None = None


class WriteResult(NamedTuple):
    """The version of a key before and after a commit; 0 if there is no such key."""

    before: int
    after: int


class NewTask(NamedTuple):
    """A task to add. ``id`` is unique (made by the caller, so that adding can be repeated)."""

    id: str
    text: str
    key: str | None
    priority: int
    delay: float
    thread_id: str | None
    max_attempts: int


class ClaimedTask(NamedTuple):
    """A task that was claimed just now; ``attempt`` counts from 1, this one included."""

    id: str
    text: str
    key: str | None
    thread_id: str | None
    attempt: int
    token: int


class DoneTask(NamedTuple):
    """A claimed task to complete: its id, the token of its claim, and its result as JSON text."""

    id: str
    token: int
    text: str


class DeadTask(NamedTuple):
    """A dead task; ``error`` is None if its last claim expired."""

    id: str
    text: str
    key: str | None
    thread_id: str | None
    attempts: int
    worker: str
    error: str | None


class StoredTask(NamedTuple):
    """A task, as if its queue had just been swept; the fields are those of `QueuedTask`.

    ``text``, ``result`` and ``error`` are JSON text; None on a page of many tasks, as they may be
    long.
    """

    id: str
    key: str | None
    thread_id: str | None
    priority: int
    state: TaskState
    attempts: int
    max_attempts: int
    worker: str | None
    due_in: float | None
    age: float
    added: float | None
    claimed: float | None
    ended: float | None
    text: str | None = None
    result: str | None = None
    error: str | None = None


class Page(NamedTuple, Generic[_T]):
    """One page of a result (rule 9).

    Attributes:
        items: The items of the page; may be empty although more pages follow.
        after: A cursor for the next page; None: this is the last one.
    """

    items: list[_T]
    after: str | None


class Step(NamedTuple):
    """The outcome of one step of an operation (rule 9).

    Attributes:
        done: How many tasks it has changed.
        after: A cursor for the next step; None: this was the last one.
    """

    done: int
    after: str | None


class SchemaVersion(NamedTuple):
    """The version of the format of stored data.

    Attributes:
        stored: That of the store; None: it is empty, or has no format to migrate.
        needed: That of this release.
    """

    stored: int | None
    needed: int

    @property
    def is_due(self) -> bool:
        """Whether `open_state` would migrate the store."""
        return self.stored is not None and self.stored < self.needed


class Backend(Protocol):
    """A store of shared state. The rules are at the top of the module.

    Methods marked *repeatable* have the same effect when called again with the same arguments
    after a call that ended in doubt; the callers of a backend repeat those, and no others.
    """

    # -- keys --------------------------------------------------------------------------------

    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        """Return the entries of ``keys``, in their order, as of one moment. Repeatable."""

    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        """Make all ``changes``, if every key of ``checks`` has the version named there.

        The keys of ``checks`` may or may not be among those of ``changes``; version 0: there must
        be no such key. Either mapping may be empty. An expired key does not exist.

        Fencing: each key remembers the highest token that wrote it, also after it was deleted or
        has expired. If the token of a change is lower, the whole commit is refused; an equal token
        or None is accepted, and None leaves the remembered token as it is. Keys that were never
        written with a token remember none.

        Returns:
            The versions of each key of ``changes``; ``WriteResult(0, 0)`` for the deletion of a
            missing key. None if a check failed: nothing was changed.

        Raises:
            StaleTokenError: A token is too old; nothing was changed. Tokens are compared before
                versions.
        """

    async def increment(self, key: str, by: int, token: int | None) -> int:
        """Add ``by`` to the integer under ``key``, 0 if there is none; return the sum.

        A write like any other: new version, fencing as in `commit`. The time to live is kept.
        ``by`` and the value are signed 64-bit integers, exactly: no floats on the way.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was changed.
            InvalidTypeError: The text is not a JSON integer (but ``1.0``, ``"1"``, ``true``,
                ``null``); nothing was changed.
            InvalidArgumentError: The value or the sum exceeds 64 bits; nothing was changed.
        """

    # -- locks -------------------------------------------------------------------------------

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """Acquire the lock for ``ttl`` seconds, if it is free. Repeatable.

        ``owner`` is unique for each acquisition. If it holds the lock already, the answer to an
        earlier call was lost: the lease is renewed, and keeps its token.

        Returns:
            The token, a new number of the counter (rule 3); None if another owner holds the lock.
        """

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """Renew the lease; False if ``token`` does not hold the lock. Repeatable.

        An expired lease is lost, even if the lock is still free.
        """

    async def lock_release(self, key: str, token: int) -> bool:
        """Release the lock; False if ``token`` does not hold it."""

    # -- work --------------------------------------------------------------------------------
    #
    # A task is waiting, claimed, completed or dead. Sweeping a queue means: each claimed task whose
    # lease is over becomes dead if its attempts are used up (attempt == max_attempts; its error is
    # None then), and waiting and due otherwise. Every method but `tasks_add` and `tasks_results`
    # answers as if the queue had just been swept; when and how far to really sweep is left to the
    # backend. If more than `MAX_PER_STEP` tasks fall due at one moment, `task_claim` may leave some
    # for the next claims, whatever their priorities, as long as it finds one.
    #
    # A token is *current* from the claim that made it until the task is claimed again, completed
    # by it, failed, released, dead or purged. Sweeping back to waiting leaves it current: a slow
    # worker whose task was not claimed meanwhile may still complete or renew it; but not in the
    # last attempt, as the task dies with that lease.

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """Add ``tasks`` at the end of the queue, in their order. Repeatable.

        A task whose id, or whose key, the queue knows already (in whatever state, or from
        earlier in ``tasks``) is not added.

        Returns:
            For each of ``tasks`` its id, or that of the known one.
        """

    # A claim may have a limit: it is refused while as many tasks of the queue are claimed, with or
    # without a limit, so that claims with one limit never exceed it, however many are concurrent. A
    # task that was swept back to waiting is no longer claimed, and renewing it claims it.

    async def task_claim(
        self, queue: str, worker: str, lease: float, max_claimed: int | None = None
    ) -> ClaimedTask | None:
        """Claim the next task for ``lease`` seconds: the attempt counts, the token is new.

        A task can be claimed if it is waiting and due and, if it has a thread, is the first task of
        that thread that is neither completed nor dead (first in the order of adding, whatever
        priorities and delays). The next task is the one of the highest priority, and among equals
        the one that was added first. A task that returns to waiting keeps its place in that order.

        None, and nothing was changed, if ``max_claimed`` or more tasks of the queue are claimed;
        ``max_claimed`` None: no limit.

        Waits neither for tasks to come nor for concurrent claims (skip locked), except that those
        with a limit may take turns. If a call ended in doubt, its task comes back when the lease
        ends; if it is cancelled, before it raises (rule 7).
        """

    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        """Claim the next tasks in one step, as that many calls of `task_claim`; at most ``count``.

        Of a thread there is one at most. In the order in which those calls would claim them. Fewer
        than can be claimed only if concurrent claims, or more than ``MAX_PER_STEP`` tasks that fall
        due, keep it from the rest; none only as for `task_claim`.
        """

    async def task_renew(
        self, queue: str, task_id: str, token: int, lease: float, max_claimed: int | None = None
    ) -> bool:
        """Renew the lease; False if ``token`` is not current. Repeatable.

        A task that was swept back to waiting is thereby claimed again, as the same attempt; False
        if ``max_claimed`` or more other tasks of the queue are claimed by then.
        """

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """Complete the task; False if ``token`` is not current. Repeatable.

        True also if the same token has completed it before; the first result is kept.
        """

    async def tasks_complete(self, queue: str, done: Sequence[DoneTask]) -> list[bool]:
        """Complete tasks in one step, each as `task_complete` does. Repeatable.

        A token that is not current refuses its own task alone. No task is named twice.

        Returns:
            For each of ``done`` whether it is complete.
        """

    async def task_fail(
        self, queue: str, task_id: str, token: int, error: str, retry_in: float | None
    ) -> bool:
        """End the attempt: dead if attempts are used up, else waiting, due in ``retry_in`` seconds.

        ``retry_in`` None: dead, however many attempts are left. Stores ``error``. False if
        ``token`` is not current.
        """

    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        """Give the task back, waiting and due; the attempt does not count.

        False if ``token`` is not current.
        """

    async def tasks_dead(self, queue: str, keys: Collection[str]) -> list[DeadTask]:
        """Return the dead tasks that have one of ``keys``, in the order of adding. Repeatable.

        Its cost does not depend on how many other tasks are dead.
        """

    async def tasks_dead_page(self, queue: str, after: str | None, limit: int) -> Page[DeadTask]:
        """Return dead tasks in the order of adding, ``limit`` at most. Repeatable.

        ``after`` is None for the first page, then the cursor of the previous page. A task that
        stays dead from the first page to the last is on exactly one of them.
        """

    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        """Put dead tasks back; return how many were put back.

        They move to the end of the queue, in the order of adding, as if added just now. Each is due
        at once, its attempts are counted from 0 again, and its error is forgotten. Ids of other
        tasks are ignored.
        """

    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        """Put back some of the dead tasks, the first ones first, as `tasks_requeue` does.

        ``after`` is None for the first step, then the cursor of the previous step. Tasks that die
        after the first step began, even for a second time, are not included: so the steps end.
        Repeatable, as no task is put back twice; but the count lacks those of a call in doubt.
        """

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str]
    ) -> dict[str, str]:
        """Return the results of completed tasks, by their ids or keys. Repeatable.

        ``names`` are ids or keys, as ``by`` says. Those of other tasks are left out.
        """

    async def tasks_results_page(
        self, queue: str, after: str | None, limit: int
    ) -> Page[tuple[str, str]]:
        """Return ids and results of completed tasks, ``limit`` at most. Repeatable.

        In any order. ``after`` is None for the first page, then the cursor of the previous page. A
        task that stays completed from the first page to the last is on exactly one of them.
        """

    async def tasks_stats(self, queue: str) -> QueueStats:
        """Count the tasks, as of one moment. Repeatable."""

    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        """Delete some of the tasks in these states, with their keys and results.

        ``after`` is as for `tasks_requeue_step`, and so is repeating. The steps delete every task
        that is in one of ``states`` from the first step to the last.
        """

    # -- looking after it --------------------------------------------------------------------
    #
    # In any order. `after` is None for the first page, then the cursor of the previous page. What
    # is there from the first page to the last is on at least one of them, and on a second one only
    # if the server reorganizes its memory meanwhile.

    async def queues_page(self, after: str | None, limit: int) -> Page[str]:
        """Return names of queues that have tasks, about ``limit``. Repeatable."""

    async def tasks_page(self, queue: str, after: str | None, limit: int) -> Page[StoredTask]:
        """Return tasks in whatever state, about ``limit``, without their texts. Repeatable."""

    async def task_read(self, queue: str, task_id: str) -> StoredTask | None:
        """Return one task, with its texts; None if there is none of this id. Repeatable."""

    async def tasks_cancel(self, queue: str, ids: Collection[str], error: str) -> int:
        """End the waiting and claimed tasks among ``ids``; return how many.

        They are dead, with ``error``, and their claims are lost. Ids of other tasks are ignored.
        """

    async def tasks_delete(
        self, queue: str, ids: Collection[str], states: Collection[TaskState]
    ) -> int:
        """Delete the tasks among ``ids`` that are in these states, as `tasks_purge_step` does.

        Returns:
            How many.
        """

    async def keys_page(self, prefix: str, after: str | None, limit: int) -> Page[KeyInfo]:
        """Return keys that begin with ``prefix``, about ``limit``. Repeatable."""

    async def locks_page(self, after: str | None, limit: int) -> Page[HeldLock]:
        """Return locks that are held, about ``limit``. Repeatable."""

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Release all connections. Idempotent; works even if the server is gone."""


class ImmediateBackend(Backend, Protocol):
    """A backend that can also read and replace one value without awaiting: one in memory.

    The coroutines of `Backend`, and their tuples, would take longer than the work itself. A state
    looks for these methods in the class of its backend: a proxy that forwards attributes to a
    backend does not have them, so its calls all pass through the proxy.
    """

    def read_now(self, key: str) -> StoredValue:
        """Do what ``read([key])`` does."""

    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        """Do what ``commit({key: Write(text, ttl, token)}, {key: version})`` does.

        Returns:
            The new version; None if the version of ``key`` is not ``version``.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was changed.
        """


def as_immediate(backend: Backend) -> ImmediateBackend | None:
    """Return ``backend`` as an `ImmediateBackend`; None if its class does not implement that."""
    if all(hasattr(type(backend), name) for name in ("read_now", "replace_now")):
        return cast("ImmediateBackend", backend)
    return None


class NotifyingBackend(Backend, Protocol):
    """A backend that can also notify of tasks that other processes have made claimable.

    A state looks for this method in the class of its backend, as for `ImmediateBackend`. It polls
    all the same: a task without a notification, or whose notification is lost, is found by that.
    """

    async def watch_arrivals(self, arrived: Callable[[str | None], None]) -> None:
        """Call ``arrived`` with the name of each queue in which a task may have become claimable.

        Also with the name of a queue in which a claimed task has ended, if claims have a limit
        there. With None, which means any queue, as soon as it listens, and again whenever
        notifications may have been missed. Tasks that fall due, and leases that end, need none. It
        has at most one connection of its own, which is released when it ends. One call at a time;
        it runs until it is cancelled, or returns if the server cannot notify.

        Raises:
            StateUnavailableError: The connection is lost, or there is none: call it again later.
        """


def as_notifying(backend: Backend) -> NotifyingBackend | None:
    """Return ``backend`` as a `NotifyingBackend`; None if its class does not implement that."""
    if hasattr(type(backend), "watch_arrivals"):
        return cast("NotifyingBackend", backend)
    return None


# -- what a backend raises -------------------------------------------------------------------------


def stale_token(key: str, token: int | None, newest: int | None = None) -> StaleTokenError:
    """Return the error of a write with a token that is too old.

    Args:
        key: What was to be written.
        token: The token of the write.
        newest: The newest token that has written the key, if it is known.
    """
    newer = "a newer one" if newest is None else f"token {newest}, which is newer,"
    return StaleTokenError(
        f"the write of {key!r} with token {token} is refused: {newer} has written it; the lock or "
        "the claim that the token belongs to was lost: acquire it again"
    )


def not_an_integer(key: str, text: str | None = None) -> InvalidTypeError:
    """Return the error of incrementing a value that is not an integer; ``text`` if known."""
    return InvalidTypeError(f"{key!r} cannot be incremented, as it is not an integer{_held(text)}")


def counter_overflow(key: str, text: str | None = None) -> InvalidArgumentError:
    """Return the error of a sum beyond 64 bits; ``text`` is the value of the counter, if known."""
    return InvalidArgumentError(f"the counter {key!r} would exceed 64 bits{_held(text)}")


def other_version(what: str, version: SchemaVersion, instead: str) -> InvalidArgumentError:
    """Return the error of a store that this release can neither use nor migrate.

    Args:
        what: The stored data.
        version: Its version, and that of this release.
        instead: What else may be used.
    """
    newer = version.stored is not None and version.stored > version.needed
    return InvalidArgumentError(
        f"{what} has version {version.stored}, and this release of rxlanggraph needs version "
        f"{version.needed}: use another {instead}, or {'a newer' if newer else 'an older'} release"
    )


def _held(text: str | None) -> str:
    return "" if text is None else f"; it holds {text[:100]}"
