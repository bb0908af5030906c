"""Runs and streams, awaited on the loop that a step names."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Coroutine
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.observer import AutoDetachObserver
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler
from reactivex.subject import Subject

from rxlanggraph.bridge.operators.on_loop import OnLoop
from support.bridge.bridges import answer
from support.bridge.graphs import one_node
from support.bridge.streams import value_of
from support.concurrency.waiting import LIMIT, Gate, Log, thread

HELLO: Any = {"value": 7}


def on(context: Context, where: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run ``coroutine`` on the loop that ``where`` names, and return what it does."""

    # No timer on the loop itself bounds it: that would wake a loop that nothing else has woken.
    if where != "the bridge's":
        return on_another(coroutine, debug=where == "a debugged")
    if context.lent is not None:
        return context.lent.run(coroutine)

    async def call(_: object) -> Any:
        return await coroutine

    return context.bridge.create_future_task(call, None).result(LIMIT).content


def on_another(coroutine: Coroutine[Any, Any, Any], *, debug: bool) -> Any:
    with asyncio.Runner(debug=debug) as runner:
        ended = thread(runner.run, coroutine)
        try:
            return ended.result(LIMIT)
        except TimeoutError:
            runner.get_loop().call_soon_threadsafe(lambda: None)  # it was asleep, with all done
            ended.exception(LIMIT)
            raise


def raised_on(context: Context, where: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
    async def caught() -> BaseException | None:
        try:
            await coroutine
        except (Exception, asyncio.CancelledError) as error:
            return error
        return None

    return on(context, where, caught())


# -- a run -----------------------------------------------------------------------------------------


async def by_gather(run: Any) -> Any:
    (result,) = await asyncio.gather(run)
    return result


async def by_wait_for(run: Any) -> Any:
    return await asyncio.wait_for(run, LIMIT)


async def by_ensure_future(run: Any) -> Any:
    return await asyncio.ensure_future(run)


async def by_await(run: Any) -> Any:
    return await run


async def by_await_once_done(run: Any) -> Any:
    run.result(LIMIT)
    return await run


FORMS = {
    "await": by_await,
    "gather": by_gather,
    "wait_for": by_wait_for,
    "ensure_future": by_ensure_future,
    "await, once done": by_await_once_done,
}


@when("a run is awaited on {where} loop, by {form}")
def run_is_awaited(context: Context, where: str, form: str) -> None:
    graph = one_node(context.work.answer)

    async def submit_and_await() -> Any:
        return await FORMS[form](context.bridge.create_future_task(graph, HELLO))

    context.result = on(context, where, submit_and_await())


@then("it gives the run's result")
def it_gives_the_result(context: Context) -> None:
    assert context.result.status == "ok" and value_of(context.result) == 7, context.result


@when("a run that fails is awaited on another loop")
def step_a_run_that_fails_is_awaited_on_another_loop(context: Context) -> None:
    run = context.bridge.create_future_task(one_node(context.work.fail), HELLO)
    context.futures.append(run)
    context.error = raised_on(context, "another", by_await(run))


@then("awaiting raises the very exception of the graph")
def awaiting_raises_the_exception(context: Context) -> None:
    assert isinstance(context.error, ValueError), context.error
    assert context.futures[0].exception(LIMIT) is context.error


@when("a run is cancelled while it is awaited on another loop")
def step_a_run_is_cancelled_while_it_is_awaited_on_another_loop(context: Context) -> None:
    run = context.bridge.create_future_task(context.work.wait, HELLO)

    async def cancel_and_await() -> None:
        awaiting = asyncio.ensure_future(by_await(run))
        await asyncio.sleep(0)
        run.cancel()
        await awaiting

    context.error = raised_on(context, "another", cancel_and_await())


@when("{how} comes while a run is awaited on another loop")
def step_how_comes_while_a_run_is_awaited_on_another_loop(context: Context, how: str) -> None:
    run = context.bridge.create_future_task(context.work.wait, HELLO)
    context.futures.append(run)
    context.work.began.wait_for(1)

    async def end() -> None:
        if how.startswith("a wait_for"):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(run, 0.001)
            return
        waiting = asyncio.shield(run) if how.endswith("shielded") else by_await(run)
        awaiting = asyncio.ensure_future(by_await(waiting))
        await asyncio.sleep(0)
        awaiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await awaiting

    # A loop that ends cancels what is shielded on it too: the bridge's goes on.
    on(context, "the bridge's", end())


@then("it cancels the run")
def it_cancels_the_run(context: Context) -> None:
    assert context.futures[0].cancelled()
    assert context.bridge.registry.wait_idle(LIMIT)


@then("it keeps the run")
def it_keeps_the_run(context: Context) -> None:
    assert not context.futures[0].done()
    context.work.gate.open()
    assert value_of(answer(context, 0)) == 7


@when("a plain function hands back another run")
def step_a_plain_function_hands_back_another_run(context: Context) -> None:
    def forward(content: Any) -> Any:
        return context.bridge.create_future_task(context.work.answer, content)

    context.futures.append(context.bridge.create_future_task(forward, HELLO))


@then("its content is that run's result")
def step_its_content_is_that_runs_result(context: Context) -> None:
    assert value_of(answer(context).content) == 7, answer(context)


# -- a stream --------------------------------------------------------------------------------------


def source_of(context: Context, source: str) -> Any:
    items = [{"value": value} for value in range(10)]
    if source == "an iterable":
        return rx.from_iterable(items)

    def subscribe(observer: Any, _: Any = None) -> None:
        def emit() -> None:
            for item in items:
                observer.on_next(item)
            observer.on_completed()

        thread(emit)

    return rx.create(subscribe)


def piped(context: Context, source: Any, pipeline: str) -> Any:
    graph = one_node(context.work.answer)
    invoke = context.bridge.invoke
    values = ops.map(value_of)
    if pipeline.endswith("observed on the loop"):
        # For operators that keep to themselves who subscribes: the remedy of the documentation.
        on_loop = ops.observe_on(AsyncIOThreadSafeScheduler(asyncio.get_running_loop()))
        task = functools.partial(context.bridge.create_future_task, graph)
        stage = ops.flat_map(task) if pipeline.startswith("flat_map") else invoke(graph)
        last = [ops.to_future()] if pipeline.startswith("to_future") else []
        return source.pipe(stage, ops.share(), values, ops.to_list(), on_loop, *last)
    stages: dict[str, list[Any]] = {
        "invoke": [invoke(graph, ordered=True)],
        "invoke and map": [invoke(graph, ordered=True), values],
        "invoke and to_list": [invoke(graph), values, ops.to_list()],
        "two stages": [
            invoke(graph),
            ops.map(lambda result: result.content),
            invoke(graph),
            values,
            ops.to_list(),
        ],
    }
    return source.pipe(*stages[pipeline])


@when("messages 0 to 9 from {source} go through {pipeline}, awaited on {where} loop")
def step_messages_0_to_9_from_source_go_through_pipeline_awaited(
    context: Context, source: str, pipeline: str, where: str
) -> None:
    async def go() -> Any:
        return await piped(context, source_of(context, source), pipeline)

    context.result = on(context, where, go())


@then("awaiting gives what the pipeline gives last")
def awaiting_gives_the_last(context: Context) -> None:
    result = context.result
    if isinstance(result, list):
        assert sorted(result) == list(range(10)), result
    else:
        assert (result if isinstance(result, int) else value_of(result)) == 9, result


@when("an awaited stream ends with {end}")
def awaited_stream_ends_with(context: Context, end: str) -> None:
    subject: Subject[Any] = Subject()
    graph = context.work.fail if end.startswith("an error of its graph") else context.work.wait

    async def go() -> Any:
        awaiting = asyncio.ensure_future(by_await(subject.pipe(context.bridge.invoke(graph))))
        await asyncio.sleep(0)
        if end == "nothing":
            thread(subject.on_completed)
        elif end.endswith("elsewhere"):
            thread(subject.on_error, LookupError("source"))
        else:
            thread(subject.on_next, HELLO)
        return await awaiting

    context.error = raised_on(context, "another", go())


@when("who awaits a stream of waiting runs is cancelled")
def who_awaits_is_cancelled(context: Context) -> None:
    async def go() -> None:
        stream = source_of(context, "an iterable").pipe(context.bridge.invoke(context.work.wait))
        awaiting = asyncio.ensure_future(by_await(stream))
        await asyncio.to_thread(context.work.began.wait_for, 10)
        awaiting.cancel()
        await awaiting

    assert isinstance(raised_on(context, "another", go()), asyncio.CancelledError)


@when("one of two runs fails while the loop that awaits their stream stands still")
def step_one_of_two_runs_fails_while_the_loop_that_awaits_their(context: Context) -> None:
    source: Subject[Any] = Subject()
    fails, ended = Gate(), Log()

    async def node(content: str) -> Any:
        if content == "waits":
            try:
                return await context.work.wait(HELLO)
            finally:
                ended.add(content)
        await fails.wait_async()
        return await context.work.fail(HELLO)

    async def go() -> Any:
        awaiting = asyncio.ensure_future(by_await(source.pipe(context.bridge.invoke(node))))
        await asyncio.sleep(0)
        for content in ("waits", "fails"):
            source.on_next(content)
        context.work.began.wait_for(1)
        fails.open()
        context.ended_meanwhile = ended.wait_for(1)  # the loop stands still here
        return await awaiting

    context.error = raised_on(context, "another", go())


@then("the other run is cancelled meanwhile")
def step_the_other_run_is_cancelled_meanwhile(context: Context) -> None:
    assert context.ended_meanwhile == ["waits"], context.ended_meanwhile


@when("a call behind the items for a loop is asked for, and the loop is closed")
def step_a_call_behind_the_items_is_asked_for(context: Context) -> None:
    loop, context.calls = asyncio.new_event_loop(), []
    on_loop = OnLoop(AutoDetachObserver(), loop)
    loop.close()
    on_loop.call(lambda: context.calls.append("made"))


@then("it is made at once")
def step_it_is_made_at_once(context: Context) -> None:
    assert context.calls == ["made"]
