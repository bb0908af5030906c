"""The control of state_worker.py: work on two lists in naive ways, and tell of each step.

Usage: state_naively.py URL PIPE

It knows no leases and no tokens. "popped" is a list from which an item is taken in one step, as
LPOP does, and then worked on; "read" one that is read, and written back without its first item. The
work takes a moment, as a call of a model does, and ends with a count of its effect.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from telling import Teller

from rxlanggraph.state import State, open_state
from rxlanggraph.state.transactions import Transaction

# Of each list, in each process.
AT_ONCE = 2
SECONDS = 0.05


async def pop(state: State) -> Any:
    """Take the first item of the list, all at once."""

    async def first(transaction: Transaction) -> Any:
        items, _ = await transaction.get("popped")
        transaction.set("popped", items[1:])
        return items[0] if items else None

    return await state.transact(first, attempts=1_000)


async def read_and_write(state: State) -> Any:
    """Get the list, then set it."""
    items, _ = await state.get("read")
    await state.set("read", items[1:])
    return items[0] if items else None


async def work(
    state: State, way: str, take: Callable[[State], Awaitable[Any]], tell: Teller
) -> None:
    while (item := await take(state)) is not None:
        await asyncio.sleep(SECONDS)
        await state.increment_counter(f"{way}:{item}")
        tell("done", item, 0)


async def main(url: str, pipe: str) -> None:
    async with open_state(url) as state:
        tell = Teller(pipe)
        ways = [("popped", pop), ("read", read_and_write)] * AT_ONCE
        await asyncio.gather(*[work(state, way, take, tell) for way, take in ways])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
