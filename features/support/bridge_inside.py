"""What a signal handler or a finalizer does while its own thread is inside a bridge."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from rxlanggraph import (
    RxPyLangGraphBridge,
    backlog,
    bridge,
    cleanup,
    ending,
    engine,
    entries,
    futures,
    handoff,
    homes,
    locking,
    registry,
    runs,
)
from rxlanggraph.errors import BridgeClosedError
from support import work
from support.entering import Way, enter_everywhere
from support.tasks import PATIENCE

__all__ = ["ACTIONS", "enter_bridge"]

_MODULES = (
    backlog,
    bridge,
    cleanup,
    ending,
    engine,
    entries,
    futures,
    handoff,
    homes,
    locking,
    registry,
    runs,
)
FILES = {str(module.__file__) for module in _MODULES}
# Seconds that a clean-up waits. It waits in vain where its own thread, below the handler, holds
# what the loop needs to go on: there it only has to come back, and all has to end after that.
_WAIT = 0.05


class Used:
    """A bridge, and every future that it gave."""

    def __init__(self) -> None:
        self.bridge = RxPyLangGraphBridge()
        self.futures: list[Future[Any]] = []

    def hand_over(self) -> None:
        try:
            future = self.bridge.create_future_task(work.answer, len(self.futures))
        except BridgeClosedError:
            assert self.bridge.registry.state != "open"
        else:
            self.futures.append(future)

    def cancel(self) -> None:
        future: Future[Any] = Future()
        try:
            future = self.bridge.create_future_task(work.answer, "to be cancelled")
        except BridgeClosedError:
            assert self.bridge.registry.state != "open"
        future.cancel()

    def clean_up(self) -> None:
        self.bridge.cleanup_tasks(_WAIT)

    def close(self) -> None:
        self.bridge.close(_WAIT, cancel_timeout=_WAIT)

    def check(self) -> None:
        hanging = wait(self.futures, PATIENCE).not_done
        assert not hanging, f"never resolved: {hanging}"
        loops = [thread for thread in self.threads() if thread.name.endswith("-loop")]
        assert len(loops) <= 1, loops
        assert self.bridge.registry.wait_idle(PATIENCE), self.bridge.registry.snapshot()
        self.bridge.close()
        for thread in loops:
            thread.join(PATIENCE)
        assert not self.threads(), self.threads()

    def threads(self) -> list[threading.Thread]:
        name = f"{self.bridge.name}-"
        return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


ACTIONS: dict[str, Callable[[Used], None]] = {
    "hands over": Used.hand_over,
    "cancels": Used.cancel,
    "cleans up": Used.clean_up,
    "closes": Used.close,
    "handing over": Used.hand_over,
    "cancelling a future": Used.cancel,
    "cleaning up": Used.clean_up,
    "closing": Used.close,
}


def enter_bridge(way: Way, action: str, inside: str, *, used: bool) -> int:
    """Go through all places of ``inside``, and do ``action`` there.

    Returns:
        How many places there were.
    """
    last: list[Used] = []

    def make() -> Used:
        last[:] = [Used()]
        if used:
            work.loop_of(last[0].bridge)
        return last[0]

    try:
        return enter_everywhere(
            FILES,
            way,
            make=make,
            operation=ACTIONS[inside],
            entry=ACTIONS[action],
            check=Used.check,
        )
    finally:
        last[0].bridge.close(0, cancel_timeout=1)
