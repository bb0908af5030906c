"""Shutdown: cancelling, draining and closing, as steps; and the report on each run.

What breaks without it: code that cancels runs and returns leaves their own cleanup half done. The
steps are generators that yield how long to wait for an idle registry, so that the sync and the
async form share one implementation.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from rxlanggraph.bridge.engine import Engine
from rxlanggraph.bridge.run_registry import RunRegistry, RunReport, Sweep

__all__ = [
    "CleanupReport",
    "RunReport",
    "StuckRun",
    "cleanup_steps",
    "close_steps",
    "run_steps",
    "run_steps_async",
]


@dataclass(frozen=True, slots=True)
class StuckRun:
    """A run that was asked to stop and had not ended when the time was up.

    Attributes:
        name: The name of the graph or function, or the one passed to ``create_future_task``.
        thread_id: The conversation that it works on; its lane stays occupied.
        age: Seconds since it was admitted.
        stack: Where it was at that moment, in the format of a traceback; empty if it had not
            started.
    """

    name: str
    thread_id: str | None
    age: float
    stack: str


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """The outcome of every run that was in flight, or arrived, during a cleanup.

    Attributes:
        cancelled: Runs that ended cancelled, their own cleanup included.
        completed: Runs that ended with a result before the cancellation reached them.
        failed: Runs that ended with an exception.
        stuck: Runs that have not ended: they swallow the cancellation, or are in blocking code.
        drained: Runs that stopped between two supersteps, because they were asked to.
        runs: A report of each run, in the order of admission: of all stuck ones, and of at most the
            first 10,000 that were drained and 10,000 others that ended.
    """

    cancelled: int
    completed: int
    failed: int
    stuck: tuple[StuckRun, ...]
    drained: int = 0
    runs: tuple[RunReport, ...] = ()

    def __str__(self) -> str:
        """Return the report in words, stacks included."""
        head = (
            f"{self.cancelled} cancelled, {self.completed} completed, {self.failed} failed, "
            f"{len(self.stuck)} stuck"
        )
        if self.drained:
            head = f"{self.drained} drained, {head}"
        stuck = (f"{run.name}, {run.age:.1f} s old, is at\n{run.stack}" for run in self.stuck)
        return "\n".join([head, *stuck])


# Yields how many seconds to wait for an idle registry; is sent whether it became idle.
Steps: TypeAlias = Generator[float | None, bool, CleanupReport]


def cleanup_steps(engine: Engine, timeout: float | None) -> Steps:
    """Cancel all that is in flight or arrives until the registry is idle or the time is up."""
    until = _deadline(engine, timeout)
    begun = engine.registry.begin_sweep()
    sweep = None
    try:
        engine.registry.cancel_all()
        while sweep is None:
            idle = yield from _until_idle(engine, until)
            # A run that arrived after it was idle is not stuck: it is waited for as well.
            sweep = engine.registry.end_sweep(begun, only_if_idle=idle)
    finally:
        if sweep is None:  # the wait was cancelled
            engine.registry.end_sweep(begun)
    return _report(engine, sweep)


def close_steps(
    engine: Engine,
    timeout: float | None,
    cancel_timeout: float | None,
    drain_after: float | None = None,
) -> Steps:
    """Close admission, wait until ``timeout``, then cancel and wait until ``cancel_timeout``.

    With ``drain_after``, graphs are asked that long after the beginning to stop.
    """
    engine.close_admission()
    until, asking_at = _deadline(engine, timeout), _deadline(engine, drain_after)
    begun = engine.registry.begin_sweep()
    try:
        if asking_at is not None and (until is None or asking_at < until):
            yield from _until_idle(engine, asking_at)
            engine.request_drain()
        yield from _until_idle(engine, until)
        engine.registry.cancel_all()
        # Also if there was none to cancel: one may have its result, and be about to leave.
        yield from _until_idle(engine, _deadline(engine, cancel_timeout))
    finally:
        sweep = engine.registry.end_sweep(begun)
        engine.stop_loop()
    return _report(engine, sweep)


def _deadline(engine: Engine, timeout: float | None) -> float | None:
    return None if timeout is None else engine.clock.now() + timeout


def _until_idle(engine: Engine, until: float | None) -> Generator[float | None, bool, bool]:
    """Wait for an idle registry, but not for a paused loop: nothing can end on that one."""
    while True:
        left = None if until is None else until - engine.clock.now()
        look_every = engine.host.look_every
        last = look_every is None or (left is not None and left <= look_every)
        idle = yield left if last else look_every
        if idle or last or engine.host.paused:
            return idle


def run_steps(steps: Steps, registry: RunRegistry) -> CleanupReport:
    """Run ``steps``, blocking while they wait."""
    with closing(steps):
        try:
            wait = next(steps)
            while True:
                wait = steps.send(registry.wait_idle(wait))
        except StopIteration as end:
            return _value(end)


async def run_steps_async(steps: Steps, registry: RunRegistry) -> CleanupReport:
    """Run ``steps``, awaiting while they wait. Cancelling it ends the steps."""
    with closing(steps):
        try:
            wait = next(steps)
            while True:
                wait = steps.send(await registry.until_idle(wait))
        except StopIteration as end:
            return _value(end)


def _value(end: StopIteration) -> CleanupReport:
    report = end.value
    assert isinstance(report, CleanupReport)
    return report


def _report(engine: Engine, sweep: Sweep) -> CleanupReport:
    stuck = tuple(
        StuckRun(info.name or "", info.thread_id, info.age, engine.stack(task))
        for task, info in sweep.remaining
    )
    runs = dict(sweep.ended)
    for task, info in sweep.remaining:
        runs[info.id] = RunReport.of(task, info.name, info.thread_id, "stuck")
    return CleanupReport(
        sweep.cancelled - sweep.drained,
        sweep.succeeded,
        sweep.failed,
        stuck,
        sweep.drained,
        tuple(runs[number] for number in sorted(runs)),
    )
