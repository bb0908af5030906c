from __future__ import annotations

import json
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import BaseAgent
from support.agent.agent_forms import REQUESTS, Heard, made_with, repeat
from support.agent.agent_runs import note, outcome
from support.concurrency.tasks import run


@given("an agent that repeats what it was told last")
def step_an_agent_that_repeats_what_it_was_told_last(context: Context) -> None:
    context.agent = BaseAgent("parrot", llm=repeat)


@given("an agent made with {what}")
def step_an_agent_made_with_what(context: Context, what: str) -> None:
    try:
        context.agent = made_with(what)
    except TypeError as error:
        context.agent, context.error = None, error


@when("it is given {request}")
def step_it_is_given_request(context: Context, request: str) -> None:
    if context.agent is not None:
        note(context, context.agent.run(REQUESTS[request]))


@then("it answers {answer}")
def step_it_answers_answer(context: Context, answer: str) -> None:
    assert context.answer == json.loads(answer), context.answer


@then("it remembers {count:d} messages of the user")
def step_it_remembers_count_messages_of_the_user(context: Context, count: int) -> None:
    roles = [message.role for message in context.agent.memory.get_messages()]
    assert roles.count("user") == count, roles


@when("it is invoked with a callback")
def step_it_is_invoked_with_a_callback(context: Context) -> None:
    context.heard = Heard()
    run(context.agent.ainvoke("hello", {"callbacks": [context.heard]}))


@then("the callback was called")
def step_the_callback_was_called(context: Context) -> None:
    assert context.heard.count >= 1


# -- a graph that remembers, too -------------------------------------------------------------------


@when("it is asked {requests}, one after another")
def step_it_is_asked_requests_one_after_another(context: Context, requests: str) -> None:
    async def main() -> list[Any]:
        asked = requests.replace('"', "").replace(" and ", ", ").split(", ")
        return [await outcome(context.agent.run(request)) for request in asked]

    context.answers = run(main())


@then('its memory is "{contents}"')
def step_its_memory_is_contents(context: Context, contents: str) -> None:
    messages = context.agent.memory.get_messages()
    assert ", ".join(message.content for message in messages) == contents, messages


@then('the graph remembers "{contents}"')
def step_the_graph_remembers_contents(context: Context, contents: str) -> None:
    found = ", ".join(message.content for message in remembered(context.agent))
    assert found == contents, found


def remembered(agent: BaseAgent, thread_id: str | None = None) -> list[Any]:
    config = {"configurable": {"thread_id": thread_id or agent.name}}
    messages: list[Any] = agent.graph.get_state(config).values["messages"]
    return messages


@when('it is invoked on the threads "{one}", "{two}" and "{three}"')
def step_it_is_invoked_on_the_threads_one_two_and_three(
    context: Context, one: str, two: str, three: str
) -> None:
    async def main() -> None:
        for thread_id in (one, two, three):
            config = {"configurable": {"thread_id": thread_id}}
            other = BaseAgent("formal", graph=context.agent.graph)
            await other.ainvoke("hello", config)

    run(main())


@then('the graph remembers {some:d} messages of "{one}" and {more:d} of "{other}"')
def step_the_graph_remembers_some_messages_of_one_and_more_of_other(
    context: Context, some: int, one: str, more: int, other: str
) -> None:
    found = [len(remembered(context.agent, thread_id)) for thread_id in (one, other)]
    assert found == [some, more], found
