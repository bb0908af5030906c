"""Shared state in a SQL database: SQLite through `sqlite3`, PostgreSQL through psycopg.

A map; each imports only from those above it.

    schema               the tables
    statements           the statements that both databases share
    backend              the contract of shared state, on top of a `Database`
    batcher              micro-batching: calls that are sent together
    sqlite, postgresql   the databases
"""

from __future__ import annotations

import asyncio
from typing import Final

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.backend import Backend
from rxlanggraph.state.backends.sql.backend import Database, SqlBackend

__all__ = ["is_prepared", "open_backend"]

_SCHEMES: Final = ("sqlite", "postgresql", "postgresql+psycopg")


async def open_backend(url: str, namespace: str) -> Backend:
    """Open the database at ``url``, and create the tables if there are none.

    On the loop that will use the backend. Cancelling it leaves no connection open.

    Raises:
        InvalidArgumentError: The URL or the database cannot be used.
        StateUnavailableError: The server does not answer.
    """
    return SqlBackend(await _open_database(url), namespace)


async def is_prepared(url: str) -> bool:
    """Whether the database at ``url`` has the tables; creates and changes nothing.

    Raises:
        InvalidArgumentError: The URL or the database cannot be used.
        StateUnavailableError: The server does not answer.
    """
    if _is_sqlite(url):
        from rxlanggraph.state.backends.sql.sqlite.file import has_tables  # noqa: PLC0415 - see `_open_database`

        return await asyncio.to_thread(has_tables, url)
    from rxlanggraph.state.backends.sql.postgresql.database import is_prepared_postgresql  # noqa: PLC0415 - see there

    return await is_prepared_postgresql(url)


async def _open_database(url: str) -> Database:
    # Imported here, as PostgreSQL needs a driver that comes with an extra.
    if _is_sqlite(url):
        from rxlanggraph.state.backends.sql.sqlite.database import open_sqlite  # noqa: PLC0415

        return await open_sqlite(url)
    from rxlanggraph.state.backends.sql.postgresql.database import open_postgresql  # noqa: PLC0415

    return await open_postgresql(url)


def _is_sqlite(url: str) -> bool:
    scheme = url.partition(":")[0]
    if scheme not in _SCHEMES:
        raise InvalidArgumentError(
            "the URL of a database must begin with sqlite:///, postgresql:// or "
            f"postgresql+psycopg://, not with {scheme!r}"
        )
    return scheme.startswith("sqlite")
