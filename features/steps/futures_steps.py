from __future__ import annotations

from behave import then, when
from behave.runner import Context

from support.future_ways import WAYS, Light, Stock, Way


@when("{what} is done with a future of the standard library, and with a light one")
def step_impl(context: Context, what: str) -> None:
    context.seen = [WAYS[what](Way(kind)) for kind in (Stock(), Light())]


@then("the same was seen")
def step_impl(context: Context) -> None:
    stock, light = context.seen
    assert stock, "nothing was seen"
    assert stock == light, f"standard library: {stock}, ours: {light}"
