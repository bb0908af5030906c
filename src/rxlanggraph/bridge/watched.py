"""WatchedBridge: what a bridge offers to what looks at it, such as the live page.

It reads what is there, when it is asked for, and only then. It holds the bridge weakly: hooks that
refer to it do not keep a bridge that is dropped unclosed.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from rxlanggraph.bridge.chunks import with_breakpoints
from rxlanggraph.bridge.engine import Engine
from rxlanggraph.bridge.graphs.adapters import adapt_graph
from rxlanggraph.bridge.graphs.pending import PendingInterrupt
from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.run_options import RunOptions
from rxlanggraph.hooks import Hooks
from rxlanggraph.live.source import Earlier
from rxlanggraph.messages import StreamMessage
from rxlanggraph.registry import RegistryStatistics, TaskInfo

__all__ = ["WatchedBridge"]


class _Bridge(Protocol):
    """The bridge, whose module is below this one."""

    async def pending_interrupts(self, graph: Any) -> Sequence[PendingInterrupt]: ...


class WatchedBridge:
    """Implements `rxlanggraph.live.source.Watched` over an engine. Any thread; nothing blocks.

    Args:
        engine: That of the bridge.
        bridge: Kept alive by the answers to its graphs.
        fence: What its graphs are fenced with, if it shares its lanes.
        graphs: The graphs whose earlier questions are read: the options of their calls.
    """

    def __init__(
        self,
        engine: Engine,
        bridge: _Bridge,
        fence: Callable[[Any], Any] | None,
        graphs: Sequence[RunOptions] = (),
    ) -> None:
        self._engine = engine
        self._bridge = weakref.ref(bridge)
        self._fence = fence
        self._graphs = graphs

    @property
    def name(self) -> str:
        """The name of the bridge."""
        return self._engine.name

    @property
    def state(self) -> str:
        """That of the registry."""
        return self._engine.registry.state

    @property
    def max_concurrency(self) -> int:
        """How many runs may be active."""
        return self._engine.max_concurrency

    @property
    def loop_lag(self) -> float | None:
        """As `RxPyLangGraphBridge.loop_lag`."""
        return self._engine.listeners.loop_lag

    def statistics(self) -> RegistryStatistics:
        """The counters of the registry."""
        return self._engine.registry.statistics()

    def load(self) -> tuple[int, int]:
        """How many runs are active, and how many wait to start. For display: read separately."""
        active = self._engine.active
        return active, max(0, len(self._engine.registry) - active)

    def runs(self, active: int, waiting: int) -> Sequence[tuple[Future[Any], TaskInfo]]:
        """Runs in flight: so many active ones at most, oldest first, then so many that wait."""
        return self._engine.registry.foremost(active, waiting)

    def find(self, run_id: int) -> Future[Any] | None:
        """The run with this id in the registry; None if it is not in flight."""
        return self._engine.registry.find(run_id)

    def stack(self, run: Future[Any]) -> str:
        """Where a run is at the moment."""
        return self._engine.stack(run)

    def add_hooks(self, hooks: Hooks) -> Callable[[], object]:
        """Call ``hooks`` from now on, for runs in flight too.

        Returns:
            What ends that, for any thread.
        """
        listeners = self._engine.listeners
        listener = listeners.add(hooks)
        listeners.add_to_runs_in_flight(listener)
        return partial(listeners.remove, listener)

    def resume_of(self, run: Future[Any]) -> RunOptions:
        """Return how the graph of ``run`` is called again: as before, but for its stream."""
        assert isinstance(run, Run)
        options = run.options
        adapter = options.adapter
        if options.streams:  # its chunks would go nowhere
            graph = options.graph
            adapter = adapt_graph(graph, "reject", fence=self._fence)
            adapter = with_breakpoints(graph, adapter, options.arguments)
        return replace(
            options,
            adapter=adapter,
            errors="emit",
            group=None,
            lane=None,
            multitask_strategy="enqueue",
            saver=None,
            streams=False,
        )

    async def resume(self, message: StreamMessage, how: RunOptions) -> Future[StreamMessage]:
        """Send an answer, and wait for room. Any loop.

        Raises:
            BridgeClosedError, LoopUnavailableError, BacklogFullError: As the bridge's ``submit``.
        """
        engine, bridge = self._engine, self._bridge()
        if bridge is None:
            raise engine.why_closed()
        return await engine.send_async(engine.new_run(*how.bind(message, None), bridge))

    async def earlier_questions(self) -> Sequence[Earlier]:
        """Read the questions of the graphs that were named. Any loop.

        Raises:
            BridgeClosedError, LoopUnavailableError, NotImplementedError: As the bridge's
                ``pending_interrupts``.
        """
        earlier = []
        for options in self._graphs:
            bridge = self._bridge()
            if bridge is None:
                break
            for each in await bridge.pending_interrupts(options.graph):
                asked = time.time() - each.age
                earlier.append(
                    Earlier(options.name, each.thread_id, each.interrupt, asked, options)
                )
        return earlier
