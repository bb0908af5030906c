"""The conformance checks as objects, and helpers for them."""

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
# Seconds that a check may take: far more than it needs on a slow machine.
_LIMIT = 60.0
# Seconds between two polls.
_PAUSE = 0.02
_SHORT = partial(textwrap.shorten, width=1000)


class OpenState(Protocol):
    """A function that opens a state, such as ``functools.partial(open_state, url)``."""

    def __call__(self, *, namespace: str) -> AbstractAsyncContextManager[BaseState]:
        """Open a new state, on the same data at each call."""


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
    """A check of one property of a backend.

    Attributes:
        group: The subject; the same for several checks.
        name: The property, as a sentence.
        body: The test.
    """

    group: str
    name: str
    body: Callable[[Store], Awaitable[None]]

    async def __call__(self, open_state: OpenState) -> None:
        """Run the check, in a namespace of its own, which is left behind.

        Raises:
            AssertionError: The backend lacks the property; the message describes what it did.
            TimeoutError: It took longer than a minute.
        """
        async with asyncio.timeout(_LIMIT):
            await self.body(Store(open_state))

    def __str__(self) -> str:
        """Return group and name."""
        return f"{self.group}: {self.name}"


_Body = Callable[[Store], Awaitable[None]]


def check(group: str, name: str, checks: list[Check]) -> Callable[[_Body], _Body]:
    """Add the decorated function to ``checks``."""

    def decorate(body: _Body) -> _Body:
        checks.append(Check(group, name, body))
        return body

    return decorate


def expect(actual: object, expected: object, what: str) -> None:
    """Compare by value and by ``repr``, which distinguishes 1, 1.0 and True.

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
    """Await all concurrently; the first error cancels the others."""

    async def one(call: Awaitable[_T]) -> _T:
        return await call

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(call)) for call in calls]
    return [task.result() for task in tasks]


async def until(poll: Callable[[], Awaitable[_T]]) -> _T:
    """Await ``poll()`` repeatedly until it returns a true value; return that."""
    while not (seen := await poll()):  # noqa: ASYNC110 - the server sends no event
        await asyncio.sleep(_PAUSE)
    return seen


async def every_step(call: Callable[[], Awaitable[Any]], steps: int = 25) -> int:
    """Cancel ``call`` after 0, 1, ... iterations of the loop; return how often it ended before."""
    return sum([not await cancelled_after(count, call) for count in range(steps)])


async def cancelled_after(iterations: int, call: Callable[[], Awaitable[Any]]) -> bool:
    """Cancel ``call`` after that many iterations of the loop; False if it had ended before."""
    task = asyncio.ensure_future(call())
    for _ in range(iterations):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return task.cancelled()


async def locks_expired(backend: Backend, ttl: float) -> None:
    """Wait until every lock acquired before, for at most ``ttl`` seconds, has expired."""
    name = uuid7().hex
    await backend.lock_acquire(name, "first", ttl)
    await until(lambda: backend.lock_acquire(name, "second", ttl))
