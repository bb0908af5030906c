from __future__ import annotations

import sys

from behave import then, when
from behave.runner import Context


@when("every interleaving of {what} is tried")
def step_every_interleaving_of_what_is_tried(context: Context, what: str) -> None:
    if sys.version_info < (3, 12):
        context.scenario.skip("interleave-test needs the sys.monitoring of Python 3.12")
        return
    from support.agent import models_agent
    from support.bridge import models, models_of_ends
    from support.concurrency.explored import search

    searched: dict[str, models.Model] = {}
    for each in (models, models_of_ends, models_agent):
        searched |= each.MODELS | each.CONTROLS
    model, modules, preemptions = searched[what]
    context.verdict = search(model, modules, preemptions=preemptions)


@then("none breaks it, and none is left to try")
def step_none_breaks_it_and_none_is_left_to_try(context: Context) -> None:
    verdict = context.verdict
    assert verdict.broken is None, verdict.broken
    assert verdict.exhausted, f"after {verdict.schedules} schedules there are more"
    assert verdict.schedules > 200, verdict


@then('one is found that ends with "{what}"')
def step_one_is_found_that_ends_with_what(context: Context, what: str) -> None:
    assert context.verdict.broken is not None, f"all {context.verdict.schedules} schedules held"
    assert what in context.verdict.broken, context.verdict.broken
