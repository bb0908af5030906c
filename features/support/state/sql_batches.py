"""Calls that go together: on a database that answers when it is told to, and on real ones."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from unittest import mock

from rxlanggraph.state.backend import ClaimedTask, NewTask
from rxlanggraph.state.backends.sql.postgresql.batcher import Batcher
from rxlanggraph.state.backends.sql.postgresql.fast_path import QueueFastPath
from rxlanggraph.state.backends.sql.sqlite.database import SESSION
from rxlanggraph.state.backends.sql.sqlite.file import path_of
from rxlanggraph.state.backends.sql.sqlite.session import Call, SqliteSession
from support.concurrency.tasks import pass_turns
from support.state.claims_cancelled import gate_after
from support.state.sql_ways import add, opened, plain, value_of

__all__ = [
    "Told",
    "claim_again",
    "claim_beside_a_sweep",
    "claim_beside_another",
    "claim_by",
    "claim_while_locked",
    "count_beside",
    "count_while_locked",
]


class Told:
    """A database that notes what it is sent. Each of its methods is called on one loop."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.callers: list[asyncio.Task[str]] = []
        # Batcher that were cancelled, and which of their callers had ended by then.
        self.cancelled: list[tuple[list[int], list[bool]]] = []
        self._batcher: Batcher[int, str] = Batcher(self._send)
        self._answer: asyncio.Future[None] | None = None

    async def _send(self, calls: Sequence[int]) -> Sequence[str]:
        self.sent.append([*calls])
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await self._answer
        except asyncio.CancelledError:
            self.cancelled.append(([*calls], [self.callers[call].done() for call in calls]))
            raise
        return [f"answer to {call}" for call in calls]

    async def make(self, calls: int) -> None:
        for _ in range(calls):
            call = self._batcher.call(len(self.callers))
            self.callers.append(asyncio.create_task(call))
        await pass_turns()

    async def cancel(self, callers: Sequence[int]) -> None:
        for caller in callers:
            self.callers[caller].cancel()
        await pass_turns()

    async def answer(self) -> bool:
        """Whether there was something to answer."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(None)
        await pass_turns()
        return True

    async def answer_all(self) -> None:
        while await self.answer():
            pass

    async def answer_and_cancel_all(self) -> None:
        assert self._answer is not None
        self._answer.set_result(None)
        # The turn in which the one who went alone makes the task of the batch.
        await asyncio.sleep(0)
        new = asyncio.all_tasks() - {asyncio.current_task(), *self.callers}
        assert len(new) == 1, new
        for task in [*new, *self.callers]:
            task.cancel()
        await pass_turns()

    async def fail(self, error: Exception) -> None:
        assert self._answer is not None
        self._answer.set_exception(error)
        await pass_turns()


# -- on real ones ----------------------------------------------------------------------------------


async def count_beside(
    url: str, times: int, *keys: str, cancelled: int = 0, before: Callable[[], None] = lambda: None
) -> tuple[list[object], int]:
    """Increment so many times, and ``keys``, while the thread of SQLite reads; cancel some.

    Returns:
        What they ended with, and what the count came to.
    """
    async with opened(url) as backend:
        before()
        with gate_after("SELECT") as gate:
            reading = asyncio.ensure_future(backend.read(["n"]))
            await gate.reached()
            calls = [
                asyncio.ensure_future(backend.increment(key, 1, None))
                for key in (*["n"] * times, *keys)
            ]
            await pass_turns()
            for call in calls[:cancelled]:
                call.cancel()
            await pass_turns()
        await reading
        ended = await asyncio.gather(*calls, return_exceptions=True)
        return [*ended], int(await value_of(backend, "n") or 0)


async def count_while_locked(url: str, times: int, reads: int) -> int:
    """What increments come to at whose begin another connection has the file, for so many reads."""
    async with opened(url) as backend:
        with plain(url) as other:
            other.execute("BEGIN IMMEDIATE")
            writes = [asyncio.ensure_future(backend.increment("n", 1, None)) for _ in range(times)]
            for _ in range(reads):
                assert await value_of(backend, "n") is None, "it is written while it was locked"
            other.execute("ROLLBACK")
        await asyncio.gather(*writes)
        return int(await value_of(backend, "n") or 0)


async def claim_by(
    url: str, tasks: int, workers: int
) -> tuple[list[ClaimedTask | None], dict[str, int]]:
    """What each of the workers has got, and how many tasks each has as the database sees it."""
    async with opened(url) as backend:
        new = [NewTask(f"{n}", f"{n}", None, n, 0.0, None, 5) for n in range(tasks)]
        if new:
            await backend.tasks_add("queue", new)
        calls = [backend.task_claim("queue", f"worker {n}", 60.0) for n in range(workers)]
        claimed = await asyncio.gather(*calls)
        stats = await backend.tasks_stats("queue")
        return claimed, dict(stats.by_worker)


async def claim_while_locked(url: str, workers: int) -> list[ClaimedTask | None]:
    """What workers get from an empty queue while another connection has the file."""
    async with opened(url) as backend:
        with plain(url) as other:
            other.execute("BEGIN IMMEDIATE")
            calls = [backend.task_claim("queue", "worker", 60.0) for _ in range(workers)]
            claimed = await asyncio.gather(*calls)
            other.execute("ROLLBACK")
        return [*claimed]


def claim_beside_another(url: str, tasks: int) -> Sequence[Any]:
    """What is claimed while another session claims, too, after each look of the first one."""
    arguments = ("test", "queue", "worker", 60.0)
    with sessions(url, 2) as (one, other):
        do(one, "prepare")
        columns = (*map(str, range(tasks)),), ["1"] * tasks, [None] * tasks, [0] * tasks
        # Due, and not ready before a sweep.
        more = [1e-6] * tasks, [None] * tasks, [5] * tasks
        do(one, "tasks_add", "test", "queue", *columns, *more)
        query = one.query

        def look(statement: str, *values: Any) -> list[Any]:
            rows = query(statement, *values)
            if statement.startswith("SELECT"):
                assert do(other, "task_claim", *arguments)
            return rows

        with mock.patch.object(one, "query", look):
            return do(one, "task_claim", *arguments)


async def claim_beside_a_sweep(url: str) -> Sequence[ClaimedTask]:
    """What is claimed while another session of PostgreSQL is sweeping the only task."""
    async with opened(url) as backend:
        await add(backend, "0")
        assert await backend.task_claim("queue", "worker", 1e-6) is not None
        swept, sweep = asyncio.Event(), QueueFastPath._sweep

        async def note(queue: QueueFastPath, *call: Any) -> Sequence[Any]:
            rows = await sweep(queue, *call)
            swept.set()
            return rows

        with plain(url) as other, mock.patch.object(QueueFastPath, "_sweep", note):
            other.execute("BEGIN")
            other.execute("SELECT rxlanggraph_sweep(id, rxlanggraph_now()) FROM rxlanggraph_queues")
            claim = asyncio.ensure_future(backend.task_claim("queue", "worker", 60.0))
            await swept.wait()
            other.execute("COMMIT")
            task = await claim
        return [] if task is None else [task]


@contextmanager
def sessions(url: str, count: int) -> Iterator[list[SqliteSession]]:
    """Connections like that of the backend, in this thread."""
    path = path_of(url)
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                closing(sqlite3.connect(path, factory=SESSION, isolation_level=None))
            )
            for _ in range(count)
        ]


def do(session: SqliteSession, procedure: str, *arguments: Any) -> Sequence[Any]:
    (outcome,) = session.do([Call(procedure, arguments)])
    assert not isinstance(outcome, Exception), outcome
    return outcome


async def claim_again(url: str, tasks: int) -> list[list[ClaimedTask]]:
    """What is claimed at the same time with leases that end at once, and then again."""
    async with opened(url) as backend:
        # Where the calls do not come together, the first task is claimed again and again: more
        # often than once for each call it cannot be.
        new = [NewTask(f"{n}", f"{n}", None, 0, 0.0, None, 2 * tasks) for n in range(tasks)]
        await backend.tasks_add("queue", new)
        rounds = []
        for lease in (1e-6, 60.0):
            calls = [backend.task_claim("queue", "worker", lease) for _ in range(tasks)]
            rounds.append([task for task in await asyncio.gather(*calls) if task is not None])
        return rounds
