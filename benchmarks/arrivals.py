"""From adding a task in one process to its claim in another that waits for it, and is idle.

Woken by the server, over the same state that only polls.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Self

from rxlanggraph.state import State, open_state

from .harness import DEADLINE, Ratio, paired, told
from .servers import SERVERS

BACKENDS = ("postgresql", "redis")
# Seconds after which the pauses between polls have grown to their full length; and that length, as
# the task is added at any moment of such a pause.
_IDLE = 0.5
_PAUSE = 0.25
_ADD = """
import asyncio, sys, time
from rxlanggraph.state import open_state

async def main(url):
    async with open_state(url) as state:
        print("ready", flush=True)
        while queue := sys.stdin.readline().strip():
            start = time.monotonic()
            await state.add_tasks(queue, ["item"])
            print(start, flush=True)

asyncio.run(main(sys.argv[1]))
"""


class Bench:
    """A process that adds tasks, and two states that wait for them: one is woken, one polls."""

    def __init__(self, runner: asyncio.Runner, url: str) -> None:
        self._runner = runner
        self._url = url

    def __enter__(self) -> Self:
        self._runner.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._close())

    def woken(self) -> float:
        """Return the seconds from adding to the claim of a state that listens."""
        return self._runner.run(self._wait(self._listening, "woken"))

    def polled(self) -> float:
        """Return the seconds from adding to the claim of a state that only polls."""
        return self._runner.run(self._wait(self._polling, "polled"))

    async def _open(self) -> None:
        self._blocks = [open_state(self._url), open_state(self._url)]
        self._listening, self._polling = [await block.__aenter__() for block in self._blocks]
        self._polling._client._unwatched = None
        self._adder = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _ADD,
            self._url,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        await self._line()

    async def _close(self) -> None:
        await self._adder.communicate()
        for block in self._blocks:
            await block.__aexit__(None, None, None)

    async def _wait(self, state: State, queue: str) -> float:
        worker = asyncio.create_task(state.claim_task(queue, wait=DEADLINE))
        await asyncio.sleep(_IDLE + random.uniform(0, _PAUSE))
        assert self._adder.stdin is not None
        self._adder.stdin.write(f"{queue}\n".encode())
        claim = await worker
        end = time.monotonic()  # one clock for all processes of a machine
        start = float(await self._line())
        if claim is None:
            raise AssertionError("the worker was never woken")
        await claim.complete()
        return end - start

    async def _line(self) -> str:
        assert self._adder.stdout is not None
        return (await self._adder.stdout.readline()).decode()


def ratio(backend: str, *, pairs: int = 21) -> Ratio:
    """Compare the latency of a worker that is woken with that of one that polls."""
    with SERVERS[backend]() as url, asyncio.Runner() as runner, Bench(runner, url) as bench:
        return paired(bench.woken, bench.polled, pairs=pairs, clock=told)


# -- for ASV -----------------------------------------------------------------------------------


class Arrivals:
    """The latency of a worker that is woken, over that of one that polls."""

    params = BACKENDS
    param_names = ("backend",)
    timeout = 600
    unit = "ratio"

    def track_ratio(self, backend: str) -> float:
        """The ratio."""
        return ratio(backend, pairs=7).value
