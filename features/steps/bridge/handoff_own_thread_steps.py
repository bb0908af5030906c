from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.bridge.shutdown import CleanupReport
from rxlanggraph.errors import BlockingCallError
from support.bridge import work
from support.concurrency.tasks import PATIENCE, forever, in_thread


async def wait_forever(_content: Any) -> None:
    await forever()


def another(bridge: RxPyLangGraphBridge) -> Any:
    return bridge.create_future_task(wait_forever, "another")


async def done(bridge: RxPyLangGraphBridge) -> Any:
    future = bridge.create_future_task(work.answer, "another")
    await asyncio.wrap_future(future)
    return future.result()


def two_too_many(bridge: RxPyLangGraphBridge) -> None:
    futures = []
    try:
        for _ in range(2):
            futures.append(another(bridge))  # noqa: PERF401 - to be cancelled, if one raises
    finally:
        for future in futures:
            future.cancel()


CALLS: dict[str, Callable[[RxPyLangGraphBridge], Any]] = {
    "future.result()": lambda bridge: another(bridge).result(),
    "future.result(1)": lambda bridge: another(bridge).result(1),
    "future.result(0)": lambda bridge: another(bridge).result(0),
    "future.exception()": lambda bridge: another(bridge).exception(),
    "future.exception(0)": lambda bridge: another(bridge).exception(0),
    "result() of a done future": done,
    "bridge.cleanup_tasks()": lambda bridge: bridge.cleanup_tasks(),
    "bridge.cleanup_tasks(0)": lambda bridge: bridge.cleanup_tasks(0),
    "bridge.close()": lambda bridge: bridge.close(),
    "bridge.aclose()": lambda bridge: bridge.aclose(),
    "bridge.registry.wait_idle()": lambda bridge: bridge.registry.wait_idle(),
    "bridge.registry.wait_idle(0)": lambda bridge: bridge.registry.wait_idle(0),
    "create_future_task, max_pending full": two_too_many,
}
OUTCOMES: dict[str, Callable[[Any], bool]] = {
    "a TimeoutError": lambda outcome: isinstance(outcome, TimeoutError),
    "the answer": lambda outcome: outcome.content[0] == "another",
    "a report": lambda outcome: isinstance(outcome, CleanupReport),
    "False": lambda outcome: outcome is False,
}


@when("a run hands over another one and awaits it")
def step_a_run_hands_over_another_one_and_awaits_it(context: Context) -> None:
    async def run(_content: Any) -> Any:
        future = context.bridge.create_future_task(work.answer, "other")
        assert future in context.bridge.registry
        return (await asyncio.wrap_future(future)).content

    context.outcome = work.answer_of(context.bridge.create_future_task(run, None))


@then("it gets the other one's answer")
def step_it_gets_the_other_ones_answer(context: Context) -> None:
    assert context.outcome[0] == "other", context.outcome


@when("a run calls {what}")
def step_a_run_calls_what(context: Context, what: str) -> None:
    bridge = context.bridge
    context.outcome = None

    async def run(_content: Any) -> None:
        try:
            called = CALLS[what](bridge)
            context.outcome = await called if isinstance(called, Awaitable) else called
        except (BlockingCallError, TimeoutError) as error:
            context.outcome = error

    future = bridge.create_future_task(run, None)
    with contextlib.suppress(CancelledError):  # cleanup_tasks(0) cancels its caller too
        future.result(PATIENCE)
    bridge.registry.cancel_all()
    assert bridge.registry.wait_idle(PATIENCE)


@then('it gets a BlockingCallError that names the remedy "{remedy}"')
def step_it_gets_a_blockingcallerror_that_names_the_remedy_remedy(
    context: Context, remedy: str
) -> None:
    assert isinstance(context.outcome, BlockingCallError), context.outcome
    assert remedy in str(context.outcome), context.outcome
    assert context.bridge.registry.state == "open"


@then("it gets {outcome}")
def step_it_gets_outcome(context: Context, outcome: str) -> None:
    assert OUTCOMES[outcome](context.outcome), context.outcome


@when("a message is handed over, and every task on the loop is cancelled before it gets there")
def step_a_message_is_handed_over_and_every_task_on_the_loop_is(context: Context) -> None:
    loop = work.loop_of(context.bridge)
    done = threading.Event()

    def hand_over() -> None:
        context.future = in_thread(
            lambda: context.bridge.create_future_task(work.answer, "message")
        )
        loop.call_soon(cancel_all)

    def cancel_all() -> None:
        context.cancelled = [task.cancel() for task in asyncio.all_tasks(loop)]
        done.set()

    loop.call_soon_threadsafe(hand_over)
    assert done.wait(PATIENCE)


@then("the message was answered")
def step_the_message_was_answered(context: Context) -> None:
    assert context.cancelled, "no task was there to be cancelled"
    assert work.answer_of(context.future)[0] == "message"
