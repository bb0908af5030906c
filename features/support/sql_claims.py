"""What claims in PostgreSQL look at, and what they find."""

from __future__ import annotations

import asyncio
from typing import Any

from rxlanggraph.state.sql import postgresql_queue
from support.sql_ways import add, opened, plain

__all__ = ["claim_beside_late", "complete_by_hand", "pages_of_claim"]

TIMED = "rxlanggraph_tasks_timed"


async def complete_by_hand(url: str, count: int) -> None:
    """Leave in the index what that many tasks leave there that were claimed and completed."""
    async with opened(url) as backend:
        await add(backend, *map(str, range(count)))
        with plain(url) as connection:
            connection.execute("ALTER TABLE rxlanggraph_tasks SET (autovacuum_enabled = false)")
            connection.execute("UPDATE rxlanggraph_tasks SET state = 'claimed', due = seq")
            connection.execute("UPDATE rxlanggraph_tasks SET state = 'completed'")
        await add(backend, *[f"open {number}" for number in range(10)])


def pages_of_claim(url: str, hindsight: float) -> int:
    """How many pages a claim reads of the index of what falls due."""
    with plain(url) as connection:
        cursor = connection.cursor()
        cursor.execute("SET enable_seqscan = off")
        cursor.execute("SELECT id FROM rxlanggraph_queues")
        ((number,),) = cursor.fetchall()
        types = "integer, text, double precision, double precision"
        cursor.execute(f"PREPARE claim ({types}) AS {postgresql_queue._CLAIM}")
        values = f"{number}, 'worker', 30, {hindsight}"
        plans: list[Any] = []
        for _ in range(2):  # the first one notes in the index what is dead
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE claim ({values})")
            plans.append(cursor.fetchone()[0][0]["Plan"])
    (scan,) = [node for node in _nodes(plans[-1]) if node.get("Index Name") == TIMED]
    return int(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])


def _nodes(plan: Any) -> list[Any]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in _nodes(child))]


async def claim_beside_late(url: str) -> list[str | None]:
    """Claim with a task coming to light that fell due an hour ago; return what was claimed."""
    async with opened(url) as backend:
        await add(backend, *"abcd")
        await backend.task_claim("queue", "worker", 30.0)  # so that the queue is known
        (queue,) = backend._database._queues.values()  # type: ignore[attr-defined]
        clock = asyncio.get_running_loop().time() + 10
        queue._time = lambda: clock

        async def claim() -> str | None:
            task = await backend.task_claim("queue", "worker", 30.0)
            return None if task is None else task.id

        claimed = [await claim()]
        with plain(url) as connection:
            connection.execute(
                "UPDATE rxlanggraph_tasks SET priority = 1, state = 'delayed',"
                " due = rxlanggraph_now() - 3600 WHERE id = 'd'"
            )
        clock += 0.2
        claimed.append(await claim())
        clock += 0.05
        claimed.append(await claim())
        return claimed
