from __future__ import annotations

from typing import Any

from behave import given, then, when
from behave.runner import Context
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from rxlanggraph.agent import BaseAgent, Message
from rxlanggraph.errors import AgentError
from support.agent.agent_runs import Responding, outcome
from support.concurrency.tasks import run

VALUES: dict[str, Any] = {
    "a pair of strings": ("user", "sure"),
    "a tuple of three": (1, 2, 3),
    "a mapping with messages": {"messages": 3},
    "a mapping with a role": {"role": "admin"},
    "a mapping with no known role": {"role": "engineer", "content": "on call"},
    "None": None,
}


@given("a runnable agent whose chain ends in {value}")
def step_a_runnable_agent_whose_chain_ends_in_value(context: Context, value: str) -> None:
    context.agent = BaseAgent("chain", llm=RunnableLambda(lambda _: VALUES[value]))


@then("the answer is that very {value}, and its memory is")
def the_answer_is_that_very_value(context: Context, value: str) -> None:
    assert context.answer is VALUES[value], context.answer
    remembered = [(m.role, m.content) for m in context.agent.memory.get_messages()]
    assert remembered == [tuple(row) for row in context.table], remembered


# -- structured ------------------------------------------------------------------------------------


class Weather(BaseModel):
    place: str


class Calling(GenericFakeChatModel):
    """Answers by calling the tool that stands for the answer's form."""

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self


@given("an agent over LangChain's own that answers by {how}")
def an_agent_that_answers_by(context: Context, how: str) -> None:
    calls = [
        AIMessage("", tool_calls=[{"name": "Weather", "args": {"place": place}, "id": place}])
        for place in ("Bern", "Rome")
    ]
    saver = InMemorySaver() if how.endswith("remembers") else None
    graph = create_agent(
        Calling(messages=iter(calls)), response_format=ToolStrategy(Weather), checkpointer=saver
    )
    context.agent = BaseAgent("weather", graph=graph)


@when("it is asked twice for the weather")
def it_is_asked_twice_for_the_weather(context: Context) -> None:
    async def main() -> list[Any]:
        return [await context.agent.run("weather?") for _ in range(2)]

    context.answers = run(main())


@then("each answer is the structured response of its own run, and the memory has the messages")
def each_answer_is_the_structured_response(context: Context) -> None:
    assert context.answers == [Weather(place="Bern"), Weather(place="Rome")], context.answers
    roles = [message.role for message in context.agent.memory.get_messages()]
    assert roles == ["user", "assistant", "tool"] * 2, roles


@given('an agent over a graph that remembers, and gives a structured response when asked "{what}"')
def an_agent_that_gives_a_structured_response(context: Context, what: str) -> None:
    def answer(state: Any) -> dict[str, Any]:
        asked = state["messages"][-1].content
        reply: dict[str, Any] = {"messages": [AIMessage(f"re: {asked}")]}
        return reply | ({"structured_response": "rain"} if asked == what else {})

    builder = StateGraph(Responding).add_node("answer", answer).add_edge(START, "answer")
    graph = builder.compile(checkpointer=InMemorySaver())
    context.agent = BaseAgent("weather", graph=graph)


@when('it is asked "{one}", "{two}" and "{three}"')
def step_it_is_asked_one_two_and_three(context: Context, one: str, two: str, three: str) -> None:
    async def main() -> list[Any]:
        return [await context.agent.run(request) for request in (one, two, three)]

    context.answers = run(main())


@then('its answers are the structured response, twice, and "{last}"')
def its_answers_are(context: Context, last: str) -> None:
    assert context.answers == ["rain", "rain", last], context.answers


# -- calls -----------------------------------------------------------------------------------------

CALLS = {
    "cannot be read": AIMessage(
        "",
        invalid_tool_calls=[{"name": "look", "args": '{"at":', "id": "1", "error": "cut off"}],
    ),
    "nothing executes": AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "1"}]),
}
WRITTEN = {  # as OpenAI has them
    "cannot be read": {"id": "1", "function": {"name": "look", "arguments": '{"at":'}},
    "nothing executes": {"id": "1", "function": {"name": "look", "arguments": "{}"}},
}


@given("an agent with {who} that calls tools that {why}")
def an_agent_that_calls_tools(context: Context, who: str, why: str) -> None:
    if who == "a graph":
        builder = StateGraph(MessagesState)
        builder.add_node("model", lambda _: {"messages": [CALLS[why]]}).add_edge(START, "model")
        context.agent = BaseAgent("calling", graph=builder.compile())
    elif who.startswith("a function"):

        async def answer(_: Any) -> Any:
            reply = {"role": "assistant", "content": "", "tool_calls": [WRITTEN[why]]}
            return reply if who.endswith("mapping") else Message.of(reply)

        context.agent = BaseAgent("calling", llm=answer)
    else:
        context.agent = BaseAgent("calling", llm=Calling(messages=iter([CALLS[why]])))


@given("an agent with {who} that answers the first request with half of a surrogate pair")
def an_agent_that_answers_with_half_a_pair(context: Context, who: str) -> None:
    texts = iter(["half of \ud83d", "whole"])

    async def function(messages: Any) -> str:
        for message in messages:
            str(message.content).encode()  # as whatever sends it to a provider does
        return next(texts)

    async def node(state: Any) -> dict[str, Any]:
        text = await function(state["messages"])
        return {"messages": [AIMessage([{"type": "text", "text": text}] if blocks else text)]}

    blocks = who.endswith("blocks of text")
    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    whom: dict[str, Any] = {"llm": function} if who == "a function" else {"graph": graph}
    context.agent = BaseAgent("splitting", **whom)


@when("it is asked twice for an answer")
def it_is_asked_twice_for_an_answer(context: Context) -> None:
    async def main() -> list[Any]:
        return [await outcome(context.agent.run(each)) for each in ("first", "second")]

    context.answers = run(main())


@then('the first run raises an AgentError that says "{words}", and is not remembered')
def the_first_run_raises(context: Context, words: str) -> None:
    assert isinstance(context.answers[0], AgentError), context.answers
    assert words in str(context.answers[0]), context.answers
    str(context.answers[0]).encode()
    said = [message.role for message in context.agent.memory.get_messages()]
    assert said == ["user", "assistant"], said


@then("the second one is answered")
def the_second_one_is_answered(context: Context) -> None:
    assert "whole" in str(context.answers[1]), context.answers


@when("it is asked for that")
def it_is_asked_for_that(context: Context) -> None:
    context.error = run(outcome(context.agent.run("look")))


@then('it raises an AgentError that says "{words}", and remembers nothing')
def step_it_raises_an_agenterror_that_says_words_and_remembers(
    context: Context, words: str
) -> None:
    assert isinstance(context.error, AgentError), context.error
    assert words in str(context.error), context.error
    assert not context.agent.memory.get_messages()
