"""Shared state in memory: counters and claims.

No server has a command here that could be the floor, so there is no target: the rows say what the
contract costs over what people write, a number and a deque under an ``asyncio.Lock``. That has no
JSON, so what is taken out can be changed behind its back; no versions, tokens, attempts and
heartbeats; and works on one loop alone. Ours is the whole way through `open_state`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from contextlib import ExitStack
from typing import Any

from rxlanggraph.state import State, open_state

from .harness import Ratio, paired, told
from .state_work import ITEM, Ours, Store, claims, increments

BURST = 2_000
STORES = ("ours", "under a lock")


class UnderLock:
    """A number, a deque of items, and a dictionary of leases."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._counter = 0
        self._ready: deque[tuple[int, Any]] = deque()
        self._leases: dict[int, tuple[str, float]] = {}

    async def increment(self) -> None:
        async with self._lock:
            self._counter += 1

    async def fill(self, count: int) -> None:
        self._ready.extend((number, ITEM) for number in range(count))

    async def claim(self) -> Any:
        async with self._lock:
            number, item = self._ready.popleft()
            self._leases[number] = ("worker", time.monotonic() + 30)
        return number, item

    async def finish(self, claimed: list[Any]) -> int:
        return sum(self._leases.pop(number, None) is not None for number, _ in claimed)


class Bench(ExitStack):
    """A loop, and both ways on it."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = self.enter_context(asyncio.Runner())
        self._opened = contextlib.AsyncExitStack()
        self.callback(lambda: self._runner.run(self._opened.aclose()))
        self._runner.run(self._open())

    async def _open(self) -> None:
        state: State = await self._opened.enter_async_context(open_state("memory:"))
        self.stores: dict[str, Store] = {"ours": Ours(state), "under a lock": UnderLock()}

    def measure(self, part: str, store: str, at_once: int, count: int = BURST) -> float:
        """The seconds of that many "increments" or "claims" from so many tasks."""
        return self._runner.run(_PARTS[part](self.stores[store], at_once, count))


_PARTS = {"increments": increments, "claims": claims}


def ratio(part: str, at_once: int, *, pairs: int = 11, count: int = BURST) -> Ratio:
    """The state's ``part``, "increments" or "claims", over the same under a lock."""
    with Bench() as bench:
        return paired(
            lambda: bench.measure(part, "ours", at_once, count),
            lambda: bench.measure(part, "under a lock", at_once, count),
            pairs=pairs,
            items=count,
            clock=told,
        )


class MemoryState:
    """Seconds for an increment and a claim, by way and by how many are under way at once."""

    params = (list(_PARTS), list(STORES), [1, 16])
    param_names = ("part", "store", "at once")
    timeout = 300
    unit = "s"

    def setup(self, *_: object) -> None:
        self.bench = Bench()

    def teardown(self, *_: object) -> None:
        self.bench.close()

    def track_time(self, part: str, store: str, at_once: int) -> float:
        return self.bench.measure(part, store, at_once) / BURST
