from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph import errors
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.registry import TaskInfo
from support.concurrency import leftovers
from support.concurrency.tasks import PATIENCE, end, forever, run


def names(infos: tuple[TaskInfo, ...]) -> list[str | None]:
    return [info.name for info in infos]


@given('a TaskRegistry with the pending tasks "{names}"')
def step_a_taskregistry_with_the_pending_tasks_names(context: Context, names: str) -> None:
    context.errors = []
    context.registry = RunRegistry()
    context.tasks = {name: Future() for name in names.split(", ")}
    for name, task in context.tasks.items():
        context.registry.add(task, name=name, thread_id="t")
        context.add_cleanup(end, task)


@when("it is closed")
def step_it_is_closed(context: Context) -> None:
    context.closed = context.registry.close()


@then('closing returned the pending tasks "{found:Text}"')
def step_closing_returned_the_pending_tasks_found(context: Context, found: str) -> None:
    assert ", ".join(names(context.closed)) == found, context.closed
    assert all(info.state == "pending" for info in context.closed), context.closed


@then('its state is "{state}"')
def step_its_state_is_state(context: Context, state: str) -> None:
    assert context.registry.state == state, context.registry.state


@then("adding a task raises RegistryClosedError, and leaves the task alone")
def step_adding_a_task_raises_registryclosederror_and_leaves_the(context: Context) -> None:
    task: Future[Any] = Future()
    check_refused(context.registry, task, "RegistryClosedError")
    assert not task.done()
    assert not task._done_callbacks
    assert task not in context.registry


@when("all its tasks end")
def step_all_its_tasks_end(context: Context) -> None:
    for task in context.tasks.values():
        end(task)


@when('"a" starts running')
def step_a_starts_running(context: Context) -> None:
    assert context.tasks["a"].set_running_or_notify_cancel()


@then('the snapshot shows "a" running and "b" pending, in this order, on thread "t"')
def step_the_snapshot_shows_a_running_and_b_pending_in_this_order(context: Context) -> None:
    seen = [(info.name, info.state, info.thread_id) for info in context.registry.snapshot()]
    assert seen == [("a", "running", "t"), ("b", "pending", "t")], seen


@then("the ids rise, the ages are no less than zero, and nothing that it tells can be changed")
def step_nothing_that_it_tells_can_be_changed(context: Context) -> None:
    registry = context.registry
    first, second = registry.snapshot()
    assert first.id < second.id
    assert first.age >= second.age >= 0
    for told in (first, registry.statistics(), registry.end_sweep(registry.begin_sweep())):
        field = dataclasses.fields(told)[0].name
        try:
            setattr(told, field, "other")
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"{told} was changed")


@when("an asyncio task is added on its own loop, and cancelled")
def step_an_asyncio_task_is_added_on_its_own_loop_and_cancelled(context: Context) -> None:
    registry = context.registry = RunRegistry()
    context.states = []

    async def main() -> None:
        task = asyncio.create_task(forever())
        await asyncio.sleep(0)
        registry.add(task)
        context.states.append([info.state for info in registry.snapshot()])
        task.cancel()
        context.states.append([info.state for info in registry.snapshot()])
        await registry.wait_idle_async()
        context.states.append([info.state for info in registry.snapshot()])

    run(main())


@then("the snapshot showed it running, then cancelling, then not at all")
def step_the_snapshot_showed_it_running_then_cancelling_then_not_at(context: Context) -> None:
    assert context.states == [["running"], ["cancelling"], []], context.states


@when('"a" is added again')
def step_a_is_added_again(context: Context) -> None:
    context.registry.add(context.tasks["a"], name="other")


@then("the registry holds 1 task")
def step_the_registry_holds_1_task(context: Context) -> None:
    assert len(context.registry) == 1


STRANGERS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "a string": lambda: "a",
    "a list": list,
    "an unknown future": Future,
}


@when("{what} is discarded")
def step_what_is_discarded(context: Context, what: str) -> None:
    context.registry.discard(STRANGERS[what]())


@when('"a" is discarded, twice, and later succeeds')
def step_a_is_discarded_twice_and_later_succeeds(context: Context) -> None:
    task = context.tasks["a"]
    for _ in range(2):
        context.registry.discard(task)
    end(task)


@then("at most 2 were in flight at once")
def step_at_most_2_were_in_flight_at_once(context: Context) -> None:
    assert context.registry.statistics().peak_in_flight == 2


@when("a sweep begins, tasks arrive and end, and it ends")
def step_a_sweep_begins_tasks_arrive_and_end_and_it_ends(context: Context) -> None:
    registry = context.registry
    context.arrivals = [Future() for _ in range(3)]
    begun = registry.begin_sweep()
    for task in context.arrivals:
        registry.add(task)
    context.sweep = registry.end_sweep(begun)


@then("the arrivals were cancelled, and the sweep counted them")
def step_the_arrivals_were_cancelled_and_the_sweep_counted_them(context: Context) -> None:
    assert all(task.cancelled() for task in context.arrivals)
    sweep = context.sweep
    assert (sweep.succeeded, sweep.failed, sweep.cancelled) == (0, 0, 3), sweep


@then('the sweep names "a", which is still there')
def step_the_sweep_names_a_which_is_still_there(context: Context) -> None:
    ((task, info),) = context.sweep.remaining
    assert task is context.tasks["a"]
    assert info.name == "a"
    assert task in context.registry


@then("a task that arrives after it is not cancelled")
def step_a_task_that_arrives_after_it_is_not_cancelled(context: Context) -> None:
    task: Future[Any] = Future()
    context.registry.add(task)
    assert not task.cancelled()
    end(task)


def check_refused(registry: RunRegistry, task: Any, error: str) -> None:
    try:
        registry.add(task)
    except getattr(errors, error) as raised:
        assert "; " in str(raised), f"no remedy: {raised}"
        return
    raise AssertionError(f"{task!r} was taken in")


@then("adding a coroutine raises {error}, which says what to do")
def step_adding_a_coroutine_raises_error_which_says_what_to_do(
    context: Context, error: str
) -> None:
    coroutine = forever()
    check_refused(context.registry, coroutine, error)
    coroutine.close()


@then("adding a string raises {error}, which says what to do")
def step_adding_a_string_raises_error_which_says_what_to_do(context: Context, error: str) -> None:
    check_refused(context.registry, "task", error)


@then("adding a task of a loop of another thread raises {error}, which says what to do")
def step_adding_a_task_of_a_loop_of_another_thread_raises_error(
    context: Context, error: str
) -> None:
    task = task_elsewhere(context)
    check_refused(context.registry, task, error)

    async def cancel() -> None:
        task.cancel()
        await asyncio.wait([task])

    context.home.run(cancel())


def task_elsewhere(context: Context, registry: RunRegistry | None = None) -> asyncio.Task[None]:
    context.home = leftovers.LoopThread()
    context.add_cleanup(context.home.stop)

    async def make() -> asyncio.Task[None]:
        task = asyncio.create_task(forever())
        if registry is not None:
            registry.add(task)
        return task

    made: asyncio.Task[None] = context.home.run(make())
    return made


@given("a TaskRegistry with a task on a loop in another thread")
def step_a_taskregistry_with_a_task_on_a_loop_in_another_thread(context: Context) -> None:
    context.registry = RunRegistry()
    task_elsewhere(context, context.registry)


@given("a TaskRegistry with a future of a loop that is closed")
def step_a_taskregistry_with_a_future_of_a_loop_that_is_closed(context: Context) -> None:
    context.errors = []
    context.registry = RunRegistry()
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    context.registry.add(future)
    loop.close()
    context.add_cleanup(context.registry.discard, future)


@when("everything in it is cancelled")
def step_everything_in_it_is_cancelled(context: Context) -> None:
    assert context.registry.cancel_all() == 1


@then("the registry gets empty")
def step_the_registry_gets_empty(context: Context) -> None:
    assert context.registry.wait_idle(PATIENCE)
    assert len(context.registry) == 0
