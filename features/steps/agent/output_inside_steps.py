from __future__ import annotations

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.agent import OutputQueue
from support.bridge.bridges import arguments
from support.concurrency.entering import enter_everywhere
from support.concurrency.raising import error_of
from support.controls import output_naive

# -- what is refused -------------------------------------------------------------------------------


@when("an output queue is made with {argument}")
def step_an_output_queue_is_made_with_argument(context: Context, argument: str) -> None:
    value = argument.replace("inf", "float('inf')")
    context.error = error_of(lambda: OutputQueue(**arguments(value)))


@when("an item is asked for, and a stream opened, with a time limit of {value}")
def step_an_item_is_asked_for_and_a_stream_opened_with_a_time_limit(
    context: Context, value: str
) -> None:
    limit = eval(value, {"nan": float("nan"), "inf": float("inf")})
    context.errors = []
    for ask in (context.queue.get, context.queue.stream):
        try:
            ask(limit)
        except Exception as error:
            context.errors.append(error)


# -- interruptions ---------------------------------------------------------------------------------


@given("a queue under a plain lock")
def step_a_queue_under_a_plain_lock(context: Context) -> None:
    context.make = output_naive.PlainLockQueue


@when("a signal handler puts into it, at each place of putting")
def step_a_signal_handler_puts_into_it_at_each_place_of_putting(context: Context) -> None:
    enter_everywhere(
        {str(output_naive.__file__)},
        "signal handler",
        make=context.make,
        operation=lambda queue: queue.put_nowait(1),
        entry=lambda queue: queue.put_nowait(2),
        check=lambda _: None,
    )


@then("none of those waited for the lock that its own thread held")
def step_none_of_those_waited_for_the_lock_that_its_own_thread_held(context: Context) -> None:
    """The step before would have failed."""
