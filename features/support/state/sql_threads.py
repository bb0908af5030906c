"""The thread of an SQLite file, whose database is closed or left in the middle of its work."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from typing import Any

from rxlanggraph.state.backends.sql import open_backend
from support.concurrency.tasks import PATIENCE
from support.state.claims_cancelled import gate_after
from support.state.sql_ways import NAMESPACE, opened

__all__ = [
    "close_beside_calls",
    "close_loop_in_call",
    "close_while_held",
    "count_again",
    "drop",
    "join_threads",
]

_WRITE = "INSERT INTO rxlanggraph_entries"


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rxlanggraph-sqlite"]


def join_threads() -> None:
    """Wait until the threads of files have ended, which nothing else does."""
    for thread in threads():
        thread.join(PATIENCE)
    assert not threads(), threads()


async def count_again(url: str) -> int:
    async with opened(url) as backend:
        return await backend.increment("n", 1, None)


async def close_beside_calls(url: str, calls: int, how: str) -> list[int | BaseException]:
    """What becomes of increments that are on their way when the database is closed."""
    backend = await open_backend(url, NAMESPACE)
    made = [asyncio.ensure_future(backend.increment("n", 1, None)) for _ in range(calls)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(backend.close())
    await asyncio.sleep(0)
    if how != "at once":
        closing.cancel()
        made[0].cancel()
    await asyncio.wait([closing])
    assert closing.cancelled() is (how != "at once")
    assert not threads()
    return await asyncio.gather(*made, return_exceptions=True)


async def close_while_held(url: str) -> tuple[bool, int]:
    """Whether closing has waited for a write that the disk holds up; what that comes to."""
    backend = await open_backend(url, NAMESPACE)
    with gate_after(_WRITE) as gate:
        write = asyncio.ensure_future(backend.increment("n", 1, None))
        await gate.reached()
        await backend.close()
        has_waited = write.done()
        gate.open()
        return has_waited, await write


def close_loop_in_call(url: str) -> None:
    """Close a loop while the disk holds up a write on it."""

    async def write() -> None:
        backend = await open_backend(url, NAMESPACE)
        kept.append((backend, asyncio.ensure_future(backend.increment("n", 1, None))))
        await gate.reached()

    kept: list[Any] = []
    loop = asyncio.new_event_loop()
    with gate_after(_WRITE) as gate:
        loop.run_until_complete(write())
        loop.close()
    join_threads()
    with warnings.catch_warnings():  # of all that was left open
        warnings.simplefilter("ignore")
        kept[0][1]._log_destroy_pending = False
        kept.clear()
        gc.collect()


def drop(url: str) -> list[str]:
    """What warnings say of a database that is left open on a closed loop, and dropped."""

    async def count() -> None:
        kept.append(await open_backend(url, NAMESPACE))
        await kept[0].increment("n", 1, None)

    kept: list[Any] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(count())
    loop.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept.clear()
        gc.collect()
    join_threads()
    return [f"{each.category.__name__}: {each.message}" for each in caught]
