"""Stores as the first version of the tables, and of the layout in Redis, has left them.

The files in ``features/data/state`` were written by that version, with `fill`: an SQLite file, the
statements that make the same in PostgreSQL, and the commands that make it in Valkey.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
import redis

from rxlanggraph.errors import StaleTokenError
from rxlanggraph.state import QueuedTask, State, Task, open_state
from rxlanggraph.state.backend import SchemaVersion
from rxlanggraph.state.backends.sql import schema
from rxlanggraph.state.open import read_version
from support.concurrency.raising import raised
from support.state.sql_ways import plain

__all__ = [
    "DATA",
    "FIRST",
    "check_all",
    "complaints_of",
    "complete_next",
    "continue_as_older_program",
    "fill",
    "load",
    "open_here",
    "tasks_of",
    "version_of",
]

DATA = Path(__file__).parents[2] / "data" / "state"
FIRST = {"SQLite": 7, "PostgreSQL": 7, "Valkey": 1}  # the first version
LONG = 1e9  # seconds: the lease of what is still claimed, and the delay of what still waits
SOON = 0.001


async def fill(state: State) -> None:
    """Leave something of everything that a store can hold."""
    await state.set("configuration", {"tracing": True})
    await state.increment_counter("counted", 41)
    async with state.lock("index") as lease:
        await state.set("index", ["first"], token=lease)
    assert await state.backend.lock_acquire("held", "owner", LONG)
    items: list[Any] = ["completed", "failed", "expired", "claimed"]
    items += [Task("first", thread_id="t"), Task("second", thread_id="t")]
    items += [Task("delayed", delay=LONG), Task("waiting", key="k", priority=-1)]
    await state.add_tasks("lines", items, max_attempts=1)
    completed = await state.claim_task("lines", worker="w")
    failed = await state.claim_task("lines", worker="w")
    assert completed and failed
    await completed.complete({"is": "done"})
    await failed.fail(ValueError("no"))
    await state.backend.task_claim("lines", "killed", SOON)
    await state.backend.task_claim("lines", "w", LONG)


def load(backend: str, url: str) -> None:
    """Make the store of the first version at ``url``, where there is none."""
    _LOADERS[backend](url)


def _load_sqlite(url: str) -> None:
    shutil.copyfile(DATA / "sqlite-7.db", url.removeprefix("sqlite:///"))


def _load_postgresql(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute((DATA / "postgresql-7.sql").read_bytes())


def _load_valkey(url: str) -> None:
    lines = (DATA / "valkey-1.jsonl").read_text("ascii").splitlines()
    with redis.Redis.from_url(url) as client:
        for line in lines:
            client.execute_command(*(part.encode("latin-1") for part in json.loads(line)))


_LOADERS = {
    "SQLite": _load_sqlite,
    "PostgreSQL": _load_postgresql,
    "Valkey": _load_valkey,
}


# -- after the upgrade -----------------------------------------------------------------------------


async def open_here(url: str) -> None:
    """Open it, and close it."""
    async with open_state(url):
        pass


async def version_of(url: str) -> SchemaVersion:
    """Its version; it is not opened."""
    version = await read_version(url, "rxlanggraph")
    assert version is not None
    return version


async def check_all(url: str) -> None:
    """What `fill` has left is there, and goes on."""
    async with open_state(url) as state:
        assert (await state.get("configuration")).value == {"tracing": True}
        assert await state.increment_counter("counted") == 42
        assert isinstance(await raised(state.set("index", [], token=1)), StaleTokenError)
        assert (await state.get("index")).value == ["first"]
        assert await state.backend.lock_acquire("held", "another", 1.0) is None
        stats = await state.stats("lines")
        counts = (stats.waiting, stats.delayed, stats.claimed, stats.completed, stats.dead)
        assert counts == (3, 1, 1, 1, 2), stats
        assert list((await state.results("lines")).values()) == [{"is": "done"}]
        letters = await state.dead_letters("lines")
        assert [letter.item for letter in letters] == ["failed", "expired"], letters
        assert letters[0].error == {"type": "ValueError", "message": "no"}, letters
        for item in ("first", "second", "waiting"):
            claim = await state.claim_task("lines")
            assert claim is not None and claim.item == item, claim
            await claim.complete()


async def tasks_of(url: str) -> list[QueuedTask]:
    async with open_state(url) as state:
        return [task async for task in state.iter_tasks("lines")]


async def continue_as_older_program(url: str) -> None:
    """Add a task, and let its claim expire, with the statements of the first version."""
    sqlite = url.startswith("sqlite")
    number = (
        "(SELECT value + 1 FROM rxlanggraph_counter)"
        if sqlite
        else "nextval('rxlanggraph_counter')"
    )
    with plain(url) as connection:
        connection.execute(
            "INSERT INTO rxlanggraph_tasks"
            " (queue, id, key, thread, priority, state, due, attempts, max_attempts, item)"
            " SELECT id, 'old', NULL, NULL, 9, 'ready', 0, 0, 5, '\"old\"'"
            " FROM rxlanggraph_queues WHERE name = 'lines'"
        )
        connection.execute(
            "UPDATE rxlanggraph_tasks SET state = 'claimed', attempts = attempts + 1,"
            f" worker = 'old', token = {number}, due = 0 WHERE id = 'old'"
        )


async def complete_next(url: str) -> QueuedTask:
    """The next task, once it is completed."""
    async with open_state(url) as state:
        claim = await state.claim_task("lines")
        assert claim is not None
        await claim.complete()
        task = await state.task("lines", claim.id)
        assert task is not None
        return task


async def _by_states(urls: list[str]) -> None:
    await asyncio.gather(*map(open_here, urls))


async def _by_script(urls: list[str]) -> None:
    due = [schema.migrations_from((await version_of(url)).stored or 0) for url in urls]
    for url, migrations in zip(urls, due, strict=True):
        with plain(url) as connection:
            connection.create_function("rxlanggraph_now", 0, lambda: 0.0)
            for migration in migrations:
                for statement in migration.statements:
                    connection.execute(statement)


MIGRATORS: dict[str, Callable[[list[str]], Awaitable[None]]] = {
    "a state": _by_states,
    "a script that has looked before": _by_script,
}


async def complaints_of(who: str, url: str) -> list[object]:
    """What two programs complain about that both find a migration due."""
    try:
        await MIGRATORS[who]([url, url])
    except sqlite3.OperationalError as error:
        return [error]
    return []
