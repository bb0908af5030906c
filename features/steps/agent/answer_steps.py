from __future__ import annotations

import asyncio
import json
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import AgentState, BaseAgent
from rxlanggraph.errors import AgentError
from support.agent.agent_runs import (
    AGENTS,
    Gated,
    Watched,
    call_from,
    made_with,
)
from support.concurrency.raising import error_of
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, thread

# -- a turn ----------------------------------------------------------------------------------------


@given("an agent whose step adds to the memory and waits for the gate")
def step_an_agent_whose_step_adds_to_the_memory_and_waits_for_the(context: Context) -> None:
    class Adding(Gated):
        async def work(self) -> Any:
            self.add_message("assistant", "first")
            self.seen = contents(self)
            self.log.add("added")
            answer = await super().work()
            self.add_message("assistant", "second")
            return answer

    context.agent = Adding()


def contents(agent: BaseAgent) -> list[Any]:
    return [message.content for message in agent.memory.get_messages()]


@when("it is run, and another task adds a message meanwhile")
def step_it_is_run_and_another_task_adds_a_message_meanwhile(context: Context) -> None:
    agent = context.agent
    context.told = thread(call_from, "tasks", 1, lambda _: agent.run("request"))
    agent.log.wait_for(2)
    agent.add_message("user", "of another")


@then("the run sees its own messages, and others do not")
def step_the_run_sees_its_own_messages_and_others_do_not(context: Context) -> None:
    assert context.agent.seen == ["request", "first"], context.agent.seen
    assert contents(context.agent) == ["of another"], contents(context.agent)


@then("the memory has the other's message first, and the run's turn in one piece behind it")
def step_the_memory_has_the_others_message_first_and_the_runs_turn(context: Context) -> None:
    assert context.told.result(LIMIT) == ["answer"]
    assert contents(context.agent) == ["of another", "request", "first", "second"]


@given("an agent whose step leaves a task behind that writes later")
def step_an_agent_whose_step_leaves_a_task_behind_that_writes_later(context: Context) -> None:
    class Leaving(Watched):
        async def work(self) -> Any:
            async def write() -> None:
                await self.gate.wait_async()
                self.add_message("assistant", "late")

            self.tasks.append(asyncio.create_task(write()))
            return "answer"

    context.agent = Leaving()


@when("it is run, and the task writes")
def step_it_is_run_and_the_task_writes(context: Context) -> None:
    async def main() -> None:
        assert await context.agent.run("request") == "answer"
        context.agent.gate.open()
        (context.error,) = await asyncio.gather(*context.agent.tasks, return_exceptions=True)

    run(main())


@then("the task gets an AgentError, and the memory has the run's turn alone")
def step_the_task_gets_an_agenterror_and_the_memory_has_the_runs(context: Context) -> None:
    assert isinstance(context.error, AgentError), context.error
    assert contents(context.agent) == ["request"], contents(context.agent)


# -- who answers -----------------------------------------------------------------------------------


@when('it is asked "{request}"')
def step_it_is_asked_request(context: Context, request: str) -> None:
    context.answer = run(context.agent.run(request))


@when('it is run with "{request}" with an observer')
def step_it_is_run_with_request_with_an_observer(context: Context, request: str) -> None:
    context.states, context.outputs = [], []
    context.agent.state_changes.subscribe(context.states.append)
    context.agent.outputs.subscribe(context.outputs.append)
    run(context.agent.run(request))


@then("the states were seen to be {states}, as in its history")
def step_the_states_were_seen_to_be_states_as_in_its_history(context: Context, states: str) -> None:
    assert ", ".join(each.after.name for each in context.states) == states, context.states
    assert tuple(context.states) == context.agent.state_history()


@then('the output was seen to be "{item}"')
def step_the_output_was_seen_to_be_item(context: Context, item: str) -> None:
    assert context.outputs == [item], context.outputs


@when('it is run with "{before}", forgets, and is run with "{request}"')
def step_it_is_run_with_before_forgets_and_is_run_with_request(
    context: Context, before: str, request: str
) -> None:
    run(context.agent.run(before))
    context.agent.memory.clear()
    context.answer = run(context.agent.run(request))


@when('it is run twice, with "{first}" and "{second}"')
def step_it_is_run_twice_with_first_and_second(context: Context, first: str, second: str) -> None:
    context.answers = [run(context.agent.run(request)) for request in (first, second)]


@then('the answers are "{first}" and "{second}"')
def step_the_answers_are_first_and_second(context: Context, first: str, second: str) -> None:
    assert context.answers == [first, second], context.answers


@then("the answer is {answer}, it is IDLE, and its memory is")
def step_the_answer_is_answer_it_is_idle_and_its_memory_is(context: Context, answer: str) -> None:
    assert context.answer == json.loads("null" if answer == "None" else answer), context.answer
    assert context.agent.state is AgentState.IDLE
    found = [(m.role, m.content) for m in context.agent.memory.get_messages()]
    expected = [(row["role"], row["content"]) for row in context.table]
    assert found == expected, found


@then('its output was "{item}", and ended')
def step_its_output_was_item_and_ended(context: Context, item: str) -> None:
    async def main() -> list[Any]:
        return [each async for each in context.agent.stream(timeout=LIMIT)]

    assert run(main()) == [item]


@when("it is run with the state of the counter at {n:d}")
def step_it_is_run_with_the_state_of_the_counter_at_n(context: Context, n: int) -> None:
    context.answer = run(context.agent.run({"n": n}))


@then("the answer is the state of the counter at {n:d}, and its memory is empty")
def step_the_answer_is_the_state_of_the_counter_at_n_and_its_memory(
    context: Context, n: int
) -> None:
    assert context.answer == {"n": n}, context.answer
    assert not context.agent.memory.get_messages()


@then("the step was called {count:d} times, the answer is None, and a warning was logged")
def step_the_step_was_called_count_times_the_answer_is_none_and_a(
    context: Context, count: int
) -> None:
    assert context.agent.steps == count
    assert context.answer is None
    assert any(f"in {count} steps" in text for text in context.warnings), context.warnings


@when("an agent is made with {what}")
def step_an_agent_is_made_with_what(context: Context, what: str) -> None:
    def make() -> Any:
        if what == "a sync function as llm":
            return run(BaseAgent("sync", llm=lambda messages: "at once").run("request"))
        if what == "a step that is not async":
            return run(AGENTS[f"has {what}"]().run("request"))
        if what == "an unknown busy policy":
            return run(BaseAgent("policy").run("request", on_busy="wait"))  # type: ignore[arg-type]
        return made_with(what)

    context.error = error_of(make)
