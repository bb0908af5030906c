from __future__ import annotations

from behave import given, then, when
from behave.runner import Context

from support.bridge_inside import enter_bridge


@given("a bridge that is in use")
def step_impl(context: Context) -> None:
    context.used = True


@given("a bridge that is yet unused")
def step_impl(context: Context) -> None:
    context.used = False


@when("in the middle of {inside} a signal handler {does}, place by place")
def step_impl(context: Context, inside: str, does: str) -> None:
    context.places = enter_bridge("signal handler", does, inside, used=context.used)


@when("in the middle of {inside} a finalizer {does}, place by place")
def step_impl(context: Context, inside: str, does: str) -> None:
    context.places = enter_bridge("finalizer", does, inside, used=context.used)


@then("each time every future was resolved, and one loop at most was made, and ended")
def step_impl(context: Context) -> None:
    assert context.places > 20, context.places
