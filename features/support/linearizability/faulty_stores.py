"""Stores in memory that break the contract of shared state, each in one way."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from time import monotonic
from typing import Any

from rxlanggraph.state.backend import (
    ClaimedTask,
    DoneTask,
    NewTask,
    Step,
    StoredValue,
    TaskState,
    Write,
    WriteResult,
)
from rxlanggraph.state.backends.memory import (
    ImmediateMemoryBackend,
    MemoryBackend,
    MemoryStore,
)
from rxlanggraph.state.base import BaseState

__all__ = ["FAULTS", "opener"]


class TwoStepCounter(MemoryBackend):
    async def increment(self, key: str, by: int, token: int | None) -> int:
        (entry,) = await self.read([key])
        await asyncio.sleep(0)
        total = int(entry.text or 0) + by
        await self.commit({key: Write(str(total), token=token)}, {})
        return total


class TwoStepCommit(MemoryBackend):
    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        entries = await self.read(list(checks))
        await asyncio.sleep(0)
        if [entry.version for entry in entries] != list(checks.values()):
            return None
        return await super().commit(changes, {})


class ReplacesAnything(ImmediateMemoryBackend):
    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        version = self.read_now(key).version
        return super().replace_now(key, version, text, ttl, token)


class ReplacesForAnybody(ImmediateMemoryBackend):
    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        return super().replace_now(key, version, text, ttl, None)


class ReplacesWithoutATrace(ImmediateMemoryBackend):
    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        if token is not None:
            self._namespace._check_fence(key, token)
        return super().replace_now(key, version, text, ttl, None)


class ReplacesForAsLong(ImmediateMemoryBackend):
    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        gone = self._namespace._expiries.deadlines.get(key)
        if ttl is None and gone is not None:
            ttl = max(0.0, gone - self._namespace._clock())
        return super().replace_now(key, version, text, ttl, token)


class ReplacesIgnoringCase(ImmediateMemoryBackend):
    def replace_now(
        self, key: str, version: int, text: str, ttl: float | None, token: int | None
    ) -> int | None:
        return super().replace_now(key.lower(), version, text, ttl, token)


class OneByOne(MemoryBackend):
    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        written: dict[str, WriteResult] = {}
        for key in changes:
            one = await super().commit({key: changes[key]}, {} if written else checks)
            if one is None:
                return None
            written |= one
            await asyncio.sleep(0)
        return written


class VersionsAnew(MemoryBackend):
    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        return [entry._replace(version=min(entry.version, 1)) for entry in await super().read(keys)]


class KeepsTheTime(MemoryBackend):
    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        self._namespace._sweep()
        for key, change in changes.items():
            expires = self._namespace._expiries.deadlines.get(key)
            if change.ttl is None and expires is not None:
                left = expires - self._namespace._clock()
                changes = {**changes, key: change._replace(ttl=left)}
        return await super().commit(changes, checks)


class FloatCounter(MemoryBackend):
    async def increment(self, key: str, by: int, token: int | None) -> int:
        (entry,) = await self.read([key])
        exact = await super().increment(key, by, token)
        total = int(float(entry.text or 0) + by)
        return exact if exact == total else total


class OneSpace(MemoryBackend):
    def __init__(self, store: MemoryStore, namespace: str) -> None:
        super().__init__(store, "the same for all")


class IgnoresCase(MemoryBackend):
    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        return await super().read([key.lower() for key in keys])

    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        lower = {key.lower(): change for key, change in changes.items()}
        written = await super().commit(lower, checks)
        return None if written is None else {key: written[key.lower()] for key in changes}


class ReadsInTurn(MemoryBackend):
    async def read(self, keys: Sequence[str]) -> list[StoredValue]:
        entries = []
        for key in keys:
            entries += await super().read([key])
            await asyncio.sleep(0)
        return entries


class FreeForAll(MemoryBackend):
    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        token = await super().lock_acquire(key, owner, ttl)
        return next(self._namespace._numbers) if token is None else token


class TokensOfItsOwn(MemoryBackend):
    def __init__(self, store: MemoryStore, namespace: str) -> None:
        super().__init__(store, namespace)
        self._mine = itertools.count(1)
        self._theirs: dict[int, int] = {}

    async def lock_acquire(self, key: str, owner: str, ttl: float) -> int | None:
        token = await super().lock_acquire(key, owner, ttl)
        if token is None:
            return None
        mine = next(self._mine)
        self._theirs[mine] = token
        return mine

    async def lock_release(self, key: str, token: int) -> bool:
        return await super().lock_release(key, self._theirs.pop(token))


class AnybodyReleases(MemoryBackend):
    async def lock_release(self, key: str, token: int) -> bool:
        return self._namespace._locks.pop(key, None) is not None


class RenewsTheExpired(MemoryBackend):
    async def lock_renew(self, key: str, token: int, ttl: float) -> bool:
        held = self._namespace._locks.get(key)
        if held is not None:
            self._namespace._locks[key] = held._replace(expires=self._namespace._clock() + ttl)
        return held is not None and held.token == token


class NoFence(MemoryBackend):
    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        bare = {key: change._replace(token=None) for key, change in changes.items()}
        return await super().commit(bare, checks)


class FenceGoesWithTheKey(MemoryBackend):
    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        written = await super().commit(changes, checks)
        for key in written or ():
            if changes[key].text is None:
                self._namespace._fences.pop(key, None)
        return written


class FenceBeforeTheCheck(MemoryBackend):
    async def commit(
        self, changes: Mapping[str, Write], checks: Mapping[str, int]
    ) -> dict[str, WriteResult] | None:
        written = await super().commit(changes, checks)
        for key, change in changes.items():
            if written is None and change.token is not None:
                self._namespace._fences[key] = change.token
        return written


class TwoStepClaim(MemoryBackend):
    async def task_claim(
        self, queue: str, worker: str, lease: float, max_claimed: int | None = None
    ) -> ClaimedTask | None:
        claimed = await super().task_claim(queue, worker, lease, max_claimed)
        if claimed is not None and claimed.attempt == 1:
            self._namespace.queue(queue).release(claimed.id, claimed.token)
            await asyncio.sleep(0)
            again = await super().task_claim(queue, worker, lease, max_claimed)
            return claimed if again is None else claimed._replace(token=again.token)
        return claimed


class KeepsTheClaim(MemoryBackend):
    async def task_claim(
        self, queue: str, worker: str, lease: float, max_claimed: int | None = None
    ) -> ClaimedTask | None:
        claimed = await super().task_claim(queue, worker, lease, max_claimed)
        await asyncio.sleep(0)
        return claimed


class TwoStepBatch(MemoryBackend):
    """Returns what it has chosen, also where another caller has claimed it meanwhile."""

    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        chosen = await super().tasks_claim(queue, worker, lease, count, max_claimed)
        for task in chosen:
            await self.task_release(queue, task.id, task.token)
        await asyncio.sleep(0)
        second = await super().tasks_claim(queue, worker, lease, count, max_claimed)
        claimed = {each.id: each for each in second}
        return [claimed.get(task.id, task) for task in chosen]


class BatchesOvertake(MemoryBackend):
    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        claimed = await super().tasks_claim(queue, worker, lease, count, max_claimed)
        return [*reversed(claimed)]


class CountsThenClaims(MemoryBackend):
    async def task_claim(
        self, queue: str, worker: str, lease: float, max_claimed: int | None = None
    ) -> ClaimedTask | None:
        claimed = (await self.tasks_stats(queue)).claimed
        await asyncio.sleep(0)
        is_full = max_claimed is not None and claimed >= max_claimed
        return None if is_full else await super().task_claim(queue, worker, lease)


class CountsTheExpired(MemoryBackend):
    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        if self._namespace.queue(queue)._is_full(max_claimed):  # before the queue is swept
            return []
        return await super().tasks_claim(queue, worker, lease, count, max_claimed)


class RenewsBeyondTheLimit(MemoryBackend):
    async def task_renew(
        self, queue: str, task_id: str, token: int, lease: float, max_claimed: int | None = None
    ) -> bool:
        return await super().task_renew(queue, task_id, token, lease)


class WholeBatch(MemoryBackend):
    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        first = await super().tasks_claim(queue, worker, lease, 1, max_claimed)
        return [*first, *(await super().tasks_claim(queue, worker, lease, count - 1))]


class AllOrNothing(MemoryBackend):
    """Completes nothing of a batch with a lost claim."""

    async def tasks_complete(self, queue: str, done: Sequence[DoneTask]) -> list[bool]:
        records = self._namespace.queue(queue)._records
        tokens = [task.id in records and records[task.id].token == task.token for task in done]
        return await super().tasks_complete(queue, done) if all(tokens) else [False] * len(done)


class TellsNothing(MemoryBackend):
    async def tasks_complete(self, queue: str, done: Sequence[DoneTask]) -> list[bool]:
        await super().tasks_complete(queue, done)
        return [True] * len(done)


class KeepsTheBatch(MemoryBackend):
    async def tasks_claim(
        self, queue: str, worker: str, lease: float, count: int, max_claimed: int | None = None
    ) -> list[ClaimedTask]:
        claimed = await super().tasks_claim(queue, worker, lease, count, max_claimed)
        await asyncio.sleep(0)
        return claimed


class TwoStepAdd(MemoryBackend):
    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        unknown = {task.key for task in tasks} - set(self._namespace.queue(queue)._keys)
        await asyncio.sleep(0)
        keys = self._namespace.queue(queue)._keys
        for key in unknown & set(keys):
            del keys[key]
        return await super().tasks_add(queue, tasks)


class NoPriorities(MemoryBackend):
    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        return await super().tasks_add(queue, [task._replace(priority=0) for task in tasks])


class ReleaseCounts(MemoryBackend):
    async def task_release(self, queue: str, task_id: str, token: int) -> bool:
        return await self.task_fail(queue, task_id, token, "null", 0.0)


class Overtaking(MemoryBackend):
    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        return await super().tasks_add(queue, [task._replace(thread_id=None) for task in tasks])


class RequeuedFirst(MemoryBackend):
    async def tasks_requeue(self, queue: str, ids: Collection[str]) -> int:
        for record in self._namespace.queue(queue)._records.values():
            if record.state == "dead":
                record.task = record.task._replace(priority=1)
        return await super().tasks_requeue(queue, ids)


class RequeuesAtOnce(MemoryBackend):
    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        count = 0
        while True:
            step = await super().tasks_requeue_step(queue, after)
            count, after = count + step.done, step.after
            if after is None:
                return Step(count, None)


class RequeuesWhatDies(MemoryBackend):
    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        step = await super().tasks_requeue_step(queue, None)
        return Step(step.done, "more" if step.done else None)


class ForgetsToEndItsPurge(MemoryBackend):
    async def tasks_purge_step(
        self, queue: str, states: Collection[TaskState], after: str | None
    ) -> Step:
        step = await super().tasks_purge_step(queue, states, after)
        return step._replace(after=None)


class CancelsWhatWaits(MemoryBackend):
    async def tasks_cancel(self, queue: str, ids: Collection[str], error: str) -> int:
        found = [await self.task_read(queue, task_id) for task_id in ids]
        waiting = [task.id for task in found if task is not None and task.state == "waiting"]
        return await super().tasks_cancel(queue, waiting, error)


class AddedAnew(MemoryBackend):
    async def tasks_requeue_step(self, queue: str, after: str | None) -> Step:
        step = await super().tasks_requeue_step(queue, after)
        for record in self._namespace.queue(queue)._records.values():
            record.added += 1
        return step


class TakesLateResults(MemoryBackend):
    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        record = self._namespace.queue(queue)._records.get(task_id)
        if record is None or record.token is None:
            return False
        return await super().task_complete(queue, task_id, record.token, result)


class LastResultStays(MemoryBackend):
    async def task_complete(self, queue: str, task_id: str, token: int, result: str) -> bool:
        done = await super().task_complete(queue, task_id, token, result)
        if done:
            self._namespace.queue(queue)._records[task_id].result = result
        return done


class AddsAgain(MemoryBackend):
    numbers = itertools.count()

    async def tasks_add(self, queue: str, tasks: Sequence[NewTask]) -> list[str]:
        new = [task._replace(id=f"{task.id}-{next(self.numbers)}") for task in tasks]
        return await super().tasks_add(queue, new)


class ExpiresAtOnce(MemoryBackend):
    async def task_renew(
        self, queue: str, task_id: str, token: int, lease: float, max_claimed: int | None = None
    ) -> bool:
        record = self._namespace.queue(queue)._records.get(task_id)
        expired = record is not None and record.due <= self._namespace._clock()
        return not expired and await super().task_renew(queue, task_id, token, lease, max_claimed)


FAULTS: dict[str, type[MemoryBackend]] = {
    "reads a counter and then writes it": TwoStepCounter,
    "compares and then sets": TwoStepCommit,
    "replaces a value at once, whatever it is": ReplacesAnything,
    "replaces a value at once, for any caller": ReplacesForAnybody,
    "replaces a value at once, and forgets who did": ReplacesWithoutATrace,
    "replaces a value at once, for as long as it was there": ReplacesForAsLong,
    "replaces a value at once, and overlooks case": ReplacesIgnoringCase,
    "begins the versions of each key anew": VersionsAnew,
    "keeps the time of a key that is written without one": KeepsTheTime,
    "counts in floating point": FloatCounter,
    "overlooks case": IgnoresCase,
    "has one space for all": OneSpace,
    "reads one key after the other": ReadsInTurn,
    "lets two hold a lock": FreeForAll,
    "begins the tokens anew with each connection": TokensOfItsOwn,
    "lets any caller release a lock": AnybodyReleases,
    "renews leases that are over": RenewsTheExpired,
    "looks at no token": NoFence,
    "forgets the token with its key": FenceGoesWithTheKey,
    "keeps the token of a write that was not made": FenceBeforeTheCheck,
    "chooses a task and then claims it": TwoStepClaim,
    "chooses a batch and then claims it": TwoStepBatch,
    "returns a batch in another order": BatchesOvertake,
    "counts the claimed tasks and then claims": CountsThenClaims,
    "counts leases that are over": CountsTheExpired,
    "renews a lease that is over beyond the limit": RenewsBeyondTheLimit,
    "claims a whole batch where there is room for one": WholeBatch,
    "completes nothing beside a lost claim": AllOrNothing,
    "tells nothing of lost claims": TellsNothing,
    "keeps the batch of who is cancelled": KeepsTheBatch,
    "looks for the keys and then adds the tasks": TwoStepAdd,
    "forgets priorities": NoPriorities,
    "counts an attempt that was given back": ReleaseCounts,
    "puts dead letters back in front": RequeuedFirst,
    "puts back in one step whatever is dead": RequeuesAtOnce,
    "puts back what dies meanwhile": RequeuesWhatDies,
    "purges no more than a step": ForgetsToEndItsPurge,
    "cancels only what waits": CancelsWhatWaits,
    "tells when a task was put back as when it was added": AddedAnew,
    "lets the tasks of a thread overtake each other": Overtaking,
    "accepts the result of a slow worker": TakesLateResults,
    "keeps the last of two results": LastResultStays,
    "adds again what was sent again": AddsAgain,
    "takes a task from a slow worker though no other wants it": ExpiresAtOnce,
    "writes one key after the other": OneByOne,
    "keeps what was claimed for who is cancelled": KeepsTheClaim,
}


def opener(fault: str) -> Any:
    """How its states are opened, on one store; its time goes ten times as fast as ours."""
    store = MemoryStore(lambda: monotonic() * 10)

    @contextlib.asynccontextmanager
    async def open_state(*, namespace: str) -> AsyncIterator[BaseState]:
        async with BaseState(FAULTS[fault](store, namespace)) as state:
            yield state

    return open_state
