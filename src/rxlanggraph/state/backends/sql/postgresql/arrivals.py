"""LISTEN and NOTIFY: telling other processes of tasks that have become claimable.

Transactions with a NOTIFY commit one after another, those of all databases of the server. So a call
notifies only if a process listens, as locks tell:

- A process that listens holds the lock `_LISTENING`, shared, for as long as its session lasts. A
  call that cannot take it exclusively notifies; one that can gives it back at once.
- A call takes the lock `_TELLING` before it looks, shared, until it has committed. A process that
  has begun to listen takes it once, exclusively, before it looks for tasks. So it sees the tasks of
  all calls that have not seen it.

Confined to the loop of the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import psycopg

from rxlanggraph.state.backends.sql.postgresql.pool import Pool, PooledConnection
from rxlanggraph.state.polling import wait_for_notification

__all__ = ["TELL", "TELLING", "watch_channel"]

# Procedures that may make a task claimable; their first two arguments are the namespace and the
# queue. Each returns one row.
TELLING: Final = frozenset(
    {
        "task_complete",
        "task_fail",
        "task_release",
        "tasks_add",
        "tasks_cancel",
        "tasks_complete",
        "tasks_delete",
        "tasks_purge_step",
        "tasks_requeue",
        "tasks_requeue_step",
    }
)
# Keys of advisory locks; arbitrary, but different from those in procedures.sql. The second key is
# the hash of a namespace: if two have the same, processes are woken in vain.
_LISTENING: Final = 1920494199
_TELLING: Final = 1920494203
# A column of the call of such a procedure. The branches are evaluated in order.
TELL: Final = f"""CASE
    WHEN pg_advisory_xact_lock_shared({_TELLING}, hashtext($1)) IS NULL THEN NULL
    WHEN pg_try_advisory_lock({_LISTENING}, hashtext($1))
    THEN pg_advisory_unlock({_LISTENING}, hashtext($1))::text
    ELSE pg_notify('rxlanggraph_' || hashtext($1), $2)::text
END"""
# Seconds of silence after which the server is asked whether it is there, and seconds it has to
# answer. A network may forget an idle connection, and tell neither end.
_SILENCE: Final = 30.0
_TIMEOUT: Final = 10.0


async def watch_channel(pool: Pool, namespace: str, arrived: Callable[[str | None], None]) -> None:
    """Listen for tasks of ``namespace``; see `NotifyingBackend.watch_arrivals`.

    Returns at once if there is a pooler. If cancelled, it releases the connection.

    Args:
        pool: Makes the connection.
        namespace: The namespace.
        arrived: Called with the name of each queue, and with None once it listens.

    Raises:
        InvalidArgumentError: The server refuses the connection permanently.
        StateUnavailableError: The connection is lost, or there is none.
    """
    pooled = await pool.connect_apart()
    try:
        if pooled.has_pooler:
            return
        await _begin(pooled, namespace)
        while True:
            arrived(None)
            await _receive(pooled, arrived)
            await _run(pooled, "SELECT 1")  # it may receive notifications too, so `arrived(None)`
    except psycopg.Error as error:
        raise pooled.unavailable(error, in_doubt=False) from error
    finally:
        pooled.discard()


async def _begin(pooled: PooledConnection, namespace: str) -> None:
    number = await _run(pooled, "SELECT hashtext($1)", namespace)
    await _run(pooled, f'LISTEN "rxlanggraph_{number}"')
    await _run(pooled, f"SELECT pg_advisory_lock_shared({_LISTENING}, {number})")
    # Released with the statement: if the network loses this process, the server learns it late.
    await _run(pooled, f"SELECT pg_advisory_xact_lock({_TELLING}, {number})")


async def _receive(pooled: PooledConnection, arrived: Callable[[str | None], None]) -> None:
    """Pass on what is notified, until the server is silent for long."""
    # Not the generator of psycopg, which wakes the loop several times a second.
    pgconn = pooled.connection.pgconn
    with _readable(pgconn.socket) as readable:
        while True:
            await wait_for_notification(readable, _SILENCE)
            if not readable.is_set():
                return
            readable.clear()
            pgconn.consume_input()
            while notification := pgconn.notifies():
                arrived(notification.extra.decode())


@contextlib.contextmanager
def _readable(socket: int) -> Iterator[asyncio.Event]:
    """Yield an event that is set whenever ``socket`` can be read."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(socket, readable.set)
    try:
        yield readable
    finally:
        loop.remove_reader(socket)


async def _run(pooled: PooledConnection, statement: str, *arguments: Any) -> Any:
    """Run a statement; return the first value of its first row, if it has any."""
    # Not `asyncio.timeout`: if cancelled, psycopg waits for the server to confirm that.
    limit = asyncio.get_running_loop().call_later(
        _TIMEOUT, pooled.abort, f"it took longer than {_TIMEOUT:g} seconds"
    )
    try:
        cursor = await pooled.connection.execute(statement.encode(), arguments, prepare=False)
        row = await cursor.fetchone() if cursor.description else None
    finally:
        limit.cancel()
    return row and row[0]
