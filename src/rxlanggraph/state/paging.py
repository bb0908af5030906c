"""Reading in pages and working in steps, so that other calls proceed (rule 9 of the contract)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from itertools import islice
from typing import Any, Final, Generic, Self, TypeVar

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state.backend import MAX_PER_STEP, Page, Step
from rxlanggraph.state.client import BackendClient

__all__ = ["Paged", "batched", "in_steps"]

_T = TypeVar("_T")
_Row = TypeVar("_Row", bound=tuple[Any, ...])

# Items on the first page: few, as the caller may stop after a few items.
_FIRST_PAGE: Final = 100
# Characters on a page, roughly: values may be large.
_PAGE_CHARACTERS: Final = 1_000_000
# Seconds. A pause between two steps is as long as the previous step took, so that other callers get
# half of the server's time; but at most this long.
_MAX_PAUSE: Final = 0.2


class Paged(Generic[_T]):
    """Items that are read page by page: ``async for item in ...``.

    Each page is read when it is needed. Confined to the loop of the state; single-use.

    Args:
        client: The client of the state.
        read: Reads a page, given a cursor and the number of items at most.
        make: Turns a row into an item.
    """

    def __init__(
        self,
        client: BackendClient,
        read: Callable[[str | None, int], Awaitable[Page[_Row]]],
        make: Callable[[_Row], _T],
    ) -> None:
        self._client = client
        self._read = read
        self._make = make
        self._after: str | None = None
        self._most = _FIRST_PAGE
        self._items: deque[_T] = deque()
        self._ended = False

    def __aiter__(self) -> Self:
        """Return the reader itself."""
        return self

    async def __anext__(self) -> _T:
        """Return the next item. If cancelled, no item is lost."""
        while not self._items:
            self._items.extend(await self.next_page())
            if self._ended and not self._items:
                raise StopAsyncIteration
        return self._items.popleft()

    async def next_page(self) -> list[_T]:
        """Return the items of the next page; may be empty. An empty list after the last page."""
        if self._ended:
            return []
        await asyncio.sleep(0)  # a store in memory does not yield to other tasks
        page = await self._client.call(self._read, self._after, self._most, repeatable=True)
        self._after, self._ended = page.after, page.after is None
        characters = sum(len(text) for row in page.items for text in row if isinstance(text, str))
        fitting = self._most * _PAGE_CHARACTERS // max(characters, 1)
        self._most = max(1, min(2 * self._most, fitting, MAX_PER_STEP))
        return [self._make(row) for row in page.items]

    @property
    def ended(self) -> bool:
        """Whether the last page has been read."""
        return self._ended


async def in_steps(
    client: BackendClient,
    step: Callable[[str | None], Awaitable[Step]],
    on_step: Callable[[], None],
) -> int:
    """Do all steps, with other calls in between; return how many tasks they have changed.

    Args:
        client: Of the state.
        step: Does one step, after the previous one's ``after``.
        on_step: Called after each step.

    Raises:
        StateUnavailableError: The server does not answer; in doubt, if a step was made before.
    """
    total, after = 0, None
    while True:
        began = client.loop.time()
        try:
            result = await client.call(step, after, repeatable=True)
        except StateUnavailableError as error:
            error.in_doubt |= total > 0
            raise
        on_step()
        total, after = total + result.done, result.after
        if after is None:
            return total
        await asyncio.sleep(min(client.loop.time() - began, _MAX_PAUSE))


def batched(names: Collection[str]) -> Iterator[list[str]]:
    """Yield ``names`` in batches that one call accepts."""
    rest = iter(names)
    while batch := list(islice(rest, MAX_PER_STEP)):
        yield batch
