"""A graph whose threads are pruned, and savers that can do more or less of that."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from support.concurrency.waiting import Gate

__all__ = ["BareSaver", "PrunedGraph", "PruningSaver", "SlowToDelete", "with_deltas"]


class _State(TypedDict, total=False):
    do: str | None
    count: int
    inner: int
    kept: int
    said: str


class _Memory(TypedDict, total=False):
    do: str | None
    kept: int
    own: Annotated[int, operator.add]


class PrunedGraph:
    """A graph with a subgraph that forgets, one that remembers, and places where it may stop."""

    def __init__(self, saver: Any) -> None:
        self.saver = saver
        self.inside, self.gate = Gate(), Gate()
        self.fails = True
        inner = StateGraph(_State).add_node("one", self._one).add_node("two", self._two)
        inner.add_edge(START, "one").add_edge("one", "two")
        memory = StateGraph(_Memory).add_node("remember", self._remember)
        memory.add_node("tell", self._tell).add_edge(START, "remember")
        memory.add_edge("remember", "tell")
        builder = StateGraph(_State).add_node("count", self._count).add_node("stop", self._stop)
        builder.add_node("inner", inner.compile())
        builder.add_node("memory", memory.compile(checkpointer=True))
        builder.add_edge(START, "count").add_edge("count", "inner").add_edge("inner", "stop")
        builder.add_edge("stop", "memory").add_edge("memory", END)
        self.graph = builder.compile(saver)

    async def _count(self, state: _State) -> _State:
        return {"count": state.get("count", 0) + 1}

    async def _one(self, state: _State) -> _State:
        return {"inner": state.get("inner", 0) + 1}

    async def _two(self, state: _State) -> _State:
        if state.get("do") == "asks in a subgraph":
            return {"said": interrupt("inside?")}
        return {"inner": state.get("inner", 0) + 1}

    async def _stop(self, state: _State) -> _State:
        if state.get("do") == "asks":
            return {"said": interrupt("go on?")}
        if state.get("do") == "fails" and self.fails:
            raise ValueError("not yet")
        if state.get("do") == "waits":
            self.inside.open()
            await self.gate.wait_async()
        return {}

    async def _remember(self, _: _Memory) -> _Memory:
        return {"own": 1}

    async def _tell(self, memory: _Memory) -> _Memory:
        return {"kept": memory["own"]}


class SlowToDelete(InMemorySaver):
    """Deletes a thread when it may; and fails, if it is to."""

    def __init__(self) -> None:
        super().__init__()
        self.deleting, self.gate = Gate(), Gate()
        self.error: Exception | None = None

    async def adelete_thread(self, thread_id: str) -> None:
        if thread_id == "t":
            self.deleting.open()
            await self.gate.wait_async()
            if self.error is not None:
                raise self.error
        await super().adelete_thread(thread_id)


class BareSaver(BaseCheckpointSaver[str]):
    """A saver that has nothing but LangGraph's interface."""


class PruningSaver(InMemorySaver):
    """A saver that is not known here, and can prune."""

    def __init__(self) -> None:
        super().__init__()
        self.pruned: list[Any] = []

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.pruned.append((list(thread_ids), strategy))


def _append(left: list[Any], right: list[Any]) -> list[Any]:
    return [*(left or []), *right]


class _Deltas(TypedDict, total=False):
    value: Any
    said: Annotated[list[Any], DeltaChannel(_append)]


async def _says(_: Any) -> Any:
    return {"said": ["something"]}


def with_deltas() -> Any:
    builder = StateGraph(_Deltas).add_node("say", _says).add_edge(START, "say")
    return builder.compile(InMemorySaver())
