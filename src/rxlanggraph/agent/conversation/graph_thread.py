"""GraphThread: the thread of a graph with a checkpointer, which is rolled back after a failure.

What breaks without it: LangGraph saves the state after each step, so a run that fails leaves half a
turn on its thread. The next messages are appended to it, and providers refuse tool calls that have
no results.

A thread is at rest at a checkpoint at which its graph has ended. `roll_back` returns to the last
such checkpoint after a failed run, even if the graph itself had ended. `ensure_at_rest` does so
before a run, in case a process was killed before it could roll back. Both add a checkpoint, and
delete none. Subgraphs with memory on the same thread (``checkpointer=True``) return to their states
at that moment.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointMetadata,
    CheckpointTuple,
    copy_checkpoint,
    empty_checkpoint,
)
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import START
from langgraph.types import StateSnapshot

__all__ = ["GraphThread", "delete_thread", "keeps_threads"]

_EMPTY_METADATA: CheckpointMetadata = {"source": "fork", "step": -2, "parents": {}}


def keeps_threads(graph: Any) -> bool:
    """Whether ``graph`` has a checkpointer of its own. Any thread; never blocks.

    The checkpointer of a parent graph does not count.
    """
    return getattr(graph, "checkpointer", None) not in (None, False, True)


async def delete_thread(saver: BaseCheckpointSaver[Any], thread_id: str) -> None:
    """Delete a thread, even from a checkpointer whose deletion is sync only. Any loop."""
    try:
        await saver.adelete_thread(thread_id)
    except NotImplementedError:
        await asyncio.to_thread(saver.delete_thread, thread_id)


class GraphThread:
    """The thread of ``graph`` that ``config`` names, for one run. On the loop of the run.

    Its caller must ensure that one run at a time uses the thread.
    """

    def __init__(self, graph: Any, config: RunnableConfig) -> None:
        self._graph = graph
        # Of the newest checkpoint, even if the run begins with another one.
        at = {**config["configurable"], "checkpoint_ns": ""}
        at.pop("checkpoint_id", None)
        self._config: RunnableConfig = {"configurable": at}
        self._rest: StateSnapshot | None = None  # the state before the run, to return to

    async def ensure_at_rest(self) -> StateSnapshot:
        """Return the state at which the thread is at rest, after a roll-back if need be."""
        head = await self.head()
        if not _is_at_rest(head):
            await self._go_to(await self._last_rest())
            head = await self.head()
        self._rest = head
        return head

    async def stay(self) -> StateSnapshot | None:
        """Leave the thread as it is; return the state at which it was at rest last, if any.

        That is the state to which `roll_back` returns.
        """
        self._rest = await self._last_rest()
        return self._rest

    async def begin_anew(self) -> StateSnapshot:
        """Reset the thread to its state before the first message, and return that."""
        head = await self.head()
        if head.values:
            await self._go_to(None)
            head = await self.head()
        self._rest = head
        return head

    async def version(self, channel: str) -> Any:
        """Return a version that changes with each write to ``channel``, even of an equal value."""
        newest = await self._graph.checkpointer.aget_tuple(self._config)
        return None if newest is None else newest.checkpoint["channel_versions"].get(channel)

    async def head(self) -> StateSnapshot:
        """Return the current state."""
        state: StateSnapshot = await self._graph.aget_state(self._config)
        return state

    async def roll_back(self) -> None:
        """Return to the state before the run, unless the thread is there already."""
        head = await self.head()
        if _checkpoint(head) != _checkpoint(self._rest):
            await self._go_to(self._rest)

    async def _last_rest(self) -> StateSnapshot | None:
        # Closed at once: a checkpointer may hold a lock during the iteration.
        async with aclosing(self._graph.aget_state_history(self._config)) as history:
            async for state in history:
                if _is_at_rest(state):
                    found: StateSnapshot = state
                    return found
        return None

    async def _go_to(self, state: StateSnapshot | None) -> None:
        rest = _checkpoint(state)
        # The graph last: if this is interrupted, the thread is not at rest, and the next run
        # repeats it.
        for namespace in self._namespaces():
            await self._go_back(namespace, rest)
        if state is not None and rest is not None:
            await self._graph.aupdate_state(state.config, None, as_node="__copy__")
        else:
            await self._put(self._config, empty_checkpoint(), _EMPTY_METADATA)

    def _namespaces(self) -> set[str]:
        """The namespaces of subgraphs that may have memory, including those that nodes call."""
        found = {name for name, _ in self._graph.get_subgraphs(recurse=True)}
        return found | {name for name in self._graph.nodes if name != START}

    async def _go_back(self, namespace: str, rest: str | None) -> None:
        """Return a subgraph to its state at the graph's checkpoint ``rest``."""
        at = {**self._config["configurable"], "checkpoint_ns": namespace}
        config: RunnableConfig = {"configurable": at}
        newest = at_rest = None
        async with aclosing(self._graph.checkpointer.alist(config)) as history:
            async for found in history:
                newest = newest or found
                if rest is not None and _parent(found) <= rest:
                    at_rest = found
                    break
        if newest is at_rest:  # it has no checkpoint, or no newer one
            return
        if at_rest is None:
            await self._put(config, empty_checkpoint(), _EMPTY_METADATA)
        else:
            copied = copy_checkpoint(at_rest.checkpoint) | {"id": str(uuid6(clock_seq=-2))}
            await self._put(at_rest.parent_config or config, copied, at_rest.metadata)

    async def _put(
        self, config: RunnableConfig, checkpoint: Any, metadata: CheckpointMetadata
    ) -> None:
        await self._graph.checkpointer.aput(config, checkpoint, metadata, {})


def _parent(found: CheckpointTuple) -> str:
    """The id of the parent graph's checkpoint at which a subgraph's checkpoint was made."""
    parent: str = found.metadata.get("parents", {}).get("") or found.checkpoint["id"]
    return parent


def _is_at_rest(state: StateSnapshot) -> bool:
    # Not `next`: it omits tasks whose writes are saved, although no checkpoint has them yet.
    return not state.tasks


def _checkpoint(state: StateSnapshot | None) -> Any:
    """The id of the checkpoint; None before the first one."""
    return state and state.config["configurable"].get("checkpoint_id")
