"""PostgreSQL through psycopg: the statements and procedures there, and what its errors mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from importlib import resources
from typing import Any, Final

import psycopg
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.state.backend import FENCE_KEPT, MOST_AT_ONCE
from rxlanggraph.state.backends.sql.backend import Row
from rxlanggraph.state.backends.sql.postgresql.fast_path import Queue
from rxlanggraph.state.backends.sql.postgresql.pool import CONNECTION_FAILED, Connection, Pool
from rxlanggraph.state.backends.sql.postgresql.shortcuts import call_of, shortcut
from rxlanggraph.state.backends.sql.schema import VERSION, check_version, definitions
from rxlanggraph.state.backends.sql.statements import Statement, compiled
from rxlanggraph.state.retry import TransientError, retry_transient, run_shielded

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
_IN_QUEUES: Final[Mapping[str, Callable[..., Coroutine[Any, Any, Sequence[Row]]]]] = {
    "task_claim": Queue.task_claim,
    "task_complete": Queue.task_complete,
}
# SQLSTATEs, by their class of two characters.
_ROLLED_BACK: Final = "40"  # deadlock, serialization failure
# PgBouncer's words, in its pool_mode "statement".
_STATEMENTS: Final = "transaction blocks not allowed"
_NOT_ALLOWED: Final = ("25", "3F", "42")  # read only; no such schema; no privilege
# Of values: out of range, against a constraint of the database, larger than any limit. Of users: no
# privilege.
_NEVER: Final = ("22", "23", "54", "42501")


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
        return await self._fetch(_HAS_TABLES, ()) == [(True,)]

    async def run(self, statement: Statement, **values: Any) -> Sequence[Row]:
        """Run one of the common statements; return its rows."""
        known = compiled(statement, _DIALECT)
        return await self._fetch(known.text, known.ordered(values))

    def call(self, procedure: str, *arguments: Any) -> Coroutine[Any, Any, Sequence[Row]]:
        """Call a procedure; return its rows."""
        if procedure not in _IN_QUEUES:
            return self._call(procedure, *arguments)
        queue = self._queues.get(arguments[:2])
        if queue is None:
            return self._call_in(procedure, *arguments)
        return _IN_QUEUES[procedure](queue, *arguments[2:])

    def call_with_compensation(
        self, undo: Callable[[Sequence[Row]], Awaitable[object]], procedure: str, *arguments: Any
    ) -> Coroutine[Any, Any, Sequence[Row]]:
        """Call a procedure; cancelled, it has ``undo`` take back what it did, and then raises."""
        return run_shielded(self.call(procedure, *arguments), undo)

    async def _call(self, procedure: str, *arguments: Any) -> Sequence[Row]:
        short = shortcut(procedure, arguments)
        if short is not None:
            rows = await self._fetch(short.statement, short.arguments)
            if rows:
                return short.answer(rows)
        return await self._fetch(call_of(procedure, len(arguments)), arguments)

    async def _call_in(
        self, procedure: str, space: str, name: str, *arguments: Any
    ) -> Sequence[Row]:
        """Call a procedure for a queue, whose number is looked up first."""
        try:
            rows = await self._fetch(_QUEUE, (space, name))
        except StateUnavailableError as error:
            error.in_doubt = False  # of what it was asked for
            raise
        if not rows:
            return await self._call(procedure, space, name, *arguments)
        if len(self._queues) >= _MOST_QUEUES:
            self._queues.clear()
        # Others may have looked it up meanwhile, and wait for each other in theirs.
        queue = self._queues.get((space, name))
        if queue is None:
            queue = Queue(rows[0][0], (space, name), self._fetch, self._queues)
        return await _IN_QUEUES[procedure](queue, *arguments)

    def names(self, names: Collection[str]) -> list[str]:
        """Return names as an array."""
        return list(names)

    async def close(self) -> None:
        """Let go of all connections. Idempotent."""
        self._pool.close()

    def _fetch(self, sql: str, arguments: Sequence[Any]) -> Coroutine[Any, Any, Sequence[Row]]:
        return retry_transient(self._try, sql, arguments)

    async def _try(self, sql: str, arguments: Sequence[Any]) -> Sequence[Row]:
        pooled = await self._pool.take()
        try:
            await pooled.cursor.execute(sql, arguments)
            return await pooled.cursor.fetchall()
        except psycopg.Error as error:
            code = error.sqlstate or CONNECTION_FAILED  # without one it is libpq that speaks
            if code.startswith(_ROLLED_BACK):
                raise TransientError from error
            if code.startswith(_NEVER):
                raise InvalidArgumentError(f"PostgreSQL refuses the call: {error}") from error
            # What the server gives as a reason, also while it shuts down, it gives instead of the
            # effect.
            in_doubt = code.startswith(CONNECTION_FAILED) and not pooled.server_closed
            raise pooled.unavailable(error, in_doubt=in_doubt) from error
        finally:
            self._pool.give_back(pooled)


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
