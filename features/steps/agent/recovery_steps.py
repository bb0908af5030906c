from __future__ import annotations

import asyncio
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentState, BaseAgent
from support.agent.agent_runs import (
    Gated,
    OutOfTime,
    call_from,
    note,
)
from support.concurrency.listening import listening
from support.concurrency.pauses import make_host, until
from support.concurrency.raising import raised
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, thread


async def go_on(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


def check_left_nothing(agent: BaseAgent, tasks: set[Any], memory: Any) -> None:
    assert asyncio.all_tasks() <= tasks, asyncio.all_tasks() - tasks
    assert agent.memory.get_messages() == memory, agent.memory.get_messages()


@when("its run is cancelled after each number of turns of the loop that it takes")
def step_its_run_is_cancelled_after_each_number_of_turns_of_the(context: Context) -> None:
    agent = context.agent

    async def main() -> int:
        for turns in range(1000):
            tasks, memory = asyncio.all_tasks(), agent.memory.get_messages()
            task = asyncio.create_task(agent.run("request"))
            await go_on(turns)
            if task.done():
                return turns
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), task
            check_left_nothing(agent, tasks, memory)
            assert agent.state is AgentState.IDLE, agent
        raise AssertionError("it never ended")

    context.turns = run(main())


@then("each time the agent is IDLE, nothing of the run goes on, and its memory is as before")
def step_each_time_the_agent_is_idle_nothing_of_the_run_goes_on_and(context: Context) -> None:
    assert context.turns > 3, context.turns


@then("each time the next run is answered")
def step_each_time_the_next_run_is_answered(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        for turns in range(context.turns):
            task = asyncio.create_task(agent.run("request"))
            await go_on(turns)
            task.cancel()
            # At once: the next caller finds it free as soon as the cancelled one has ended.
            await asyncio.wait([task])
            assert await agent.run("request") is not None

    run(main())


@when("it is asked to {request:w}")
def step_it_is_asked_to_request(context: Context, request: str) -> None:
    agent = context.agent

    async def main() -> Any:
        tasks, memory = asyncio.all_tasks(), agent.memory.get_messages()
        try:
            # A busy machine may take longer than an agent's time to do anything else.
            return await agent.run(request, None if request == "hang" else LIMIT)
        except Exception:
            check_left_nothing(agent, tasks, memory)
            raise

    with listening("rxlanggraph") as context.warnings:
        note(context, main())


@when("it is asked to answer, and a deaf task is left")
def step_it_is_asked_to_answer_and_a_deaf_task_is_left(context: Context) -> None:
    agent = context.agent

    async def main() -> Any:
        try:
            return await agent.run("request")
        finally:
            context.deaf = [task for task in agent.tasks if not task.done()]
            agent.gate.open()
            await asyncio.wait(agent.tasks)

    with listening("rxlanggraph") as context.warnings:
        note(context, main())


@then("the log names the task")
def step_the_log_names_the_task(context: Context) -> None:
    (task,) = context.deaf
    (warning,) = context.warnings
    assert task.get_name() in warning and "continues" in warning, warning


@when(
    "its loop, run by {host:Host}, pauses with a run in flight, which is cancelled when it runs "
    "again"
)
def step_its_loop_pauses_with_a_run_in_flight(context: Context, host: str) -> None:
    agent, running = context.agent, make_host(context, host)

    async def begin() -> asyncio.Task[Any]:
        task = asyncio.create_task(agent.run("request"))
        await until(lambda: len(agent.tasks) > 0)
        return task

    async def go_on() -> bool:
        begun.cancel()
        await asyncio.wait([begun])
        return bool(agent.tasks[0].done())

    begun = running.run(begin())
    context.ended_before = running.run(go_on())


@then("the task has ended before the run")
def step_the_task_has_ended_before_the_run(context: Context) -> None:
    assert context.ended_before


@when("it is asked again, with reset")
def step_it_is_asked_again_with_reset(context: Context) -> None:
    assert context.agent.state is AgentState.ERROR
    run(context.agent.run("please", reset=True))


@then("the caller gets that very TimeoutError")
def step_the_caller_gets_that_very_timeouterror(context: Context) -> None:
    assert context.error is OutOfTime.error, context.error


@then("the agent is {state:w}")
def step_the_agent_is_state(context: Context, state: str) -> None:
    assert context.agent.state is AgentState[state], context.agent


@then("the next run is answered, and leaves it {state:w}")
def step_the_next_run_is_answered_and_leaves_it_state(context: Context, state: str) -> None:
    assert run(context.agent.run("please", LIMIT)) == "please"
    assert context.agent.state is AgentState[state], context.agent


@when("a caller enqueues behind a run, with a timeout of {seconds:f} s")
def step_a_caller_enqueues_behind_a_run_with_a_timeout_of_seconds_s(
    context: Context, seconds: float
) -> None:
    agent = context.agent
    context.told = thread(call_from, "tasks", 1, lambda _: agent.run("before"))
    agent.log.wait_for(1)
    context.error = run(raised(agent.run("late", seconds, on_busy="enqueue")))


@given("{count:d} runnable agents, the first of which hangs")
def step_count_runnable_agents_the_first_of_which_hangs(context: Context, count: int) -> None:
    context.agents = [Gated(f"agent-{number}") for number in range(count)]


@when("all are run at once")
def step_all_are_run_at_once(context: Context) -> None:
    async def main() -> None:
        hanging, *others = context.agents
        stuck = asyncio.create_task(hanging.run("request"))
        for agent in others:
            agent.gate.open()
        context.answers = await asyncio.gather(*[agent.run("request") for agent in others])
        context.hung = not stuck.done() and hanging.state is AgentState.RUNNING
        stuck.cancel()
        await asyncio.wait([stuck])
        context.ended = stuck.cancelled() and hanging.state is AgentState.IDLE

    run(main())


@then("{count:d} are answered while the first hangs")
def step_count_are_answered_while_the_first_hangs(context: Context, count: int) -> None:
    assert context.answers == ["answer"] * count
    assert context.hung


@then("the first ends when it is cancelled")
def step_the_first_ends_when_it_is_cancelled(context: Context) -> None:
    assert context.ended
