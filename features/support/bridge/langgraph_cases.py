"""LangGraph's features, one small graph each, and the calls that show them.

A case makes a new graph at each call, so that two ways of calling it can be compared.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, Interrupt, RetryPolicy, Send, interrupt
from pydantic import BaseModel

__all__ = ["CASES", "Case", "comparable"]


@dataclass(frozen=True)
class Case:
    """A graph, and calls of it one after another: contents, with LangGraph's arguments."""

    make: Callable[[], Any]
    calls: Sequence[tuple[Any, dict[str, Any]]] = field(default=(({"n": 1}, {}),))
    checkpointed: bool = False


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[str], operator.add]


def comparable(value: Any) -> Any:
    """``value`` without the ids that LangGraph and LangChain draw at random."""
    if isinstance(value, BaseMessage):
        calls = getattr(value, "tool_calls", [])
        return (value.type, value.content, [(call["name"], call["args"]) for call in calls])
    if isinstance(value, Interrupt):
        return ("interrupt", value.value)
    if isinstance(value, BaseModel):
        return comparable(dict(value))
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [comparable(item) for item in value]
        asked_at_once = all(isinstance(item, Interrupt) for item in value)  # in any order
        return sorted(items, key=repr) if asked_at_once else items
    return value


def step(name: str, add: int = 1) -> Callable[[State], State]:
    def node(state: State) -> State:
        return {"n": state.get("n", 0) + add, "log": [name]}

    node.__name__ = name
    return node


async def later(state: State) -> State:
    return {"n": state.get("n", 0) * 10, "log": ["later"]}


def sequence(*nodes: Callable[..., Any], **options: Any) -> Any:
    builder = StateGraph(State).add_sequence(nodes)
    return builder.add_edge(START, nodes[0].__name__).compile(**options)


# -- the shape of the graph ------------------------------------------------------------------------


def looping() -> Any:
    builder = StateGraph(State).add_node(step("more")).add_edge(START, "more")
    onward = {True: "more", False: END}
    return builder.add_conditional_edges("more", lambda state: state["n"] < 5, onward).compile()


def parallel() -> Any:
    class Wide(TypedDict, total=False):
        n: int
        seen: Annotated[list[str], operator.add]

    builder = StateGraph(Wide)
    for name in "abc":
        builder.add_node(name, lambda state, name=name: {"seen": [f"{name}{state['n']}"]})
        builder.add_edge(START, name).add_edge(name, "join")
    return builder.add_node("join", lambda _: {"seen": ["join"]}, defer=True).compile()


def map_reduce() -> Any:
    builder = StateGraph(State).add_node("work", lambda number: {"log": [f"work {number}"]})
    send = lambda state: [Send("work", number) for number in range(state["n"] + 3)]  # noqa: E731
    return builder.add_conditional_edges(START, send, ["work"]).compile()


def with_subgraph() -> Any:
    inner = sequence(step("inner"), later)
    return (
        StateGraph(State)
        .add_sequence([step("first"), ("sub", inner)])
        .add_edge(START, "first")
        .compile()
    )


def calling_subgraph() -> Any:
    inner = sequence(step("inner", 5))

    async def call(state: State) -> State:
        return {"n": (await inner.ainvoke({"n": state["n"]}))["n"], "log": ["called"]}

    return sequence(call)


def goto() -> Any:
    def route(state: State) -> Command[str]:
        return Command(update={"log": ["route"]}, goto="right" if state["n"] else "left")

    builder = StateGraph(State).add_node("route", route, destinations=("left", "right"))
    return builder.add_node(step("left")).add_node(step("right")).add_edge(START, "route").compile()


def goto_parent() -> Any:
    def leave(_: State) -> Command[str]:
        return Command(graph=Command.PARENT, update={"log": ["left"]}, goto="after")

    inner = StateGraph(State).add_node("leave", leave).add_edge(START, "leave").compile()
    builder = StateGraph(State).add_node("inner", inner, destinations=("after",))
    return builder.add_node(step("after")).add_edge(START, "inner").compile()


# -- the functional API ----------------------------------------------------------------------------


@task
async def double(number: int) -> int:
    return 2 * number


def functional() -> Any:
    @entrypoint()
    async def workflow(content: dict[str, Any]) -> list[int]:
        return [await double(content["n"]), await double(content["n"] + 1)]

    return workflow


def functional_with_memory() -> Any:
    @entrypoint(checkpointer=InMemorySaver())
    async def workflow(content: dict[str, Any], *, previous: Any = None) -> Any:
        total = (previous or 0) + content["n"]
        return entrypoint.final(value=f"total {total}", save=total)

    return workflow


# -- agents ----------------------------------------------------------------------------------------


class ToolModel(GenericFakeChatModel):
    """A chat model that says what it was made with, and may be given tools."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CALL = {"name": "add", "args": {"a": 1, "b": 2}, "id": "call-1"}


def model() -> ToolModel:
    return ToolModel(messages=iter([AIMessage("", tool_calls=[CALL]), AIMessage("it is 3")]))


def tools_alone() -> Any:
    return (
        StateGraph(MessagesState)
        .add_node("tools", ToolNode([add]))
        .add_edge(START, "tools")
        .compile()
    )


def react_agent() -> Any:
    with warnings.catch_warnings():  # deprecated for create_agent, and in use everywhere
        warnings.simplefilter("ignore")
        return create_react_agent(model(), [add])


def chat() -> Any:
    answers = ToolModel(messages=iter([AIMessage("hello"), AIMessage("again")]))

    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await answers.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk")
    return builder.compile(checkpointer=InMemorySaver())


# -- what surrounds a graph ------------------------------------------------------------------------


def with_store() -> Any:
    async def remember(state: State, runtime: Runtime[Any]) -> State:
        assert runtime.store is not None
        await runtime.store.aput(("numbers",), str(state["n"]), {"n": state["n"]})
        found = await runtime.store.asearch(("numbers",))
        return {"log": sorted(item.key for item in found)}

    return sequence(remember, store=InMemoryStore())


def with_cache() -> Any:
    calls = iter(range(100))

    def cached(_: State) -> State:
        return {"log": [f"call {next(calls)}"]}

    builder = StateGraph(State).add_node("cached", cached, cache_policy=CachePolicy())
    return builder.add_edge(START, "cached").compile(cache=InMemoryCache())


def with_node_retries() -> Any:
    attempts = iter([ConnectionError("first"), None])

    def unsteady(_: State) -> State:
        if (error := next(attempts)) is not None:
            raise error
        return {"log": ["second attempt"]}

    policy = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=ConnectionError)
    builder = StateGraph(State).add_node("unsteady", unsteady, retry_policy=policy)
    return builder.add_edge(START, "unsteady").compile()


def with_fallback() -> Any:
    def fail(_: State) -> State:
        raise ConnectionError("the graph fails")

    graph = sequence(fail, checkpointer=InMemorySaver())
    return graph.with_fallbacks([RunnableLambda(lambda content: {"fell back with": content})])


def with_pydantic() -> Any:
    class Checked(BaseModel):
        n: int
        name: str = "nobody"

    builder = StateGraph(Checked).add_node("name", lambda state: {"name": f"number {state.n}"})
    return builder.add_edge(START, "name").compile()


def with_schemas() -> Any:
    class Output(TypedDict):
        n: int

    builder = StateGraph(State, output_schema=Output).add_node(step("only"))
    return builder.add_edge(START, "only").compile()


def with_schemas_and_breakpoint() -> Any:
    class Output(TypedDict):
        n: int

    def quiet(_: State) -> State:
        return {"log": ["quiet"]}

    builder = StateGraph(State, output_schema=Output).add_sequence([quiet, step("only")])
    return builder.add_edge(START, "quiet").compile(InMemorySaver(), interrupt_before=["only"])


@dataclass
class Shop:
    name: str
    discount: int = 0


def with_context() -> Any:
    def price(state: State, runtime: Runtime[Shop]) -> State:
        shop = runtime.context
        return {"n": state["n"] - shop.discount, "log": [f"{type(shop).__name__} {shop.name}"]}

    builder = StateGraph(State, context_schema=Shop).add_node("price", price)
    return builder.add_edge(START, "price").compile()


# -- stops, questions and answers ------------------------------------------------------------------


def checkpointed() -> Any:
    return sequence(step("a"), step("b"), step("c"), checkpointer=InMemorySaver())


def asking() -> Any:
    def ask(_: State) -> State:
        return {"log": [interrupt("name?"), interrupt("age?")]}

    return sequence(step("before"), ask, checkpointer=InMemorySaver())


def asking_twice_at_once() -> Any:
    builder = StateGraph(State)
    for name in "ab":
        builder.add_node(name, lambda _, name=name: {"log": [interrupt(f"{name}?")]})
        builder.add_edge(START, name)
    return builder.compile(checkpointer=InMemorySaver())


def one(content: Any, **arguments: Any) -> tuple[tuple[Any, dict[str, Any]], ...]:
    return ((content, arguments),)


START_AT_1: Any = {"n": 1}
QUESTION: Any = {"messages": [("user", "1 + 2?")]}

CASES: dict[str, Case] = {
    "an async node": Case(partial(sequence, later)),
    "a sync node": Case(partial(sequence, step("a"))),
    "a sequence of nodes": Case(partial(sequence, step("a"), later, step("b"))),
    "a loop": Case(looping),
    "parallel nodes and a deferred one": Case(parallel),
    "Send to many": Case(map_reduce),
    "a subgraph as a node": Case(with_subgraph),
    "a subgraph called by a node": Case(calling_subgraph),
    "Command(goto) by a node": Case(goto),
    "Command(graph=PARENT) by a subgraph": Case(goto_parent),
    "the functional API": Case(functional),
    "the functional API with memory": Case(
        functional_with_memory, [({"n": 1}, {}), ({"n": 2}, {})], checkpointed=True
    ),
    "messages with a checkpointer": Case(
        chat,
        [({"messages": [("user", "hi")]}, {}), ({"messages": [("user", "again")]}, {})],
        checkpointed=True,
    ),
    "create_react_agent with a tool": Case(react_agent, one(QUESTION)),
    "create_agent with a tool": Case(lambda: create_agent(model(), [add]), one(QUESTION)),
    "tools alone": Case(tools_alone, one({"messages": [AIMessage("", tool_calls=[CALL])]})),
    "a store": Case(with_store, [({"n": 1}, {}), ({"n": 2}, {})]),
    "a cached node": Case(with_cache, [({"n": 1}, {}), ({"n": 1}, {})]),
    "a node with a retry policy": Case(with_node_retries),
    "a fallback that is not a graph": Case(with_fallback, checkpointed=True),
    "a pydantic state": Case(with_pydantic),
    "an output schema": Case(with_schemas),
    "a breakpoint before there is output": Case(
        with_schemas_and_breakpoint,
        [(START_AT_1, {}), (None, {}), ({"log": ["in"]}, {}), (None, {})],
        checkpointed=True,
    ),
    "a graph in a sequence": Case(lambda: looping() | RunnableLambda(lambda out: out["n"])),
    "a graph with a bound config": Case(lambda: looping().with_config(tags=["x"])),
    "context": Case(with_context, one(START_AT_1, context=Shop("tea", 1))),
    "context as a dictionary": Case(with_context, one(START_AT_1, context={"name": "tea"})),
    "output_keys, one": Case(looping, one(START_AT_1, output_keys="n")),
    "output_keys, a list": Case(looping, one(START_AT_1, output_keys=["n"])),
    "durability exit": Case(checkpointed, one(START_AT_1, durability="exit"), checkpointed=True),
    "durability sync": Case(checkpointed, one(START_AT_1, durability="sync"), checkpointed=True),
    "interrupt_before, and on": Case(
        checkpointed, [(START_AT_1, {"interrupt_before": ["b"]}), (None, {})], checkpointed=True
    ),
    "interrupt_after, and on": Case(
        checkpointed, [(START_AT_1, {"interrupt_after": "*"}), (None, {})], checkpointed=True
    ),
    "two questions, and their answers": Case(
        asking,
        [(START_AT_1, {}), (Command(resume="Ann"), {}), (Command(resume="40"), {})],
        checkpointed=True,
    ),
    "questions at once, and no answer": Case(
        asking_twice_at_once, one(START_AT_1), checkpointed=True
    ),
    "Command(update, goto) as content": Case(
        checkpointed,
        [(START_AT_1, {}), (Command(update={"n": 50}, goto="c"), {})],
        checkpointed=True,
    ),
}
