"""Agents and requests in the forms that LangChain and LangGraph know."""

from __future__ import annotations

import math
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from rxlanggraph.agent import BaseAgent, Memory

__all__ = ["MADE_WITH", "REQUESTS", "Heard", "made_with"]

REQUESTS: dict[str, Any] = {
    "a list of two messages": ["before", HumanMessage("hello")],
    "a mapping of messages": {"messages": [("user", "hello")]},
    "a mapping with one message": {"messages": HumanMessage("hello")},
    "a pair of role and content": ("user", "hello"),
    "a mapping of pairs, read as JSON": {"messages": [["user", "before"], ["user", "hello"]]},
    "a LangChain message": HumanMessage("hello"),
    "a mapping of role and content": {"role": "user", "content": "hello"},
}


async def repeat(messages: Any) -> str:
    return str(messages[-1].content)


def reverse(state: MessagesState) -> dict[str, Any]:
    request = str(state["messages"][-1].content)
    if request == "fail":
        raise LookupError("on demand")
    return {"messages": [AIMessage(request[::-1])]}


def interrupting(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(interrupt("may I?"))]}


class City(TypedDict):
    city: str


def find_city(state: MessagesState) -> City:
    return {"city": "Bern"}


def graph(node: Any = reverse, *, keeps: bool = False, output: Any = None) -> Any:
    builder = StateGraph(MessagesState, output_schema=output or MessagesState)
    builder.add_node("node", node).add_edge(START, "node")
    return builder.compile(checkpointer=InMemorySaver() if keeps else None)


async def ask_for_tools(messages: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "1"}])


class Heard(AsyncCallbackHandler):
    """Hears of every Runnable that starts."""

    def __init__(self) -> None:
        self.count = 0

    async def on_chain_start(self, *_: Any, **__: Any) -> None:
        self.count += 1


MADE_WITH: dict[str, Any] = {
    'a chain that ends in {"city": "Bern"}': lambda: {"llm": RunnableLambda(find_city)},
    'a graph whose output is {"city": "Bern"}': lambda: {"graph": city_graph()},
    "a model that asks for tools": lambda: {"llm": ask_for_tools},
    "a graph that interrupts itself": lambda: {"graph": graph(interrupting, keeps=True)},
    "a graph as its llm": lambda: {"llm": graph()},
    "a Runnable that hears": lambda: {"llm": RunnableLambda(find_city)},
    "a graph that hears": lambda: {"graph": graph()},
    "a graph with a checkpointer": lambda: {"graph": graph(keeps=True)},
    "a graph that adds to what its checkpointer has": lambda: {"graph": adding_graph()},
    'a graph with a checkpointer that fails on "fail"': lambda: {"graph": graph(keeps=True)},
    "a graph with a checkpointer, which remembers 4 messages": lambda: {
        "graph": graph(keeps=True),
        "memory": Memory(max_messages=4),
    },
}


class _CityState(MessagesState):
    city: str


def city_graph() -> Any:
    builder = StateGraph(_CityState, output_schema=City)
    return builder.add_node("node", find_city).add_edge(START, "node").compile()


class _Added(TypedDict):
    messages: Annotated[list[Any], operator.add]


def adding_graph() -> Any:
    builder = (
        StateGraph(_Added).add_node("node", reverse, input_schema=_Added).add_edge(START, "node")
    )
    return builder.compile(checkpointer=InMemorySaver())


def made_with(what: str) -> BaseAgent:
    return BaseAgent("formal", timeout=math.inf, **MADE_WITH[what]())
