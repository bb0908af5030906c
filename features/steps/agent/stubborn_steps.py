from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentState
from rxlanggraph.errors import RunTimeoutError
from support.agent.agent_runs import outcome
from support.agent.agent_stubborn import (
    CleaningUp,
    FailingTogether,
    GoingOn,
    Replacing,
    Staying,
    Swallowing,
)
from support.concurrency.listening import listening
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT

WAYS: dict[str, Callable[[Staying], Coroutine[Any, Any, Any]]] = {
    "a run of 0.05 s": lambda agent: agent.run("stay"),
    "a message of MCP's": lambda agent: agent.process_mcp_message("stay", "me"),
    "a message of a pipeline's": lambda agent: agent.ainvoke("stay"),
}

# -- what will not be cancelled --------------------------------------------------------------------


@given("an agent that swallows its cancellation, and has 0.05 s")
def step_an_agent_that_swallows_its_cancellation_and_has_0_05_s(context: Context) -> None:
    context.agent = Swallowing(timeout=0.05)


@given("an agent that thinks until the gate opens, and will not be cancelled")
def step_an_agent_that_thinks_until_the_gate_opens_and_will_not_be(context: Context) -> None:
    context.agent = Staying()


@given("an agent that fails, with a task that takes its time to clean up")
def step_an_agent_that_fails_with_a_task_that_takes_its_time_to(context: Context) -> None:
    context.agent = CleaningUp()


@when("it is run, and does not end in time")
def step_it_is_run_and_does_not_end_in_time(context: Context) -> None:
    context.answer = run(outcome(context.agent.run("request")))


@then("it is out of time after one step")
def step_it_is_out_of_time_after_one_step(context: Context) -> None:
    assert isinstance(context.answer, RunTimeoutError), context.answer
    assert context.agent.steps == 1, context.agent.steps


@when("{way} does not end, the next one is asked, the gate opens, and another one is asked")
def step_way_does_not_end_the_next_one_is_asked_the_gate_opens_and(
    context: Context, way: str
) -> None:
    agent = context.agent

    async def cancelled() -> None:
        running = asyncio.create_task(agent.run("stay", LIMIT))
        await asyncio.to_thread(agent.log.wait_for, 1)
        running.cancel()
        await running

    async def main() -> None:
        try:
            await WAYS.get(way, lambda _: cancelled())(agent)
        except (Exception, asyncio.CancelledError) as error:
            context.error = error
        context.states = [agent.state]
        context.answers = [await agent.run("next", LIMIT)]
        context.states.append(agent.state)
        agent.gate.open()
        await agent.stayed.wait()
        context.states.append(agent.state)
        context.answers.append(await agent.run("last", LIMIT))
        context.states.append(agent.state)

    with listening("rxlanggraph") as context.warnings:
        run(main())


@then("the first caller got {error:w}, and the two others were answered")
def step_the_first_caller_got_error_and_the_two_others_were(context: Context, error: str) -> None:
    assert type(context.error).__name__ == error, context.error
    assert context.answers == ["answer", "answer"], context.answers


@then("the agent was IDLE whenever none of them was in")
def step_the_agent_was_idle_whenever_none_of_them_was_in(context: Context) -> None:
    assert context.states == [AgentState.IDLE] * 4, context.states


@then("the memory has the turns of these two alone, and the log names the step left behind")
def step_the_memory_has_the_turns_of_these_two_alone_and_the_log(context: Context) -> None:
    contents = [message.content for message in context.agent.memory.get_messages()]
    assert contents == ["next", "last"], contents
    assert any("_answer" in str(warning) for warning in context.warnings), context.warnings


@when("its caller cancels it during that cleanup")
def step_its_caller_cancels_it_during_that_cleanup(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        running = asyncio.create_task(agent.run("request"))
        await agent.cleaning.wait()
        running.cancel()
        context.answer = await outcome(running)
        context.cleaned = agent.cleaned

    run(main())


@then("the cleanup has come to its end before the caller hears of it")
def step_the_cleanup_has_come_to_its_end_before_the_caller_hears_of(context: Context) -> None:
    assert isinstance(context.answer, LookupError), context.answer
    assert context.cleaned


@given("an agent that raises GeneratorExit, with a task that takes its time to clean up")
def step_an_agent_that_raises_generatorexit_with_a_task_that(context: Context) -> None:
    context.agent = CleaningUp(GeneratorExit)


@when("it is run to its end")
def step_it_is_run_to_its_end(context: Context) -> None:
    async def main() -> None:
        try:
            await context.agent.run("request")
        except BaseException as error:
            context.error = error
        context.cleaned = context.agent.cleaned

    run(main())


@then("the cleanup has come to its end before GeneratorExit is raised")
def step_the_cleanup_has_come_to_its_end_before_generatorexit_is(context: Context) -> None:
    assert isinstance(context.error, GeneratorExit), context.error
    assert context.cleaned


@given("an agent that fails, with a task that starts another one when it is cancelled")
def step_an_agent_that_fails_with_a_task_that_starts_another_one(context: Context) -> None:
    context.agent = Replacing()


@when("it is run, and its caller waits")
def step_it_is_run_and_its_caller_waits(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        running = asyncio.create_task(outcome(agent.run("request")))
        ended, _ = await asyncio.wait({running}, timeout=LIMIT)
        agent.gate.open()
        context.answer, context.ended = await running, bool(ended)

    with listening("rxlanggraph") as context.warnings:
        run(main())


@then("its caller has the error of the run, and the log names one of these tasks")
def step_its_caller_has_the_error_of_the_run_and_the_log_names_one(context: Context) -> None:
    assert context.ended
    assert isinstance(context.answer, LookupError), context.answer
    assert len([text for text in context.warnings if "_wait" in text]) == 1, context.warnings


@given("a run that failed in the last iteration of its loop, which was closed then")
def step_a_run_that_failed_in_the_last_iteration_of_its_loop(context: Context) -> None:
    loop = asyncio.new_event_loop()
    failing = loop.create_task(outcome(FailingTogether(asyncio.Barrier(1)).run("x")))
    while not failing.done():
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    assert isinstance(failing.result(), LookupError), failing


@when("a run on another loop of the thread fails, with a task that takes its time to clean up")
def step_a_run_on_another_loop_of_the_thread_fails(context: Context) -> None:
    agent = CleaningUp()

    async def main() -> None:
        context.answer = await outcome(agent.run("request"))
        context.cleaned = agent.cleaned

    run(main())


# -- many at once, and for long --------------------------------------------------------------------


@given("{count:d} agents that start a task and fail at the same time")
def step_count_agents_that_start_a_task_and_fail_at_the_same_time(
    context: Context, count: int
) -> None:
    context.count = count


@when("they are run at once, and it is counted how often all tasks are looked at")
def step_they_are_run_at_once_and_it_is_counted_how_often_all_tasks(context: Context) -> None:
    async def main() -> None:
        ready = asyncio.Barrier(context.count)
        agents = [FailingTogether(ready) for _ in range(context.count)]
        with mock.patch.object(asyncio, "all_tasks", wraps=asyncio.all_tasks) as looking:
            answers = await asyncio.gather(*[outcome(agent.run("x")) for agent in agents])
        assert all(isinstance(answer, LookupError) for answer in answers), answers
        context.looks = looking.call_count
        context.left: list[Any] = [t for agent in agents for t in agent.tasks if not t.done()]

    run(main())


@then("none of their tasks is left, and they were looked at less than {count:d} times")
def step_none_of_their_tasks_is_left_and_they_were_looked_at_less(
    context: Context, count: int
) -> None:
    assert context.left == [], len(context.left)
    assert context.looks < count, context.looks


@given("an agent whose every run starts the next, {count:d} times")
def step_an_agent_whose_every_run_starts_the_next_count_times(context: Context, count: int) -> None:
    context.agent = GoingOn(count)


@when("it is run, and all of them have ended")
def step_it_is_run_and_all_of_them_have_ended(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        agent.running = asyncio.create_task(agent.run("first"))
        await agent.running
        await agent.ended.wait()
        await asyncio.gather(*agent.tasks)

    run(main())


@then("the last was part of no more than {count:d} runs")
def step_the_last_was_part_of_no_more_than_count_runs(context: Context, count: int) -> None:
    assert context.agent.deepest <= count, context.agent.deepest
