"""Opening a state where there is none, or not the packages for it."""

from __future__ import annotations

import subprocess
import sys

from rxlanggraph.state import open_state
from rxlanggraph.state.sql import tables
from support.sql_ways import NAMESPACE, plain
from support.tasks import PATIENCE

__all__ = ["abandon", "open_at", "open_without", "pile_up", "prepare_as_of_tomorrow"]


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
        connection.execute(f"UPDATE {tables.schema.name} SET version = {tables.VERSION + 1}")


async def pile_up(url: str, keys: int) -> int:
    """Set so many keys, each for a moment, one after the other; return how many rows are left."""
    async with open_state(url, namespace=NAMESPACE) as state:
        for number in range(keys):
            await state.set(f"key {number}", number, ttl=0.001)
    with plain(url) as connection:
        return connection.execute("SELECT count(*) FROM rxlanggraph_entries").fetchone()[0]
