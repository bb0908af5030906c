"""Agents that tell how many requests they remember, and how many of them there were."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

from rxlanggraph.agent import AgentPool, BaseAgent
from support.waiting import Gate, Log

__all__ = ["Made", "Remembering"]


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

    def pool(self, max_agents: int, keep_in: Any = None) -> AgentPool:
        return AgentPool(self, max_agents=max_agents, keep_in=keep_in)


class Waiting(BaseAgent):
    def __init__(self, name: str, made: Made) -> None:
        super().__init__(name)
        self._made = made

    async def step(self) -> Any:
        await self._made.wait(self.name)
        return self.request
