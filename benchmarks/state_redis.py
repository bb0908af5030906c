"""Shared state on a Redis server: counters and claims.

The floors are bare commands over redis-py's own client, to the same server from the same loop:
``INCRBY`` for an increment; for a claim ``ZPOPMIN``, then ``SET`` with a time to live as its lease,
which is the common pattern, and loses an item if its worker dies in between. The least that does
not is both in one script: a row for comparison. Ours is the whole way through `open_state`.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import ExitStack
from typing import Any

from redis.asyncio import Redis

from rxlanggraph.state import State, open_state

from .harness import Ratio, paired, told
from .servers import SERVERS
from .state_work import ITEM, Ours, Store, claims, increments

BURST = 2_000

_POP_AND_LEASE = """
local item = redis.call('ZPOPMIN', KEYS[1])[1]
if item then
  redis.call('SET', 'lease:' .. item, ARGV[1], 'PX', 30000)
end
return item
"""


class TwoSteps:
    """A sorted set of items, and a key for each lease."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def increment(self) -> None:
        await self.client.incrby("counter", 1)

    async def fill(self, count: int) -> None:
        await self.client.zadd("ready", {f"{ITEM} {number:016}": 0 for number in range(count)})

    async def claim(self) -> Any:
        ((item, _),) = await self.client.zpopmin("ready")
        await self.client.set(f"lease:{item}", "worker", px=30_000)
        return item

    async def finish(self, claimed: list[Any]) -> int:
        deleted: int = await self.client.delete(*[f"lease:{item}" for item in claimed])
        return deleted


class OneScript(TwoSteps):
    """The same, in one step."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self._script = client.register_script(_POP_AND_LEASE)

    async def claim(self) -> Any:
        return await self._script(keys=["ready"], args=["worker"])


STORES = ("ours", "two steps", "one script")


class Bench(ExitStack):
    """A server, a loop, and every way on it; each has a database of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._url = self.enter_context(SERVERS["redis"]())
        self._runner = self.enter_context(asyncio.Runner())
        self._opened = contextlib.AsyncExitStack()
        self.callback(lambda: self._runner.run(self._opened.aclose()))
        self._runner.run(self._open())

    async def _open(self) -> None:
        enter = self._opened.enter_async_context
        self.state: State = await enter(open_state(self._url))
        two, one = [await enter(self._client(number)) for number in (1, 2)]
        self.stores: dict[str, Store] = {
            "ours": Ours(self.state),
            "two steps": TwoSteps(two),
            "one script": OneScript(one),
        }

    def _client(self, database: int) -> Any:
        return Redis.from_url(self._url, db=database, decode_responses=True)

    def measure(self, part: str, store: str, at_once: int, count: int = BURST) -> float:
        """The seconds of that many "increments" or "claims" from so many tasks."""
        return self._runner.run(_PARTS[part](self.stores[store], at_once, count))


_PARTS = {"increments": increments, "claims": claims}


def ratio(part: str, peer: str, at_once: int, *, pairs: int = 11, count: int = BURST) -> Ratio:
    """The state's ``part``, "increments" or "claims", over a peer's."""
    with Bench() as bench:
        return paired(
            lambda: bench.measure(part, "ours", at_once, count),
            lambda: bench.measure(part, peer, at_once, count),
            pairs=pairs,
            items=count,
            clock=told,
        )


class _RedisState:
    timeout = 300
    unit = "s"

    def setup(self, *_: object) -> None:
        self.bench = Bench()

    def teardown(self, *_: object) -> None:
        self.bench.close()


class RedisIncrements(_RedisState):
    """Seconds for an increment of one counter, by way and by how many are under way at once."""

    params = (["ours", "two steps"], [1, 16])
    param_names = ("store", "at once")

    def track_time(self, store: str, at_once: int) -> float:
        return self.bench.measure("increments", store, at_once) / BURST


class RedisClaims(_RedisState):
    """Seconds for a claim, by way and by how many are under way at once."""

    params = (list(STORES), [1, 16])
    param_names = ("store", "at once")

    def track_time(self, store: str, at_once: int) -> float:
        return self.bench.measure("claims", store, at_once) / BURST


class RedisStateRatio:
    """The state over the bare commands, in pairs."""

    params = (["increments", "claims"], [1, 16])
    param_names = ("part", "at once")
    timeout = 300
    unit = "ratio"

    def track_part(self, part: str, at_once: int) -> float:
        return ratio(part, "two steps", at_once).value
