from __future__ import annotations

from typing import Any

import reactivex
from behave import then, when
from behave.runner import Context
from reactivex.subject import Subject

from rxlanggraph.errors import BridgeClosedError
from support.bridge.bridges import listen, on_loop
from support.bridge.graphs import graph_of, one_node
from support.bridge.streams import Subscriber, value_of
from support.concurrency.waiting import LIMIT, Gate, in_threads


def through(context: Context, source: Any, graph: Any, **options: Any) -> Subscriber:
    """Subscribe ``context.subscriber`` to ``source`` through invoke."""
    context.subscriber = Subscriber()
    context.subscriber.subscribe(source.pipe(context.bridge.invoke(graph, **options)))
    return context.subscriber


def messages(count: int) -> Any:
    return reactivex.from_iterable({"value": value} for value in range(count))


# -- what arrives ----------------------------------------------------------------------------------


@when("{count:d} threads cancel {runs:d} runs of one stream while others complete")
def step_count_threads_cancel_runs_runs_of_one_stream_while_others(
    context: Context, count: int, runs: int
) -> None:
    subscriber = through(context, messages(runs), context.work.answer, errors="emit")
    tasks = context.bridge.registry.tasks()
    in_threads(count, lambda number: [task.cancel() for task in tasks[number::count]])
    subscriber.wait_for_end()


@then("the subscriber was never entered twice, and got {count:d} results and one end")
def step_the_subscriber_was_never_entered_twice_and_got_count(context: Context, count: int) -> None:
    got = context.subscriber.wait_for_end()
    assert (got.overlaps, len(got.items), got.ends) == (0, count, ["completed"])
    assert len({result.source.id for result in got.items}) == count


@when("{source} goes through invoke of {kind:Kind}")
def step_source_goes_through_invoke_of_kind(context: Context, source: str, kind: str) -> None:
    observable = eval(source, {"reactivex": reactivex})
    items = observable.pipe(reactivex.operators.map(lambda value: {"value": value}))
    through(context, items, graph_of(context.work, kind))


@when("the source has completed and all have begun")
def step_the_source_has_completed_and_all_have_begun(context: Context) -> None:
    context.work.began.wait_for(3)


@then("the subscriber has got nothing")
def step_the_subscriber_has_got_nothing(context: Context) -> None:
    assert (context.subscriber.items, context.subscriber.ends) == ([], [])


@then("the subscriber gets one error, a RunCancelledError")
def step_the_subscriber_gets_one_error_a_runcancellederror(context: Context) -> None:
    got = context.subscriber.wait_for_end()
    assert got.items == [] and len(got.ends) == 1
    assert type(got.error).__name__ == "RunCancelledError", repr(got.error)


@then(
    "the subscriber gets {results:d} results, {failed:d} of them with the status error, and one end"
)
def step_the_subscriber_gets_results_results_failed_of_them_with(
    context: Context, results: int, failed: int
) -> None:
    got = context.subscriber.wait_for_end()
    statuses = [result.status for result in got.items]
    assert (len(statuses), statuses.count("error")) == (results, failed), statuses
    assert got.ends == ["completed"]


@then("the subscriber gets 0 to {last:d} in order, and one end")
def step_the_subscriber_gets_0_to_last_in_order_and_one_end(context: Context, last: int) -> None:
    got = context.subscriber.wait_for_end()
    assert [value_of(result) for result in got.items] == list(range(last + 1))
    assert got.ends == ["completed"]


@then("the subscriber gets error {words}")
def step_the_subscriber_gets_error_words(context: Context, words: str) -> None:
    got = context.subscriber.wait_for_end()
    assert (got.items, got.ends) == ([], [f"error {words}"]), (got.items, got.ends)


@then("the subscriber gets completed")
def step_the_subscriber_gets_completed(context: Context) -> None:
    got = context.subscriber.wait_for_end()
    assert (got.items, got.ends) == ([], ["completed"]), (got.items, got.ends)


@then("the subscriber gets 1, 2, 3, completed")
def step_the_subscriber_gets_1_2_3_completed(context: Context) -> None:
    got = context.subscriber.wait_for_end()
    assert sorted(value_of(result) for result in got.items) == [1, 2, 3]
    assert got.ends == ["completed"]


@then("the registry becomes idle, and all that began have ended")
def step_the_registry_becomes_idle_and_all_that_began_have_ended(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert len(context.work.ended) == len(context.work.began) > 0


# -- errors ----------------------------------------------------------------------------------------


@when('9 runs wait and a tenth fails, through invoke with errors="raise"')
def step_9_runs_wait_and_a_tenth_fails_through_invoke_with_errors(context: Context) -> None:
    async def run(content: dict[str, int]) -> Any:
        if content["value"] < 9:
            return await context.work.wait(content)
        return await context.work.fail(content)

    through(context, messages(10), one_node(run), errors="raise")


@when('messages of which every third fails go through invoke with errors="{policy}"')
def step_messages_of_which_every_third_fails_go_through_invoke_with(
    context: Context, policy: str
) -> None:
    async def run(content: dict[str, int]) -> Any:
        third = content["value"] % 3 == 2
        return await (context.work.fail if third else context.work.answer)(content)

    context.records = listen(context, "rxlanggraph")
    through(context, messages(9), one_node(run), errors=policy)


@then("3 messages were logged as skipped, each with its id and its error")
def step_3_messages_were_logged_as_skipped_each_with_its_id_and_its(context: Context) -> None:
    assert len(context.records) == 3, context.records
    for record in context.records:
        assert record.getMessage().startswith("skipped message "), record
        assert record.getMessage().endswith(": error"), record
        assert "no answer to" in str(record.exc_info[1]), record


@when("a source sends 5 messages to a waiting graph, then fails")
def step_a_source_sends_5_messages_to_a_waiting_graph_then_fails(context: Context) -> None:
    source: Subject[Any] = Subject()
    through(context, source, graph_of(context.work, "a waiting graph"))
    for value in range(5):
        source.on_next({"value": value})
    context.work.began.wait_for(5)
    source.on_error(ValueError("source"))


@when("a message goes through invoke with a thread_id function that raises")
def step_a_message_goes_through_invoke_with_a_thread_id_function(context: Context) -> None:
    def choose(_: object) -> str:
        raise ValueError("no thread")

    context.source = Subject[int]()
    through(context, context.source, context.work.answer, thread_id=choose)
    context.error = None
    try:
        context.source.on_next(1)
    except Exception as error:
        context.error = error


@then("the source was told nothing")
def step_the_source_was_told_nothing(context: Context) -> None:
    assert context.error is None, context.error


# -- order and bounds ------------------------------------------------------------------------------


@when("{count:d} runs that end in reverse go through invoke with ordered=True")
def step_count_runs_that_end_in_reverse_go_through_invoke_with(
    context: Context, count: int
) -> None:
    gates = [Gate() for _ in range(count)]

    async def run(content: dict[str, int]) -> Any:
        await gates[content["value"]].wait_async()
        if content["value"]:
            gates[content["value"] - 1].open()
        return content

    through(context, messages(count), one_node(run), ordered=True)
    assert context.subscriber.items == []
    gates[-1].open()


@when("50 messages of which the first waits go through invoke, ordered, max_concurrency 3")
def step_50_messages_of_which_the_first_waits_go_through_invoke(context: Context) -> None:
    _fifty_through(context, "invoke")


@when(
    "50 messages of which the first waits go through {operator:w}, ordered, max_concurrency 3, "
    'errors="{errors}"'
)
def step_50_messages_of_which_the_first_waits_go_through_operator(
    context: Context, operator: str, errors: str
) -> None:
    _fifty_through(context, operator, errors=errors)


def _fifty_through(context: Context, operator: str, **options: Any) -> None:
    async def run(content: dict[str, int]) -> Any:
        return await (context.work.answer if content["value"] else context.work.wait)(content)

    applied = getattr(context.bridge, operator)(run, ordered=True, max_concurrency=3, **options)
    context.subscriber = Subscriber()
    context.subscriber.subscribe(messages(50).pipe(applied))


@when("admission is closed, and then the first ends")
def step_admission_is_closed_and_then_the_first_ends(context: Context) -> None:
    context.work.ended.wait_for(5)
    context.bridge.registry.close()
    context.work.gate.open()


@then("the subscriber gets the results of 0 to {last:d}, and then a BridgeClosedError")
def step_the_subscriber_gets_the_results_of_0_to_last(context: Context, last: int) -> None:
    got = context.subscriber.wait_for_end()
    assert [value_of(result) for result in got.items] == list(range(last + 1)), got.items
    assert isinstance(got.error, BridgeClosedError), got.error


@then("no more than 6 messages are handed over until the first has ended, then all are")
def step_no_more_than_6_messages_are_handed_over_until_the_first(context: Context) -> None:
    context.work.ended.wait_for(5)
    statistics = context.bridge.statistics()
    assert statistics.submitted == 6, statistics
    assert context.subscriber.items == []
    context.work.gate.open()
    got = context.subscriber.wait_for_end()
    assert [value_of(result) for result in got.items] == list(range(50))
    assert context.bridge.statistics().peak_in_flight <= 6 and context.work.peak <= 3


@when("{count:d} messages go through invoke of a waiting graph with max_concurrency={bound:d}")
def step_count_messages_go_through_invoke_of_a_waiting_graph_with(
    context: Context, count: int, bound: int
) -> None:
    graph = graph_of(context.work, "a waiting graph")
    through(context, messages(count), graph, max_concurrency=bound)


@then("no more than {bound:d} of them are on at once")
def step_no_more_than_bound_of_them_are_on_at_once(context: Context, bound: int) -> None:
    context.work.began.wait_for(bound)
    on_loop(context)
    context.work.gate.open()
    context.subscriber.wait_for_end()
    assert context.work.peak == bound, context.work.peak


@when("{count:d} messages go through invoke with ordered=True")
def step_count_messages_go_through_invoke_with_ordered_true(context: Context, count: int) -> None:
    through(context, messages(count), context.work.answer, ordered=True)
