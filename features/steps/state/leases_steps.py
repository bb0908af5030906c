from __future__ import annotations

import asyncio
import builtins
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.concurrency.timers import SharedTimer
from rxlanggraph.errors import LeaseLostError, LockTimeoutError, StaleTokenError
from rxlanggraph.state import Lease, State
from support.concurrency.raising import errors_of, raised
from support.state.state_world import World, hold, turns, world

# -- held ------------------------------------------------------------------------------------------


async def is_free(state: State) -> bool:
    try:
        async with hold(state, wait=0):
            return True
    except LockTimeoutError:
        return False


async def look_every_second(context: Context, seconds: int, lease: Lease) -> None:
    """Note whether the lock was free, and the lease lost, at any time."""
    for _ in range(seconds * 10):
        await asyncio.sleep(0.1)
        context.free.append(await is_free(context.other))
        context.lost.append(lease.lost)


@when("its holder stays inside for {seconds:d} seconds")
def step_its_holder_stays_inside_for_seconds_seconds(context: Context, seconds: int) -> None:
    context.free, context.lost = [], []

    async def stay() -> None:
        async with hold(context.state) as lease:
            await look_every_second(context, seconds, lease)
            lease.check()

    world(context).run(stay())


@then("no other caller could have it, and the lease was never lost")
def step_no_other_caller_could_have_it_and_the_lease_was_never_lost(context: Context) -> None:
    assert len(context.lost) > 10
    assert not any(context.free), context.free
    assert not any(context.lost), context.lost


@then("it is free at once when the block has ended")
def step_it_is_free_at_once_when_the_block_has_ended(context: Context) -> None:
    assert world(context).run(is_free(context.other))


async def stay_in_both(context: Context, seconds: int) -> None:
    async def is_other_free() -> bool:
        error = await raised(context.other.lock("other", 3, wait=0).__aenter__())
        return not isinstance(error, LockTimeoutError)

    async with context.state.lock("other", 3), hold(context.state) as lease:
        for _ in range(seconds * 10):
            await asyncio.sleep(0.1)
            context.lost.append(lease.lost)
            context.free += [await is_free(context.other), await is_other_free()]


@when(
    "two locks are held for {seconds:d} seconds, and the loop's task factory raises {error} once "
    "for a renewal"
)
def step_two_locks_are_held(context: Context, seconds: int, error: str) -> None:
    there, errors = world(context), [getattr(builtins, error)]
    context.free, context.lost = [], []

    def make(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        if errors and coroutine.__qualname__.startswith("Heartbeat."):
            raise errors.pop()
        return asyncio.Task(coroutine, loop=loop, **options)

    async def stay() -> asyncio.Task[None]:
        return asyncio.create_task(stay_in_both(context, seconds))

    async def go_on() -> None:
        await asyncio.wait([staying])

    loop = there.run(own_loop())
    loop.set_task_factory(make)
    context.add_cleanup(loop.set_task_factory, None)
    staying = there.run(stay())
    interrupted: list[BaseException] = []
    while not staying.done():  # Ctrl-C ends the run of the loop, not the task
        interrupted += errors_of(lambda: there.run(go_on()))
    assert not errors and staying.exception() is None, staying
    expected = ["KeyboardInterrupt"] if error == "KeyboardInterrupt" else []
    assert [type(each).__name__ for each in interrupted] == expected, interrupted


async def own_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@then("no other caller could have either, and neither lease was ever lost")
def step_no_other_caller_could_have_either(context: Context) -> None:
    assert len(context.lost) > 10
    assert not any(context.free), context.free
    assert not any(context.lost), context.lost


class Item:
    """An item of a timer, which notes when its deadline was met."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.error: Exception | None = None

    def on_deadline(self) -> None:
        self._context.met.append(world(self._context).clock.now - self._context.began)
        if self.error is not None:
            raise self.error


@given("a timer with deadlines after 1, 1 and 2 seconds")
def step_a_timer_with_deadlines_after_1_1_and_2_seconds(context: Context) -> None:
    context.met, context.told = [], []
    loop = world(context).run(own_loop())
    loop.set_exception_handler(lambda _, told: context.told.append(told["exception"]))
    timer, context.began = SharedTimer(loop), loop.time()
    context.add_cleanup(timer.stop)
    context.items = [Item(context) for _ in range(3)]
    for item, seconds in zip(context.items, (1, 1, 2), strict=True):
        timer.set(item, context.began + seconds)


@when("the item of the first one raises")
def step_the_item_of_the_first_one_raises(context: Context) -> None:
    context.items[0].error = KeyError("first")
    world(context).run(asyncio.sleep(3))


@then("the other two are met in time, and the loop is told of the error")
def step_the_other_two_are_met_in_time(context: Context) -> None:
    assert context.met == [1, 1, 2], context.met
    assert context.told == [context.items[0].error], context.told


@when("ten hold it one after the other, in two processes")
def step_ten_hold_it_one_after_the_other_in_two_processes(context: Context) -> None:
    async def hold_it(number: int) -> int:
        async with hold((context.state, context.other)[number % 2]) as lease:
            assert str(lease.token) in repr(lease) and "lost" not in repr(lease)
            return lease.token

    context.tokens = [world(context).run(hold_it(number)) for number in range(10)]


@then("each token is larger than the one before")
def step_each_token_is_larger_than_the_one_before(context: Context) -> None:
    assert context.tokens == sorted(set(context.tokens)), context.tokens


@when("the process of its holder ends without a word")
def step_the_process_of_its_holder_ends_without_a_word(context: Context) -> None:
    there = world(context)

    async def die() -> None:
        await hold(context.state).__aenter__()
        await context.state.aclose()

    there.run(die())


@then("it is free 3 seconds later, and not before")
def step_it_is_free_3_seconds_later_and_not_before(context: Context) -> None:
    async def look() -> list[bool]:
        free = [await is_free(context.other)]
        for seconds in (2.9, 0.2):
            await asyncio.sleep(seconds)
            free.append(await is_free(context.other))
        return free

    assert world(context).run(look()) == [False, False, True]


# -- lost ------------------------------------------------------------------------------------------


async def lose(context: Context, then_do: Any) -> None:
    """Hold the lock, stand still for 10 seconds while another process takes it, and go on."""
    there: World = world(context)
    async with hold(context.state) as lease:
        await context.state.set("k", "mine", token=lease)
        there.stand_still(10)
        async with hold(context.other, wait=0) as theirs:
            await context.other.set("k", "theirs", token=theirs)
            await then_do(lease)


@when("its holder stands still for 10 seconds, and another one takes it")
def step_its_holder_stands_still_for_10_seconds_and_another_one(context: Context) -> None:
    async def look(lease: Lease) -> None:
        context.lost = (lease.lost, repr(lease))
        await turns()
        context.checked = await raised(in_place(lease.check))
        context.written = await raised(context.state.set("k", "mine", token=lease))

    context.error = world(context).run(raised(lose(context, look)))


@when("its block ends in time, and its lease is looked at")
def step_its_block_ends_in_time_and_its_lease_is_looked_at(context: Context) -> None:
    async def look() -> None:
        async with hold(context.state) as lease:
            lease.check()
        context.lost = (lease.lost, repr(lease).replace("released", "lost"))
        context.checked = await raised(in_place(lease.check))

    world(context).run(look())
    assert "block" in str(context.checked), context.checked


@then("the lease of a block that ends with an error says so as well")
def step_the_lease_of_a_block_that_ends_with_an_error_says_so_as(context: Context) -> None:
    leases: list[Lease] = []

    async def fail() -> None:
        async with hold(context.state) as lease:
            leases.append(lease)
            raise KeyError("of the block")

    assert isinstance(world(context).run(raised(fail())), KeyError)
    assert leases[0].lost, leases


async def in_place(fn: Any) -> Any:
    return fn()


@then("lease.lost says so, and lease.check() raises LeaseLostError")
def step_lease_lost_says_so_and_lease_check_raises_leaselosterror(context: Context) -> None:
    assert context.lost[0] is True and "lost" in context.lost[1], context.lost
    assert type(context.checked) is LeaseLostError, context.checked


@then("a write with the old token raises StaleTokenError, and changes nothing")
def step_a_write_with_the_old_token_raises_staletokenerror_and(context: Context) -> None:
    assert type(context.written) is StaleTokenError, context.written
    assert world(context).run(context.state.get("k")).value == "theirs"


@when("its holder stands still for 10 seconds, and then writes without a token")
def step_its_holder_stands_still_for_10_seconds_and_then_writes(context: Context) -> None:
    async def write(_: Lease) -> None:
        await context.state.set("k", "mine")

    world(context).run(raised(lose(context, write)))


@then("what the other one has written is still there")
def step_what_the_other_one_has_written_is_still_there(context: Context) -> None:
    there = world(context).run(context.state.get("k")).value
    assert there == "theirs", there


@when("its holder stands still for 10 seconds, another one takes it, and the block raises KeyError")
def step_its_holder_stands_still_for_10_seconds_another_one_takes(context: Context) -> None:
    async def fail(_: Lease) -> None:
        raise KeyError("of the block")

    context.error = world(context).run(raised(lose(context, fail)))


@when("the server is away for {seconds:g} seconds while it is held")
def step_the_server_is_away_for_seconds_seconds_while_it_is_held(
    context: Context, seconds: float
) -> None:
    there = world(context)
    context.free, context.lost, context.lost_at = [], [], None

    async def stay() -> None:
        server = there.server(context.state)
        async with hold(context.state) as lease:
            server.gone = float("inf")
            began = there.clock.now
            while there.clock.now < began + seconds:
                await asyncio.sleep(0.1)
                if lease.lost and context.lost_at is None:
                    context.lost_at = there.clock.now - began
            server.gone = 0
            await asyncio.sleep(0.5)
            await look_every_second(context, 5, lease)

    context.error = there.run(raised(stay()))


@then("the lease was lost after 3 seconds")
def step_the_lease_was_lost_after_3_seconds(context: Context) -> None:
    assert 2.9 < context.lost_at < 3.2, context.lost_at
    assert isinstance(context.error, LeaseLostError), context.error


@when("an item is claimed, expires, and is claimed by another, who writes with its claim")
def step_an_item_is_claimed_expires_and_is_claimed_by_another_who(context: Context) -> None:
    async def work() -> None:
        other = context.other
        await context.state.add_tasks("q", ["item"])
        first = await context.state.claim_task("q", lease=3)
        world(context).stand_still(10)
        second = await other.claim_task("q", lease=3)
        await other.set("k", "second", token=second)
        context.error = await raised(context.state.set("k", "first", token=first))
        await second.complete()

    context.other = world(context).open()
    world(context).run(work())
