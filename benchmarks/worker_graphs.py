"""The graphs of `benchmarks.executors`, which worker processes import, and of `graph_loops`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from langgraph.graph import START, StateGraph

from .harness import State

__all__ = ["cpu", "cpu_on_loop", "io", "trivial"]

#: Seconds that a run of the CPU-bound graph computes, and one of the I/O-bound graph waits.
LENGTH = 0.02


def compute(state: State) -> dict[str, int]:
    """Compute for so long, in a thread, as a sync node does."""
    until = time.thread_time() + LENGTH
    n = state["n"]
    while time.thread_time() < until:
        n = (n * 31 + 7) % 1_000_003
    return {"n": n}


async def compute_on_loop(state: State) -> dict[str, int]:
    return compute(state)


async def wait(state: State) -> dict[str, int]:
    await asyncio.sleep(LENGTH)
    return {"n": state["n"] + 1}


async def add(state: State) -> dict[str, int]:
    return {"n": state["n"] + 1}


def _compiled(node: Any) -> Any:
    return StateGraph(State).add_node("node", node).add_edge(START, "node").compile()


cpu, io, trivial = _compiled(compute), _compiled(wait), _compiled(add)
cpu_on_loop = _compiled(compute_on_loop)
