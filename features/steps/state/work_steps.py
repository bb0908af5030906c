from __future__ import annotations

import asyncio
import gc
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import LeaseLostError
from rxlanggraph.state import Task
from support.concurrency.raising import raised
from support.controls.naive_state import GlobalStore, PoppingQueue, TaskList, TimedQueue
from support.state.state_world import claimed, world

# -- many at once ----------------------------------------------------------------------------------


@given("{count:d} items in a list")
def step_count_items_in_a_list(context: Context, count: int) -> None:
    queue = TaskList()
    queue.items = list(range(count))
    context.take = lambda _: queue.claim()


@given("{count:d} items in a queue")
def step_count_items_in_a_queue(context: Context, count: int) -> None:
    there = world(context)
    states = [there.open() for _ in range(3)]
    there.run(states[0].add_tasks("q", range(count)))

    async def take(number: int) -> Any:
        claim = await states[number % 3].claim_task("q", worker=f"agent {number}")
        await asyncio.sleep(0)
        if claim is None:
            return None
        await claim.complete()
        return claim.item

    context.take = take


@when("eight agents take items until none is left")
def step_eight_agents_take_items_until_none_is_left(context: Context) -> None:
    context.worked = []

    async def work(number: int) -> None:
        while (item := await context.take(number)) is not None:
            context.worked.append(item)
            await asyncio.sleep(1)

    async def all_of_them() -> None:
        await asyncio.gather(*map(work, range(8)))

    world(context).run(all_of_them())


@then("each item was worked on once")
def step_each_item_was_worked_on_once(context: Context) -> None:
    assert sorted(context.worked) == list(range(40)), f"{len(context.worked)} were worked on"


@given("a shared list that five agents share")
def step_a_shared_list_that_five_agents_share(context: Context) -> None:
    store = GlobalStore()

    async def add(keys: list[str]) -> None:
        await store.safe_update("tasks", lambda tasks: [*(tasks or []), *keys])

    async def count() -> int:
        return len(await store.get("tasks"))

    context.add, context.count = add, count


@given("a queue that five agents share")
def step_a_queue_that_five_agents_share(context: Context) -> None:
    states = [world(context).open() for _ in range(5)]
    numbers = iter(range(5))

    async def add(keys: list[str]) -> None:
        state = states[next(numbers)]
        await asyncio.sleep(0)
        await state.add_tasks("q", [Task(key, key=key) for key in keys])

    async def count() -> int:
        return (await states[0].stats("q")).waiting

    context.add, context.count = add, count


@when("each of them adds the same three items and two of its own, all at once")
def step_each_of_them_adds_the_same_three_items_and_two_of_its_own(context: Context) -> None:
    async def add_all() -> None:
        same = ["a", "b", "c"]
        await asyncio.gather(*(context.add([*same, f"{n}-1", f"{n}-2"]) for n in range(5)))
        context.counted = await context.count()

    world(context).run(add_all())


@then("there are 13 items")
def step_there_are_13_items(context: Context) -> None:
    assert context.counted == 13, context.counted


# -- one item --------------------------------------------------------------------------------------


def one_item(context: Context, **options: Any) -> None:
    there = world(context)
    context.state, context.other = there.open(), there.open()
    there.run(context.state.add_tasks("q", ["item"], **options))
    context.popped = context.timed = None


@given("an item in a queue")
def step_an_item_in_a_queue(context: Context) -> None:
    one_item(context)


@given("an item in a queue, with {count:d} attempts")
def step_an_item_in_a_queue_with_count_attempts(context: Context, count: int) -> None:
    one_item(context, max_attempts=count)


@given("an item in a list that is popped")
def step_an_item_in_a_list_that_is_popped(context: Context) -> None:
    one_item(context)
    context.popped = PoppingQueue()
    context.popped.items.append("item")


@given("an item in a queue with a timer")
def step_an_item_in_a_queue_with_a_timer(context: Context) -> None:
    one_item(context)
    context.timed = TimedQueue(world(context).clock.time)
    context.timed.waiting.append((0.0, "item"))


@when("the worker dies that has taken it")
def step_the_worker_dies_that_has_taken_it(context: Context) -> None:
    async def die() -> None:
        if context.popped is not None:
            context.popped.claim()
        else:
            await claimed(context.state, 30)
            await context.state.aclose()

    world(context).run(die())


@when("a worker with a lease of 3 seconds forgets its claim")
def step_a_worker_with_a_lease_of_3_seconds_forgets_its_claim(context: Context) -> None:
    async def forget() -> None:
        await claimed(context.state)
        gc.collect()
        await asyncio.sleep(0)

    world(context).run(forget())


@then("another one gets it, 30 seconds later at most")
def step_another_one_gets_it_30_seconds_later_at_most(context: Context) -> None:
    async def take() -> Any:
        await asyncio.sleep(30)
        if context.popped is not None:
            return context.popped.claim()
        claim = await context.other.claim_task("q")
        return claim if claim is None else claim.item

    item = world(context).run(take())
    assert item == "item", item


@when("its worker stands still past its lease, another one works on it, and both complete it")
def step_its_worker_stands_still_past_its_lease_another_one_works(context: Context) -> None:
    there = world(context)

    async def with_timer() -> list[Any]:
        queue = context.timed
        first = queue.claim(3)
        there.stand_still(10)
        queue.complete(queue.claim(3), "second")
        queue.complete(first, "first")
        return queue.results

    async def with_claims() -> list[Any]:
        first = await claimed(context.state)
        there.stand_still(10)
        assert first.lost and "lost" in repr(first), first
        second = await claimed(context.other)
        assert second.token > first.token and second.attempt == 2
        await second.complete("second")
        context.error = await raised(first.complete("first"))
        return list((await context.state.results("q")).values())

    context.results = there.run(with_claims() if context.timed is None else with_timer())


@then("there is one result, that of the second, and the first was told")
def step_there_is_one_result_that_of_the_second_and_the_first_was(context: Context) -> None:
    assert context.results == ["second"], context.results
    assert isinstance(context.error, LeaseLostError), context.error
