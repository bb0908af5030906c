"""ConversationStore: saves the memories of agents between runs, in this process or by LangGraph.

What breaks without it: writing a whole conversation after each of its runs takes longer each time.
Within this process nothing is converted, and a checkpointer gets only the changes.
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
_PAGE = 100  # items read from a store at a time
_MAX_IN_PROCESS = 10_000
"""A guess: many times the number of agents that a pool has at once."""


class ConversationStore(Protocol):
    """Saves the messages of each thread. Any loop; for one thread, one call at a time."""

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        """Return the messages saved last; empty if there are none."""

    async def save(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message] | None
    ) -> None:
        """Replace ``before``, the messages saved or loaded last, by ``messages``.

        With None for ``before``, replace whatever is saved.
        """

    async def forget(self, thread_id: str) -> None:
        """Delete what was saved."""

    async def threads(self) -> tuple[str, ...]:
        """Return the threads for which something is saved."""


def make_store(place: Any, max_memories: int | None = None) -> ConversationStore:
    """Make the store that saves memories in ``place``. Any thread; never blocks.

    Args:
        place: A LangGraph store or checkpointer; None for this process.
        max_memories: The maximum number of memories in this process; None for the default.

    Raises:
        InvalidArgumentError: ``max_memories`` is less than 1, or ``place`` is not this process.
        InvalidTypeError: ``place`` is neither a LangGraph store nor a checkpointer.
    """
    if place is None:
        return _ProcessStore(_MAX_IN_PROCESS if max_memories is None else max_memories)
    if max_memories is not None:
        raise InvalidArgumentError(
            "max_memories is for memories in this process; with persistence, limit them in its "
            "store or with pool.forget()"
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
    """Saves in memory, without conversion, as a Message is immutable.

    Only the ``limit`` most recently used threads are retained.
    """

    def __init__(self, limit: int) -> None:
        check_whole("max_memories", limit, least=1)
        self._limit = limit
        # A leaf, held for a few lines; an RLock, since a finalizer may enter too.
        self._lock = fork_safe_rlock()
        # Guarded by the lock. The most recently used one is last.
        self._saved: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    async def load(self, thread_id: str) -> tuple[Message, ...]:
        with self._lock:
            kept = self._saved.pop(thread_id, ())
            if kept:
                self._saved[thread_id] = kept
            return kept

    async def save(
        self, thread_id: str, messages: tuple[Message, ...], before: Sequence[Message] | None
    ) -> None:
        with self._lock:
            self._saved.pop(thread_id, None)
            if messages:
                self._saved[thread_id] = messages
            while len(self._saved) > self._limit:
                self._saved.popitem(last=False)

    async def forget(self, thread_id: str) -> None:
        with self._lock:
            self._saved.pop(thread_id, None)

    async def threads(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._saved)


class _LangGraphStore:
    """Saves each memory as one value of a LangGraph store, which is written as a whole."""

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
    """Saves each memory in a checkpointer, as the state of a graph that does nothing else.

    The checkpoints have LangGraph's own format, and work with its tools. The graph is a subgraph,
    and so has a namespace of its own: agents' graphs may use the same checkpointer, and deleting a
    thread deletes its memory too.
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
            await self._write(thread_id, _replacement(messages))
            return
        try:
            await self._write(thread_id, changes)
        except ValueError:  # another process has removed the same message
            await self._write(thread_id, _replacement(messages))

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
    """The update that turns ``before`` into ``now``; None if there is none."""
    old = {message.id: message for message in before}
    new = {message.id: message for message in now}
    # LangGraph's `add_messages` replaces messages with a known id in place, and appends the rest.
    resulting = [*(key for key in old if key in new), *(key for key in new if key not in old)]
    if len(old) < len(before) or resulting != [message.id for message in now]:
        return None
    gone = [RemoveMessage(key) for key in old if key not in new]
    written = [message for message in now if old.get(message.id) is not message]
    return [*gone, *to_langchain(written)]


def _replacement(messages: Sequence[Message]) -> list[BaseMessage]:
    return [RemoveMessage(REMOVE_ALL_MESSAGES), *to_langchain(messages)]


def _graph_of(name: str, node: Any, checkpointer: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node(name, node)
    builder.add_edge(START, name)
    return builder.compile(checkpointer=checkpointer)


def _config(thread_id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": _GRAPH}}
