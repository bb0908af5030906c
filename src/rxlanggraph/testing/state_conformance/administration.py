"""Checks: the administration of a store."""

from __future__ import annotations

from typing import Any

from rxlanggraph.errors import LeaseLostError
from rxlanggraph.state.backend import QueuedTask, Task
from rxlanggraph.state.base import BaseState
from rxlanggraph.testing.state_conformance.harness import Check, Store, check, expect, raises, until
from rxlanggraph.testing.state_conformance.work import refused, take

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

# Seconds: longer than a call takes, and short enough to wait for.
_SOON = 0.05


async def _read(state: BaseState, task_id: str) -> QueuedTask:
    task = await state.task("q", task_id)
    assert task is not None, f"there is no task {task_id}"
    return task


async def _keys(state: BaseState, **wanted: Any) -> list[str]:
    return sorted([task.key or "" async for task in state.iter_tasks("q", **wanted)])


@check("administration", "A task is read with its state, its times and its texts", CHECKS)
async def _task(store: Store) -> None:
    async with store.open() as state:
        (task_id,) = await state.add_tasks(
            "q", [Task({"a": 1}, key="k", thread_id="t", priority=3)], max_attempts=2
        )
        task = await _read(state, task_id)
        fixed = (task.id, task.queue, task.key, task.thread_id, task.priority, task.max_attempts)
        expect(fixed, (task_id, "q", "k", "t", 3, 2), "what was added")
        expect((task.state, task.attempts, task.worker), ("waiting", 0, None), "of a waiting task")
        expect((task.item, task.result, task.error), ({"a": 1}, None, None), "its texts")
        expect((task.claimed, task.ended, task.due_in), (None, None, 0.0), "its other times")
        added = task.added
        assert added is not None and added > 1e9, f"added at {added}, not in seconds since 1970"
        claim = await take(state, {"a": 1}, worker="w", lease=60.0)
        task = await _read(state, task_id)
        expect((task.state, task.attempts, task.worker), ("claimed", 1, "w"), "of a claimed task")
        assert task.claimed is not None and task.claimed >= added, f"claimed at {task.claimed}"
        assert task.due_in is not None and 0 < task.due_in <= 60, f"its lease: {task.due_in}"
        await claim.complete(42)
        task = await _read(state, task_id)
        expect((task.state, task.result, task.due_in), ("completed", 42, None), "of a completed")
        assert task.ended is not None and task.claimed is not None, f"ended at {task.ended}"
        expect(task.ended >= task.claimed >= added == task.added, True, "the order of its times")
        expect(await state.task("q", "unknown"), None, "a task that there is not")
        expect(await state.task("other", task_id), None, "a task of another queue")


@check("administration", "Tasks that are claimed and completed together have their times", CHECKS)
async def _together(store: Store) -> None:
    async with store.open() as state:
        ids = await state.add_tasks("q", [0, 1, Task(2, thread_id="t")])
        claims = await state.claim_tasks("q", 3)
        expect([claim.id for claim in claims], ids, "what was claimed")
        for task in [await _read(state, task_id) for task_id in ids]:
            assert task.added is not None and task.claimed is not None, f"times of {task}"
            expect((task.state, task.added <= task.claimed), ("claimed", True), "the first two")
        expect(await state.complete_tasks([(claim, 1) for claim in claims]), [], "what was lost")
        for task in [await _read(state, task_id) for task_id in ids]:
            assert task.claimed is not None and task.ended is not None, f"times of {task}"
            expect((task.state, task.claimed <= task.ended), ("completed", True), "the last two")


@check("administration", "A task that was put back keeps when it was added", CHECKS)
async def _put_back(store: Store) -> None:
    async with store.open() as state:
        (task_id,) = await state.add_tasks("q", ["item"], max_attempts=1)
        added = (await _read(state, task_id)).added
        await (await take(state, "item")).fail("no")
        task = await _read(state, task_id)
        expect((task.state, task.error, task.added), ("dead", "no", added), "of a dead task")
        expect(task.ended is not None, True, "whether the time of its death is known")
        await state.requeue("q")
        task = await _read(state, task_id)
        now = (task.state, task.error, task.added, task.claimed, task.ended, task.attempts)
        expect(now, ("waiting", None, added, None, None, 0), "of a task that was put back")
        await state.backend.task_claim("q", "killed", _SOON)
        await until(lambda: _is_dead(state, task_id))
        task = await _read(state, task_id)
        expect((task.worker, task.attempts), ("killed", 1), "of a task whose lease expired")
        expect(task.error["type"], "LeaseLostError", "its error")
        assert task.ended is not None and task.claimed is not None, f"ended at {task.ended}"
        expect(0 <= task.ended - task.claimed < 1, True, "whether it ended with its lease")


async def _is_dead(state: BaseState, task_id: str) -> bool:
    return (await _read(state, task_id)).state == "dead"


@check("administration", "Tasks are read in pages, by state, thread and age", CHECKS)
async def _pages(store: Store) -> None:
    async with store.open() as state:
        tasks = [Task(n, key=f"k{n:03}", thread_id="t" if n < 2 else None) for n in range(230)]
        await state.add_tasks("q", [*tasks, Task(230, key="late", delay=600)])
        await state.add_tasks("other", [Task(0, key="other")])
        await (await take(state, 0)).complete("done")
        await (await take(state, 1)).fail("no", final=True)
        await take(state, 2)
        every = sorted([*(f"k{n:03}" for n in range(230)), "late"])
        expect(await _keys(state), every, "all tasks")
        expect(await _keys(state, thread_id="t"), ["k000", "k001"], "those of a thread")
        expect(await _keys(state, states=["completed"]), ["k000"], "completed ones")
        expect(await _keys(state, states=["dead"]), ["k001"], "dead ones")
        expect(await _keys(state, states=["claimed", "dead"]), ["k001", "k002"], "two states")
        expect(len(await _keys(state, states=["waiting"])), 228, "how many wait")
        expect(await _keys(state, older_than=3600), [], "those of more than an hour")
        expect(await _keys(state, newer_than=3600), every, "those of less than an hour")
        expect(await _keys(state, states=[]), [], "those of no state")
        found = [task async for task in state.iter_tasks("q", states=["waiting"])]
        delayed = [task.key for task in found if task.due_in]
        expect(delayed, ["late"], "those that are not due")
        expect({task.item for task in found}, {None}, "items on a page")
        expect([task async for task in state.iter_tasks("none")], [], "those of no queue")


@check("administration", "A task that is cancelled is dead, and its claim is refused", CHECKS)
async def _cancel(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        tasks = [Task("a", thread_id="t"), Task("b", thread_id="t"), "c", Task("d", delay=600), "e"]
        ids = await state.add_tasks("q", tasks)
        claim = await take(state, "a")
        done = await take(state, "c")
        await done.complete()
        wanted = [ids[0], ids[2], ids[3], "unknown"]
        expect(await other.cancel_tasks("q", wanted), 2, "how many were cancelled")
        expect(await other.cancel_tasks("q", wanted), 0, "how many were cancelled again")
        expect(await other.cancel_tasks("q", []), 0, "how many of none")
        await refused(state, claim, "a cancelled task")
        with raises(LeaseLostError, "completing what was cancelled"):
            await claim.complete()
        letters = await state.dead_letters("q")
        expect([letter.item for letter in letters], ["a", "d"], "the dead letters")
        expect({letter.error["type"] for letter in letters}, {"CancelledError"}, "their errors")
        expect([letter.attempts for letter in letters], [1, 0], "their attempts")
        expect(letters[1].worker, "", "the worker of one that was never claimed")
        stats = await state.stats("q")
        counts = (stats.waiting, stats.delayed, stats.claimed, stats.completed, stats.dead)
        expect(counts, (2, 0, 0, 1, 2), "waiting, delayed, claimed, completed, dead")
        await (await take(state, "b")).complete()  # its thread goes on
        await take(state, "e")
        expect(await state.requeue("q", [ids[0]]), 1, "how many were put back")
        await (await take(state, "a")).complete()


@check("administration", "Tasks are purged by age and number", CHECKS)
async def _retention(store: Store) -> None:
    async with store.open() as state:
        tasks = [*range(4), Task("a", thread_id="t"), Task("b", thread_id="t")]
        ids = await state.add_tasks("q", tasks, max_attempts=1)
        for number in range(3):
            await (await take(state, number)).complete(number)
        await (await take(state, 3)).fail("no")
        expect(await state.purge("q", older_than=3600), 0, "how many are older than an hour")
        expect(await state.purge("q", keep=3), 0, "how many more than three there are")
        expect(await state.purge("q", keep=2), 1, "how many more than two there are")
        expect(await state.results("q"), {ids[1]: 1, ids[2]: 2}, "the results that are left")
        expect(await state.purge("q", older_than=3600, keep=1), 0, "how many are old and surplus")
        await until(lambda: _are_old(state, 2))
        expect(await state.purge("q", older_than=_SOON, keep=1), 1, "how many are so")
        expect(await state.purge("q", older_than=_SOON), 1, "how many are old")
        stats = await state.stats("q")
        expect((stats.waiting, stats.completed, stats.dead), (2, 0, 1), "those in other states")
        expect(await state.purge("q", ["waiting"], keep=1), 1, "how many that wait are surplus")
        await (await take(state, "b")).complete()  # it is the first of its thread now
        expect(await state.purge("q", ["completed", "dead"], keep=0), 2, "all of these states")
        expect(await state.queues(), [], "the queues, once all tasks are deleted")


async def _are_old(state: BaseState, count: int) -> bool:
    return len(await _keys(state, states=["completed"], older_than=_SOON)) == count


@check("administration", "Only the queues, keys and locks of the namespace are listed", CHECKS)
async def _listed(store: Store) -> None:
    async with store.open() as state, store.open(f"{store.namespace}-2") as other:
        expect(await state.queues(), [], "the queues of an empty store")
        await state.add_tasks("b", [1])
        await state.add_tasks("a:b", [1])
        await other.add_tasks("c", [1])
        expect(await state.queues(), ["a:b", "b"], "the queues")
        await state.purge("b", ["waiting"])
        expect(await state.queues(), ["a:b"], "the queues after a purge")
        for number in range(3):
            await state.set(f"a*{number}", number)
        await state.set("ab", 1, ttl=60)
        await state.set("gone", 1)
        await state.delete("gone")
        await other.set("another", 1)
        keys = sorted([key async for key in state.iter_keys()])
        expect([key.key for key in keys], ["a*0", "a*1", "a*2", "ab"], "the keys")
        expect([key.version > 0 for key in keys], [True] * 4, "whether they have versions")
        expect((keys[0].expires_in, 0 < (keys[3].expires_in or 0) <= 60), (None, True), "times")
        found = sorted([key.key async for key in state.iter_keys("a*")])
        expect(found, ["a*0", "a*1", "a*2"], "the keys with a prefix")
        async with state.lock("l", ttl=60) as lease:
            (held,) = [lock async for lock in state.iter_locks()]
            expect((held.key, held.token), ("l", lease.token), "the lock that is held")
            expect(0 < held.expires_in <= 60, True, "whether the end of its lease is known")
        expect([lock async for lock in state.iter_locks()], [], "the locks that are released")
