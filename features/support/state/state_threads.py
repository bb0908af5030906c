"""Loops in threads of their own, for states that threads use."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from rxlanggraph import RxPyLangGraphBridge
from support.concurrency.tasks import PATIENCE
from support.concurrency.waiting import Gate

__all__ = ["LoopThread", "home_of"]


class LoopThread:
    """A loop that runs in a thread until it is closed, or stopped by other code.

    After Ctrl-C it runs on, as for a cleanup.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        runs = Gate()
        self.loop.call_soon(runs.open)
        self._thread.start()
        runs.wait()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        except KeyboardInterrupt:
            self.loop.run_forever()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop_when(self, gate: Gate) -> None:
        """Hold the loop up until ``gate`` opens, and stop it then: nothing is begun any more."""

        def stop() -> None:
            held_up.open()
            gate.wait()
            self.loop.stop()

        held_up = Gate()
        self.loop.call_soon_threadsafe(stop)
        held_up.wait()

    def wait(self) -> None:
        """Wait for the thread to end."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the loop runs on"

    def close(self) -> None:
        """Cancel what is on its way, end the thread, close the loop. Idempotent."""
        if self.loop.is_closed():
            return
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


@contextlib.contextmanager
def home_of(bridge: bool) -> Iterator[Any]:
    """A bridge, or a loop that runs in another thread."""
    if bridge:
        with RxPyLangGraphBridge() as home:
            yield home
        return
    thread = LoopThread()
    try:
        yield thread.loop
    finally:
        thread.close()
