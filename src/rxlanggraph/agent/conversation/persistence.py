"""Where the memories of agents are saved between their runs: in this process, or by LangGraph.

What breaks without it: writing a whole conversation after each of its runs takes longer each time.
So within this process nothing is converted, and a checkpointer gets the changes alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

from langchain_core.messages import BaseMessage, messages_from_dict, messages_to_dict
from langchain_core.messages.modifier import RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.base import BaseStore

from rxlanggraph.agent.conversation.graph_thread import delete_thread
from rxlanggraph.agent.conversation.messages import Message, from_langchain, to_langchain
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.validation import check_whole

__all__ = ["ConversationStore", "make_store"]

_NAMESPACE = ("rxlanggraph", "memories")
_GRAPH = "rxlanggraph"  # the namespace within a thread, and a node
_NODE = "memory"
_PAGE = 100  # how many are read from a store at a time
_MOST_IN_PROCESS = 10_000
"""A guess: a hundred times the number of agents that a pool has at once."""


class ConversationStore(Protocol):
    """Saves the messages of each thread. Any loop; for one thread, one call at a time."""

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        """Return the messages saved last; nothing if there are none."""

    async def save(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message] | None
    ) -> None:
        """Save ``messages`` in place of ``before``, which was saved or loaded last.

        None stands for whatever is there.
        """

    async def forget(self, thread_id: str) -> None:
        """Delete what was saved."""

    async def threads(self) -> tuple[str, ...]:
        """Return the threads for which something is saved."""


def make_store(place: Any, max_memories: int | None = None) -> ConversationStore:
    """Make the store that saves memories in ``place``; None is this process. Any thread.

    Args:
        place: A LangGraph store or checkpointer, or None.
        max_memories: How many are kept at most, in this process; None for the default.

    Raises:
        InvalidArgumentError: ``max_memories`` is less than 1, or does not apply to this place.
        InvalidTypeError: It is neither a LangGraph store nor a checkpointer.
    """
    if place is None:
        return _ProcessStore(_MOST_IN_PROCESS if max_memories is None else max_memories)
    if max_memories is not None:
        raise InvalidArgumentError(
            "max_memories is for those kept in this process: what persistence keeps is "
            "bounded there, or by pool.forget()"
        )
    if isinstance(place, BaseStore):
        return _LangGraphStore(place)
    if isinstance(place, BaseCheckpointSaver):
        return _CheckpointStore(place)
    raise InvalidTypeError(
        f"persistence must be a LangGraph store or checkpointer, not {place!r}; "
        "for example InMemoryStore() or AsyncSqliteSaver"
    )


class _ProcessStore:
    """In memory, unconverted: a Message is immutable. The ``most`` recently used threads."""

    def __init__(self, most: int) -> None:
        check_whole("max_memories", most, least=1)
        self._most = most
        # A leaf, held for a few lines; an RLock, since a finalizer may enter too.
        self._lock = fork_safe_rlock()
        # Guarded by the lock. The most recently used one is last.
        self._kept: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        with self._lock:
            kept = self._kept.pop(thread_id, ())
            if kept:
                self._kept[thread_id] = kept
            return kept

    async def save(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message] | None
    ) -> None:
        with self._lock:
            self._kept.pop(thread_id, None)
            if messages:
                self._kept[thread_id] = messages
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    async def forget(self, thread_id: str) -> None:
        with self._lock:
            self._kept.pop(thread_id, None)

    async def threads(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._kept)


class _LangGraphStore:
    """As one value, which has to be written as a whole."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        kept = await self._store.aget(_NAMESPACE, thread_id)
        messages = [] if kept is None else messages_from_dict(kept.value["messages"])
        return tuple(from_langchain(messages))

    async def save(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message] | None
    ) -> None:
        if not messages:
            await self.forget(thread_id)
            return
        value = {"messages": messages_to_dict(to_langchain(messages))}
        await self._store.aput(_NAMESPACE, thread_id, value, index=False)

    async def forget(self, thread_id: str) -> None:
        await self._store.adelete(_NAMESPACE, thread_id)

    async def threads(self) -> tuple[str, ...]:
        found: dict[str, None] = {}  # each once, even if some are added during the read
        offset = 0
        while page := await self._store.asearch(_NAMESPACE, limit=_PAGE, offset=offset):
            found.update((item.key, None) for item in page if item.namespace == _NAMESPACE)
            offset += len(page)
        return tuple(found)


class _CheckpointStore:
    """As the state of a graph that does nothing else: the saver's own format, and its tools.

    It is a subgraph, so that it has a namespace: agents' graphs may use the same saver, and
    deleting a thread deletes this, too.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver
        inner = _graph_of(_NODE, lambda _: {}, True)  # never run: its state is written from outside
        self._graph = _graph_of(_GRAPH, inner, saver)

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        state = await self._graph.aget_state(_config(thread_id))
        return tuple(from_langchain(state.values.get("messages", [])))

    async def save(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message] | None
    ) -> None:
        changes = None if before is None else _changes(before, messages)
        if changes is None:
            await self._write(thread_id, _anew(messages))
            return
        try:
            await self._write(thread_id, changes)
        except ValueError:  # another process has removed the same message meanwhile
            await self._write(thread_id, _anew(messages))

    async def forget(self, thread_id: str) -> None:
        await delete_thread(self._saver, thread_id)

    async def threads(self) -> tuple[str, ...]:
        found: dict[str, None] = {}
        async for checkpoint in self._saver.alist(None):
            at = checkpoint.config["configurable"]
            if at.get("checkpoint_ns") == _GRAPH:
                found[at["thread_id"]] = None
        return tuple(found)

    async def _write(self, thread_id: str, changes: list[BaseMessage]) -> None:
        if changes:
            update = {"messages": changes}
            await self._graph.aupdate_state(_config(thread_id), update, as_node=_NODE)


def _changes(before: Sequence[Message], now: Sequence[Message]) -> list[BaseMessage] | None:
    """What turns ``before`` into ``now``, for LangGraph's ``add_messages``; None if nothing can."""
    old = {message.id: message for message in before}
    new = {message.id: message for message in now}
    # It leaves messages with a known id in place, and adds the rest at the end.
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
