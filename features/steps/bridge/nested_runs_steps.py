"""Runs that wait for other runs of their bridge."""

from __future__ import annotations

import asyncio
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge import deadlocks
from rxlanggraph.errors import DeadlockError, RunError
from support.bridge import given_up_waits, nested_runs
from support.bridge.bridges import arguments
from support.concurrency.pauses import until
from support.concurrency.waiting import LIMIT, Gate, Log


@when("a run sends to its own thread, and waits by {way}")
def a_run_sends_to_its_own_thread(context: Context, way: str) -> None:
    graph = nested_runs.SENDERS[way](context.bridge, "mine")
    run = context.bridge.create_future_task(graph, {"value": 1}, thread_id="mine")
    context.error = run.exception(LIMIT)


@when("{count:d} parents hold its slots, and each waits by {way} for a child")
def parents_hold_its_slots(context: Context, count: int, way: str) -> None:
    context.results = nested_runs.parents(context.bridge, way, count)


@then('{refused:d} of them ended with DeadlockError, "{remedy}", and {good:d} have a result')
def step_refused_of_them_ended_with_deadlockerror_remedy_and_good(
    context: Context, refused: int, remedy: str, good: int
) -> None:
    errors = [result.error for result in context.results if result.error is not None]
    assert (len(errors), len(context.results)) == (refused, refused + good), context.results
    for error in errors:
        assert isinstance(error, DeadlockError), error
        assert remedy in str(error), error


@when("a run is sent that {does_this}")
def a_run_does_this(context: Context, does_this: str) -> None:
    context.error = nested_runs.CIRCLES[does_this](context.bridge).exception(LIMIT)


@then("the bridge goes on as if nothing had been")
def the_bridge_goes_on(context: Context) -> None:
    run = context.bridge.create_future_task(nested_runs.echo, "on", thread_id="mine")
    assert run.result(LIMIT).content == "on"
    assert context.bridge.registry.wait_idle(LIMIT)
    assert not deadlocks._waits, deadlocks._waits


# -- waits that are given up -----------------------------------------------------------------------


def family(context: Context, where: str, wait: str, child: str) -> given_up_waits.Family:
    other = context.bridge
    if where == "of another bridge":
        other = RxPyLangGraphBridge()
        context.add_cleanup(other.close, 0)
    made = given_up_waits.Family(context.bridge, other, wait, child, in_graph=where == "in a graph")
    context.family = made
    return made


@when("a run {where} gives up {wait} for a child, which then waits for it by {child}")
def step_a_run_gives_up_for_a_child(context: Context, where: str, wait: str, child: str) -> None:
    assert wait in given_up_waits.GIVEN_UP, wait
    family(context, where, wait, child)


@then("both of them are answered")
def step_both_of_them_are_answered(context: Context) -> None:
    parent = context.family.parent.result(LIMIT)
    child = context.family.child.result(LIMIT).result(LIMIT)
    assert (parent.status, child.status) == ("ok", "ok"), (parent, child)
    assert child.content == "ok", child


@when("a run {where} waits by {wait} for a child, which then waits for it by {child}")
def step_a_run_waits_for_a_child_which_waits_for_it(
    context: Context, where: str, wait: str, child: str
) -> None:
    assert wait in given_up_waits.WAITS, wait
    family(context, where, wait, child)


@then('the child is refused: "{words}"')
def step_the_child_is_refused(context: Context, words: str) -> None:
    child = context.family.child.result(LIMIT).result(LIMIT)
    assert isinstance(child.error, DeadlockError), child
    assert words in str(child.error), child.error
    assert context.family.parent.result(LIMIT).status in ("ok", "error")


# -- what works ------------------------------------------------------------------------------------


@when("a run awaits room in a task, and the only other run that has a slot awaits that run")
def step_a_run_awaits_room_in_a_task_and_the_other_awaits_that_run(context: Context) -> None:
    bridge, both, runs = context.bridge, Gate(), context.futures

    async def first(_: object) -> None:
        await both.wait_async()
        await bridge.submit(context.work.answer, {"value": 2})
        await asyncio.gather(bridge.submit(context.work.answer, {"value": 3}))

    async def second(_: object) -> None:
        both.open()
        await until(lambda: deadlocks.is_waiting(runs[0]))
        for _ in range(20):  # until the first one's tasks are suspended
            await asyncio.sleep(0)
        await runs[0]

    runs.append(bridge.create_future_task(first, 0))
    runs.append(bridge.create_future_task(second, 1))


@then('the second one is refused: "{words}", and the first one is answered')
def step_the_second_one_is_refused_and_the_first_one_is_answered(
    context: Context, words: str
) -> None:
    first, second = context.futures
    error = second.exception(LIMIT)
    assert isinstance(error, DeadlockError), repr(error)
    assert words in str(error), error
    assert first.result(LIMIT).status == "ok"


@when("a run awaits a child, which is cancelled")
def step_a_run_awaits_a_child_which_is_cancelled(context: Context) -> None:
    children = Log()

    async def parent(_: object) -> None:
        child = context.bridge.create_future_task(context.work.wait, {"value": 1})
        children.add(child)
        await child

    run = context.bridge.create_future_task(parent, 0)
    children.wait_for(1)[0].cancel()
    context.error = run.exception(LIMIT)


@then('the run has failed with RunError: "{words}"')
def step_the_run_has_failed_with_runerror(context: Context, words: str) -> None:
    assert type(context.error) is RunError, repr(context.error)
    assert words in str(context.error), context.error


@when("a run sends two messages to its own thread, and ends")
def a_run_sends_two_messages(context: Context) -> None:
    context.order, sent = [], []

    async def note(content: Any) -> None:
        context.order.append(content)

    async def node(content: Any) -> None:
        send = context.bridge.create_future_task
        sent.extend(send(note, number, thread_id="mine") for number in (1, 2))
        context.order.append(0)

    context.bridge.create_future_task(node, 0, thread_id="mine").result(LIMIT)
    for run in sent:
        run.result(LIMIT)


@then("they ran after it, in their order")
def they_ran_in_their_order(context: Context) -> None:
    assert context.order == [0, 1, 2], context.order


@when("a run sends {count:d} messages to no thread, and then waits for all")
def step_a_run_sends_count_messages_to_no_thread_and_then_waits(
    context: Context, count: int
) -> None:
    def node(content: Any) -> list[Any]:
        send = context.bridge.create_future_task
        runs = [send(nested_runs.echo, number) for number in range(count)]
        return [run.result().content for run in runs]

    run = context.bridge.create_future_task(node, 1, thread_id="t")
    context.content = run.result(LIMIT).content


@then("it has all {count:d} results")
def it_has_all_results(context: Context, count: int) -> None:
    assert context.content == list(range(count)), context.content


@when("runs wait for each other {depth:d} deep")
def runs_wait_for_each_other(context: Context, depth: int) -> None:
    async def node(left: int) -> str:
        if not left:
            return "innermost"
        run = context.bridge.create_future_task(node, left - 1, thread_id=str(left))
        return (await run).content  # type: ignore[no-any-return]

    context.content = context.bridge.create_future_task(node, depth).result(LIMIT).content


@then("the innermost result arrives")
def the_innermost_result_arrives(context: Context) -> None:
    assert context.content == "innermost", context.content


@when("{count:d} forests of runs that wait for each other grow on bridges with {options}")
def forests_grow(context: Context, count: int, options: str) -> None:
    context.refused = 0
    for seed in range(count):
        with RxPyLangGraphBridge(**arguments(options)) as bridge:
            forest = nested_runs.Forest(bridge, seed, (None, "a", "b", "c"))
            results = forest.grow(6, 3)
            assert [result.error for result in results] == [None] * 6, results
        context.refused += forest.refused


@then("every run ended, and {some} of the waits were refused")
def every_run_ended(context: Context, some: str) -> None:
    assert (context.refused > 0) == (some == "some"), context.refused
    assert not deadlocks._waits, deadlocks._waits


@when("{count:d} forests of runs without threads grow on bridges with {options}")
def forests_without_threads_grow(context: Context, count: int, options: str) -> None:
    context.refused = 0
    for seed in range(count):
        with RxPyLangGraphBridge(**arguments(options)) as bridge:
            forest = nested_runs.Forest(bridge, seed, (None,))
            forest.grow(6, 3)
        context.refused += forest.refused


@when("a task of a ThreadPoolExecutor waits for one behind it")
def a_task_waits_for_one_behind_it(context: Context) -> None:
    context.error = nested_runs.pool_waits_for_itself()


@then("it is told that this is a deadlock")
def it_is_told(context: Context) -> None:
    assert not isinstance(context.error, TimeoutError), repr(context.error)
