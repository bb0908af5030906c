"""Checkpointers that belong to the loop of a bridge."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from support.concurrency.waiting import LIMIT
from support.servers import postgres_server

__all__ = ["open_saver", "open_sqlite", "rows_of"]


def open_saver(context: Context, kind: str) -> Any:
    """Open one, on the loop of the scenario's bridge, until the scenario ends."""
    return _SAVERS[kind](context)


def open_sqlite(context: Context) -> Any:
    """Open one in a file, on the loop of the scenario's bridge, until the scenario ends."""
    stack = ExitStack()
    context.add_cleanup(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    opening = AsyncSqliteSaver.from_conn_string(str(folder / "threads.sqlite"))
    return _enter(context, stack, opening)


def _open_postgres(context: Context) -> Any:
    stack = ExitStack()
    context.add_cleanup(stack.close)
    opening = AsyncPostgresSaver.from_conn_string(postgres_server.fresh_url())
    saver = _enter(context, stack, opening)
    _on_loop(context.bridge, saver.setup)
    return saver


_SAVERS: dict[str, Callable[[Context], Any]] = {
    "InMemorySaver": lambda _: InMemorySaver(),
    "AsyncSqliteSaver": open_sqlite,
    "AsyncPostgresSaver": _open_postgres,
}


def _enter(context: Context, stack: ExitStack, opening: Any) -> Any:
    bridge = context.bridge
    saver = _on_loop(bridge, opening.__aenter__)
    stack.callback(_on_loop, bridge, lambda: opening.__aexit__(None, None, None))
    return saver


def _on_loop(bridge: Any, function: Callable[[], Any]) -> Any:
    async def call(_: object) -> Any:
        return await function()

    return bridge.create_future_task(call, None).result(LIMIT).content


async def rows_of(saver: Any, thread_id: str) -> list[Any]:
    """All that ``saver`` keeps of a thread, as it keeps it."""
    if isinstance(saver, InMemorySaver):
        threads = {ns: dict(each) for ns, each in saver.storage.get(thread_id, {}).items()}
        writes = {key: dict(each) for key, each in saver.writes.items() if key[0] == thread_id}
        return [threads, writes, {k: v for k, v in saver.blobs.items() if k[0] == thread_id}]
    if isinstance(saver, AsyncSqliteSaver):
        await saver.setup()
        return [
            sorted(map(repr, await saver.conn.execute_fetchall(f"SELECT * FROM {table}")))
            for table in ("checkpoints", "writes")
        ]
    rows = []
    for table in ("checkpoints", "checkpoint_writes", "checkpoint_blobs"):
        async with saver._cursor() as cursor:
            await cursor.execute(f"SELECT * FROM {table}")
            rows.append(sorted(map(repr, await cursor.fetchall())))
    return rows
