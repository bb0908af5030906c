"""A graph with many places at which a run may be held."""

from __future__ import annotations

import asyncio
import contextlib
import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from support.concurrency.waiting import Gate

__all__ = ["Places"]


class State(TypedDict, total=False):
    hold: str | None
    log: Annotated[list[str], operator.add]


class Places:
    """A graph with many places, of which a message names the one where its run is to wait."""

    def __init__(self, saver: Any) -> None:
        self.held, self.gate = Gate(), Gate()
        sub = StateGraph(State).add_node("inner", self._inner).add_node("after", self._after)
        sub.add_edge(START, "inner").add_edge("inner", "after").add_edge("after", END)
        builder = StateGraph(State).add_node("first", self._first).add_node("sub", sub.compile())
        builder.add_node("left", self._left).add_node("right", self._right)
        builder.add_node("sync", self._sync).add_node("last", self._last)
        builder.add_edge(START, "first").add_edge("first", "sub").add_edge("sub", "left")
        builder.add_edge("sub", "right").add_edge(["left", "right"], "sync")
        builder.add_edge("sync", "last").add_edge("last", END)
        self.graph = builder.compile(saver)

    async def _hold(self, state: State, *places: str) -> None:
        if state.get("hold") in places:
            self.held.open()
            await self.gate.wait_async()

    async def _first(self, state: State) -> State:
        await self._hold(state, "its first node")
        return {"log": ["first"]}

    async def _inner(self, state: State) -> State:
        return {"log": ["inner"]}

    async def _after(self, state: State) -> State:
        await self._hold(state, "a node of its subgraph")
        return {"log": ["after"]}

    async def _left(self, state: State) -> State:
        return {"log": ["left"]}

    async def _right(self, state: State) -> State:
        await self._hold(state, "one of parallel nodes")
        return {"log": ["right"]}

    def _sync(self, state: State) -> State:
        if state.get("hold") == "a sync node":
            self.held.open()
            self.gate.wait()
        return {"log": ["sync"]}

    async def _last(self, state: State) -> State:
        answers = [interrupt("go on?")] if state.get("hold") == "a node with its answer" else []
        try:
            await self._hold(state, "its last node", "a node with its answer")
            await self._hold(state, "a node that fails then")
        except asyncio.CancelledError:
            if state.get("hold") == "a node that fails then":
                raise ValueError("not in the middle") from None
            raise
        if state.get("hold") == "a node that goes on":
            with contextlib.suppress(asyncio.CancelledError):
                await self._hold(state, "a node that goes on")
        return {"log": ["last", *answers]}
