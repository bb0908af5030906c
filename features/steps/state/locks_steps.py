from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import LockTimeoutError, StateClosedError
from rxlanggraph.state import State
from support.concurrency.raising import raised
from support.controls.naive_state import GlobalStore
from support.state.state_world import hold, turns, world
from support.state.state_world import slowly as late

# -- one holder ------------------------------------------------------------------------------------


class Flag(GlobalStore):
    """A lock that is looked at, and taken if it is free."""

    @contextlib.asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        while await self.get(key):  # noqa: ASYNC110 - as one finds it
            await asyncio.sleep(0.1)
        await asyncio.sleep(0)
        self.write(key, True)
        yield
        self.write(key, False)


@given("ten agents of three processes, {under_what}")
def step_ten_agents_of_three_processes_under_what(context: Context, under_what: str) -> None:
    there = world(context)
    states = [there.open() for _ in range(3)]
    flag = Flag()
    if under_what == "under state.lock":
        context.enter = lambda number: states[number % 3].lock("l")
    else:
        context.enter = lambda _: flag.lock("l")


@when("each of them goes in, reads, waits, and writes one more")
def step_each_of_them_goes_in_reads_waits_and_writes_one_more(context: Context) -> None:
    context.inside, context.most, context.counted = 0, 0, 0

    async def work(number: int) -> None:
        async with context.enter(number):
            context.inside += 1
            context.most = max(context.most, context.inside)
            counted = context.counted
            await asyncio.sleep(1)
            context.counted = counted + 1
            context.inside -= 1

    async def all_of_them() -> None:
        await asyncio.gather(*map(work, range(10)))

    world(context).run(all_of_them())


@then("there were never two inside, and they have counted 10")
def step_there_were_never_two_inside_and_they_have_counted_10(context: Context) -> None:
    assert (context.most, context.counted) == (1, 10), (context.most, context.counted)


# -- waiting ---------------------------------------------------------------------------------------


@given("a lock with a time to live of 3 seconds")
def step_a_lock_with_a_time_to_live_of_3_seconds(context: Context) -> None:
    there = world(context)
    context.state, context.other = there.open(), there.open()


async def waiting(context: Context, state: State, wait: float) -> None:
    began = world(context).clock.now
    context.error = await raised(hold(state, wait=wait).__aenter__())
    context.took = world(context).clock.now - began


@when("it is held, and another {waiter} waits {seconds:g} seconds for it")
def step_it_is_held_and_another_waiter_waits_seconds_seconds_for_it(
    context: Context, waiter: str, seconds: float
) -> None:
    async def wait() -> None:
        async with hold(context.state):
            await waiting(context, context.state if waiter == "task" else context.other, seconds)

    world(context).run(wait())


@when("it is held, one task waits forever, and another waits 2.5 seconds")
def step_it_is_held_one_task_waits_forever_and_another_waits_2_5(context: Context) -> None:
    async def wait() -> None:
        async with hold(context.other):
            first = asyncio.ensure_future(hold(context.state).__aenter__())
            await turns()
            await waiting(context, context.state, 2.5)
            first.cancel()
            await asyncio.wait([first])

    world(context).run(wait())


@then("LockTimeoutError is raised after {seconds:g} seconds")
def step_locktimeouterror_is_raised_after_seconds_seconds(context: Context, seconds: float) -> None:
    assert isinstance(context.error, LockTimeoutError), context.error
    assert isinstance(context.error, TimeoutError)
    assert abs(context.took - seconds) < 1e-6, context.took


@when("five tasks of a process ask for it, and each holds it for a second")
def step_five_tasks_of_a_process_ask_for_it_and_each_holds_it_for_a(context: Context) -> None:
    context.held = []

    async def take(number: int) -> None:
        async with hold(context.state):
            context.held.append(number)
            await asyncio.sleep(1)

    async def all_of_them() -> None:
        began = world(context).clock.now
        await asyncio.gather(*map(take, range(5)))
        context.took = world(context).clock.now - began

    world(context).run(all_of_them())


@then("they had it in the order of asking, with no time between them")
def step_they_had_it_in_the_order_of_asking_with_no_time_between(context: Context) -> None:
    assert context.held == [0, 1, 2, 3, 4], context.held
    assert abs(context.took - 5) < 1e-6, context.took


@when("another process waits for it, and it is held for 10 seconds")
def step_another_process_waits_for_it_and_it_is_held_for_10_seconds(context: Context) -> None:
    async def take() -> float:
        async with hold(context.other):
            return world(context).clock.now

    async def wait() -> None:
        async with hold(context.state):
            taking = asyncio.ensure_future(take())
            await asyncio.sleep(10)
        freed = world(context).clock.now
        context.took = await taking - freed

    world(context).run(wait())


@then("it had it within 0.3 seconds after that")
def step_it_had_it_within_0_3_seconds_after_that(context: Context) -> None:
    assert 0 <= context.took <= 0.3, context.took


async def slowly(call: Any) -> Any:
    result = await call()
    await asyncio.sleep(1)
    return result


async def cancelled_after(context: Context, *pauses: float) -> None:
    """Hold the lock in a task, and cancel that after each of the pauses."""

    async def stay_inside() -> None:
        async with hold(context.state):
            await asyncio.sleep(100)

    task = asyncio.ensure_future(stay_inside())
    for pause in pauses:
        await asyncio.sleep(pause)
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), task


@when("a task that takes it is cancelled {moment}")
def step_a_task_that_takes_it_is_cancelled_moment(context: Context, moment: str) -> None:
    there = world(context)
    server = there.server(context.state)

    async def given() -> None:
        server.shaken = slowly
        await cancelled_after(context, 0.5)

    async def given_twice() -> None:
        server.shaken = slowly
        await cancelled_after(context, 0.3, 0.3)

    async def given_and_given_back() -> None:
        server.shaken = late
        await cancelled_after(context, 0.5, 0.8)

    async def beside(holder: State) -> None:
        async with hold(holder):
            await cancelled_after(context, 0.5)

    async def given_back() -> None:
        asyncio.get_running_loop().call_later(0.7, lambda: setattr(server, "shaken", slowly))
        await cancelled_after(context, 1.0, 0.5)

    async def given_back_late() -> None:
        asyncio.get_running_loop().call_later(0.7, lambda: setattr(server, "shaken", late))
        await cancelled_after(context, 1.0, 0.3, 0.3, 0.1)

    moments: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "while the server is giving it": given,
        "twice while the server is giving it": given_twice,
        "while it is given, and given back": given_and_given_back,
        "while it waits for its turn": lambda: beside(context.state),
        "while another process has it": lambda: beside(context.other),
        "inside": lambda: cancelled_after(context, 0.5),
        "while it gives it back": given_back,
        "three times while it gives it back": given_back_late,
    }
    there.run(moments[moment]())


@when("it is held, and the state is closed in which a task waits for it")
def step_it_is_held_and_the_state_is_closed_in_which_a_task_waits(context: Context) -> None:
    async def close() -> None:
        async with hold(context.other):
            began = world(context).clock.now
            task = asyncio.ensure_future(raised(hold(context.state).__aenter__()))
            await turns()
            await context.state.aclose()
            context.error = await task
            context.took = world(context).clock.now - began

    world(context).run(close())


@then("StateClosedError is raised at once")
def step_stateclosederror_is_raised_at_once(context: Context) -> None:
    assert isinstance(context.error, StateClosedError), context.error
    assert context.took == 0


@when("the state is closed while the server gives a lock and an item")
def step_the_state_is_closed_while_the_server_gives_a_lock_and_an(context: Context) -> None:
    state = context.state

    async def close() -> None:
        await state.add_tasks("q", ["item"])
        world(context).server(state).shaken = slowly
        calls = [hold(state).__aenter__(), state.claim_task("q", lease=3)]
        asking = [asyncio.ensure_future(raised(call)) for call in calls]
        await asyncio.sleep(0.5)
        await state.aclose()
        context.raised = [await each for each in asking]

    world(context).run(close())


@then("both who asked get StateClosedError, and another process has both within 3 seconds")
def step_both_who_asked_get_stateclosederror_and_another_process(context: Context) -> None:
    async def take() -> Any:
        await asyncio.sleep(3)
        async with hold(context.other, wait=0):
            return await context.other.claim_task("q")

    assert [type(error) for error in context.raised] == [StateClosedError] * 2, context.raised
    assert world(context).run(take()).attempt == 2
