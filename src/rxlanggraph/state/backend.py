"""The contract of shared state: what callers see, and what a backend must do.

Callers see `Versioned`, `Task`, `QueueStats` and `DeadLetter`. A backend implements `Backend`: few
operations, each of them atomic on its server. Everything else (JSON, waiting, retrying, heartbeats,
watching, blocking callers) is built once on top of it, in `rxlanggraph.state.base`.

Rules for every backend, cited by number below and in the conformance suite:

1. **Atomic.** Each method takes effect as a whole or not at all, in one step on the server,
   whatever else is called concurrently, from this process or another. Get-then-set is not a step.
2. **The server's clock.** Times to live, leases and delays are measured where the data is, never
   by comparing clocks of two callers. All durations are seconds, as floats.
3. **One counter.** Versions of keys and tokens of locks and claims are drawn from one counter per
   namespace which only grows, forever: it survives deletion, expiry, release and restart. Of two
   writes of one key the later one has the larger version; of two holders of one lock the later
   one has the larger token. Gaps are fine. (So nothing has to be kept of a key that is gone.)
4. **Text in, text out.** Values, items, results and errors arrive as JSON text in ASCII; they are
   kept as they are and never parsed by the server, except for the integer of `increment`. Names
   (keys, queues, workers, threads, ids) are 1 to 512 characters of valid UTF-8 without NUL,
   compared exactly: case, accents and trailing blanks count.
5. **Three spaces.** Keys of values, keys of locks and queues do not see each other, nor do two
   namespaces.
6. **Loss of the server.** A call ends: after a bounded time without an answer it raises
   `StateUnavailableError`, with ``in_doubt=False`` where the call certainly had no effect. Once
   the server is back, so is the backend, by itself. What the server refuses for reasons of its
   own, with no effect (deadlock, serialization failure, busy), the backend repeats itself.
7. **Cancellation.** A call that is cancelled has taken effect as a whole or not at all (which, is
   unknown), and leaves nothing behind: no task, no connection in use, no open transaction.
   `task_claim` guarantees more: if cancelled once, it has claimed nothing when it raises. If it is
   cancelled again meanwhile, or with all other tasks of the loop, or while the state is closed in
   haste, or if the server does not come back, the claimed task comes back when its lease ends. If a
   call cannot be withdrawn, `rxlanggraph.state.retry.run_shielded` makes it give back what it has
   claimed.
8. **One loop.** Methods are called on the loop that opened the backend, by any number of tasks at
   once. After `close` none is called.
9. **Short.** However much there is, no call delays the others of the same server for longer than a
   fraction of a second. Operations on any number of tasks are therefore done in steps and read in
   pages: each handles at most `MOST_AT_ONCE` tasks, each is atomic by itself, other calls proceed
   between two of them, and a call after a crash finishes what was left. Callers name at most that
   many keys or ids in one call.
10. **What has ended is forgotten.** Nothing is kept forever of a key that is gone, of a lock whose
    lease is over, or of a queue without tasks: a later write by any caller sweeps it away. A fence
    outlives its key by `FENCE_KEPT` seconds, and is then forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, StaleTokenError

__all__ = [
    "COMPLETED",
    "FENCE_KEPT",
    "MOST_AT_ONCE",
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
# Tasks in one step (rule 9): some hundredths of a second on every server. A guess.
MOST_AT_ONCE: Final = 500
# Seconds (rule 10): a week, longer than a writer may be suspended and then continue as if nothing
# had happened (a laptop over a holiday). A guess.
FENCE_KEPT: Final = 7 * 86400.0

_T = TypeVar("_T")

# -- what callers see ------------------------------------------------------------------------------


class Versioned(NamedTuple):
    """A value, and the version to pass to ``compare_and_set``.

    Attributes:
        value: The JSON value; None also where there is no such key.
        version: Grows with every write of the key, by one or more; 0 where there is no such key.
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
        queue: The queue it is dead in.
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
        waiting: Due; those that wait for an earlier one of their thread included, and those whose
            worker let its lease expire.
        delayed: Not due yet.
        claimed: In progress, under a valid lease.
        completed: Done, and not purged yet.
        dead: In the dead-letter queue.
        expired: Dead tasks whose last claim expired: no worker was left to report an error.
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
        ttl: Seconds until the key is gone; None: it stays. Replaces the old one in either case.
        token: The fencing token of the writer, or None.
    """

    text: str | None
    ttl: float | None = None
    token: int | None = None


class WriteResult(NamedTuple):
    """The version of a key before and after a commit; 0 where there is no such key."""

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
    """A part of what is read in pages (rule 9).

    Attributes:
        items: What is on it; perhaps nothing, though more pages follow.
        after: What names the next page; None: this is the last one.
    """

    items: list[_T]
    after: str | None


class Step(NamedTuple):
    """A part of what is done in steps (rule 9).

    Attributes:
        done: How many tasks it has changed.
        after: What names the next step; None: this was the last one.
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
        be no such key. Either mapping may be empty. An expired key is no key.

        Fencing: each key remembers the highest token that wrote it, also after it was deleted or
        has expired. A change with a token lower than that is refused, and with it the
        whole commit; an equal one and None are not, and None changes nothing about it. Only keys
        that were written with a token need remembering.

        Returns:
            What became of each key of ``changes``; deleting a key that is not there is
            ``WriteResult(0, 0)``. None if a check failed: nothing was changed.

        Raises:
            StaleTokenError: A token is too old (looked at before the checks); nothing was changed.
        """

    async def increment(self, key: str, by: int, token: int | None) -> int:
        """Add ``by`` to the integer under ``key``, 0 if there is none; return the sum.

        A write like any other: new version, fencing as in `commit`. The time to live is kept.
        ``by`` and the value are signed 64-bit integers, exactly: no floats on the way.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was changed.
            InvalidTypeError: The text is no JSON integer (``1.0``, ``"1"``, ``true``, ``null``).
            InvalidArgumentError: The value or the sum is no 64-bit integer; nothing was changed.
        """

    # -- locks -------------------------------------------------------------------------------

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        """Take the lock for ``ttl`` seconds, if it is free. Repeatable.

        ``owner`` is unique for each taking. If it holds the lock already, that call's answer was
        lost: the lease begins anew, with the same token.

        Returns:
            The token: a new number of the counter (rule 3). None: another owner holds the lock.
        """

    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        """Renew the lease; False if ``token`` does not hold the lock (any more). Repeatable.

        An expired lease is lost, even if the lock is still free.
        """

    async def lock_release(self, key: str, token: int) -> bool:
        """Free the lock; False if ``token`` does not hold it (any more)."""

    # -- work --------------------------------------------------------------------------------
    #
    # A task is waiting, claimed, completed or dead. Sweeping a queue means: each claimed task whose
    # lease is over becomes dead if its attempts are used up (attempt == max_attempts; its error is
    # None then), and waiting and due otherwise. Everything but `tasks_add` and `tasks_results`
    # answers as if the queue had been swept just before; how far and when it really is done, is the
    # backend's affair. Of more than `MOST_AT_ONCE` tasks that fall due at one moment, `task_claim`
    # may leave some for the next claims, whatever their priorities, as long as it finds one.
    #
    # A token is *current* from the claim that made it until the task is claimed again, completed
    # by it, failed, released, dead or purged. Sweeping back to waiting leaves it current: a worker
    # that was slow, and whose task was not taken meanwhile, may still finish or go on; but not
    # in its last attempt, when the end of the lease is that of the task.

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        """Add ``tasks`` at the end of the queue, in their order. Repeatable.

        A task whose id, or whose key, the queue knows already (in whatever state, or from
        earlier in ``tasks``) is not added.

        Returns:
            For each of ``tasks`` its id, or that of the known one.
        """

    async def task_claim(self, queue: str, worker: str, lease: float) -> ClaimedTask | None:
        """Claim the next task for ``lease`` seconds: the attempt counts, the token is new.

        Claimable is a task that is waiting and due, and, if it has a thread, the first of
        its thread that is neither completed nor dead (rank within a thread: the order of adding
        alone, whatever priorities and delays). The next one is the claimable task of the highest
        priority, and of those the one that was added first. A task that goes back to
        waiting keeps its place in that order.

        Never waits for tasks to come, nor for other callers that claim (skip locked). If a call
        ended in doubt, its task comes back when the lease is over; if it is cancelled, before it
        raises (rule 7).
        """

    async def task_renew(self, queue: str, task_id: str, token: int, lease: float) -> bool:
        """Renew the lease; False if ``token`` is not current. Repeatable.

        A task that was swept back to waiting is claimed again by it, as the same attempt.
        """

    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        """Complete the task; False if ``token`` is not current. Repeatable.

        True also if this very token has completed it before; the first result stays.
        """

    async def task_fail(
        self, queue: str, task_id: str, token: int, error: str, retry_in: float | None
    ) -> bool:
        """End the attempt: dead if attempts are used up, else waiting, due in ``retry_in`` seconds.

        ``retry_in`` None: dead, however many attempts are left. Keeps ``error``. False if
        ``token`` is not current.
        """

    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        """Give the task back, waiting and due; the attempt does not count.

        False if ``token`` is not current.
        """

    async def tasks_dead(self, queue: str, keys: Collection[str]) -> list[DeadTask]:
        """Return the dead tasks that have one of ``keys``, in the order of adding. Repeatable.

        Without looking at all the others.
        """

    async def tasks_dead_page(self, queue: str, after: str | None, most: int) -> Page[DeadTask]:
        """Return dead tasks in the order of adding, ``most`` at the most. Repeatable.

        ``after`` is None for the first page, then what the page before says. A task that is dead
        all the while is on one page.
        """

    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        """Put dead tasks back; return how many were put back.

        Each goes to the end of the queue, in the order of adding, as if it was added just now:
        that is its place from now on. It is due at once, its attempts are counted from 0 again
        and its error is forgotten. Ids that name no dead task are ignored.
        """

    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        """Put back some of the tasks that are dead, the first ones first, as `tasks_requeue` does.

        ``after`` is None for the first step, then what the step before says. A task that dies after
        the first step, be it again, is none of those meant, so that the steps come to an end.
        Repeatable, as no task is put back twice; but the count lacks those of the call in doubt.
        """

    async def tasks_results(
        self, queue: str, by: Literal["id", "key"], names: Collection[str]
    ) -> dict[str, str]:
        """Return the results of the completed tasks among ``names``, by that name. Repeatable.

        ``names`` are ids or keys, as ``by`` says. Names that are not complete are left out.
        """

    async def tasks_results_page(
        self, queue: str, after: str | None, most: int
    ) -> Page[tuple[str, str]]:
        """Return ids and results of completed tasks, ``most`` at the most. Repeatable.

        In any order. ``after`` is None for the first page, then what the page before says. A task
        that is complete all the while is on a page, and on no two of them.
        """

    async def tasks_stats(self, queue: str) -> QueueStats:
        """Count the tasks, as of one moment. Repeatable."""

    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        """Forget some of the tasks in these states, their keys and results too.

        ``after`` and being repeatable: as for `tasks_requeue_step`. All tasks are met that are in
        one of ``states`` from the first step to the last.
        """

    # -- the end -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Release all connections. Idempotent; works even if the server is gone."""


class ImmediateBackend(Backend, Protocol):
    """A backend that also reads and replaces one value without awaiting: one in memory can.

    A coroutine for each, and the tuples that they hand over, take longer than the work. A state
    looks for these methods in the class of its backend, so that what stands before a backend, and
    hands on its attributes, is still asked through the methods of `Backend`.
    """

    def read_now(self, key: str) -> StoredValue:
        """Do what ``read([key])`` does."""

    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        """Do what ``commit({key: Write(text, ttl, token)}, {key: version})`` does.

        Returns:
            The version after it; None if ``key`` has another one than ``version``.

        Raises:
            StaleTokenError: ``token`` is too old; nothing was changed.
        """


def as_immediate(backend: Backend) -> ImmediateBackend | None:
    """Return ``backend`` as an `ImmediateBackend`; None if its class is none."""
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
        f"the write of {key!r} with token {token} is refused: {newer} has written it; if it is "
        "that of a lock, the lock was lost: take it again"
    )


def not_an_integer(key: str, text: str | None = None) -> InvalidTypeError:
    """Return the error of an increment of something else; ``text`` is what is there, if known."""
    return InvalidTypeError(f"{key!r} cannot be incremented, as it is not an integer{_held(text)}")


def counter_overflow(key: str, text: str | None = None) -> InvalidArgumentError:
    """Return the error of an increment beyond 64 bits; ``text`` is what is there, if known."""
    return InvalidArgumentError(f"the counter {key!r} would leave 64 bits{_held(text)}")


def _held(text: str | None) -> str:
    return "" if text is None else f"; it holds {text[:100]}"
