from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph import errors
from rxlanggraph.concurrency import tasks
from rxlanggraph.concurrency.tasks import run_shielded
from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import Claim, leases
from rxlanggraph.state.backend import NewTask
from rxlanggraph.state.retry import compensate
from support.concurrency.patching import patch
from support.concurrency.raising import raised
from support.concurrency.tasks import run
from support.state.claims_dropped import is_gone_after
from support.state.state_world import claimed, slowly, world

# -- dropped ---------------------------------------------------------------------------------------


@when("a claim is dropped after {call} has raised an error, as the server was away")
def step_a_claim_is_dropped_after_call_has_raised_an_error(context: Context, call: str) -> None:
    context.is_gone = run(is_gone_after(call))


@then("nothing refers to the claim")
def step_nothing_refers_to_the_claim(context: Context) -> None:
    assert context.is_gone


# -- held and lost ---------------------------------------------------------------------------------


@when("a worker with a lease of 3 seconds works on it for 100 seconds")
def step_a_worker_with_a_lease_of_3_seconds_works_on_it_for_100(context: Context) -> None:
    context.taken = []

    async def work() -> None:
        claim = await claimed(context.state)
        for _ in range(100):
            await asyncio.sleep(1)
            context.taken.append(await context.other.claim_task("q"))
            assert not claim.lost
        await claim.complete(claim.attempt)

    world(context).run(work())


@when("a worker with a lease of 3 seconds extends it to 60, and stands still for 50")
def step_a_worker_with_a_lease_of_3_seconds_extends_it_to_60_and(context: Context) -> None:
    async def work() -> None:
        claim = await claimed(context.state)
        await claim.extend(60)
        world(context).stand_still(50)
        context.taken = [await context.other.claim_task("q")]
        await claim.extend()
        await claim.complete(claim.attempt)

    world(context).run(work())


@then("no other caller could have it, and it was complete in its first attempt")
def step_no_other_caller_could_have_it_and_it_was_complete_in_its(context: Context) -> None:
    assert not any(context.taken), context.taken
    results = world(context).run(context.state.results("q"))
    assert list(results.values()) == [1], results


@when("a worker has lost it to another one, and calls {method}")
def step_a_worker_has_lost_it_to_another_one_and_calls_method(
    context: Context, method: str
) -> None:
    async def lose() -> None:
        claim = await claimed(context.state)
        world(context).stand_still(10)
        context.theirs = await claimed(context.other)
        call = getattr(claim, method)
        arguments = ["error"] if method == "fail" else []
        context.errors = [await raised(call(*arguments)) for _ in range(2)]
        assert repr(claim).endswith("lost>"), claim

    world(context).run(lose())


@when("another program adds one that is nested {depth} deep, and both are claimed in one step")
def step_another_program_adds_one_that_is_nested_depth_deep(context: Context, depth: str) -> None:
    levels = int(depth.replace(",", ""))
    deep = NewTask("deep", "[" * levels + "]" * levels, None, 0, 0.0, None, 5)

    async def work() -> None:
        await context.state.backend.tasks_add("q", [deep])
        for claim in await context.state.claim_tasks("q", 2):
            with contextlib.suppress(errors.UndecodableError):
                async with claim:
                    await claim.complete(claim.item)
                    assert claim.item is claim.item

    world(context).run(work())


@then("the first one is complete, and the second one waits for its next attempt")
def step_the_first_one_is_complete_and_the_second_one_waits(context: Context) -> None:
    stats = world(context).run(context.state.stats("q"))
    assert (stats.completed, stats.waiting, stats.claimed) == (1, 1, 0), stats


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@when("its only attempt fails {where} with an exception whose __str__ raises RuntimeError")
def step_its_only_attempt_fails_where_with_an_exception_whose_str(
    context: Context, where: str
) -> None:
    async def work(claim: Claim) -> None:
        async with claim:
            raise MuteError

    async def fail() -> None:
        claim = await claimed(context.state)
        if where == "in its block":
            context.raised = await raised(work(claim))
            claim = await claimed(context.state)
        else:
            context.raised = MuteError()
        await claim.fail(context.raised, final=True)
        (context.dead,) = await context.state.dead_letters("q")

    world(context).run(fail())


@then("the exception is what came out, and the item is a dead letter that names it and says so")
def step_the_exception_is_what_came_out_and_the_item_is_a_dead(context: Context) -> None:
    assert type(context.raised) is MuteError, type(context.raised)
    message = "(its __str__ raised RuntimeError)"
    assert context.dead.error == {"type": "MuteError", "message": message}, context.dead


@then("the other one's claim still holds")
def step_the_other_ones_claim_still_holds(context: Context) -> None:
    world(context).run(context.theirs.complete())


@when("its worker stands still past its lease, and completes it")
def step_its_worker_stands_still_past_its_lease_and_completes_it(context: Context) -> None:
    async def work() -> None:
        claim = await claimed(context.state)
        world(context).stand_still(10)
        assert (await context.other.stats("q")).waiting == 1
        await claim.complete("second")

    world(context).run(work())


# -- completed -------------------------------------------------------------------------------------


@when("the server goes, and its worker completes it in vain, and again 10 seconds later")
def step_the_server_goes_and_its_worker_completes_it_in_vain_and(context: Context) -> None:
    async def work() -> None:
        server = world(context).server(context.state)
        claim = await claimed(context.state, 30)
        server.gone = float("inf")
        error = await raised(claim.complete("first"))
        assert isinstance(error, StateUnavailableError), error
        await asyncio.sleep(10)
        server.gone = 0
        await asyncio.sleep(50)  # heartbeats have gone on
        assert not claim.lost
        await claim.complete("second")

    world(context).run(work())


@when("{count:d} claims and locks are held while the server is away for a minute, two times")
def step_count_claims_and_locks_are_held_while_the_server_is_away(
    context: Context, count: int
) -> None:
    records: list[logging.LogRecord] = []
    patch(context, leases._log, "handle", records.append)

    async def work() -> None:
        state, server = context.state, world(context).server(context.state)
        await state.add_tasks("q", range(count))
        async with contextlib.AsyncExitStack() as held:
            claims = [await claimed(state, 120) for _ in range(count // 2)]
            for number in range(count // 2):
                await held.enter_async_context(state.lock(f"l{number}", 120))
            for _ in range(2):
                server.gone = float("inf")
                await asyncio.sleep(60)
                server.gone = 0
                await asyncio.sleep(60)
            for claim in claims:
                await claim.complete("second")

    world(context).run(work())
    context.logged = [record.getMessage() for record in records]


@then('{count:d} warnings were logged, which say "{text}"')
def step_count_warnings_were_logged_which_say(context: Context, count: int, text: str) -> None:
    assert len(context.logged) == count, context.logged
    assert all(text in each for each in context.logged), context.logged


@then("there is one result, and no error was raised")
def step_there_is_one_result_and_no_error_was_raised(context: Context) -> None:
    results = world(context).run(context.state.results("q"))
    assert list(results.values()) == ["second"], results


@when("its worker completes it after its state was closed")
def step_its_worker_completes_it_after_its_state_was_closed(context: Context) -> None:
    async def work() -> None:
        claim = await claimed(context.state)
        await context.state.aclose()
        context.error = await raised(claim.complete())

    world(context).run(work())


@when("the server goes while its worker completes it, and the state is closed meanwhile")
def step_the_server_goes_while_its_worker_completes_it_and_the(context: Context) -> None:
    server = world(context).server(context.state)

    async def slowly_away(_: object) -> None:
        await asyncio.sleep(1)
        raise StateUnavailableError("the server is gone")

    async def work() -> None:
        claim = await claimed(context.state)
        server.shaken = slowly_away
        completing = asyncio.ensure_future(raised(claim.complete()))
        await asyncio.sleep(0.5)
        await context.state.aclose()
        context.error = await completing

    world(context).run(work())


@then("it is told {error}, and another one gets it, 30 seconds later at most")
def step_it_is_told_error_and_another_one_gets_it_30_seconds_later(
    context: Context, error: str
) -> None:
    assert type(context.error) is getattr(errors, error), repr(context.error)

    async def take_later() -> int:
        await asyncio.sleep(30)
        return (await claimed(context.other)).attempt

    assert world(context).run(take_later()) == 2


@when("its worker completes it on another loop")
def step_its_worker_completes_it_on_another_loop(context: Context) -> None:
    async def take() -> None:
        context.claim = await claimed(context.state)

    world(context).run(take())
    context.error = run(raised(context.claim.complete()))


@then("it is told WrongThreadError, and no other worker gets it before it is complete")
def step_it_is_told_wrongthreaderror_and_no_other_worker_gets_it(context: Context) -> None:
    async def complete() -> None:
        await asyncio.sleep(30)
        assert await context.other.claim_task("q") is None
        await context.claim.complete()

    assert isinstance(context.error, errors.WrongThreadError), context.error
    world(context).run(complete())


# -- at the same time ------------------------------------------------------------------------------


@when("one task extends its claim, and another one completes it meanwhile")
def step_one_task_extends_its_claim_and_another_one_completes_it(context: Context) -> None:
    async def work() -> None:
        claim = await claimed(context.state, 30)
        world(context).server(context.state).shaken = slowly
        extending = asyncio.ensure_future(claim.extend())
        await asyncio.sleep(0.5)
        await claim.complete("second")
        await extending
        await asyncio.sleep(60)
        await context.state.aclose()

    world(context).run(work())
    context.state = context.other


@when("a heartbeat of its claim takes 5 seconds, and the claim is extended meanwhile")
def step_a_heartbeat_of_its_claim_takes_5_seconds_and_the_claim_is(context: Context) -> None:
    context.renewals = []
    server, clock = world(context).server(context.state), world(context).clock
    renew, pauses = server.task_renew, iter([5])

    async def slow_once(*args: Any) -> Any:
        began = clock.now
        await asyncio.sleep(next(pauses, 0))
        context.renewals.append((began, clock.now))
        return await renew(*args)

    async def work() -> None:
        claim = await claimed(context.state, 3)
        await asyncio.sleep(1.5)
        await claim.extend()
        await asyncio.sleep(8)
        await claim.complete()

    patch(context, server, "task_renew", slow_once)
    world(context).run(work())


@then("the server has seen one renewal at a time, but for the extension")
def step_the_server_has_seen_one_renewal_at_a_time_but_for_the(context: Context) -> None:
    extension, slow, *later = context.renewals
    assert slow[1] - slow[0] == 5, slow
    assert slow[0] < extension[0] == extension[1] < slow[1], extension
    assert later and all(began >= slow[1] for began, _ in later), later


@when("its completion is cancelled while a renewal ends, which takes 1 second")
def step_its_completion_is_cancelled_while_a_renewal_ends_which(context: Context) -> None:
    server = world(context).server(context.state)
    renew, endings = server.task_renew, iter([1])

    async def slow_to_end(*args: Any) -> Any:
        for ending in endings:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(ending)
                raise
        return await renew(*args)

    async def work() -> None:
        claim = await claimed(context.state, 3)
        await asyncio.sleep(1.5)
        completing = asyncio.ensure_future(claim.complete())
        for _ in range(2):
            await asyncio.sleep(0.1)
            completing.cancel()
        await asyncio.wait([completing])
        context.was_cancelled = completing.cancelled()
        await asyncio.sleep(10)
        context.was_lost = claim.lost
        await claim.complete()

    patch(context, server, "task_renew", slow_to_end)
    patch(context, tasks, "_GRACE_SECONDS", 0.0)
    world(context).run(work())


@then("the claim is open, was renewed again in time, and can be completed")
def step_the_claim_is_open_was_renewed_again_in_time_and_can_be(context: Context) -> None:
    assert context.was_cancelled and not context.was_lost, context.was_lost


@when("a task is cancelled while the server gives it the item, and another one waits for an item")
def step_a_task_is_cancelled_while_the_server_gives_it_the_item_and(context: Context) -> None:
    async def work() -> None:
        given_back = slow_claims(context)
        task = asyncio.ensure_future(context.state.claim_task("q"))
        await asyncio.sleep(0.1)
        other = asyncio.ensure_future(context.state.claim_task("q", wait=100))
        await asyncio.sleep(0.4)
        task.cancel()
        context.claim = await other
        context.claimed = asyncio.get_running_loop().time()
        await asyncio.wait([task])
        assert task.cancelled(), task
        (context.given_back,) = given_back
        await context.claim.complete()

    world(context).run(work())


@then("the other one has it, in attempt 1, as soon as it was given back")
def step_the_other_one_has_it_in_attempt_1_as_soon_as_it_was_given(context: Context) -> None:
    assert context.claim.attempt == 1, context.claim
    assert context.claimed == context.given_back, (context.claimed, context.given_back)


@when("a task is cancelled while the server gives it the item, and then is gone for a while")
def step_a_task_is_cancelled_while_the_server_gives_it_the_item(context: Context) -> None:
    async def work() -> None:
        slow_claims(context)
        task = asyncio.ensure_future(context.state.claim_task("q"))
        await asyncio.sleep(0.5)
        server = world(context).server(context.state)
        server.gone, before = 3, server.calls
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task
        assert server.calls - before == 4, "it was given back in the fourth call"

    world(context).run(work())


@then("the item waits again, in attempt 1")
def step_the_item_waits_again_in_attempt_1(context: Context) -> None:
    claim = world(context).run(context.other.claim_task("q"))
    assert claim is not None and claim.attempt == 1, claim


def slow_claims(context: Context) -> list[float]:
    """Have the next claim take a second; when it was given back is noted."""
    server = world(context).server(context.state)
    take, noted = server.task_claim, []

    async def slowly_claimed(*arguments: Any) -> Any:
        async def claim() -> Any:
            task = await take(*arguments)
            await asyncio.sleep(1)
            return task

        async def give_back(task: Any) -> None:
            await server.task_release("q", task.id, task.token)
            noted.append(asyncio.get_running_loop().time())

        server.task_claim = take  # for who comes after
        return await run_shielded(claim(), undo=partial(compensate, give_back))

    server.task_claim = slowly_claimed
    return noted
