"""A process with a scheduler, whose clock is told by lines of input.

python -m support.state.schedule_process URL TTL STALLS

It prints the time whenever its scheduler sleeps, so only while it leads. With STALLS at 1, the time
``stall`` has it stand still between adding a task and writing that it has; it prints ``stalled``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from rxlanggraph.state import Schedule, Scheduler, open_state
from support.concurrency.waiting import LIMIT

__all__ = ["QUEUE", "START", "ScheduleProcess", "ToldClock", "minutely"]

QUEUE = "q"
START = 1_800_000_000  # a full minute
FEATURES = Path(__file__).parents[2]


def minutely() -> Schedule:
    return Schedule("s", "* * * * *", QUEUE, "item")


class ToldClock:
    """Goes on when it is told; on one loop."""

    def __init__(self) -> None:
        self.now = float(START)
        self._changed = asyncio.Condition()
        self.sleeps: list[float] = []  # when a sleep began

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        until = self.now + seconds
        async with self._changed:
            self.sleeps.append(self.now)
            self.slept()
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self.now >= until)

    def slept(self) -> None:
        """Called when a sleep begins."""

    async def go_to(self, now: float) -> None:
        async with self._changed:
            self.now = now
            self._changed.notify_all()

    async def until_asleep(self) -> None:
        """Until a sleep has begun at the time that it is."""
        async with asyncio.timeout(LIMIT), self._changed:
            await self._changed.wait_for(lambda: self.now in self.sleeps)


class ScheduleProcess:
    """Such a process. It is killed at the end, or when it does not answer in time."""

    def __init__(self, url: str, ttl: float, *, stalls: bool = False) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "support.state.schedule_process"),
                *(url, str(ttl), str(int(stalls))),
            ],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FEATURES), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._watchdog = threading.Timer(LIMIT, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        assert self.read() == "ready"

    def go_to(self, now: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{now}\n")
        self._process.stdin.flush()

    def read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT)

    def end(self) -> None:
        self.kill()
        self._watchdog.cancel()
        self._watchdog.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


# -- in such a process -----------------------------------------------------------------------------


class _PrintingClock(ToldClock):
    def slept(self) -> None:
        print(int(self.now), flush=True)


class _StallingScheduler(Scheduler):
    """Stands still after it has added the task of the second due time."""

    async def _store(self, schedule: Schedule, done: int, lease: Any) -> None:
        if done == START + 120:
            print("stalled", flush=True)
            await asyncio.Event().wait()
        await super()._store(schedule, done, lease)


async def _main(url: str, ttl: float, kind: type[Scheduler]) -> None:
    clock = _PrintingClock()
    async with open_state(url) as state:
        scheduler = kind(state, [minutely()], ttl=ttl, clock=clock.time, sleep=clock.sleep)
        print("ready", flush=True)
        running = asyncio.ensure_future(scheduler.run())
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            await clock.go_to(float(line))
        running.cancel()


if __name__ == "__main__":
    stalls = sys.argv[3] == "1"
    asyncio.run(_main(sys.argv[1], float(sys.argv[2]), _StallingScheduler if stalls else Scheduler))
