"""Checks: no more tasks are claimed at once than a queue is declared to allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from rxlanggraph.state.backend import MAX_PER_STEP, QueueStats, Task
from rxlanggraph.state.base import BaseState
from rxlanggraph.state.claims import Claim
from rxlanggraph.testing.state_conformance.harness import (
    Check,
    Store,
    check,
    every_step,
    expect,
    gather,
    until,
)
from rxlanggraph.testing.state_conformance.work import refused, take

__all__ = ["CHECKS"]

CHECKS: list[Check] = []


async def _claimed(state: BaseState) -> int:
    return (await state.stats("q")).claimed


async def _complete(claim: Claim) -> None:
    await claim.complete()


async def _leases_over(state: BaseState) -> None:
    """Wait until leases of 0.05 seconds in the queue "q" are over, without looking at it."""
    await state.add_tasks("other", [1])
    await state.backend.task_claim("other", "w", 0.1)

    async def is_over() -> bool:
        return (await state.stats("other")).claimed == 0

    await until(is_over)
    await state.purge("other", ["waiting"])


@check("limits", "While as many tasks are claimed as declared, none is; each end frees one", CHECKS)
async def _ends(store: Store) -> None:
    ends: dict[str, Callable[[BaseState, Claim], Awaitable[object]]] = {
        "complete": lambda _, claim: claim.complete(),
        "complete many": lambda state, claim: state.complete_tasks([(claim, None)]),
        "fail": lambda _, claim: claim.fail("why"),
        "fail for later": lambda _, claim: claim.fail("why", retry_in=600),
        "fail finally": lambda _, claim: claim.fail("why", final=True),
        "release": lambda _, claim: claim.release(),
        "cancel": lambda state, claim: state.cancel_tasks("q", [claim.id]),
        "purge": lambda state, _: state.purge("q", ["claimed"]),
        "purge what is old": lambda state, _: state.purge("q", ["claimed"], older_than=0),
    }
    async with store.open() as state, store.open() as other:
        for each in (state, other):
            each.declare_queue("q", max_claimed=2)
        for name, end in ends.items():
            await state.add_tasks("q", range(4))
            first = await take(state, 0)
            second = await take(other, 1)
            for each in (state, other):
                expect(await each.claim_task("q"), None, f"a third claim, before {name}")
                expect(await each.claim_tasks("q", 3), [], f"a third batch, before {name}")
            expect(await state.claim_task("q", wait=0.05), None, f"a third claim, before {name}")
            await end(state, first)
            claims = [claim async for claim in _all_claims(other)]
            expected = [0] if name in {"fail", "release"} else [2]
            if name.startswith("purge"):
                expected = [2, 3]
            expect([claim.item for claim in claims], expected, f"what is claimed after {name}")
            attempts = [2 if name == "fail" else 1] * len(claims)
            expect([claim.attempt for claim in claims], attempts, f"the attempts after {name}")
            if not name.startswith("purge"):
                await second.complete()
            await state.purge("q", ["waiting", "claimed", "completed", "dead"])


async def _all_claims(state: BaseState) -> AsyncIterator[Claim]:
    while claim := await state.claim_task("q"):
        yield claim


@check(
    "limits", "A batch is as large as the limit leaves room for; delayed tasks take none", CHECKS
)
async def _batches(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        for each in (state, other):
            each.declare_queue("q", max_claimed=5)
        await state.add_tasks("q", [*range(20), *(Task(0, delay=600) for _ in range(20))])
        first = await state.claim_tasks("q", 3)
        second = await other.claim_tasks("q", 3)
        expect([claim.item for claim in (*first, *second)], [0, 1, 2, 3, 4], "the items")
        expect(await state.claim_tasks("q", 3), [], "a batch without room")
        await state.complete_tasks([(claim, None) for claim in (first[0], first[2])])
        third = await other.claim_tasks("q", 500)
        expect([claim.item for claim in third], [5, 6], "the items after two have ended")
        state.declare_queue("q", max_claimed=7)
        fourth = await state.claim_tasks("q", 500)
        expect([claim.item for claim in fourth], [7, 8], "the items with a larger limit")
        expect(await other.claim_task("q"), None, "a claim with the smaller limit")
        state.declare_queue("q")
        rest = await state.claim_tasks("q", 500)
        expect([claim.item for claim in rest], [*range(9, 20)], "the items without a limit")
        expect(await _claimed(state), 18, "how many are claimed")
        other.declare_queue("q2", max_claimed=1)
        await other.add_tasks("q2", [1, 2])
        expect(len(await other.claim_tasks("q2", 2)), 1, "how many are claimed of another queue")


class _Work:
    """What workers have done, and how many tasks were claimed at once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.items: list[int] = []
        self.most = 0
        self._claimed: set[str] = set()

    async def work(self, state: BaseState, number: int) -> None:
        """Work on tasks of the queue "q", in batches of 1 to 3, until all are done."""
        while len(self.items) < self.count:
            claims = await state.claim_tasks("q", 1 + number % 3, wait=0.2)
            self._claimed.update(claim.id for claim in claims)
            self.most = max(self.most, len(self._claimed))
            await asyncio.sleep(0)
            self.items += [claim.item for claim in claims]
            # Before the call: other claims may be granted before its answer is read.
            self._claimed.difference_update(claim.id for claim in claims)
            if number % 2:
                expect(await state.complete_tasks([(c, None) for c in claims]), [], "the lost")
            else:
                await gather([claim.complete() for claim in claims])

    async def observe(self, state: BaseState) -> None:
        """Ask the server how many tasks are claimed, until all are done."""
        while len(self.items) < self.count:
            self.most = max(self.most, await _claimed(state))
            await asyncio.sleep(0)  # a backend in memory never suspends


@check("limits", "Concurrent claims of many states never exceed the limit together", CHECKS)
async def _together(store: Store) -> None:
    async with store.open_many(4) as states, store.open() as observer:
        for state in states:
            state.declare_queue("q", max_claimed=3)
        threads = [f"t{n % 10}" if n % 2 else None for n in range(200)]
        await observer.add_tasks("q", [Task(n, thread_id=each) for n, each in enumerate(threads)])
        work = _Work(200)
        await gather([work.observe(observer), *(work.work(states[n % 4], n) for n in range(12))])
        expect(sorted(work.items), [*range(200)], "the items that were worked on")
        expect(work.most, 3, "how many were claimed at once")
        expect(await observer.stats("q"), QueueStats(completed=200), "the stats")


@check(
    "limits", "A claim that waits is granted when a claimed task ends, here or elsewhere", CHECKS
)
async def _waiting(store: Store) -> None:
    async with store.open() as state, store.open() as other:
        for each in (state, other):
            each.declare_queue("q", max_claimed=1)
        await state.add_tasks("q", range(3))
        claim = await take(state, 0)
        for item, next_one in ((1, state), (2, other)):
            granted, _ = await gather([take(next_one, item), _complete(claim)])
            assert granted is not None
            expect(granted.attempt, 1, "the attempt")
            claim = granted


@check(
    "limits", "A lease that is over takes no place, and is not renewed where one is taken", CHECKS
)
async def _expired(store: Store) -> None:
    async with store.open() as state:
        backend = state.backend
        await state.add_tasks("q", ["a", "b"])
        slow = await backend.task_claim("q", "slow", 0.05, 1)
        assert slow is not None, "there was nothing to claim"
        renewal = ("q", slow.id, slow.token)
        # No other one was claimed: it is renewed, whether it was swept or not.
        for _ in range(3):
            expect(await backend.task_renew(*renewal, 60.0, 1), True, "renewing in time")
        expect(await backend.task_renew(*renewal, 0.05, 1), True, "renewing for a moment")
        await _leases_over(state)
        expect(await backend.task_renew(*renewal, 0.05, 1), True, "renewing what is over")
        await _leases_over(state)
        taken = await backend.tasks_claim("q", "w", 60.0, 2, 1)
        expect([task.text for task in taken], ['"a"'], "the item that is claimed again")
        await refused(state, slow, "the slow one")
        expect(await backend.task_claim("q", "w", 60.0, 1), None, "a claim of another one")
        late = await backend.task_claim("q", "late", 0.05, 2)
        assert late is not None, "there was nothing to claim"
        await _leases_over(state)
        await state.add_tasks("q", [Task("c", priority=1)])
        await backend.task_claim("q", "w", 60.0, 2)
        renewal = ("q", late.id, late.token)
        expect(await backend.task_renew(*renewal, 60.0, 2), False, "renewing without a place")
        expect(await backend.task_renew(*renewal, 60.0, 3), True, "renewing with a place")
        expect(await backend.task_renew(*renewal, 60.0, 1), True, "renewing what has its place")
        expect(await _claimed(state), 3, "how many are claimed")


@check("limits", "However many leases are over, none takes a place", CHECKS)
async def _many_expired(store: Store) -> None:
    async with store.open() as state:
        backend, count = state.backend, MAX_PER_STEP + 20
        await state.add_tasks("q", range(count))
        for part in (MAX_PER_STEP, 20):
            await backend.tasks_claim("q", "dying", 0.05, part)
        await _leases_over(state)
        state.declare_queue("q", max_claimed=10)
        claims = await state.claim_tasks("q", 500)
        expect([claim.item for claim in claims], [*range(10)], "the items")
        # On a slow machine, the second batch has claimed some of the first one again.
        expect(min(claim.attempt for claim in claims) >= 2, True, "whether all were claimed before")
        expect(await state.claim_task("q"), None, "a claim of one more")


@check("limits", "Tasks of a thread are claimed in order, within the limit", CHECKS)
async def _threads(store: Store) -> None:
    async with store.open() as state:
        state.declare_queue("q", max_claimed=2)
        await state.add_tasks("q", [Task(n, thread_id=f"t{n % 3}") for n in range(9)])
        claims = await state.claim_tasks("q", 9)
        order = []
        while claims:
            expect(len(claims) <= 2, True, "whether the limit holds")
            order += [claim.item for claim in claims]
            await state.complete_tasks([(claim, None) for claim in claims])
            claims = await state.claim_tasks("q", 9)
        expect(order, [0, 1, 2, 3, 4, 5, 6, 7, 8], "the items")


@check(
    "limits", "A claim with a limit that is cancelled at any step leaves nothing claimed", CHECKS
)
async def _cancelled(store: Store) -> None:
    async with store.open() as state:
        await state.add_tasks("q", range(90), max_attempts=1)
        state.declare_queue("q", max_claimed=60)
        kept = await every_step(lambda: state.claim_tasks("q", 2, lease=600))
        stats = await state.stats("q")
        expect((stats.claimed, stats.waiting), (2 * kept, 90 - 2 * kept), "claimed, waiting")
