"""Histories of several clients at once: in threads, in processes, and meeting in the middle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rxlanggraph.state import open_state
from support.cli.command import environment
from support.concurrency import tasks
from support.linearizability.histories import Client, Signals, be_a_client, read
from support.linearizability.linearizability import Operation

__all__ = ["at_the_same_moment", "by_processes", "by_threads"]

FEATURES = Path(__file__).parents[2]
Hear = Callable[[str], None]


def by_threads(url: str, clients: int, operations: int) -> list[Operation]:
    """Each client has a loop in a thread of its own."""
    together = threading.Barrier(clients)

    def meet() -> object:
        return together.wait(tasks.PATIENCE)

    # In every fifth operation: on a busy machine one client may be through before the next begins.
    def meet_at_times(number: Iterator[int]) -> None:
        if next(number) % 5 == 0:
            meet()

    def client(seed: int) -> Callable[[], Any]:
        signals = Signals(begin=meet, during=partial(meet_at_times, itertools.count()))
        return lambda: asyncio.run(be_a_client(url, seed, operations, signals))

    with tasks.switching_often():
        joins = [tasks.start(client(seed)) for seed in range(clients)]
        return [operation for join in joins for operation in join()]


def by_processes(
    url: str, clients: int, operations: int, event: Callable[[Hear], object] = lambda _: None
) -> list[Operation]:
    """Each client is a process; ``event`` happens while all are at work, and may listen to them."""
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(_client(url, seed, operations)) for seed in range(clients)]
        _hear("ready", running)
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        _hear("half", running)
        event(lambda word: _hear(word, running))
        for process in running:
            process.stdin.close()
        return [operation for process in running for operation in read(_line(process, "["))]


@contextlib.contextmanager
def _client(url: str, seed: int, operations: int) -> Iterator[Any]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "support.linearizability.histories",
            url,
            str(seed),
            str(operations),
        ],
        cwd=FEATURES,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def _hear(word: str, processes: list[Any]) -> None:
    """Until each of them has said the word."""
    for process in processes:
        _line(process, word)


def _line(process: Any, beginning: str) -> str:
    for line in iter(process.stdout.readline, ""):
        if line.startswith(beginning):
            return str(line)
    raise AssertionError(f"a client has ended, and has not said {beginning!r}")


# -- meeting in the middle -------------------------------------------------------------------------


class GetThenSet:
    """What people write over a store that can get and set: two steps, here with a pause between."""

    def __init__(self, state: Any, pause: Callable[[], Awaitable[object]]) -> None:
        self._state = state
        self._pause = pause

    async def get(self, key: str) -> Any:
        return await self._state.get(key)

    async def increment_counter(self, key: str, by: int) -> int:
        value, _ = await self._state.get(key)
        await self._pause()
        await self._state.set(key, (value or 0) + by)
        return int(value or 0) + by

    async def compare_and_set(self, key: str, value: Any, expected_version: int) -> bool:
        _, version = await self._state.get(key)
        await self._pause()
        if version == expected_version:
            await self._state.set(key, value)
        return bool(version == expected_version)


async def at_the_same_moment(
    url: str, way: str, clients: int, key: str, name: str, *arguments: Any
) -> list[Operation]:
    """The history of clients that do one and the same at once, and of one that looks afterwards."""
    both = asyncio.Barrier(clients)
    async with contextlib.AsyncExitStack() as stack:
        acting = []
        for seed in range(clients):
            state: Any = await stack.enter_async_context(open_state(url))
            if way == "get-then-set":
                state = GetThenSet(state, both.wait)
            acting.append(Client(state, seed, cancels=0))
        await asyncio.gather(*[client.call(key, name, *arguments) for client in acting])
        await acting[0].call(key, "get")
        return [operation for client in acting for operation in client.history]
