"""Conversation: one party's talk with agents, of which other parties hear nothing.

What breaks without it: an agent that serves several parties has one memory, so that what one of
them said is in what another is answered from; and so has each agent that it asks in its turn.

A context variable carries the conversation, so that it reaches whatever a run starts, and the
agents that it asks. Code outside of any conversation has the agents' own memories.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

from rxlanggraph.agent.conversation.memory import Memory

__all__ = ["Conversation", "current_conversation"]

_current: ContextVar[Conversation | None] = ContextVar("rxlanggraph_conversation", default=None)


def current_conversation() -> Conversation | None:
    """The conversation that this code is part of, if any. Any thread; never blocks."""
    return _current.get()


class Agent(Protocol):
    """What a conversation needs of an agent that is asked in it."""

    name: str

    async def forget_thread(self, thread_id: str) -> None:
        """Forget what it knows under ``thread_id``."""


class Conversation:
    """A memory of its own for each agent that is asked in it, made when it is asked first.

    Safe from any thread.

    Attributes:
        id: Random, and too long to be guessed: to know it is to be let in.
    """

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        # A leaf, for one line; an RLock, since a finalizer may come here too (invariant 5).
        self._lock = threading.RLock()
        # By identity, since an agent may define equality. Guarded by the lock.
        self._memories: dict[int, tuple[Agent, Memory]] = {}

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have the code of this block, and what it starts, be part of the conversation."""
        token = _current.set(self)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # closed by a collector, in another context
                _current.reset(token)

    def memory_of(self, agent: Agent, own: Memory) -> Memory:
        """What ``agent`` remembers of this conversation, which begins with ``own``. Any thread."""
        with self._lock:
            known = self._memories.get(id(agent))
        if known is None:
            begun = own.copy()  # not under the lock: it may call a token counter
            with self._lock:
                known = self._memories.setdefault(id(agent), (agent, begun))
        return known[1]

    def remember(self, agent: Agent, memory: Memory) -> None:
        """Have ``memory`` be what ``agent`` remembers of this conversation. Any thread."""
        with self._lock:
            self._memories[id(agent)] = (agent, memory)

    def thread_of(self, agent: Agent) -> str:
        """The ``thread_id`` under which the graph of ``agent`` remembers this conversation."""
        return f"{self.id}:{agent.name}"

    async def forget(self) -> None:
        """Have the graphs of its agents forget it too, those that have checkpointers.

        To be called when no run of it is on. On any loop. Cancelled, it may have been forgotten by
        some only.

        Raises:
            ExceptionGroup: Of whatever checkpointers raised; the others have forgotten it.
        """
        with self._lock:
            agents = [agent for agent, _ in self._memories.values()]
            self._memories.clear()
        forgetting = (agent.forget_thread(self.thread_of(agent)) for agent in agents)
        done = await asyncio.gather(*forgetting, return_exceptions=True)
        errors = [each for each in done if isinstance(each, Exception)]
        if errors:
            raise ExceptionGroup("a conversation could not be forgotten everywhere", errors)
