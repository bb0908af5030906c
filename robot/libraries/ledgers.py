"""Keywords for the account of shared work: what was to be done, what was done, and by whom."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from faults import Told
from processes import PROGRAMS
from stores import Store

from rxlanggraph.state import State, Task, open_state

sys.path.append(str(PROGRAMS))
from state_worker import COUNTER, QUEUE

# An item is claimed anew after each fault that hits its worker: never so often by chance.
ATTEMPTS = 50


def add_items(store: Store, items: int) -> None:
    """Add so many items to the queue of state_worker.py."""

    async def add(state: State) -> None:
        tasks = [Task(number, key=str(number)) for number in range(items)]
        await state.add_tasks(QUEUE, tasks, max_attempts=ATTEMPTS)

    asyncio.run(_opened(store, add))


def add_items_to_lists(store: Store, items: int) -> None:
    """Make the lists of state_naively.py, of so many items each."""

    async def add(state: State) -> None:
        for way in ("popped", "read"):
            await state.set(way, list(range(items)))

    asyncio.run(_opened(store, add))


def account_of(store: Store, items: int, told: Told) -> dict[str, Any]:
    """Return what the store has, and all in which that, and what the workers told, disagree.

    Of a worker that was killed, or had no answer, the last step may have been done though it was
    not told: ``untold`` is how many such steps there may be of one kind.
    """
    return asyncio.run(_opened(store, lambda state: _account(state, items, told)))


async def _account(state: State, items: int, told: Told) -> dict[str, Any]:
    names = [str(item) for item in range(items)]
    stats = await state.stats(QUEUE)
    results = await state.results(QUEUE, keys=names)
    tokens = {int(name): result["token"] for name, result in results.items()}
    ledger = dict(enumerate(await _values(state, (f"effect:{name}" for name in names))))
    entered = Counter(entry["by"] for entry in ledger.values() if entry is not None)
    tallies = dict(
        zip(entered, await _values(state, (f"tally:{name}" for name in entered)), strict=True)
    )
    counter, _ = await state.get(COUNTER)
    attempts = sum(result["attempt"] for result in results.values())
    acknowledged = Counter(item for item, _ in told.done)
    return {
        "completed": stats.completed,
        "open": stats.waiting + stats.delayed + stats.claimed,
        "dead": stats.dead,
        "results": len(results),
        "acknowledged": len(acknowledged),
        "acknowledged_twice": [item for item, times in acknowledged.items() if times > 1],
        "acknowledged_to_others": [pair for pair in told.done if tokens.get(pair[0]) != pair[1]],
        "effects": sum(entry is not None for entry in ledger.values()),
        "effects_of_others": [
            item for item, entry in ledger.items() if entry and tokens.get(item) != entry["token"]
        ],
        "tallied": sum(tally or 0 for tally in tallies.values()),
        "wrong_tallies": [name for name, count in entered.items() if tallies[name] != count],
        "counter": counter,
        "counted": len(told.counted),
        "counted_twice": [n for n, times in Counter(told.counted).items() if times > 1],
        "attempts": attempts,
        "untold": told.happened["kill"] + told.happened["unanswered"],
        "refused": told.happened["refused"],
    }


def effects_of_naive_ways(store: Store, items: int) -> dict[str, dict[str, int]]:
    """Return how many items of each list have no effect in the end, and how many have several."""

    async def count(state: State) -> dict[str, dict[str, int]]:
        found = {}
        for way in ("popped", "read"):
            times = await _values(state, (f"{way}:{item}" for item in range(items)))
            found[way] = {
                "lost": times.count(None),
                "doubled": sum(count is not None and count > 1 for count in times),
            }
        return found

    return asyncio.run(_opened(store, count))


async def _values(state: State, keys: Iterable[str]) -> list[Any]:
    # All in one call, which the state itself does not offer.
    entries = await state.backend.read(list(keys))
    return [None if entry.text is None else json.loads(entry.text) for entry in entries]


async def _opened(store: Store, use: Any) -> Any:
    async with open_state(store.url) as state:
        return await use(state)
