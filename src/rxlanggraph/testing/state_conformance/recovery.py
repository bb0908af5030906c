"""Checks: dead workers, slow workers, and cancelled calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from rxlanggraph.errors import StateClosedError
from rxlanggraph.state.backend import ClaimedTask, QueueStats, Task
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.claims import Claim
from rxlanggraph.testing.state_conformance.harness import (
    Check,
    Store,
    cancelled_after,
    check,
    every_step,
    expect,
    raises,
    until,
)
from rxlanggraph.testing.state_conformance.work import refused, take

__all__ = ["CHECKS"]

CHECKS: list[Check] = []


async def _claim(state: BaseState, lease: float = 0.05) -> ClaimedTask:
    """Claim without heartbeats, as a worker that is suspended."""
    task = await state.backend.task_claim("q", "slow", lease)
    assert task is not None, "there was nothing to claim"
    return task


@check("recovery", "The item of a worker that died comes back after its lease", CHECKS)
async def _death(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", ["item"])
        async with store.open() as dying:
            claim = await take(dying, "item", worker="dying", lease=0.5)
        again = await take(state, "item", worker="next")
        expect((again.id, again.attempt), (claim.id, 2), "the second claim")
        expect(again.token > claim.token, True, "whether its token is larger")
        await again.complete("done")
        expect(await state.results("q"), {claim.id: "done"}, "the results")


@check("recovery", "A slow worker that has lost its item is refused; the new worker is not", CHECKS)
async def _slow(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", ["item"])
        slow = await _claim(state)
        claim = await take(state, "item")
        await refused(state, slow, "the slow one")
        await claim.complete("mine")
        await refused(state, slow, "the slow one, after the end")
        expect(await state.results("q"), {slow.id: "mine"}, "the results")


@check("recovery", "A slow worker whose item was not claimed again may still end its claim", CHECKS)
async def _slow_but_alone(store: Store) -> None:
    async with store.open() as state:
        backend = state.backend
        for number, finish in enumerate(("complete", "fail", "release")):
            await state.add_tasks("q", [number])
            task = await _claim(state)
            await until(lambda: _waiting(state))
            expect(await backend.task_renew("q", task.id, task.token, 60), True, "renewing")
            expect((await state.stats("q")).claimed, 1, "how many are claimed")
            expect(await backend.task_renew("q", task.id, task.token, 0.05), True, "renewing")
            await until(lambda: _waiting(state))
            if finish == "complete":
                done = await backend.task_complete("q", task.id, task.token, "1")
            elif finish == "fail":
                done = await backend.task_fail("q", task.id, task.token, "1", 0.0)
            else:
                done = await backend.task_release("q", task.id, task.token)
            expect(done, True, finish)
            if finish != "complete":
                attempt = 2 if finish == "fail" else 1
                claim = await take(state, number)
                expect(claim.attempt, attempt, f"the attempt after {finish}")
                await claim.complete()
        expect(await state.stats("q"), QueueStats(completed=3), "the stats")


@check("recovery", "Completing a task twice by the same claim is accepted, without effect", CHECKS)
async def _twice(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", ["item"])
        task = await _claim(state, 60)
        for result in ('"first"', '"second"'):
            done = await state.backend.task_complete("q", task.id, task.token, result)
            expect(done, True, "completing")
        expect(await state.results("q"), {task.id: "first"}, "the results")
        expect(await state.backend.task_renew("q", task.id, task.token, 60), False, "renewing")
        expect(await state.stats("q"), QueueStats(completed=1), "the stats")


@check(
    "recovery", "A lease that expires uses up an attempt; after the last the task is dead", CHECKS
)
async def _expired_to_death(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", [Task("item", thread_id="t"), Task(2, thread_id="t")])
        await state.purge("q", ["waiting"])
        await state.add_tasks("q", [Task("item", thread_id="t")], max_attempts=2)
        first = await _claim(state)
        await until(lambda: _waiting(state))
        await state.backend.task_fail("q", first.id, first.token, '"said so"', 0.0)
        second = await _claim(state)
        (dead,) = await until(lambda: state.dead_letters("q"))
        expect((dead.id, dead.attempts, dead.worker), (first.id, 2, "slow"), "the dead letter")
        expect(dead.error["type"], "LeaseLostError", "its error")
        await refused(state, second, "the dead one")
        expect(await state.stats("q"), QueueStats(dead=1, expired=1), "the stats")
        await state.add_tasks("q", [Task("next", thread_id="t")])
        await take(state, "next")


@check("recovery", "The last attempt ends with its lease, even before a sweep", CHECKS)
async def _last_lease(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", ["item"], max_attempts=1)
        await state.add_tasks("other", ["item"])
        last = await _claim(state)
        # No call sweeps its queue: the wait uses another queue, with a lease that ends later.
        await state.backend.task_claim("other", "slow", 0.05)
        await until(lambda: _waiting(state, "other"))
        await refused(state, last, "the last attempt")
        expect(await state.stats("q"), QueueStats(dead=1, expired=1), "the stats")


@check(
    "recovery",
    "A task is dead once its last lease is over: for claim, purge and requeue",
    CHECKS,
)
async def _dead_for_all(store: Store) -> None:
    async with store.open() as state:
        for look in ("claim", "purge", "requeue"):
            await state.add_tasks("q", [look], max_attempts=1)
            await _claim(state)
            await until(lambda: _waiting(state, dead=1))
            if look == "claim":
                expect(await state.claim_task("q"), None, "a claim of what is dead")
                expect(await state.purge("q", ["dead"]), 1, "how many were forgotten")
            elif look == "purge":
                expect(await state.purge("q", ["dead"]), 1, "how many were forgotten")
            else:
                expect(await state.requeue("q"), 1, "how many were put back")
        await take(state, "requeue")


@check("recovery", "Repeating a call of tasks_add that is in doubt adds nothing", CHECKS)
async def _added_again(store: Store) -> None:
    async with store.open() as state:
        sent = []
        backend = state.backend
        add = backend.tasks_add

        async def tasks_add(queue: str, tasks: list[object]) -> list[str]:
            sent.append(tasks)
            return await add(queue, tasks)  # type: ignore[arg-type]  # passed on as they are

        backend.tasks_add = tasks_add  # type: ignore[method-assign, assignment]  # to listen
        ids = await state.add_tasks("q", ["item", Task(2, key="k")])
        expect(await add("q", sent[0]), ids, "the ids of the second call")  # type: ignore[arg-type]
        expect((await state.stats("q")).waiting, 2, "how many wait")


@check("cancelling", "A claim cancelled at any step leaves nothing claimed", CHECKS)
async def _cancelled_claims(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", range(30), max_attempts=1)
        kept = await every_step(lambda: state.claim_task("q", lease=600))
        stats = await state.stats("q")
        expect((stats.claimed, stats.waiting), (kept, 30 - kept), "claimed, waiting")


@check(
    "cancelling",
    "A claim whose completion is cancelled at any step is completed or open",
    CHECKS,
)
async def _cancelled_ends(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", range(25))

        async def work(claim: Claim) -> None:
            await claim.extend(600)
            await claim.complete("done")

        for turns in range(25):
            claim = await take(state, turns)
            await cancelled_after(turns, lambda claim=claim: work(claim))  # type: ignore[misc]  # not inferred
            if (await state.results("q", ids=[claim.id])) != {claim.id: "done"}:
                await claim.complete("done")
        expect(await state.stats("q"), QueueStats(completed=25), "the stats")


@check("cancelling", "A requeue cancelled at any step requeues nothing twice", CHECKS)
async def _cancelled_requeues(store: Store) -> None:
    async with store.open() as state:
        for turns in range(25):
            await state.add_tasks("q", [Task(turns, thread_id="t")], max_attempts=1)
            await (await take(state, turns)).fail("no")
            cancelled = await cancelled_after(turns, lambda: state.requeue("q"))
            stats = await state.stats("q")
            expect(stats.waiting + stats.dead, 1, "how many wait or are dead")
            expect(cancelled or stats.waiting == 1, True, "whether it was done, or cancelled")
            await state.requeue("q")
            await (await take(state, turns)).complete()


@check("cancelling", "A lock whose acquisition is cancelled at any step is free", CHECKS)
async def _cancelled_locks(store: Store) -> None:
    async with store.open() as state, store.open() as other:

        async def take_it() -> None:
            async with state.lock("l", ttl=600):
                pass

        await every_step(take_it, 40)
        async with other.lock("l", wait=0):
            await every_step(take_it)
        async with other.lock("l", wait=0):
            pass


@check("cancelling", "A write cancelled at any step takes effect as a whole or not at all", CHECKS)
async def _cancelled_writes(store: Store) -> None:
    async with store.open() as state, store.open() as other:

        async def write() -> None:
            async with state.transaction() as transaction:
                for key in ("a", "b"):
                    value = (await transaction.get(key)).value or 0
                    transaction.set(key, value + 1)

        calls: list[Callable[[], Awaitable[object]]] = [
            write,
            lambda: state.increment_counter("n"),
            lambda: state.add_tasks("q", [1, 2, 3]),
        ]
        ended = [await every_step(call) for call in calls]
        one, two = await state.backend.read(["a", "b"])
        expect(one.text, two.text, "the two keys of the transactions")
        least = {"written": int(one.text or 0), "counted": (await state.get("n")).value or 0}
        expect(least["written"] >= ended[0], True, f"{least} of {ended} transactions")
        expect(least["counted"] >= ended[1], True, f"{least} of {ended} increments")
        expect((await state.stats("q")).waiting % 3, 0, "halves of what was added at once")
        for each in (state, other):
            await each.set("after", 1)
            await each.increment_counter("n")
            await each.add_tasks("q", [1])


@check("cancelling", "A closed state refuses calls, and may be closed again", CHECKS)
async def _closed(store: Store) -> None:
    async with store.open() as state:
        await state.set("k", 1)
        await state.aclose()
        with raises(StateClosedError, "a call after the end"):
            await state.get("k")
        await state.aclose()
        await state.backend.close()


async def _waiting(state: BaseState, queue: str = "q", *, dead: int = 0) -> bool:
    """Whether all leases have expired."""
    stats = await state.stats(queue)
    return stats.claimed == 0 and stats.dead == dead
