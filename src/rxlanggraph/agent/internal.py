"""What a pool does with an agent, and users cannot.

Functions beside `BaseAgent`, whose own names are its contract and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rxlanggraph.agent.agent import BaseAgent
from rxlanggraph.agent.run import RunPersistence
from rxlanggraph.concurrency.forking import fork_safe_rlock

__all__ = ["bind_thread", "persisted"]

# A leaf, held for two lines: of a factory that returns one agent for two threads, one is refused.
_binding = fork_safe_rlock()


def bind_thread(agent: BaseAgent, thread_id: str) -> str:
    """Make ``agent`` the one of ``thread_id``, unless it has a thread already; return its thread.

    Any thread; never blocks.
    """
    with _binding:
        if agent._thread_id is None:
            agent._thread_id = thread_id
        return agent._thread_id


@contextmanager
def persisted(agent: BaseAgent, persistence: RunPersistence) -> Iterator[None]:
    """Have runs that begin in this block load and save the memory with ``persistence``.

    One block at a time: the caller holds the lock by which the pool lets in one run of the agent.
    """
    agent._persistence = persistence
    try:
        yield
    finally:
        agent._persistence = None
