"""Opening a state where there is none, or not the packages for it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from rxlanggraph.state import State, open_state
from rxlanggraph.state.backends.sql.schema import VERSION
from support.concurrency.tasks import PATIENCE
from support.state.sql_ways import NAMESPACE, plain

__all__ = [
    "abandon",
    "open_at",
    "open_without",
    "pile_up",
    "prepare_as_of_tomorrow",
    "rows_left",
]


async def open_at(url: str) -> BaseException | None:
    """What opening a state ends with."""
    try:
        async with open_state(url, namespace=NAMESPACE) as state:
            await state.increment_counter("n")
    except Exception as error:
        return error
    return None


WITHOUT = """
import asyncio, sys
sys.modules[{package!r}] = None
from rxlanggraph.errors import MissingExtraError
from rxlanggraph.state import open_state

async def main():
    try:
        async with open_state({url!r}):
            pass
    except MissingExtraError as error:
        print(error)

asyncio.run(main())
"""


def open_without(package: str, url: str) -> str:
    """What the error says when the package is not installed."""
    program = WITHOUT.format(package=package, url=url)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout


ABANDON = """
import asyncio
from rxlanggraph.state import open_state

loop = asyncio.new_event_loop()
block = open_state({url!r})
state = loop.run_until_complete(block.__aenter__())
print(loop.run_until_complete(state.increment_counter("n")))
loop.close()
"""


def abandon(url: str) -> str | None:
    """What a process prints that leaves a state open on a closed loop; None if it does not end."""
    program = ABANDON.format(url=url)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout


async def prepare_as_of_tomorrow(url: str) -> None:
    await open_at(url)
    with plain(url) as connection:
        connection.execute(f"UPDATE rxlanggraph_schema SET version = {VERSION + 1}")


async def _write_under_token(state: State, number: int, ttl: float | None = None) -> None:
    async with state.lock("lock") as lease:
        await state.set(f"key {number}", number, token=lease, ttl=ttl)
        if ttl is None:
            await state.delete(f"key {number}", token=lease)


async def _die_with_lock(state: State, number: int) -> None:
    assert await state.backend.lock_acquire(f"lock {number}", "dead", 0.001)


async def _use_queue(state: State, number: int) -> None:
    await state.add_tasks(f"queue {number}", ["item"])
    assert await state.purge(f"queue {number}", ["waiting"]) == 1


# What comes and goes, and the table that has it.
PASSING: dict[str, tuple[Callable[[State, int], Awaitable[None]], str]] = {
    "keys written under a token": (_write_under_token, "rxlanggraph_entries"),
    "keys that expire with a token": (
        partial(_write_under_token, ttl=0.001),
        "rxlanggraph_entries",
    ),
    "locks of dead holders": (_die_with_lock, "rxlanggraph_locks"),
    "queues": (_use_queue, "rxlanggraph_queues"),
}


async def rows_left(url: str, count: int, what: str) -> int:
    """Have so many come and go, one after the other; return how many rows are left of them."""
    come_and_go, table = PASSING[what]
    async with open_state(url, namespace=NAMESPACE) as state:
        for number in range(count):
            await come_and_go(state, number)
    with plain(url) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


async def pile_up(url: str, keys: int) -> int:
    """Set so many keys, each for a moment, one after the other; return how many rows are left."""
    async with open_state(url, namespace=NAMESPACE) as state:
        for number in range(keys):
            await state.set(f"key {number}", number, ttl=0.001)
    with plain(url) as connection:
        return connection.execute("SELECT count(*) FROM rxlanggraph_entries").fetchone()[0]
