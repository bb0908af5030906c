from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from support.bridge.bridge_inside import enter_bridge
from support.cli.command import DEADLINE, environment


@given("a bridge that is in use")
def step_a_bridge_that_is_in_use(context: Context) -> None:
    context.used = True


@given("a bridge that is yet unused")
def step_a_bridge_that_is_yet_unused(context: Context) -> None:
    context.used = False


@when("in the middle of {inside} a signal handler {does}, place by place")
def step_in_the_middle_of_inside_a_signal_handler_does_place_by(
    context: Context, inside: str, does: str
) -> None:
    context.places = enter_bridge("signal handler", does, inside, used=context.used)


@when("in the middle of {inside} a finalizer {does}, place by place")
def step_in_the_middle_of_inside_a_finalizer_does_place_by_place(
    context: Context, inside: str, does: str
) -> None:
    context.places = enter_bridge("finalizer", does, inside, used=context.used)


@then("each time every future was resolved, and one loop at most was made, and ended")
def step_each_time_every_future_was_resolved_and_one_loop_at_most(context: Context) -> None:
    assert context.places > 20, context.places


@when("a signal handler raises {exception} at each place of {inside}")
def step_a_signal_handler_raises_at_each_place(
    context: Context, exception: str, inside: str
) -> None:
    # In a process of its own, unmeasured: Python 3.12 crashes where one tracer takes over from
    # another that has raised.
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "support.bridge.bridge_inside",
            exception,
            inside,
            str(context.used),
        ],
        cwd=Path(__file__).parents[2],
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
