from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph import LoopUnavailableError, RxPyLangGraphBridge
from rxlanggraph.hooks import Hooks, RunEnded
from support.bridge.bridges import make_bridge, send
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.concurrency.tasks import end_tasks_and_close, in_thread
from support.concurrency.waiting import LIMIT, Gate, in_threads, thread


def threads_of(context: Context) -> list[threading.Thread]:
    name = context.name if "name" in context else context.bridge.name
    return [each for each in threading.enumerate() if each.name.startswith(f"{name}-")]


def ended(context: Context) -> bool:
    for each in threads_of(context):
        each.join(LIMIT)
    return not threads_of(context)


# -- threads ---------------------------------------------------------------------------------------


@then("nothing is raised, and its threads end")
def step_nothing_is_raised_and_its_threads_end(context: Context) -> None:
    assert getattr(context, "error", None) is None, context.error
    assert ended(context), threads_of(context)


@then("it has one thread, a daemon, named after the bridge")
def step_it_has_one_thread_a_daemon_named_after_the_bridge(context: Context) -> None:
    (loop_thread,) = threads_of(context)
    assert loop_thread.daemon and loop_thread.name == f"{context.bridge.name}-loop", loop_thread


@then("a run's loop is the adopted one")
def step_a_runs_loop_is_the_adopted_one(context: Context) -> None:
    async def where(_: object) -> object:
        return asyncio.get_running_loop()

    result = context.bridge.create_future_task(where, None).result(LIMIT)
    assert result.content is context.lent.loop


@when("a message is sent through a bridge that adopts a loop which is {state}")
def step_a_message_is_sent_through_a_bridge_that_adopts_a_loop(
    context: Context, state: str
) -> None:
    loop = asyncio.new_event_loop()
    context.add_cleanup(loop.close)
    if state == "closed":
        loop.close()
    context.bridge = RxPyLangGraphBridge(loop)
    context.error = error_of(lambda: context.bridge.create_future_task(print, 1))


@then("closing that bridge works")
def step_closing_that_bridge_works(context: Context) -> None:
    assert context.bridge.close().stuck == ()
    assert context.bridge.statistics().submitted == 0


class HeldUp(Hooks):
    """Holds up the end of a run until the gate is open."""

    def __init__(self) -> None:
        self.inside, self.gate = Gate(), Gate()

    def on_ended(self, event: RunEnded) -> None:
        self.inside.open()
        self.gate.wait()


@when("a hook holds up the end of a run, and the bridge is closed with 0 s to drain")
def step_a_hook_holds_up_the_end_of_a_run(context: Context) -> None:
    hooks = HeldUp()
    context.add_cleanup(hooks.gate.open)
    context.bridge.add_hooks(hooks)
    registry = type(context.bridge.registry)
    wait_idle = registry.wait_idle

    def noted(self: Any, timeout: float | None = None) -> bool:
        if timeout is None or timeout > 0:
            hooks.gate.open()
        return wait_idle(self, timeout)

    patch(context, registry, "wait_idle", noted)
    context.bridge.create_future_task(lambda content: content, 1)
    hooks.inside.wait()
    context.report = context.bridge.close(0, cancel_timeout=LIMIT)


@then("the report has no stuck run")
def step_the_report_has_no_stuck_run(context: Context) -> None:
    assert context.report.stuck == (), context.report


# -- leaving ---------------------------------------------------------------------------------------


class LeavingError(Exception):
    """What leaves the block of a scenario."""


async def async_block(context: Context, error: Exception | None) -> None:
    async with context.bridge as entered:
        assert entered is context.bridge
        fill(context, error)


def sync_block(context: Context, error: Exception | None) -> None:
    with context.bridge as entered:
        assert entered is context.bridge
        fill(context, error)


def fill(context: Context, error: Exception | None) -> None:
    send(context, "a waiting graph", range(3))
    context.work.began.wait_for(3)
    if error is not None:
        raise error
    send(context, "an async function", range(3, 100))
    context.work.gate.open()


@when('messages are sent inside "{form}", which is left normally')
def step_messages_are_sent_inside_form_which_is_left_normally(context: Context, form: str) -> None:
    make_bridge(context)
    leave(context, form, None)
    assert all(future.done() for future in context.futures)


@when('messages are sent inside "{form}", which an exception leaves')
def step_messages_are_sent_inside_form_which_an_exception_leaves(
    context: Context, form: str
) -> None:
    make_bridge(context)
    context.leaving = LeavingError()
    context.timeouts = record_timeouts(context.bridge)
    try:
        leave(context, form, context.leaving)
    except LeavingError as error:
        context.error = error


def record_timeouts(bridge: Any) -> list[Any]:
    """The timeout of each later call of ``close`` or ``aclose``."""
    seen: list[Any] = []

    def record(method: Any) -> Any:
        def recording(timeout: Any = None, **options: Any) -> Any:
            seen.append(timeout)
            return method(timeout, **options)

        return recording

    bridge.close, bridge.aclose = record(bridge.close), record(bridge.aclose)
    return seen


@then("it gave them no time to end by themselves")
def step_it_gave_them_no_time(context: Context) -> None:
    assert context.timeouts == [0], context.timeouts


@then("{method} has timeout={timeout:g} and cancel_timeout={cancel_timeout:g}")
def step_method_has_timeout_timeout_and_cancel_timeout_cancel(
    context: Context, method: str, timeout: float, cancel_timeout: float
) -> None:
    parameters = inspect.signature(getattr(RxPyLangGraphBridge, method)).parameters
    assert parameters["timeout"].default == timeout, parameters
    assert parameters["cancel_timeout"].default == cancel_timeout, parameters


def leave(context: Context, form: str, error: Exception | None) -> None:
    if form == "with":
        sync_block(context, error)
    else:
        asyncio.run(async_block(context, error))


@then("that exception arrives, and every run was cancelled and has ended")
def step_that_exception_arrives_and_every_run_was_cancelled_and_has(context: Context) -> None:
    assert context.error is context.leaving
    assert len(context.work.ended) == len(context.work.began) == 3
    assert all(future.cancelled() for future in context.futures)
    assert len(context.bridge.registry) == 0


@when("a run leaves a stream half-read")
def step_a_run_leaves_a_stream_half_read(context: Context) -> None:
    context.cleaned_up = False

    async def stream() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            context.cleaned_up = True

    async def read(numbers: AsyncIterator[int]) -> int:
        return await anext(numbers)

    context.stream = stream()  # kept: one without references ends before
    context.bridge.create_future_task(read, context.stream).result(LIMIT)
    assert not context.cleaned_up


@then("that stream has cleaned up")
def step_that_stream_has_cleaned_up(context: Context) -> None:
    assert context.cleaned_up


@when("the gate for cleaning up opens")
def step_the_gate_for_cleaning_up_opens(context: Context) -> None:
    context.work.cleaning.open()


@when("the bridge is closed")
def step_the_bridge_is_closed(context: Context) -> None:
    context.report = context.bridge.close()


@when("the bridge is closed with {seconds:g} s to drain, which are over when the first has ended")
def step_the_bridge_is_closed_with_seconds_s_to_drain(context: Context, seconds: float) -> None:
    registry = type(context.bridge.registry)
    wait_idle = registry.wait_idle

    def wait_for_first(self: Any, timeout: float | None = None) -> bool:
        context.futures[0].result(LIMIT)
        return wait_idle(self, timeout)

    patch(context, registry, "wait_idle", wait_for_first)
    context.report = context.bridge.close(seconds)


@when("the bridge is closed without draining")
def step_the_bridge_is_closed_without_draining(context: Context) -> None:
    context.report = context.bridge.close(0)


@when("bridge.{call} is called, which reports how it ended")
def step_bridge_call_is_called_which_reports_how_it_ended(context: Context, call: str) -> None:
    context.work.began.wait_for(1)
    names = {"bridge": context.bridge, "infinity": math.inf}
    context.report = in_thread(lambda: eval(f"bridge.{call}", names))


@then("every run has ended, and {count:d} was cancelled")
def step_every_run_has_ended_and_count_was_cancelled(context: Context, count: int) -> None:
    assert len(context.bridge.registry) == 0
    assert len(context.work.ended) == len(context.work.began)
    assert (context.report.cancelled, context.report.stuck) == (count, ()), str(context.report)
    assert context.bridge.statistics().cancelled == count


@then("the report is empty, and it has no thread")
def step_the_report_is_empty_and_it_has_no_thread(context: Context) -> None:
    assert str(context.report) == "0 cancelled, 0 completed, 0 failed, 0 stuck"
    assert threads_of(context) == []


@when("{count:d} threads close it without draining, and one closes it again")
def step_count_threads_close_it_without_draining_and_one_closes_it(
    context: Context, count: int
) -> None:
    context.work.began.wait_for(len(context.futures))
    context.reports = in_threads(count, lambda _: context.bridge.close(0))
    context.reports.append(context.bridge.close(0))


@then("all of them return, every run has ended, and it has no thread")
def step_all_of_them_return_every_run_has_ended_and_it_has_no(context: Context) -> None:
    assert all(report.stuck == () for report in context.reports), context.reports
    assert max(report.cancelled for report in context.reports) == len(context.futures)
    assert len(context.work.ended) == len(context.futures)
    assert ended(context), threads_of(context)


@then("the adopted loop runs, with its executor and without a task of the bridge")
def step_the_adopted_loop_runs_with_its_executor_and_without_a_task(context: Context) -> None:
    async def tasks() -> set[Any]:
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert len(context.lent.run(tasks())) == 1  # its own main task
    assert context.lent.loop._default_executor is context.executor


# -- on the loop itself ----------------------------------------------------------------------------


@when('one of its runs calls "{call}"')
def step_one_of_its_runs_calls_call(context: Context, call: str) -> None:
    async def run(_: object) -> None:
        context.error = None  # the call may cancel this run, which is then waited for no longer
        context.error = error_of(lambda: eval(call, {"bridge": context.bridge}))

    future = context.bridge.create_future_task(run, None)
    try:
        future.result(LIMIT)
    except CancelledError:
        assert "close(0" in call or "cleanup_tasks(0" in call


@when("other code stops the loop")
def step_other_code_stops_the_loop(context: Context) -> None:
    context.work.began.wait_for(3)
    loop = context.bridge._engine.host.loop
    loop.call_soon_threadsafe(loop.stop)


@when("a loop that runs forever is adopted, given a waiting graph, and stopped")
def step_a_loop_that_runs_forever_is_adopted_given_a_waiting_graph(context: Context) -> None:
    loop = asyncio.new_event_loop()
    context.add_cleanup(end_tasks_and_close, loop)
    running = thread(loop.run_forever)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(LIMIT)  # it runs
    make_bridge(context, loop=loop)
    send(context, "a waiting graph", [0])
    context.work.began.wait_for(1)
    loop.call_soon_threadsafe(loop.stop)
    running.result(LIMIT)


@then("closing that bridge names the run, which has not ended")
def step_closing_that_bridge_names_the_run_which_has_not_ended(context: Context) -> None:
    (stuck,) = context.bridge.close().stuck
    assert "gate.wait_async" in stuck.stack, stuck.stack
    assert context.bridge.registry.state == "closing"


@when("the adopted loop's program ends")
def step_the_adopted_loops_program_ends(context: Context) -> None:
    context.lent.end()


@when("other code cancels all tasks of the loop, which keeps running")
def step_other_code_cancels_all_tasks_of_the_loop_which_keeps(context: Context) -> None:
    context.work.began.wait_for(1)

    async def cancel_all() -> None:
        main = context.lent.main_task
        for task in asyncio.all_tasks() - {asyncio.current_task(), main}:
            task.cancel()

    context.lent.run(cancel_all())


@then('the bridge refuses the next message with LoopUnavailableError, "{words}"')
def step_the_bridge_refuses_the_next_message_with_loopunavailableerror(
    context: Context, words: str
) -> None:
    try:
        send(context, "an async function", [1])
    except LoopUnavailableError as error:
        assert words in str(error), error
        return
    raise AssertionError("it was not refused")


@then("a new bridge on that loop answers")
def step_new_bridge_answers(context: Context) -> None:
    with RxPyLangGraphBridge(context.lent.loop) as bridge:
        result = bridge.create_future_task(context.work.answer, {"value": 1}).result(LIMIT)
    assert result.content == {"value": 1}


@then("every future is done, with LoopUnavailableError or cancelled")
def step_every_future_is_done_with_loopunavailableerror_or(context: Context) -> None:
    for future in context.futures:
        try:
            error = future.exception(LIMIT)
        except CancelledError:
            continue
        assert isinstance(error, LoopUnavailableError), repr(error)


@then("the bridge refuses the next message with LoopUnavailableError")
def step_the_bridge_refuses_the_next_message_with(context: Context) -> None:
    try:
        send(context, "an async function", [1])
    except LoopUnavailableError:
        return
    raise AssertionError("it was not refused")
