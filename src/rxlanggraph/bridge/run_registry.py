"""RunRegistry: the registry of a bridge, which is told when a run has ended.

What breaks if it watched futures, as `TaskRegistry.add` does: a future is resolved as soon as its
run is cancelled, while the coroutine and its threads continue. A cleanup is a sweep, during which
every arriving run is cancelled at once; it notes how each run that leaves has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal, overload

from rxlanggraph.bridge.run import Phase, Run
from rxlanggraph.bridge.run_info import info_of_run, nodes_at_work
from rxlanggraph.concurrency.future import ToNotify
from rxlanggraph.errors import RunDrainedError
from rxlanggraph.messages import StreamMessage
from rxlanggraph.registry import (
    Entry,
    Outcome,
    RegistryStatistics,
    TaskInfo,
    TaskRegistry,
    Trackable,
    info_of,
)

__all__ = ["OpenSweep", "RunRegistry", "RunReport", "Sweep"]

RegistryState = Literal["open", "closing", "closed"]
RunOutcome = Literal["completed", "failed", "drained", "cancelled", "stuck"]
_ENDED_AS: dict[Outcome, RunOutcome] = {
    "succeeded": "completed",
    "failed": "failed",
    "dropped": "failed",
    "cancelled": "cancelled",
}
# How many runs a sweep names, of those that were drained and of all others. A guess: far above the
# runs of a bridge, far below any memory.
_MAX_NAMED = 10_000


@dataclass(frozen=True, slots=True)
class RunReport:
    """The outcome of one run during a cleanup.

    Attributes:
        name: The name of the graph or function, or the one passed to ``create_future_task``.
        message_id: The id of its message; None for a task that was added to the registry by other
            code.
        thread_id: The conversation that it worked on.
        outcome: ``"completed"``, ``"failed"``, ``"cancelled"``, ``"stuck"``, or ``"drained"``: its
            graph has stopped between two supersteps, and a message with None as content continues
            it on its thread.
        begun: Whether it had begun. If not, nothing of its message has reached the graph.
        checkpoint_id: Of a drained run, the checkpoint that such a message continues from; None if
            it could not be read.
    """

    name: str
    message_id: str | None
    thread_id: str | None
    outcome: RunOutcome
    begun: bool
    checkpoint_id: str | None = None

    @classmethod
    def of(
        cls, task: Trackable, name: str | None, thread_id: str | None, outcome: RunOutcome
    ) -> RunReport:
        """Make the report of ``task``, which has ended or is stuck. Any thread; never blocks."""
        if not isinstance(task, Run):
            return cls(name or "", None, thread_id, outcome, begun=True)
        message_id, begun = task.message.id, task.executor is not None
        reason, checkpoint_id = task.interruption, None
        if isinstance(reason, RunDrainedError) and outcome == "cancelled":
            begun, checkpoint_id = reason.begun, reason.checkpoint_id
            outcome = "drained" if begun else "cancelled"
        return cls(name or "", message_id, thread_id, outcome, begun, checkpoint_id)


@dataclass(frozen=True, slots=True)
class Sweep:
    """What left between `RunRegistry.begin_sweep` and `RunRegistry.end_sweep`, and what did not.

    Attributes:
        succeeded: Tasks that left with a result.
        failed: Tasks that left with an exception.
        cancelled: Tasks that left cancelled.
        drained: Those among the cancelled that can be continued from a checkpoint.
        remaining: The tasks still in flight at the end, each with its info.
        ended: The tasks that left, by their ids in the registry: of those that were drained the
            first 10,000, and of all others.
    """

    succeeded: int
    failed: int
    cancelled: int
    drained: int
    remaining: tuple[tuple[Trackable, TaskInfo], ...]
    ended: dict[int, RunReport]


class OpenSweep:
    """A sweep that has begun. Guarded by the lock of the registry.

    Args:
        begun: The counters at its beginning.
    """

    def __init__(self, begun: RegistryStatistics) -> None:
        self.begun = begun
        self.drained = 0
        self._named: dict[bool, dict[int, RunReport]] = {True: {}, False: {}}  # drained, and others

    def note(self, task: Trackable, entry: Entry, outcome: Outcome | None) -> None:
        """Note that ``task`` has left. Under the lock."""
        if outcome is None:
            return
        number, name, thread_id, _ = entry
        report = RunReport.of(task, name, thread_id, _ENDED_AS[outcome])
        drained = report.outcome == "drained"
        self.drained += drained
        named = self._named[drained]
        if len(named) < _MAX_NAMED:
            named[number] = report

    def ended(self) -> dict[int, RunReport]:
        """Return what is named, by the ids in the registry. Under the lock."""
        return {**self._named[False], **self._named[True]}


class RunRegistry(TaskRegistry):
    """A `TaskRegistry` with the methods reserved to its owner. Any thread; nothing blocks.

    Shares the lock, the fields and the invariants of `TaskRegistry`.
    """

    insert = TaskRegistry._insert
    leave = TaskRegistry._leave
    tasks = TaskRegistry._tasks
    check_outside = TaskRegistry._check_outside
    until_idle = TaskRegistry._until_idle
    after_fork = TaskRegistry._after_fork

    def _infos(self, entries: dict[Trackable, Entry]) -> tuple[TaskInfo, ...]:
        # Read first: nodes that have ended meanwhile are less misleading than an age from before.
        nodes = nodes_at_work([task for task in entries if isinstance(task, Run)])
        now = self._now()
        return tuple(
            info_of_run(task, entry, now, nodes)
            if isinstance(task, Run)
            else info_of(task, entry, now)
            for task, entry in entries.items()
        )

    def runs(self) -> list[Run]:
        """Return the runs in flight. Any thread; never blocks."""
        return [task for task in self.tasks() if isinstance(task, Run)]

    def foremost(self, active: int, waiting: int) -> list[tuple[Run, TaskInfo]]:
        """Return runs in flight: the active ones, oldest first, then those that wait.

        Any thread; never blocks. As `snapshot`, but cheap however many runs wait.

        Args:
            active: How many active ones at most.
            waiting: How many others at most.
        """
        with self._lock:
            entries = self._entries.copy()
        runs = [task for task in entries if isinstance(task, Run)]
        chosen = list(islice((run for run in runs if run.phase is Phase.RUNNING), active))
        chosen += islice((run for run in runs if run.phase is not Phase.RUNNING), waiting)
        # One that has ended meanwhile may be among both.
        infos = self._infos({run: entries[run] for run in chosen})
        return list(zip(dict.fromkeys(chosen), infos, strict=True))

    def find(self, number: int) -> Run | None:
        """Return the run in flight with this id. Any thread; never blocks."""
        with self._lock:
            entries = self._entries.copy()
        found = (task for task, entry in entries.items() if entry[0] == number)
        return next((task for task in found if isinstance(task, Run)), None)

    @property
    def state(self) -> RegistryState:
        """``open``; ``closing`` once `close` was called; ``closed`` when nothing is left either."""
        with self._lock:
            if not self._closed:
                return "open"
            return "closing" if self._entries or self._leaving else "closed"

    def is_idle(self) -> bool:
        """Whether nothing is in flight, and no future is being resolved. Any thread."""
        with self._lock:
            return not self._entries and not self._leaving

    def end_unadmitted(self, run: Run, result: StreamMessage) -> ToNotify | None:
        """Resolve a run that was not admitted, unless it is resolved, and count it.

        Any thread; never blocks.

        Returns:
            What is to be passed to `Run.tell`.
        """
        with self._lock:
            to_notify = run.settle_with(result)
            self._ended[run.counts_as()] += 1
            return to_notify

    def count_dropped(self, run: Run) -> None:
        """Count ``run``, which gave way to another one and was then refused.

        Any thread; never blocks.
        """
        with self._lock:
            self._ended["cancelled" if run.cancelled() else "dropped"] += 1

    def begin_sweep(self) -> OpenSweep:
        """From now until `end_sweep`, every task that is admitted is to be cancelled at once.

        Any thread; never blocks. Sweeps may overlap.

        Returns:
            The sweep, for `end_sweep`.
        """
        with self._lock:
            sweep = OpenSweep(self.statistics())
            self._sweeps[sweep] = None
            return sweep

    @overload
    def end_sweep(self, sweep: OpenSweep, *, only_if_idle: Literal[False] = False) -> Sweep: ...

    @overload
    def end_sweep(self, sweep: OpenSweep, *, only_if_idle: bool) -> Sweep | None: ...

    def end_sweep(self, sweep: OpenSweep, *, only_if_idle: bool = False) -> Sweep | None:
        """Admit normally again; atomically with that, return what ended and what did not.

        Any thread; never blocks.

        Args:
            sweep: What `begin_sweep` returned.
            only_if_idle: Continue the sweep, and return None, while anything is in flight.
        """
        with self._lock:
            if only_if_idle and (self._entries or self._leaving):
                return None
            self._sweeps.pop(sweep, None)  # not there in a forked child
            begun = sweep.begun
            leaving, entries = self._leaving.copy(), self._entries.copy()
            succeeded = self._ended["succeeded"] - begun.succeeded
            failed = self._ended["failed"] + self._ended["dropped"] - begun.failed
            cancelled = self._ended["cancelled"] - begun.cancelled
            drained, ended = sweep.drained, sweep.ended()
        left = leaving | entries
        remaining = tuple(zip(left, self._infos(left), strict=True))
        return Sweep(succeeded, failed, cancelled, drained, remaining, ended)
