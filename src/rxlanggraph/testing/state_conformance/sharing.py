"""Checks: data shared between states, on one loop and on several, under any names."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from rxlanggraph.state.backend import StoredValue, Task, Versioned, Write
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
# Names whose differences a server may ignore.
NAMES = [
    *("a", "A", "a ", " a", "á", "a\u0301", "a%", "a_", "a*", "a[b]", "{a}", "a:b", "a:", ":a"),
    *("a\nb", "'\"\\", "x" * 512, "x" * 511, "\U0001f600" * 512, "\U0001f600" * 511),
]


@check("names", "Keys of values are compared exactly", CHECKS)
async def _keys(store: Store) -> None:
    async with store.open() as state:
        for name in NAMES:
            await state.set(name, name)
        for name in NAMES:
            value, version = await state.get(name)
            expect(value, name, f"the key {name[:20]!r}")
            done = await state.compare_and_set(name, [name], version)
            expect(done, True, f"comparing and setting the key {name[:20]!r}")
        for name in NAMES:
            expect((await state.get(name)).value, [name], f"the key {name[:20]!r}, once replaced")


@check("names", "Keys of locks are compared exactly", CHECKS)
async def _locks(store: Store) -> None:
    async with store.open() as state:
        backend = state.backend
        tokens = {name: await backend.lock_acquire(name, "me", 600) for name in NAMES}
        expect([name for name in NAMES if tokens[name] is None], [], "locks that were not free")
        for name in NAMES:
            expect(await backend.lock_acquire(name, "you", 600), None, f"{name[:20]!r}, once held")


@check("names", "Names of queues are compared exactly", CHECKS)
async def _queues(store: Store) -> None:
    async with store.open() as state:
        for name in NAMES:
            await state.add_tasks(name, [name])
        for name in NAMES:
            claim = await state.claim_task(name)
            assert claim is not None, f"the task of {name[:20]!r} is gone"
            expect(claim.item, name, f"the task of {name[:20]!r}")
            await claim.release()


@check("names", "Keys of tasks, threads and workers are compared exactly", CHECKS)
async def _tasks(store: Store) -> None:
    async with store.open() as state:
        ids = await state.add_tasks("q", [Task(name, key=name, thread_id=name) for name in NAMES])
        expect(len(set(ids)), len(NAMES), "how many tasks were added")
        for name in NAMES:
            claim = await state.claim_task("q", worker=name)
            assert claim is not None, f"the thread of {name[:20]!r} is taken for another"
            described = (claim.item, claim.key, claim.thread_id)
            expect(described, (name, name, name), "item, key and thread")
        workers = sorted((await state.stats("q")).by_worker.items())
        expect(workers, [(name, 1) for name in sorted(NAMES)], "by worker")


@check("sharing", "Several states may open a namespace at the same moment", CHECKS)
async def _opening(store: Store) -> None:
    opened = asyncio.Barrier(8)

    async def count() -> None:
        async with store.open() as state:
            await state.increment_counter("n")
            await opened.wait()
            expect((await state.get("n")).value, 8, "the counter")
            await opened.wait()

    await gather([count() for _ in range(8)])


@check("sharing", "Two namespaces are independent", CHECKS)
async def _namespaces(store: Store) -> None:
    async with store.open() as state, store.open(f"{store.namespace}-2") as other:
        await state.set("n", 1)
        await state.add_tasks("n", [1])
        async with state.lock("n"), other.lock("n", wait=0):
            expect(await other.get("n"), Versioned(None, 0), "the other's key")
            expect(await other.claim_task("n"), None, "the other's task")


@check("sharing", "A key, a lock and a queue of the same name are independent", CHECKS)
async def _spaces(store: Store) -> None:
    async with store.open() as state:
        async with state.lock("n"):
            await state.set("n", 1)
            await state.add_tasks("n", [2])
            expect(await state.delete("n"), True, "whether the key was there")
            claim = await state.claim_task("n")
            assert claim is not None, "the task is gone"
            await claim.complete()
        expect((await state.stats("n")).completed, 1, "completed tasks")


@check("sharing", "Versions and the tokens of locks and claims come from one counter", CHECKS)
async def _one_counter(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        await state.add_tasks("q", ["a", "b"])
        numbers = []
        for each in (state, other):
            async with each.lock("l") as lease:
                numbers.append(lease.token)
            numbers.append(await each.set("k", 1))
            claim = await each.claim_task("q")
            assert claim is not None
            numbers.append(claim.token)
            await claim.complete()
        grows = all(earlier < later for earlier, later in pairwise(numbers))
        expect(grows, True, f"whether they grow: {numbers}")


@check("sharing", "States on loops of several threads share their data", CHECKS)
async def _other_loops(store: Store) -> None:
    async def work() -> int:
        worked = 0
        async with store.open() as state:
            while claim := await state.claim_task("q"):
                await state.safe_update("done", lambda value: (value or 0) + 1, attempts=100)
                await claim.complete()
                worked += 1
        return worked

    async with store.open() as state:
        await state.add_tasks("q", range(30))
        counts = await gather([asyncio.to_thread(lambda: asyncio.run(work())) for _ in range(3)])
        expect(sum(counts), 30, f"how many were worked on: {counts}")
        expect((await state.get("done")).value, 30, "what they have counted")
        expect((await state.stats("q")).completed, 30, "how many are complete")


@check(
    "sharing", "An observer of a key sees the writes of another state, newer versions only", CHECKS
)
async def _watching(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        seen: list[Versioned] = []
        last = await state.set("k", 0)
        subscription = state.watch("k", interval=0.01).subscribe(seen.append)
        for number in range(1, 4):
            last = await other.set("k", number)
            await until(lambda number=number: _has_seen(seen, number))  # type: ignore[misc]  # not inferred
        subscription.dispose()
        versions = [version for _, version in seen]
        expect(versions, sorted(set(versions)), "the versions that were seen")
        expect(seen[-1], Versioned(3, last), "the last one")


async def _has_seen(seen: list[Versioned], number: int) -> bool:
    return bool(seen) and seen[-1].value == number


@check("sharing", "Keys read in one call are a snapshot, in the order of the request", CHECKS)
async def _one_moment(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        done = False
        expect(await state.backend.read([]), [], "reading no keys")

        async def write() -> None:
            nonlocal done
            for number in range(60):
                changes = {key: Write(str(number)) for key in ("a", "b", "c")}
                await other.backend.commit(changes, {})
                await asyncio.sleep(0)
            done = True

        async def read() -> None:
            while not done:
                a, none, b, c, same = await state.backend.read(["a", "none", "b", "c", "a"])
                texts = {a.text, b.text, c.text}
                expect(len(texts), 1, f"how many moments were seen: {texts}")
                expect(
                    (none, same),
                    (StoredValue(None, 0), a),
                    "a missing key, and one asked for twice",
                )
                await asyncio.sleep(0)

        await gather([write(), read()])


@check("sharing", "Stats are a snapshot, while tasks are claimed and completed", CHECKS)
async def _stats(store: Store) -> None:
    async with store.open_many(3) as states:
        await states[0].add_tasks("q", range(40))
        working = 2

        async def work(number: int) -> None:
            nonlocal working
            while claim := await states[number].claim_task("q", worker=f"w{number}"):
                await claim.complete()
                await asyncio.sleep(0)
            working -= 1

        async def look() -> None:
            while working:
                stats = await states[2].stats("q")
                total = stats.waiting + stats.claimed + stats.completed
                expect(total, 40, f"all tasks of {stats}")
                expect(sum(stats.by_worker.values()), stats.claimed, f"by worker, of {stats}")
                await asyncio.sleep(0)

        await gather([work(0), work(1), look()])
