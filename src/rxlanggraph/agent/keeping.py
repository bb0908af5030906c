"""Where the memories of agents are kept between their runs: a LangGraph store or checkpointer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from langchain_core.messages import messages_from_dict, messages_to_dict
from langchain_core.messages.modifier import RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from rxlanggraph.agent.messages import Message, from_langchain, to_langchain
from rxlanggraph.errors import InvalidTypeError

__all__ = ["Keeper", "keeper_for"]

_NAMESPACE = ("rxlanggraph", "memories")


class Keeper(Protocol):
    """Keeps the messages of each thread. Any loop."""

    async def load(self, thread_id: str) -> Sequence[Message]:
        """Return what was kept last; nothing if nothing was."""

    async def keep(self, thread_id: str, messages: Sequence[Message]) -> None:
        """Keep ``messages`` in the place of what was kept before."""


def keeper_for(place: Any) -> Keeper:
    """Find out how memories are kept in ``place``; None is this process. Any thread.

    Raises:
        InvalidTypeError: It is neither a LangGraph store nor a checkpointer.
    """
    if isinstance(place, BaseCheckpointSaver):
        return _InCheckpoints(place)
    if place is None or isinstance(place, BaseStore):
        return _InStore(InMemoryStore() if place is None else place)
    raise InvalidTypeError(
        f"keep_in must be a LangGraph store or checkpointer, not {place!r}; "
        "for example InMemoryStore() or AsyncSqliteSaver"
    )


class _InStore:
    def __init__(self, store: BaseStore) -> None:
        self._store = store

    async def load(self, thread_id: str) -> Sequence[Message]:
        kept = await self._store.aget(_NAMESPACE, thread_id)
        return [] if kept is None else from_langchain(messages_from_dict(kept.value["messages"]))

    async def keep(self, thread_id: str, messages: Sequence[Message]) -> None:
        value = {"messages": messages_to_dict(to_langchain(messages))}
        await self._store.aput(_NAMESPACE, thread_id, value, index=False)


class _InCheckpoints:
    """As the state of a graph that does nothing else: the saver's own format, and its tools."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        builder = StateGraph(MessagesState)
        builder.add_node("keep", lambda _: {})  # never run: its state is written from outside
        builder.add_edge(START, "keep")
        self._graph: Any = builder.compile(checkpointer=saver)

    async def load(self, thread_id: str) -> Sequence[Message]:
        state = await self._graph.aget_state(_config(thread_id))
        return from_langchain(state.values.get("messages", []))

    async def keep(self, thread_id: str, messages: Sequence[Message]) -> None:
        kept = [RemoveMessage(REMOVE_ALL_MESSAGES), *to_langchain(messages)]
        await self._graph.aupdate_state(_config(thread_id), {"messages": kept}, as_node="keep")


def _config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id}}
