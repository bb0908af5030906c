"""What is done to connections to Redis: the backend's, and those that people make instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from rxlanggraph.errors import StaleTokenError
from rxlanggraph.state import State, Task, open_state
from rxlanggraph.state.backend import Backend
from rxlanggraph.state.backends.redis import open_backend
from rxlanggraph.state.client import BackendClient
from rxlanggraph.state.paging import in_steps
from support.concurrency.tasks import PATIENCE
from support.servers.redis_proxy import Fate, Proxy
from support.state.redis_ways import NAMESPACE, opened, plain
from support.state.redis_writes import WRITES, prepare, seen, without_numbers

__all__ = [
    "Seen",
    "cancel_and_count",
    "cancel_closing",
    "cancel_purge",
    "claim_and_go",
    "count_at_once",
    "count_once",
    "count_together",
    "is_fenced_after",
    "purge_in_steps",
    "purging",
    "set_meanwhile",
    "use_and_let_end",
    "write",
]

FATES: dict[str, Fate] = {
    "the answer is lost": "unanswered",
    "the request is late": "late",
    "the request is lost": "lost",
    "the request waits": "waiting",
    "the answer waits": "answer waiting",
}


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
                proxy.fates.append(FATES[trouble])
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
    return await in_steps(BackendClient(backend), step, lambda: None)


@asynccontextmanager
async def purging(proxy: Proxy, it: Any) -> AsyncIterator[asyncio.Task[int]]:
    """A purge, of which the second step is on its way during the block, and arrives after it."""
    proxy.fates.extend(("passed", "waiting"))
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


# -- what has ended --------------------------------------------------------------------------------


async def use_and_let_end(url: str) -> set[str]:
    """Use all that a state has, and let it end; return of what kinds the keys are that are left."""
    async with open_state(url, namespace=NAMESPACE) as state, plain(url) as client:
        async with state.lock("lock") as lease:
            for key, ttl in (("deleted", None), ("expiring", 0.01), ("both", 0.01)):
                await state.set(key, 1, ttl=ttl, token=lease)
            await state.increment_counter("both", token=lease)
            await state.delete("deleted", token=lease)
        await state.backend.lock_acquire("abandoned", "somebody", 0.01)
        tasks = [Task(n, key=f"task {n}", thread_id="thread", delay=n / 1e6) for n in range(5)]
        await state.add_tasks("queue", tasks, max_attempts=1)
        for end in ("complete", "fail"):
            claim = await state.claim_task("queue", wait=PATIENCE)
            assert claim is not None
            await getattr(claim, end)("answer")
        await state.requeue("queue")
        await state.claim_task("queue", wait=PATIENCE)
        assert await state.purge("queue", ["completed", "dead", "waiting", "claimed"]) == 5
        return await _left(client)


async def _left(client: Any) -> set[str]:
    """Of what kinds the keys are that stay."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE / 4
    while True:  # each turn waits for an answer
        kinds = {key.split(":")[1] async for key in client.scan_iter()}
        if kinds <= {"clock", "schema", "sequence"} or loop.time() > until:
            return kinds


ENDS: dict[str, Callable[[State], Awaitable[object]]] = {
    "it stays": lambda state: state.get("key"),
    "it is written without a token": lambda state: state.set("key", 2),
    "it is counted up without a token": lambda state: state.increment_counter("key"),
    "it gets a long time to live": lambda state: state.set("key", 2, ttl=60.0),
    "it is deleted": lambda state: state.delete("key"),
    "it gets a time to live of a millisecond": lambda state: state.set("key", 2, ttl=0.001),
}


async def is_fenced_after(url: str, what: str) -> bool:
    """Whether a write with an older token is refused when fences have been kept long enough."""
    async with open_state(url, namespace=NAMESPACE) as state:
        await state.set("key", 1, token=2)
        if what == "it is deleted, and made again without a token":
            await state.delete("key")
            await state.set("key", 1)
        else:
            await ENDS[what](state)
        await state.set("time passes", True, ttl=0.1)
        while (await state.get("time passes")).value:
            pass  # each turn waits for an answer
        try:
            await state.set("key", 3, token=1)
        except StaleTokenError:
            return True
        return False


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
    """A worker claims a task and is gone; return what another worker can claim then."""
    async with opened(way, url) as another:
        async with opened(way, url) as worker:
            await worker.add("task")
            assert await worker.claim() is not None
        again = await another.claim()
        while again is None and way == "the backend":  # each call takes longer than the lease
            again = await another.claim()
        return again
