"""Creating runs that wait, and ending all of them.

A run here waits forever, so that creating and ending are measured apart. The peer is the bare fix
with the shortest cleanup that does as much: on the loop, cancel every task and gather them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from typing import Any

from .harness import DEADLINE, Ratio, paired, told
from .peers import BareFix, Bridge

RUNS = 2_000


async def forever(_content: object) -> None:
    """Wait until cancelled."""
    await asyncio.Event().wait()


class Waiting:
    """Many runs on the bridge or on its peer, all of them started and waiting."""

    def __init__(self, peer: str, stack: ExitStack) -> None:
        self.is_ours = peer == "bridge"
        ours_or_theirs = Bridge(max_concurrency=10 * RUNS) if self.is_ours else BareFix()
        self.peer: Any = stack.enter_context(ours_or_theirs)

    def create(self, count: int = RUNS) -> float:
        """Create the runs; return the seconds until the last future was there."""
        submit = self.peer.submit
        start = time.perf_counter()
        for _ in range(count):
            submit(forever, None)
        return time.perf_counter() - start

    def clean_up(self) -> float:
        """End all of them; return the seconds until the last coroutine had ended."""
        self._all_started()
        start = time.perf_counter()
        if self.is_ours:
            report = self.peer.bridge.cleanup_tasks(DEADLINE)
            assert not report.stuck
        else:
            self.peer.thread.run(cancel_all())
        return time.perf_counter() - start

    def _all_started(self) -> None:
        # The loop takes things in order: once this has run there, so has all that came before it.
        if self.is_ours:
            self.peer.bridge.create_future_task(_nothing, None).result(DEADLINE)
        else:
            self.peer.thread.run(_nothing(None))

    def create_and_clean_up(self) -> float:
        return self.create() + self.clean_up()


async def _nothing(_content: object) -> None:
    pass


async def cancel_all() -> None:
    """Cancel every other task of this loop, and wait until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def ratio(part: str, *, pairs: int = 7) -> Ratio:
    """The bridge over the bare fix, for `part`: "create" or "clean_up"."""
    with ExitStack() as stack:
        ours, bare = Waiting("bridge", stack), Waiting("bare-fix", stack)

        def of(waiting: Waiting) -> float:
            created, cleaned = waiting.create(), waiting.clean_up()
            return created if part == "create" else cleaned

        return paired(lambda: of(ours), lambda: of(bare), pairs=pairs, items=RUNS, clock=told)


class CreateAndCleanUp:
    """Seconds to create, and to clean up, 2,000 waiting runs, by peer."""

    params = ["bridge", "bare-fix"]
    param_names = ("peer",)
    timeout = 300
    unit = "s"

    def setup(self, peer: str) -> None:
        self.stack = ExitStack()
        self.waiting = Waiting(peer, self.stack)
        self.waiting.create_and_clean_up()

    def teardown(self, peer: str) -> None:
        self.stack.close()

    def track_create(self, peer: str) -> float:
        created = self.waiting.create()
        self.waiting.clean_up()
        return created

    def track_clean_up(self, peer: str) -> float:
        self.waiting.create()
        return self.waiting.clean_up()


class CreateAndCleanUpRatio:
    """The bridge over the bare fix, in pairs."""

    params = ["create", "clean_up"]
    param_names = ("part",)
    timeout = 300
    unit = "ratio"

    def track_part(self, part: str) -> float:
        return ratio(part).value
