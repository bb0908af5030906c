"""What is kept of a run that is over."""

from __future__ import annotations

import gc
import pickle
import traceback
import weakref
from contextvars import copy_context
from typing import Any

from behave import then, when
from behave.runner import Context
from tenacity import AsyncRetrying, stop_after_attempt

from rxlanggraph import StreamMessage
from support.bridge.bridges import on_loop
from support.bridge.graphs import one_node
from support.concurrency import kept
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT


async def _echo(content: Any) -> Any:
    return content


@when("{count:d} results of an async function are each fed back to it")
def results_are_fed_back(context: Context, count: int) -> None:
    context.message = StreamMessage("begin")
    for _ in range(count):
        context.sent = context.message
        context.message = context.bridge.create_future_task(_echo, context.sent).result(LIMIT)


@then("the last one's source is the message it answers, without a source of its own")
def step_the_last_ones_source_is_the_message_it_answers_without_a(context: Context) -> None:
    assert context.message.source == context.sent.replace(source=None), context.message.source


@then("it is pickled in less than {size:d} bytes")
def it_is_pickled_in_less_than(context: Context, size: int) -> None:
    assert len(pickle.dumps(context.message)) < size


@when("{count:d} results are made, each with the one before as its source")
def step_count_results_are_made_each_with_the_one_before_as_its(
    context: Context, count: int
) -> None:
    context.message = StreamMessage(0)
    for number in range(count):
        context.message = StreamMessage(number, source=context.message)


@then("{count:d} messages are left, and the last one can be pickled")
def messages_are_left(context: Context, count: int) -> None:
    found, todo = 0, context.message
    while todo is not None:
        found, todo = found + 1, todo.source
    assert found == count, found
    assert pickle.loads(pickle.dumps(context.message)) == context.message


@when("one message goes to an async function")
def one_message_goes(context: Context) -> None:
    context.sent = StreamMessage("hello")
    context.message = context.bridge.create_future_task(_echo, context.sent).result(LIMIT)


@then("its result's source is that very message")
def its_source_is_that_very_message(context: Context) -> None:
    assert context.message.source is context.sent


@when('a result of "{source}" is made')
def step_a_result_of_source_is_made(context: Context, source: str) -> None:
    context.error = error_of(lambda: StreamMessage(1, source=source))


# -- runs ------------------------------------------------------------------------------------------


def _look(context: Context, kind: str, outcome: str, errors: str, options: str) -> None:
    fast = AsyncRetrying(stop=stop_after_attempt(2), reraise=True)
    arguments = eval(f"dict({options})", {"fast": fast})
    with kept.uncollected():
        left = kept.kept_of_a_run(context.bridge, kind, outcome, errors, arguments)
    context.left = [*getattr(context, "left", ()), *((errors, options, name) for name in left)]


@when('the last run of "{kind}" {outcome}, with no options')
def the_last_run(context: Context, kind: str, outcome: str) -> None:
    _look(context, kind, outcome, "future", "")


@when('the last run of "{kind}" {outcome}, with "{options}"')
def the_last_run_with_options(context: Context, kind: str, outcome: str, options: str) -> None:
    _look(context, kind, outcome, "future", options)


@when('the last result of "{kind}" {outcome}, with errors="{errors}"')
def the_last_result(context: Context, kind: str, outcome: str, errors: str) -> None:
    _look(context, kind, outcome, errors, "")


@when("an async function leaves a copy of its context behind")
def an_async_function_leaves_its_context(context: Context) -> None:
    async def function(_: Any) -> None:
        context.outliving = copy_context()

    run = context.bridge.create_future_task(function, StreamMessage("hello"))
    context.run = weakref.ref(run)
    run.result(LIMIT)
    # The loop still has a hand on the run when its result is there; not when it comes to this.
    on_loop(context)


@then("its run is freed while that copy remains")
def its_run_is_freed(context: Context) -> None:
    gc.collect()  # this is about what is kept, not about when it is freed
    assert context.outliving is not None
    assert context.run() is None


@when("a graph of {kind} fails without a bridge")
def a_graph_fails_without_a_bridge(context: Context, kind: str) -> None:
    with kept.uncollected():
        context.left = kept.kept_of_plain_langgraph(kind)


@then("nothing is kept of it")
def nothing_is_kept(context: Context) -> None:
    gc.collect()  # or the leak check would find what this is about
    assert not context.left, context.left


@when("a graph fails whose node has a local of its own")
def step_a_graph_fails_whose_node_has_a_local_of_its_own(context: Context) -> None:
    def node(state: dict[str, Any]) -> None:
        of_its_own = "here"
        raise ValueError(of_its_own)

    run = context.bridge.create_future_task(one_node(node), {"value": 1})
    context.error = run.exception(LIMIT)


@then("the traceback shows LangGraph's lines and that local, and no line of the bridge")
def the_traceback_shows(context: Context) -> None:
    frames = list(traceback.walk_tb(context.error.__traceback__))
    first, last = frames[0][0], frames[-1][0]
    assert first.f_globals["__name__"].startswith("langgraph."), first
    assert last.f_locals["of_its_own"] == "here", last.f_locals
