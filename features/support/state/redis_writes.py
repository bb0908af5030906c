"""The writes of the Redis backend that must not take effect twice, and what they leave behind."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from rxlanggraph.state.backend import Backend, ClaimedTask, NewTask, Write

__all__ = ["QUEUE", "WRITES", "Prepared", "prepare", "seen", "without_numbers"]

QUEUE = "queue"


class Prepared(NamedTuple):
    """A backend that has something of everything."""

    backend: Backend
    version: int
    lock: int
    claim: ClaimedTask


def task(name: str, attempts: int = 2) -> NewTask:
    return NewTask(name, f'"{name}"', f"key of {name}", 0, 0.0, None, attempts)


async def prepare(backend: Backend) -> Prepared:
    written = await backend.commit({"value": Write("1")}, {})
    lock = await backend.lock_acquire("lock", "owner", 60.0)
    await backend.tasks_add(QUEUE, [task("done"), task("dead", 1), task("too", 1), task("mine")])
    await backend.tasks_add(QUEUE, [task("next"), task("last")])
    claims = [await backend.task_claim(QUEUE, "worker", 60.0) for _ in range(4)]
    done, dead, too, mine = claims
    assert done and dead and too and mine and written and lock
    await backend.task_complete(QUEUE, done.id, done.token, '"result"')
    await backend.task_fail(QUEUE, dead.id, dead.token, '"error"', 0.0)
    await backend.task_fail(QUEUE, too.id, too.token, '"error"', 0.0)
    return Prepared(backend, written["value"].after, lock, mine)


WRITES: dict[str, Callable[[Prepared], Awaitable[Any]]] = {
    "an increment": lambda at: at.backend.increment("counter", 5, None),
    "a set": lambda at: at.backend.commit({"value": Write("2")}, {}),
    "a compare-and-set": lambda at: at.backend.commit({"value": Write("2")}, {"value": at.version}),
    "a deletion": lambda at: at.backend.commit({"value": Write(None)}, {}),
    "a transaction": lambda at: at.backend.commit(
        {"value": Write(None), "counter": Write("7", ttl=60.0)}, {"value": at.version, "none": 0}
    ),
    "a lock's release": lambda at: at.backend.lock_release("lock", at.lock),
    "a claim": lambda at: at.backend.task_claim(QUEUE, "worker", 60.0),
    "a failure": lambda at: at.backend.task_fail(QUEUE, at.claim.id, at.claim.token, '"no"', 0.0),
    "a task's release": lambda at: at.backend.task_release(QUEUE, at.claim.id, at.claim.token),
    "a requeue": lambda at: at.backend.tasks_requeue(QUEUE, ["dead", "too"]),
    "a purge": lambda at: at.backend.tasks_purge_step(QUEUE, ["dead", "completed"], None),
}


async def seen(backend: Backend) -> list[str]:
    """All that can be read, the numbers of the counter left out; it takes what can be claimed."""
    facts: list[Any] = [
        await backend.read(["value", "counter"]),
        await backend.lock_acquire("lock", "another", 60.0),
        await backend.tasks_stats(QUEUE),
        await backend.tasks_dead_page(QUEUE, None, 100),
        await backend.tasks_results_page(QUEUE, None, 100),
    ]
    while claim := await backend.task_claim(QUEUE, "another", 60.0):
        facts.append(claim)
    return [without_numbers(fact) for fact in facts]


def without_numbers(fact: Any) -> str:
    """The fact as text; what is drawn from the counter is different each time."""
    return re.sub(r"\d{16}", "NUMBER", repr(fact))
