"""What claims in PostgreSQL look at, and what they find."""

from __future__ import annotations

import asyncio
from typing import Any

from rxlanggraph.errors import StateUnavailableError
from rxlanggraph.state import Task, open_state
from rxlanggraph.state.backend import Backend
from rxlanggraph.state.backends.sql.postgresql import fast_path
from support.concurrency.waiting import LIMIT
from support.state.sql_ways import add, opened, plain

__all__ = [
    "claim_beside_late",
    "claim_between_full_searches",
    "claim_from_tables_made_anew",
    "claim_together_beside_late",
    "claim_without_second_search",
    "complete_by_hand",
    "grow_at_once",
    "pages_of_claim",
    "pages_of_looks",
]

TIMED = "rxlanggraph_tasks_timed"
READY = "rxlanggraph_tasks_ready"


async def complete_by_hand(url: str, count: int) -> None:
    """Leave in the index what that many tasks leave there that were claimed and completed."""
    async with opened(url) as backend:
        await add(backend, *map(str, range(count)))
        with plain(url) as connection:
            connection.execute("ALTER TABLE rxlanggraph_tasks SET (autovacuum_enabled = false)")
            connection.execute("UPDATE rxlanggraph_tasks SET state = 'claimed', due = seq")
            connection.execute("UPDATE rxlanggraph_tasks SET state = 'completed'")
        await add(backend, *[f"open {number}" for number in range(10)])


async def grow_at_once(url: str, added: int, done: int, *, in_one_step: bool) -> int:
    """How many entries of indexes are read in all, with plans that were made for a few tasks."""
    async with open_state(f"{url}&pool_size=1") as state:

        async def work(count: int, *, in_one_step: bool) -> None:
            claims = []
            if in_one_step:
                claims = await state.claim_tasks("queue", count)
                assert not await state.complete_tasks([(claim, None) for claim in claims])
            else:
                while len(claims) < count and (claim := await state.claim_task("queue")):
                    await claim.complete(None)
                    claims.append(claim)
            assert len(claims) == count, claims

        def tasks(count: int, name: str) -> list[Task]:
            # Each alone on its thread: its completion looks for the next one.
            return [Task(number, thread_id=f"{name} {number}") for number in range(count)]

        with plain(url) as connection:
            connection.execute("ALTER TABLE rxlanggraph_tasks SET (autovacuum_enabled = false)")
        await state.add_tasks("queue", tasks(100, "few"))
        await work(60, in_one_step=True)  # which leaves more in one index than in another
        await work(20, in_one_step=False)
        await state.add_tasks("queue", tasks(added, "many"))
        await work(done, in_one_step=in_one_step)
    return await _entries_read(url)


async def _entries_read(url: str) -> int:
    """How many entries of indexes were read by sessions that have ended, for which it waits."""
    with plain(url) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        async with asyncio.timeout(LIMIT):
            while cursor.fetchone()[0] > 1:
                await asyncio.sleep(0.01)
                cursor.execute("SELECT pg_stat_clear_snapshot()")
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                )
        cursor.execute("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes")
        return int(cursor.fetchone()[0])


def pages_of_claim(url: str, hindsight: float) -> int:
    """How many pages a claim reads of the index of what falls due."""
    with plain(url) as connection:
        cursor = connection.cursor()
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SELECT id FROM rxlanggraph_queues")
        ((number,),) = cursor.fetchall()
        types = "integer, text, double precision, double precision"
        cursor.execute(f"PREPARE claim ({types}) AS {fast_path._CLAIM.any}")
        values = f"{number}, 'worker', 30, {hindsight}"
        plans: list[Any] = []
        for _ in range(2):  # the first one notes in the index what is dead
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE claim ({values})")
            plans.append(cursor.fetchone()[0][0]["Plan"])
    (scan,) = [node for node in _nodes(plans[-1]) if node.get("Index Name") == TIMED]
    return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])


def pages_of_looks(url: str, count: int) -> tuple[int, int]:
    """Read by a claim beside a transaction that sees all that was claimed: by any, by one behind.

    Pages of what is ready, and of the tasks that it leads to.
    """
    with plain(url) as other, plain(url) as connection:
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM rxlanggraph_tasks")
        connection.execute(
            "UPDATE rxlanggraph_tasks SET state = 'completed' WHERE seq <= $1".replace(
                "$1", str(count)
            )
        )
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_bitmapscan = off")
        ((number,),) = connection.execute("SELECT id FROM rxlanggraph_queues").fetchall()
        bounds = f"{number}, 'worker', 30, 1"
        read = [
            _pages_of_ready(connection, fast_path._CLAIM.any, bounds),
            _pages_of_ready(connection, fast_path._CLAIM.behind, f"{bounds}, 0, {count}"),
        ]
        other.execute("ROLLBACK")
    return read[0], read[1]


def _pages_of_ready(connection: Any, claim: str, values: str) -> int:
    types = "integer, text, double precision, double precision, integer, bigint"
    known = ", ".join(types.split(", ")[: values.count(",") + 1])
    connection.execute(f"PREPARE claim ({known}) AS {claim}", prepare=False)
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE claim ({values})"
    plan = connection.execute(explained).fetchone()[0][0]["Plan"]
    connection.execute("DEALLOCATE claim")
    (scan,) = [node for node in _nodes(plan) if node.get("Index Name") == READY]
    return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])


async def claim_between_full_searches(url: str) -> list[str | None]:
    """What is claimed after a full search, the first task given back, and after the next one."""
    async with opened(url) as backend:
        await add(backend, *"abcde")
        first = await backend.task_claim("queue", "worker", 60.0)
        assert first is not None
        (queue,) = backend._database._fast_path._queues.values()  # type: ignore[attr-defined]
        clock = queue._time() + 10
        queue._time = lambda: clock

        async def claim() -> str | None:
            task = await backend.task_claim("queue", "worker", 60.0)
            return None if task is None else str(task.text)

        claimed = [await claim()]
        await backend.task_release("queue", first.id, first.token)
        claimed.append(await claim())
        clock += 10
        return [*claimed, *[await claim() for _ in range(4)]]


def _nodes(plan: Any) -> list[Any]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in _nodes(child))]


class Late:
    """Tasks, one of which comes to light long after it fell due, right after a full search."""

    def __init__(self, url: str, backend: Backend) -> None:
        self._url = url
        self._backend = backend
        self._clock = asyncio.get_running_loop().time() + 10

    async def prepare(self, *others: str) -> None:
        await add(self._backend, "first", "second", "late", *others)
        await self.claim()  # so that the queue is known
        (queue,) = self._backend._database._fast_path._queues.values()  # type: ignore[attr-defined]
        queue._time = lambda: self._clock
        await self.claim()  # with a full search
        with plain(self._url) as connection:
            connection.execute(
                "UPDATE rxlanggraph_tasks SET priority = 1, state = 'delayed',"
                " due = rxlanggraph_now() - 3600 WHERE id = 'late'"
            )

    async def claim(self, after: float = 0.0) -> str | None:
        self._clock += after
        task = await self._backend.task_claim("queue", "worker", 30.0)
        return None if task is None else task.id


async def claim_beside_late(url: str) -> list[str | None]:
    """Claim before and after the next full search."""
    async with opened(url) as backend:
        late = Late(url, backend)
        await late.prepare("a", "b")
        return [await late.claim(0.2), await late.claim(0.05)]


async def claim_together_beside_late(url: str) -> list[str | None]:
    """Let four claim at the same time, before the next full search."""
    async with opened(url) as backend:
        late = Late(url, backend)
        await late.prepare("a", "b")
        return await asyncio.gather(*[late.claim() for _ in range(4)])


async def claim_without_second_search(url: str) -> list[str | BaseException | None]:
    """Let four claim at the same time what are two tasks, with the statements alone."""

    async def away(*_: Any) -> Any:
        raise StateUnavailableError("the server does not answer", in_doubt=False)

    async with opened(url) as backend:
        late = Late(url, backend)
        await late.prepare("a", "b")
        (queue,) = backend._database._fast_path._queues.values()  # type: ignore[attr-defined]
        queue._call = away
        return await asyncio.gather(*[late.claim() for _ in range(4)], return_exceptions=True)


async def claim_from_tables_made_anew(url: str, how: str) -> tuple[list[str | None], bool]:
    """Claim from a queue whose tables were made anew; and again when it has something.

    Returns:
        What was claimed; whether after some more claims its new number is known.
    """
    async with opened(url) as backend:

        async def claim() -> str | None:
            task = await backend.task_claim("queue", "worker", 30.0)
            return None if task is None else task.id

        await add(backend, "before")
        await claim()
        with plain(url) as connection:
            if how.startswith("emptied"):
                connection.execute(
                    "TRUNCATE rxlanggraph_queues, rxlanggraph_tasks RESTART IDENTITY"
                )
            else:
                connection.execute("DROP SCHEMA public CASCADE")
                connection.execute("CREATE SCHEMA public")
        async with open_state(url, namespace="other") as other:
            await other.add_tasks("secret", ["not yours"])
        claimed = [await claim()]
        await add(backend, "after", *map(str, range(25)))
        claimed.append(await claim())
        for _ in range(25):
            await claim()
        with plain(url) as connection:
            cursor = connection.execute("SELECT id FROM rxlanggraph_queues WHERE name = 'queue'")
            (row,) = cursor.fetchall()
        (queue,) = backend._database._fast_path._queues.values()  # type: ignore[attr-defined]
        return claimed, row == (queue.number,)
