"""A value that a server will never take: its database forbids it, or something is in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import redis

from rxlanggraph.state import open_state
from support.concurrency.raising import raised
from support.state.sql_ways import NAMESPACE, plain

__all__ = ["FORBID", "FORBIDDEN", "set_forbidden"]

FORBIDDEN: Final = "forbidden"


def _in_sqlite(url: str) -> None:
    with plain(url) as connection:
        connection.execute(
            "CREATE TRIGGER forbid BEFORE INSERT ON rxlanggraph_entries"
            f" WHEN NEW.key = '{FORBIDDEN}' BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )


def _in_postgresql(url: str) -> None:
    with plain(url) as connection:
        connection.execute(f"ALTER TABLE rxlanggraph_entries ADD CHECK (key <> '{FORBIDDEN}')")


def _in_valkey(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.set(f"{{{NAMESPACE}}}:value:{FORBIDDEN}", "of another client")


FORBID: Final[dict[str, Callable[[str], None]]] = {
    "SQLite": _in_sqlite,
    "PostgreSQL": _in_postgresql,
    "Valkey": _in_valkey,
}


async def set_forbidden(url: str, others: int) -> tuple[Exception | None, int]:
    """What setting it ends with, and how many of the others are there afterwards."""
    async with open_state(url, namespace=NAMESPACE) as state:
        (ended, *_) = await asyncio.gather(
            raised(state.set(FORBIDDEN, 1)),
            *[state.set(f"allowed {number}", 1) for number in range(others)],
        )
        there = [await state.get(f"allowed {number}") for number in range(others)]
        return ended, sum(value == 1 for value, _ in there)
