"""Sources that count what is taken from them, and notice when they are closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from support.concurrency.waiting import Gate, Log

__all__ = ["Source"]


class Source:
    """Numbers, endless or up to a ``count``; then an error, if there is one."""

    def __init__(
        self,
        *,
        count: int | None = None,
        error: BaseException | None = None,
        idle_at: int | None = None,
        may_begin: bool = True,
    ) -> None:
        self.taken = Log()
        self.idle, self.closed, self.may_begin = Gate(), Gate(), Gate()
        if may_begin:
            self.may_begin.open()
        self._count, self._error, self._idle_at = count, error, idle_at

    def _numbers(self) -> Iterator[int]:
        number = 0
        while number != self._count:
            self.taken.add(number)
            yield number
            number += 1
        if self._error is not None:
            raise self._error

    def generator(self) -> Iterator[int]:
        try:
            self.may_begin.wait()
            yield from self._numbers()
        finally:
            self.closed.open()

    async def async_generator(self) -> AsyncIterator[int]:
        try:
            await self.may_begin.wait_async()
            for number in self._numbers():
                if number == self._idle_at:
                    self.idle.open()
                    await asyncio.get_running_loop().create_future()
                yield number
        finally:
            await asyncio.sleep(0)  # it may take its time
            self.closed.open()

    async def async_iterator(self) -> AsyncIterator[int]:
        for number in self._numbers():
            await asyncio.sleep(0)
            yield number

    def of(self, kind: Literal["async generator", "generator"]) -> Any:
        return self.generator() if kind == "generator" else self.async_generator()


class AsyncNumbers:
    """An async iterator that is not a generator."""

    def __init__(self, count: int) -> None:
        self._numbers = iter(range(count))

    def __aiter__(self) -> AsyncNumbers:
        return self

    async def __anext__(self) -> int:
        await asyncio.sleep(0)
        for number in self._numbers:
            return number
        raise StopAsyncIteration


class Unwilling:
    """It raises when it is to be iterated over."""

    def __init__(self, error: BaseException) -> None:
        self._error = error


class UnwillingIterable(Unwilling):
    def __iter__(self) -> Iterator[int]:
        raise self._error


class UnwillingAsyncIterable(Unwilling):
    def __aiter__(self) -> AsyncIterator[int]:
        raise self._error


def source_of(words: str) -> Any:
    """What a step calls, for example, ``a list of 50 items``."""
    kind, _, count = words.removesuffix(" items").rpartition(" of ")
    numbers = int(count)
    return {
        "an async generator": lambda: Source(count=numbers).async_generator(),
        "an async iterator": lambda: AsyncNumbers(numbers),
        "a generator": lambda: Source(count=numbers).generator(),
        "a list": lambda: list(range(numbers)),
    }[kind]()


def raising(kind: str, error: BaseException) -> Any:
    source = Source(count=0, error=error)
    return {
        "an async generator": source.async_generator,
        "a generator": source.generator,
        "an async iterable": lambda: UnwillingAsyncIterable(error),
        "an iterable": lambda: UnwillingIterable(error),
    }[kind]()
