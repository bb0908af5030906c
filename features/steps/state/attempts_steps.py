from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import InvalidArgumentError, UsageError
from rxlanggraph.state import Backoff, Claim
from support.concurrency.patching import patch
from support.concurrency.raising import check_error, error_of, raised
from support.state.state_world import World, claimed, slowly, turns, world

# -- attempts --------------------------------------------------------------------------------------


@when("each attempt fails with an error, and asks for a retry in 5 seconds")
def step_each_attempt_fails_with_an_error_and_asks_for_a_retry_in_5(context: Context) -> None:
    context.attempts = []

    async def work() -> None:
        while not await context.other.dead_letters("q"):
            claim = await claimed(context.state, worker="w", wait=20)
            context.attempts.append((claim.attempt, world(context).clock.now))
            await claim.fail(ValueError("no answer"), retry_in=5)

    world(context).run(work())


@given("its pauses are declared: 2 seconds, three times as long each time, 10 at most")
def step_its_pauses_are_declared_2_seconds_three_times_as_long(context: Context) -> None:
    async def declare() -> None:
        backoff = Backoff(first=2, factor=3, longest=10, jitter=0)
        context.state.declare_queue("q", backoff=backoff)

    world(context).run(declare())


@when("each attempt fails with an error")
def step_each_attempt_fails_with_an_error(context: Context) -> None:
    context.attempts = []

    async def work() -> None:
        while not await context.other.dead_letters("q"):
            claim = await claimed(context.state, worker="w", wait=20)
            context.attempts.append((claim.attempt, world(context).clock.now))
            with contextlib.suppress(ValueError):
                async with claim:
                    raise ValueError("no answer")

    world(context).run(work())


@then("the pauses were 2, 6, 10 and 10 seconds")
def step_the_pauses_were_2_6_10_and_10_seconds(context: Context) -> None:
    pauses = [later - earlier for (_, earlier), (_, later) in pairwise(context.attempts)]
    expected = (2, 6, 10, 10)
    assert len(pauses) == len(expected), pauses
    assert all(a <= b <= a + 0.3 for a, b in zip(expected, pauses, strict=True)), pauses


@then("1,000 pauses after each attempt lie between half of it and all of it")
def step_1_000_pauses_after_each_attempt_lie_between_half_of_it(context: Context) -> None:
    backoff = Backoff(first=1, factor=2, longest=100, jitter=0.5)
    for attempt, whole in ((1, 1), (2, 2), (7, 64), (8, 100), (2**31 - 1, 100)):
        pauses = [backoff.pause(attempt) for _ in range(1000)]
        assert whole / 2 <= min(pauses) < max(pauses) <= whole + 1e-9, (attempt, pauses)


@then("a Backoff of no length, of a factor below 1, or with more jitter than 1 is refused")
def step_a_backoff_of_no_length_of_a_factor_below_1(context: Context) -> None:
    for wrong in ({"first": 0}, {"longest": 0}, {"factor": 0.5}, {"jitter": 1.5}):
        check_error(error_of(lambda wrong=wrong: Backoff(**wrong)), "InvalidArgumentError")
    for wrong in ({"first": "1"}, {"jitter": None}):
        check_error(error_of(lambda wrong=wrong: Backoff(**wrong)), "InvalidTypeError")


@then("there were 3 attempts, 5 seconds apart")
def step_there_were_3_attempts_5_seconds_apart(context: Context) -> None:
    numbers, times = zip(*context.attempts, strict=True)
    assert numbers == (1, 2, 3), numbers
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert all(5 <= pause <= 5.3 for pause in pauses), pauses


@then("the dead letter tells the item, the attempts, the worker and the error")
def step_the_dead_letter_tells_the_item_the_attempts_the_worker_and(context: Context) -> None:
    (dead,) = world(context).run(context.other.dead_letters("q"))
    assert (dead.item, dead.attempts, dead.worker) == ("item", 3, "w"), dead
    assert dead.error == {"type": "ValueError", "message": "no answer"}, dead


@when("the dead letters are put back")
def step_the_dead_letters_are_put_back(context: Context) -> None:
    assert world(context).run(context.other.requeue("q")) == 1


@then("it is attempt 1 again")
def step_it_is_attempt_1_again(context: Context) -> None:
    assert world(context).run(claimed(context.state)).attempt == 1


@when("its first attempt fails for good")
def step_its_first_attempt_fails_for_good(context: Context) -> None:
    async def work() -> None:
        await (await claimed(context.state)).fail("no such thing", final=True)

    world(context).run(work())


@when("3 workers die that have claimed it")
def step_3_workers_die_that_have_claimed_it(context: Context) -> None:
    there: World = world(context)
    for _ in range(3):
        worker = there.open()
        there.run(claimed(worker))
        there.run(worker.aclose())
        there.stand_still(4)


@then("it is a dead letter, after 1 attempt")
def step_it_is_a_dead_letter_after_1_attempt(context: Context) -> None:
    (dead,) = world(context).run(context.other.dead_letters("q"))
    assert (dead.attempts, dead.error) == (1, "no such thing"), dead


@then("it is a dead letter, after 3 attempts, whose error tells that the lease expired")
def step_it_is_a_dead_letter_after_3_attempts_whose_error_tells(context: Context) -> None:
    (dead,) = world(context).run(context.other.dead_letters("q"))
    assert dead.attempts == 3 and dead.error["type"] == "LeaseLostError", dead


# -- blocks ----------------------------------------------------------------------------------------


async def until_its_end(context: Context, claim: Claim, ends: str) -> None:
    if ends == "has released it":
        await claim.release()
    elif ends == "has completed it":
        await claim.complete()
    elif ends == "is cancelled":
        await asyncio.sleep(100)
    elif ends == "raises an error":
        raise KeyError("of the block")
    elif ends == "raises an error, after the item was lost":
        world(context).stand_still(10)
        await claimed(context.other)
        raise KeyError("of the block")
    elif ends == "raises an error, which the server does not take":
        too_long = InvalidArgumentError("longer than the server takes")
        patch(context, context.state.backend, "task_fail", mock.AsyncMock(side_effect=too_long))
        raise KeyError("of the block")


@when("a block around its claim {ends}")
def step_a_block_around_its_claim_ends(context: Context, ends: str) -> None:
    async def block() -> None:
        async with await claimed(context.state) as claim:
            await until_its_end(context, claim, ends)

    async def work() -> None:
        task = asyncio.ensure_future(block())
        if ends == "is cancelled":
            await turns()
            task.cancel()
        await asyncio.wait([task])
        context.error = None if task.cancelled() else task.exception()

    world(context).run(work())


@then("the item is complete")
def step_the_item_is_complete(context: Context) -> None:
    assert world(context).run(context.other.stats("q")).completed == 1


@then("the item waits for its attempt {attempt:d}")
def step_the_item_waits_for_its_attempt_attempt(context: Context, attempt: int) -> None:
    assert world(context).run(claimed(context.other)).attempt == attempt


@when("two tasks complete the same claim at once")
def step_two_tasks_complete_the_same_claim_at_once(context: Context) -> None:
    async def work() -> list[Any]:
        claim = await claimed(context.state)
        return await asyncio.gather(raised(claim.complete()), raised(claim.complete()))

    context.raised = world(context).run(work())


@then("one of them gets UsageError, and the item is complete")
def step_one_of_them_gets_usageerror_and_the_item_is_complete(context: Context) -> None:
    assert [type(error) for error in context.raised] == [type(None), UsageError], context.raised
    assert world(context).run(context.other.stats("q")).completed == 1


@when("its worker is cancelled {how_often} while the server completes it")
def step_its_worker_is_cancelled_how_often_while_the_server(
    context: Context, how_often: str
) -> None:
    server = world(context).server(context.state)

    async def work() -> None:
        claim = context.claim = await claimed(context.state)
        server.shaken = slowly
        task = asyncio.ensure_future(claim.complete("done"))
        for _ in range(2 if how_often == "twice" else 1):
            await asyncio.sleep(0.3)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task

    world(context).run(work())


@when("all tasks of a loop that starts none eagerly are cancelled as its worker completes it")
def step_all_tasks_of_a_loop_that_starts_none_eagerly_are_cancelled(context: Context) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        claim = context.claim = await claimed(context.state)
        loop.set_task_factory(lambda loop, call, **more: asyncio.Task(call, loop=loop, **more))
        try:
            completing = asyncio.ensure_future(claim.complete("done"))
            await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.wait([completing])
        finally:
            loop.set_task_factory(None)
        assert completing.cancelled(), completing

    world(context).run(work())


@then("the claim is open, and can be completed")
def step_the_claim_is_open_and_can_be_completed(context: Context) -> None:
    async def complete() -> list[Any]:
        await context.claim.complete("done")
        return list((await context.other.results("q")).values())

    assert world(context).run(complete()) == ["done"]


@then("it is complete, or can be completed")
def step_it_is_complete_or_can_be_completed(context: Context) -> None:
    async def complete() -> list[Any]:
        if "open" in repr(context.claim):
            await context.claim.complete("done")
        return list((await context.other.results("q")).values())

    assert world(context).run(complete()) == ["done"]
