"""A real graph of two nodes, fed by several threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from left import Meter

THREADS = 8
MESSAGES = 100
"""For each thread, before the middle and again after it."""

meter = Meter()


class State(TypedDict):
    """A message of these programs."""

    n: int
    endless: bool


async def prepare(state: State) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"n": state["n"] + 1}


async def model(state: State) -> dict[str, int]:
    """Answer, or never; to stop takes some turns of the loop, as closing a connection does."""
    with meter:
        try:
            if state["endless"]:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
    return {"n": state["n"] * 2}


def build(last_node: Callable[[State], Any] = model) -> Any:
    builder = StateGraph(State)
    builder.add_node("prepare", prepare)
    builder.add_node("model", last_node)
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "model")
    builder.add_edge("model", END)
    return builder.compile()


def in_threads(work: Callable[[], None], count: int = THREADS) -> list[threading.Thread]:
    """Start ``work`` in so many threads."""
    threads = [threading.Thread(target=work, name=f"feeder-{i}") for i in range(count)]
    for thread in threads:
        thread.start()
    return threads
