"""Tokens and other chunks in the output of agents."""

from __future__ import annotations

import asyncio
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.agent import BaseAgent
from rxlanggraph.messages import ChunkMessage
from support.agent.output_crowds import listed
from support.bridge.chunks import Talker
from support.concurrency.raising import error_of
from support.concurrency.tasks import pass_turns, run
from support.concurrency.waiting import Log


def graph_with(model: Any, **options: Any) -> Any:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return (
        StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile(**options)
    )


def agent_with(what: str, model: Any, **options: Any) -> BaseAgent:
    if what == "a chat model":
        return BaseAgent("talker", llm=model, **options)
    if what == "a chain with a chat model":
        return BaseAgent("talker", llm=RunnableLambda(lambda asked: asked) | model, **options)
    saver = InMemorySaver() if what.endswith("a memory") else None
    return BaseAgent("talker", graph=graph_with(model, checkpointer=saver), **options)


def saying(*answers: str) -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage(answer) for answer in answers]))


def words(items: list[Any]) -> list[str]:
    """The words of the tokens, checked: each with its number, mode and metadata."""
    assert all(isinstance(each, ChunkMessage) for each in items), items
    assert [each.sequence for each in items] == list(range(len(items)))
    assert {each.mode for each in items} == {"messages"}
    tokens = [token.content for token, metadata in (each.content for each in items)]
    return [token for token in tokens if token.strip()]


@given('an agent that has {what}, whose answer is "{answer}"')
def step_an_agent_that_has_what_whose_answer_is(context: Context, what: str, answer: str) -> None:
    context.agent = agent_with(what, saying(answer))


@given('an agent that has a chat model, whose answers are "{first}" and "{second}"')
def step_an_agent_that_has_a_chat_model_whose_answers_are(
    context: Context, first: str, second: str
) -> None:
    context.agent = agent_with("a chat model", saying(first, second))


@given('an agent that streams by itself, whose answer is "{answer}"')
def step_an_agent_that_streams_by_itself(context: Context, answer: str) -> None:
    context.agent = agent_with("a chat model", saying(answer), stream_mode="messages")


@given("an agent that has {what}, whose answer has {count:d} tokens")
def step_an_agent_that_has_what_whose_answer_has_tokens(
    context: Context, what: str, count: int
) -> None:
    context.said = Log()
    context.agent = agent_with(what, Talker(tokens=count, said=context.said))


@given("an agent whose chat model fails after {count:d} tokens")
def step_an_agent_whose_chat_model_fails(context: Context, count: int) -> None:
    class Failing(Talker):
        async def _astream(self, *arguments: Any, **options: Any) -> Any:
            async for chunk in super()._astream(*arguments, **options):
                yield chunk
            raise ConnectionError("of the model")

    context.agent = BaseAgent("talker", llm=Failing(tokens=count, said=Log()))


@when('it streams its answer to a question, with stream_mode="messages"')
def step_it_streams_its_answer_with_stream_mode(context: Context) -> None:
    stream_answer(context, stream_mode="messages")


@when('it streams its answer to a question, with stream_mode=["updates", "messages"]')
def step_it_streams_its_answer_with_updates_messages(context: Context) -> None:
    stream_answer(context, stream_mode=["updates", "messages"])


@when("it streams its answer to a question")
def step_it_streams_its_answer(context: Context) -> None:
    stream_answer(context)


def stream_answer(context: Context, **options: Any) -> None:
    context.items, context.error = [], None

    async def main() -> None:
        try:
            async for item in context.agent.stream("?", **options):
                context.items.append(item)
        except ConnectionError as error:
            context.error = error

    run(main())


@then("it gives the words one by one, numbered, in the mode messages, and then the answer")
def step_it_gives_the_words_one_by_one(context: Context) -> None:
    *chunks, answer = context.items
    assert words(chunks) == ["it", "is", "so"], chunks
    assert {chunk.source.content for chunk in chunks} == {"?"}
    assert {chunk.thread_id for chunk in chunks} == {"talker"}
    assert answer == "it is so", answer


@then("the agent remembers the question and the answer, once")
def step_the_agent_remembers_the_question_and_the_answer(context: Context) -> None:
    told = [(each.role, each.content) for each in context.agent.memory.get_messages()]
    assert told == [("user", "?"), ("assistant", "it is so")], told


@then("it gives the answer alone")
def step_it_gives_the_answer_alone(context: Context) -> None:
    assert context.items == ["it is so"], context.items


@then("it gives chunks of both modes, numbered, and then the answer")
def step_it_gives_chunks_of_both_modes(context: Context) -> None:
    *chunks, answer = context.items
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    (update,) = [chunk.content for chunk in chunks if chunk.mode == "updates"]
    assert [message.content for message in update["talk"]["messages"]] == ["it is so"]
    assert len([chunk for chunk in chunks if chunk.mode == "messages"]) >= 3
    assert answer == "it is so"


@when("it answers a question by {way}")
def step_it_answers_a_question_by(context: Context, way: str) -> None:
    agent, observed = context.agent, Log()
    agent.outputs.subscribe(observed.add)
    broadcast = agent.stream(broadcast=True)

    async def main() -> list[list[Any]]:
        reading = [asyncio.create_task(listed(each)) for each in (agent.stream(), broadcast)]
        await pass_turns()
        if way == "run":
            await agent.run("?")
        elif way == "ainvoke":
            await agent.ainvoke("?")
        else:
            with RxPyLangGraphBridge() as bridge:
                operator = bridge.invoke(agent)
                await asyncio.to_thread(rx.just("?").pipe(operator, ops.to_list()).run)
        return list(await asyncio.gather(*reading))

    context.outputs = [*run(main()), observed.wait_for(1)]


@then("its output, its broadcast and its observers have the words and the answer")
def step_its_output_its_broadcast_and_its_observers(context: Context) -> None:
    for *chunks, answer in context.outputs:
        assert words(chunks) == ["it", "is", "so"], chunks
        assert answer == "it is so", answer


@when('it streams its answers to two questions at once, with stream_mode="messages"')
def step_it_streams_its_answers_to_two_questions_at_once(context: Context) -> None:
    async def main() -> list[list[Any]]:
        streams = [
            context.agent.stream(question, stream_mode="messages", on_busy="enqueue")
            for question in "ab"
        ]
        return list(await asyncio.gather(*map(listed, streams)))

    context.both = run(main())


@then("each stream has the words of its own answer, numbered from 0")
def step_each_stream_has_the_words_of_its_own_answer(context: Context) -> None:
    for items, question, answer in zip(context.both, "ab", ("it is so", "so it is"), strict=True):
        *chunks, last = items
        assert words(chunks) == answer.split(), chunks
        assert {chunk.source.content for chunk in chunks} == {question}
        assert last == answer


@when("{count:d} tokens are taken from its stream, and then no more")
def step_tokens_are_taken_from_its_stream(context: Context, count: int) -> None:
    async def main() -> None:
        stream = context.agent.stream("?", stream_mode="messages")
        context.items = [await anext(stream) for _ in range(count)]
        for _ in range(50):
            await pass_turns()
        context.made = len(context.said)
        context.items += await listed(stream)

    run(main())


@then("the model has made no more than {most:d} tokens")
def step_the_model_has_made_no_more_than(context: Context, most: int) -> None:
    assert 3 <= context.made <= most, context.made


@then("the rest comes when the reader goes on, in order")
def step_the_rest_comes_when_the_reader_goes_on(context: Context) -> None:
    *chunks, answer = context.items
    assert words(chunks) == [f"{number} " for number in range(500)]
    assert answer == "".join(words(chunks))


@when("{count:d} tokens are taken from its stream, which is then closed")
def step_tokens_are_taken_from_its_stream_which_is_then_closed(
    context: Context, count: int
) -> None:
    async def main() -> None:
        async with context.agent.stream("?", stream_mode="messages") as stream:
            context.items = [await anext(stream) for _ in range(count)]

    run(main())


@then("the model's stream is closed, and the agent remembers nothing")
def step_the_models_stream_is_closed(context: Context) -> None:
    assert context.said.wait_for(1)[-1] == "closed", context.said
    assert len(context.said) < 100
    assert context.agent.memory.get_messages() == ()


@then("it gives {count:d} tokens and raises the model's error, and the agent remembers nothing")
def step_it_gives_tokens_and_raises_the_models_error(context: Context, count: int) -> None:
    assert words(context.items) == [f"{number} " for number in range(count)]
    assert str(context.error) == "of the model", context.error
    assert context.agent.memory.get_messages() == ()


@when('"{call}" makes an agent, or its stream')
def step_call_makes_an_agent(context: Context, call: str) -> None:
    async def function(messages: Any) -> str:
        return "yes"

    names = {"BaseAgent": BaseAgent, "model": saying(), "function": function}
    context.error = error_of(lambda: eval(call, names))
