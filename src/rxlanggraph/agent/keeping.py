"""Where the memories of agents are kept between their runs: here, or with LangGraph.

What breaks without it: to write a whole conversation after each of its runs takes longer with each.
So what is in this process is not converted, and a checkpointer is told the changes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from langchain_core.messages import BaseMessage, messages_from_dict, messages_to_dict
from langchain_core.messages.modifier import RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.base import BaseStore

from rxlanggraph.agent.graph_thread import delete_thread
from rxlanggraph.agent.messages import Message, from_langchain, to_langchain
from rxlanggraph.errors import InvalidTypeError
from rxlanggraph.forking import fork_safe_rlock

__all__ = ["Keeper", "keeper_for"]

_NAMESPACE = ("rxlanggraph", "memories")
_GRAPH = "rxlanggraph"  # the namespace within a thread, and a node
_NODE = "memory"


class Keeper(Protocol):
    """Keeps the messages of each thread. Any loop; of one thread, one call at a time."""

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        """Return what was kept last; nothing if nothing was."""

    async def keep(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message]
    ) -> None:
        """Keep ``messages`` in the place of ``before``, which was kept or loaded last."""

    async def forget(self, thread_id: str) -> None:
        """Keep nothing of this thread any more."""


def keeper_for(place: Any) -> Keeper:
    """Find out how memories are kept in ``place``; None is this process. Any thread.

    Raises:
        InvalidTypeError: It is neither a LangGraph store nor a checkpointer.
    """
    if place is None:
        return _InProcess()
    if isinstance(place, BaseStore):
        return _InStore(place)
    if isinstance(place, BaseCheckpointSaver):
        return _InCheckpoints(place)
    raise InvalidTypeError(
        f"keep_in must be a LangGraph store or checkpointer, not {place!r}; "
        "for example InMemoryStore() or AsyncSqliteSaver"
    )


class _InProcess:
    """As they are: a Message is immutable."""

    def __init__(self) -> None:
        # A leaf, for one line; an RLock, since a finalizer may come here too.
        self._lock = fork_safe_rlock()
        self._kept: dict[str, tuple[Message, ...]] = {}  # guarded by the lock

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        with self._lock:
            return self._kept.get(thread_id, ())

    async def keep(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message]
    ) -> None:
        with self._lock:
            self._kept[thread_id] = messages

    async def forget(self, thread_id: str) -> None:
        with self._lock:
            self._kept.pop(thread_id, None)


class _InStore:
    """As one value, which has to be written as a whole."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        kept = await self._store.aget(_NAMESPACE, thread_id)
        messages = [] if kept is None else messages_from_dict(kept.value["messages"])
        return tuple(from_langchain(messages))

    async def keep(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message]
    ) -> None:
        value = {"messages": messages_to_dict(to_langchain(messages))}
        await self._store.aput(_NAMESPACE, thread_id, value, index=False)

    async def forget(self, thread_id: str) -> None:
        await self._store.adelete(_NAMESPACE, thread_id)


class _InCheckpoints:
    """As the state of a graph that does nothing else: the saver's own format, and its tools.

    It is a subgraph, so that it has a namespace: agents' graphs may use the same saver, and who
    deletes a thread deletes this, too.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver
        inner = _graph_of(_NODE, lambda _: {}, True)  # never run: its state is written from outside
        self._graph = _graph_of(_GRAPH, inner, saver)

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        state = await self._graph.aget_state(_config(thread_id))
        return tuple(from_langchain(state.values.get("messages", [])))

    async def keep(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message]
    ) -> None:
        changes = _changes(before, messages)
        if changes is None:
            await self._write(thread_id, _anew(messages))
            return
        try:
            await self._write(thread_id, changes)
        except ValueError:  # to be removed is what somebody else has removed meanwhile
            await self._write(thread_id, _anew(messages))

    async def forget(self, thread_id: str) -> None:
        await delete_thread(self._saver, thread_id)

    async def _write(self, thread_id: str, changes: list[BaseMessage]) -> None:
        if changes:
            update = {"messages": changes}
            await self._graph.aupdate_state(_config(thread_id), update, as_node=_NODE)


def _changes(before: Sequence[Message], now: Sequence[Message]) -> list[BaseMessage] | None:
    """What makes ``now`` of ``before``, for LangGraph's ``add_messages``; None if that cannot."""
    old = {message.id: message for message in before}
    new = {message.id: message for message in now}
    # It leaves what it knows by its id where that is, and adds the rest at the end.
    made = [*(key for key in old if key in new), *(key for key in new if key not in old)]
    if len(old) < len(before) or made != [message.id for message in now]:
        return None
    gone = [RemoveMessage(key) for key in old if key not in new]
    written = [message for message in now if old.get(message.id) is not message]
    return [*gone, *to_langchain(written)]


def _anew(messages: Sequence[Message]) -> list[BaseMessage]:
    return [RemoveMessage(REMOVE_ALL_MESSAGES), *to_langchain(messages)]


def _graph_of(name: str, node: Any, checkpointer: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node(name, node)
    builder.add_edge(START, name)
    return builder.compile(checkpointer=checkpointer)


def _config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": _GRAPH}}
