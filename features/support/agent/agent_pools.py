"""Agents that tell how many requests they remember, and how many of them there were."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import weakref
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from rxlanggraph.agent import AgentPool, BaseAgent
from support.concurrency.waiting import Gate, Log

__all__ = ["Asked", "Made", "Remembering", "counting_graph"]


class Remembering(BaseAgent):
    """Answers with the number of requests before this one."""

    async def step(self) -> int:
        if self.request == "fail":
            raise LookupError("on demand")
        return sum(message.role == "user" for message in self.memory.get_messages()) - 1


class Made:
    """A factory that counts what it made, and what of that is still there."""

    def __init__(self, gate: Gate | None = None) -> None:
        self._gate = gate
        self.at_work = Log()
        self._lock = threading.Lock()  # guards the rest
        self.count = 0
        self.most = 0
        self._alive: weakref.WeakSet[BaseAgent] = weakref.WeakSet()

    def __call__(self, thread_id: str) -> BaseAgent:
        agent = Remembering(thread_id) if self._gate is None else Waiting(thread_id, self)
        gc.collect()  # what is retired must not be held by anything, but may be in a cycle
        with self._lock:
            self.count += 1
            self._alive.add(agent)
            self.most = max(self.most, len(self._alive))
        return agent

    async def wait(self, thread_id: str) -> None:
        assert self._gate is not None
        self.at_work.add(thread_id)
        await self._gate.wait_async()

    def pool(self, max_agents: int, persistence: Any = None) -> AgentPool:
        return AgentPool(self, max_agents=max_agents, persistence=persistence)


class Waiting(BaseAgent):
    def __init__(self, name: str, made: Made) -> None:
        super().__init__(name)
        self._made = made

    async def step(self) -> Any:
        await self._made.wait(self.name)
        return self.request


def counting_graph() -> Any:
    """Answers with the number of requests that its checkpointer knows of."""

    def count(state: MessagesState) -> dict[str, Any]:
        requests = [message for message in state["messages"] if message.type == "human"]
        return {"messages": [AIMessage(str(len(requests)))]}

    builder = StateGraph(MessagesState)
    builder.add_node("count", count)
    builder.add_edge(START, "count")
    return builder.compile(checkpointer=InMemorySaver())


class Asked:
    """A pool of agents, each of which has the next one of the threads in the request answer."""

    def __init__(self) -> None:
        self.left: list[asyncio.Task[Any]] = []
        self._pool = AgentPool(lambda thread_id: _Asking(thread_id, self))

    async def __call__(self, threads: list[str], leave: str | None = None) -> Any:
        config = {"configurable": {"thread_id": threads[0]}}
        return await self._pool.ainvoke((threads[1:], leave), config)

    def leave(self, thread_id: str) -> None:
        """Start what asks when the present run is over."""
        over = asyncio.Event()

        async def later() -> Any:
            await over.wait()
            return await self([thread_id])

        self.left.append(asyncio.create_task(later()))
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: over.set())


class _Asking(BaseAgent):
    def __init__(self, name: str, asked: Asked) -> None:
        super().__init__(name, timeout=math.inf)
        self._others = asked

    async def step(self) -> Any:
        threads, leave = self.request
        if leave:
            self._others.leave(leave)
        return await self._others(threads) if threads else f"{self.name} has answered"
