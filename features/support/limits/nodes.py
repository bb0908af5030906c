"""Graphs whose nodes call the model of the tests, in all the ways in which code does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypedDict

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph

from support.limits.models import ProviderModel

__all__ = ["NODES", "Text", "graph_of_node"]


class Text(TypedDict):
    text: str
    """``"PROMPT TOTAL"``, in tokens."""


Node = Callable[[Text], Any]


def graph_of_node(node: Node) -> Any:
    builder = StateGraph(Text).add_node("node", node)
    return builder.add_edge(START, "node").add_edge("node", END).compile()


def an_async_node(model: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        await model.ainvoke(state["text"])
        return {}

    return graph_of_node(node)


def a_sync_node(model: ProviderModel) -> Any:
    def node(state: Text) -> dict[str, str]:
        model.invoke(state["text"])
        return {}

    return graph_of_node(node)


def a_plain_function(model: ProviderModel) -> Any:
    def function(state: Text) -> str:
        return str(model.invoke(state["text"]).content)

    return function


def a_node_that_calls_the_model_while_it_reads_a_stream(model: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        async for _ in model.astream(state["text"]):
            await model.ainvoke(state["text"])
        return {}

    return graph_of_node(node)


class Outer(ProviderModel):
    """Calls another model for its answer."""

    inner: ProviderModel

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        answer = await self.inner.ainvoke(messages)
        assert isinstance(answer, AIMessage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def a_model_that_calls_a_model(model: ProviderModel) -> Any:
    return an_async_node(Outer(url=model.url, inner=model))


def a_node_that_asks_for_3_answers_in_one_call(model: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        question: list[BaseMessage] = [HumanMessage(state["text"])]
        await model.agenerate([question] * 3)
        return {}

    return graph_of_node(node)


def a_node_that_makes_4_calls_at_once(model: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        await asyncio.gather(*(model.ainvoke(state["text"]) for _ in range(4)))
        return {}

    return graph_of_node(node)


def a_sync_node_that_calls_4_in_threads(model: ProviderModel) -> Any:
    def node(state: Text) -> dict[str, str]:
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(copy_context().run, model.invoke, state["text"]) for _ in range(4)]
        for call in calls:
            call.result()
        return {}

    return graph_of_node(node)


def an_async_node_that_calls_the_model_synchronously(model: ProviderModel) -> Any:
    async def node(state: Text) -> dict[str, str]:
        model.invoke(state["text"])
        return {}

    return graph_of_node(node)


NODES: dict[str, Callable[[ProviderModel], Any]] = {
    make.__name__.replace("_", " "): make
    for make in (
        an_async_node,
        a_sync_node,
        a_plain_function,
        a_node_that_calls_the_model_while_it_reads_a_stream,
        a_model_that_calls_a_model,
        a_node_that_asks_for_3_answers_in_one_call,
        a_node_that_makes_4_calls_at_once,
        a_sync_node_that_calls_4_in_threads,
        an_async_node_that_calls_the_model_synchronously,
    )
}
