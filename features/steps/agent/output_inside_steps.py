from __future__ import annotations

from behave import when
from behave.runner import Context

from rxlanggraph.agent import OutputQueue
from support.bridge.bridges import arguments
from support.concurrency.raising import error_of

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
