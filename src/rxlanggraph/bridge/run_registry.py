"""RunRegistry: the registry of a bridge, whose engine reports itself when a run has ended.

The engine does not watch its runs by callbacks, as `TaskRegistry.add` does: it enters a run, and
removes it once its coroutine and its threads have ended. A cleanup is a sweep, during which every
arriving run is cancelled at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Literal, overload

from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.run_info import info_of_run, nodes_at_work
from rxlanggraph.registry import (
    Entry,
    RegistryStatistics,
    TaskInfo,
    TaskRegistry,
    Trackable,
    info_of,
)

__all__ = ["RunRegistry", "Sweep"]

RegistryState = Literal["open", "closing", "closed"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """What left between `RunRegistry.begin_sweep` and `RunRegistry.end_sweep`, and what did not.

    Attributes:
        succeeded: Tasks that left with a result.
        failed: Tasks that left with an exception.
        cancelled: Tasks that left cancelled.
        remaining: The tasks still in flight at the end, each with its info.
    """

    succeeded: int
    failed: int
    cancelled: int
    remaining: tuple[tuple[Trackable, TaskInfo], ...]


class RunRegistry(TaskRegistry):
    """A `TaskRegistry` with the methods reserved to its owner. Any thread; nothing blocks.

    Shares the lock, the fields and the invariants of `TaskRegistry`.
    """

    enter = TaskRegistry._enter
    leave = TaskRegistry._leave
    tasks = TaskRegistry._tasks
    check_outside = TaskRegistry._check_outside
    until_idle = TaskRegistry._until_idle
    after_fork = TaskRegistry._after_fork

    def _infos(self, entries: dict[Trackable, Entry]) -> tuple[TaskInfo, ...]:
        # Read first: nodes that have ended meanwhile are less misleading than an age from before.
        nodes = nodes_at_work([task for task in entries if isinstance(task, Run)])
        now = monotonic()
        return tuple(
            info_of_run(task, entry, now, nodes)
            if isinstance(task, Run)
            else info_of(task, entry, now)
            for task, entry in entries.items()
        )

    @property
    def state(self) -> RegistryState:
        """``open``; ``closing`` once `close` was called; ``closed`` when nothing is left either."""
        with self._lock:
            if not self._closed:
                return "open"
            return "closing" if self._entries or self._leaving else "closed"

    def count_dropped(self) -> None:
        """Count a run that was dropped instead of admitted. Any thread; never blocks."""
        with self._lock:
            self._ended["dropped"] += 1

    def begin_sweep(self) -> RegistryStatistics:
        """From now until `end_sweep`, every task that is admitted is to be cancelled at once.

        Any thread; never blocks. Sweeps may overlap.

        Returns:
            The counters at the beginning of the sweep, for `end_sweep`.
        """
        with self._lock:
            self._sweeps += 1
            return self.statistics()

    @overload
    def end_sweep(
        self, begun: RegistryStatistics, *, only_if_idle: Literal[False] = False
    ) -> Sweep: ...

    @overload
    def end_sweep(self, begun: RegistryStatistics, *, only_if_idle: bool) -> Sweep | None: ...

    def end_sweep(self, begun: RegistryStatistics, *, only_if_idle: bool = False) -> Sweep | None:
        """Admit normally again; atomically with that, return what ended and what did not.

        Any thread; never blocks.

        Args:
            begun: What `begin_sweep` returned.
            only_if_idle: Continue the sweep, and return None, while anything is in flight.
        """
        with self._lock:
            if only_if_idle and (self._entries or self._leaving):
                return None
            self._sweeps -= 1
            leaving, entries = self._leaving.copy(), self._entries.copy()
            succeeded = self._ended["succeeded"] - begun.succeeded
            failed = self._ended["failed"] + self._ended["dropped"] - begun.failed
            cancelled = self._ended["cancelled"] - begun.cancelled
        left = leaving | entries
        remaining = tuple(zip(left, self._infos(left), strict=True))
        return Sweep(succeeded, failed, cancelled, remaining)
