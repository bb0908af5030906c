"""Steps for callbacks that block the loop, and the watch that names them."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge, errors, hooks
from rxlanggraph.concurrency.stacks import UNREADABLE
from support.bridge.bridges import answer, listen, send
from support.bridge.graphs import one_node
from support.concurrency.waiting import LIMIT, Gate, Log


class _Heard(hooks.Hooks):
    """What hooks are told about the loop and the ``blocker``."""

    def __init__(self) -> None:
        self.blocked = Log()
        self.threads: set[str] = set()

    def on_blocked(self, event: hooks.LoopBlocked) -> None:
        if "blocker" in event.where:  # see `_warnings_of`
            self.threads.add(threading.current_thread().name)
            self.blocked.add(event)


def _warnings_of(context: Context, name: str) -> list[logging.LogRecord]:
    """Those that name ``name``: on a busy machine, whatever is slow is named too."""
    return [each for each in context.log if name in each.getMessage().splitlines()[0]]


def _wait_until(condition: Callable[[], object]) -> None:
    """Block this thread until ``condition()``; the condition is nothing that tells of itself."""
    give_up = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < give_up, "it did not come true"
        threading.Event().wait(0.005)


@given("hooks that write down what blocks the loop")
def step_hooks_that_write_down_what_blocks_the_loop(context: Context) -> None:
    context.heard = _Heard()
    context.bridge.add_hooks(context.heard)


def _blocker(context: Context, named: Gate) -> Callable[[], None]:
    """What blocks until it is named, and from then on until its block is long enough for that."""

    def lags() -> bool:
        return (context.bridge.loop_lag or 0.0) > 0.2

    def blocker() -> None:
        if not named.is_open:
            _wait_until(lambda: _warnings_of(context, "blocker"))
            named.open()
        else:
            _wait_until(lags)
        context.lags.append(context.bridge.loop_lag)

    return blocker


def _by_subscriber(context: Context, block: Callable[[], None], times: int) -> None:
    def blocker(_: object) -> None:
        block()

    for value in range(times):
        ended = Gate()
        stage = context.bridge.invoke(context.work.answer)
        rx.of({"value": value}).pipe(stage).subscribe(blocker, on_completed=ended.open)
        ended.wait()


def _by_function(context: Context, block: Callable[[], None], times: int, *, node: bool) -> None:
    async def blocker(state: Any) -> Any:
        block()
        return state

    target = one_node(blocker) if node else blocker
    for value in range(times):
        context.bridge.create_future_task(target, {"value": value}).result(LIMIT)


def _by_node(context: Context, block: Callable[[], None], times: int) -> None:
    _by_function(context, block, times, node=True)


def _by_async_function(context: Context, block: Callable[[], None], times: int) -> None:
    _by_function(context, block, times, node=False)


def _by_callback(context: Context, block: Callable[[], None], times: int) -> None:
    def blocker(_: object) -> None:
        block()

    for value in range(times):
        gate = Gate()

        async def wait(content: Any, gate: Gate = gate) -> Any:
            await gate.wait_async()
            return content

        run = context.bridge.create_future_task(wait, {"value": value})
        run.add_done_callback(blocker)
        gate.open()
        assert context.bridge.registry.wait_idle(LIMIT)


def _by_hook(context: Context, block: Callable[[], None], times: int) -> None:
    def blocker(_: object, __: object) -> None:
        block()

    context.bridge.add_hooks(type("Blocking", (hooks.Hooks,), {"on_started": blocker})())
    send(context, "an async function", range(times))
    for number in range(times):
        answer(context, number)


_WAYS: dict[str, Callable[[Context, Callable[[], None], int], None]] = {
    "a subscriber": _by_subscriber,
    "a node": _by_node,
    "an async function": _by_async_function,
    "a done-callback": _by_callback,
    "a hook": _by_hook,
}


@when("{what} blocks the loop until that is noticed, {times:d} times")
@when("{what} blocks the loop until that is noticed, {times:d} time")
def step_what_blocks_the_loop_until_that_is_noticed(
    context: Context, what: str, times: int
) -> None:
    context.log, context.lags = listen(context, "rxlanggraph"), []
    _WAYS[what](context, _blocker(context, Gate()), times)
    assert len(context.lags) == times, context.lags


@when("an async function blocks the loop, which is watched since it has begun")
def step_an_async_function_blocks_the_loop_which_is_watched_since(context: Context) -> None:
    context.log, begun, watched = listen(context, "rxlanggraph"), Gate(), Gate()
    context.add_cleanup(watched.open)

    async def blocker(content: Any) -> Any:
        begun.open()
        await watched.wait_async()
        _wait_until(lambda: _warnings_of(context, "blocker"))
        return content

    run = context.bridge.create_future_task(blocker, 0)
    begun.wait()
    context.heard = _Heard()
    context.bridge.add_hooks(context.heard)
    watched.open()
    run.result(LIMIT)


@when("a message is sent on the loop itself, and its function blocks the loop at once")
def step_a_message_is_sent_on_the_loop_itself_and_its_function_blocks(context: Context) -> None:
    context.log = listen(context, "rxlanggraph")

    async def blocker(content: Any) -> Any:
        _wait_until(lambda: _warnings_of(context, "blocker"))
        return content

    async def send_there() -> None:
        await context.bridge.create_future_task(blocker, {"value": 0})

    context.lent.run(send_there())


@then('1 warning names the function "blocker", with its stack and a remedy')
def step_1_warning_names_the_function_with_its_stack_and_a_remedy(context: Context) -> None:
    (record,) = _warnings_of(context, "blocker")
    text = record.getMessage()
    assert record.levelname == "WARNING"
    assert "blocker (" in text.splitlines()[0], text
    assert "blocked_loop_steps.py" in text
    assert "_wait_until" in text, text  # of the stack
    assert "asyncio.to_thread" in text
    assert context.bridge.name in text


@then('1 warning names the task "blocker", and says that its stack cannot be shown')
def step_1_warning_names_the_task_and_says_that_its_stack_cannot_be_shown(
    context: Context,
) -> None:
    (record,) = _warnings_of(context, "blocker")
    first, *others = record.getMessage().splitlines()
    assert " by the task " in first and "blocker'" in first, first
    assert others == [UNREADABLE], others
    assert not context.frames_read, context.frames_read


@then("the hooks were told the same, in a thread of the watch")
def step_the_hooks_were_told_the_same_in_a_thread_of_the_watch(context: Context) -> None:
    (event,) = context.heard.blocked.wait_for(1)
    (record,) = _warnings_of(context, "blocker")
    assert event.where in record.getMessage()
    assert event.stack in record.getMessage()
    assert event.bridge == context.bridge.name
    assert event.seconds >= 0.05, event.seconds
    assert context.heard.threads == {f"{context.bridge.name}-lag"}


@then("the lag of the loop was more than 0.05 s meanwhile")
def step_the_lag_of_the_loop_was_more_than_0_05_s_meanwhile(context: Context) -> None:
    assert min(context.lags) > 0.05, context.lags


@when("two subscribers block the loop until that is noticed, one after the other")
def step_two_subscribers_block_the_loop_until_that_is_noticed(context: Context) -> None:
    context.log = listen(context, "rxlanggraph")

    def first(_: object) -> None:
        _wait_until(lambda: _warnings_of(context, ".first ("))

    def second(_: object) -> None:
        _wait_until(lambda: _warnings_of(context, ".second ("))

    for subscriber in (first, second):
        ended = Gate()
        stage = context.bridge.invoke(context.work.answer)
        rx.of({"value": 0}).pipe(stage).subscribe(subscriber, on_completed=ended.open)
        ended.wait()


@then("2 warnings name them")
def step_2_warnings_name_them(context: Context) -> None:
    for name in (".first (", ".second ("):
        assert len(_warnings_of(context, name)) == 1, context.log


@when("a hook cancels everything as a node blocks the loop, and closes the bridge")
def step_a_hook_cancels_everything_as_a_node_blocks_the_loop(context: Context) -> None:
    bridge, cancelled, closed = context.bridge, Gate(), Gate()

    class Cancelling(hooks.Hooks):
        def on_blocked(self, event: hooks.LoopBlocked) -> None:
            bridge.registry.cancel_all()
            cancelled.open()
            bridge.close(0, cancel_timeout=LIMIT)
            closed.open()

    bridge.add_hooks(Cancelling())

    async def block(state: Any) -> Any:
        cancelled.wait()
        context.ended = True
        return state

    context.futures.append(bridge.create_future_task(one_node(block), {"value": 0}))
    closed.wait()


@then("the node went on to its end, and the bridge is closed")
def step_the_node_went_on_to_its_end_and_the_bridge_is_closed(context: Context) -> None:
    assert context.ended
    assert context.futures[0].cancelled()
    assert context.bridge._engine.registry.state == "closed"


@when("{count:d} messages are answered while the loop is watched")
def step_messages_are_answered_while_the_loop_is_watched(context: Context, count: int) -> None:
    context.log = listen(context, "rxlanggraph")
    began = len(context.work.began)
    context.work.gate = Gate()
    send(context, "a waiting graph", range(count))
    context.work.began.wait_for(began + min(count, 32))
    _wait_until(lambda: context.bridge.loop_lag is not None)
    context.work.release()
    assert context.bridge.registry.wait_idle(LIMIT)


@then("the lag of the loop is known, and nothing was named")
def step_the_lag_of_the_loop_is_known_and_nothing_was_named(context: Context) -> None:
    assert context.bridge.loop_lag >= 0
    assert not context.log, context.log


def _watching(context: Context) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith("-lag")]


def _sleeps_without_timeout(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == "wait" and frame.f_globals["__name__"] == "threading":
            return frame.f_locals.get("timeout") is None
        frame = frame.f_back
    return False


@then("the thread of the watch waits without a timeout")
def step_the_thread_of_the_watch_waits_without_a_timeout(context: Context) -> None:
    (thread,) = _watching(context)
    _wait_until(lambda: _sleeps_without_timeout(thread))


@when("{count:d} messages are answered while the loop is not watched")
def step_messages_are_answered_while_the_loop_is_not_watched(context: Context, count: int) -> None:
    send(context, "an async function", range(count))
    assert context.bridge.registry.wait_idle(LIMIT)


@then("there is no thread of a watch, and the lag of the loop is None")
def step_there_is_no_thread_of_a_watch_and_the_lag_is_none(context: Context) -> None:
    assert not _watching(context)
    assert context.bridge.loop_lag is None


@when("the bridge ends by {end}")
def step_the_bridge_ends_by(context: Context, end: str) -> None:
    (context.watching,) = _watching(context)
    if end == "close":
        context.bridge.close()
    elif end == "aclose":
        asyncio.run(context.bridge.aclose())
    elif end == "being dropped":
        context.futures.clear()
        context.forget_bridge()
    elif context.lent is not None:
        context.lent.end()
    else:
        loop = context.bridge._engine.host.loop
        loop.call_soon_threadsafe(loop.stop)


@then("the thread of the watch has ended")
def step_the_thread_of_the_watch_has_ended(context: Context) -> None:
    context.watching.join(LIMIT)
    assert not context.watching.is_alive()


@then("making a bridge with blocked_after={value} raises {error}")
def step_making_a_bridge_with_blocked_after_raises(
    context: Context, value: str, error: str
) -> None:
    try:
        RxPyLangGraphBridge(blocked_after=eval(value))
    except getattr(errors, error) as raised:
        assert "blocked_after" in str(raised), raised
        return
    raise AssertionError(f"{value} was accepted")
