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
   `task_claim` guarantees more: if cancelled once, it has claimed nothing when it raises. If it is
   cancelled again meanwhile, or with all other tasks of the loop, or while closing the state is
   cancelled, or if the server stays away, the claimed task comes back when its lease ends. For a
   call that cannot be withdrawn there is `rxlanggraph.concurrency.tasks.run_shielded`, which gives
   back what the call has claimed.
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

from collections.abc import Collection, Mapping, Sequence
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
    "ImmediateBackend",
    "NewTask",
    "Page",
    "QueueStats",
    "Step",
    "StoredValue",
    "Task",
    "TaskState",
    "Versioned",
    "Write",
    "WriteResult",
    "as_immediate",
    "counter_overflow",
    "not_an_integer",
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
        worker: The worker that claimed it last.
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


class DeadTask(NamedTuple):
    """A dead task; ``error`` is None if its last claim expired."""

    id: str
    text: str
    key: str | None
    thread_id: str | None
    attempts: int
    worker: str
    error: str | None


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
            The token: a new number of the counter (rule 3). None: another owner holds the lock.
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

    async def task_claim(self, queue: str, worker: str, lease: float) -> ClaimedTask | None:
        """Claim the next task for ``lease`` seconds: the attempt counts, the token is new.

        A task can be claimed if it is waiting and due and, if it has a thread, is the first task of
        that thread that is neither completed nor dead (first in the order of adding, whatever
        priorities and delays). The next task is the one of the highest priority, and among equals
        the one that was added first. A task that returns to waiting keeps its place in that order.

        Waits neither for tasks to come nor for concurrent claims (skip locked). If a call ended in
        doubt, its task comes back when the lease ends; if it is cancelled, before it raises (rule
        7).
        """

    async def task_renew(self, queue: str, task_id: str, token: int, lease: float) -> bool:
        """Renew the lease; False if ``token`` is not current. Repeatable.

        A task that was swept back to waiting is thereby claimed again, as the same attempt.
        """

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """Complete the task; False if ``token`` is not current. Repeatable.

        True also if the same token has completed it before; the first result is kept.
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


def _held(text: str | None) -> str:
    return "" if text is None else f"; it holds {text[:100]}"
