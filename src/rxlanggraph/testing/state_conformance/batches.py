"""Checks: many tasks claimed, or completed, in one step."""

from __future__ import annotations

from collections import Counter

from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, LeaseLostError, UsageError
from rxlanggraph.state.backend import MAX_PER_STEP, DoneTask, QueueStats, Task
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.claims import Claim
from rxlanggraph.testing.state_conformance.harness import (
    Check,
    Store,
    cancelled_after,
    check,
    every_step,
    expect,
    gather,
    raises,
    until,
)
from rxlanggraph.testing.state_conformance.work import refused, take

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

_FAR_TOKEN = 2**40


async def _take(state: BaseState, count: int, lease: float = 30.0) -> list[Claim]:
    """Claim a batch of ``count`` from the queue "q"."""
    claims = await state.claim_tasks("q", count, lease=lease)
    expect(len(claims), count, "how many were claimed")
    return claims


@check("batches", "A batch is claimed in the order of single claims", CHECKS)
async def _order(store: Store) -> None:
    async with store.open() as state:
        expect(await state.claim_tasks("q", 5), [], "a batch of an empty queue")
        items = [Task("a", key="k"), Task("b", priority=7), Task("c", priority=7), "d", "e"]
        ids = await state.add_tasks("q", [*items, Task("late", delay=600)])
        claims = await state.claim_tasks("q", 4, worker="w")
        expect([claim.item for claim in claims], ["b", "c", "a", "d"], "the items")
        expect(claims[2].id, ids[0], "the id of a claim")
        expect((claims[2].key, claims[2].attempt, claims[2].worker), ("k", 1, "w"), "a claim")
        tokens = [claim.token for claim in claims]
        expect(len(set(tokens)), 4, "how many tokens there are")
        rest = await state.claim_tasks("q", 4)
        expect([claim.item for claim in rest], ["e"], "what is left to claim")
        expect(rest[0].token > max(tokens), True, "whether the next token is larger")
        expect(await state.claim_tasks("q", 4), [], "a batch of nothing due")
        expect(await state.complete_tasks([(each, each.item) for each in claims]), [], "the lost")
        expect(sorted((await state.results("q")).values()), ["a", "b", "c", "d"], "the results")
        expect(await state.complete_tasks([]), [], "completing nothing")


@check("batches", "A batch has one task of each thread; its end unblocks the next one", CHECKS)
async def _threads(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", [Task(n, thread_id=f"t{n % 2}") for n in range(6)] + [6])
        for expected in ([0, 1, 6], [2, 3], [4, 5], []):
            claims = await state.claim_tasks("q", 50)
            expect([claim.item for claim in claims], expected, "the items")
            expect(await state.claim_tasks("q", 50), [], "a batch behind claimed ones")
            await state.complete_tasks((claim, None) for claim in claims)


@check("batches", "Each item is in one batch, however many claim batches concurrently", CHECKS)
async def _once(store: Store) -> None:
    async with store.open_many(4) as states:
        await states[0].add_tasks("q", range(300))
        worked: Counter[int] = Counter()

        async def work(number: int) -> None:
            state = states[number % 4]
            while claims := await state.claim_tasks("q", 1 + 7 * number):
                worked.update(claim.item for claim in claims)
                expect(await state.complete_tasks([(c, c.item) for c in claims]), [], "the lost")

        await gather([work(number) for number in range(8)])
        expect(sorted(worked.elements()), list(range(300)), "the items that were worked on")
        results = (await states[0].results("q")).values()
        expect(sorted(results), list(range(300)), "the results")


@check("batches", "A lost claim keeps no other from being completed, and is returned", CHECKS)
async def _lost(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        await state.add_tasks("q", range(5))
        backend = state.backend
        kept = await backend.tasks_claim("q", "slow", 600.0, 2)
        expect([task.text for task in kept], ["0", "1"], "the texts")
        lost = await backend.tasks_claim("q", "slow", 0.05, 2)
        await until(lambda: _claimed(state, 2))
        mine = await take(other, 2)
        done = [DoneTask(task.id, task.token, '"slow"') for task in (*lost, *kept)]
        done.append(DoneTask("unknown", 1, '"slow"'))
        done.append(DoneTask(kept[0].id + "x", kept[0].token, '"slow"'))
        for _ in range(2):  # repeatable
            told = await backend.tasks_complete("q", done)
            # The second one is still its worker's, as it was not claimed again.
            expect(told, [False, True, True, True, False, False], "what is complete")
        await refused(state, lost[0], "the lost one")
        await mine.complete("mine")
        results = await state.results("q", ids=[task.id for task in (*lost, *kept)])
        expect([results[task.id] for task in (*lost, *kept)], ["mine"] + ["slow"] * 3, "results")
        again = [done_task._replace(text='"again"') for done_task in done[1:4]]
        expect(await backend.tasks_complete("q", again), [True] * 3, "completing again")
        expect((await state.results("q"))[kept[0].id], "slow", "the first result")
        wrong = await take(state, 4)
        late = [DoneTask(wrong.id, wrong.token + _FAR_TOKEN, "1")]
        expect(await backend.tasks_complete("q", late), [False], "with another token")
        await wrong.complete()


@check("batches", "Claims of one batch end one by one or together; lost ones are returned", CHECKS)
async def _ends(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        await state.add_tasks("q", range(6), max_attempts=1)
        claims = await _take(state, 6)
        await claims[0].complete("alone")
        await claims[1].fail("no")
        await claims[2].release()
        await state.backend.task_fail("q", claims[3].id, claims[3].token, '"purged"', None)
        await state.purge("q", ["dead"])
        told = await state.complete_tasks((claim, "together") for claim in claims[3:])
        expect(told, [claims[3]], "the lost claims")
        with raises(LeaseLostError, "completing a lost claim"):
            await claims[3].complete()
        foreign = await take(other, 2)
        await state.add_tasks("q", ["new"])
        (again,) = await _take(state, 1)
        for error, wrong in (
            (UsageError, [(again, 1), (claims[4], 1)]),
            (UsageError, [(again, 1), (again, 1)]),
            (InvalidTypeError, [(again, 1), (foreign, 1)]),
            (InvalidTypeError, [(again, 1), ("a claim", 1)]),
            (InvalidTypeError, [(again, {1})]),
        ):
            with raises(error, f"completing {wrong}"):
                await state.complete_tasks(wrong)  # type: ignore[arg-type]  # on purpose
        await again.complete()
        await foreign.complete("other")
        expect(
            sorted((await state.results("q", ids=[c.id for c in claims])).values()),
            ["alone", "other", "together", "together"],
            "the results",
        )
        expect(await state.stats("q"), QueueStats(completed=5), "the stats")
        for count in (0, -1, MAX_PER_STEP + 1):
            with raises(InvalidArgumentError, f"a batch of {count}"):
                await state.claim_tasks("q", count)


@check("batches", "The heartbeats of a batch keep each of its leases", CHECKS)
async def _heartbeats(store: Store) -> None:
    others: list[Claim] = []
    lost: list[Claim] = []
    async with store.open() as state, store.open() as other:
        for lease in (0.6, 2.0, 6.0):  # a busy machine may stand still for as long as the first
            await state.add_tasks("q", range(20))
            claims = await _take(state, 20, lease=lease)
            # A wait longer than those leases, by another one that is not renewed.
            await state.add_tasks("other", [1])
            await state.backend.tasks_claim("other", "w", 1.5 * lease, 3)
            await until(lambda: _claimed(state, 0, "other"))
            others = await other.claim_tasks("q", 20)
            lost = await state.complete_tasks([(each, 1) for each in claims])
            if not others and not lost:
                return
            await state.purge("q", ["waiting", "claimed"])
            await state.purge("other", ["waiting", "claimed"])
        expect(others, [], "what others can claim")
        expect(lost, [], "the lost")


@check("batches", "A full batch is claimed, however many expired leases are swept before", CHECKS)
async def _swept(store: Store) -> None:
    async with store.open() as state:
        count = MAX_PER_STEP + 20
        await state.add_tasks("q", range(count), max_attempts=1)
        for part in (MAX_PER_STEP, 20):
            await state.backend.tasks_claim("q", "dying", 0.05, part)
        await until(lambda: _claimed(state, 0))
        await state.add_tasks("q", ["behind", "it"])
        claims = await state.claim_tasks("q", 10)
        expect([claim.item for claim in claims], ["behind", "it"], "what is claimed")
        expect((await state.stats("q")).expired, count, "how many have expired")


@check("batches", "Claims that wait get a batch of what another state adds", CHECKS)
async def _waiting(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        expect(await state.claim_tasks("q", 5, wait=0.05), [], "a batch after a wait")

        async def claim() -> list[Claim]:
            return await state.claim_tasks("q", 5, wait=50)

        async def add() -> list[Claim]:
            await other.add_tasks("q", [1, 2])
            return []

        claims, _ = await gather([claim(), add()])
        expect([claim.item for claim in claims], [1, 2], "the items")


@check("batches", "A batch whose claim is cancelled at any step leaves nothing claimed", CHECKS)
async def _cancelled_claims(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", range(90), max_attempts=1)
        kept = await every_step(lambda: state.claim_tasks("q", 3, lease=600))
        stats = await state.stats("q")
        expect((stats.claimed, stats.waiting), (3 * kept, 90 - 3 * kept), "claimed, waiting")


@check("batches", "A batch whose completion is cancelled is completed or open, each claim", CHECKS)
async def _cancelled_ends(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", range(60))
        for turns in range(20):
            claims = await _take(state, 3)
            results = [(claim, "done") for claim in claims]
            await cancelled_after(turns, lambda results=results: state.complete_tasks(results))  # type: ignore[misc]  # not inferred
            done = await state.results("q", ids=[claim.id for claim in claims])
            open_ones = [(claim, "done") for claim in claims if claim.id not in done]
            expect(await state.complete_tasks(open_ones), [], "the lost")
        expect(await state.stats("q"), QueueStats(completed=60), "the stats")


async def _claimed(state: BaseState, count: int, queue: str = "q") -> bool:
    return (await state.stats(queue)).claimed == count
