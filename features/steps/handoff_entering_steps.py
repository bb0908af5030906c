from __future__ import annotations

import builtins

from behave import given, then, when
from behave.runner import Context

from support.bridge_inside import enter_bridge, raise_in_bridge
from support.bridges import listen


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


@when("a signal handler raises {exception} at each place of {inside}")
def step_a_signal_handler_raises_at_each_place(
    context: Context, exception: str, inside: str
) -> None:
    listen(context, "concurrent.futures")
    error = getattr(builtins, exception)
    context.places = raise_in_bridge(error, inside, used=context.used)


@then("each time the registry became idle, and the bridge answered the next message")
def step_each_time_the_registry_became_idle(context: Context) -> None:
    assert context.places > 20, context.places
