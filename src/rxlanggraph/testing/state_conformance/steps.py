"""Checks: operations on any number of tasks, in short steps and pages (rule 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rxlanggraph.state.backend import MAX_PER_STEP, ClaimedTask, Step, Task
from rxlanggraph.state.base import BaseState
from rxlanggraph.testing.state_conformance.harness import (
    Check,
    Store,
    check,
    expect,
    gather,
    until,
)

__all__ = ["CHECKS"]

CHECKS: list[Check] = []

# Too many for two steps.
_MANY = 2 * MAX_PER_STEP + 100
# Seconds, for leases and delays: longer than a call takes, and short enough to wait for.
_SOON = 0.05


async def _add(state: BaseState, queue: str, count: int, *, delay: float = 0.0) -> list[str]:
    tasks = [Task(n, key=f"k{n}", delay=delay) for n in range(count)]
    return await state.add_tasks(queue, tasks, max_attempts=1)


async def _claim(state: BaseState, queue: str, count: int, lease: float) -> list[ClaimedTask]:
    calls = (state.backend.task_claim(queue, "w", lease) for _ in range(count))
    claimed = [task for task in await gather(calls) if task is not None]
    expect(len(claimed), count, "how many were claimed")
    return claimed


async def _die(state: BaseState, queue: str, count: int) -> None:
    """Claim ``count`` tasks, and fail each finally."""
    claimed = await _claim(state, queue, count, 60.0)
    fail = state.backend.task_fail
    await gather(fail(queue, task.id, task.token, '"no"', None) for task in claimed)


async def _complete(state: BaseState, queue: str, count: int) -> None:
    claimed = await _claim(state, queue, count, 60.0)
    complete = state.backend.task_complete
    await gather(complete(queue, task.id, task.token, task.text) for task in claimed)


def _expect_bounded(counts: Sequence[int], total: int, what: str) -> None:
    expect(sum(counts), total, f"how many {what} in all steps")
    expect(max(counts) <= MAX_PER_STEP, True, f"whether no step {what} more than {MAX_PER_STEP}")


@check("steps", "Any number of dead tasks is requeued in short steps, in order", CHECKS)
async def _requeue(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        ids = await _add(state, "q", _MANY)
        await _die(state, "q", _MANY)
        step, counts = Step(0, None), list[int]()
        while step.after is not None or not counts:
            step = await state.backend.tasks_requeue_step("q", step.after)
            counts.append(step.done)
            stats = await other.stats("q")
            expect(
                (stats.waiting, stats.dead),
                (sum(counts), _MANY - sum(counts)),
                "how many others saw waiting and dead after a step",
            )
        _expect_bounded(counts, _MANY, "were put back")
        for number in range(3):
            task = await state.backend.task_claim("q", "w", 60.0)
            expect(task and task.id, ids[number], "what is claimed then")


@check("steps", "A requeue repeated after a crash requeues the rest, and nothing twice", CHECKS)
async def _requeue_again(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        ids = await _add(state, "q", MAX_PER_STEP + 2)
        await _die(state, "q", MAX_PER_STEP + 2)
        begun = await state.backend.tasks_requeue_step("q", None)
        again = await state.claim_task("q")
        assert again is not None
        expect(again.id, ids[0], "what is claimed after the first step")
        expect(begun.done + await other.requeue("q"), len(ids), "how many were put back in all")
        expect(await other.requeue("q"), 0, "how many were put back again")
        # The steps of the first call, which never ended, find nothing more.
        step = begun
        while step.after is not None:
            step = await state.backend.tasks_requeue_step("q", step.after)
            expect(step.done, 0, "how many a late step has put back")
        await again.complete("done")
        await _complete(other, "q", len(ids) - 1)
        expect((await state.stats("q")).completed, len(ids), "how many are complete")


@check("steps", "A repeated step of a requeue requeues nothing twice", CHECKS)
async def _step_again(store: Store) -> None:
    async with store.open() as state:
        count = MAX_PER_STEP + 2
        await _add(state, "q", count)
        await _die(state, "q", count)
        backend = state.backend
        first = await backend.tasks_requeue_step("q", None)
        claim = await state.claim_task("q")
        assert claim is not None
        await claim.fail("again", final=True)
        assert first.after is not None
        second = await backend.tasks_requeue_step("q", first.after)
        third = await backend.tasks_requeue_step("q", first.after)
        expect(first.done + second.done + third.done, count, "how many were put back")
        stats = await state.stats("q")
        expect((stats.waiting, stats.dead), (count - 1, 1), "waiting, and dead again")


@check("steps", "Tasks named by id are requeued, however many others are dead", CHECKS)
async def _named(store: Store) -> None:
    async with store.open() as state:
        ids = await _add(state, "q", _MANY)
        await _die(state, "q", _MANY)
        expect(await state.requeue("q", ids[5:2:-1]), 3, "how many were put back")
        claims = [await state.claim_task("q") for _ in range(3)]
        expect([claim and claim.item for claim in claims], [3, 4, 5], "what is claimed then")
        expect(await state.requeue("q", ids), _MANY - 3, "how many of all were put back")
        expect((await state.stats("q")).dead, 0, "how many are dead then")


@check("steps", "Dead letters are read in pages, in the order of adding, each once", CHECKS)
async def _dead_pages(store: Store) -> None:
    async with store.open() as state:
        ids = await _add(state, "q", 25)
        await _die(state, "q", 25)
        await _add(state, "other", 5)
        after, found, sizes = None, list[str](), list[int]()
        while after is not None or not sizes:
            page = await state.backend.tasks_dead_page("q", after, 10)
            after, sizes = page.after, [*sizes, len(page.items)]
            found += [task.id for task in page.items]
            if len(sizes) == 1:
                await state.requeue("q", [ids[0], ids[24]])
        expect(found, ids[:24], "the dead tasks on all pages")
        expect(max(sizes) <= 10, True, "whether no page has more than was asked for")
        every = [letter.id async for letter in state.iter_dead_letters("q")]
        expect(every, ids[1:24], "all dead letters")
        expect([letter.id for letter in await state.dead_letters("q")], every, "the same, at once")
        expect([one async for one in state.iter_dead_letters("none")], [], "those of no queue")


@check("steps", "Results are read in pages, each once, while other tasks complete", CHECKS)
async def _result_pages(store: Store) -> None:
    async with store.open() as state:
        await _add(state, "q", 30)
        await _complete(state, "q", 25)
        after, found, pages = None, [], 0
        while after is not None or not pages:
            page = await state.backend.tasks_results_page("q", after, 10)
            after, pages = page.after, pages + 1
            expect(len(page.items) <= 10, True, "whether no page has more than was asked for")
            found += page.items
            if pages == 1:
                await _add(state, "more", 3)
                await _complete(state, "more", 2)
        expect(sorted(text for _, text in found), sorted(map(str, range(25))), "the results")
        expect(len({name for name, _ in found}), 25, "how many tasks they are of")
        every = {name: result async for name, result in state.iter_results("q")}
        expect(every, await state.results("q"), "all results, and the same at once")
        expect(sorted(every.values()), [*range(25)], "what they are")


@check("steps", "Any number of tasks is purged in short steps, while others are added", CHECKS)
async def _purge(store: Store) -> None:
    async with store.open() as state:
        await _add(state, "q", _MANY)
        await _complete(state, "q", 3)
        step, counts = Step(0, None), list[int]()
        while step.after is not None or not counts:
            step = await state.backend.tasks_purge_step("q", ["waiting"], step.after)
            counts.append(step.done)
            await state.add_tasks("q", ["meanwhile"])
        _expect_bounded(counts, _MANY - 3, "were forgotten")
        stats = await state.stats("q")
        expect((stats.waiting, stats.completed), (len(counts), 3), "waiting, and complete")


@check("steps", "Any number of tasks due at one moment is claimed, one by each claim", CHECKS)
async def _due_at_once(store: Store) -> None:
    async with store.open() as state:
        await _add(state, "q", _MANY, delay=_SOON)
        first = await until(lambda: state.backend.task_claim("q", "w", 60.0))
        assert first is not None
        await until(lambda: _all_due(state, _MANY - 1))
        await _complete(state, "q", _MANY - 1)
        expect(await state.claim_task("q"), None, "a claim of nothing")


@check("steps", "A task is claimed, however many expired leases are swept before", CHECKS)
async def _expired_at_once(store: Store) -> None:
    async with store.open() as state:
        await _add(state, "q", MAX_PER_STEP + 1)
        await _claim(state, "q", MAX_PER_STEP + 1, _SOON)
        await until(lambda: _none_claimed(state))
        await state.add_tasks("q", ["behind"])
        claim = await state.claim_task("q")
        expect(claim and claim.item, "behind", "what is claimed")
        stats = await state.stats("q")
        counts = (stats.claimed, stats.dead, stats.expired)
        expect(counts, (1, MAX_PER_STEP + 1, MAX_PER_STEP + 1), "claimed, dead, and expired")


@check("steps", "Tasks added while a queue is purged are not lost", CHECKS)
async def _added_and_emptied(store: Store) -> None:
    async with store.open_many(4) as states:
        worked: list[int] = []

        async def add_and_work(number: int) -> None:
            state = states[number]
            for item in range(10 * number, 10 * number + 10):
                await state.add_tasks("q", [item])
                claim = await state.claim_task("q", wait=20)
                assert claim is not None, f"{item} was added, and nothing could be claimed"
                worked.append(claim.item)
                await claim.complete()

        async def purge(number: int) -> None:
            while len(worked) < 20:
                await states[number].purge("q", ["completed", "dead"])
                await asyncio.sleep(0)  # a store in memory awaits nothing

        await gather([add_and_work(0), add_and_work(1), purge(2), purge(3)])
        expect(sorted(worked), [*range(20)], "the items that were worked on")


async def _all_due(state: BaseState, count: int) -> bool:
    return (await state.stats("q")).waiting == count


async def _none_claimed(state: BaseState) -> bool:
    return (await state.stats("q")).claimed == 0
