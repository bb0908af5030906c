"""SyncState: a state for threads. Each call blocks while the loop of the state executes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

from reactivex import Observable

from rxlanggraph.concurrency.run_on_loop import enter_on_loop, run_on_loop
from rxlanggraph.state.backend import (
    COMPLETED,
    DeadLetter,
    HeldLock,
    KeyInfo,
    QueuedTask,
    QueueStats,
    TaskState,
    Versioned,
)
from rxlanggraph.state.backoff import Backoff
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.claims import Claim, result_pairs
from rxlanggraph.state.locks import Lease
from rxlanggraph.state.paging import Paged
from rxlanggraph.state.queues import MAX_ITEMS
from rxlanggraph.state.single_use import SingleUseContext
from rxlanggraph.state.transactions import Conflict, Transaction, retry_conflicts_blocking
from rxlanggraph.validation import check_function

__all__ = ["SyncClaim", "SyncState", "SyncTransaction"]

_T = TypeVar("_T")


class _Blocking:
    """Blocks the calling thread while the loop of a state executes a coroutine."""

    def __init__(self, state: BaseState) -> None:
        self._state = state

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return run_on_loop(self._state.loop, coroutine)


class SyncTransaction(_Blocking):
    """A `Transaction` for one thread."""

    def __init__(self, state: BaseState, transaction: Transaction) -> None:
        super().__init__(state)
        self._transaction = transaction

    def get(self, key: str) -> Versioned:
        """Do what `Transaction.get` does, blocking."""
        return self._run(self._transaction.get(key))

    def set(self, key: str, value: Any, *, ttl: float | None = None, token: Any = None) -> None:
        """Do what `Transaction.set` does; never blocks."""
        self._transaction.set(key, value, ttl=ttl, token=token)

    def delete(self, key: str, *, token: Any = None) -> None:
        """Do what `Transaction.delete` does; never blocks."""
        self._transaction.delete(key, token=token)


class SyncClaim(_Blocking):
    """A `Claim` for one thread; for its attributes see `Claim`."""

    def __init__(self, state: BaseState, claim: Claim) -> None:
        super().__init__(state)
        self._claim = claim
        self.id = claim.id
        self.queue = claim.queue
        self.key = claim.key
        self.thread_id = claim.thread_id
        self.attempt = claim.attempt
        self.worker = claim.worker
        self.token = claim.token

    def __repr__(self) -> str:
        """Return that of the `Claim`."""
        return repr(self._claim)

    @property
    def item(self) -> Any:
        """As `Claim.item`. Never blocks."""
        return self._claim.item

    @property
    def lost(self) -> bool:
        """As `Claim.lost`. Never blocks."""
        return self._claim.lost

    def complete(self, result: Any = None) -> None:
        """Do what `Claim.complete` does, blocking."""
        self._run(self._claim.complete(result))

    def fail(self, error: Any, retry_in: float | None = None, *, final: bool = False) -> None:
        """Do what `Claim.fail` does, blocking."""
        self._run(self._claim.fail(error, retry_in, final=final))

    def release(self) -> None:
        """Do what `Claim.release` does, blocking."""
        self._run(self._claim.release())

    def extend(self, lease: float | None = None) -> None:
        """Do what `Claim.extend` does, blocking."""
        self._run(self._claim.extend(lease))

    def __enter__(self) -> Self:
        """Return the claim itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the claim as `Claim` does at the end of its block."""
        self._run(self._claim.__aexit__(exc_type, exc, traceback))


class SyncState(_Blocking):
    """The methods of a `State`, with the same arguments and errors, for any other thread.

    Each blocks until the loop of the state has executed it; no second loop is made, and the thread
    holds no lock meanwhile. Besides the errors of the method, each raises BlockingCallError on the
    loop's own thread, and LoopUnavailableError if the loop is not running. If interrupted (Ctrl-C),
    the call is cancelled on the loop. Functions passed to it run in the calling thread.
    """

    # -- values ------------------------------------------------------------------------------

    def get(self, key: str) -> Versioned:
        """Do what `State.get` does, blocking."""
        return self._run(self._state.get(key))

    def set(self, key: str, value: Any, *, ttl: float | None = None, token: Any = None) -> int:
        """Do what `State.set` does, blocking."""
        return self._run(self._state.set(key, value, ttl=ttl, token=token))

    def compare_and_set(
        self,
        key: str,
        value: Any,
        expected_version: int,
        *,
        ttl: float | None = None,
        token: Any = None,
    ) -> bool:
        """Do what `State.compare_and_set` does, blocking."""
        call = self._state.compare_and_set(key, value, expected_version, ttl=ttl, token=token)
        return self._run(call)

    def set_if_not_exists(
        self, key: str, value: Any, ttl: float | None = 60, *, token: Any = None
    ) -> bool:
        """Do what `State.set_if_not_exists` does, blocking."""
        return self._run(self._state.set_if_not_exists(key, value, ttl, token=token))

    def delete(self, key: str, *, token: Any = None) -> bool:
        """Do what `State.delete` does, blocking."""
        return self._run(self._state.delete(key, token=token))

    def increment_counter(self, key: str, by: int = 1, *, token: Any = None) -> int:
        """Do what `State.increment_counter` does, blocking."""
        return self._run(self._state.increment_counter(key, by, token=token))

    def safe_update(
        self,
        key: str,
        fn: Callable[[Any], Any],
        attempts: int = 10,
        *,
        ttl: float | None = None,
        token: Any = None,
    ) -> Any:
        """Do what `State.safe_update` does, blocking; ``fn`` is a plain function."""
        check_function("fn", fn)

        def attempt() -> Any:
            value, version = self.get(key)
            updated = fn(value)
            if not self.compare_and_set(key, updated, version, ttl=ttl, token=token):
                raise Conflict(f"safe_update of {key!r}")
            return updated

        return retry_conflicts_blocking(attempts, attempt)

    def transaction(self) -> AbstractContextManager[SyncTransaction]:
        """Do what `State.transaction` does, blocking: ``with state.sync.transaction() as tx``."""
        return SingleUseContext("state.sync.transaction()", self._transaction())

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[SyncTransaction]:
        with enter_on_loop(self._state.loop, self._state.transaction()) as transaction:
            yield SyncTransaction(self._state, transaction)

    def transact(self, fn: Callable[[SyncTransaction], _T], attempts: int = 10) -> _T:
        """Do what `State.transact` does, blocking; ``fn`` is a plain function."""
        check_function("fn", fn)

        def attempt() -> _T:
            transaction = Transaction(self._state._client)
            result = fn(SyncTransaction(self._state, transaction))
            if not self._run(transaction._commit()):
                raise Conflict("the transaction")
            return result

        return retry_conflicts_blocking(attempts, attempt)

    def watch(self, key: str, interval: float = 0.2) -> Observable[Versioned]:
        """Do what `State.watch` does; never blocks. Items come on the loop's thread."""
        return self._state.watch(key, interval)

    # -- locks -------------------------------------------------------------------------------

    def lock(
        self, key: str, ttl: float = 30.0, *, wait: float | None = None
    ) -> AbstractContextManager[Lease]:
        """Do what `State.lock` does, blocking: ``with state.sync.lock(key) as lease``."""
        block = enter_on_loop(self._state.loop, self._state.lock(key, ttl, wait=wait))
        return SingleUseContext(f"state.sync.lock({key!r})", block)

    # -- work --------------------------------------------------------------------------------

    def declare_queue(
        self, queue: str, *, backoff: Backoff | None = None, max_claimed: int | None = None
    ) -> None:
        """Do what `State.declare_queue` does, blocking."""

        async def declare() -> None:
            self._state.declare_queue(queue, backoff=backoff, max_claimed=max_claimed)

        self._run(declare())

    def add_tasks(
        self, queue: str, items: Iterable[Any], *, max_attempts: int | None = None
    ) -> list[str]:
        """Do what `State.add_tasks` does, blocking."""
        if isinstance(items, Iterator):
            # An iterator is consumed in this thread, not on the loop, and no further than needed to
            # see that it has too many items: it may be endless.
            items = list(islice(items, MAX_ITEMS + 1))
        return self._run(self._state.add_tasks(queue, items, max_attempts=max_attempts))

    def claim_task(
        self,
        queue: str,
        *,
        worker: str | None = None,
        lease: float = 30.0,
        wait: float | None = None,
    ) -> SyncClaim | None:
        """Do what `State.claim_task` does, blocking."""
        call = self._state.claim_task(queue, worker=worker, lease=lease, wait=wait)
        claim = self._run(call)
        return None if claim is None else SyncClaim(self._state, claim)

    def claim_tasks(
        self,
        queue: str,
        count: int,
        *,
        worker: str | None = None,
        lease: float = 30.0,
        wait: float | None = None,
    ) -> list[SyncClaim]:
        """Do what `State.claim_tasks` does, blocking."""
        call = self._state.claim_tasks(queue, count, worker=worker, lease=lease, wait=wait)
        return [SyncClaim(self._state, claim) for claim in self._run(call)]

    def complete_tasks(self, results: Iterable[tuple[SyncClaim, Any]]) -> list[SyncClaim]:
        """Do what `State.complete_tasks` does, blocking."""
        pairs = result_pairs(results)
        inner: list[Any] = [(getattr(claim, "_claim", claim), result) for claim, result in pairs]
        lost = {id(claim) for claim in self._run(self._state.complete_tasks(inner))}
        return [claim for claim, _ in pairs if id(claim._claim) in lost]

    def dead_letters(self, queue: str, *, keys: Collection[str] | None = None) -> list[DeadLetter]:
        """Do what `State.dead_letters` does, blocking."""
        return self._run(self._state.dead_letters(queue, keys=keys))

    def iter_dead_letters(self, queue: str) -> Iterator[DeadLetter]:
        """Do what `State.iter_dead_letters` does, for a ``for`` loop; reading a page blocks."""
        return self._each(self._state.iter_dead_letters(queue))

    def requeue(self, queue: str, ids: Collection[str] | None = None) -> int:
        """Do what `State.requeue` does, blocking."""
        return self._run(self._state.requeue(queue, ids))

    def results(
        self,
        queue: str,
        *,
        ids: Collection[str] | None = None,
        keys: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Do what `State.results` does, blocking."""
        return self._run(self._state.results(queue, ids=ids, keys=keys))

    def iter_results(self, queue: str) -> Iterator[tuple[str, Any]]:
        """Do what `State.iter_results` does, for a ``for`` loop; reading a page blocks."""
        return self._each(self._state.iter_results(queue))

    def stats(self, queue: str) -> QueueStats:
        """Do what `State.stats` does, blocking."""
        return self._run(self._state.stats(queue))

    def purge(
        self,
        queue: str,
        states: Collection[TaskState] = COMPLETED,
        *,
        older_than: float | None = None,
        keep: int | None = None,
    ) -> int:
        """Do what `State.purge` does, blocking."""
        return self._run(self._state.purge(queue, states, older_than=older_than, keep=keep))

    # -- looking after it --------------------------------------------------------------------

    def queues(self) -> list[str]:
        """Do what `State.queues` does, blocking."""
        return self._run(self._state.queues())

    def iter_tasks(
        self,
        queue: str,
        *,
        states: Collection[TaskState] | None = None,
        thread_id: str | None = None,
        older_than: float | None = None,
        newer_than: float | None = None,
    ) -> Iterator[QueuedTask]:
        """Do what `State.iter_tasks` does, for a ``for`` loop; reading a page blocks."""
        return self._each(
            self._state.iter_tasks(
                queue,
                states=states,
                thread_id=thread_id,
                older_than=older_than,
                newer_than=newer_than,
            )
        )

    def task(self, queue: str, task_id: str) -> QueuedTask | None:
        """Do what `State.task` does, blocking."""
        return self._run(self._state.task(queue, task_id))

    def cancel_tasks(self, queue: str, ids: Collection[str]) -> int:
        """Do what `State.cancel_tasks` does, blocking."""
        return self._run(self._state.cancel_tasks(queue, ids))

    def iter_keys(self, prefix: str = "") -> Iterator[KeyInfo]:
        """Do what `State.iter_keys` does, for a ``for`` loop; reading a page blocks."""
        return self._each(self._state.iter_keys(prefix))

    def iter_locks(self) -> Iterator[HeldLock]:
        """Do what `State.iter_locks` does, for a ``for`` loop; reading a page blocks."""
        return self._each(self._state.iter_locks())

    def _each(self, paged: Paged[_T]) -> Iterator[_T]:
        while not paged.ended:
            yield from self._run(paged.next_page())
