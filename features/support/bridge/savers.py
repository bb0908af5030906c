"""Checkpointers that belong to the loop of a bridge."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from behave.runner import Context
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from support.concurrency.waiting import LIMIT

__all__ = ["open_sqlite"]


def open_sqlite(context: Context) -> Any:
    """Open one in a file, on the loop of the scenario's bridge, until the scenario ends."""
    bridge, stack = context.bridge, ExitStack()
    context.add_cleanup(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    opening = AsyncSqliteSaver.from_conn_string(str(folder / "threads.sqlite"))

    def on_loop(function: Callable[[], Any]) -> Any:
        async def call(_: object) -> Any:
            return await function()

        return bridge.create_future_task(call, None).result(LIMIT).content

    saver = on_loop(opening.__aenter__)
    stack.callback(on_loop, lambda: opening.__aexit__(None, None, None))
    return saver
