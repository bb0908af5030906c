from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state import Claim, QueueStats, Task
from support.concurrency.raising import raised
from support.state.state_world import turns, world

# -- order -----------------------------------------------------------------------------------------


@given("a queue with items of all kinds")
def step_a_queue_with_items_of_all_kinds(context: Context) -> None:
    context.state = world(context).open()
    items = [
        Task("first"),
        Task("late", delay=5, priority=9),
        Task("a1", thread_id="a"),
        Task("a2", thread_id="a", priority=8),
        Task("second"),
        Task("urgent", priority=1),
    ]
    world(context).run(context.state.add_tasks("q", items))


@when("a worker takes what it can get, second by second")
def step_a_worker_takes_what_it_can_get_second_by_second(context: Context) -> None:
    context.taken = []

    async def work() -> None:
        held = []
        for second in range(8):
            claim = await context.state.claim_task("q")
            if claim is not None:
                context.taken.append(claim.item)
                held.append(claim)
            if second == 3:  # until then nothing of its thread can follow a1
                assert [each.item for each in held][-1] == "second"
                await held[2].complete()
            await asyncio.sleep(1)

    world(context).run(work())


@then("the items came in this order: {items}")
def step_the_items_came_in_this_order_items(context: Context, items: str) -> None:
    assert context.taken == items.split(", "), context.taken


# -- waiting ---------------------------------------------------------------------------------------


@given("an empty queue")
def step_an_empty_queue(context: Context) -> None:
    context.state, context.other = world(context).open(), world(context).open()


# An item that comes when a claim ends: what is added before, and how the claim of the first ends.
_AFTER_A_CLAIM: dict[str, tuple[list[Any], Callable[[Claim], Awaitable[None]]]] = {
    "is put back by the same process": (["item"], Claim.release),
    "follows one that the same process completes": (
        [Task(item, thread_id="t") for item in ("before", "item")],
        Claim.complete,
    ),
}


@when("a worker waits 20 seconds, and 10 seconds later an item {comes}")
def step_a_worker_waits_20_seconds_and_10_seconds_later_an_item(
    context: Context, comes: str
) -> None:
    clock = world(context).clock
    items, end = _AFTER_A_CLAIM.get(comes, ([], None))

    async def take() -> tuple[Any, float]:
        claim = await context.state.claim_task("q", wait=20)
        return claim, clock.now

    async def work() -> None:
        await context.state.add_tasks("q", items)
        held = await context.state.claim_task("q")
        if comes == "that was delayed falls due":
            await context.other.add_tasks("q", [Task("item", delay=10)])
        began = clock.now
        taking = asyncio.ensure_future(take())
        await asyncio.sleep(10)
        if end is not None:
            await end(held)
        elif comes == "is added by the same process":
            await context.state.add_tasks("q", ["item"])
        elif comes == "is added by another process":
            await context.other.add_tasks("q", ["item"])
        claim, taken = await taking
        assert claim is not None and claim.item == "item"
        context.took = taken - began - 10

    world(context).run(work())


@then("it was claimed {how_soon} it is there")
def step_it_was_claimed_how_soon_it_is_there(context: Context, how_soon: str) -> None:
    limit = {"at once": 0.0, "within 0.3 seconds": 0.3}[how_soon]
    assert 0 <= context.took <= limit, context.took


@when("an item is completed while a worker waits for another one")
def step_an_item_is_completed_while_a_worker_waits_for_another_one(context: Context) -> None:
    async def work() -> None:
        await context.state.add_tasks("q", ["item"])
        claim = await context.state.claim_task("q")
        waiting = asyncio.ensure_future(context.state.claim_task("q", wait=20))
        await turns()
        server = world(context).server(context.state)
        before = server.calls
        await claim.complete()
        await turns()
        context.calls = server.calls - before
        assert await waiting is None

    world(context).run(work())


@then("the server was called once for that")
def step_the_server_was_called_once_for_that(context: Context) -> None:
    assert context.calls == 1, context.calls


@when("a worker waits 20 seconds")
def step_a_worker_waits_20_seconds(context: Context) -> None:
    began = world(context).clock.now
    context.claim = world(context).run(context.state.claim_task("q", wait=20))
    context.took = world(context).clock.now - began


@then("it got None after 20 seconds")
def step_it_got_none_after_20_seconds(context: Context) -> None:
    assert context.claim is None
    assert abs(context.took - 20) < 1e-6, context.took


@when("a worker waits forever, and the state is closed")
def step_a_worker_waits_forever_and_the_state_is_closed(context: Context) -> None:
    async def work() -> None:
        began = world(context).clock.now
        waiting = asyncio.ensure_future(raised(context.state.claim_task("q", wait=float("inf"))))
        await turns()
        await context.state.aclose()
        context.error = await waiting
        context.took = world(context).clock.now - began

    world(context).run(work())


# -- what is known ---------------------------------------------------------------------------------


@given("a queue with items in every state")
def step_a_queue_with_items_in_every_state(context: Context) -> None:
    context.state = world(context).open(max_attempts=1)

    async def fill() -> None:
        state = context.state
        tasks = [Task({"n": 1}, key="a", thread_id="t"), "done", "dead", "waits"]
        context.ids = await state.add_tasks("q", [*tasks, Task("late", delay=60)])
        context.claim = await state.claim_task("q", worker="agent 7")
        await (await state.claim_task("q")).complete({"answer": 42})
        await (await state.claim_task("q")).fail("no")

    world(context).run(fill())


@then("its stats, its results and a claim tell so")
def step_its_stats_its_results_and_a_claim_tell_so(context: Context) -> None:
    run, state, claim = world(context).run, context.state, context.claim
    workers = MappingProxyType({"agent 7": 1})
    expected = QueueStats(waiting=1, delayed=1, claimed=1, completed=1, dead=1, by_worker=workers)
    assert run(state.stats("q")) == expected
    assert run(state.results("q")) == {context.ids[1]: {"answer": 42}}
    assert run(state.results("q", keys=["a"])) == {}
    assert [dead.item for dead in run(state.dead_letters("q"))] == ["dead"]
    assert run(state.dead_letters("q", keys=["a"])) == []
    told = (claim.queue, claim.item, claim.key, claim.thread_id, claim.attempt, claim.worker)
    assert told == ("q", {"n": 1}, "a", "t", 1, "agent 7"), told
    assert claim.id == context.ids[0] and "attempt 1, open" in repr(claim), claim


@given("a queue with 1,200 dead tasks and 1,200 completed ones")
def step_a_queue_with_1_200_dead_tasks_and_1_200_completed_ones(context: Context) -> None:
    context.state = world(context).open(max_attempts=1)

    async def fill() -> None:
        for number in range(2_400):
            (task_id,) = await context.state.add_tasks("q", [Task(number, key=str(number))])
            claim = await context.state.claim_task("q")
            await (claim.fail("no") if number % 2 else claim.complete())
            context.ids.append(task_id)

    context.ids = []
    world(context).run(fill())


@when("a task counts its turns while state.{call} is carried out")
def step_a_task_counts_its_turns_while_state_call_is_carried_out(
    context: Context, call: str
) -> None:
    names = {"state": context.state, "ids": context.ids, "keys": list(map(str, range(2_400)))}

    async def carry_out() -> int:
        carrying_out = asyncio.ensure_future(eval(f"state.{call}", names))
        had = 0
        while not carrying_out.done():
            await asyncio.sleep(0)
            had += 1
        assert await carrying_out, "there was nothing to do"
        return had - 2  # before it began, and after its end

    context.had = world(context).run(carry_out())


@then("he has had {least:d} at least")
def step_he_has_had_least_at_least(context: Context, least: int) -> None:
    assert context.had >= least, context.had


@when("no tasks are added")
def step_no_tasks_are_added(context: Context) -> None:
    assert world(context).run(context.state.add_tasks("q", [])) == []


# -- clocks ----------------------------------------------------------------------------------------


@when("the clock of the server is set back by an hour")
def step_the_clock_of_the_server_is_set_back_by_an_hour(context: Context) -> None:
    world(context).clock.now -= 3600


@then("the age of the task is 0")
def step_the_age_of_the_task_is_0(context: Context) -> None:
    async def ages() -> list[float]:
        return [task.age async for task in context.state.iter_tasks("q")]

    assert world(context).run(ages()) == [0.0]
