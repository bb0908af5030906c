"""PostgreSQL through psycopg: the statements and procedures there, and what its errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import cache, partial
from importlib import resources
from typing import Any, Final
from weakref import WeakValueDictionary

import psycopg
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.sql.backend import Row
from rxlanggraph.state.sql.batches import Batches
from rxlanggraph.state.sql.postgresql_pool import Connection, Pool
from rxlanggraph.state.sql.postgresql_shortcuts import IN_QUEUES, Queue, shortcut, shortcut_in
from rxlanggraph.state.sql.repeating import Refused, repeated
from rxlanggraph.state.sql.statements import Statement, compiled
from rxlanggraph.state.sql.tables import VERSION, check_version, definitions

__all__ = ["PostgresDatabase", "is_prepared_postgresql", "open_postgresql"]

_DIALECT: Final = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
# Any number that nobody else locks.
_PREPARING: Final = 1920494180
# Not by to_regclass(), which may answer from a cache that is older than the advisory lock.
_HAS_TABLES: Final = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE tablename = 'rxlanggraph_schema'"
    " AND schemaname = ANY (current_schemas(false)))"
)
_QUEUE: Final = "SELECT id FROM rxlanggraph_queues WHERE namespace = $1 AND name = $2"
_MOST_QUEUES: Final = 1_000
# SQLSTATEs, by their class of two characters.
_ROLLED_BACK: Final = "40"  # deadlock, serialization failure
_NOT_ALLOWED: Final = ("25", "42")  # read only; no privilege


async def open_postgresql(url: str) -> PostgresDatabase:
    """Open the database at ``url``.

    Raises:
        InvalidArgumentError: The URL cannot be used.
        StateUnavailableError: There is no server that answers.
    """
    database = PostgresDatabase(_dsn_of(url))
    try:
        await database.open()
    except BaseException:
        await database.close()
        raise
    return database


async def is_prepared_postgresql(url: str) -> bool:
    """Whether the database at ``url`` has the tables; makes nothing.

    Raises:
        InvalidArgumentError: The URL cannot be used, or the server refuses us.
        StateUnavailableError: There is no server that answers.
    """
    database = PostgresDatabase(_dsn_of(url))
    try:
        return await database.has_tables()
    finally:
        await database.close()


def _dsn_of(url: str) -> str:
    # As it is, but for SQLAlchemy's name of the driver: those two do not quote in the same way.
    return f"postgresql:{url.partition(':')[2]}"


class PostgresDatabase:
    """A `Database` in PostgreSQL. Confined to the loop that makes it.

    Args:
        dsn: As libpq knows it; begins with ``postgresql://``.

    Raises:
        InvalidArgumentError: It cannot be read.
    """

    def __init__(self, dsn: str) -> None:
        self._pool = Pool(dsn)
        # By namespace and name.
        self._queues: dict[tuple[Any, ...], Queue] = {}
        # For each queue, while there are any, those who claim there.
        self._claims: WeakValueDictionary[
            tuple[str, str], Batches[tuple[str, float], Row | None]
        ] = WeakValueDictionary()

    async def open(self) -> None:
        """Connect, and make what the database does not have yet.

        Raises:
            InvalidArgumentError: The server refuses us, now and later, or we may not make the
                tables, or they are of another version.
            StateUnavailableError: There is no server that answers.
        """
        link = await self._pool.take()
        try:
            await _prepare(link.connection)
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] in _NOT_ALLOWED:
                raise InvalidArgumentError(
                    f"the tables rxlanggraph_* cannot be made in PostgreSQL: {error}"
                ) from error
            raise _unavailable(error, in_doubt=False) from error
        finally:
            self._pool.give_back(link)

    async def has_tables(self) -> bool:
        """Whether `open` would find its tables; makes nothing.

        Raises:
            InvalidArgumentError: The server refuses us, now and later.
            StateUnavailableError: There is no server that answers.
        """
        return await repeated(self._fetch, _HAS_TABLES, ()) == [(True,)]

    async def run(self, statement: Statement, **values: Any) -> Sequence[Row]:
        """Run one of the common statements; return its rows."""
        known = compiled(statement, _DIALECT)
        return await repeated(self._fetch, known.text, known.ordered(values))

    async def call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        """Call a procedure; return its rows."""
        if procedure == "task_claim":
            return await self._claim(*arguments)
        return await self._call(procedure, *arguments)

    async def _call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        short = shortcut(procedure, arguments)
        if procedure in IN_QUEUES:
            name = arguments[:2]
            queue = self._queues.get(name) or await self._look_up(name)
            if queue is not None:
                short = shortcut_in(queue, procedure, arguments)
        if short is not None:
            rows = await repeated(self._fetch, short.statement, short.arguments)
            if rows:
                return short.answer(rows)
        return await repeated(self._fetch, _call(procedure, len(arguments)), arguments)

    async def _look_up(self, name: tuple[Any, ...]) -> Queue | None:
        try:
            rows = await repeated(self._fetch, _QUEUE, name)
        except StateUnavailableError as error:
            error.in_doubt = False  # of what it was asked for
            raise
        if not rows:
            return None
        if len(self._queues) >= _MOST_QUEUES:
            self._queues.clear()
        queue = self._queues[name] = Queue(rows[0][0], asyncio.get_running_loop().time)
        return queue

    def names(self, names: Collection[str]) -> list[str]:
        """Return names as an array."""
        return list(names)

    async def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._pool.close()

    async def _claim(self, space: str, queue: str, worker: str, lease: float) -> Sequence[Row]:
        """Claim a task; with others who do so, in one statement for all of them."""
        batches = self._claims.get((space, queue))
        if batches is None:
            batches = self._claims[space, queue] = Batches(partial(self._claim_each, space, queue))
        try:
            row = await batches.call((worker, lease))
        except StateUnavailableError as error:
            # Each has an error of its own, and may note on it what became of its attempts.
            raise StateUnavailableError(str(error), in_doubt=error.in_doubt) from error
        return [] if row is None else [row]

    async def _claim_each(
        self, space: str, queue: str, claims: Sequence[tuple[str, float]]
    ) -> Sequence[Row | None]:
        if len(claims) == 1:
            return [*await self._call("task_claim", space, queue, *claims[0])] or [None]
        workers, leases = map(list, zip(*claims, strict=True))
        rows = await self._call("tasks_claim", space, queue, workers, leases)
        claimed = {place: row for place, *row in rows}
        return [claimed.get(place) for place in range(1, len(claims) + 1)]

    async def _fetch(self, sql: str, arguments: Sequence[Any]) -> Sequence[Row]:
        link = await self._pool.take()
        try:
            await link.cursor.execute(sql, arguments)
            return await link.cursor.fetchall()
        except psycopg.Error as error:
            # Whatever is done to a database under us, some call fails by it.
            self._queues.clear()
            if (error.sqlstate or "").startswith(_ROLLED_BACK):
                raise Refused from error
            # What the server gives as a reason, also while it shuts down, it gives instead of the
            # effect. Without a reason it is libpq that speaks: the connection was lost.
            in_doubt = error.sqlstate is None and not link.has_parted
            raise _unavailable(error, in_doubt=in_doubt) from error
        finally:
            self._pool.give_back(link)


@cache
def _call(procedure: str, count: int) -> str:
    places = ", ".join(f"${place}" for place in range(1, count + 1))
    return f"SELECT * FROM rxlanggraph_{procedure}({places})"  # noqa: S608 - no input of anybody


def _unavailable(error: psycopg.Error, *, in_doubt: bool) -> StateUnavailableError:
    return StateUnavailableError(f"PostgreSQL gives no answer: {error}", in_doubt=in_doubt)


async def _prepare(connection: Connection) -> None:
    if not await _has_tables(connection):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", [_PREPARING])
            if not await _has_tables(connection):  # by another process, before the lock was ours
                await _make_tables(connection)
    cursor = await connection.execute("SELECT version FROM rxlanggraph_schema")
    row = await cursor.fetchone()
    check_version(row[0] if row else 0)


async def _has_tables(connection: Connection) -> bool:
    cursor = await connection.execute(_HAS_TABLES)
    return await cursor.fetchone() == (True,)


async def _make_tables(connection: Connection) -> None:
    procedures = resources.files(__package__).joinpath("postgresql.sql").read_text("utf-8")
    script = ";\n".join([*definitions(_DIALECT), procedures])
    # Not prepared: so they may be many, in one message.
    await connection.execute(script.encode(), prepare=False)
    await connection.execute("INSERT INTO rxlanggraph_schema VALUES ($1)", [VERSION])
