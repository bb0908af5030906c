"""What becomes of an SQLite file, and of its folder, while a state has it open."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from rxlanggraph.state.backends.sql.sqlite.file import read_version
from support.concurrency.raising import raised
from support.state.sql_ways import opened, plain, value_of

__all__ = ["count", "count_after_loss", "read_while_open", "version_by_link"]


async def count(url: str) -> None:
    async with opened(url) as backend:
        await backend.increment("n", 1, None)


async def read_while_open(url: str) -> int:
    """What the counter is, while another connection has the file open."""
    with plain(url) as other:
        other.execute("SELECT * FROM rxlanggraph_schema").fetchall()
        async with opened(url) as backend:
            return int(await value_of(backend, "n") or 0)


async def version_by_link(url: str, link: Path) -> int | None:
    async with opened(url):
        await asyncio.to_thread(link.symlink_to, url.removeprefix("sqlite:///"))
        return await asyncio.to_thread(read_version, f"sqlite:///{link}")


async def count_after_loss(url: str, lost: str) -> Exception | None:
    """What a write ends with after several in a folder that was quiet, and then this."""
    path = Path(url.removeprefix("sqlite:///")).parent / "folder" / "state.sqlite"
    await asyncio.to_thread(path.parent.mkdir)
    async with opened(f"sqlite:///{path}") as backend:
        while _seconds_since_change(path.parent) <= 0.1:
            await backend.increment("n", 1, None)
        for _ in range(2):  # the second one takes it for quiet
            await backend.increment("n", 1, None)
        await asyncio.to_thread(_LOSSES[lost], path)
        return await raised(backend.increment("n", 1, None))


def _seconds_since_change(folder: Path) -> float:
    return time.time() - folder.stat().st_ctime


def _move(path: Path) -> None:
    path.rename(path.with_name("moved"))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


def _replace_with_times(path: Path) -> None:
    """As programs do that bring a copy of a folder back."""
    before = path.parent.stat()
    _replace(path)
    os.utime(path.parent, ns=(before.st_atime_ns, before.st_mtime_ns))


def _move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def _replace_by_link(path: Path) -> None:
    _move(path)
    path.symlink_to(_copy_of(path.with_name("moved")))


def _copy_of(path: Path) -> Path:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    return copy


_LOSSES: dict[str, Callable[[Path], None]] = {
    "moved": _move,
    "replaced": _replace,
    "replaced, with the times of its folder": _replace_with_times,
    "moved with its folder": _move_folder,
    "replaced by a link to another": _replace_by_link,
}
