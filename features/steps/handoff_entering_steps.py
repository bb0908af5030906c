from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from support.bridge_inside import enter_bridge
from support.command import DEADLINE, environment


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
    # In a process of its own, unmeasured: Python 3.12 crashes where one tracer takes over from
    # another that has raised.
    done = subprocess.run(
        [sys.executable, "-m", "support.bridge_inside", exception, inside, str(context.used)],
        cwd=Path(__file__).parents[1],
        env=environment(measured=False),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    context.places = int(done.stdout)


@then("each time the registry became idle, and the bridge answered the next message")
def step_each_time_the_registry_became_idle(context: Context) -> None:
    assert context.places > 20, context.places
