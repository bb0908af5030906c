"""Random histories of a real bridge in virtual time, compared step by step with a model.

A machine does each step to a bridge and to its model, and lets the loop go on until nothing is left
to do. There are no threads and no clock, and Hypothesis begins with the same seed every time: a
history that fails once fails again, and is reported in its shortest form.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from rxlanggraph.testing import VirtualBridge

__all__ = ["BridgeMachine", "Fault", "difference", "search"]

# Hypothesis keeps what it has read of our sources there.
set_hypothesis_home_dir(Path(__file__).parents[3] / "build" / "hypothesis")


class Fault(NamedTuple):
    """What is patched, and with what, for a bridge that a machine has to tell from its model."""

    owner: type
    attribute: str
    replacement: Any


class BridgeMachine(RuleBasedStateMachine):
    """A bridge that is closed, and has to be empty, at the end of each history."""

    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.bridge = self.make_bridge()
        self.loop: Any = self.bridge._engine.started_loop()

    def make_bridge(self) -> VirtualBridge:
        return VirtualBridge(**self.options)

    def settle(self) -> None:
        """Return once the loop has nothing left to do."""
        self.loop.settle()

    def end_all(self) -> None:
        """Cancel whatever is unfinished."""

    def teardown(self) -> None:
        try:
            self.end_all()
            self.settle()
            self._check_empty()
        finally:
            self.bridge.close(0)

    def _check_empty(self) -> None:
        engine = self.bridge._engine
        admission, scheduler = engine.admission, engine._dispatcher._scheduler
        assert self.bridge.registry.is_idle(), self.bridge.registry.snapshot()
        assert not admission._holders and not admission._gates, admission._holders
        assert not (scheduler._lanes or scheduler._behind or scheduler._ready), scheduler._lanes
        assert scheduler.free == engine.max_concurrency, scheduler.free
        assert not engine._answers.waiting, engine._answers.waiting


def search(
    machine: type[BridgeMachine], options: Mapping[str, Any], *, histories: int, steps: int
) -> None:
    """Fail with the shortest history found in which bridge and model differ."""
    _run(machine, options, histories, steps, phases=(Phase.generate, Phase.shrink))


def difference(
    machine: type[BridgeMachine], options: Mapping[str, Any], *, histories: int, steps: int
) -> AssertionError | None:
    """The first difference that `search` finds with the same arguments; None if there is none."""
    try:
        _run(
            machine,
            options,
            histories,
            steps,
            phases=(Phase.generate,),
            verbosity=Verbosity.quiet,
        )
    except AssertionError as error:
        return error
    return None


def _run(
    machine: type[BridgeMachine],
    options: Mapping[str, Any],
    histories: int,
    steps: int,
    **more: Any,
) -> None:
    configured = type(machine.__name__, (machine,), {"options": options})
    run_state_machine_as_test(
        configured,
        settings=settings(
            derandomize=True,
            deadline=None,
            database=None,
            max_examples=histories,
            stateful_step_count=steps,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            **more,
        ),
    )
