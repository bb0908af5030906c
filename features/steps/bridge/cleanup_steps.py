from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from functools import partial
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.bridge import engine
from rxlanggraph.concurrency.stacks import tasks_where
from support.bridge.bridges import LentLoop, send
from support.bridge.graphs import Work, graph_of
from support.concurrency.patching import patch
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads, thread


@when("a plain future of run_coroutine_threadsafe is cancelled")
def step_a_plain_future_of_run_coroutine_threadsafe_is_cancelled(context: Context) -> None:
    lent, context.work = LentLoop(), Work()
    context.add_cleanup(lent.end)
    context.add_cleanup(context.work.release)
    coroutine = context.work.clean_up_slowly({"value": 0})
    context.future = asyncio.run_coroutine_threadsafe(coroutine, lent.loop)
    context.work.began.wait_for(1)
    assert context.future.cancel()


@then("it is done at once, and its coroutine has not cleaned up")
def step_it_is_done_at_once_and_its_coroutine_has_not_cleaned_up(context: Context) -> None:
    assert context.future.done() and len(context.work.cleaned) == 0
    context.work.cleaning.open()
    context.work.cleaned.wait_for(1)


@when("their futures are cancelled, and they are cancelled again while they clean up")
def step_their_futures_are_cancelled_and_they_are_cancelled_again(context: Context) -> None:
    for future in context.futures:
        assert future.cancel()
    context.bridge.create_future_task(_iterate, 20).result(LIMIT)
    assert context.bridge.registry.cancel_all() == len(context.futures)
    context.bridge.create_future_task(_iterate, 20).result(LIMIT)


async def _iterate(times: int) -> None:
    """Let a cancellation arrive: in a graph, that takes a few iterations of the loop."""
    for _ in range(times):
        await asyncio.sleep(0)


@when("{form} is called, and the gate for cleaning up opens only after that")
def step_form_is_called_and_the_gate_for_cleaning_up_opens_only(
    context: Context, form: str
) -> None:
    if form == "cleanup_tasks":
        cleaning = thread(context.bridge.cleanup_tasks, LIMIT)
    else:
        cleaning = thread(asyncio.run, context.bridge.cleanup_tasks_async(LIMIT))
    for future in context.futures:
        try:
            future.result(LIMIT)
        except CancelledError:
            continue
    assert not cleaning.done()
    context.work.cleaning.open()
    context.report = cleaning.result(LIMIT)


@then('all {count:d} have cleaned up when it returns, and its report says "{words}"')
def step_all_count_have_cleaned_up_when_it_returns_and_its_report(
    context: Context, count: int, words: str
) -> None:
    assert len(context.work.cleaned) == len(context.work.ended) == count
    assert str(context.report) == words, str(context.report)


@then('its report says "{words}"')
def step_its_report_says_words(context: Context, words: str) -> None:
    assert str(context.report) == words, str(context.report)


# -- stuck -----------------------------------------------------------------------------------------


@when("the bridge is cleaned up with {seconds:g} s to wait")
def step_the_bridge_is_cleaned_up_with_seconds_s_to_wait(context: Context, seconds: float) -> None:
    context.report = context.bridge.cleanup_tasks(seconds)


@when("it ends just as a cleanup looks where it is")
def step_it_ends_just_as_a_cleanup_looks_where_it_is(context: Context) -> None:
    context.work.began.wait_for(1)

    def end_first(*arguments: Any) -> Any:
        context.work.gate.open()
        assert context.bridge.registry.wait_idle(LIMIT)
        return tasks_where(*arguments)

    # No time to wait, so the run is named; the cancelling that comes with it is swallowed.
    patch(context, engine, "tasks_where", end_first)
    context.report = context.bridge.cleanup_tasks(0)


@then("the report names it as stuck")
def step_the_report_names_it(context: Context) -> None:
    (stuck,) = context.report.stuck
    assert stuck.name, stuck


@when("the bridge is closed, with {drain:g} s to drain and {cancel:g} s for the cancelled")
def step_the_bridge_is_closed_with_drain_s_to_drain_and_cancel_s(
    context: Context, drain: float, cancel: float
) -> None:
    context.report = context.bridge.close(drain, cancel_timeout=cancel)


@then('{count:d} run is stuck, with its age, and its stack names "{function}"')
def step_count_run_is_stuck_with_its_age_and_its_stack_names(
    context: Context, count: int, function: str
) -> None:
    (stuck,) = context.report.stuck
    assert 0.05 < stuck.age < LIMIT, stuck
    assert stuck.name and stuck.thread_id is None, stuck
    assert function in stuck.stack, stuck.stack


@then("the report in words does so too")
def step_the_report_in_words_does_so_too(context: Context) -> None:
    (stuck,) = context.report.stuck
    text = str(context.report)
    assert f"{stuck.name}, {stuck.age:.1f} s old, is at\n{stuck.stack}" in text, text


@then("the registry becomes idle")
def step_the_registry_becomes_idle(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT), context.bridge.registry.snapshot()


@when("runs are on of which one completes, one fails and one is cancelled in a cleanup")
def step_runs_are_on_of_which_one_completes_one_fails_and_one_is(context: Context) -> None:
    began, went = Log(), Gate()

    async def run(content: str) -> str:
        began.add(content)
        if content == "cancelled":
            try:
                await context.work.gate.wait_async()
            finally:
                went.open()  # the others end while the cleanup waits
        await asyncio.to_thread(went.wait)
        if content == "fails":
            raise ValueError(content)
        return content

    # Two of them swallow the cancelling: their futures would count as cancelled, were they asked.
    tasks = [context.bridge.create_future_task(run, "cancelled")]
    registry = context.bridge.registry
    before = registry.cancel_all

    def cancel_only_the_first() -> int:
        tasks[0].cancel()
        return 1

    registry.cancel_all = cancel_only_the_first
    tasks += [context.bridge.create_future_task(run, name) for name in ("fails", "completes")]
    began.wait_for(3)
    context.report = context.bridge.cleanup_tasks(LIMIT)
    registry.cancel_all = before


# -- arrivals --------------------------------------------------------------------------------------


@when("a run's own cleanup sends 10 messages to an async function")
def step_a_runs_own_cleanup_sends_10_messages_to_an_async_function(context: Context) -> None:
    context.seen = []

    async def run(_: object) -> None:
        try:
            context.work.began.add("the run itself")
            await context.work.gate.wait_async()
        finally:
            send(context, "an async function", range(10))
            context.seen = [future in context.bridge.registry for future in context.futures]

    first = context.bridge.create_future_task(run, None)
    context.work.began.wait_for(1)
    context.report = context.bridge.cleanup_tasks(LIMIT)
    assert first.cancelled()


@then("those are cancelled, registered until they ended, and never began")
def step_those_are_cancelled_registered_until_they_ended_and_never(context: Context) -> None:
    assert len(context.futures) == 10 and context.seen == [True] * 10
    assert all(future.cancelled() for future in context.futures)
    assert (context.report.cancelled, context.report.stuck) == (11, ()), str(context.report)
    assert list(context.work.began) == ["the run itself"]
    assert len(context.bridge.registry) == 0


@when("{count:d} threads send messages without a pause, and the bridge is cleaned up 20 times")
def step_count_threads_send_messages_without_a_pause_and_the_bridge(
    context: Context, count: int
) -> None:
    stop, sent = threading.Event(), Log()
    graph = graph_of(context.work, "an async function")

    def feed(_: int) -> list[Any]:
        futures = []
        while not stop.is_set() and len(futures) < 5_000:
            futures.append(context.bridge.create_future_task(graph, {"value": 0}))
            if len(futures) % 100 == 0:
                sent.add(futures[-100:])
        return futures

    feeding = thread(in_threads, count, feed)
    context.left = []
    for turn in range(20):
        known = [future for batch in sent.wait_for(turn + 1) for future in batch]
        report = context.bridge.cleanup_tasks(LIMIT)
        # In flight now is only what came after the cleanup had ended.
        registry = context.bridge.registry
        context.left += [future for future in known if future in registry or not future.done()]
        context.left += report.stuck
    stop.set()
    context.futures += [future for futures in feeding.result(LIMIT) for future in futures]


@then("no cleanup left a run behind that was admitted before it began")
def step_no_cleanup_left_a_run_behind_that_was_admitted_before_it(context: Context) -> None:
    assert context.left == [], context.left[:3]


@then("every future is done in the end")
def step_every_future_is_done_in_the_end(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert all(future.done() for future in context.futures)


@when("a run is cancelled between its start and its first step")
def step_a_run_is_cancelled_between_its_start_and_its_first_step(context: Context) -> None:
    victims = Log()

    def make_and_cancel(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        if coroutine.__name__ == "execute" and len(victims) == 0:
            victims.add(task)
            task.cancel()
        return task

    # A loop with a task factory takes no first step at once, on any Python.
    context.lent.loop.call_soon_threadsafe(context.lent.loop.set_task_factory, make_and_cancel)
    future = context.bridge.create_future_task(context.work.answer, {"value": 0})
    context.futures.append(future)
    victims.wait_for(1)


# -- on the loop itself ----------------------------------------------------------------------------


@then("the run that waited is cancelled, and nothing was raised")
def step_the_run_that_waited_is_cancelled_and_nothing_was_raised(context: Context) -> None:
    assert context.error is None, context.error
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.futures[0].cancelled()


@when("a run awaits cleanup_tasks_async of its own bridge")
def step_a_run_awaits_cleanup_tasks_async_of_its_own_bridge(context: Context) -> None:
    context.work.began.wait_for(1)
    run = partial(_clean_up_own, context)
    context.futures.append(context.bridge.create_future_task(run, None))


async def _clean_up_own(context: Context, _: object) -> None:
    await context.bridge.cleanup_tasks_async(LIMIT)


@then("both are cancelled, and the registry becomes idle")
def step_both_are_cancelled_and_the_registry_becomes_idle(context: Context) -> None:
    for future in context.futures:
        try:
            future.result(LIMIT)
        except CancelledError:
            continue
        raise AssertionError(f"{future} was not cancelled")
    assert context.bridge.registry.wait_idle(LIMIT)


@when("{count:d} threads clean up at once")
def step_count_threads_clean_up_at_once(context: Context, count: int) -> None:
    context.reports = in_threads(count, lambda _: context.bridge.cleanup_tasks(LIMIT))


@then("none of their reports has anything stuck, and the registry is empty")
def step_none_of_their_reports_has_anything_stuck_and_the_registry(context: Context) -> None:
    assert all(report.stuck == () for report in context.reports), context.reports
    assert len(context.bridge.registry) == 0
    assert all(future.cancelled() for future in context.futures)


@when("{count:d} runs wait, and are cleaned up")
def step_count_runs_wait_and_are_cleaned_up(context: Context, count: int) -> None:
    send(context, "a waiting graph", range(count))
    context.work.began.wait_for(count)
    with mock.patch("asyncio.all_tasks", wraps=asyncio.all_tasks) as looks:
        context.report = context.bridge.cleanup_tasks(LIMIT)
    context.looks = looks.call_count


@then("all {count:d} were cancelled, and the tasks were looked through fewer than {most:d} times")
def step_all_count_were_cancelled_and_the_tasks_were_looked(
    context: Context, count: int, most: int
) -> None:
    assert context.report.cancelled == count, context.report
    assert context.looks < most, context.looks


@given("a process whose tasks come and go too fast to be listed, {count:d} times")
def step_a_process_whose_tasks_come_and_go_too_fast(context: Context, count: int) -> None:
    listed = asyncio.all_tasks
    context.looks = []

    def all_tasks(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[Any]]:
        context.looks.append(loop)
        if len(context.looks) <= count:
            raise RuntimeError("Set changed size during iteration")
        return listed(loop)

    patch(context, asyncio, "all_tasks", all_tasks)


@then("cleaning up the bridge cancels {runs:d} run, after {looks:d} looks at the tasks")
def step_cleaning_up_the_bridge_cancels_after_looks(
    context: Context, runs: int, looks: int
) -> None:
    report = context.bridge.cleanup_tasks(LIMIT)
    assert (report.cancelled, report.stuck) == (runs, ()), report
    assert len(context.looks) == looks, context.looks
