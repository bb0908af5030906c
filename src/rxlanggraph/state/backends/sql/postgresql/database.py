"""PostgreSQL through psycopg: the statements and procedures there, and what its errors mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from importlib import resources
from typing import Any, Final

import psycopg
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.backend import FENCE_KEPT, MOST_AT_ONCE
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.backends.sql.postgresql.fast_path import FastPath
from rxlanggraph.state.backends.sql.postgresql.pool import Connection, Pool
from rxlanggraph.state.backends.sql.schema import VERSION, check_version, definitions
from rxlanggraph.state.backends.sql.statements import Statement, compiled
from rxlanggraph.state.retry import run_shielded

__all__ = ["PostgresDatabase", "is_prepared_postgresql", "open_postgresql"]

_DIALECT: Final = PGDialect_psycopg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
# Any number that is locked by nothing else.
_PREPARING: Final = 1920494180
# Not by to_regclass(), which may answer from a cache that is older than the advisory lock.
_HAS_TABLES: Final = (
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE tablename = 'rxlanggraph_schema'"
    " AND schemaname = ANY (current_schemas(false)))"
)
# PgBouncer's words, in its pool_mode "statement".
_STATEMENTS: Final = "transaction blocks not allowed"
_NOT_ALLOWED: Final = ("25", "3F", "42")  # read only; no such schema; no privilege


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
        self._fast_path = FastPath(self._pool)

    async def open(self) -> None:
        """Connect, and make what the database does not have yet.

        Raises:
            InvalidArgumentError: The server refuses us, now and later, or we may not make the
                tables, or they are of another version.
            StateUnavailableError: There is no server that answers.
        """
        pooled = await self._pool.take()
        try:
            await _prepare(pooled.connection)
        except psycopg.Error as error:
            if (error.sqlstate or "")[:2] in _NOT_ALLOWED:
                raise InvalidArgumentError(
                    f"the tables rxlanggraph_* cannot be made in PostgreSQL: {error}"
                ) from error
            if _STATEMENTS in str(error):
                raise InvalidArgumentError(
                    "the tables rxlanggraph_* cannot be made over a pooler that gives each "
                    "statement another session: set its pool_mode to transaction or session, or "
                    "open the state once without it"
                ) from error
            raise pooled.unavailable(error, in_doubt=False) from error
        finally:
            self._pool.give_back(pooled)

    async def has_tables(self) -> bool:
        """Whether `open` would find its tables; makes nothing.

        Raises:
            InvalidArgumentError: The server refuses us, now and later.
            StateUnavailableError: There is no server that answers.
        """
        return await self._pool.fetch(_HAS_TABLES, ()) == [(True,)]

    async def run(self, statement: Statement, **values: Any) -> Sequence[Row]:
        """Run one of the common statements; return its rows."""
        known = compiled(statement, _DIALECT)
        return await self._pool.fetch(known.text, known.ordered(values))

    def call(self, procedure: str, *arguments: Any) -> Coroutine[Any, Any, Sequence[Row]]:
        """Call a procedure; return its rows."""
        return self._fast_path.call(procedure, *arguments)

    def call_with_compensation(
        self, undo: Callable[[Sequence[Row]], Awaitable[object]], procedure: str, *arguments: Any
    ) -> Coroutine[Any, Any, Sequence[Row]]:
        """Call a procedure; cancelled, it has ``undo`` take back what it did, and then raises."""
        return run_shielded(self.call(procedure, *arguments), undo)

    def names(self, names: Collection[str]) -> list[str]:
        """Return names as an array."""
        return list(names)

    async def close(self) -> None:
        """Release all connections. Idempotent."""
        self._pool.close()


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
    template = resources.files(__package__).joinpath("procedures.sql").read_text("utf-8")
    procedures = template.replace("{at_once}", str(MOST_AT_ONCE)).replace(
        "{fence_kept}", str(FENCE_KEPT)
    )
    script = ";\n".join([*definitions(_DIALECT), procedures])
    # Not prepared: so they may be many, in one message.
    await connection.execute(script.encode(), prepare=False)
    await connection.execute("INSERT INTO rxlanggraph_schema VALUES ($1)", [VERSION])
