from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import reactivex
from behave import then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.subject import Subject

from rxlanggraph import RxPyLangGraphBridge, StreamMessage, TaskRegistry
from rxlanggraph.hooks import Hooks
from support.bridge.bridges import listen
from support.bridge.graphs import graph_of, one_node
from support.bridge.raising_places import EXCEPTIONS, echo, once_for_a_run, raise_, raise_at
from support.bridge.streams import Subscriber
from support.concurrency.raising import error_of
from support.concurrency.tasks import in_thread
from support.concurrency.waiting import LIMIT, Gate, Log, thread

# -- code that the bridge calls --------------------------------------------------------------------


@when("{exception} is raised by {place}")
def step_exception_is_raised_by_place(context: Context, exception: str, place: str) -> None:
    context.logged = listen(context, "concurrent.futures")
    # No main thread, where a KeyboardInterrupt would be one.
    in_thread(lambda: raise_at(place, context.bridge, EXCEPTIONS[exception]))


class Crowd:
    """How many are in at once, in all and by thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: Counter[str] = Counter()
        self.peak = 0
        self.peak_of_thread = 0

    async def node(self, message: int) -> int:
        lane = str(message % 3)
        with self._lock:
            self._now[lane] += 1
            self.peak = max(self.peak, self._now.total())
            self.peak_of_thread = max(self.peak_of_thread, self._now[lane])
        await asyncio.sleep(0)
        with self._lock:
            self._now[lane] -= 1
        return message


@then("30 messages of 3 threads are answered, {limit:d} at once at most, one at a time on a thread")
def step_30_messages_of_3_threads_are_answered(context: Context, limit: int) -> None:
    crowd = Crowd()
    runs = [
        context.bridge.create_future_task(crowd.node, number, thread_id=str(number % 3))
        for number in range(30)
    ]
    assert [run.result(LIMIT).content for run in runs] == list(range(30))
    assert crowd.peak <= limit, crowd.peak
    assert crowd.peak_of_thread == 1, crowd.peak_of_thread


def end_of(stream: Any) -> BaseException | None:
    """What ``run()`` of a stream raises, in a thread of its own."""

    def run() -> BaseException | None:
        try:
            stream.run()
        except BaseException as error:
            return error
        return None

    error: BaseException | None = in_thread(run)
    return error


@when("the mapper behind invoke raises {exception}")
def step_the_mapper_behind_invoke_raises(context: Context, exception: str) -> None:
    mapper = functools.partial(raise_, EXCEPTIONS[exception])
    context.end = end_of(reactivex.of(1, 2).pipe(context.bridge.invoke(echo), ops.map(mapper)))


@when("a thread_id function raises {exception}")
def step_a_thread_id_function_raises(context: Context, exception: str) -> None:
    thread_id = functools.partial(raise_, EXCEPTIONS[exception])
    context.end = end_of(reactivex.of(1, 2).pipe(context.bridge.invoke(echo, thread_id=thread_id)))


@then("run() of that stream raises {exception}")
def step_run_of_that_stream_raises(context: Context, exception: str) -> None:
    assert type(context.end) is EXCEPTIONS[exception], repr(context.end)


def for_the_third(fails: Callable[[], Any]) -> Callable[[StreamMessage], Any]:
    """A function of the message that returns None, except for the third message."""
    return lambda message: fails() if message.content == 2 else None


async def with_context(content: int, context: object = None) -> int:
    await asyncio.sleep(0)
    return content


def results_of_five(bridge: RxPyLangGraphBridge, **options: Any) -> list[StreamMessage]:
    messages = reactivex.from_iterable([StreamMessage(n, thread_id="own") for n in range(5)])
    operator = bridge.invoke(with_context, **options)
    results: list[StreamMessage] = in_thread(messages.pipe(operator, ops.to_list()).run)
    return results


@when(
    "the function passed as {argument} raises a ValueError for the third of five messages, with "
    'errors="emit" and ordered={ordered}'
)
def step_the_function_passed_as_raises_a_valueerror_for_the_third(
    context: Context, argument: str, ordered: str
) -> None:
    function = for_the_third(functools.partial(raise_, ValueError))
    context.ordered = ordered == "True"
    context.results = results_of_five(
        context.bridge, **{argument: function}, errors="emit", ordered=context.ordered
    )


@then(
    "all five have a result, in their order if ordered: the third has the status error and that "
    "ValueError"
)
def step_all_five_have_a_result_in_their_order_if_ordered(context: Context) -> None:
    sources = [result.source.content for result in context.results]
    assert (sources if context.ordered else sorted(sources)) == [0, 1, 2, 3, 4], sources
    statuses = {result.source.content: result.status for result in context.results}
    assert statuses == {0: "ok", 1: "ok", 2: "error", 3: "ok", 4: "ok"}, statuses
    (failed,) = (result for result in context.results if result.status == "error")
    assert type(failed.error) is ValueError, failed.error


@then("of the bridge's runs 4 have succeeded, and 1 has failed")
def step_of_the_bridges_runs_4_have_succeeded_and_1_has_failed(context: Context) -> None:
    counted = context.bridge.registry.statistics()
    assert (counted.submitted, counted.succeeded, counted.failed) == (5, 4, 1), counted


NONSENSE: dict[tuple[str, str], Any] = {
    ("thread_id", "a number"): 7,
    ("config", "another thread"): {"configurable": {"thread_id": "another"}},
    ("timeout", "a number"): -1.0,
}


@when(
    "the function passed as {argument} returns {nonsense} for the third of five messages, with "
    'errors="skip"'
)
def step_the_function_passed_as_returns_for_the_third_of_five(
    context: Context, argument: str, nonsense: str
) -> None:
    function = for_the_third(lambda: NONSENSE[argument, nonsense])
    context.results = results_of_five(context.bridge, **{argument: function}, errors="skip")


@then("the other four have a result, and the stream completes")
def step_the_other_four_have_a_result_and_the_stream_completes(context: Context) -> None:
    assert sorted(result.content for result in context.results) == [0, 1, 3, 4], context.results


@when("the first of three done-callbacks raises {exception}")
def step_the_first_of_three_done_callbacks_raises(context: Context, exception: str) -> None:
    context.logged = listen(context, "concurrent.futures")
    context.called = Log()
    gate = Gate()

    async def wait(_: object) -> None:
        await gate.wait_async()

    run = context.bridge.create_future_task(wait, 0)
    run.add_done_callback(functools.partial(raise_, EXCEPTIONS[exception]))
    run.add_done_callback(context.called.add)
    run.add_done_callback(context.called.add)
    gate.open()


@then("the other two are called, and the log has {exception}")
def step_the_other_two_are_called_and_the_log_has(context: Context, exception: str) -> None:
    context.called.wait_for(2)
    (record,) = context.logged
    assert record.exc_info[0] is EXCEPTIONS[exception], record


@when("the main thread cancels a run whose first callback raises a KeyboardInterrupt")
def step_the_main_thread_cancels_a_run_whose_first_callback_raises(context: Context) -> None:
    assert threading.current_thread() is threading.main_thread()
    context.logged = listen(context, "concurrent.futures")
    context.called = Log()
    run = context.bridge.create_future_task(context.work.wait, {"value": 0})
    run.add_done_callback(functools.partial(raise_, KeyboardInterrupt))
    run.add_done_callback(context.called.add)
    context.futures.append(run)
    try:
        run.cancel()
    except KeyboardInterrupt as error:
        context.error = error


@then(
    "the KeyboardInterrupt comes out of cancel(), the other callbacks were called, and the run ends"
)
def step_the_keyboardinterrupt_comes_out_of_cancel_the_other(context: Context) -> None:
    assert isinstance(context.error, KeyboardInterrupt)
    assert list(context.called) == context.futures
    assert context.bridge.registry.wait_idle(LIMIT)


async def cancel_itself(_: object) -> None:
    raise asyncio.CancelledError


@when("on a loop of the main thread that a bridge adopts, {place} raises a KeyboardInterrupt")
def step_on_a_loop_of_the_main_thread_that_a_bridge_adopts_place(
    context: Context, place: str
) -> None:
    assert threading.current_thread() is threading.main_thread()
    listen(context, "concurrent.futures")
    listen(context, "rxlanggraph")
    context.called = Log()
    interrupt = functools.partial(raise_, KeyboardInterrupt)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with RxPyLangGraphBridge(loop) as bridge:
            if "hook" in place:
                hook = "on_started" if "start" in place else "on_ended"
                bridge.add_hooks(type("Raising", (Hooks,), {hook: lambda *_: interrupt()})())
            run = bridge.create_future_task(cancel_itself if "cancels" in place else echo, 0)
            if "callback" in place:
                run.add_done_callback(interrupt)
            elif "factory" in place:
                loop.set_task_factory(once_for_a_run(interrupt))
            run.add_done_callback(context.called.add)
            context.futures = [run]
            await asyncio.wait_for(loop.create_future(), LIMIT)

    try:
        asyncio.run(main())
    except BaseException as error:
        context.error = error


@then("asyncio.run raises KeyboardInterrupt, and the run is resolved and its other callback called")
def step_asyncio_run_raises_keyboardinterrupt_and_the_run_is(context: Context) -> None:
    assert isinstance(context.error, KeyboardInterrupt), repr(context.error)
    assert context.futures[0].done(), context.futures
    assert list(context.called) == context.futures, list(context.called)


@when("the main thread cleans up 3 runs, each with a callback that raises a KeyboardInterrupt")
def step_the_main_thread_cleans_up_3_runs_each_with_a_callback(context: Context) -> None:
    listen(context, "concurrent.futures")
    listen(context, "rxlanggraph")
    for value in range(3):
        run = context.bridge.create_future_task(context.work.wait, {"value": value})
        run.add_done_callback(functools.partial(raise_, KeyboardInterrupt))
        context.futures.append(run)
    try:
        context.bridge.cleanup_tasks()
    except KeyboardInterrupt as error:
        context.error = error


@then("the KeyboardInterrupt comes out of the cleanup, and all 3 are cancelled")
def step_the_keyboardinterrupt_comes_out_of_the_cleanup_and_all_3(context: Context) -> None:
    assert isinstance(context.error, KeyboardInterrupt)
    assert all(run.cancelled() for run in context.futures), context.futures
    assert context.bridge.registry.wait_idle(LIMIT)


class Unwatchable(Future[Any]):
    def add_done_callback(self, fn: Any) -> None:
        raise RuntimeError("not to be watched")


@when("a future whose add_done_callback raises is added to a registry")
def step_a_future_whose_add_done_callback_raises_is_added(context: Context) -> None:
    context.registry = TaskRegistry()
    context.error = error_of(lambda: context.registry.add(Unwatchable()))


@then("the registry raises what the future raised, and is empty")
def step_the_registry_raises_what_the_future_raised(context: Context) -> None:
    assert str(context.error) == "not to be watched", context.error
    assert len(context.registry) == 0
    assert context.registry.wait_idle(0)


# -- nodes -----------------------------------------------------------------------------------------


def raising_node(kind: str, error: type[BaseException], *, every: int) -> Any:
    def answer(content: Any) -> Any:
        if content["value"] % every == 0:
            raise error
        return content

    async def answer_async(content: Any) -> Any:
        await asyncio.sleep(0)
        return answer(content)

    node = answer_async if "async" in kind else answer
    return one_node(node) if "graph" in kind else node


@when("{count:d} messages go to invoke of {kind:Kind}, of which every seventh raises {exception}")
def step_messages_go_to_invoke_of_which_every_seventh_raises(
    context: Context, count: int, kind: str, exception: str
) -> None:
    listen(context, "rxlanggraph")
    graph = raising_node(kind, EXCEPTIONS[f"a {exception}"], every=7)
    source = reactivex.from_iterable([{"value": value} for value in range(count)])
    context.subscriber = Subscriber()
    context.subscriber.subscribe(source.pipe(context.bridge.invoke(graph, errors="emit")))


@then(
    "{ok:d} results are ok, {failed:d} have the status error and the {exception} itself, "
    "and the stream completes"
)
def step_ok_results_are_ok_failed_have_the_status_error_and_the(
    context: Context, ok: int, failed: int, exception: str
) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    statuses = Counter(result.status for result in subscriber.items)
    assert statuses == {"ok": ok, "error": failed}, statuses
    errors = {type(result.error) for result in subscriber.items} - {type(None)}
    assert errors == {EXCEPTIONS[f"a {exception}"]}, errors


@when("a node raises SystemExit in the step in which the bridge is closed")
def step_a_node_raises_systemexit_in_the_step_in_which_the_bridge(context: Context) -> None:
    listen(context, "rxlanggraph")
    bridge = context.bridge

    async def close_and_exit(_: object) -> None:
        bridge.close(0, cancel_timeout=0)
        asyncio.get_running_loop().call_soon(raise_, SystemExit)

    bridge.create_future_task(close_and_exit, 0)


@then("the loop's thread ends")
def step_the_loops_thread_ends(context: Context) -> None:
    context.bridge._engine.host.stopped.result(LIMIT)


@when("{count:d} messages go to a graph on an adopted loop, and one node raises SystemExit")
def step_messages_go_to_a_graph_on_an_adopted_loop(context: Context, count: int) -> None:
    listen(context, "rxlanggraph")
    runs: list[Future[StreamMessage]] = []
    last = count - 1

    async def node(state: Any) -> Any:
        if state["value"] == last:
            raise SystemExit
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        graph = one_node(node)
        async with RxPyLangGraphBridge(asyncio.get_running_loop()) as bridge:
            runs.extend(
                bridge.create_future_task(graph, {"value": value}) for value in range(count)
            )
            await asyncio.get_running_loop().create_future()

    context.futures = runs
    context.end = thread(asyncio.run, main()).exception(LIMIT)


@then("asyncio.run raises SystemExit, and every future is resolved")
def step_asyncio_run_raises_systemexit_and_every_future_is(context: Context) -> None:
    assert isinstance(context.end, SystemExit), repr(context.end)
    assert context.futures
    assert all(run.done() for run in context.futures), context.futures


# -- streams that are cut off ----------------------------------------------------------------------


def stream_of_50(context: Context, errors: str) -> None:
    """Of fifty messages nine are answered, and the others wait; the source has completed."""
    listen(context, "rxlanggraph")
    work = context.work

    async def node(content: Any) -> Any:
        return content if content["value"] < 9 else await work.wait(content)

    messages = [{"value": value} for value in range(50)]
    stream = reactivex.from_iterable(messages).pipe(context.bridge.invoke(node, errors=errors))
    context.subscriber = Subscriber()
    context.subscriber.subscribe(stream)
    context.subscriber.log.wait_for(9)


@when('the bridge is closed over a stream with errors="{errors}" that has {done:d} of 50 results')
def step_the_bridge_is_closed_over_a_stream(context: Context, errors: str, done: int) -> None:
    stream_of_50(context, errors)
    context.bridge.close(0)


@when('the adopted loop ends over a stream with errors="{errors}" that has 9 of 50 results')
def step_the_adopted_loop_ends_over_a_stream(context: Context, errors: str) -> None:
    stream_of_50(context, errors)
    context.lent.end()


@then("the stream has {count:d} results, ends with {error}, and does not complete")
def step_the_stream_has_count_results_ends_with_error_and_does_not(
    context: Context, count: int, error: str
) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert len(subscriber.items) == count, len(subscriber.items)
    assert len(subscriber.ends) == 1, subscriber.ends
    assert subscriber.error is not None, subscriber.ends
    if error != "an error":
        assert type(subscriber.error).__name__ == error, repr(subscriber.error)


@when('the runs of a stream with errors="skip" are cleaned up, and its source completes')
def step_the_runs_of_a_stream_are_cleaned_up(context: Context) -> None:
    listen(context, "rxlanggraph")
    source: Subject[Any] = Subject()
    context.subscriber = Subscriber()
    waiting = context.bridge.invoke(graph_of(context.work, "a waiting graph"), errors="skip")
    answering = context.bridge.invoke(echo)
    context.subscriber.subscribe(source.pipe(waiting, answering))
    for value in range(3):
        source.on_next({"value": value})
    context.work.began.wait_for(3)
    context.bridge.cleanup_tasks()
    context.work.gate.open()
    for value in range(9):
        source.on_next({"value": value})
    source.on_completed()


@then("the stream has {count:d} results, and completes")
def step_the_stream_has_results_and_completes(context: Context, count: int) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    assert len(subscriber.items) == count, subscriber.items


# -- children --------------------------------------------------------------------------------------


@when("a node waits for a run whose {end} it lets out")
def step_a_node_waits_for_a_run_whose_end_it_lets_out(context: Context, end: str) -> None:
    bridge = context.bridge

    async def child(_: object) -> None:
        await asyncio.get_running_loop().create_future()

    async def parent(_: object) -> None:
        timeout = 0.01 if end == "time-out" else None
        run = bridge.create_future_task(child, 0, timeout=timeout)
        waiting = asyncio.wrap_future(run)
        if end == "cancellation":
            asyncio.get_running_loop().call_soon(run.cancel)
        elif end == "cancelled future":
            run.cancel()
        await waiting

    context.futures.append(bridge.create_future_task(parent, 0, errors="emit"))


@then("the parent's status is {status}")
def step_the_parents_status_is(context: Context, status: str) -> None:
    result = context.futures[-1].result(LIMIT)
    assert result.status == status, result
