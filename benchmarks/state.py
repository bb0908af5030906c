"""``safe_update`` by 1 to 64 tasks that contend for one key, on each backend.

The floor is the same reading, computing and conditional writing, by bare means, under one lock of
the process: no update is overtaken. Nor are those of the tasks of one state: they take turns, and
each begins from the value that the one before has written. (Tasks of several processes do overtake
each other.) The lock works in one process alone, and the function must be sync: that is why it is a
floor, and no way to do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import ExitStack
from typing import Any

import aiosqlite
import psycopg
from redis.asyncio import Redis

from rxlanggraph.state import State, open_state

from .harness import Ratio, paired, told
from .servers import SERVERS
from .state_work import burst, updates

BACKENDS = tuple(SERVERS)
CONTENDING = [1, 4, 16, 64]
COUNT = 256


class BareMemory:
    """A dictionary of JSON texts and versions, under a lock."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._entries = {"updated": ("0", 0)}

    async def prepare(self) -> None:
        """There is nothing to do."""

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


class BarePostgres:
    """Two statements over psycopg, under a lock."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._lock = asyncio.Lock()
        self._connection = connection

    async def prepare(self) -> None:
        for statement in (
            "CREATE TABLE entries (key text PRIMARY KEY, text text, version integer)",
            "INSERT INTO entries VALUES ('updated', '0', 0)",
        ):
            await self._connection.execute(statement)

    async def update(self) -> None:
        async with self._lock:
            cursor = await self._connection.execute(
                "SELECT text, version FROM entries WHERE key = 'updated'"
            )
            ((text, version),) = await cursor.fetchall()
            await self._connection.execute(
                "UPDATE entries SET text = %s, version = version + 1"
                " WHERE key = 'updated' AND version = %s",
                (json.dumps(json.loads(text) + 1), version),
            )

    async def value(self) -> int:
        cursor = await self._connection.execute("SELECT text FROM entries")
        ((text,),) = await cursor.fetchall()
        return int(text)


_REPLACE = """
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'text', ARGV[1], 'version', ARGV[2] + 1)
return 1
"""


class BareRedis:
    """A hash, read by a command and written by a script that compares, under a lock."""

    def __init__(self, client: Any) -> None:
        self._lock = asyncio.Lock()
        self._client = client
        self._replace = client.register_script(_REPLACE)

    async def prepare(self) -> None:
        await self._client.hset("updated", mapping={"text": "0", "version": 0})

    async def update(self) -> None:
        async with self._lock:
            text, version = await self._client.hmget("updated", "text", "version")
            await self._replace(keys=["updated"], args=[json.dumps(json.loads(text) + 1), version])

    async def value(self) -> int:
        return int(await self._client.hget("updated", "text"))


class Bench(ExitStack):
    """A state, its floor, and the loop of both."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        url = self.enter_context(SERVERS[backend]())
        self._runner = self.enter_context(asyncio.Runner())
        self._opened = contextlib.AsyncExitStack()
        self.callback(lambda: self._runner.run(self._opened.aclose()))
        self._runner.run(self._open(backend, url))

    async def _open(self, backend: str, url: str) -> None:
        enter = self._opened.enter_async_context
        self.state: State = await enter(open_state(url))
        self.floor: Any
        if backend == "sqlite":
            path = f"{url.removeprefix('sqlite:///')}.floor"
            self.floor = BareSqlite(await enter(aiosqlite.connect(path, isolation_level=None)))
        elif backend == "postgresql":
            connect = psycopg.AsyncConnection.connect
            self.floor = BarePostgres(
                await enter(await connect(url, autocommit=True, prepare_threshold=0))
            )
        elif backend == "redis":
            self.floor = BareRedis(await enter(Redis.from_url(url, db=1, decode_responses=True)))
        else:
            self.floor = BareMemory()
        await self.floor.prepare()

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
            clock=told,
        )


class SafeUpdates:
    """Seconds for an update of one key, by how many tasks contend for it."""

    params = (list(BACKENDS), CONTENDING)
    param_names = ("backend", "at once")
    timeout = 300
    unit = "s"

    def setup(self, backend: str, _: int) -> None:
        self.bench = Bench(backend)

    def teardown(self, *_: object) -> None:
        self.bench.close()

    def track_update(self, _: str, at_once: int) -> float:
        return self.bench.updates(at_once) / COUNT

    def track_floor(self, _: str, at_once: int) -> float:
        return self.bench.floor_updates(at_once) / COUNT


class SafeUpdateRatio:
    """``safe_update`` over the floor, in pairs."""

    params = (list(BACKENDS), CONTENDING)
    param_names = ("backend", "at once")
    timeout = 300
    unit = "ratio"

    def track_part(self, backend: str, at_once: int) -> float:
        return ratio(backend, at_once).value
