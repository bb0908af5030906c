from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph.bridge.run_registry import RunRegistry
from support.concurrency.patching import patch
from support.concurrency.raising import check_error, error_of
from support.concurrency.tasks import PATIENCE, end, forever, run, start


@then("waiting {one:g} and {two:g} seconds for it says that it is not idle, awaiting too")
def step_waiting_and_seconds_for_it_says_that_it_is_not_idle(
    context: Context, one: float, two: float
) -> None:
    for timeout in (one, two):
        assert context.registry.wait_idle(timeout) is False
        assert run(context.registry.wait_idle_async(timeout)) is False
    assert not context.registry._idle_waiters


class TimedLock:
    """A lock that is handed over at once, and notes how long one would have waited for it."""

    def __init__(self) -> None:
        self.timeouts: list[float | None] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        self.timeouts.append(timeout)
        return True

    def release(self) -> None:
        pass


ENDLESS = {
    "without a timeout": None,
    "for infinity": math.inf,
    "for more than a lock accepts": 2 * threading.TIMEOUT_MAX,
}


@when("a thread waits for it {how}")
def step_a_thread_waits_for_it(context: Context, how: str) -> None:
    context.lock = TimedLock()
    patch(context, context.registry, "_clock", SimpleNamespace(gate=lambda: context.lock))
    assert context.registry.wait_idle(ENDLESS[how])


@then("waiting for it with a timeout of {timeout} raises InvalidArgumentError, awaiting too")
def step_waiting_for_it_with_a_timeout_of_raises_invalidargumenterror(
    context: Context, timeout: str
) -> None:
    value = {"nan": math.nan, "True": True, "'soon'": "soon"}[timeout]
    words = f"timeout must be a number of seconds, or None for no limit, not {timeout}"
    for wait in (
        lambda: context.registry.wait_idle(value),
        lambda: run(context.registry.wait_idle_async(value)),
    ):
        check_error(error_of(wait), "InvalidArgumentError", words)


@then("it would have waited forever")
def it_would_have_waited_forever(context: Context) -> None:
    assert context.lock.timeouts[-1] == -1, context.lock.timeouts


@when("one thread waits for it, one awaits it, and then its tasks end")
def step_one_thread_waits_for_it_one_awaits_it_and_then_its_tasks(context: Context) -> None:
    registry = context.registry
    waiting = start(lambda: registry.wait_idle(PATIENCE))
    awaiting = start(lambda: run(registry.wait_idle_async()))
    arrived(registry, 2)
    for task in context.tasks.values():
        end(task)
    context.told = [waiting(), awaiting()]


def arrived(registry: RunRegistry, count: int) -> None:
    """Until so many wait. Nothing tells when a thread begins to wait: look again and again."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.001)):
        if len(registry._idle_waiters) == count:
            return
        pause.wait(0.001)
    raise AssertionError(f"not {count} waiters")


@then("both are told that it is idle")
def step_both_are_told_that_it_is_idle(context: Context) -> None:
    assert context.told == [True, True], context.told


@then("waiting for it when it is idle returns at once")
def step_waiting_for_it_when_it_is_idle_returns_at_once(context: Context) -> None:
    assert context.registry.wait_idle(0) is True
    assert run(context.registry.wait_idle_async(0)) is True


@when("a loop that awaits it is closed over the wait, and then its tasks end")
def step_a_loop_that_awaits_it_is_closed_over_the_wait_and_then_its(context: Context) -> None:
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(context.registry.wait_idle_async())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert len(context.registry._idle_waiters) == 1
    for task in context.tasks.values():
        end(task)
    assert not context.registry._idle_waiters
    waiting._log_destroy_pending = False
    waiting.get_coro().close()


@when("a task leaves whose future takes its time to be resolved")
def step_a_task_leaves_whose_future_takes_its_time_to_be_resolved(context: Context) -> None:
    registry = context.registry
    task: Future[Any] = Future()
    registry.insert(task, "slow", None, 0.0)
    context.seen = []

    def resolve(left: Future[Any], result: object) -> None:
        context.seen.append((len(registry), left in registry, registry.wait_idle(0)))
        left.set_result(result)

    assert registry.leave(task, "succeeded", resolve, None)
    assert not registry.leave(task, "failed")


@then("it is gone from the registry at once, which is idle only after that")
def step_it_is_gone_from_the_registry_at_once_which_is_idle_only(context: Context) -> None:
    assert context.seen == [(0, False, False)], context.seen
    assert context.registry.wait_idle(0)
    assert context.registry.state == "open"


@when("a task's own loop waits for an idle registry without awaiting")
def step_a_tasks_own_loop_waits_for_an_idle_registry_without(context: Context) -> None:
    registry = RunRegistry()

    async def main() -> None:
        task = asyncio.create_task(forever())
        registry.add(task)
        context.error = error_of(registry.wait_idle)
        task.cancel()

    run(main())
