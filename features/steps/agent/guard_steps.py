from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentPool, run_lock
from rxlanggraph.agent import pool as pool_module
from rxlanggraph.concurrency.waiters import WaiterQueue
from rxlanggraph.errors import AgentBusyError
from support.agent.agent_runs import AGENTS, call_from, outcome
from support.bridge.bridges import pass_time
from support.concurrency.patching import patch
from support.concurrency.tasks import pass_turns, run
from support.concurrency.waiting import LIMIT, thread


def begin_lost_run(context: Context) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    context.cut_off = loop.create_task(context.agent.run("lost"))
    context.cut_off._log_destroy_pending = False
    while not len(context.agent.log):
        loop.run_until_complete(asyncio.sleep(0))
    return loop


async def in_line(waiting: WaiterQueue, count: int) -> None:
    """Return when so many callers wait for their turn."""
    async with asyncio.timeout(LIMIT):
        while len(waiting) < count:  # noqa: ASYNC110 - a queue sends no notice
            await asyncio.sleep(0)


def throw_away(context: Context) -> None:
    cut_off, context.cut_off = context.cut_off, None
    cut_off.get_coro().close()


@when("a loop is closed in the middle of its run")
def step_a_loop_is_closed_in_the_middle_of_its_run(context: Context) -> None:
    begin_lost_run(context).close()


@when("the run that was cut off is thrown away")
def step_the_run_that_was_cut_off_is_thrown_away(context: Context) -> None:
    """As the collector does: by closing it, outside its own context."""
    throw_away(context)


@then('the next run is answered with "{answer}"')
def step_the_next_run_is_answered_with_answer(context: Context, answer: str) -> None:
    assert run(context.agent.run("next")) == answer


@given("those in line look every {seconds:f} s whether the loop of the run is closed")
def step_those_in_line_look_every_seconds_s_whether_the_loop_of_the(
    context: Context, seconds: float
) -> None:
    patch(context, run_lock, "_LOOK_SECONDS", seconds)


@when("a loop is closed in the middle of its run while another caller waits")
def step_a_loop_is_closed_in_the_middle_of_its_run_while_another(context: Context) -> None:
    agent = context.agent
    loop = begin_lost_run(context)
    waiting = thread(call_from, "tasks", 1, lambda _: agent.run("next", on_busy="enqueue"))
    loop.run_until_complete(in_line(agent._run_lock._queue, 1))
    loop.close()
    (context.answer,) = waiting.result(LIMIT)


@then('the one who waited is answered with "{answer}"')
def step_the_one_who_waited_is_answered_with_answer(context: Context, answer: str) -> None:
    assert context.answer == answer, context.answer


@when("it is run, and another caller lines up on a loop that is then stopped")
def step_it_is_run_and_another_caller_lines_up_on_a_loop_that_is(context: Context) -> None:
    agent = context.agent
    context.first = thread(agent.run_sync, "first", LIMIT)
    agent.log.wait_for(1)
    context.loop = asyncio.new_event_loop()
    context.asleep = context.loop.create_task(agent.run("asleep", LIMIT, on_busy="enqueue"))
    context.add_cleanup(context.loop.close)
    context.loop.run_until_complete(in_line(agent._run_lock._queue, 1))


@when("the gate opens once two more have come, of whom one waits and one does not")
def step_the_gate_opens_once_two_more_have_come_of_whom_one_waits(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        waiting = asyncio.create_task(agent.run("waits", LIMIT, on_busy="enqueue"))
        await in_line(agent._run_lock._queue, 2)
        context.refused = await outcome(agent.run("does not wait"))
        agent.gate.open()
        context.waited = await waiting

    run(main())
    context.newcomer = run(agent.run("newcomer"))


@then('the one who waits is answered with "{answer}", and so is a newcomer who does not')
def step_the_one_who_waits_is_answered_with_answer_and_so_is_a(
    context: Context, answer: str
) -> None:
    assert context.first.result(LIMIT) == answer
    assert isinstance(context.refused, AgentBusyError), context.refused
    assert context.waited == context.newcomer == answer, (context.waited, context.newcomer)


@when("the loop that was stopped goes on")
def step_the_loop_that_was_stopped_goes_on(context: Context) -> None:
    context.answer = context.loop.run_until_complete(context.asleep)


@given("a pool whose only agent {does}")
def step_a_pool_whose_only_agent_does(context: Context, does: str) -> None:
    context.agent = AGENTS[does]()

    def make(_: str) -> Any:
        agent: Any = AGENTS[does]()
        agent.gate, agent.log = context.agent.gate, context.agent.log
        return agent

    context.pool = AgentPool(make, max_agents=1)


@when("callers of three more threads line up on two loops, the first of which is stopped")
def step_callers_of_three_more_threads_line_up_on_two_loops_the(context: Context) -> None:
    pool, agent = context.pool, context.agent

    def ask(thread_id: str) -> Coroutine[Any, Any, Any]:
        return pool.ainvoke(thread_id, {"configurable": {"thread_id": thread_id}})

    async def main() -> None:
        tasks = [asyncio.create_task(ask("in"))]
        await asyncio.to_thread(agent.log.wait_for, 1)
        await asyncio.to_thread(loop.run_until_complete, in_line(pool._queue, 1))
        tasks += [asyncio.create_task(ask(name)) for name in ("one", "two")]
        await in_line(pool._queue, 3)
        agent.gate.open()
        context.answers = await asyncio.gather(*tasks)

    loop = asyncio.new_event_loop()
    context.add_cleanup(loop.close)
    asleep = loop.create_task(ask("asleep"))
    run(main())
    context.answers.append(loop.run_until_complete(asleep))


@given("callers that wait for a place look every {seconds:f} s whether the loop of a run is closed")
def step_callers_that_wait_for_a_place_look_every_seconds_s(
    context: Context, seconds: float
) -> None:
    patch(context, pool_module, "_LOOK_SECONDS", seconds)


@when("the loop of its call is closed, and a caller on another thread {comes}")
def step_the_loop_of_its_call_is_closed_and_a_caller_on_another(
    context: Context, comes: str
) -> None:
    pool, agent = context.pool, context.agent

    def ask(thread_id: str) -> Coroutine[Any, Any, Any]:
        return pool.ainvoke(thread_id, {"configurable": {"thread_id": thread_id}})

    loop = asyncio.new_event_loop()
    cut_off = loop.create_task(ask("lost"))
    cut_off._log_destroy_pending = False  # type: ignore[attr-defined]
    while not len(agent.log):
        loop.run_until_complete(asyncio.sleep(0))
    caller = thread(run, ask("next")) if comes == "waits already" else None
    if caller is not None:
        loop.run_until_complete(in_line(pool._queue, 1))
    loop.close()
    agent.gate.open()
    context.answer = run(ask("next")) if caller is None else caller.result(LIMIT)
    cut_off.get_coro().close()  # type: ignore[union-attr]


@then("that caller is answered, and the pool has one agent")
def step_that_caller_is_answered_and_the_pool_has_one_agent(context: Context) -> None:
    assert context.answer == "answer", context.answer
    assert len(context.pool) == 1, context.pool._entries


@then("all of them are answered")
def step_all_of_them_are_answered(context: Context) -> None:
    assert context.answers == ["answer"] * 4, context.answers


@when("the run that was cut off is thrown away during the next run")
def step_the_run_that_was_cut_off_is_thrown_away_during_the_next(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        following = asyncio.create_task(agent.run("wait"))
        await asyncio.to_thread(agent.log.wait_for, 2)
        throw_away(context)
        agent.gate.open()
        context.answer = await following
        context.output = [item async for item in agent.stream()]

    run(main())


@then("that run has kept its request, and its output was open")
def step_that_run_has_kept_its_request_and_its_output_was_open(context: Context) -> None:
    assert context.answer == "wait", context.answer
    assert context.output == ["still open"], context.output


@given("a guard with a caller in whose loop is being closed, and one in line")
def step_a_guard_with_a_caller_in_whose_loop_is_being_closed_and(context: Context) -> None:
    context.guard = run_lock.RunLock(AgentBusyError)
    context.inside = []


@when("another comes, and finds the first gone just as a collector throws it away")
def step_another_comes_and_finds_the_first_gone_just_as_a_collector(context: Context) -> None:
    entered, inside = context.guard, context.inside

    async def enter(name: str) -> None:
        async with entered.entered("enqueue"):
            inside.append(name)
            await asyncio.Event().wait()

    class Collected(asyncio.SelectorEventLoop):
        """Asked whether it is closed, it has the collector run first."""

        def is_closed(self) -> bool:
            if super().is_closed() and cut_off:
                cut_off.pop().get_coro().close()
            return super().is_closed()

    cut_off: list[Any] = []
    loop = Collected()
    first = loop.create_task(enter("first"))
    first._log_destroy_pending = False
    loop.run_until_complete(asyncio.sleep(0))

    async def main() -> None:
        tasks = [asyncio.create_task(enter("in line"))]
        await asyncio.sleep(0)
        loop.close()
        cut_off.append(first)
        tasks.append(asyncio.create_task(enter("another")))
        for _ in range(5):
            await asyncio.sleep(0)
        context.inside = list(inside)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    run(main())


@then("only one of the two is in")
def step_only_one_of_the_two_is_in(context: Context) -> None:
    assert context.inside == ["first", "in line"], context.inside


@when("a message that has {seconds:d} s for its run waits for longer behind another one")
def step_a_message_that_has_seconds_s_for_its_run_waits_for_longer(
    context: Context, seconds: int
) -> None:
    agent = context.agent

    async def main() -> None:
        first = asyncio.create_task(agent.run("first", LIMIT))
        await asyncio.to_thread(agent.log.wait_for, 1)
        agent.timeout = seconds
        second = asyncio.create_task(agent.ainvoke("second"))
        await in_line(agent._run_lock._queue, 1)
        pass_time(asyncio.get_running_loop(), seconds)
        await pass_turns()
        agent.gate.open()
        context.answers = await asyncio.gather(first, second)

    run(main())


@then("both are answered")
def step_both_are_answered(context: Context) -> None:
    assert context.answers == ["answer", "answer"], context.answers
