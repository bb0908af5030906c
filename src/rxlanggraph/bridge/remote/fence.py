"""The fence of a run in a worker process: its saver refuses what comes after its lease.

The lease of the thread is held, and renewed, in the driver. Before the worker writes, it asks how
much time is left, and counts it from the moment of asking. So its count ends before the lease does,
however long the answer takes; then it asks again. A worker that was suspended finds the time over;
one whose driver does not answer writes nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rxlanggraph.bridge.graphs.adapters import has_steps
from rxlanggraph.bridge.graphs.attempts import saver_of
from rxlanggraph.bridge.graphs.configs import lending_saver
from rxlanggraph.bridge.run import RunScope
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import BlockingCallError, LaneLostError
from rxlanggraph.executors.companions import Link
from rxlanggraph.executors.payloads import Dumps

__all__ = ["FenceHere", "FenceThere"]


class FenceHere:
    """Tells a worker how long the lease of its run lasts. On the loop: see `Companion`.

    Args:
        scope: That of the run.
        tell: Tells the worker something.
    """

    def __init__(self, scope: RunScope, tell: Callable[[Any], None], _: Dumps) -> None:
        assert scope.run is not None and scope.run.lease is not None
        self._lease = scope.run.lease
        self._tell = tell
        self.counterpart = FenceThere(scope.run.thread_id)

    def hear(self, what: Any) -> None:
        """Tell how long the lease lasts."""
        self._tell(self._lease.remaining)

    def end(self) -> None:
        """Nothing is kept."""


class FenceThere:
    """Puts the saver of the worker's graph behind a fence: see `Counterpart`, and `Fence`.

    Args:
        thread_id: The thread of the run.
    """

    _link: Link
    _entered = False  # whether there is a saver

    def __init__(self, thread_id: str | None) -> None:
        self._thread_id = thread_id

    def enter(self, link: Link, graph: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Have the graph use the fenced saver."""
        saver = saver_of(graph) if hasattr(graph, "ainvoke") and not has_steps(graph) else None
        if saver is None:
            return arguments
        from rxlanggraph.bridge.fenced_saver import FencedSaver  # noqa: PLC0415 - imports LangGraph

        self._link = link
        # A leaf: guards what follows.
        self._lock = fork_safe_rlock()
        self._until = -math.inf  # the lease lasts at least so long, by the clock of this process
        self._asked_at = 0.0
        self._answer: Future[None] | None = None  # of the question that is asked
        self._lost = False
        self._entered = True
        content, config = arguments
        return content, lending_saver(config or {}, FencedSaver(saver, self))

    def hear(self, what: Any) -> None:
        """Note the answer."""
        with self._lock:
            answer, self._answer = self._answer, None
            self._until = self._asked_at + what
            self._lost = what <= 0
        if answer is not None:
            answer.set_result(None)

    def cancel(self) -> None:
        """Ask again before anything else is saved: the lease may be why."""
        if self._entered:
            with self._lock:
                self._until = -math.inf

    def leave(self) -> None:
        """Let nothing through any more: the lease may be given back."""
        if self._entered:
            self.hear(-math.inf)

    # -- in the threads of the call ----------------------------------------------------------------

    def check(self) -> None:
        """See `Fence`. Blocks until the driver has answered, if it has to be asked."""
        while (asked := self._ask()) is not None:
            if asyncio._get_running_loop() is not None:
                raise BlockingCallError(
                    f"a checkpoint of the thread {self._thread_id!r} cannot be saved by a call "
                    "that blocks the loop of its worker, as its lease has to be confirmed first; "
                    "use ainvoke, or call the graph in a thread"
                )
            asked.result()

    async def check_async(self) -> None:
        """See `Fence`."""
        while (asked := self._ask()) is not None:
            await asyncio.shield(asyncio.wrap_future(asked))

    def _ask(self) -> Future[None] | None:
        """What to wait for before the next look; None if the lease lasts.

        Raises:
            LaneLostError: It does not.
        """
        with self._lock:
            if self._lost:
                raise LaneLostError(
                    f"the lease of the thread {self._thread_id!r} is lost, or its run has ended: "
                    "another process may have the thread, so nothing more is saved; send the "
                    "message again"
                )
            if time.monotonic() < self._until:
                return None
            if self._answer is not None:
                return self._answer
            answer = self._answer = Future()
            self._asked_at = time.monotonic()
        self._link.tell(None)
        return answer
