from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge, errors
from rxlanggraph.testing import LeakCheck
from support.bridge import work
from support.concurrency import leftovers
from support.concurrency.patching import patch
from support.concurrency.tasks import PATIENCE, end_tasks_and_close, forever, run, start
from support.controls import naive


def adopt(context: Context, loop: asyncio.AbstractEventLoop | None, **options: Any) -> Any:
    context.bridge = RxPyLangGraphBridge(loop, **options)
    context.add_cleanup(lambda: context.bridge and context.bridge.close())
    return context.bridge


def listen(context: Context) -> None:
    """From here on, whatever is printed or left behind is noted."""
    context.check = LeakCheck(timeout=PATIENCE).start()
    context.leaks = None
    context.add_cleanup(lambda: complaints(context))


def complaints(context: Context) -> list[str]:
    if context.leaks is None:
        context.leaks = context.check.find()
    # The tasks of a loop that other code stopped are that code's business.
    told = (str(leak) for leak in context.leaks if leak.kind != "task")
    return [leak for leak in told if "Task was destroyed" not in leak]


# -- bridges on loops that are gone ----------------------------------------------------------------


def on_closed_loop(context: Context) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    adopt(context, loop)


def on_loop_that_never_ran(context: Context) -> None:
    loop = asyncio.new_event_loop()
    context.add_cleanup(loop.close)
    adopt(context, loop)


def on_stopped_loop(context: Context) -> None:
    home = leftovers.LoopThread()
    work.loop_of(adopt(context, home.loop))
    home.loop.call_soon_threadsafe(home.loop.stop)
    home._thread.join()
    context.add_cleanup(end_tasks_and_close, home.loop)


def on_ended_loop(context: Context) -> None:
    async def main() -> None:
        future = adopt(context, asyncio.get_running_loop()).create_future_task(work.answer, 1)
        await asyncio.wrap_future(future)

    asyncio.run(main())


def on_own_stopped_loop(context: Context) -> None:
    bridge = adopt(context, None)
    bridge.create_future_task(stop_own_loop, None)
    assert bridge._engine.host.stopped.result(PATIENCE) is None


def on_own_loop_that_stops_meanwhile(context: Context) -> None:
    bridge = adopt(context, None)
    loop, engine = work.loop_of(bridge), bridge._engine
    post = engine.inbox.post

    def stop_and_post(run: Any, **options: Any) -> bool:
        # The thread that resolves what a loop leaves behind has been here before the run is.
        loop.call_soon_threadsafe(loop.stop)
        engine.host.stopped.result(PATIENCE)
        return post(run, **options)

    patch(context, engine.inbox, "post", stop_and_post)


def on_own_closed_loop(context: Context) -> None:
    bridge = adopt(context, None)
    work.loop_of(bridge)
    bridge.close()


async def stop_own_loop(_content: Any) -> None:
    asyncio.get_running_loop().stop()


LOOPS: dict[str, Callable[[Context], None]] = {
    "a loop that is closed": on_closed_loop,
    "a loop that never ran": on_loop_that_never_ran,
    "a loop that was stopped": on_stopped_loop,
    "a loop that asyncio.run has ended": on_ended_loop,
    "a loop of its own, stopped by a run": on_own_stopped_loop,
    "a loop of its own, that stops meanwhile": on_own_loop_that_stops_meanwhile,
    "a loop of its own, that is closed": on_own_closed_loop,
}


@given("a bridge on a loop that asyncio.run is about to end")
def step_a_bridge_on_a_loop_that_asyncio_run_is_about_to_end(context: Context) -> None:
    listen(context)
    context.futures = []
    context.errors = []


@given("a bridge on {loop}")
def step_a_bridge_on_loop(context: Context, loop: str) -> None:
    listen(context)
    LOOPS[loop](context)


@given("a naive bridge whose loop was {state}")
def step_a_naive_bridge_whose_loop_was_state(context: Context, state: str) -> None:
    context.bridge = naive.Bridge()
    context.add_cleanup(context.bridge.close)
    context.bridge.stop()
    listen(context)
    if state == "closed":
        context.bridge.loop.close()


@then("the function was never called")
def step_the_function_was_never_called(context: Context) -> None:
    assert context.called == [], context.called


@when("a message is handed over")
def step_a_message_is_handed_over(context: Context) -> None:
    context.called = []
    context.error = None

    async def call(content: Any) -> None:
        context.called.append(content)

    try:
        context.future = context.bridge.create_future_task(call, None)
    except RuntimeError as error:
        context.error = error


@then("its future is resolved, even if only when that loop is closed")
def step_its_future_is_resolved_even_if_only_when_that_loop_is(context: Context) -> None:
    context.bridge.loop.close()
    assert complaints(context)
    assert context.future.done()


@then("asyncio reports nothing")
def step_asyncio_reports_nothing(context: Context) -> None:
    assert not complaints(context), complaints(context)


@then("nothing is left in the registry, and asyncio reports nothing")
def step_nothing_is_left_in_the_registry_and_asyncio_reports_nothing(context: Context) -> None:
    registry = context.bridge.registry
    assert registry.wait_idle(PATIENCE), registry.snapshot()
    context.bridge.close()
    # What is dropped unfinished is to complain now.
    context.bridge = context.futures = context.future = context.fill = context.hand_over = None
    del registry
    assert not complaints(context), complaints(context)


# -- loops that go ---------------------------------------------------------------------------------


@given("a bridge with a run, a run that waits for its turn, and a message on its way")
def step_a_bridge_with_a_run_a_run_that_waits_for_its_turn_and_a(context: Context) -> None:
    listen(context)

    begun = threading.Event()

    async def wait(_content: Any) -> None:
        begun.set()
        await forever()

    def fill(loop: asyncio.AbstractEventLoop | None) -> None:
        bridge = adopt(context, loop, max_concurrency=1)
        context.futures = [bridge.create_future_task(wait, number) for number in range(2)]
        if asyncio._get_running_loop() is None:
            assert begun.wait(PATIENCE)

    context.fill = fill
    context.hand_over = lambda: context.futures.append(context.bridge.create_future_task(wait, 2))


def stop_own(context: Context) -> None:
    context.fill(None)
    loop = context.futures[0].get_loop()
    stopped = threading.Event()

    def stop() -> None:
        context.hand_over()
        loop.stop()
        stopped.set()

    loop.call_soon_threadsafe(stop)
    assert stopped.wait(PATIENCE)


def end_asyncio_run(context: Context) -> None:
    async def main() -> None:
        context.fill(asyncio.get_running_loop())
        for _ in range(5):
            await asyncio.sleep(0)
        context.hand_over()

    asyncio.run(main())


def stop_adopted(context: Context, *, close: bool = False) -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(PATIENCE)  # it runs
    context.fill(loop)

    def stop() -> None:
        context.hand_over()
        loop.stop()

    loop.call_soon_threadsafe(stop)
    thread.join()
    if close:
        loop.close()
    else:
        context.add_cleanup(end_tasks_and_close, loop)


GOING: dict[str, Callable[[Context], None]] = {
    "its own loop is stopped by a run": stop_own,
    "asyncio.run ends": end_asyncio_run,
    "the loop that it adopted is stopped": stop_adopted,
    "the loop that it adopted is closed": lambda context: stop_adopted(context, close=True),
}


@when("its own loop is stopped by a run")
def step_its_own_loop_is_stopped_by_a_run(context: Context) -> None:
    GOING["its own loop is stopped by a run"](context)


@when("asyncio.run ends")
def step_asyncio_run_ends(context: Context) -> None:
    GOING["asyncio.run ends"](context)


@when("the loop that it adopted is {state}")
def step_the_loop_that_it_adopted_is_state(context: Context, state: str) -> None:
    stop_adopted(context, close=state == "closed")


@then("each future is resolved with {kinds}")
def step_each_future_is_resolved_with_kinds(context: Context, kinds: str) -> None:
    assert len(context.futures) == 3
    for future in context.futures:
        assert outcome(future) in kinds.split(" or "), (future, outcome(future))


@then("the registry has them all until that loop is closed")
def step_the_registry_has_them_all_until_that_loop_is_closed(context: Context) -> None:
    registry = context.bridge.registry
    assert len(registry) == len(context.futures), registry.snapshot()
    context.futures[0].get_loop().close()
    assert registry.wait_idle(PATIENCE), registry.snapshot()


def outcome(future: Future[Any]) -> str:
    try:
        future.result(PATIENCE)
    except CancelledError:
        return "cancelled"
    except TimeoutError:
        return "nothing: it hangs"
    except Exception as error:
        return type(error).__name__
    return "answered"


def hand_over_late(context: Context) -> bool:
    """Whether it was let in."""
    try:
        future = context.bridge.create_future_task(work.answer, None)
    except (errors.LoopUnavailableError, errors.BridgeClosedError) as error:
        context.errors.append(error)
        return False
    context.futures.append(future)
    return True


@when("tasks hand over messages while they are being cancelled")
def step_tasks_hand_over_messages_while_they_are_being_cancelled(context: Context) -> None:
    async def hand_over_at_the_end(rounds: int) -> None:
        try:
            await forever()
        finally:
            for _ in range(rounds):
                hand_over_late(context)
                await asyncio.sleep(0)
            hand_over_late(context)

    async def main() -> None:
        work_ = [asyncio.create_task(hand_over_at_the_end(rounds)) for rounds in range(5)]
        adopt(context, asyncio.get_running_loop())
        hand_over_late(context)
        context.tasks = [*work_, *(asyncio.create_task(hand_over_at_the_end(n)) for n in range(5))]
        await asyncio.sleep(0)

    run(main())
    assert len(context.futures) + len(context.errors) == 31, (context.futures, context.errors)
    context.tasks = None


@when("{threads:d} threads hand over messages until each is refused")
def step_threads_threads_hand_over_messages_until_each_is_refused(
    context: Context, threads: int
) -> None:
    barrier = threading.Barrier(threads + 1)

    def hand_over() -> None:
        barrier.wait(PATIENCE)
        while hand_over_late(context):
            pass

    async def main() -> None:
        adopt(context, asyncio.get_running_loop())
        hand_over_late(context)
        context.joins = [start(hand_over) for _ in range(threads)]
        barrier.wait(PATIENCE)
        await asyncio.wrap_future(context.futures[0])

    asyncio.run(main())
    for join in context.joins:
        join()
    context.joins = None


@then("each was refused with LoopUnavailableError, or its future is resolved")
def step_each_was_refused_with_loopunavailableerror_or_its_future(context: Context) -> None:
    assert {type(error) for error in context.errors} == {errors.LoopUnavailableError}
    outcomes = {outcome(future) for future in context.futures}
    assert outcomes <= {"answered", "cancelled", "LoopUnavailableError"}, outcomes
