"""Shared state in SQLite and PostgreSQL: counters and claims.

The floors are bare statements over aiosqlite and psycopg, prepared, each a transaction of its own:
an ``INSERT ... ON CONFLICT DO UPDATE`` that adds one; for a claim an ``UPDATE`` of the first row
that is ready (with ``FOR UPDATE SKIP LOCKED`` in PostgreSQL). What they know of leases is when one
ends. Claims are also compared with what people write, a transaction of a ``SELECT`` and an
``UPDATE``. Both databases are as durable as they come: what is acknowledged is on the disk. Ours is
the whole way through `open_state`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import aiosqlite
import psycopg

from rxlanggraph.state import State, open_state

from .harness import Ratio, paired, told
from .servers import SERVERS
from .state_work import Ours, Store, claims, increments

BURST = 1_000
DATABASES = ("sqlite", "postgresql")
PEERS = {"increments": ("statement",), "claims": ("statement", "transaction")}
# As many as the backend has at most.
CONNECTIONS = 8

_TABLES = (
    "CREATE TABLE counters (name text PRIMARY KEY, value bigint)",
    "CREATE TABLE tasks (id integer PRIMARY KEY, state text, worker text, due float, item text)",
    "CREATE INDEX ready ON tasks (id) WHERE state = 'ready'",
)
_COUNT = (
    "INSERT INTO counters VALUES ('counter', 1)"
    " ON CONFLICT (name) DO UPDATE SET value = counters.value + 1 RETURNING value"
)
_FILL = "INSERT INTO tasks VALUES ({}, 'ready', NULL, NULL, {})"
_CLAIM = (
    "UPDATE tasks SET state = 'claimed', worker = 'worker', due = {now} + 30"
    " WHERE id = (SELECT id FROM tasks WHERE state = 'ready' ORDER BY id LIMIT 1 {skip})"
    " RETURNING id, item"
)
_LOOK = "SELECT id, item FROM tasks WHERE state = 'ready' ORDER BY id LIMIT 1 {skip}"
_TAKE = "UPDATE tasks SET state = 'claimed', worker = 'worker', due = {now} + 30 WHERE id = {id}"


class BareSqlite:
    """Statements over aiosqlite."""

    NOW = "(julianday('now') - 2440587.5) * 86400"

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._claim = _CLAIM.format(now=self.NOW, skip="")
        self._turn = asyncio.Lock()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[BareSqlite]:
        async with aiosqlite.connect(url, isolation_level=None, timeout=60) as connection:
            for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", *_TABLES):
                await connection.execute(statement)
            yield cls(connection)

    async def increment(self) -> None:
        await self._connection.execute_fetchall(_COUNT)

    async def fill(self, count: int) -> None:
        rows = [(number, "item") for number in range(count)]
        await self._connection.execute("BEGIN")
        await self._connection.executemany(_FILL.format("?", "?"), rows)
        await self._connection.execute("COMMIT")

    async def claim(self) -> Any:
        ((number, _),) = await self._connection.execute_fetchall(self._claim)
        return number

    async def claim_in_transaction(self) -> Any:
        run = self._connection.execute_fetchall
        async with self._turn:
            await run("BEGIN IMMEDIATE")
            ((number, _),) = await run(_LOOK.format(skip=""))
            await run(_TAKE.format(now=self.NOW, id="?"), (number,))
            await run("COMMIT")
        return number

    async def finish(self, claimed: list[Any]) -> int:
        await self._connection.execute("DELETE FROM tasks")
        return len(set(claimed))


class BarePostgres:
    """Statements over psycopg."""

    NOW = "extract(epoch FROM clock_timestamp())"

    def __init__(self, connections: list[psycopg.AsyncConnection[Any]]) -> None:
        self._free: asyncio.LifoQueue[psycopg.AsyncConnection[Any]] = asyncio.LifoQueue()
        for connection in connections:
            self._free.put_nowait(connection)
        self._claim = _CLAIM.format(now=self.NOW, skip="FOR UPDATE SKIP LOCKED")

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[BarePostgres]:
        async with contextlib.AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(
                    await psycopg.AsyncConnection.connect(
                        url, autocommit=True, prepare_threshold=0, options="-c enable_seqscan=off"
                    )
                )
                for _ in range(CONNECTIONS)
            ]
            for statement in _TABLES:
                await connections[0].execute(statement)
            yield cls(connections)

    async def _run(self, statement: str) -> list[Any]:
        connection = await self._free.get()
        try:
            cursor = await connection.execute(statement)
            return await cursor.fetchall()
        finally:
            self._free.put_nowait(connection)

    async def increment(self) -> None:
        await self._run(_COUNT)

    async def fill(self, count: int) -> None:
        connection = await self._free.get()
        async with connection.transaction(), connection.cursor() as cursor:
            rows = [(number, "item") for number in range(count)]
            await cursor.executemany(_FILL.format("%s", "%s"), rows)
        self._free.put_nowait(connection)

    async def claim(self) -> Any:
        ((number, _),) = await self._run(self._claim)
        return number

    async def claim_in_transaction(self) -> Any:
        connection = await self._free.get()
        try:
            async with connection.transaction():
                cursor = await connection.execute(_LOOK.format(skip="FOR UPDATE SKIP LOCKED"))
                ((number, _),) = await cursor.fetchall()
                await connection.execute(_TAKE.format(now=self.NOW, id="%s"), (number,))
        finally:
            self._free.put_nowait(connection)
        return number

    async def finish(self, claimed: list[Any]) -> int:
        await self._run("WITH gone AS (DELETE FROM tasks) SELECT 1")
        return len(set(claimed))


class InTransactions:
    """The same store, but for claims as people write them: one at a time for each connection."""

    def __init__(self, bare: BareSqlite | BarePostgres) -> None:
        self.increment = bare.increment
        self.fill = bare.fill
        self.claim = bare.claim_in_transaction
        self.finish = bare.finish


class Bench(ExitStack):
    """A database, a loop, and all ways on it."""

    def __init__(self, database: str) -> None:
        super().__init__()
        url = self.enter_context(SERVERS[database]())
        self._runner = self.enter_context(asyncio.Runner())
        self._opened = contextlib.AsyncExitStack()
        self.callback(lambda: self._runner.run(self._opened.aclose()))
        self._runner.run(self._open(database, url))

    async def _open(self, database: str, url: str) -> None:
        enter = self._opened.enter_async_context
        self.state: State = await enter(open_state(url))
        bare = BareSqlite if database == "sqlite" else BarePostgres
        floor = await enter(
            bare.open(f"{url.removeprefix('sqlite:///')}.floor" if bare is BareSqlite else url)
        )
        self.stores: dict[str, Store] = {
            "ours": Ours(self.state),
            "statement": floor,
            "transaction": InTransactions(floor),
        }

    def measure(self, part: str, store: str, at_once: int, count: int = BURST) -> float:
        """The seconds of that many "increments" or "claims" from so many tasks."""
        return self._runner.run(_PARTS[part](self.stores[store], at_once, count))


_PARTS = {"increments": increments, "claims": claims}


def ratio(
    database: str,
    part: str,
    at_once: int,
    *,
    peer: str = "statement",
    pairs: int = 11,
    count: int = BURST,
) -> Ratio:
    """The state's ``part``, "increments" or "claims", over that of its ``peer``."""
    with Bench(database) as bench:
        return paired(
            lambda: bench.measure(part, "ours", at_once, count),
            lambda: bench.measure(part, peer, at_once, count),
            pairs=pairs,
            items=count,
            clock=told,
        )


class _SqlState:
    timeout = 300
    unit = "s"

    def setup(self, database: str, *_: object) -> None:
        self.bench = Bench(database)

    def teardown(self, *_: object) -> None:
        self.bench.close()


class SqlIncrements(_SqlState):
    """Seconds for an increment of one counter, by way and by how many are under way at once."""

    params = (list(DATABASES), ["ours", "statement"], [1, 16])
    param_names = ("database", "store", "at once")

    def track_time(self, _: str, store: str, at_once: int) -> float:
        return self.bench.measure("increments", store, at_once) / BURST


class SqlClaims(_SqlState):
    """Seconds for a claim, by way and by how many are under way at once."""

    params = (list(DATABASES), ["ours", *PEERS["claims"]], [1, 16])
    param_names = ("database", "store", "at once")

    def track_time(self, _: str, store: str, at_once: int) -> float:
        return self.bench.measure("claims", store, at_once) / BURST


class SqlStateRatio:
    """The state over its peers, in pairs."""

    params = (
        list(DATABASES),
        [f"{part}/{peer}" for part in PEERS for peer in PEERS[part]],
        [1, 16],
    )
    param_names = ("database", "part/peer", "at once")
    timeout = 300
    unit = "ratio"

    def track_part(self, database: str, row: str, at_once: int) -> float:
        part, _, peer = row.partition("/")
        return ratio(database, part, at_once, peer=peer).value
