"""One SQLite file under two names: what is acknowledged by either, and what is there in the end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rxlanggraph.errors import InvalidArgumentError
from rxlanggraph.state import open_state
from rxlanggraph.state.backends.sql.sqlite.file import path_of
from support.concurrency.tasks import PATIENCE

__all__ = ["NAMES", "WAYS", "Counted", "mounted_at"]


class Counted(NamedTuple):
    """How many increments were acknowledged, how many counted, and what the second one was told."""

    acknowledged: int
    counted: int
    told: str


# -- another name ----------------------------------------------------------------------------------


def _hard_link(path: Path) -> Path:
    other = path.with_name("other.db")
    other.hardlink_to(path)
    return other


def _link(path: Path) -> Path:
    other = path.with_name("other.db")
    other.symlink_to(path)
    return other


def _folder_link(path: Path) -> Path:
    folder = path.parent / "other"
    folder.symlink_to(path.parent)
    return folder / path.name


NAMES: dict[str, Callable[[Path], Path]] = {
    "a hard link": _hard_link,
    "a link by name": _link,
    "a link to the folder": _folder_link,
}


def mounted_at(path: Path) -> str:
    """What Linux tells of mounts when a file is one; this is how it writes blanks."""
    place = os.path.realpath(path).replace(" ", r"\040")
    return (
        "22 1 252:1 / / rw,relatime - ext4 /dev/vda rw\n"
        f"91 22 252:1 /data/state.db {place} rw,relatime - ext4 /dev/vda rw\n"
    )


# -- counting --------------------------------------------------------------------------------------


async def count_in_states(
    url: str, name: Callable[[Path], Path], unname: Callable[[Path], None], each: int
) -> Counted:
    told, acknowledged = "", 0
    async with open_state(url) as first:
        await first.increment_counter("counter", 0)
        other = name(Path(path_of(url)))
        try:
            async with open_state(f"sqlite:///{other}") as second:
                for _ in range(each):
                    await second.increment_counter("counter")
                    await first.increment_counter("counter")
                acknowledged += 2 * each
        except InvalidArgumentError as error:
            told = str(error)
            for _ in range(each):
                await first.increment_counter("counter")
            acknowledged += each
    unname(other)
    async with open_state(url) as last:
        return Counted(acknowledged, (await last.get("counter")).value, told)


# In a process of its own: within one, SQLite knows a file by any name.
BY_HAND = """
import sqlite3, sys
path, each = sys.argv[1], int(sys.argv[2])
connection = sqlite3.connect(path, isolation_level=None)
for _ in range(each):
    connection.execute("UPDATE counter SET n = n + 1")
"""


async def count_by_hand(
    url: str, name: Callable[[Path], Path], unname: Callable[[Path], None], each: int
) -> Counted:
    path = Path(path_of(url))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as first:
        first.execute("PRAGMA journal_mode = WAL")
        first.execute("CREATE TABLE counter (n INTEGER)")
        first.execute("INSERT INTO counter VALUES (0)")
        first.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for _ in range(each):
            first.execute("UPDATE counter SET n = n + 1")
        other = name(path)
        command = [sys.executable, "-c", BY_HAND, str(other), str(each)]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=PATIENCE)
    unname(other)
    with contextlib.closing(sqlite3.connect(path)) as last:
        ((counted,),) = last.execute("SELECT n FROM counter").fetchall()
    return Counted(2 * each, counted, "")


WAYS = {"a state": count_in_states, "a bare connection": count_by_hand}
