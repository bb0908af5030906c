"""Rollback: a thread as it was before a run, in its checkpoint saver. On the loop.

What breaks without it: a message that replaces another one is answered with the first one's half
turn in the thread. LangGraph's savers can delete a thread, but not what one run added to it, so
this module knows how they store threads.

A run adds checkpoints, whose ids grow with time; and writes, to its own checkpoints and to the one
that it continues from: an answer to a question, and what the step did that had asked. What was
added is deleted; the writes of the checkpoints to which a run adds are remembered before, and put
back. Both happen under the saver's lock, in one transaction.
"""

# ruff: noqa: S608 - no statement contains user input
from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NamedTuple

from rxlanggraph.bridge.graphs.savers import (
    IN_MEMORY,
    POSTGRES,
    SQLITE,
    for_saver,
    postgres_transaction,
    sqlite_transaction,
    values_of,
)
from rxlanggraph.errors import InvalidArgumentError

__all__ = ["Undo", "check_rollback", "remember_thread"]

Undo = Callable[[], Awaitable[None]]
"""Makes a thread again what it was."""


def check_rollback(saver: Any) -> None:
    """Check that a run on a thread of ``saver`` can be rolled back. Any thread; never blocks.

    Raises:
        InvalidArgumentError: It cannot.
    """
    if _remember_of(saver) is None:
        raise InvalidArgumentError(
            f"multitask_strategy='rollback' is for threads in an InMemorySaver, AsyncSqliteSaver "
            f"or AsyncPostgresSaver, not in {saver!r}; use 'interrupt'"
        )


async def remember_thread(saver: Any, thread_id: str, checkpoint_id: str | None) -> Undo:
    """Remember what a thread is now.

    Args:
        saver: One that `check_rollback` accepts.
        thread_id: The thread.
        checkpoint_id: The checkpoint that the run continues from, if not from the latest one.
    """
    remember = _remember_of(saver)
    assert remember is not None
    return await remember(saver, thread_id, checkpoint_id)


def _remember_of(saver: Any) -> Callable[[Any, str, str | None], Awaitable[Undo]] | None:
    return for_saver(saver, _SAVERS)


# -- InMemorySaver -----------------------------------------------------------------------------


async def _remember_in_memory(saver: Any, thread_id: str, checkpoint_id: str | None) -> Undo:
    before = {ns: set(ids) for ns, ids in saver.storage.get(thread_id, {}).items() if ids}
    continued = [
        (thread_id, ns, each)
        for ns, ids in before.items()
        for each in {max(ids), checkpoint_id}
        if each in ids
    ]
    writes = {key: dict(saver.writes[key]) for key in continued if key in saver.writes}

    async def undo() -> None:
        namespaces = saver.storage.get(thread_id, {})
        for ns, checkpoints in list(namespaces.items()):
            kept = [checkpoints[each] for _, of, each in continued if of == ns]
            added = [each for each in checkpoints if each not in before.get(ns, ())]
            for channel in {*_versions(saver, [checkpoints[each] for each in added])}.difference(
                _versions(saver, kept)
            ):
                saver.blobs.pop((thread_id, ns, *channel), None)
            for each in added:
                del checkpoints[each]
                saver.writes.pop((thread_id, ns, each), None)
            if not checkpoints:
                del namespaces[ns]
        if not namespaces:
            saver.storage.pop(thread_id, None)
        for key in continued:
            saver.writes.pop(key, None)
        saver.writes.update(writes)

    return undo


def _versions(saver: Any, stored: Iterable[tuple[Any, ...]]) -> Iterator[tuple[str, Any]]:
    for checkpoint, *_ in stored:
        yield from saver.serde.loads_typed(checkpoint)["channel_versions"].items()


# -- AsyncSqliteSaver and AsyncPostgresSaver ---------------------------------------------------


class _Database(NamedTuple):
    mark: str
    """What stands for a parameter."""
    writes: str
    """The table of writes."""
    columns: tuple[str, ...]
    """All columns of that table."""
    cleanup: str | None
    """Deletes what belongs to the added checkpoints alone, in further tables."""
    transaction: Callable[[Any], AbstractAsyncContextManager[Any]]


_COLUMNS = ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel")
_SQLITE = _Database("?", "writes", (*_COLUMNS, "type", "value"), None, sqlite_transaction)
_POSTGRES = _Database(
    "%s",
    "checkpoint_writes",
    (*_COLUMNS, "type", "blob"),
    """
    DELETE FROM checkpoint_blobs AS blob
    USING checkpoints AS added, jsonb_each_text(added.checkpoint -> 'channel_versions') AS channel
    WHERE added.thread_id = %s AND added.checkpoint_id > %s
        AND blob.thread_id = added.thread_id AND blob.checkpoint_ns = added.checkpoint_ns
        AND blob.channel = channel.key AND blob.version = channel.value
        AND NOT EXISTS (
            SELECT FROM checkpoints AS kept
            WHERE kept.thread_id = %s AND kept.checkpoint_id <= %s
                AND kept.checkpoint_ns = blob.checkpoint_ns
                AND kept.checkpoint -> 'channel_versions' ->> blob.channel = blob.version
        )
    """,
    postgres_transaction,
)
# To which a run adds writes: the latest checkpoint of each namespace, and the one that is named.
_CONTINUED = """
    thread_id = {0} AND (
        checkpoint_id = {0} OR (checkpoint_ns, checkpoint_id) IN (
            SELECT checkpoint_ns, max(checkpoint_id) FROM checkpoints WHERE thread_id = {0}
            GROUP BY checkpoint_ns
        )
    )
"""


async def _remember_in_sql(
    database: _Database, saver: Any, thread_id: str, checkpoint_id: str | None
) -> Undo:
    mark, table, columns, cleanup, transaction = database
    continued = _CONTINUED.format(mark), (thread_id, checkpoint_id or "", thread_id)
    async with transaction(saver) as cursor:
        latest_id = f"SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = {mark}"
        await cursor.execute(latest_id, (thread_id,))
        latest = values_of(await cursor.fetchone())[0] or ""
        select = f"SELECT {', '.join(columns)} FROM {table} WHERE {continued[0]}"
        await cursor.execute(select, continued[1])
        writes = [values_of(row) for row in await cursor.fetchall()]

    async def undo() -> None:
        added = f"WHERE thread_id = {mark} AND checkpoint_id > {mark}"
        async with transaction(saver) as cursor:
            if cleanup is not None:
                await cursor.execute(cleanup, (thread_id, latest, thread_id, latest))
            for each in ("checkpoints", table):
                await cursor.execute(f"DELETE FROM {each} {added}", (thread_id, latest))
            await cursor.execute(f"DELETE FROM {table} WHERE {continued[0]}", continued[1])
            if writes:
                row = f"({', '.join(columns)}) VALUES ({', '.join(mark for _ in columns)})"
                await cursor.executemany(f"INSERT INTO {table} {row}", writes)

    return undo


_SAVERS: dict[str, Callable[[Any, str, str | None], Awaitable[Undo]]] = {
    IN_MEMORY: _remember_in_memory,
    SQLITE: partial(_remember_in_sql, _SQLITE),
    POSTGRES: partial(_remember_in_sql, _POSTGRES),
}
