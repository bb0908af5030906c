"""Workers that wait for tasks of other processes, and never poll.

python -m support.state.arriving URL
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
from redis.asyncio import Redis

from rxlanggraph.state import Claim, State, Task, open_state, polling
from support.concurrency.raising import raised
from support.concurrency.tasks import PATIENCE
from support.concurrency.waiting import LIMIT
from support.servers.pooler import Pooler
from support.servers.relay import Relay

__all__ = [
    "add_behind_pooler",
    "add_beside_lost_listener",
    "add_in_process",
    "close_while_waiting",
    "deaf",
    "free_in_each_way",
    "kill_listener",
    "listeners",
    "never_polling",
    "notified_between",
    "use_without_waiting",
    "wait_and_poll",
]

QUEUE = "queue"
FEATURES = Path(__file__).parents[2]
# Seconds after which a worker that nothing wakes counts as asleep: for a control alone.
ASLEEP = 2.0
# Sessions that hold the advisory lock of those who listen.
LISTENING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 1920494199"
# The lock that every call takes which makes a task claimable.
TELLING = b"1920494203"
OTHERS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid()"
)


@contextlib.contextmanager
def never_polling() -> Iterator[list[float]]:
    """Let only a notification end a pause; yield the pauses that have begun."""
    pauses: list[float] = []

    async def wait_forever(notified: asyncio.Event, seconds: float) -> None:
        pauses.append(seconds)
        async with asyncio.timeout(LIMIT):
            await notified.wait()

    with mock.patch.object(polling, "wait_for_notification", wait_forever):
        yield pauses


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """Have states listen to nothing: the naive way."""
    with mock.patch("rxlanggraph.state.client.as_notifying", lambda _: None):
        yield


@contextlib.asynccontextmanager
async def waiting(state: State, worker: str = "w") -> AsyncIterator[asyncio.Task[Claim | None]]:
    """A worker that waits, and a state that listens by now."""
    with state._client.notifier.listen("all") as listens:
        task = asyncio.create_task(state.claim_task(QUEUE, worker=worker, wait=LIMIT))
        async with asyncio.timeout(PATIENCE):
            await listens.wait()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(is_so: Callable[[], bool]) -> None:
    """Let the loop go on until a state has got so far."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)


async def add_in_process(url: str, pauses: list[float], limit: float = PATIENCE) -> Any:
    """Return what a worker has claimed that another process has added during a pause of it."""
    async with open_state(url) as state:
        task = asyncio.create_task(state.claim_task(QUEUE, wait=LIMIT))
        try:
            await until(lambda: bool(pauses))
            other = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "support.state.arriving",
                url,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FEATURES), *sys.path])},
            )
            assert await other.wait() == 0
            await asyncio.wait([task], timeout=limit)
            claim = await task if task.done() else None
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if claim is None:
            return None
        await claim.complete()
        return claim.item


# -- freeing a task --------------------------------------------------------------------------------


async def _add(other: State) -> None:
    await other.add_tasks(QUEUE, ["a"])


async def _claimed(other: State, *tasks: Task) -> Claim:
    await other.add_tasks(QUEUE, tasks or [Task("a")], max_attempts=2)
    claim = await other.claim_task(QUEUE)
    assert claim is not None
    return claim


async def _release(other: State) -> Callable[[], Awaitable[object]]:
    return (await _claimed(other)).release


async def _fail(other: State) -> Callable[[], Awaitable[object]]:
    claim = await _claimed(other)
    return lambda: claim.fail("why")


async def _requeue(other: State, *ids: str) -> Callable[[], Awaitable[object]]:
    claim = await _claimed(other)
    await claim.fail("why", final=True)
    return lambda: other.requeue(QUEUE, [claim.id] if ids else None)


async def _complete_first(other: State) -> Callable[[], Awaitable[object]]:
    claim = await _claimed(other, *THREAD)
    return claim.complete


async def _complete_many(other: State) -> Callable[[], Awaitable[object]]:
    claim = await _claimed(other, *THREAD)
    return lambda: other.complete_tasks([(claim, None)])


async def _cancel_first(other: State) -> Callable[[], Awaitable[object]]:
    claim = await _claimed(other, *THREAD)
    return lambda: other.cancel_tasks(QUEUE, [claim.id])


async def _purge_first(other: State) -> Callable[[], Awaitable[object]]:
    await _claimed(other, *THREAD)
    return lambda: other.purge(QUEUE, ["claimed"])


THREAD = (Task("a", thread_id="t"), Task("b", thread_id="t"))
# Each prepares a queue that has nothing to claim, and returns what frees a task of it.
WAYS: dict[str, Callable[[State], Awaitable[Callable[[], Awaitable[object]]]]] = {
    "release": _release,
    "fail": _fail,
    "requeue all": _requeue,
    "requeue one": lambda other: _requeue(other, "one"),
    "complete": _complete_first,
    "complete many": _complete_many,
    "cancel": _cancel_first,
    "purge": _purge_first,
}


async def free_in_each_way(url: str) -> list[str]:
    """Return the ways that have woken a worker."""
    woken = []
    for way, prepare in WAYS.items():
        async with open_state(url) as other:
            free = await prepare(other)
            async with open_state(url) as state, waiting(state) as worker:
                await free()
                async with asyncio.timeout(PATIENCE):
                    claim = await worker
                assert claim is not None
                await claim.complete()
                woken.append(way)
            await other.purge(QUEUE, ["waiting", "claimed", "completed", "dead"])
    assert woken == [*WAYS]
    return woken


# -- connections -----------------------------------------------------------------------------------


def _is_postgresql(url: str) -> bool:
    return url.startswith("postgresql")


async def _asked(url: str, query: str) -> list[int]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return [pid for (pid,) in await (await connection.execute(query.encode())).fetchall()]


async def listeners(url: str) -> int:
    """How many connections listen at the server."""
    if _is_postgresql(url):
        return len(await _asked(url, LISTENING))
    async with Redis.from_url(url, decode_responses=True) as client:
        return len(await client.client_list("pubsub"))


async def _connections(url: str) -> int:
    """How many connections others have, once the server has noticed the ends of those closed."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if _is_postgresql(url):
                count = len(await _asked(url, OTHERS))
            else:
                async with Redis.from_url(url, decode_responses=True) as client:
                    number = url.rpartition("/")[2]
                    every = await client.client_list()
                    count = len([one for one in every if one["db"] == number]) - 1
            if not count:
                return 0


async def kill_listener(url: str) -> Any:
    """Return what a worker has claimed that was added after its connection was killed."""
    async with open_state(url) as state, open_state(url) as other, waiting(state) as worker:
        if _is_postgresql(url):
            killed = await _asked(url, LISTENING.replace("pid", "pg_terminate_backend(pid)", 1))
            assert killed == [True]
        else:
            async with Redis.from_url(url, decode_responses=True) as client:
                assert await client.client_kill_filter(_type="pubsub") == 1
        await _add(other)
        async with asyncio.timeout(PATIENCE):
            claim = await worker
        assert claim is not None
        await claim.complete()
        return claim.item


async def add_beside_lost_listener(url: str) -> list[Any]:
    """Add a task after the network has lost a process that was about to listen."""
    async with (
        Relay(url) as relay,
        open_state(relay.url) as state,
        open_state(f"{url}&command_timeout=5") as other,
    ):
        relay.part_after(TELLING)
        worker = asyncio.create_task(state.claim_task(QUEUE, wait=LIMIT))
        try:
            async with asyncio.timeout(PATIENCE):
                await relay.parted.wait()
                return list(await other.add_tasks(QUEUE, ["a"]))
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


async def close_while_waiting(url: str, listens: bool) -> tuple[BaseException | None, int]:
    """Return what the worker was told, and how many connections are left."""
    async with open_state(url) as state:
        if listens:
            async with waiting(state) as worker:
                assert await listeners(url) == 1
                await state.aclose()
                error = await raised(worker)
        else:
            worker = asyncio.create_task(state.claim_task(QUEUE, wait=LIMIT))
            await until(lambda: state._client._unwatched is None)
            await asyncio.sleep(0)
            await state.aclose()
            error = await raised(worker)
    return error, await _connections(url)


async def use_without_waiting(url: str) -> None:
    async with open_state(url) as state:
        await _add(state)
        claim = await state.claim_task(QUEUE, wait=LIMIT)
        assert claim is not None
        await claim.complete()
        assert await state.claim_task(QUEUE) is None
        assert await listeners(url) == 0


async def notified_between(url: str) -> list[str]:
    """Return what another client was notified of."""
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as client,
        open_state(url) as other,
    ):
        rows = await (await client.execute("SELECT hashtext('rxlanggraph')")).fetchall()
        await client.execute(f'LISTEN "rxlanggraph_{rows[0][0]}"'.encode())
        told: list[str] = []
        client.add_notify_handler(lambda one: told.append(one.payload))
        await other.add_tasks("before", ["a"])
        async with open_state(url) as state, waiting(state):
            await other.add_tasks("between", ["a"])
        while await listeners(url):
            pass
        await other.add_tasks("after", ["a"])
        await client.execute("SELECT 1")
        return told


async def add_behind_pooler(url: str) -> tuple[Any, int]:
    """Return what a worker has claimed, and how many connections listened meanwhile."""
    async with open_state(url):
        pass
    async with (
        Pooler(url, "transaction") as pooler,
        open_state(pooler.url) as state,
        open_state(url) as other,
    ):
        worker = asyncio.create_task(state.claim_task(QUEUE, wait=LIMIT))
        client = state._client
        await until(lambda: client._unwatched is None and not client._background)
        async with asyncio.timeout(PATIENCE):
            await _add(other)
            claim = await worker
        assert claim is not None
        await claim.complete()
        return claim.item, await listeners(url)


async def wait_and_poll(url: str) -> Any:
    """Return what a worker has claimed."""
    async with open_state(url) as state, open_state(url) as other:
        worker = asyncio.create_task(state.claim_task(QUEUE, wait=LIMIT))
        await until(lambda: state._client._unwatched is None)
        async with asyncio.timeout(PATIENCE):
            await _add(other)
            claim = await worker
        assert claim is not None
        await claim.complete()
        return claim.item


# -- in another process ----------------------------------------------------------------------------


async def _add_one(url: str) -> None:
    async with open_state(url) as state:
        await _add(state)


if __name__ == "__main__":
    asyncio.run(_add_one(sys.argv[1]))
