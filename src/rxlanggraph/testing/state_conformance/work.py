"""Checks: queues of work, without workers that die."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from rxlanggraph.errors import LeaseLostError
from rxlanggraph.state.backend import ClaimedTask, QueueStats, Task
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.claims import Claim
from rxlanggraph.testing.state_conformance.harness import (
    Check,
    Store,
    check,
    expect,
    gather,
    raises,
    until,
)

__all__ = ["CHECKS", "refused", "take"]

CHECKS: list[Check] = []


async def take(state: BaseState, item: Any, **options: Any) -> Claim:
    """Claim from the queue "q", and expect ``item``."""
    claim = await state.claim_task("q", wait=50, **options)
    assert claim is not None, f"expected to claim {item!r}, there was nothing"
    expect(claim.item, item, "the item that was claimed")
    return claim


async def refused(state: BaseState, task: Claim | ClaimedTask, what: str) -> None:
    """Expect that the token of ``task``, from the queue "q", is no longer current."""
    backend, who = state.backend, ("q", task.id, task.token)
    answers = [
        await backend.task_complete(*who, '"late"'),
        await backend.task_fail(*who, '"late"', 0.0),
        await backend.task_renew(*who, 60.0),
        await backend.task_release(*who),
    ]
    expect(answers, [False] * 4, f"complete, fail, renew and release of {what}")


@check("work", "A task goes from waiting to claimed to completed, and its result is kept", CHECKS)
async def _life(store: Store) -> None:
    async with store.open() as state:
        expect(await state.claim_task("q"), None, "a claim of an empty queue")
        expect(await state.stats("q"), QueueStats(), "the stats of an empty queue")
        (task_id,) = await state.add_tasks("q", [Task({"a": [1]}, key="k", thread_id="t")])
        claim = await state.claim_task("q", worker="w")
        assert claim is not None
        described = (claim.id, claim.queue, claim.item, claim.key, claim.thread_id, claim.attempt)
        expect(described, (task_id, "q", {"a": [1]}, "k", "t", 1), "the attributes of the claim")
        expect(claim.worker, "w", "the worker")
        expect(await state.claim_task("q"), None, "a claim of what is claimed")
        await claim.complete({"answer": 42})
        expect(await state.claim_task("q"), None, "a claim of what is complete")
        expect(await state.results("q"), {task_id: {"answer": 42}}, "the results")
        expect(await state.stats("q"), QueueStats(completed=1), "the stats")


@check("work", "The highest priority comes first, then what was added first", CHECKS)
async def _order(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", ["a", Task("b", priority=-1), Task("c", priority=7), "d"])
        await state.add_tasks("q", [Task("e", priority=7), Task("f", priority=-(2**31)), "g"])
        for item in "ceadgbf":
            await (await take(state, item)).complete()


@check("work", "Many items added in one call are claimed in order", CHECKS)
async def _many(store: Store) -> None:
    async with store.open() as state:
        ids = await state.add_tasks("q", range(1200))
        expect(len(set(ids)), 1200, "how many ids were returned")
        expect((await state.stats("q")).waiting, 1200, "how many wait")
        for item in range(20):
            claim = await take(state, item)
            expect(claim.id, ids[item], "the id of the claim")


@check(
    "work",
    "A task with a known key is not added again, in whatever state",
    CHECKS,
)
async def _keys(store: Store) -> None:
    async with store.open() as state:
        ids = await state.add_tasks("q", [Task(1, key="a"), Task(2, key="b"), Task(3, key="a")])
        expect(ids[2], ids[0], "the id of the second of a key")

        async def add_again() -> None:
            again = await state.add_tasks("q", [Task(9, key="b"), Task(9, key="a")])
            expect(again, [ids[1], ids[0]], "the ids of known keys")

        await add_again()
        first = await take(state, 1)
        await add_again()
        await first.complete("done")
        await add_again()
        second = await take(state, 2)
        for _ in range(4):
            await second.fail("no")
            second = await take(state, 2)
        await second.fail("no")
        expect(len(await state.dead_letters("q")), 1, "dead letters")
        await add_again()
        expect(await state.results("q", keys=["a", "b", "c"]), {"a": "done"}, "results by key")
        expect(await state.results("q", ids=[ids[0], ids[1]]), {ids[0]: "done"}, "results by id")
        await state.add_tasks("q", ["no key"])
        await (await take(state, "no key")).complete()
        expect(await state.stats("other"), QueueStats(), "another queue")
        expect(len(await state.add_tasks("other", [Task(1, key="a")])), 1, "a key elsewhere")


@check("work", "Keys added concurrently by several callers are added once each", CHECKS)
async def _keys_at_once(store: Store) -> None:
    async with store.open_many(4) as states:

        async def add(number: int) -> list[str]:
            keys = [f"k{(number + i) % 10}" for i in range(10)]
            ids = await states[number % 4].add_tasks("q", [Task(key, key=key) for key in keys])
            return [task_id for _, task_id in sorted(zip(keys, ids, strict=True))]

        added = await gather([add(number) for number in range(12)])
        expect({tuple(ids) for ids in added}, {tuple(added[0])}, "the ids of the same keys")
        expect((await states[0].stats("q")).waiting, 10, "how many wait")


@check("work", "Each item is claimed by one worker, however many claim concurrently", CHECKS)
async def _once(store: Store) -> None:
    async with store.open_many(4) as states:
        await states[0].add_tasks("q", range(100))
        worked: list[int] = []

        async def work(number: int) -> None:
            state = states[number % 4]
            while claim := await state.claim_task("q", worker=f"w{number}"):
                async with claim:
                    worked.append(claim.item)
                    await claim.complete(claim.item)

        await gather([work(number) for number in range(8)])
        expect(sorted(worked), list(range(100)), "the items that were worked on")
        expect(sorted((await states[0].results("q")).values()), sorted(worked), "the results")


@check("work", "No item is lost while some callers add and others claim", CHECKS)
async def _adding_and_claiming(store: Store) -> None:
    async with store.open_many(4) as states:
        worked: Counter[str] = Counter()

        async def add(number: int) -> None:
            for i in range(10):
                await states[number].add_tasks("q", [f"{number}-{i}-{j}" for j in range(3)])

        async def work(number: int) -> None:
            while worked.total() < 60 and (
                claim := await states[2 + number % 2].claim_task("q", wait=0.2)
            ):
                worked[claim.item] += 1
                await claim.complete()
            if worked.total() < 60:
                await work(number)

        await gather([add(0), add(1), work(0), work(1), work(2)])
        expect(len(worked), 60, "how many items were worked on")
        expect((await states[0].stats("q")).completed, 60, "how many are complete")


@check("work", "A delayed task is not claimed before it is due", CHECKS)
async def _delays(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", [Task("late", delay=600), "now", Task("soon", delay=0.1)])
        await (await take(state, "now")).complete()
        await (await take(state, "soon")).complete()
        expect(await state.claim_task("q"), None, "a claim of what is not due")
        expect(await state.stats("q"), QueueStats(delayed=1, completed=2), "the stats")


@check("work", "A waiting worker gets the items that another state adds", CHECKS)
async def _waiting(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        waiting = asyncio.ensure_future(take(state, "new"))
        await asyncio.sleep(0)
        await other.add_tasks("q", ["new"])
        await (await waiting).complete()


@check("work", "A failed task is retried, at its place, until its attempts are used up", CHECKS)
async def _failing(store: Store) -> None:
    async with store.open() as state:
        ids = await state.add_tasks("q", ["first", "second"], max_attempts=3)
        for attempt in (1, 2, 3):
            claim = await take(state, "first", worker=f"w{attempt}")
            expect(claim.attempt, attempt, "the attempt")
            await claim.fail({"reason": attempt}, retry_in=0.05 if attempt == 1 else None)
            await refused(state, claim, "a claim that has failed")
            await until(lambda: _none_delayed(state))
        (dead,) = await state.dead_letters("q")
        described = (dead.id, dead.queue, dead.item, dead.attempts, dead.worker, dead.error)
        expect(described, (ids[0], "q", "first", 3, "w3", {"reason": 3}), "the dead letter")
        expect(await state.stats("q"), QueueStats(waiting=1, dead=1), "the stats")


@check("work", "A failed task that is delayed does not hold up other tasks", CHECKS)
async def _retry_later(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", ["first", "second"])
        await (await take(state, "first")).fail("no", retry_in=600)
        expect(await state.stats("q"), QueueStats(waiting=1, delayed=1), "the stats")
        await (await take(state, "second")).complete()
        expect(await state.claim_task("q"), None, "a claim of what is not due")


@check("work", "A released task is claimed again, and the attempt does not count", CHECKS)
async def _releasing(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", ["first", "second"], max_attempts=1)
        for _ in range(3):
            claim = await take(state, "first")
            expect(claim.attempt, 1, "the attempt")
            await claim.release()
            await refused(state, claim, "a claim that was released")
        expect(await state.dead_letters("q"), [], "dead letters")


@check("work", "A final failure ends the task, and unblocks the next one of its thread", CHECKS)
async def _final(store: Store) -> None:
    async with store.open() as state:
        items = [Task("a", key="a", thread_id="t"), Task("b", thread_id="t")]
        ids = await state.add_tasks("q", items, max_attempts=3)
        claim = await take(state, "a", worker="w")
        await claim.fail({"answer": "none"}, final=True)
        await refused(state, claim, "a claim that has failed finally")
        (dead,) = await state.dead_letters("q")
        described = (dead.id, dead.attempts, dead.worker, dead.error)
        expect(described, (ids[0], 1, "w", {"answer": "none"}), "the dead letter")
        await (await take(state, "b")).complete()
        expect(await state.requeue("q"), 1, "how many were put back")
        expect((await take(state, "a")).attempt, 1, "the attempt")


@check("work", "Dead letters can be read by key", CHECKS)
async def _dead_by_key(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", [Task(n, key=f"k{n}") for n in range(5)] + ["no key"])
        for number in range(4):
            await (await take(state, number)).fail("no", final=True)
        await (await take(state, 4)).complete()
        await (await take(state, "no key")).fail("no", final=True)
        asked = await state.dead_letters("q", keys=["k3", "k1", "k4", "k9", "k1"])
        expect([dead.key for dead in asked], ["k1", "k3"], "the dead ones of those keys")
        expect(await state.dead_letters("q", keys=[]), [], "those of no key")
        await state.requeue("q", [asked[0].id])
        asked = await state.dead_letters("q", keys=["k3", "k1"])
        expect([dead.key for dead in asked], ["k3"], "those that are dead still")


@check("work", "Dead letters are requeued at the end of the queue, with new attempts", CHECKS)
async def _requeue(store: Store) -> None:
    async with store.open() as state:
        ids = await state.add_tasks("q", [Task(n, key=f"k{n}") for n in range(4)], max_attempts=1)
        await state.add_tasks("q", ["last"])
        claims = [await take(state, number) for number in range(4)]
        for claim in claims:
            await claim.fail(f"error {claim.item}")
        listed = [(dead.item, dead.key, dead.error) for dead in await state.dead_letters("q")]
        expect(listed, [(n, f"k{n}", f"error {n}") for n in range(4)], "the dead letters")
        expect(await state.requeue("q", [ids[2], "unknown"]), 1, "how many were put back")
        expect(await state.requeue("q", [ids[2]]), 0, "how many were put back again")
        expect(await state.requeue("q", []), 0, "how many of none")
        await (await take(state, "last")).complete()
        claim = await take(state, 2)
        expect((claim.id, claim.attempt), (ids[2], 1), "the task that was put back")
        await refused(state, claims[2], "the claim before it was dead")
        await claim.fail("again")
        expect(await state.requeue("q"), 4, "how many were put back in the end")
        for number in (0, 1, 3, 2):
            await (await take(state, number)).complete()
        expect(await state.dead_letters("q"), [], "the dead letters in the end")


@check("work", "Stats count the tasks by state, and the claims by worker", CHECKS)
async def _stats(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", [*range(6), Task(6, delay=600)])
        for number, worker in enumerate(["a", "b", "a"]):
            await take(state, number, worker=worker)
        await (await take(state, 3)).complete()
        stats = await state.stats("q")
        counts = (stats.waiting, stats.delayed, stats.claimed, stats.completed, stats.dead)
        expect(counts, (2, 1, 3, 1, 0), "waiting, delayed, claimed, completed, dead")
        expect(dict(sorted(stats.by_worker.items())), {"a": 2, "b": 1}, "by worker")


@check("work", "A purged task is deleted, with its key and its result", CHECKS)
async def _purge(store: Store) -> None:
    async with store.open() as state:
        tasks = [Task(n, key=f"k{n}") for n in range(4)]
        ids = await state.add_tasks("q", tasks, max_attempts=1)
        await state.add_tasks("q", [Task("late", key="late", delay=600)])
        await (await take(state, 0)).complete("done")
        await (await take(state, 1)).fail("no")
        claim = await take(state, 2)
        expect(await state.purge("q"), 1, "how many complete ones were forgotten")
        expect(await state.results("q"), {}, "the results")
        again = await state.add_tasks("q", tasks)
        expect(
            [a == b for a, b in zip(ids, again, strict=True)], [False, True, True, True], "known"
        )
        expect(await state.purge("q", ["dead", "claimed"]), 2, "how many others were forgotten")
        with raises(LeaseLostError, "completing what was forgotten"):
            await claim.complete()
        expect(await state.stats("q"), QueueStats(waiting=2, delayed=1), "the stats")
        expect(await state.purge("q", []), 0, "how many of no state")
        expect(await state.purge("q", ["waiting"]), 3, "how many that waited were forgotten")
        expect(await state.claim_task("q"), None, "a claim of what was forgotten")


async def _none_delayed(state: BaseState) -> bool:
    return (await state.stats("q")).delayed == 0
