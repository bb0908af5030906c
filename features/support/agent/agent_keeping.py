"""Pools whose agents say something, and a checkpointer that counts what it is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from rxlanggraph.agent import AgentPool, BaseAgent, Memory, Message

__all__ = ["CountingSaver", "Talking", "ask", "open_place", "said"]


class CountingSaver(InMemorySaver):
    """Counts the messages that updates add and remove. LangGraph does not tell it of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: list[tuple[int, int]] = []

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        told = [message for channel, value in writes if channel == "messages" for message in value]
        removed = sum(isinstance(message, RemoveMessage) for message in told)
        self.updates.append((len(told) - removed, removed))
        await super().aput_writes(config, writes, task_id, task_path)


class Talking:
    """A factory of agents that answer "re: request", in pools which keep them in one place."""

    def __init__(
        self,
        persistence: Any = None,
        bound: int | None = None,
        *,
        begin: Iterable[Message] = (),
        reply_id: str | None = None,
    ) -> None:
        self.persistence = persistence
        self.agents: list[BaseAgent] = []
        self.shown: list[int] = []
        self._bound = bound
        self._begin = tuple(begin)
        self._reply_id = reply_id

    def __call__(self, thread_id: str) -> BaseAgent:
        memory = Memory(max_messages=self._bound)
        memory.add_all(self._begin)
        self.agents.append(BaseAgent(thread_id, llm=self._answer, memory=memory))
        return self.agents[-1]

    async def _answer(self, messages: Sequence[Message]) -> Message:
        self.shown.append(len(messages))
        own = {} if self._reply_id is None else {"id": self._reply_id}
        return Message("assistant", f"re: {messages[-1].content}", **own)

    def pool(self) -> AgentPool:
        return AgentPool(self, max_agents=1, persistence=self.persistence)

    async def found_by_another(self, pool: AgentPool) -> tuple[Message, ...]:
        """What an agent of ``pool`` remembers that was not there before."""
        await ask(pool, "other thread", "go")  # there is room for one agent
        await ask(pool, "thread", "and?")
        return self.agents[-1].memory.get_messages()[:-2]


async def ask(pool: AgentPool, thread_id: str, request: str) -> Any:
    return await pool.ainvoke(request, {"configurable": {"thread_id": thread_id}})


def said(messages: Iterable[Message]) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in messages]


def open_place(name: str) -> Any:
    places: dict[str, Any] = {
        "this process": lambda: None,
        "a store": InMemoryStore,
        "a checkpointer": InMemorySaver,
        "a checkpointer which counts": CountingSaver,
    }
    return places[name]()
