"""Random histories of a bridge, compared step by step with a model."""

from __future__ import annotations

from types import ModuleType
from unittest import mock

from behave import given, then
from behave.runner import Context

from support.bridge.bridges import arguments


def all_machines() -> ModuleType:
    # Not on top: while behave 1.3.3 imports steps, sys.path has Paths, and Hypothesis expects
    # strings there.
    from support.bridge import all_machines

    return all_machines


@then("{count:d} random histories of {steps:d} steps go as in the model of {subject}: {options}")
def step_random_histories_go_as_in_the_model(
    _: Context, count: int, steps: int, subject: str, options: str
) -> None:
    all_machines().search(subject, arguments(options), histories=count, steps=steps)


@given("a bridge in which {fault}")
def step_a_bridge_in_which(context: Context, fault: str) -> None:
    patching = mock.patch.object(*all_machines().FAULTS[fault])
    patching.start()
    context.add_cleanup(patching.stop)


@then(
    "one of {count:d} random histories of {steps:d} steps goes otherwise than in the model of "
    "{subject}: {options}"
)
def step_one_of_random_histories_goes_otherwise(
    _: Context, count: int, steps: int, subject: str, options: str
) -> None:
    bounds = {"histories": count, "steps": steps}
    found = all_machines().difference(subject, arguments(options), **bounds)
    assert found is not None, "no history showed it"
