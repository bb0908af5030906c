"""A store in memory and a loop, both on one clock that goes on when nothing else is to be done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from behave.runner import Context

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import Claim, Lease, State
from rxlanggraph.state.backends.memory import MemoryBackend, MemoryStore

__all__ = ["Shaky", "World", "claimed", "hold", "slowly", "together", "turns", "world"]

_T = TypeVar("_T")


class Clock:
    """Seconds. Everything that waits is woken in the order of its time, and no time is spent."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events:
            assert timeout is not None, "all tasks wait, for nothing that will ever happen"
            self._clock.now += max(0.0, timeout)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """For one thread: what other threads do is not waited for."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(_Selector(clock))
        self._clock_of_all = clock

    def time(self) -> float:
        return self._clock_of_all.now


class Shaky(MemoryBackend):
    """A backend whose server can be gone: `gone` calls in turn fail, with an effect or without."""

    gone = 0.0
    in_doubt = False
    effect = False
    only_first = False  # of these calls is in doubt, or has an effect
    calls = 0
    closings = 0

    async def shaken(self, call: Callable[[], Awaitable[_T]]) -> _T:
        self.calls += 1
        if self.gone <= 0:
            return await call()
        self.gone -= 1
        if self.effect:
            await call()
        error = StateUnavailableError("the server is gone", in_doubt=self.in_doubt)
        if self.only_first:
            self.effect = self.in_doubt = False
        raise error

    async def close(self) -> None:
        self.closings += 1
        await super().close()


def _shaken(name: str) -> Callable[..., Awaitable[Any]]:
    method = getattr(MemoryBackend, name)

    async def call(self: Shaky, *args: Any) -> Any:
        return await self.shaken(lambda: method(self, *args))

    return call


for _name in dir(MemoryBackend):
    if _name in ("read", "commit", "increment") or _name.startswith(("lock_", "task")):
        setattr(Shaky, _name, _shaken(_name))


class World:
    """One loop, one store, one clock; and states, each like a process of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock.time)
        self.states: list[State] = []
        self._runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return self._runner.run(coroutine)

    def open(self, **options: Any) -> State:
        async def make() -> State:
            return State(Shaky(self.store), **options)

        state = self.run(make())
        self.states.append(state)
        return state

    def server(self, state: State) -> Shaky:
        backend = state.backend
        assert isinstance(backend, Shaky)
        return backend

    def stand_still(self, seconds: float) -> None:
        """Let time go by as for a process that is stopped: none of its timers is looked at."""
        self.clock.now += seconds

    def close(self) -> None:
        for state in self.states:
            self.run(state.aclose())
        self._runner.close()


def world(context: Context) -> World:
    """The world of the scenario."""
    if "world" not in context:
        context.world = World()
        context.add_cleanup(context.world.close)
    there: World = context.world
    return there


async def together(calls: list[Awaitable[Any]]) -> list[Any]:
    """What they return, awaited all at once."""
    return await asyncio.gather(*calls)


async def turns(count: int = 5) -> None:
    """Let every other task of the loop go on, as far as it comes without waiting."""
    for _ in range(count):
        await asyncio.sleep(0)


async def claimed(state: State, lease: float = 3, **options: Any) -> Claim:
    """A claim from the queue "q"."""
    claim = await state.claim_task("q", lease=lease, **options)
    assert claim is not None, "there is nothing to claim"
    return claim


def hold(state: State, wait: float | None = None) -> AbstractAsyncContextManager[Lease]:
    """The lock "l", with a time to live of 3 seconds."""
    return state.lock("l", 3, wait=wait)


async def slowly(call: Callable[[], Awaitable[_T]]) -> _T:
    """As the `shaken` of a server that takes a second before it begins."""
    await asyncio.sleep(1)
    return await call()
