"""Conversation: one party's exchange with agents, invisible to other parties.

What breaks without it: an agent that serves several parties has one memory, so what one of them
says influences the answers to another; and so does each agent that it calls in turn.

A context variable carries the conversation to all that a run starts, and to the agents that it
calls. Code outside of any conversation uses the agents' own memories.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

from rxlanggraph.agent.conversation.memory import Memory
from rxlanggraph.concurrency.forking import fork_safe_rlock

__all__ = ["Conversation", "current_conversation"]

_current: ContextVar[Conversation | None] = ContextVar("rxlanggraph_conversation", default=None)


def current_conversation() -> Conversation | None:
    """The conversation that this code is part of, if any. Any thread; never blocks."""
    return _current.get()


class Agent(Protocol):
    """An agent, as far as a conversation uses it."""

    name: str

    async def forget_thread(self, thread_id: str) -> None:
        """Delete the thread from the agent's checkpointer, if there is one."""


class Conversation:
    """A separate memory for each agent that takes part, made at the agent's first message.

    Safe from any thread.

    Attributes:
        id: Random, and too long to be guessed: knowing it grants access.
    """

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        # A leaf, for one line; an RLock, since a finalizer may enter too (invariant 5).
        self._lock = fork_safe_rlock()
        # By identity, since an agent may define equality. Guarded by the lock.
        self._memories: dict[int, tuple[Agent, Memory]] = {}

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make the code of this block, and what it starts, part of the conversation."""
        token = _current.set(self)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # closed by the collector, in another context
                _current.reset(token)

    def memory_of(self, agent: Agent, own: Memory) -> Memory:
        """The memory of ``agent`` for this conversation, at first a copy of ``own``. Any thread."""
        with self._lock:
            known = self._memories.get(id(agent))
        if known is None:
            begun = own.copy()  # not under the lock: it may call a token counter
            with self._lock:
                known = self._memories.setdefault(id(agent), (agent, begun))
        return known[1]

    def remember(self, agent: Agent, memory: Memory) -> None:
        """Make ``memory`` the memory of ``agent`` for this conversation. Any thread."""
        with self._lock:
            self._memories[id(agent)] = (agent, memory)

    def thread_of(self, agent: Agent) -> str:
        """The ``thread_id`` under which the graph of ``agent`` keeps this conversation."""
        return f"{self.id}:{agent.name}"

    async def forget(self) -> None:
        """Delete its memories, and its threads from the checkpointers of its agents.

        Any loop; no run of the conversation may be active. If cancelled, it may have deleted a
        part.

        Raises:
            ExceptionGroup: The errors of checkpointers; the others have deleted their threads.
        """
        with self._lock:
            agents = [agent for agent, _ in self._memories.values()]
            self._memories.clear()
        forgetting = (agent.forget_thread(self.thread_of(agent)) for agent in agents)
        done = await asyncio.gather(*forgetting, return_exceptions=True)
        errors = [each for each in done if isinstance(each, Exception)]
        if errors:
            raise ExceptionGroup("a conversation could not be forgotten everywhere", errors)
