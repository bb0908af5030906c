"""Consumers that pause, and what is at work within a step meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from typing import Any

import reactivex
from behave import given, then, when
from behave.runner import Context
from langchain_core.callbacks import AsyncCallbackManager, BaseCallbackHandler
from langchain_core.runnables import RunnableGenerator
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.chunk_window import ChunkReader
from rxlanggraph.bridge.pacing import Pace
from rxlanggraph.messages import StreamMessage
from support.bridge.bridges import LentLoop, expire, on_loop
from support.bridge.chunks import UNLIMITED, Talker, counting, in_subgraph, writing
from support.bridge.graphs import State, one_node
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT, Log

QUESTION: Any = {"messages": [("user", "?")]}
NUMBER: Any = {"value": 0}


@when(
    "a coroutine awaits the stream of a run of 500 chunks, and its loop stands still after the "
    "first"
)
def step_a_coroutine_awaits_the_stream_of_a_run_of_500_chunks(context: Context) -> None:
    bridge, seen = context.bridge, Log()
    made: list[int] = []

    def stand_still(_: StreamMessage) -> None:
        if not made:
            for _ in range(200):
                on_loop(context)
            made.append(len(seen))

    async def main() -> list[StreamMessage]:
        source = reactivex.of(NUMBER)
        stage = bridge.stream(counting(500, seen.add), stream_mode="updates")
        items: list[StreamMessage] = await source.pipe(
            stage, ops.do_action(stand_still), ops.to_list()
        )
        return items

    context.items = asyncio.run(asyncio.wait_for(main(), LIMIT))
    (context.made,) = made


@then("it has made no more than {most:d} chunks by then, and all of its chunks have come")
def step_it_has_made_no_more_than_most_chunks_by_then(context: Context, most: int) -> None:
    assert context.made <= most, context.made
    assert len(context.items) == 501, len(context.items)


def talking_by(*nodes: Any) -> Any:
    builder = StateGraph(MessagesState)
    for number, node in enumerate(nodes):
        builder.add_node(f"talk {number}", node).add_edge(START, f"talk {number}")
    return builder.compile()


def asked(model: Any) -> Any:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return talk


def asked_in_thread(model: Any) -> Any:
    def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    return talk


def asked_on_loop(model: Any) -> Any:
    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    return talk


def written(model: Any) -> Any:
    async def talk(state: MessagesState) -> None:
        writer = get_stream_writer()
        async for token in model.astream(state["messages"]):
            writer(token.content)

    return talk


def calling_a_tool(total: int, seen: Log, *, in_thread: bool) -> Any:
    @tool
    async def note(number: int) -> str:
        """Note it."""
        seen.add(number)
        return "noted"

    @tool
    def note_in_thread(number: int) -> str:
        """Note it."""
        seen.add(number)
        return "noted"

    async def work(state: MessagesState) -> None:
        for number in range(total):
            await note.ainvoke({"number": number})
            get_stream_writer()(number + 1)

    def work_in_thread(state: MessagesState) -> None:
        for number in range(total):
            note_in_thread.invoke({"number": number})
            get_stream_writer()(number + 1)

    return talking_by(work_in_thread if in_thread else work)


def counting_in_thread(total: int, seen: Log) -> Any:
    def plus_1(state: State) -> State:
        seen.add(state["value"])
        return {"value": state["value"] + 1}

    inner = counting(total, add=plus_1)

    def work(state: State) -> State:
        return inner.invoke(state, UNLIMITED)

    return one_node(work)


def generating(total: int, seen: Log) -> Any:
    async def generate(inputs: AsyncIterator[Any]) -> AsyncIterator[int]:
        async for _ in inputs:
            pass
        for number in range(total):
            seen.add(number)
            yield number

    return RunnableGenerator(generate)


def streaming(what: str, seen: Log, total: int) -> tuple[Any, Any, dict[str, Any]]:
    """A graph, its content, and the arguments to stream it with."""
    model = Talker(tokens=total, said=seen)
    messages: dict[str, Any] = {"stream_mode": "messages"}
    custom: dict[str, Any] = {"stream_mode": "custom"}
    made: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "the tokens of a model": (talking_by(asked(model)), QUESTION, messages),
        "the tokens of a model that gives the loop no turn": (
            talking_by(asked(Talker(tokens=total, said=seen, in_one_go=True))),
            QUESTION,
            messages,
        ),
        "the tokens of a model in a worker thread": (
            talking_by(asked_in_thread(model)),
            QUESTION,
            messages,
        ),
        "the tokens of a sync model on the loop": (
            talking_by(asked_on_loop(model)),
            QUESTION,
            messages,
        ),
        "the tokens of 4 models at once": (
            talking_by(*(asked(Talker(tokens=total // 4, said=seen)) for _ in range(4))),
            QUESTION,
            messages,
        ),
        "the steps of a subgraph": (
            in_subgraph(counting(total, seen.add)),
            NUMBER,
            {"subgraphs": True, "config": UNLIMITED},
        ),
        "the steps of a subgraph in a worker thread": (
            counting_in_thread(total, seen),
            NUMBER,
            {"subgraphs": True},
        ),
        "the calls of a tool": (calling_a_tool(total, seen, in_thread=False), QUESTION, custom),
        "the calls of a tool in a worker thread": (
            calling_a_tool(total, seen, in_thread=True),
            QUESTION,
            custom,
        ),
        "the chunks of a Runnable": (generating(total, seen), NUMBER, {}),
        "the tokens of a model, as custom chunks": (talking_by(written(model)), QUESTION, custom),
        "the numbers that a node writes": (writing(total, seen.add), NUMBER, custom),
    }
    return made[what]


def count(seen: Log) -> int:
    """How many there were, of whatever it is."""
    return sum(each != "closed" for each in seen.wait_for(0))


async def turns() -> None:
    for _ in range(2_000):
        await asyncio.sleep(0)


async def thread_held_up(seen: Log) -> None:
    """Wait until a thread waits for the consumer, or has made all, not having waited."""
    async with asyncio.timeout(LIMIT):
        while count(seen) < 500 and not any(  # noqa: ASYNC110 - another thread comes to it
            inner.f_code is Pace._block.__code__
            for frame in sys._current_frames().values()
            for inner, _ in traceback.walk_stack(frame)
        ):
            await asyncio.sleep(0.001)


def on_the_bridge(context: Context) -> Any:
    return asyncio.run_coroutine_threadsafe(turns(), context.bridge._engine.host.loop)


@when("5 chunks are taken of {what}, and then none while the loop has 2,000 turns")
def step_5_chunks_are_taken_and_then_none(context: Context, what: str) -> None:
    seen = Log()
    graph, content, options = streaming(what, seen, 500)

    async def consume() -> None:
        stream = context.bridge.astream(graph, content, **options)
        context.items = [await anext(stream) for _ in range(5)]
        await asyncio.wrap_future(on_the_bridge(context))
        if "in a worker thread" in what:
            await thread_held_up(seen)
        context.made = count(seen)
        context.items += [item async for item in stream]

    run(consume())
    assert count(seen) == 500


@then("there were no more than {most:d}")
def step_there_were_no_more_than(context: Context, most: int) -> None:
    assert 5 <= context.made <= most, context.made


@then("all 500 were made")
def step_all_500_were_made(context: Context) -> None:
    assert context.made == 500, context.made


@then("the rest comes when the consumer goes on, each once and in order")
def step_the_rest_comes_when_the_consumer_goes_on(context: Context) -> None:
    *chunks, result = context.items
    assert result.sequence is None
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    by_node: dict[Any, list[str]] = {}
    for chunk in chunks:
        if chunk.mode == "messages":
            token, metadata = chunk.content
            by_node.setdefault(metadata["langgraph_node"], []).append(token.content)
        elif chunk.mode == "custom" or chunk.namespace:
            by_node.setdefault("alone", []).append(chunk.content)
    total = 500 // len(by_node)
    for told in by_node.values():
        tokens = [each for each in told if each]
        if isinstance(told[0], str):
            assert tokens == [f"{number} " for number in range(total)], told
        assert len(tokens) == total, len(told)


@when('5 chunks of bare "astream" are taken of {what}, and then none')
def step_5_chunks_of_bare_astream_are_taken(context: Context, what: str) -> None:
    context.streamed = what


@then("{more:d} more are made all the same")
def step_more_are_made_all_the_same(context: Context, more: int) -> None:
    seen = Log()
    graph, content, options = streaming(context.streamed, seen, 500)

    async def consume() -> None:
        stream = graph.astream(content, **options)
        for _ in range(5):
            await anext(stream)
        async with asyncio.timeout(LIMIT):
            while count(seen) < 5 + more:  # noqa: ASYNC110 - what is made, is made on this loop
                await asyncio.sleep(0)
        await stream.aclose()

    run(consume())


# -- the end of a run that is held up --------------------------------------------------------------


@when("5 chunks are taken of {what}, and then {end}")
def step_5_chunks_are_taken_and_then_end(context: Context, what: str, end: str) -> None:
    context.seen = seen = Log()
    graph, content, options = streaming(what, seen, 1_000_000)
    if end == "the timeout expires":
        options["timeout"] = LIMIT

    async def consume() -> None:
        stream = context.bridge.astream(graph, content, **options)
        for _ in range(5):
            await anext(stream)
        await asyncio.wrap_future(on_the_bridge(context))
        await ENDS[end](context.bridge, stream)

    run(consume())


async def close_stream(_: RxPyLangGraphBridge, stream: ChunkReader) -> None:
    await stream.aclose()


async def cancel_run(_: RxPyLangGraphBridge, stream: ChunkReader) -> None:
    stream.run.cancel()


async def clean_up(bridge: RxPyLangGraphBridge, _: ChunkReader) -> None:
    assert not (await bridge.cleanup_tasks_async(LIMIT)).stuck


async def close_bridge(bridge: RxPyLangGraphBridge, _: ChunkReader) -> None:
    assert not (await bridge.aclose(0, cancel_timeout=LIMIT)).stuck


async def let_time_pass(_: RxPyLangGraphBridge, stream: ChunkReader) -> None:
    expire(stream.run)
    while not stream.run.done():  # noqa: ASYNC110 - at its timeout
        await asyncio.sleep(0.01)


ENDS: dict[str, Any] = {
    "the stream is closed": close_stream,
    "the run is cancelled": cancel_run,
    "the bridge cleans up": clean_up,
    "the bridge is closed": close_bridge,
    "the timeout expires": let_time_pass,
}


@then("the registry becomes idle, and what was at work has ended")
def step_the_registry_becomes_idle_and_what_was_at_work_has_ended(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert count(context.seen) < 1_000_000


@given("an adopted loop, on which a sync model is held up by a consumer that pauses")
def step_an_adopted_loop_on_which_a_sync_model_is_held_up(context: Context) -> None:
    context.seen = seen = Log()
    context.loop = LentLoop()
    context.ended = threading.Event()

    def talk(state: MessagesState) -> dict[str, Any]:
        try:
            return {"messages": [Talker(tokens=500, said=seen).invoke(state["messages"])]}
        finally:
            context.ended.set()

    async def begin() -> None:
        bridge = context.bridge = RxPyLangGraphBridge(asyncio.get_running_loop())
        context.stream = bridge.astream(talking_by(talk), QUESTION, stream_mode="messages")
        for _ in range(5):
            await anext(context.stream)
        await turns()

    context.loop.run(begin())
    assert not context.ended.is_set()
    assert count(seen) < 100


@when("the loop stops")
def step_the_loop_stops(context: Context) -> None:
    context.loop.end()


@then("the model's thread comes to its end")
def step_the_models_thread_comes_to_its_end(context: Context) -> None:
    assert context.ended.wait(LIMIT)
    context.bridge.close(0, cancel_timeout=LIMIT)


class Told(BaseCallbackHandler):
    """Counts the tokens that it is told of."""

    def __init__(self) -> None:
        self.tokens = itertools.count()

    def on_llm_new_token(self, *_: Any, **__: Any) -> None:
        next(self.tokens)


@when("tokens are streamed with callbacks in the config, as a list and as a manager")
def step_tokens_are_streamed_with_callbacks_in_the_config(context: Context) -> None:
    context.told = [Told(), Told()]
    own = AsyncCallbackManager([], inheritable_handlers=[context.told[1]])

    async def consume() -> list[StreamMessage]:
        items = []
        for callbacks in ([context.told[0]], own):
            graph, content, options = streaming("the tokens of a model", Log(), 50)
            stream = context.bridge.astream(
                graph, content, config={"callbacks": callbacks}, **options
            )
            items += [item async for item in stream]
        return items

    run(consume())
    assert len(own.handlers) == 0


@then("each of them was told of every token")
def step_each_of_them_was_told_of_every_token(context: Context) -> None:
    assert [next(each.tokens) >= 50 for each in context.told] == [True, True]
