from __future__ import annotations

import asyncio
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import run_lock
from rxlanggraph.errors import AgentBusyError, BlockingCallError
from support.agent.agent_runs import (
    AGENTS,
    FlagGuarded,
    call_from,
    made_with,
)
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Log, in_threads, thread

# -- agents ----------------------------------------------------------------------------------------


@given("an agent whose run is guarded by a flag")
def step_an_agent_whose_run_is_guarded_by_a_flag(context: Context) -> None:
    context.agent = FlagGuarded()


@given("a runnable agent that {does}")
def step_a_runnable_agent_that_does(context: Context, does: str) -> None:
    context.agent = AGENTS[does]()


@given("a runnable agent with {who}")
def step_a_runnable_agent_with_who(context: Context, who: str) -> None:
    context.agent = made_with(who)


# -- one at a time ---------------------------------------------------------------------------------


@when("{count:d} callers run it at once from {where}")
def step_count_callers_run_it_at_once_from_where(context: Context, count: int, where: str) -> None:
    agent, context.refused = context.agent, Log()

    async def call(_: int) -> Any:
        try:
            return await agent.run("request")
        except AgentBusyError as error:
            context.refused.add(error)

    context.told = thread(call_from, where, count, call)


@when("all but one of {count:d} have been refused")
def step_all_but_one_of_count_have_been_refused(context: Context, count: int) -> None:
    context.refused.wait_for(count - 1)


@when("{count:d} callers enqueue at once from {where}")
def step_count_callers_enqueue_at_once_from_where(context: Context, count: int, where: str) -> None:
    agent = context.agent
    context.told = thread(call_from, where, count, lambda _: agent.run("r", on_busy="enqueue"))


@when("the agent's gate opens")
def step_the_agents_gate_opens(context: Context) -> None:
    context.agent.gate.open()


@then("exactly one entered at a time")
def step_exactly_one_entered_at_a_time(context: Context) -> None:
    context.told.result(LIMIT)
    assert context.agent.most_inside == 1, f"{context.agent.most_inside} at once"


@then("one has the answer, and each error names the agent, its state and the remedy")
def step_one_has_the_answer_and_each_error_names_the_agent_its(context: Context) -> None:
    answers = context.told.result(LIMIT)
    assert answers.count("answer") == 1, answers
    for error in context.refused:
        assert isinstance(error, RuntimeError)
        # IDLE: the one that is in has not said so yet.
        assert any(f"'watched' {state}" in str(error) for state in ("RUNNING", "IDLE")), error
        assert "on_busy='enqueue'" in str(error), error


@then("all {count:d} have the answer")
def step_all_count_have_the_answer(context: Context, count: int) -> None:
    assert context.told.result(LIMIT) == ["answer"] * count


@when("{count:d} callers enqueue one after another behind a run")
def step_count_callers_enqueue_one_after_another_behind_a_run(context: Context, count: int) -> None:
    agent = context.agent

    async def main() -> None:
        tasks = []
        for number in range(count):
            tasks.append(asyncio.create_task(agent.run(number, on_busy="enqueue")))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    run(main())
    context.expected = list(range(count))


@then("they are answered in that order")
def step_they_are_answered_in_that_order(context: Context) -> None:
    assert list(context.agent.log) == context.expected


@when("of three that enqueue behind a run the first is cancelled as its turn comes")
def step_of_three_that_enqueue_behind_a_run_the_first_is_cancelled(context: Context) -> None:
    agent = context.agent

    # What looks for closed loops would notice its turn in another moment.
    patch(context, run_lock, "_LOOK_SECONDS", LIMIT)

    async def main() -> list[Any]:
        runs = [asyncio.create_task(agent.run(n, on_busy="enqueue")) for n in range(4)]
        runs[0].add_done_callback(lambda _: runs[1].cancel())
        return await asyncio.gather(*runs, return_exceptions=True)

    context.answers = run(main())


@then("the two others are answered, and it never entered")
def step_the_two_others_are_answered_and_it_never_entered(context: Context) -> None:
    first, cancelled, *others = context.answers
    assert (first, *others) == (0, 2, 3), context.answers
    assert isinstance(cancelled, asyncio.CancelledError), cancelled
    assert 1 not in list(context.agent.log)


@when("a loop is closed over a caller that has enqueued")
def step_a_loop_is_closed_over_a_caller_that_has_enqueued(context: Context) -> None:
    agent = context.agent
    context.told = thread(call_from, "tasks", 1, lambda _: agent.run("before"))
    agent.log.wait_for(1)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(agent.run("lost", on_busy="enqueue"))
    waiting._log_destroy_pending = False
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@then("the run before it and a run after it are answered")
def step_the_run_before_it_and_a_run_after_it_are_answered(context: Context) -> None:
    assert context.told.result(LIMIT) == ["answer"]
    assert run(context.agent.run("after")) == "answer"
    assert "lost" not in list(context.agent.log)


@then("its memory is empty")
def step_its_memory_is_empty(context: Context) -> None:
    assert context.agent.memory.get_messages() == ()


@when("a task that its run has started asks it after the end of that run")
def step_a_task_that_its_run_has_started_asks_it_after_the_end_of(context: Context) -> None:
    agent = context.agent
    over = asyncio.Event()

    async def ask_later() -> Any:
        await over.wait()
        return await agent.run("later")

    async def begin() -> str:
        agent.tasks.append(asyncio.create_task(ask_later()))
        return "begun"

    async def main() -> None:
        agent.work = begin
        assert await agent.run("request") == "begun"
        del agent.work
        over.set()
        context.answers = await asyncio.gather(*agent.tasks)

    run(main())


@then("that task has its answer")
def step_that_task_has_its_answer(context: Context) -> None:
    assert context.answers == ["later"], context.answers


# -- from threads ----------------------------------------------------------------------------------


@when('{count:d} threads call run_sync with on_busy="enqueue"')
def step_count_threads_call_run_sync_with_on_busy_enqueue(context: Context, count: int) -> None:
    agent = context.agent
    context.answers = in_threads(count, lambda n: agent.run_sync(n, on_busy="enqueue"))


@then("each has its own answer")
def step_each_has_its_own_answer(context: Context) -> None:
    assert context.answers == list(range(len(context.answers)))


@then("in a running loop run_sync raises BlockingCallError")
def step_in_a_running_loop_run_sync_raises_blockingcallerror(context: Context) -> None:
    async def main() -> Any:
        return context.agent.run_sync("request")

    try:
        run(main())
    except BlockingCallError as error:
        assert "await" in str(error), error
    else:
        raise AssertionError("it blocked the loop")
