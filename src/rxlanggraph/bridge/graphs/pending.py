"""The questions that wait for an answer, read from a graph's checkpoint saver; dropping old ones.

What breaks with a list in the bridge: questions asked before a restart, or by another process, are
missing from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rxlanggraph.bridge.graphs.attempts import saver_of
from rxlanggraph.bridge.graphs.configs import layers_of
from rxlanggraph.bridge.graphs.interrupts import ThreadGate, questions_of
from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.messages import InterruptedMessage, StreamMessage

__all__ = ["PendingInterrupt", "PendingInterrupts"]


@dataclass(frozen=True, slots=True)
class PendingInterrupt:
    """A question that waits for an answer."""

    thread_id: str
    """The thread that it is asked on."""

    interrupt: Any
    """LangGraph's own ``Interrupt``, with a ``value`` and an ``id``."""

    age: float
    """Seconds since the step began that asks it.

    LangGraph does not save when a question was asked. If a node asks twice, the second question
    counts from the beginning of that node's step, too.
    """

    def reply(self, value: Any) -> StreamMessage:
        """Return the message that answers it, as `StreamMessage.reply`. Any thread."""
        asked = InterruptedMessage(None, self.thread_id, interrupts=(self.interrupt,))
        return asked.reply(value)


class PendingInterrupts:
    """The pending questions of one graph. Its methods are for the loop of the graph's saver.

    Args:
        graph: A graph with a checkpoint saver, or what wraps one.

    Raises:
        InvalidArgumentError: It has none.
    """

    def __init__(self, graph: Any) -> None:
        saver = saver_of(graph)
        if saver is None:
            raise InvalidArgumentError(
                f"{graph!r} keeps no threads, and so no questions; compile it with a "
                "checkpointer, or pass the graph of the agent"
            )
        *_, self._graph = layers_of(graph)
        self._gate = ThreadGate(graph, saver, "discard")

    async def on_thread(self, thread_id: str) -> tuple[PendingInterrupt, ...]:
        """Return those of one thread."""
        found = await self._gate.saver.aget_tuple(self._latest(thread_id))
        return () if found is None else tuple(_pending_on(found))

    async def everywhere(self) -> tuple[PendingInterrupt, ...]:
        """Return those of all threads that the saver lists, the oldest first."""
        latest: dict[str, str] = {}
        pending: dict[str, list[PendingInterrupt]] = {}
        # Closed at once: a saver may hold a lock during the iteration.
        async with aclosing(self._gate.saver.alist(None)) as checkpoints:
            async for found in checkpoints:
                at = found.config["configurable"]
                thread_id, checkpoint_id = at["thread_id"], at["checkpoint_id"]
                # What subgraphs ask is on the thread itself, too. Ids are sortable by time.
                if at.get("checkpoint_ns") or checkpoint_id < latest.get(thread_id, ""):
                    continue
                latest[thread_id] = checkpoint_id
                pending[thread_id] = _pending_on(found)
        every = (each for of_thread in pending.values() for each in of_thread)
        return tuple(sorted(every, key=lambda each: -each.age))

    async def drop(self, thread_id: str, older_than: float) -> tuple[PendingInterrupt, ...]:
        """Drop those of a thread, if they are older than ``older_than`` seconds; return them.

        In the thread's lane. The step that asks them is given up, as new input would; what the
        thread had before, and what other nodes of the step have returned, stays.
        """
        pending = await self.on_thread(thread_id)
        if not pending or pending[0].age < older_than:  # of one step, and so of one age
            return ()
        # Of another graph with the same saver, this graph's update would lose the state.
        state = await self._graph.aget_state(self._latest(thread_id))
        own = {interrupt.id for interrupt in state.interrupts}
        if not own.issuperset(each.interrupt.id for each in pending):
            return ()
        await self._graph.aupdate_state(self._latest(thread_id), None, as_node="__end__")
        return pending

    def _latest(self, thread_id: str) -> Mapping[str, Any]:
        return self._gate.latest({"configurable": {"thread_id": thread_id}})


def _pending_on(found: Any) -> list[PendingInterrupt]:
    questions = questions_of(found)
    if not questions:
        return []
    begun = datetime.fromisoformat(found.checkpoint["ts"])
    age = (datetime.now(UTC) - begun).total_seconds()
    thread_id = found.config["configurable"]["thread_id"]
    return [PendingInterrupt(thread_id, each.interrupt, age) for each in questions.values()]
