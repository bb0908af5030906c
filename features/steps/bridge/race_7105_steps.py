from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

from behave import then, when
from behave.runner import Context

from support.concurrency.tasks import PATIENCE, start


@when("it cleans up, and another message arrives meanwhile")
def step_it_cleans_up_and_another_message_arrives_meanwhile(context: Context) -> None:
    cleaning = start(context.bridge.cleanup_tasks)
    assert context.runs.ending.wait(PATIENCE)
    late = context.bridge.create_future_task(context.runs.run, "second")
    begun = context.runs.started["second"]
    late.add_done_callback(lambda _: begun.set())
    assert begun.wait(PATIENCE), "it neither started nor was it refused"
    context.runs.let_go()
    context.report = cleaning()


@then("nothing runs once the cleanup has returned")
def step_nothing_runs_once_the_cleanup_has_returned(context: Context) -> None:
    assert not context.runs.running, context.runs.running
    assert len(context.bridge.registry) == 0


@then("the report counts 2 cancelled runs, none stuck")
def step_the_report_counts_2_cancelled_runs_none_stuck(context: Context) -> None:
    assert (context.report.cancelled, context.report.stuck) == (2, ()), context.report


@then("the run that arrived meanwhile never started")
def step_the_run_that_arrived_meanwhile_never_started(context: Context) -> None:
    assert context.bridge.statistics().submitted == 2
    assert not context.runs.running


class Counted:
    """Runs that count how many of them are on."""

    def __init__(self) -> None:
        self.running = 0

    async def run(self, content: Any) -> Any:
        self.running += 1
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return content
        finally:
            self.running -= 1


@when("{threads:d} threads create {count:d} tasks each while {cleanups:d} cleanups go on")
def step_threads_threads_create_count_tasks_each_while_cleanups(
    context: Context, threads: int, count: int, cleanups: int
) -> None:
    barrier = threading.Barrier(threads + 1)
    context.runs = Counted()

    def create() -> list[Future[Any]]:
        barrier.wait(PATIENCE)
        create = context.bridge.create_future_task
        return [create(context.runs.run, number) for number in range(count)]

    def clean() -> list[Any]:
        barrier.wait(PATIENCE)
        return [context.bridge.cleanup_tasks(PATIENCE) for _ in range(cleanups)]

    creating = [start(create) for _ in range(threads)]
    context.reports = start(clean)()
    context.futures = [future for join in creating for future in join()]


@then("each task was answered or cancelled, and counted as such")
def step_each_task_was_answered_or_cancelled_and_counted_as_such(context: Context) -> None:
    assert not any(report.stuck for report in context.reports), context.reports
    assert context.bridge.registry.wait_idle(PATIENCE)
    assert all(future.done() for future in context.futures)
    cancelled = sum(future.cancelled() for future in context.futures)
    seen = context.bridge.statistics()
    assert seen.submitted == len(context.futures), seen
    assert (seen.cancelled, seen.failed) == (cancelled, 0), (seen, cancelled)
    assert seen.succeeded == len(context.futures) - cancelled, seen


@then("nothing runs once one last cleanup has returned")
def step_nothing_runs_once_one_last_cleanup_has_returned(context: Context) -> None:
    context.bridge.cleanup_tasks(PATIENCE)
    assert context.runs.running == 0
    assert len(context.bridge.registry) == 0
