"""What is done to a PostgreSQL server under the backend, and to its connections."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from psycopg.errors import DeadlockDetected, LockNotAvailable

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import open_state
from rxlanggraph.state.backend import Backend, Write
from rxlanggraph.state.backends.sql.postgresql.pool import Pool
from support.concurrency.tasks import PATIENCE
from support.servers.relay import Relay
from support.state.sql_ways import add, opened, plain, value_of

__all__ = [
    "cancel_in_line",
    "claim_beside",
    "claim_without_connection",
    "count_at_once",
    "count_through",
    "count_with_options",
    "meet_in_deadlock",
    "open_beside_lost_opener",
    "pause_and_count",
    "probing_of",
]

# In this database: a busy server may be late to end what was connected to another one.
_OURS = "application_name = 'rxlanggraph' AND datname = current_database()"
ACTIVITY = f"SELECT count(*) FROM pg_stat_activity WHERE {_OURS}"
WAITING = f"{ACTIVITY} AND wait_event_type = 'Lock'"


async def asked(connection: Any, statement: str) -> Any:
    """What another connection is told, asked in a thread: the loop is not to wait for it."""
    return await asyncio.to_thread(lambda: connection.execute(statement).fetchone()[0])


async def until(connection: Any, statement: str, number: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asked(connection, statement) != number:
            pass  # each turn waits for an answer


# -- the server ------------------------------------------------------------------------------------


class Counting:
    """Tasks that count until they are told to stop. Confined to the loop."""

    def __init__(self, backend: Backend) -> None:
        self.answered = 0
        self.in_doubt = 0
        self._backend = backend
        self._stop = False
        self._more = asyncio.Event()

    async def work(self) -> None:
        while not self._stop:
            try:
                await self._backend.increment("n", 1, None)
            except StateUnavailableError as error:
                self.in_doubt += error.in_doubt
                await asyncio.sleep(0.01)  # it is away: no need to spin
            else:
                self.answered += 1
                self._more.set()

    async def wait_answered(self, more: int) -> None:
        enough = self.answered + more
        while self.answered < enough:
            self._more.clear()
            await asyncio.wait_for(self._more.wait(), PATIENCE)

    def stop(self) -> None:
        self._stop = True


async def count_through(url: str, event: Callable[[], object], tasks: int) -> tuple[Counting, int]:
    """Count while ``event`` happens to the server; return the counts, and the counter."""
    async with opened(url) as backend:
        counting = Counting(backend)
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(counting.work())
            await counting.wait_answered(50)
            await asyncio.to_thread(event)
            await counting.wait_answered(50)
            counting.stop()
        return counting, int(await value_of(backend, "n") or 0)


async def pause_and_count(url: str) -> tuple[BaseException | int, int]:
    """What an increment ends with when the server says nothing, and the next one."""
    async with opened(url) as backend:
        await backend.increment("n", 1, None)
        with plain(url) as other:
            process = await asked(other, f"SELECT pid FROM pg_stat_activity WHERE {_OURS}")
            os.kill(process, signal.SIGSTOP)
            (ended,) = await asyncio.gather(backend.increment("n", 1, None), return_exceptions=True)
            os.kill(process, signal.SIGCONT)
            await until(other, ACTIVITY, 0)
        return ended, await backend.increment("n", 1, None)


# -- connections -----------------------------------------------------------------------------------


async def claim_without_connection(url: str) -> BaseException:
    """What a claim of a state ends with while others have all the connections."""
    async with open_state(url) as state:
        pool = state.backend._database._pool  # type: ignore[attr-defined]  # of this backend
        lines = [await pool.take() for _ in range(8)]
        pool._timeout = 0.3  # only now: a busy server may take longer to connect
        async with asyncio.timeout(PATIENCE):
            (ended,) = await asyncio.gather(state.claim_task("queue"), return_exceptions=True)
        for line in lines:
            pool.give_back(line)
        assert isinstance(ended, BaseException), ended
        return ended


async def count_at_once(url: str, calls: int) -> tuple[int, int]:
    """Return what so many increments at once come to, and over how many connections."""
    async with opened(url) as backend:
        counted = await asyncio.gather(*[backend.increment("n", 1, None) for _ in range(calls)])
        with plain(url) as other:
            return max(counted), await asked(other, ACTIVITY)


class Counted(NamedTuple):
    """What increments have come to, over how many connections, with which limit on the server."""

    counter: int
    connections: int
    limit: str


async def count_with_options(url: str, options: str, calls: int) -> Counted:
    """Make so many increments at once, with options of our own in the URL."""
    async with opened(f"{url}&{options}") as backend:
        counted = await asyncio.gather(*[backend.increment("n", 1, None) for _ in range(calls)])
        limit = "SELECT current_setting('statement_timeout')"
        rows = await backend._database._pool.fetch(limit, ())  # type: ignore[attr-defined]
        with plain(url) as other:
            return Counted(max(counted), await asked(other, ACTIVITY), rows[0][0])


async def probing_of(url: str) -> tuple[list[int], list[str]]:
    """When the client's end of a connection probes the server's, and how the server's does."""
    pool = Pool(url)
    pooled = await pool.take()
    names = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
    try:
        end = pooled._socket
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        client = [end.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        asked = [f"current_setting('{name}')" for name in (*names, "tcp_user_timeout")]
        cursor = await pooled.connection.execute(f"SELECT {', '.join(asked)}".encode())
        row = await cursor.fetchone()
        assert row is not None
        return client, list(row)
    finally:
        pool.give_back(pooled)
        pool.close()


async def open_beside_lost_opener(url: str) -> bool:
    """Open an empty store whose tables another process, which the network loses, was creating."""
    async with Relay(url) as relay:
        relay.part_after(b"CREATE TABLE")
        lost = asyncio.create_task(_opened(f"{relay.url}&command_timeout=3"))
        try:
            async with asyncio.timeout(PATIENCE):
                await relay.parted.wait()
                return await _opened(f"{url}&command_timeout=20")
        finally:
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)


async def _opened(url: str) -> bool:
    async with open_state(url):
        return True


async def cancel_in_line(url: str, calls: int) -> tuple[bool, int, int]:
    """Cancel calls that wait for a lock on the server.

    Returns:
        Whether all were cancelled, how many still wait on the server, and what the next comes to.
    """
    async with opened(url) as backend:
        await backend.increment("n", 1, None)
        with plain(url) as other, plain(url) as observer:
            other.execute("BEGIN")
            other.execute("SELECT FROM rxlanggraph_entries FOR UPDATE")
            waiting = [asyncio.ensure_future(backend.increment("n", 1, None)) for _ in range(calls)]
            await until(observer, WAITING, calls)
            for call in waiting:
                call.cancel()
            await asyncio.wait(waiting)
            left = await asked(observer, WAITING)
            other.execute("ROLLBACK")
        cancelled = all(call.cancelled() for call in waiting)
        return cancelled, left, await backend.increment("n", 1, None)


# -- what others hold ------------------------------------------------------------------------------


async def claim_beside(url: str, way: str) -> str:
    """Claim while another client holds the first of two tasks; return which one it was."""
    async with opened(url) as backend:
        await add(backend, "first", "second")
        with plain(url) as other:
            other.execute("BEGIN")
            other.execute("SELECT FROM rxlanggraph_tasks WHERE id = 'first' FOR UPDATE")
            return await CLAIMS[way](backend, url)


async def _claim_by_backend(backend: Backend, url: str) -> str:
    claimed = await backend.task_claim("queue", "worker", 60.0)
    return claimed.id if claimed else "none"


async def _claim_by_hand(backend: Backend, url: str) -> str:
    """The first that is free when one looks; it may not be any more when one has it."""
    with plain(url) as connection:
        connection.execute("SET lock_timeout = 100")
        try:
            return await asked(
                connection,
                "UPDATE rxlanggraph_tasks SET state = 'claimed' WHERE seq ="
                " (SELECT min(seq) FROM rxlanggraph_tasks WHERE state = 'ready') RETURNING id",
            )
        except LockNotAvailable:
            return "none"


CLAIMS: dict[str, Callable[[Backend, str], Awaitable[str]]] = {
    "the backend": _claim_by_backend,
    "one that does not skip": _claim_by_hand,
}

# So that the server picks ours as the one to end, after both wait for each other.
_SOON = "&options=-c%20deadlock_timeout%3D1500ms"
_LATE = "SET LOCAL deadlock_timeout = '60s'"
_HOLD = "SELECT pg_advisory_xact_lock(1920494187, hashtext('test/a') & 1023)"


async def meet_in_deadlock(url: str, way: str) -> str | None:
    """Write a and b while another client holds b and wants a; return what is under b then."""
    async with opened(url + _SOON) as backend:
        await backend.commit({"a": Write("0"), "b": Write("0")}, {})
        with plain(url) as other, plain(url) as observer:
            other.execute("BEGIN")
            other.execute(_LATE)
            other.execute("UPDATE rxlanggraph_entries SET item = '1' WHERE key = 'b'")
            write = asyncio.ensure_future(WRITES[way](backend, url))
            await until(observer, WAITING, 1)
            await asyncio.to_thread(other.execute, _HOLD)  # ends when the write is ended
            other.execute("COMMIT")
            await write
        return await value_of(backend, "b")


async def _write_by_backend(backend: Backend, url: str) -> None:
    await backend.commit({"a": Write("2"), "b": Write("2")}, {})


async def _write_by_hand(backend: Backend, url: str) -> None:
    def write() -> None:
        with plain(f"{url}{_SOON}&application_name=rxlanggraph") as connection:
            try:
                connection.execute("BEGIN")
                connection.execute(_HOLD)
                connection.execute("UPDATE rxlanggraph_entries SET item = '2' WHERE key = 'b'")
                connection.execute("COMMIT")
            except DeadlockDetected:
                pass  # logged, perhaps

    await asyncio.to_thread(write)


WRITES: dict[str, Callable[[Backend, str], Awaitable[None]]] = {
    "the backend": _write_by_backend,
    "a transaction by hand": _write_by_hand,
}
