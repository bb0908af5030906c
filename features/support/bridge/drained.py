"""Graphs that can be drained, and what a run of them has come to."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from support.concurrency.waiting import Gate, Log

__all__ = ["Stages"]


class State(TypedDict, total=False):
    hold: str | None
    log: Annotated[list[str], operator.add]


class Stages:
    """A graph of several supersteps, of which a message names the node that is to wait.

    Args:
        saver: Where it keeps its threads; None: nowhere.
        subgraph: The ``checkpointer`` of its subgraph.
    """

    def __init__(self, saver: Any, subgraph: Any = None) -> None:
        self.held, self.gate = Log(), Gate()
        self.ran = Log()
        inside = StateGraph(State).add_node("inner", self._inner).add_node("after", self._after)
        inside.add_edge(START, "inner").add_edge("inner", "after").add_edge("after", END)
        self._subgraph = inside.compile(subgraph)
        builder = StateGraph(State).add_node("first", self._first).add_node("sub", self._subgraph)
        builder.add_node("left", self._left).add_node("right", self._right)
        builder.add_node("sync", self._sync).add_node("last", self._last)
        builder.add_edge(START, "first").add_edge("first", "sub").add_edge("sub", "left")
        builder.add_edge("sub", "right").add_edge(["left", "right"], "sync")
        builder.add_edge("sync", "last").add_edge("last", END)
        self.graph = builder.compile(saver)

    async def _run(self, state: State, node: str) -> State:
        if state.get("hold") == node:
            self.held.add(node)
            await self.gate.wait_async()
        self.ran.add(node)
        return {"log": [node]}

    async def _first(self, state: State, runtime: Runtime) -> State:
        if state.get("hold") == "first, which asks":
            assert runtime.control is not None
            runtime.control.request_drain("by a node")
        if state.get("hold") == "first, which is told":
            self.held.add("first")
            while not runtime.drain_requested:  # noqa: ASYNC110 - LangGraph has no other way
                await asyncio.sleep(0)
        return await self._run(state, "first")

    async def _inner(self, state: State) -> State:
        if state.get("hold") == "early question":
            self.ran.add(interrupt("go on?"))
        return await self._run(state, "inner")

    async def _after(self, state: State) -> State:
        return await self._run(state, "after")

    async def _left(self, state: State) -> State:
        return await self._run(state, "left")

    async def _right(self, state: State) -> State:
        return await self._run(state, "right")

    def _sync(self, state: State) -> State:
        if state.get("hold") == "sync":
            self.held.add("sync")
            self.gate.wait()
        self.ran.add("sync")
        return {"log": ["sync"]}

    async def _last(self, state: State) -> State:
        if state.get("hold") == "question":
            self.ran.add("asked")
            self.ran.add(interrupt("go on?"))
        if state.get("hold") == "endless":
            self.held.add("last")
            await Gate().wait_async()
        return await self._run(state, "last")
