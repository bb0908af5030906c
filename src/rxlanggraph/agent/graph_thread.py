"""GraphThread: the thread of a graph with a checkpointer, which a run may have to put back.

What breaks without it: LangGraph saves the state after each step, so that a run that does not end
leaves half a turn on its thread. What comes next is put behind it, and providers refuse calls of
tools that have no results.

A thread is at rest where its graph had come to an end. `settle` goes back there before a run, since
nobody could when a process was killed; `put_back` after a run that failed, also if the graph itself
had ended. Both add a checkpoint, and delete none.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointMetadata, empty_checkpoint
from langgraph.types import StateSnapshot

__all__ = ["GraphThread", "delete_thread", "keeps_threads"]


def keeps_threads(graph: Any) -> bool:
    """Whether ``graph`` has a checkpointer of its own. Any thread; never blocks.

    That of a graph which it may become part of is none of its own.
    """
    return getattr(graph, "checkpointer", None) not in (None, False, True)


async def delete_thread(saver: BaseCheckpointSaver[Any], thread_id: str) -> None:
    """Delete a thread, also from a checkpointer that does so in threads alone. Any loop."""
    try:
        await saver.adelete_thread(thread_id)
    except NotImplementedError:
        await asyncio.to_thread(saver.delete_thread, thread_id)


class GraphThread:
    """The thread of ``graph`` that ``config`` names, for one run. On the loop of the run.

    Two runs on one thread are not for here to tell apart: whoever uses it lets one in at a time.
    """

    def __init__(self, graph: Any, config: RunnableConfig) -> None:
        self._graph = graph
        # Where its newest checkpoint is, whichever one the run is to begin with.
        at = {**config["configurable"], "checkpoint_ns": ""}
        at.pop("checkpoint_id", None)
        self._config: RunnableConfig = {"configurable": at}
        self._rest: StateSnapshot | None = None  # where it was before the run, and is to be again

    async def settle(self) -> StateSnapshot:
        """Return the state in which it is at rest; go back to it, if it is not there."""
        head = await self.head()
        rest = head if _rests(head) else await self._last_rest()
        self._rest = rest
        if rest is not head:
            await self._go_to(rest)
        return head if rest is None else rest

    async def begin_anew(self) -> StateSnapshot:
        """Return the state of a thread on which nothing was said; have it be so."""
        head = await self.head()
        if head.values:
            await self._go_to(None)
            head = await self.head()
        self._rest = head
        return head

    async def head(self) -> StateSnapshot:
        """Return the state in which it is."""
        state: StateSnapshot = await self._graph.aget_state(self._config)
        return state

    async def put_back(self) -> None:
        """Go back to where it was when it was settled, unless it is there."""
        head = await self.head()
        if _checkpoint(head) != _checkpoint(self._rest):
            await self._go_to(self._rest)

    async def _last_rest(self) -> StateSnapshot | None:
        async for state in self._graph.aget_state_history(self._config):
            if _rests(state):
                found: StateSnapshot = state
                return found
        return None

    async def _go_to(self, state: StateSnapshot | None) -> None:
        if state is not None and _checkpoint(state) is not None:
            await self._graph.aupdate_state(state.config, None, as_node="__copy__")
            return
        empty: CheckpointMetadata = {"source": "fork", "step": -2, "parents": {}}
        await self._graph.checkpointer.aput(self._config, empty_checkpoint(), empty, {})


def _rests(state: StateSnapshot) -> bool:
    return not state.next


def _checkpoint(state: StateSnapshot | None) -> Any:
    """Its id; None before the first one."""
    return state and state.config["configurable"].get("checkpoint_id")
