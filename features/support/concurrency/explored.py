"""Searching the interleavings of a model: first by chance, weighted, then all within a bound.

interleave-test decides, at each line of the code under test and at each lock, which thread goes on.
It needs sys.monitoring, so Python 3.12.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import rxlanggraph
from rxlanggraph.bridge import exits
from support.concurrency.model_loop import ModelLoop
from support.controls import naive_models

__all__ = ["Verdict", "aside", "search"]

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


_asides: list[None] = []  # one for each that is open, of the model's first thread alone


@contextmanager
def aside() -> Iterator[None]:
    """Set-up and tear-down of a model: the exhaustive search tries one order of these only."""
    _asides.append(None)
    try:
        yield
    finally:
        _asides.pop()


def _exhaustively(preemptions: int) -> object:
    from interleave_test import DFSStrategy

    class Strategy(DFSStrategy):
        def begin(self, iteration: int, seed: int) -> None:
            _asides.clear()
            super().begin(iteration, seed)

        def pick(self, runnable: list[Any], current: Any, index: int) -> Any:
            if not _asides:
                return super().pick(runnable, current, index)
            return current or min(runnable, key=lambda thread: thread.tid)

    return Strategy(preemptions)


def search(
    model: Callable[[], None], modules: tuple[str, ...], *, preemptions: int, by_chance: int = 100
) -> Verdict:
    """Try ``by_chance`` schedules at random, then all with so many preemptions at most.

    Args:
        model: What is run, once for each schedule.
        modules: Those of the package whose lines are places to switch; all locks are, anyway.
        preemptions: How often a thread may be interrupted that could go on.
        by_chance: How many schedules with any number of preemptions come first.
    """
    package = Path(rxlanggraph.__file__).parent
    include = [naive_models.__file__, *(str(package / f"{name}.py") for name in modules)]
    missing = [name for name in include if not Path(name).is_file()]
    assert not missing, missing  # nothing of them would be searched
    explore = partial(_explore, model, include)
    with _modelled():
        verdict = explore("pct", by_chance)
        if verdict.broken is None:
            more = explore(_exhaustively(preemptions), 1_000_000)
            schedules = verdict.schedules + more.schedules
            verdict = Verdict(more.broken, schedules, more.exhausted)
    return verdict


def _explore(
    model: Callable[[], None], include: list[str], strategy: object, iterations: int
) -> Verdict:
    import interleave_test

    result = interleave_test.explore(
        model,
        strategy=strategy,
        iterations=iterations,
        granularity="line",
        include=include,
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
            _on_one_processor(),
            mock.patch.object(asyncio, "new_event_loop", ModelLoop),
            mock.patch.object(exits, "add"),
        ):
            yield
    finally:
        gc.enable()
        gc.collect()


@contextmanager
def _on_one_processor() -> Iterator[None]:
    """Of the threads of a model one runs at a time: the next is woken sooner where the last ran."""
    if not hasattr(os, "sched_setaffinity"):  # not on macOS
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
