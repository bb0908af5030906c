"""``safe_update`` by 1 to 64 tasks that contend for one key, in memory and in SQLite.

The floor is the same reading, computing and conditional writing, by bare means, under one lock of
the process: nobody is ever overtaken. Nor are the tasks of one state, which take turns; so what is
above the floor is what state costs. (Tasks of several processes do overtake each other.) The lock
works in one process alone, and the function must be sync: that is why it is a floor, and no way to
do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from contextlib import ExitStack
from typing import Any

import aiosqlite

from rxlanggraph.state import State, open_state

from .harness import Ratio, paired
from .state_work import burst, updates

BACKENDS = ("memory", "sqlite")
CONTENDING = [1, 4, 16, 64]
COUNT = 256


class BareMemory:
    """A dictionary of JSON texts and versions, under a lock."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._entries = {"updated": ("0", 0)}

    async def update(self) -> None:
        async with self._lock:
            text, version = self._entries["updated"]
            self._entries["updated"] = (json.dumps(json.loads(text) + 1), version + 1)

    async def value(self) -> int:
        return int(self._entries["updated"][0])


class BareSqlite:
    """Two statements over aiosqlite, under a lock."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._lock = asyncio.Lock()
        self._connection = connection

    async def prepare(self) -> None:
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE entries (key text PRIMARY KEY, text text, version integer)",
            "INSERT INTO entries VALUES ('updated', '0', 0)",
        ):
            await self._connection.execute(statement)

    async def update(self) -> None:
        async with self._lock:
            ((text, version),) = await self._connection.execute_fetchall(
                "SELECT text, version FROM entries WHERE key = 'updated'"
            )
            await self._connection.execute_fetchall(
                "UPDATE entries SET text = ?, version = version + 1"
                " WHERE key = 'updated' AND version = ?",
                (json.dumps(json.loads(text) + 1), version),
            )

    async def value(self) -> int:
        ((text,),) = await self._connection.execute_fetchall("SELECT text FROM entries")
        return int(text)


class Bench(ExitStack):
    """A state, its floor, and the loop of both."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        folder = self.enter_context(tempfile.TemporaryDirectory())
        self._runner = self.enter_context(asyncio.Runner())
        self._opened = contextlib.AsyncExitStack()
        self.callback(lambda: self._runner.run(self._opened.aclose()))
        self._runner.run(self._open(backend, folder))

    async def _open(self, backend: str, folder: str) -> None:
        enter = self._opened.enter_async_context
        self.floor: Any = BareMemory()
        url = "memory:"
        if backend == "sqlite":
            url = f"sqlite:///{folder}/state.db"
            file = aiosqlite.connect(f"{folder}/floor.db", isolation_level=None)
            self.floor = BareSqlite(await enter(file))
            await self.floor.prepare()
        self.state: State = await enter(open_state(url))

    def updates(self, at_once: int, count: int = COUNT) -> float:
        """The seconds of that many updates of one key from so many tasks."""
        return self._runner.run(updates(self.state, at_once, count))

    def floor_updates(self, at_once: int, count: int = COUNT) -> float:
        """The same of the floor."""
        return self._runner.run(self._floor_updates(at_once, count))

    async def _floor_updates(self, at_once: int, count: int) -> float:
        before = await self.floor.value()
        seconds = await burst(self.floor.update, at_once, count)
        made = await self.floor.value() - before
        if made != count:
            raise AssertionError(f"{count} updates were made, {made} are left")
        return seconds


def ratio(backend: str, at_once: int, *, pairs: int = 11) -> Ratio:
    """``safe_update`` by so many tasks over the floor."""
    with Bench(backend) as bench:
        return paired(
            lambda: bench.updates(at_once),
            lambda: bench.floor_updates(at_once),
            pairs=pairs,
            items=COUNT,
            clock=lambda work: work(),
        )


class SafeUpdates:
    """Updates of one key per second, by how many tasks contend for it."""

    params = (list(BACKENDS), CONTENDING)
    param_names = ("backend", "at once")
    timeout = 300
    unit = "1/s"

    def setup(self, backend: str, _: int) -> None:
        self.bench = Bench(backend)

    def teardown(self, *_: object) -> None:
        self.bench.close()

    def track_rate(self, _: str, at_once: int) -> float:
        return COUNT / self.bench.updates(at_once)

    def track_floor(self, _: str, at_once: int) -> float:
        return COUNT / self.bench.floor_updates(at_once)


class SafeUpdateRatio:
    """``safe_update`` over the floor, in pairs."""

    params = (list(BACKENDS), CONTENDING)
    param_names = ("backend", "at once")
    timeout = 300
    unit = "ratio"

    def track_part(self, backend: str, at_once: int) -> float:
        return ratio(backend, at_once).value
