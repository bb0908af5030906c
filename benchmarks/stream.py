"""Chunks through `RxPyLangGraphBridge.stream`, beside a loop over bare `graph.astream`.

A run of many chunks, so that what a chunk costs is measured, and not what a run does: between steps
(mode `updates`) and within one (the tokens of a chat model, mode `messages`).
"""

from __future__ import annotations

from typing import Any

import reactivex as rx
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from rxlanggraph import RxPyLangGraphBridge

from .harness import LoopThread, Ratio, State, drain, paired

WAYS = ("updates", "updates and values", "messages")
_CHUNKS = 1_000
_UNLIMITED: Any = {"recursion_limit": 1_000_000}


def counting(steps: int) -> Any:
    """A graph that adds 1 so many times, a step each."""

    async def add(state: State) -> State:
        return {"n": state["n"] + 1}

    builder = StateGraph(State).add_node("add", add).add_edge(START, "add")
    onward = {True: "add", False: "__end__"}
    return builder.add_conditional_edges("add", lambda s: s["n"] < steps, onward).compile()


def talking(tokens: int) -> Any:
    """A graph with a chat model whose answer has so many tokens."""

    async def talk(state: MessagesState) -> dict[str, Any]:
        model = GenericFakeChatModel(messages=iter([AIMessage(" ".join(["x"] * (tokens // 2)))]))
        return {"messages": [await model.ainvoke(state["messages"])]}

    return StateGraph(MessagesState).add_node("talk", talk).add_edge(START, "talk").compile()


def ways(way: str) -> tuple[Any, Any, list[str]]:
    """A graph, its input, and the modes."""
    if way == "messages":
        return talking(_CHUNKS), {"messages": [("user", "?")]}, ["messages"]
    return counting(_CHUNKS), {"n": 0}, way.split(" and ")


def ratio(way: str, *, pairs: int = 9) -> Ratio:
    """One run of 1,000 steps or tokens through `stream`, over bare ``astream``; times a chunk."""
    graph, content, modes = ways(way)
    with LoopThread() as loop, RxPyLangGraphBridge() as bridge:
        operator = bridge.stream(graph, stream_mode=modes, config=_UNLIMITED)

        async def bare() -> int:
            count = 0
            async for _ in graph.astream(content, _UNLIMITED, stream_mode=modes):
                count += 1
            return count

        expected = loop.run(bare())

        return paired(
            lambda: drain(rx.just(content).pipe(operator), expected + 1),  # and the result
            lambda: loop.run(bare()),
            pairs=pairs,
            items=expected,
        )


class Chunk:
    """A chunk through `stream`, over bare ``astream``."""

    params = list(WAYS)
    param_names = ("way",)
    timeout = 300
    unit = "ratio"

    def track_chunk(self, way: str) -> float:
        return ratio(way).value
