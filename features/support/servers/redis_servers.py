"""What is done to the server under the Redis backend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import open_state
from rxlanggraph.state.backend import Write
from rxlanggraph.state.backends.redis import open_backend
from support.concurrency.raising import raised
from support.concurrency.tasks import PATIENCE
from support.servers.redis_connections import purging
from support.servers.redis_proxy import Proxy
from support.servers.valkey_cluster import Cluster, Node
from support.servers.valkey_server import LocalValkey
from support.state.redis_ways import NAMESPACE, opened, plain
from support.state.redis_writes import QUEUE, WRITES, prepare, seen

__all__ = [
    "Outlived",
    "age_by_a_version",
    "count_and_flush",
    "count_through",
    "count_through_a_move",
    "count_when_busy",
    "count_without",
    "lock_twice",
    "outlive",
    "pause_and_count",
    "purge_and_demote",
    "send_too_much",
    "use",
    "use_everything",
]

# -- the script cache ------------------------------------------------------------------------------


async def count_and_flush(url: str, tasks: int, each: int) -> tuple[int, int]:
    """Return the counter, and how often a script was sent as a whole."""
    async with opened("the backend", url) as it, plain(url) as client:

        async def count() -> None:
            for number in range(each):
                if number % 10 == 5:
                    await client.script_flush()
                await it.increment("counter")

        await asyncio.gather(*[count() for _ in range(tasks)])
        statistics = await client.info("commandstats")
        return int(await it.get("counter")), int(statistics["cmdstat_eval"]["calls"])


# -- servers ---------------------------------------------------------------------------------------


@dataclass
class Counting:
    """Tasks that count until they are told to stop. Confined to the loop."""

    increment: Callable[[], Awaitable[object]]
    answered: int = 0
    _stop: bool = False
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, tasks: int) -> None:
        self._tasks = [asyncio.create_task(self._count()) for _ in range(tasks)]

    async def _count(self) -> None:
        while not self._stop:
            try:
                await self.increment()
            except StateUnavailableError as error:
                if error.in_doubt:
                    raise
            else:
                self.answered += 1
                self._more.set()

    async def wait_answered(self, more: int) -> None:
        """Until so many more increments were answered, or a task has failed."""
        enough = self.answered + more
        while self.answered < enough and not any(task.done() for task in self._tasks):
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), PATIENCE)

    async def stop(self) -> None:
        self._stop = True
        await asyncio.gather(*self._tasks)


async def count_through(url: str, tasks: int, event: Callable[[], object]) -> tuple[int, int]:
    """Count while ``event`` happens, in a thread; return the answered ones, and the counter."""
    async with open_state(url, namespace=NAMESPACE) as state:
        counting = Counting(lambda: state.increment_counter("counter"))
        counting.start(tasks)
        await counting.wait_answered(50)
        await asyncio.to_thread(event)
        await counting.wait_answered(50)
        await counting.stop()
        value, _ = await state.get("counter")
        return counting.answered, value


@dataclass
class Outlived:
    """What became of a lock and a claim over a restart, and the numbers before and after."""

    held: bool
    completed: bool
    results: dict[str, str]
    before: list[int]
    after: list[int]


async def outlive(server: LocalValkey) -> Outlived:
    backend = await open_backend(server.url, NAMESPACE)
    try:
        prepared = await prepare(backend)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        # First what the backend itself sends again: the others are repeated by the state.
        written = await backend.commit({"value": Write("2")}, {})
        assert written is not None
        claim = prepared.claim
        held = await backend.lock_renew("lock", prepared.lock, 60.0)
        completed = await backend.task_complete(QUEUE, claim.id, claim.token, '"late"')
        return Outlived(
            held and await backend.lock_acquire("lock", "another", 60.0) is None,
            completed,
            await backend.tasks_results(QUEUE, "id", [claim.id]),
            [prepared.version, prepared.lock, claim.token],
            [written["value"].after, await backend.lock_acquire("another", "owner", 60.0) or 0],
        )
    finally:
        await backend.close()


async def lock_twice(server: LocalValkey, way: str) -> tuple[int, int]:
    """The tokens of a lock from before and after the server lost everything."""
    async with opened(way, server.url) as it, plain(server.url) as client:
        first = await it.lock("one")
        await client.flushall()
        return first, await it.lock("other")


async def pause_and_count(
    server: LocalValkey, calls: int, connections: int
) -> tuple[list[Any], int]:
    """What increments ended with on a paused server, and the answer to one when it goes on."""
    url = f"{server.url}?max_connections={connections}&socket_timeout=2"
    async with opened("the backend", url) as it:
        await asyncio.gather(*[it.increment("warm-up") for _ in range(connections)])
        server.pause()
        counting = [it.increment("counter") for _ in range(calls)]
        ended = await asyncio.gather(*counting, return_exceptions=True)
        server.resume()
        return ended, await it.increment("counter")


async def count_when_busy(server: LocalValkey) -> int:
    """Count while an endless script runs, and until it is killed; return the counter."""
    async with (
        Proxy(server.url) as proxy,
        opened("the backend", proxy.url) as it,
        plain(server.url) as client,
        plain(server.url) as endless,
    ):
        await client.config_set("busy-reply-threshold", 10)  # ms, instead of five seconds
        script = asyncio.create_task(endless.eval("while true do end", 0))
        while await says(client.ping()) != "BUSY":
            pass  # each turn waits for an answer
        counting = asyncio.create_task(it.increment("counter"))
        await asyncio.wait_for(proxy.put_off.wait(), PATIENCE)
        await client.script_kill()
        await asyncio.wait([script])
        assert isinstance(script.exception(), ResponseError), script
        return await counting


async def says(call: Awaitable[object]) -> str:
    """The first word of what a server refuses with; nothing if it does not."""
    try:
        await call
    except ResponseError as refusal:
        return str(refusal).partition(" ")[0]
    return ""


async def count_without(server: LocalValkey, event: Callable[[], object], calls: int) -> list[Any]:
    """What increments end with, one after the other, after ``event`` has hit the server."""
    async with opened("the backend", f"{server.url}?socket_timeout=2") as it:
        await asyncio.to_thread(event)
        ended = []
        for _ in range(calls):
            ended += await asyncio.gather(it.increment("counter"), return_exceptions=True)
        return ended


async def purge_and_demote(server: LocalValkey, tasks: int) -> list[Any]:
    """What a purge ends with in whose middle the server becomes a replica, and refuses writes."""
    async with Proxy(server.url) as proxy, opened("the backend", proxy.url) as it:
        await it.add(*map(str, range(tasks)))
        async with purging(proxy, it) as purge, plain(server.url) as client:
            await client.replicaof("127.0.0.1", 1)
        return await asyncio.gather(purge, return_exceptions=True)


async def use(url: str) -> int:
    """Open the state by its URL, and use it."""
    async with open_state(url, namespace=NAMESPACE) as state:
        return await state.increment_counter("counter")


async def age_by_a_version(url: str) -> None:
    """Have the namespace be of the version after the one that it is of."""
    await use(url)
    async with plain(url) as client:
        await client.incr(f"{{{NAMESPACE}}}:schema")


async def send_too_much(url: str, what: str) -> tuple[BaseException | None, int]:
    """What a call ends with that sends two megabytes, and what the next one answers."""
    text = "x" * 2_000_000
    async with open_state(url, namespace=NAMESPACE) as state:
        await state.add_tasks("queue", [1])
        claim = await state.claim_task("queue")
        assert claim is not None
        calls = {
            "a value": lambda: state.set("value", text),
            "a result": lambda: claim.complete(text),
            "a list of tasks": lambda: state.add_tasks("queue", [text[:2000]] * 1000),
        }
        ended = await raised(calls[what]())
        async with asyncio.timeout(1.0):
            return ended, await state.increment_counter("counter")


# -- clusters --------------------------------------------------------------------------------------


def count_through_a_move(cluster: Cluster) -> tuple[tuple[int, int], Node, Node]:
    """Count from the wrong node while the namespace moves; return the counts, and the nodes.

    The state is opened at the node that the namespace moves to: at first it is sent to the other.
    """
    slot = cluster.slot_of(NAMESPACE)
    source, target = cluster.having(slot)
    counts = asyncio.run(
        count_through(target.server.url, 4, lambda: cluster.move(slot, source, target))
    )
    return counts, source, target


async def use_everything(url: str) -> None:
    backend = await open_backend(url, NAMESPACE)
    try:
        prepared = await prepare(backend)
        for make in WRITES.values():
            await make(prepared)
        await seen(backend)
    finally:
        await backend.close()
