"""What is done to connections to Redis: the backend's, and those that people make instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rxlanggraph.state.contract import Backend
from rxlanggraph.state.core import Core
from rxlanggraph.state.paging import in_steps
from rxlanggraph.state.redis import open_backend
from support.redis_proxy import Fate, Proxy
from support.redis_ways import NAMESPACE, opened, plain
from support.redis_writes import WRITES, prepare, seen, without_numbers

__all__ = [
    "Seen",
    "cancel_and_count",
    "cancel_closing",
    "cancel_purge",
    "claim_and_go",
    "count_at_once",
    "count_once",
    "count_together",
    "purge_in_steps",
    "purging",
    "set_meanwhile",
    "write",
]

FATES: dict[str, Fate] = {
    "the answer is lost": "unanswered",
    "the list is lost": "unanswered",
    "the request is late": "late",
    "the request is lost": "lost",
    "the request waits": "waiting",
    "the answer waits": "answer waiting",
}


def fates_of(what: str, trouble: str) -> list[Fate]:
    """The fates of the requests of a write, up to that which meets trouble."""
    # A purge begins with a request for a list of tasks.
    begun: list[Fate] = ["passed"] if what == "a purge" and trouble != "the list is lost" else []
    return [*begun, FATES[trouble]]


# -- connections -----------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a write answered, and what is there afterwards."""

    answer: str
    afterwards: list[str]


async def write(url: str, what: str, trouble: str | None = None) -> Seen:
    """Make a write where everything is prepared for it, in trouble or not."""
    async with plain(url) as client, Proxy(url) as proxy:
        await client.flushdb()
        direct = await open_backend(url, NAMESPACE)
        troubled = await open_backend(proxy.url, NAMESPACE)
        try:
            prepared = await prepare(direct)
            if trouble is not None:
                proxy.fates.extend(fates_of(what, trouble))
            answer = await WRITES[what](prepared._replace(backend=troubled))
            assert not proxy.fates, "the write has met no trouble"
            if trouble == "the request is late":
                await proxy.deliver()
            return Seen(without_numbers(answer), await seen(direct))
        finally:
            await troubled.close()
            await direct.close()


async def count_once(url: str, way: str, trouble: str) -> int:
    """Count to 1 in trouble; return how far it got."""
    async with Proxy(url) as proxy, opened(way, proxy.url) as it:
        await it.increment("warm-up")
        proxy.fates.append(FATES[trouble])
        await it.increment("counter")
        if trouble == "the request is late":
            await proxy.deliver()
        return int(await it.get("counter"))


async def set_meanwhile(url: str, way: str) -> str:
    """Set a value twice over, another in between; return what it is in the end."""
    async with Proxy(url) as proxy, opened(way, proxy.url) as it, opened(way, url) as another:
        await it.set("value", "0")
        proxy.fates.extend(("unanswered", "waiting"))
        setting = asyncio.create_task(it.set("value", "1"))
        await proxy.wait_waiting()
        await another.set("value", "2")
        proxy.go_on()
        await setting
        return str(await another.get("value"))


async def cancel_and_count(url: str, way: str, when: str, others: int) -> tuple[list[int], int]:
    """Cancel an increment by 100, make ``others`` by 1; return their answers, and the next one."""
    async with Proxy(url) as proxy, opened(way, proxy.url) as it:
        await it.increment("warm-up")
        proxy.fates.append(FATES[when])
        cancelled = asyncio.create_task(it.increment("counter", 100))
        await proxy.wait_waiting()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        calls = [asyncio.create_task(it.increment("counter")) for _ in range(others)]
        if way != "the backend":
            proxy.go_on()  # its only connection waits for this
        answers = await asyncio.gather(*calls)
        proxy.go_on()
    async with opened(way, url) as another:
        return sorted(answers), await another.increment("counter")


async def count_at_once(url: str, calls: int, connections: int) -> tuple[int, int]:
    """Return the counter, and how many connections there were at most."""
    async with (
        Proxy(url) as proxy,
        opened("the backend", f"{proxy.url}?max_connections={connections}") as it,
    ):
        await asyncio.gather(*[it.increment("counter") for _ in range(calls)])
        return int(await it.get("counter")), proxy.most_at_once


async def purge_in_steps(url: str, tasks: int) -> tuple[int, int]:
    """How many tasks others saw in the middle of a purge, and how many it has forgotten."""
    async with Proxy(url) as proxy, opened("the backend", proxy.url) as it:
        await it.add(*map(str, range(tasks)))
        async with purging(proxy, it) as purge, opened("the backend", url) as another:
            seen_then = await another.backend.tasks_stats("queue")
        return seen_then.waiting, await purge


async def cancel_purge(url: str, tasks: int) -> tuple[int, int]:
    """How many tasks a purge has left that was cancelled, and how many the next one forgets."""
    async with Proxy(url) as proxy, opened("the backend", proxy.url) as it:
        await it.add(*map(str, range(tasks)))
        async with purging(proxy, it) as purge:
            purge.cancel()
            await asyncio.wait([purge])
        left = await it.backend.tasks_stats("queue")
        return left.waiting, await purge_waiting(it.backend)


async def purge_waiting(backend: Backend) -> int:
    """Purge as a state does it."""
    step = partial(backend.tasks_purge_step, "queue", ["waiting"])
    return await in_steps(Core(backend), step, lambda: None)


@asynccontextmanager
async def purging(proxy: Proxy, it: Any) -> AsyncIterator[asyncio.Task[int]]:
    """A purge, of which the second step is on its way during the block, and arrives after it."""
    proxy.fates.extend(("passed", "passed", "waiting"))
    purge = asyncio.create_task(purge_waiting(it.backend))
    await proxy.wait_waiting()
    yield purge
    proxy.go_on()


async def cancel_closing(url: str) -> int:
    """Cancel closing later and later, until it is done; return how often it was cancelled.

    Raises:
        AssertionError: A connection was left open.
    """
    async with Proxy(url) as proxy:
        for turns in range(1, 100):  # after none it has not begun
            backend = await open_backend(proxy.url, NAMESPACE)
            closing = asyncio.create_task(backend.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            if not closing.cancelled():
                return turns
            # The backend is still there: nothing else would close what it has left open.
            await proxy.wait_unconnected()
        raise AssertionError("closing does not end")


# -- steps -----------------------------------------------------------------------------------------


async def count_together(url: str, way: str) -> int:
    """Two of a kind increment a counter at the same moment; return it."""
    async with opened(way, url) as one, opened(way, url) as other:
        if way == "the backend":
            await asyncio.gather(one.increment("counter"), other.increment("counter"))
        else:
            both = asyncio.Barrier(2)
            calls = [it.increment("counter", pause=both.wait) for it in (one, other)]
            await asyncio.gather(*calls)
        return int(await one.get("counter"))


async def claim_and_go(url: str, way: str) -> object:
    """A worker claims a task and is gone; return what somebody else can claim then."""
    async with opened(way, url) as another:
        async with opened(way, url) as worker:
            await worker.add("task")
            assert await worker.claim() is not None
        again = await another.claim()
        while again is None and way == "the backend":  # each call takes longer than the lease
            again = await another.claim()
        return again
