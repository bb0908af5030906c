"""Checks: the items of a thread are processed one at a time, in order."""

from __future__ import annotations

from collections import defaultdict

from rxlanggraph.state.backend import Task
from rxlanggraph.testing.state_conformance.harness import Check, Store, check, expect, gather
from rxlanggraph.testing.state_conformance.work import take

__all__ = ["CHECKS"]

CHECKS: list[Check] = []


@check("order", "One item of a thread is processed at a time, other threads concurrently", CHECKS)
async def _one_at_a_time(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks(
            "q", [Task("a1", thread_id="a"), Task("a2", thread_id="a"), Task("b1", thread_id="b")]
        )
        await state.add_tasks("q", ["free", Task("a3", thread_id="a")])
        first = await take(state, "a1")
        await take(state, "b1")
        await take(state, "free")
        expect(await state.claim_task("q"), None, "a claim while all threads are at work")
        expect((await state.stats("q")).waiting, 2, "how many wait")
        await first.complete()
        second = await take(state, "a2")
        expect(await state.claim_task("q"), None, "a claim while the thread is at work")
        await second.complete()
        await take(state, "a3")


@check("order", "Within a thread neither priority nor delay changes the order", CHECKS)
async def _no_overtaking(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks(
            "q",
            [
                Task("a1", thread_id="a", delay=0.3),
                Task("a2", thread_id="a", priority=9),
                Task("b1", thread_id="b"),
                Task("b2", thread_id="b", priority=9),
            ],
        )
        items = list[str]()
        for _ in range(4):
            claim = await state.claim_task("q", wait=50)
            assert claim is not None, f"nothing could be claimed after {items}"
            items.append(claim.item)
            await claim.complete()
        for thread in "ab":  # on a busy machine, the first delay may be over before the first claim
            order = [item for item in items if item.startswith(thread)]
            expect(order, [f"{thread}1", f"{thread}2"], f"the items of {thread}")


@check("order", "An item that fails holds up its thread until it is complete or dead", CHECKS)
async def _failing(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", [Task(n, thread_id="t") for n in range(3)], max_attempts=2)
        await (await take(state, 0)).fail("no", retry_in=0.1)
        await (await take(state, 0)).fail("no")  # no other, while it waits for its retry
        expect([dead.item for dead in await state.dead_letters("q")], [0], "dead letters")
        await (await take(state, 1)).release()
        claim = await take(state, 1)
        expect(await state.requeue("q"), 1, "how many were put back")
        expect(await state.claim_task("q"), None, "a claim while the thread is at work")
        await claim.complete()
        await (await take(state, 2)).complete()
        await (await take(state, 0)).complete()


@check("order", "A purged item does not hold up its thread", CHECKS)
async def _purge(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", [Task(n, thread_id="t") for n in range(2)])
        await take(state, 0)
        expect(await state.purge("q", ["claimed"]), 1, "how many were forgotten")
        await (await take(state, 1)).complete()


@check("order", "Workers that claim concurrently keep the order of every thread", CHECKS)
async def _at_once(store: Store) -> None:
    async with store.open_many(4) as states:
        threads = [f"t{number}" for number in range(5)]
        await states[0].add_tasks(
            "q", [Task([name, n], thread_id=name) for n in range(8) for name in threads]
        )
        worked: defaultdict[str, list[int]] = defaultdict(list)
        at_work: set[str] = set()

        async def work(number: int) -> None:
            while sum(map(len, worked.values())) < 40:
                claim = await states[number % 4].claim_task("q", wait=0.1)
                if claim is None:
                    continue
                name, item = claim.item
                expect(name in at_work, False, f"whether {name} is at work already")
                at_work.add(name)
                worked[name].append(item)
                await states[number % 4].increment_counter("done")
                at_work.remove(name)
                await claim.complete()

        await gather([work(number) for number in range(6)])
        expect(dict(worked), {name: list(range(8)) for name in worked}, "the order")
