"""Counting, claiming and updating: what is measured of each backend of shared state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from rxlanggraph.state import State

ITEM = {"question": "What is the answer?", "thread": 42}


class Store(Protocol):
    """One way of counting and of claiming."""

    async def increment(self) -> object:
        """Count one."""

    async def fill(self, count: int) -> None:
        """Add so many items to claim."""

    async def claim(self) -> Any:
        """Claim one of them."""

    async def finish(self, claimed: list[Any]) -> int:
        """Be done with all of them; return how many different ones there were."""


class Ours:
    """The state through its public API; the items are completed in the end."""

    def __init__(self, state: State) -> None:
        self.state = state

    async def increment(self) -> None:
        await self.state.increment_counter("counter")

    async def fill(self, count: int) -> None:
        await self.state.add_tasks("queue", [ITEM] * count)

    async def claim(self) -> Any:
        return await self.state.claim_task("queue")

    async def finish(self, claimed: list[Any]) -> int:
        for claim in claimed:
            await claim.complete()
        return await self.state.purge("queue", ["completed"])


async def increments(store: Store, at_once: int, count: int) -> float:
    """Count from so many tasks; return the seconds."""
    return await burst(store.increment, at_once, count)


async def claims(store: Store, at_once: int, count: int) -> float:
    """Claim that many items from so many tasks; return the seconds that claiming took.

    Raises:
        AssertionError: An item was claimed twice, or not at all.
    """
    await store.fill(count)
    claimed: list[Any] = []

    async def claim() -> None:
        claimed.append(await store.claim())

    seconds = await burst(claim, at_once, count)
    finished = await store.finish(claimed)
    if finished != count:
        raise AssertionError(f"{count} items were to be claimed once each, {finished} were")
    return seconds


async def updates(state: State, at_once: int, count: int) -> float:
    """Update one key from so many tasks with ``safe_update``; return the seconds.

    Raises:
        AssertionError: An update was lost.
    """
    await state.set("updated", 0)
    seconds = await burst(
        lambda: state.safe_update("updated", lambda value: value + 1, attempts=1_000),
        at_once,
        count,
    )
    value, _ = await state.get("updated")
    if value != count:
        raise AssertionError(f"{count} updates were made, {value} are left")
    return seconds


async def burst(call: Callable[[], Awaitable[object]], at_once: int, count: int) -> float:
    """Call so often, from so many tasks; return the seconds."""
    turns = iter(range(count))  # shared: each task takes the next

    async def work() -> None:
        for _ in turns:
            await call()

    start = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(at_once)])
    return time.perf_counter() - start
