from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.errors import AgentBusyError, RunTimeoutError
from support.agent_runs import outcome
from support.agent_stubborn import CleaningUp, FailingTogether, GoingOn, Staying, Swallowing
from support.tasks import run

# -- what will not be cancelled --------------------------------------------------------------------


@given("an agent that swallows its cancellation, and has 0.05 s")
def step_impl(context: Context) -> None:
    context.agent = Swallowing(timeout=0.05)


@given("an agent that will not be cancelled until the gate opens")
def step_impl(context: Context) -> None:
    context.agent = Staying()


@given("an agent that fails, with a task that takes its time to clean up")
def step_impl(context: Context) -> None:
    context.agent = CleaningUp()


@when("it is run, and does not end in time")
def step_impl(context: Context) -> None:
    context.answer = run(outcome(context.agent.run("request")))


@then("it is out of time after one step")
def step_impl(context: Context) -> None:
    assert isinstance(context.answer, RunTimeoutError), context.answer
    assert context.agent.steps == 1, context.agent.steps


@when("a message over MCP gives it {seconds:f} s")
def step_impl(context: Context, seconds: float) -> None:
    agent = context.agent

    async def main() -> None:
        context.answer = await outcome(agent.process_mcp_message("hello", "me", timeout=seconds))
        context.busy = await outcome(agent.run("too early"))
        agent.gate.open()
        context.after = await agent.run("in line", on_busy="enqueue")

    run(main())


@then("its sender gets a time-out, and the agent is busy until the gate opens")
def step_impl(context: Context) -> None:
    assert isinstance(context.answer, RunTimeoutError), context.answer
    assert isinstance(context.busy, AgentBusyError), context.busy
    assert context.after == "answer", context.after


@when("its caller cancels it during that clean-up")
def step_impl(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        running = asyncio.create_task(agent.run("request"))
        await agent.cleaning.wait()
        running.cancel()
        context.answer = await outcome(running)
        context.cleaned = agent.cleaned

    run(main())


@then("the clean-up has come to its end before the caller hears of it")
def step_impl(context: Context) -> None:
    assert isinstance(context.answer, LookupError), context.answer
    assert context.cleaned


# -- many at once, and for long --------------------------------------------------------------------


@given("{count:d} agents that start a task and fail at the same time")
def step_impl(context: Context, count: int) -> None:
    context.count = count


@when("they are run at once, and it is counted how often all tasks are looked at")
def step_impl(context: Context) -> None:
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
def step_impl(context: Context, count: int) -> None:
    assert context.left == [], len(context.left)
    assert context.looks < count, context.looks


@given("an agent whose every run starts the next, {count:d} times")
def step_impl(context: Context, count: int) -> None:
    context.agent = GoingOn(count)


@when("it is run, and all of them have ended")
def step_impl(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        await asyncio.create_task(agent.run("first"))
        await agent.ended.wait()
        await asyncio.gather(*agent.tasks)

    run(main())


@then("the last was part of no more than {count:d} runs")
def step_impl(context: Context, count: int) -> None:
    assert context.agent.deepest <= count, context.agent.deepest
