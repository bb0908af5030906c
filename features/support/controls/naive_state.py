"""Naive ways to share state and work. Each is written as one finds it; each loses something.

Between the reading and the writing of each there is one turn of the loop, as there is wherever
something is awaited, or a thread's turn ends.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["FileStore", "GlobalStore", "PoppingQueue", "RowStore", "TaskList", "TimedQueue"]


class GlobalStore:
    """A global dictionary."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def read(self, key: str) -> Any:
        return self.values.get(key)

    def write(self, key: str, value: Any) -> None:
        self.values[key] = value

    async def safe_update(self, key: str, fn: Callable[[Any], Any]) -> None:
        value = self.read(key)
        await asyncio.sleep(0)
        self.write(key, fn(value))

    async def get(self, key: str) -> Any:
        return self.read(key)


class FileStore(GlobalStore):
    """A JSON file that is read, changed and written back."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.json"
        self._path.write_text("{}")

    def read(self, key: str) -> Any:
        return json.loads(self._path.read_text()).get(key)

    def write(self, key: str, value: Any) -> None:
        self._path.write_text(json.dumps({key: value}))


class RowStore(GlobalStore):
    """A row of a table, selected and then updated."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", isolation_level=None)
        self._database.execute("CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT)")

    def read(self, key: str) -> Any:
        row = self._database.execute("SELECT value FROM state WHERE key = ?", [key]).fetchone()
        return None if row is None else json.loads(row[0])

    def write(self, key: str, value: Any) -> None:
        self._database.execute("REPLACE INTO state VALUES (?, ?)", [key, json.dumps(value)])

    def close(self) -> None:
        self._database.close()


class TaskList:
    """A list of tasks: the first one is looked at, and taken out when the worker has it."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    async def claim(self) -> Any:
        item = self.items[0] if self.items else None
        await asyncio.sleep(0)
        if item in self.items:
            self.items.remove(item)
        return item


class PoppingQueue:
    """What ``LPOP`` and ``deque.popleft`` do: who has the item is the only one to know of it."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()

    def claim(self) -> Any:
        return self.items.popleft() if self.items else None


class TimedQueue:
    """A queue that gives an item out again after a time, and takes any result."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.waiting: list[tuple[float, Any]] = []
        self.results: list[Any] = []

    def claim(self, lease: float) -> Any:
        for number, (due, item) in enumerate(self.waiting):
            if due <= self._clock():
                self.waiting[number] = (self._clock() + lease, item)
                return item
        return None

    def complete(self, item: Any, result: Any) -> None:
        self.waiting = [(due, other) for due, other in self.waiting if other != item]
        self.results.append(result)
