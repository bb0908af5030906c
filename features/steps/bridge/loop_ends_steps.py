from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import CancelledError, wait
from typing import Any
from unittest import mock

import reactivex
from behave import then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.errors import LoopUnavailableError
from support.bridge.bridges import listen
from support.bridge.raising_places import echo
from support.bridge.streams import Subscriber
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.concurrency.tasks import forever
from support.concurrency.waiting import LIMIT, Gate, Log, thread


@when("the adopted loop ends over a run that cleans up and one that waits for its slot")
def step_the_adopted_loop_ends_over_a_run_that_cleans_up_and_one(context: Context) -> None:
    context.begun, context.seen = Log(), Log()
    registry = context.bridge.registry

    async def clean_up(content: Any) -> None:
        context.begun.add(content)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)  # a step of the loop in which it could be lost
            context.seen.add(len(registry))

    for number in range(2):
        run = context.bridge.create_future_task(clean_up, number, errors="emit")
        context.futures.append(run)
    context.begun.wait_for(1)
    context.lent.end()


@then("the first one was in the registry while it cleaned up, and is cancelled")
def step_the_first_one_was_in_the_registry_while_it_cleaned_up(context: Context) -> None:
    assert context.seen.wait_for(1) == [1], list(context.seen)
    assert context.futures[0].result(LIMIT).status == "cancelled", context.futures[0]


@then("the second one never began, and raises LoopUnavailableError")
def step_the_second_one_never_began(context: Context) -> None:
    assert list(context.begun) == [0], list(context.begun)
    result = context.futures[1].result(LIMIT)
    assert isinstance(result.error, LoopUnavailableError), result


@when("asyncio.run ends over a sync function that still needs the loop to return")
def step_asyncio_run_ends_over_a_sync_function(context: Context) -> None:
    begun, ending = Gate(), Gate()
    context.turns = 0

    def need_the_loop(loop: asyncio.AbstractEventLoop) -> None:
        begun.open()
        ending.wait()
        for _ in range(20):  # more than the turns in which asyncio itself ends the loop
            turned = Gate()
            loop.call_soon_threadsafe(turned.open)
            turned.wait()
            context.turns += 1

    async def host() -> None:
        loop = asyncio.get_running_loop()
        context.bridge = RxPyLangGraphBridge(loop)
        context.bridge.create_future_task(need_the_loop, loop)
        await begun.wait_async()

        async def notice() -> None:
            try:
                await loop.create_future()
            finally:
                ending.open()

        context.noticing = asyncio.create_task(notice())
        await asyncio.sleep(0)

    asyncio.run(host())
    context.left = len(context.bridge.registry)
    context.bridge.close()


@then("that function got what it needed, and the registry is empty")
def step_that_function_got_what_it_needed(context: Context) -> None:
    assert (context.turns, context.left) == (20, 0)


@when('the adopted loop ends over a stream with errors="skip" that waits behind another run')
def step_the_adopted_loop_ends_over_a_stream_that_waits(context: Context) -> None:
    listen(context, "rxlanggraph")
    context.bridge.create_future_task(context.work.wait, {"value": 0})
    context.work.began.wait_for(1)
    stream = reactivex.from_iterable(range(5)).pipe(context.bridge.invoke(echo, errors="skip"))
    context.subscriber = Subscriber()
    context.subscriber.subscribe(stream)
    context.lent.end()


@when('the adopted loop ends over a stream with errors="skip" whose only run has begun')
def step_the_adopted_loop_ends_over_a_stream_whose_only_run_has_begun(context: Context) -> None:
    listen(context, "rxlanggraph")
    stream = reactivex.just({"value": 0}).pipe(
        context.bridge.invoke(context.work.wait, errors="skip")
    )
    context.subscriber = Subscriber()
    context.subscriber.subscribe(stream)
    context.work.began.wait_for(1)
    context.lent.end()


@when("a node leaves a task behind, and the bridge is closed")
def step_a_node_leaves_a_task_behind(context: Context) -> None:
    context.seen = Log()
    begun = threading.Event()

    async def stay() -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            context.seen.add("cancelled")
            raise

    async def node(_: object) -> None:
        context.left_behind = asyncio.create_task(stay())

    context.bridge.create_future_task(node, 0).result(LIMIT)
    assert begun.wait(LIMIT)
    context.bridge.close()


@then("that task was cancelled")
def step_that_task_was_cancelled(context: Context) -> None:
    assert list(context.seen) == ["cancelled"], list(context.seen)
    assert context.left_behind.cancelled()


@when("a node stops the loop, and other code closes it {moment}")
def step_a_node_stops_the_loop_and_other_code_closes_it(context: Context, moment: str) -> None:
    context.thread_errors = []
    patch(context, threading, "excepthook", context.thread_errors.append)
    loops: list[asyncio.AbstractEventLoop] = []
    may_stop = Gate()

    def run_until_closed(future: Any) -> Any:
        # As if it were stopped once more, and another thread were quicker than its own.
        loops[0].close()
        return type(loops[0]).run_until_complete(loops[0], future)

    async def left_behind(_: object) -> None:
        loops.append(asyncio.get_running_loop())
        await may_stop.wait_async()
        if moment == "while its tasks are cancelled":
            loops[0].run_until_complete = run_until_closed  # type: ignore[method-assign]
        loops[0].stop()
        await forever()

    runs = [context.bridge.create_future_task(node, 0) for node in (left_behind, echo)]
    if moment == "in a callback of the next run":
        runs[1].add_done_callback(lambda _: loops[0].close())
    may_stop.open()
    wait(runs, LIMIT)
    context.errors = [error_of(lambda run=run: run.result(0)) for run in runs]


@then(
    "both runs have failed, the second with LoopUnavailableError, and the loop's thread has ended"
)
def step_both_runs_have_failed(context: Context) -> None:
    first, second = context.errors
    assert isinstance(first, LoopUnavailableError | CancelledError), first
    assert isinstance(second, LoopUnavailableError), second
    context.bridge._engine.host.stopped.result(LIMIT)
    assert not context.thread_errors, context.thread_errors


@when("the first message comes while no thread can be started")
def step_the_first_message_comes_while_no_thread_can_be_started(context: Context) -> None:
    refusal = mock.Mock(side_effect=RuntimeError("can't start new thread"))
    with mock.patch.object(threading.Thread, "start", refusal):
        context.error = error_of(lambda: context.bridge.create_future_task(echo, 0))


@when("an adopted loop is closed between the bridge's call and the step in which it looks")
def step_an_adopted_loop_is_closed_between(context: Context) -> None:
    context.logged = listen(context, "asyncio")
    loop = asyncio.new_event_loop()
    bridge = RxPyLangGraphBridge(loop)
    futures = []

    def send_and_stop() -> None:
        futures.append(thread(bridge.create_future_task, echo, 0).result(LIMIT))
        loop.call_soon(loop.stop)  # in the same step in which the bridge's task is made

    loop.call_soon(send_and_stop)
    loop.run_forever()
    loop.close()
    context.error = futures[0].exception(LIMIT)
    bridge.close(0)


@when("an adopted loop is closed while a node waits there")
def step_an_adopted_loop_is_closed_while_a_node_waits_there(context: Context) -> None:
    context.logged = listen(context, "asyncio")
    loop = asyncio.new_event_loop()
    bridge = RxPyLangGraphBridge(loop)
    futures = []

    async def wait(_: object) -> None:
        loop.stop()
        await asyncio.Event().wait()

    loop.call_soon(lambda: futures.append(bridge.create_future_task(wait, 0)))
    loop.run_forever()
    loop.close()
    context.error = futures[0].exception(LIMIT)
    bridge.close(0)


@then("the message's future raises LoopUnavailableError, and asyncio has logged nothing")
def step_asyncio_has_logged_nothing(context: Context) -> None:
    assert isinstance(context.error, LoopUnavailableError), context.error
    gc.collect()
    assert context.logged == [], [record.getMessage() for record in context.logged]
