"""Searching the interleavings of a model: first by chance, weighted, then all within a bound.

interleave-test decides, at each line of the code under test and at each lock, which thread goes on.
It needs sys.monitoring, so Python 3.12.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import rxlanggraph
from support import naive_models
from support.model_loop import ModelLoop

__all__ = ["Verdict", "search"]

# Whose lines are places to switch: ours, and those of the controls.
_INCLUDE = [str(Path(rxlanggraph.__file__).parent), naive_models.__file__]
_SEED = 7105


@dataclass(frozen=True)
class Verdict:
    """What a search has found.

    Attributes:
        broken: The interleaving that broke the model, in words; None if none did.
        schedules: How many were tried.
        exhausted: Whether those were all within the bound.
    """

    broken: str | None
    schedules: int
    exhausted: bool


def search(model: Callable[[], None], *, preemptions: int, by_chance: int = 150) -> Verdict:
    """Try ``by_chance`` schedules at random, then all with so many preemptions at most."""
    with _modelled():
        verdict = _explore(model, "pct", by_chance, preemptions)
        if verdict.broken is None:
            more = _explore(model, "dfs", 1_000_000, preemptions)
            schedules = verdict.schedules + more.schedules
            verdict = Verdict(more.broken, schedules, more.exhausted)
    return verdict


def _explore(
    model: Callable[[], None], strategy: str, iterations: int, preemptions: int
) -> Verdict:
    import interleave_test

    result = interleave_test.explore(
        model,
        strategy=strategy,
        iterations=iterations,
        max_preemptions=preemptions,
        granularity="line",
        include=_INCLUDE,
        seed=_SEED,
        raise_on_failure=False,
    )
    # As text: the exception itself holds on to objects whose locks work in a search only.
    broken = result.failure.format() if result.failure else None
    return Verdict(broken, result.schedules_run, result.exhausted)


@contextmanager
def _modelled() -> Iterator[None]:
    """Loops are small ones; nothing is left for the exit; no collection breaks a schedule."""
    gc.collect()
    gc.disable()
    try:
        with (
            mock.patch.object(asyncio, "new_event_loop", ModelLoop),
            mock.patch.object(atexit, "register"),
        ):
            yield
    finally:
        gc.enable()
        gc.collect()
