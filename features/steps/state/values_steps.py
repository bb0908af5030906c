from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import redis.asyncio
from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state import State
from support.concurrency.raising import raised
from support.controls.naive_state import FileStore, GlobalStore, RowStore
from support.state.state_world import World, together, world

Update = Callable[[str, Callable[[Any], Any]], Awaitable[Any]]


# -- the ways of many ------------------------------------------------------------------------------


def shared(way: str) -> Callable[[World], Update]:
    """A way of ours, each time by one of three processes."""

    def make(there: World) -> Update:
        states = [there.open() for _ in range(3)]
        numbers = iter(range(1000))

        async def increment(state: State, key: str, fn: Callable[[Any], Any]) -> None:
            await state.increment_counter(key, fn(0))

        async def safe_update(state: State, key: str, fn: Callable[[Any], Any]) -> None:
            await state.safe_update(key, fn, attempts=100)

        async def transact(state: State, key: str, fn: Callable[[Any], Any]) -> None:
            async def change(transaction: Any) -> None:
                transaction.set(key, fn((await transaction.get(key)).value))

            await state.transact(change, attempts=100)

        async def locked(state: State, key: str, fn: Callable[[Any], Any]) -> None:
            async with state.lock(key) as lease:
                value = (await state.get(key)).value
                await asyncio.sleep(0)
                await state.set(key, fn(value), token=lease)

        ways = {
            "increment_counter": increment,
            "safe_update": safe_update,
            "transact": transact,
            "A value under lock": locked,
        }

        async def update(key: str, fn: Callable[[Any], Any]) -> None:
            await asyncio.sleep(0)  # all of them have begun
            await ways[way](states[next(numbers) % 3], key, fn)

        return update

    return make


def naive(context: Context, way: str) -> GlobalStore:
    if way == "a file":
        folder = tempfile.TemporaryDirectory()
        context.add_cleanup(folder.cleanup)
        return FileStore(Path(folder.name))
    if way == "a row that is updated":
        store = RowStore()
        context.add_cleanup(store.close)
        return store
    return GlobalStore()


@given("{way} of several agents")
def step_way_of_several_agents(context: Context, way: str) -> None:
    there = world(context)
    if way in ("increment_counter", "safe_update", "transact", "a value under lock"):
        context.update = shared(way.replace("a value", "A value"))(there)
        state = there.states[0]

        async def get(key: str) -> Any:
            return (await state.get(key)).value

        context.get = get
    else:
        store = naive(context, way)
        context.update, context.get = store.safe_update, store.get


@when("each of them adds 1 to the same counter, all at once")
def step_each_of_them_adds_1_to_the_same_counter_all_at_once(context: Context) -> None:
    calls = [context.update("n", lambda value: (value or 0) + 1) for _ in range(100)]
    world(context).run(together(calls))
    context.counter = world(context).run(context.get("n"))


@when("each of 100 clients adds 1 to the same counter, all at once")
def step_each_of_100_clients_adds_1_to_the_same_counter_all_at_once(context: Context) -> None:
    async def count() -> int:
        read = asyncio.Barrier(100)

        async def add(client: redis.asyncio.Redis) -> None:
            value = int(await client.get("n") or 0)
            await read.wait()
            await client.set("n", value + 1)

        async with redis.asyncio.Redis.from_url(context.url) as client:
            await together([add(client) for _ in range(100)])
            return int(await client.get("n"))

    context.counter = asyncio.run(count())


@when("each of them appends its number to the same list, all at once")
def step_each_of_them_appends_its_number_to_the_same_list_all_at(context: Context) -> None:
    async def append(number: int) -> None:
        await context.update("list", lambda value: [*(value or []), number])

    world(context).run(together([append(number) for number in range(20)]))


@then("all 20 numbers are in the list")
def step_all_20_numbers_are_in_the_list(context: Context) -> None:
    there = world(context).run(context.get("list"))
    assert sorted(there) == list(range(20)), there


@when("each of them sets another option of the same configuration, both at once")
def step_each_of_them_sets_another_option_of_the_same_configuration(context: Context) -> None:
    async def put(name: str) -> None:
        await context.update("configuration", lambda value: {**(value or {}), name: True})

    world(context).run(together([put("retries"), put("tracing")]))


@then("the configuration has both options")
def step_the_configuration_has_both_options(context: Context) -> None:
    there = world(context).run(context.get("configuration"))
    assert there == {"retries": True, "tracing": True}, there


# -- a shared state --------------------------------------------------------------------------------


@given("a shared state")
def step_a_shared_state(context: Context) -> None:
    context.state = world(context).open()


# -- time ------------------------------------------------------------------------------------------


@when("a hundred agents set a key if it does not exist, all at once")
def step_a_hundred_agents_set_a_key_if_it_does_not_exist_all_at(context: Context) -> None:
    states = [context.state, world(context).open()]
    calls = [states[number % 2].set_if_not_exists("k", number) for number in range(100)]
    context.told = world(context).run(together(calls))
    context.versions = [
        *getattr(context, "versions", []),
        world(context).run(context.state.get("k")).version,
    ]


@then("one of them set it, with a newer version than before")
def step_one_of_them_set_it_with_a_newer_version_than_before(context: Context) -> None:
    assert sum(context.told) == 1, context.told
    assert context.versions[-1] > max([0, *context.versions[:-1]]), context.versions


@then("none of them set it")
def step_none_of_them_set_it(context: Context) -> None:
    assert not any(context.told), context.told


@when("{seconds:g} seconds of the server pass")
def step_seconds_seconds_of_the_server_pass(context: Context, seconds: float) -> None:
    world(context).run(asyncio.sleep(seconds))


# -- deep ones -------------------------------------------------------------------------------------


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def called_down(calls: int, read: Callable[[], Any]) -> Any:
    """What it returns where each call takes a part of the stack of C, too."""
    return next(map(partial(called_down, calls - 1), [read])) if calls else read()


@when("the deepest list that is accepted is added to a queue, and its claim is read 50 calls down")
def step_the_deepest_list_that_is_accepted_is_added_to_a_queue(context: Context) -> None:
    state = context.state

    async def work() -> None:
        accepted, refused = 1, 100_000
        while refused - accepted > 1:
            middle = (accepted + refused) // 2
            if await raised(state.add_tasks("other", [nested(middle)])):
                refused = middle
            else:
                accepted = middle
        context.value = nested(accepted)
        await state.add_tasks("q", [context.value])
        async with await state.claim_task("q") as claim:
            context.read = called_down(50, lambda: claim.item)

    world(context).run(work())


@then("it is equal to what was added")
def step_it_is_equal_to_what_was_added(context: Context) -> None:
    assert context.read == context.value
