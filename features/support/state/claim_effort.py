"""How much a database does for claims with a limit, by its own account: the time says less."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from rxlanggraph.state import State, Task, open_state
from rxlanggraph.state.backends.sql.sqlite import database
from support.concurrency.waiting import LIMIT
from support.state.arriving import QUEUE
from support.state.sql_ways import plain

__all__ = ["effort_of_claims"]

MOST = 4
CLAIMS = 20
LONG = 1e6  # seconds
IN_ONE_STEP = 10_000


async def effort_of_claims(url: str, delayed: int, *, has_index: bool) -> int:
    """What is done for claims beside so many delayed tasks, added after the first claims."""
    measured = _steps_of_sqlite() if url.startswith("sqlite") else _pages_of_postgresql(url)
    with measured as measure:
        async with open_state(url) as state, asyncio.timeout(LIMIT):
            if not has_index:
                with plain(url) as connection:
                    connection.execute("DROP INDEX IF EXISTS rxlanggraph_tasks_claimed")
            await _claim(state)
            async with open_state(url) as other:
                await _add_delayed(other, delayed)
            before = await measure(1)
            await _claim(state)
        return await measure(0) - before


async def _claim(state: State) -> None:
    """Claim one after the other; and in vain, once as many are claimed as may be."""
    state.declare_queue(QUEUE, max_claimed=MOST)
    await state.add_tasks(QUEUE, range(CLAIMS + MOST))
    for _ in range(CLAIMS):
        claim = await state.claim_task(QUEUE)
        assert claim is not None
        await claim.complete()
    held = [await state.claim_task(QUEUE) for _ in range(MOST + CLAIMS)]
    assert held[MOST:] == [None] * CLAIMS, held
    for claim in held[:MOST]:
        assert claim is not None
        await claim.complete()


async def _add_delayed(state: State, count: int) -> None:
    tasks = (Task(number, delay=LONG + number) for number in range(count))
    while batch := [*itertools.islice(tasks, IN_ONE_STEP)]:
        await state.add_tasks(QUEUE, batch)


# -- measures --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _steps_of_sqlite() -> Iterator[Callable[[int], Any]]:
    """Hundreds of instructions of SQLite's virtual machine."""
    steps = itertools.count()  # next() is called by the threads of the file, one at a time

    class Counting(database.SESSION):  # type: ignore[misc,valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.set_progress_handler(lambda: next(steps) < 0, 100)

    async def measure(_: int) -> int:
        return next(steps)

    with mock.patch.object(database, "SESSION", Counting):
        yield measure


@contextlib.contextmanager
def _pages_of_postgresql(url: str) -> Iterator[Callable[[int], Any]]:
    """Pages of the indexes of tasks, counted once a session has ended, but for so many new ones."""
    with plain(url) as connection:
        # Which reads indexes too, and has plans made again, both at any moment.
        connection.execute("ALTER TABLE rxlanggraph_tasks SET (autovacuum_enabled = false)")
        known = _sessions(connection)

    async def measure(new: int) -> int:
        with plain(url) as connection:
            async with asyncio.timeout(LIMIT):
                while _sessions(connection) > known + new:  # noqa: ASYNC110 - the server sends no notice
                    await asyncio.sleep(0.01)
            cursor = connection.execute(
                "SELECT sum(idx_blks_read + idx_blks_hit) FROM pg_statio_user_indexes"
                " WHERE relname = 'rxlanggraph_tasks'"
            )
            return int(cursor.fetchone()[0])

    yield measure


def _sessions(connection: Any) -> int:
    """How many others there are."""
    connection.execute("SELECT pg_stat_clear_snapshot()")
    cursor = connection.execute(
        "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()"
    )
    return int(cursor.fetchone()[0])
