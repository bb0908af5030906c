from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from behave import given, register_type, then, when
from behave.runner import Context

from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.registry import RegistryStatistics
from support.bridge import registry_inside
from support.concurrency.tasks import PATIENCE, Meddler, WhenHeard, start
from support.controls import naive
from support.step_types import one_of

KINDS: dict[str, Callable[[], Any]] = {
    "a TaskRegistry": RunRegistry,
    "a plain set": naive.PlainSet,
    "a set under a plain lock": naive.LockedSet,
}
FILES = registry_inside.FILES | {str(naive.__file__)}


def noting_errors(context: Context, fn: Callable[[], object]) -> None:
    try:
        fn()
    except Exception as error:
        context.errors.append(error)


def make(context: Context, kind: str) -> None:
    context.registry = KINDS[kind]()
    context.errors = []


register_type(RegistryKind=one_of(KINDS))


# -- given -----------------------------------------------------------------------------------------


@given("{kind:RegistryKind}")
def step_kind(context: Context, kind: str) -> None:
    make(context, kind)


@given("{kind} with 3 tasks, one of which lets another arrive when it is asked its state")
def step_kind_with_3_tasks_one_of_which_lets_another_arrive_when_it(
    context: Context, kind: str
) -> None:
    make(context, kind)
    context.arriving = Future()
    meddler = Meddler(lambda: context.registry.add(context.arriving))
    tasks = [Future(), meddler, Future()]
    for task in tasks:
        context.registry.add(task)
    context.add_cleanup(lambda: [task.set_result(None) for task in [*tasks, context.arriving]])


@given("{kind} is about to close")
def step_kind_is_about_to_close(context: Context, kind: str) -> None:
    context.make = KINDS[kind[0].lower() + kind[1:]]


# -- when ------------------------------------------------------------------------------------------


@when("a snapshot is taken")
def step_a_snapshot_is_taken(context: Context) -> None:
    noting_errors(context, context.registry.snapshot)


@when("what has ended is cleared out")
def step_what_has_ended_is_cleared_out(context: Context) -> None:
    noting_errors(context, lambda: clear_out(context.registry))


def clear_out(registry: Any) -> None:
    if isinstance(registry, naive.PlainSet):
        registry.clear_out()
        return
    for task in registry.tasks():
        if task.done():
            registry.discard(task)


@when("a task is added that ended {when_}")
def step_a_task_is_added_that_ended_when(context: Context, when_: str) -> None:
    task: Future[Any] = Future()
    if when_ == "before it was added":
        task.set_result(None)
    else:
        task = WhenHeard(before=when_ == "just before it was heard")
    context.registry.add(task)


@when("{threads:d} threads add, end, cancel, discard and look at {count:d} tasks each")
def step_threads_threads_add_end_cancel_discard_and_look_at_count(
    context: Context, threads: int, count: int
) -> None:
    barrier = threading.Barrier(threads)
    registry = context.registry

    def work() -> None:
        barrier.wait(PATIENCE)
        for number in range(count):
            task: Future[Any] = Future()
            registry.add(task, name=str(number))
            assert task in registry
            seen = registry.snapshot()
            assert len({info.id for info in seen}) == len(seen)
            if number % 4 == 0:
                task.set_exception(ValueError())
            elif number % 4 == 1:
                task.cancel()
            else:
                task.set_result(None)
            registry.discard(task)
            assert task not in registry

    for join in [start(work) for _ in range(threads)]:
        noting_errors(context, join)


@when("a {way} adds a task, at each place of closing in turn")
def step_a_way_adds_a_task_at_each_place_of_closing_in_turn(context: Context, way: str) -> None:
    context.lost = registry_inside.lost_by_closing(context.make, way, FILES)


@when("tasks are added and ended until {interruptions} have done so from inside, 20 times")
def step_tasks_are_added_and_ended_until_interruptions_have_done_so(
    context: Context, interruptions: str
) -> None:
    storm = registry_inside.Storm(context.registry)
    begin = {"alarm signals": storm.by_alarms, "collections": storm.by_collections}
    noting_errors(context, lambda: begin[interruptions](20))
    context.added = storm.added


# -- then ------------------------------------------------------------------------------------------


@then("no error is raised")
def step_no_error_is_raised(context: Context) -> None:
    assert not context.errors, context.errors


@then("the task that arrived is in the registry")
def step_the_task_that_arrived_is_in_the_registry(context: Context) -> None:
    assert context.arriving in context.registry


@then("the registry is empty")
def step_the_registry_is_empty(context: Context) -> None:
    assert len(context.registry) == 0, context.registry.snapshot()
    assert context.registry.snapshot() == ()


@then("{total:d} tasks came: {succeeded:d} succeeded, {failed:d} failed, {cancelled:d} cancelled")
def step_total_tasks_came_succeeded_succeeded_failed_failed(
    context: Context, total: int, succeeded: int, failed: int, cancelled: int
) -> None:
    seen: RegistryStatistics = context.registry.statistics()
    assert (seen.submitted, seen.succeeded, seen.failed, seen.cancelled) == (
        total,
        succeeded,
        failed,
        cancelled,
    ), seen


@then("each time the task was refused, or closing has seen it")
def step_each_time_the_task_was_refused_or_closing_has_seen_it(context: Context) -> None:
    assert not context.lost, f"neither refused nor seen: entered at places {context.lost}"


@then("every task was counted")
def step_every_task_was_counted(context: Context) -> None:
    assert context.registry.statistics().succeeded == context.added


@when("registry.py and {other} are imported in a process that has the standard library alone")
def step_registry_py_and_other_are_imported_in_a_process_that_has(
    context: Context, other: str
) -> None:
    context.done = registry_inside.import_alone("registry", other.removesuffix(".py"))


@then("the import succeeds")
def step_the_import_succeeds(context: Context) -> None:
    assert context.done.returncode == 0, context.done.stderr
