"""A graph that counts, and can be held up before; in the process of the scenario alone."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph

from support.concurrency.waiting import Gate

__all__ = ["holding"]


def add(old: int | None, new: int) -> int:
    return (old or 0) + new


class Note(TypedDict, total=False):
    count: Annotated[int, add]
    hold: str


def holding(inside: Gate, gate: Gate, saver: Any) -> Any:
    """Make the graph, of five nodes.

    Args:
        inside: Opened where a run is held up.
        gate: What it waits for then.
        saver: Its saver.
    """

    async def hold(note: Note) -> Note:
        if note.get("hold"):
            inside.open()
            try:
                await gate.wait_async()
            except asyncio.CancelledError:
                if note["hold"] != "swallow":
                    raise
        return {}

    async def count(note: Note) -> Note:
        return {"count": 1}

    def leave(note: Note) -> Note:
        return {}

    builder = StateGraph(Note).add_node("hold", hold).add_node("count", count)
    builder.add_edge(START, "hold").add_edge("hold", "count")
    for number in range(3):
        builder.add_node(f"leave{number}", leave)
        builder.add_edge(f"leave{number - 1}" if number else "count", f"leave{number}")
    return builder.compile(saver)
