"""What a conformance check is, and what it is given."""

from __future__ import annotations

import asyncio
import contextlib
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from uuid_utils import uuid7

from rxlanggraph.state.backend import Backend
from rxlanggraph.state.base import BaseState

__all__ = [
    "Check",
    "OpenState",
    "Store",
    "cancelled_after",
    "check",
    "every_step",
    "expect",
    "gather",
    "locks_expired",
    "raises",
    "until",
]

_T = TypeVar("_T")
# Seconds. Nothing that a check waits for takes a fraction of it.
_LIMIT = 60.0
_PAUSE = 0.02
_SHORT = partial(textwrap.shorten, width=1000)


class OpenState(Protocol):
    """How a state is opened: ``functools.partial(open_state, url)`` is one."""

    def __call__(self, *, namespace: str) -> AbstractAsyncContextManager[BaseState]:
        """Open a state. Each call opens another one, on the same data."""


class Store:
    """One namespace of its own, for one check."""

    def __init__(self, open_state: OpenState) -> None:
        self._open = open_state
        self.namespace = f"conformance-{uuid7().hex}"

    def open(self, namespace: str | None = None) -> AbstractAsyncContextManager[BaseState]:
        """Open another state, on the same data."""
        return self._open(namespace=namespace or self.namespace)

    @contextlib.asynccontextmanager
    async def open_many(self, count: int) -> AsyncIterator[list[BaseState]]:
        """Open ``count`` states, on the same data."""
        async with contextlib.AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.open()) for _ in range(count)]


@dataclass(frozen=True)
class Check:
    """One thing that every backend has to do.

    Attributes:
        group: What it is about.
        name: The claim, in words.
        body: What tries it.
    """

    group: str
    name: str
    body: Callable[[Store], Awaitable[None]]

    async def __call__(self, open_state: OpenState) -> None:
        """Try it, in a namespace of its own, which is left as it is.

        Raises:
            AssertionError: The backend does not do it; the message says what it did.
            TimeoutError: It took longer than a minute.
        """
        async with asyncio.timeout(_LIMIT):
            await self.body(Store(open_state))

    def __str__(self) -> str:
        """Group and name."""
        return f"{self.group}: {self.name}"


_Body = Callable[[Store], Awaitable[None]]


def check(group: str, name: str, checks: list[Check]) -> Callable[[_Body], _Body]:
    """Put the decorated function into ``checks``."""

    def decorate(body: _Body) -> _Body:
        checks.append(Check(group, name, body))
        return body

    return decorate


def expect(actual: object, expected: object, what: str) -> None:
    """Compare, types of numbers included.

    Raises:
        AssertionError: They differ.
    """
    wanted, got = repr(expected), repr(actual)
    if actual != expected or got != wanted:
        raise AssertionError(f"{what}: expected {_SHORT(wanted)}, got {_SHORT(got)}")


@contextlib.contextmanager
def raises(kind: type[Exception], what: str) -> Iterator[None]:
    """Expect an error of ``kind`` from the block."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{what}: expected {kind.__name__}, nothing was raised")


async def gather(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all at once; the first error cancels the others."""

    async def one(call: Awaitable[_T]) -> _T:
        return await call

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(call)) for call in calls]
    return [task.result() for task in tasks]


async def until(look: Callable[[], Awaitable[_T]]) -> _T:
    """Poll until there is a true value; return it."""
    while not (seen := await look()):  # noqa: ASYNC110 - the clock is the server's
        await asyncio.sleep(_PAUSE)
    return seen


async def every_step(call: Callable[[], Awaitable[Any]], steps: int = 25) -> int:
    """Cancel ``call`` after each number of loop iterations; return how often it ended before."""
    return sum([not await cancelled_after(turns, call) for turns in range(steps)])


async def cancelled_after(turns: int, call: Callable[[], Awaitable[Any]]) -> bool:
    """Cancel ``call`` after so many iterations of the loop; False if it had ended before."""
    task = asyncio.ensure_future(call())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return task.cancelled()


async def locks_expired(backend: Backend, ttl: float) -> None:
    """Wait until every lock that was taken before, for at most ``ttl`` seconds, has expired."""
    name = uuid7().hex
    await backend.lock_acquire(name, "first", ttl)
    await until(lambda: backend.lock_acquire(name, "second", ttl))
