from __future__ import annotations

from behave import given, register_type, when
from behave.runner import Context
from parse_type import TypeBuilder

from support.bridge.bridge_inside import ADOPTED, ENTERABLES
from support.cli.command import run_python

register_type(Used=TypeBuilder.make_enum({"in use": True, "yet unused": False}))


@given("a bridge that is {used:Used}")
def step_a_bridge_that_is_used(context: Context, used: bool) -> None:
    context.used = used
    context.enterable = ENTERABLES[used]


@given("a bridge that is in use on a loop that another thread runs")
def step_a_bridge_that_is_in_use_on_a_loop_that_another_thread_runs(context: Context) -> None:
    context.enterable = ADOPTED


@when("a signal handler raises {exception} at each place of {inside}")
def step_a_signal_handler_raises_at_each_place(
    context: Context, exception: str, inside: str
) -> None:
    # In a process of its own, which coverage does not measure: Python 3.12 crashes where one tracer
    # takes over from another that has raised.
    done = run_python("-m", "support.bridge.bridge_inside", exception, inside, str(context.used))
    assert done.returncode == 0, done.stderr
    context.places = int(done.stdout)
