from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import reactivex as rx
from behave import given, register_type, then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.scheduler import ThreadPoolScheduler

from rxlanggraph import RxPyLangGraphBridge
from support.bridge import work
from support.concurrency.patching import patch
from support.concurrency.tasks import PATIENCE, start
from support.controls import naive
from support.step_types import one_of

KINDS: dict[str, Callable[[], Any]] = {
    "RxPyLangGraphBridge": partial(RxPyLangGraphBridge, max_concurrency=4),
    "naive bridge": naive.Bridge,
    "batching bridge": naive.BatchingBridge,
}


def make(context: Context, kind: str, **options: Any) -> None:
    context.bridge = KINDS[kind](**options)
    context.add_cleanup(context.bridge.close)
    context.errors = []


register_type(BridgeKind=one_of(KINDS))


# -- given -----------------------------------------------------------------------------------------


@given("a {kind:BridgeKind}")
def step_a_kind(context: Context, kind: str) -> None:
    make(context, kind)


@given("a RxPyLangGraphBridge with max_pending=1")
def step_a_rxpylanggraphbridge_with_max_pending_1(context: Context) -> None:
    make(context, "RxPyLangGraphBridge", max_pending=1)


@given("a {kind} whose loop is busy")
def step_a_kind_whose_loop_is_busy(context: Context, kind: str) -> None:
    make(context, kind)
    context.held = work.HeldLoop(work.loop_of(context.bridge))
    context.add_cleanup(context.held.release)
    counting = work.count_calls()
    context.calls = counting.__enter__()
    context.add_cleanup(counting.__exit__, None, None, None)


@given("a {kind} with a run that takes its time to end when it is cancelled")
def step_a_kind_with_a_run_that_takes_its_time_to_end_when_it_is(
    context: Context, kind: str
) -> None:
    make(context, kind)
    context.runs = work.Ending()
    context.add_cleanup(context.runs.let_go)
    context.future = context.bridge.create_future_task(context.runs.run, "first")
    assert context.runs.started["first"].wait(PATIENCE)


# -- when ------------------------------------------------------------------------------------------


@when("its submitter is held up within the hand-over until the run has started")
def step_its_submitter_is_held_up_within_the_hand_over_until_the(context: Context) -> None:
    looked = threading.Event()
    registry = context.bridge.registry

    async def look(_content: Any) -> int:
        context.found = len(registry)
        looked.set()
        return context.found

    patch(context, asyncio, "run_coroutine_threadsafe", work.held_up(looked))
    context.bridge.create_future_task(look, None).result(PATIENCE)


@when("{threads:d} threads hand over {count:d} messages each")
def step_threads_threads_hand_over_count_messages_each(
    context: Context, threads: int, count: int
) -> None:
    barrier = threading.Barrier(threads)

    def submit(thread: int) -> dict[Any, Any]:
        barrier.wait(PATIENCE)
        futures = {}
        for number in range(count):
            work.SUBMITTER.set((thread, number))
            submitted = context.bridge.create_future_task(work.answer, (thread, number))
            futures[thread, number] = submitted
        return futures

    context.futures = {}
    for join in [start(partial(submit, thread)) for thread in range(threads)]:
        context.futures.update(join())


@when("the loop is busy no more")
def step_the_loop_is_busy_no_more(context: Context) -> None:
    context.held.release()


@when("a run writes to a context variable")
def step_a_run_writes_to_a_context_variable(context: Context) -> None:
    async def write(_content: Any) -> object:
        before = work.SUBMITTER.get()
        work.SUBMITTER.set("written by a run")
        return before

    futures = [context.bridge.create_future_task(write, None) for _ in range(2)]
    context.seen = [work.SUBMITTER.get(), *map(work.answer_of, futures), work.SUBMITTER.get()]


@when("{count:d} messages go through flat_map on a ThreadPoolScheduler")
def step_count_messages_go_through_flat_map_on_a(context: Context, count: int) -> None:
    scheduler = ThreadPoolScheduler(4)
    context.add_cleanup(scheduler.executor.shutdown)
    mapper = partial(context.bridge.create_future_task, work.answer)

    def hand_over(number: int) -> rx.Observable[Any]:
        return rx.just(number, scheduler).pipe(ops.flat_map(mapper))

    stream = rx.from_(range(count)).pipe(ops.flat_map(hand_over), ops.to_list())
    context.expected = list(range(count))
    ended = threading.Event()
    context.items = []
    stream.subscribe(context.items.extend, context.errors.append, ended.set)
    context.ended = ended.wait(PATIENCE)


@when("a message is handed over that has to wait for {what}, and its future is cancelled")
def step_a_message_is_handed_over_that_has_to_wait_for_what_and_its(
    context: Context, what: str
) -> None:
    context.called = []

    async def call(content: Any) -> None:
        context.called.append(content)

    occupied: list[Any] = []
    options = {"thread_id": "t"} if what == "its own thread" else {}
    before = {"the loop": 0, "a slot": 4, "its own thread": 1}[what]
    runs = work.Ending() if before else None
    for _ in range(before):
        assert runs is not None
        occupied.append(context.bridge.create_future_task(runs.run, "second", **options))
    context.future = context.bridge.create_future_task(call, None, **options)
    if runs is not None:
        context.held.release()
        assert runs.started["second"].wait(PATIENCE)
        context.held = work.HeldLoop(occupied[0].get_loop())
        context.add_cleanup(context.held.release)
    context.cancelled = context.future.cancel()
    for future in occupied:
        future.cancel()


@when("its future is cancelled, and the coroutine is ending")
def step_its_future_is_cancelled_and_the_coroutine_is_ending(context: Context) -> None:
    context.future.cancel()
    assert context.runs.ending.wait(PATIENCE)


@when("the coroutine has ended")
def step_the_coroutine_has_ended(context: Context) -> None:
    context.runs.let_go()
    assert context.runs.ended.wait(PATIENCE)


# -- then ------------------------------------------------------------------------------------------


@then("the run found itself in the registry")
def step_the_run_found_itself_in_the_registry(context: Context) -> None:
    assert context.found == 1, context.found


@then("all of them are in the registry, before any has started")
def step_all_of_them_are_in_the_registry_before_any_has_started(context: Context) -> None:
    assert all(future in context.bridge.registry for future in context.futures.values())
    assert not any(future.done() for future in context.futures.values())


@then("each message was answered once")
def step_each_message_was_answered_once(context: Context) -> None:
    for message, future in context.futures.items():
        assert work.answer_of(future)[0] == message


@then("run_coroutine_threadsafe was called once")
def step_run_coroutine_threadsafe_was_called_once(context: Context) -> None:
    assert context.calls.call_count == 1, context.calls.call_count


@then("each run saw the context variables of its submitter")
def step_each_run_saw_the_context_variables_of_its_submitter(context: Context) -> None:
    seen = {message: work.answer_of(future)[1] for message, future in context.futures.items()}
    wrong = {message: submitter for message, submitter in seen.items() if message != submitter}
    assert not wrong, f"{len(wrong)} did not, such as {next(iter(wrong.items()))}"


@then("neither its submitter nor the next run sees it")
def step_neither_its_submitter_nor_the_next_run_sees_it(context: Context) -> None:
    assert context.seen == [None] * 4, context.seen


@then("the stream has each answer once, and completes")
def step_the_stream_has_each_answer_once_and_completes(context: Context) -> None:
    assert context.ended, context.errors
    assert sorted(message.content[0] for message in context.items) == context.expected


@then("its future is cancelled, and its function was never called")
def step_its_future_is_cancelled_and_its_function_was_never_called(context: Context) -> None:
    assert context.cancelled
    try:
        context.future.result(PATIENCE)
    except CancelledError:
        pass
    else:
        raise AssertionError("there is a result")
    work.answer_of(context.bridge.create_future_task(work.answer, "what came later"))
    assert not context.called, "it was called"


@then("the future is cancelled, and the run is in the registry")
def step_the_future_is_cancelled_and_the_run_is_in_the_registry(context: Context) -> None:
    assert context.future.cancelled()
    assert context.future in context.bridge.registry
