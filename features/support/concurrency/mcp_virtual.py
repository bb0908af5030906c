"""A loop whose time is virtual: it jumps to the next timer once nothing else is to be done."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

__all__ = ["DAY", "in_virtual_time", "now"]

DAY = 86_400.0


class Jumping(selectors.DefaultSelector):
    """Does not wait for its timeout, but has the time be later by so much."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if not events and timeout is None:  # for other threads, which end in real time
            return super().select(None)
        if not events:
            assert timeout is not None
            self.now += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def now() -> float:
    return asyncio.get_running_loop().time()


def in_virtual_time(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run it on a loop of its own, for a virtual day at most."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(asyncio.wait_for(coroutine, DAY))
