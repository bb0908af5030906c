"""The conformance checks, on a machine that stands still for seconds before one of their calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from rxlanggraph.state import State
from rxlanggraph.state.backends.memory import MemoryStore
from rxlanggraph.testing.state_conformance import Check, conformance_checks
from support.state.state_world import Shaky, World

__all__ = ["failures_when_still"]

_T = TypeVar("_T")
_SECONDS = 3.0
# Of each check: after these, what it does repeats.
_CALLS = 10


class _Still(Shaky):
    """Time goes by before the call with the number ``still``."""

    def __init__(self, world: World, store: MemoryStore, still: int, made: list[None]) -> None:
        super().__init__(store)
        self._world, self._still, self._made = world, still, made

    async def shaken(self, call: Callable[[], Awaitable[_T]]) -> _T:
        if len(self._made) == self._still:
            self._world.stand_still(_SECONDS)
        self._made.append(None)
        return await call()


def failures_when_still() -> list[str]:
    """Which checks fail, each standing still before each of its first calls in turn."""
    failed = []
    for check in conformance_checks():
        if "loops of several threads" in check.name:  # the clock is for one thread
            continue
        for number in range(_CALLS):
            try:
                if _calls_made(check, number) <= number:
                    break
            except Exception as error:
                failed.append(f"{check}: before call {number}: {error!r}")
    return failed


def _calls_made(check: Check, still: int) -> int:
    world, made = World(), list[None]()
    stores: dict[str, MemoryStore] = {}

    @asynccontextmanager
    async def opened(*, namespace: str) -> AsyncIterator[State]:
        store = stores.setdefault(namespace, MemoryStore(world.clock.time))
        async with State(_Still(world, store, still, made)) as state:
            yield state

    async def run() -> None:
        await check(opened)

    try:
        world.run(run())
    finally:
        world.close()
    return len(made)
