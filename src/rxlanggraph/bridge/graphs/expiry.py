"""Threads that were not used for a long time are deleted from a graph's checkpoint saver.

What breaks without it: conversations that are never continued fill the store.
"""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from rxlanggraph.bridge.graphs.attempts import saver_of
from rxlanggraph.bridge.graphs.interrupts import ThreadGate
from rxlanggraph.bridge.graphs.retention import check_deletion, is_unfinished, prune_thread

__all__ = ["ExpiringThreads"]


class ExpiringThreads:
    """The threads in the saver of a graph, by their age. Its methods are for the saver's loop.

    Args:
        graph: A graph with a checkpoint saver, or what wraps one.
        unfinished: Whether threads that wait for an answer, or can be continued, expire as well.

    Raises:
        InvalidArgumentError: It has none, or one that cannot delete threads.
    """

    def __init__(self, graph: Any, *, unfinished: bool) -> None:
        saver = saver_of(graph)
        check_deletion("expire_threads", graph, saver)
        self._gate = ThreadGate(graph, saver, "discard")
        self._unfinished = unfinished

    async def unused_for(self, seconds: float) -> list[str]:
        """Return the threads that have no checkpoint newer than that, the longest unused first."""
        latest: dict[str, tuple[str, float]] = {}
        # Closed at once: a saver may hold a lock during the iteration.
        async with aclosing(self._gate.saver.alist(None)) as checkpoints:
            async for found in checkpoints:
                at = found.config["configurable"]
                thread_id, checkpoint_id = at["thread_id"], at["checkpoint_id"]
                if checkpoint_id >= latest.get(thread_id, ("", 0.0))[0]:  # sortable by time
                    latest[thread_id] = checkpoint_id, _age_of(found)
        unused = [(age, thread_id) for thread_id, (_, age) in latest.items() if age >= seconds]
        return [thread_id for _, thread_id in sorted(unused, reverse=True)]

    async def delete(self, thread_id: str, unused_for: float) -> bool:
        """Delete a thread, if it is still unused for so many seconds. In the thread's lane.

        Returns:
            Whether it was deleted.
        """
        latest = self._gate.latest({"configurable": {"thread_id": thread_id}})
        found = await self._gate.saver.aget_tuple(latest)
        if found is None or _age_of(found) < unused_for:
            return False
        if is_unfinished(found) and not self._unfinished:
            return False
        await prune_thread(self._gate.saver, thread_id, 0)
        return True


def _age_of(found: Any) -> float:
    made = datetime.fromisoformat(found.checkpoint["ts"])
    return (datetime.now(UTC) - made).total_seconds()
