"""What is done to an SQLite file while the backend has it open."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import open_state
from rxlanggraph.state.backend import Backend, Write
from support.concurrency.raising import raised
from support.state.sql_ways import opened, plain, value_of

__all__ = [
    "cancel_while_locked",
    "count_beside_damage",
    "damage",
    "delete_beside",
    "read_while_locked",
    "replace",
    "write_read_only",
    "write_while_locked",
]

PAGE = 2048
LARGE = "large " * 200_000


async def read_while_locked(url: str, reads: int) -> tuple[list[str | None], bool, int]:
    """What was read while a write waited, whether it did wait, and what it came to."""
    async with opened(url) as backend:
        await backend.increment("n", 1, None)
        with plain(url) as other:
            other.execute("BEGIN IMMEDIATE")
            write = asyncio.ensure_future(backend.increment("n", 1, None))
            read = [await value_of(backend, "n") for _ in range(reads)]
            waited = not write.done()
            other.execute("ROLLBACK")
        return read, waited, await write


async def write_while_locked(url: str) -> tuple[BaseException | int, int]:
    """What a write ended with while the file was locked, and the next one."""
    async with opened(url) as backend:
        with plain(url) as other:
            other.execute("BEGIN EXCLUSIVE")
            (ended,) = await asyncio.gather(backend.increment("n", 1, None), return_exceptions=True)
        return ended, await backend.increment("n", 1, None)


async def write_read_only(url: str) -> Exception | None:
    """What a write ends with on a connection that may only read."""
    async with open_state(url) as state:
        await state.backend._database.call("read", "PRAGMA query_only = ON", {})
        return await raised(state.set("n", 1))


async def cancel_while_locked(url: str) -> tuple[bool, int]:
    """Whether a write that waited for the file could be cancelled, and what the next came to."""
    async with opened(url) as backend:
        with plain(url) as other:
            other.execute("BEGIN IMMEDIATE")
            write = asyncio.ensure_future(backend.increment("n", 1, None))
            await value_of(backend, "n")  # so the write has begun
            write.cancel()
            await asyncio.wait([write])
        return write.cancelled(), await backend.increment("n", 1, None)


CALLS: dict[str, Callable[[Backend], Awaitable[object]]] = {
    "a write": lambda backend: backend.increment("n", 1, None),
    "a read": lambda backend: backend.read(["n"]),
    "a claim": lambda backend: backend.task_claim("queue", "worker", 60.0),
    "a count of tasks": lambda backend: backend.tasks_stats("queue"),
}


async def replace(url: str, path: Path, call: str) -> tuple[object, int]:
    """What a call ended with after another file took the place, and what that one counts to."""
    async with opened(url) as backend:
        await backend.increment("n", 1, None)
        await asyncio.to_thread(path.rename, path.with_name("moved"))
        async with opened(url) as another:
            (ended,) = await asyncio.gather(CALLS[call](backend), return_exceptions=True)
            return ended, await another.increment("n", 1, None)


async def delete_beside(url: str, path: Path, ending: str, call: str) -> tuple[object, int]:
    """What a call ended with after a file beside it was gone; and what the next state counts to."""
    async with opened(url) as backend:
        await backend.increment("n", 1, None)
        await asyncio.to_thread(path.with_name(path.name + ending).unlink)
        (ended,) = await asyncio.gather(CALLS[call](backend), return_exceptions=True)
    async with opened(url) as backend:
        return ended, await backend.increment("n", 1, None)


async def damage(url: str, path: Path) -> BaseException | int:
    """What a write ends with when all of the file but its first page is rubbish."""
    async with opened(url) as backend:
        await backend.increment("n", 1, None)
    await asyncio.to_thread(_overwrite, path)
    try:
        async with opened(url) as backend:
            return await backend.increment("n", 1, None)
    except StateUnavailableError as error:
        return error


async def count_beside_damage(url: str, path: Path) -> tuple[int, list[int]]:
    """How many pages only a large value is on; what its neighbours count to when they are rubbish.

    Each of the neighbours is read, counted and written in a transaction.
    """
    neighbours = ("before", "value", "with")
    async with opened(url) as backend:
        for key in neighbours:
            await backend.increment(key, 1, None)
        await backend.commit({"value of others": Write(LARGE)}, {})
    damaged = await asyncio.to_thread(_damage_pages_of, LARGE.encode(), path)
    counts = []
    async with opened(url) as backend:
        for key in neighbours:
            (entry,) = await backend.read([key])
            await backend.commit({key: Write(entry.text, ttl=60.0)}, {key: entry.version})
            counts.append(await backend.increment(key, 1, None))
    return damaged, counts


def _damage_pages_of(text: bytes, path: Path) -> int:
    file = bytearray(path.read_bytes())
    # A page that continues a value starts with the number of the next one, 4 bytes.
    own = [at for at in range(0, len(file), PAGE) if file[at + 4 : at + PAGE] in text]
    for at in own:
        file[at : at + PAGE] = b"\xff" * PAGE
    path.write_bytes(file)
    return len(own)


def _overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(PAGE)
        file.write(b"rubbish" * ((size - PAGE) // 7))
