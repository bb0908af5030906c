"""Graphs that stream, what bare ``astream`` makes of them, and consumers that take their time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import reactivex as rx
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from support.bridge.graphs import State
from support.bridge.langgraph_cases import Case, comparable
from support.concurrency.tasks import run
from support.concurrency.waiting import Log

__all__ = [
    "UNLIMITED",
    "Talker",
    "alone",
    "counting",
    "endless",
    "in_subgraph",
    "numbered",
    "talking",
    "through_stream",
    "writing",
]

UNLIMITED: Any = {"recursion_limit": 1_000_000}
ON_THREAD: Any = {"configurable": {"thread_id": "thread"}}
# Ids and times, which differ from run to run.
_DRAWN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|\d{4}-\d\d-\d\dT[^']*")

Chunks = list[tuple[Any, ...]]


def told(chunk: Any) -> str:
    """A chunk as text, without the ids and times that are drawn in each run."""
    return _DRAWN.sub("drawn", repr(comparable(chunk)))


def alone(case: Case, modes: Sequence[str], subgraphs: bool) -> tuple[list[Any], list[Any]]:
    """The chunks of ``astream`` for each call of ``case``; and, of a new graph, the results."""
    config = ON_THREAD if case.checkpointed else None

    async def stream() -> list[Any]:
        graph, chunks = case.make(), []
        for content, arguments in case.calls:
            streamed = graph.astream(
                content, config, stream_mode=list(modes), subgraphs=subgraphs, **arguments
            )
            chunks.append([told(each if subgraphs else ((), *each)) async for each in streamed])
        return chunks

    async def invoke() -> list[Any]:
        graph = case.make()
        return [
            told(await graph.ainvoke(content, config, **arguments))
            for content, arguments in case.calls
        ]

    return run(stream()), run(invoke())


def through_stream(
    bridge: RxPyLangGraphBridge, case: Case, modes: Sequence[str], subgraphs: bool
) -> tuple[list[Any], list[Any]]:
    """The same through `RxPyLangGraphBridge.stream`, both of one graph."""
    graph, chunks, results = case.make(), [], []
    for content, arguments in case.calls:
        message = StreamMessage(content, "thread" if case.checkpointed else None)
        operator = bridge.stream(graph, stream_mode=modes, subgraphs=subgraphs, **arguments)
        *streamed, result = rx.just(message).pipe(operator, ops.to_list()).run()
        assert [each.sequence for each in streamed] == list(range(len(streamed)))
        assert all(each.source == message for each in (*streamed, result))
        chunks.append([told((each.namespace, each.mode, each.content)) for each in streamed])
        results.append(told(result.content))
    return chunks, results


# -- graphs ----------------------------------------------------------------------------------------


def counting(steps: int, seen: Any = None, *, add: Any = None) -> Any:
    """A graph that adds 1 to the value until it is ``steps``, one step of the graph each.

    Args:
        steps: How many.
        seen: Called with each value, if given.
        add: The step, if it is to be another one.
    """

    async def plus_1(state: State) -> State:
        value = state["value"] + 1
        if seen is not None:
            seen(value)
        return {"value": value}

    builder = StateGraph(State).add_node("add", add or plus_1).add_edge(START, "add")
    onward = {True: "add", False: "__end__"}
    choose = lambda state: state["value"] < steps  # noqa: E731
    return builder.add_conditional_edges("add", choose, onward).compile()


def in_subgraph(inner: Any, **options: Any) -> Any:
    """A graph whose one node is the graph ``inner``."""
    return StateGraph(State).add_node("sub", inner).add_edge(START, "sub").compile(**options)


def endless(seen: Log) -> Any:
    """A graph that counts in a subgraph, without an end."""

    async def add(state: State) -> State:
        seen.add(state["value"])
        return {"value": state["value"] + 1}

    builder = StateGraph(State).add_node("add", add).add_edge(START, "add")
    return in_subgraph(builder.add_edge("add", "add").compile())


def writing(count: int, written: Any) -> Any:
    """A graph with an async node that writes ``count`` numbers, with a turn of the loop between."""

    async def write(state: State) -> State:
        writer = get_stream_writer()
        for number in range(count):
            written(number)
            writer(number)
            await asyncio.sleep(0)
        return state

    return StateGraph(State).add_node("write", write).add_edge(START, "write").compile()


def talking(*answers: str) -> Any:
    """A graph with a chat model that gives its answers word by word."""
    model = GenericFakeChatModel(messages=iter([AIMessage(answer) for answer in answers]))

    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile()


class Talker(BaseChatModel):
    """A chat model that answers with the numbers below ``tokens``, one token each.

    ``said`` has each of them, and "closed" once its stream is. With ``in_one_go``, other tasks of
    its loop have no turn between two tokens.
    """

    tokens: int
    said: Any
    in_one_go: bool = False

    @property
    def _llm_type(self) -> str:
        return "talker"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(self, *_: Any, run_manager: Any = None, **__: Any) -> Iterator[ChatGenerationChunk]:
        for number in range(self.tokens):
            self.said.add(number)
            chunk = ChatGenerationChunk(message=AIMessageChunk(f"{number} "))
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self, *_: Any, run_manager: Any = None, **__: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        try:
            for number in range(self.tokens):
                self.said.add(number)
                yield ChatGenerationChunk(message=AIMessageChunk(f"{number} "))
                if not self.in_one_go:
                    await asyncio.sleep(0)
        finally:
            self.said.add("closed")


def numbered(items: Sequence[StreamMessage]) -> list[Any]:
    """Of each chunk its number, of each result its content's value."""
    return [each.content["value"] if each.sequence is None else each.sequence for each in items]
