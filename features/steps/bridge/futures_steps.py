from __future__ import annotations

from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph.errors import UsageError
from support.bridge.future_ways import WAYS, Light, Stock, Way
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT


@when("{what} is done with a future of the standard library, and with a light one")
def step_what_is_done_with_a_future_of_the_standard_library_and(
    context: Context, what: str
) -> None:
    context.seen = [WAYS[what](Way(kind)) for kind in (Stock(), Light())]


@then("the same was seen")
def step_the_same_was_seen(context: Context) -> None:
    stock, light = context.seen
    assert stock, "nothing was seen"
    assert stock == light, f"standard library: {stock}, ours: {light}"


@when("a light future is {state}")
def step_a_light_future_is(context: Context, state: str) -> None:
    context.way = way = Way(Light())
    if state == "resolved":
        way.ok()
    elif state == "failed":
        way.fail()
    elif state == "cancelled":
        way.future.cancel()


@then("asyncio reads that it is done {done}, cancelled {cancelled}, with {outcome}")
def step_asyncio_reads(context: Context, done: str, cancelled: str, outcome: str) -> None:
    way = context.way
    expected: dict[str, tuple[Any, Any]] = {
        "nothing": (None, None),
        "its result": (42, None),
        "its error": (None, way.error),
    }
    read = way.future._get_snapshot()
    assert (str(read[0]), str(read[1])) == (done, cancelled), read
    assert read[2:] == expected[outcome], read
    assert (read[0], read[1]) == way.states()


@then("{method} of its future raises a UsageError, and it is answered all the same")
def step_method_of_its_future_raises_a_usageerror(context: Context, method: str) -> None:
    (future,) = context.futures
    arguments = {"set_result": (1,), "set_exception": (ValueError(),)}.get(method, ())
    error = error_of(lambda: getattr(future, method)(*arguments))
    assert isinstance(error, UsageError) and "bridge" in str(error), error
    context.work.gate.open()
    assert future.result(LIMIT).status == "ok"
