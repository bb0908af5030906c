"""Shared state in a SQL database: SQLite through `sqlite3`, PostgreSQL through psycopg.

A map; each imports only from those above it.

    schema               the tables
    statements           the statements that both databases share
    backend              the contract of shared state, on top of a `Database`
    sqlite, postgresql   the databases
"""

from __future__ import annotations

import asyncio
from typing import Final

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state.backend import Backend, SchemaVersion
from rxlanggraph.state.backends.sql.backend import SqlBackend
from rxlanggraph.state.backends.sql.schema import VERSION

__all__ = ["open_backend", "read_version"]

_SCHEMES: Final = ("sqlite", "postgresql", "postgresql+psycopg")


async def open_backend(url: str, namespace: str) -> Backend:
    """Open the database at ``url``; create the tables, or migrate those of an older release.

    On the loop that will use the backend. Cancelling it leaves no connection open.

    Raises:
        InvalidArgumentError: The URL or the database cannot be used.
        StateUnavailableError: The server does not answer.
    """
    # Imported here, as PostgreSQL needs a driver that comes with an extra.
    if _is_sqlite(url):
        from rxlanggraph.state.backends.sql.sqlite.database import open_sqlite  # noqa: PLC0415

        return SqlBackend(await open_sqlite(url), namespace)
    from rxlanggraph.state.backends.sql.postgresql import database  # noqa: PLC0415

    return database.PostgresBackend(await database.open_postgresql(url), namespace)


async def read_version(url: str, namespace: str) -> SchemaVersion:
    """Return the version of the tables at ``url``; creates and changes nothing.

    Args:
        url: As for `open_backend`.
        namespace: Any: all namespaces are in the same tables.

    Raises:
        InvalidArgumentError: The URL or the database cannot be used.
        StateUnavailableError: The server does not answer.
    """
    if _is_sqlite(url):
        from rxlanggraph.state.backends.sql.sqlite.file import read_version as read  # noqa: PLC0415 - see `open_backend`

        return SchemaVersion(await asyncio.to_thread(read, url), VERSION)
    from rxlanggraph.state.backends.sql.postgresql.database import read_postgresql_version  # noqa: PLC0415 - see there

    return SchemaVersion(await read_postgresql_version(url), VERSION)


def _is_sqlite(url: str) -> bool:
    scheme = url.partition(":")[0]
    if scheme not in _SCHEMES:
        raise InvalidArgumentError(
            "the URL of a database must begin with sqlite:///, postgresql:// or "
            f"postgresql+psycopg://, not with {scheme!r}"
        )
    return scheme.startswith("sqlite")
