from __future__ import annotations

import asyncio
import contextvars
import gc
import operator
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from unittest import mock

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from reactivex import operators as ops

from rxlanggraph.bridge import run_threads
from support.bridge.bridges import answer, make_bridge, on_loop, send
from support.bridge.graphs import fan_out, outlasting
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, Gate, Log


class Census:
    """Which threads execute something, and how many do so at once."""

    def __init__(self) -> None:
        self.idents: set[int] = set()
        self.peak = 0
        self._now = 0
        self._lock = threading.Lock()

    def __call__(self, _: object = None) -> None:
        with self._lock:
            self.idents.add(threading.get_ident())
            self._now += 1
            self.peak = max(self.peak, self._now)
        # Lets others on: the node is at work for as long as it takes to change threads.
        threading.Event().wait(0.0001)
        with self._lock:
            self._now -= 1


def calls_of(fn: Callable[[int], Any], count: int) -> Any:
    """An async function that has ``fn`` called for every number below ``count``, all at once."""

    async def run(_: object) -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(fn, number) for number in range(count)))

    return run


def workers_of(context: Context) -> list[threading.Thread]:
    name = f"{context.bridge.name}-worker"
    return [each for each in threading.enumerate() if each.name == name]


def submit(context: Context, target: Any, content: Any = None, **options: Any) -> None:
    context.futures.append(context.bridge.create_future_task(target, content, **options))


# -- the bound -------------------------------------------------------------------------------------


@when("a run fans out to {count:d} sync nodes")
def step_a_run_fans_out_to_count_sync_nodes(context: Context, count: int) -> None:
    context.census = Census()
    submit(context, fan_out(context.census), {"count": count, "done": []})
    context.done = sorted(answer(context).content["done"])
    assert context.done == list(range(count))


@then("all {count:d} were executed, by {threads:d} threads at most")
def step_executed_by_at_most(context: Context, count: int, threads: int) -> None:
    assert len(context.done) == count
    assert len(context.census.idents) <= threads, context.census.idents
    assert len(workers_of(context)) <= threads, workers_of(context)


@when("{runs:d} runs at once fan out to {count:d} sync nodes each")
def step_runs_runs_at_once_fan_out_to_count_sync_nodes_each(
    context: Context, runs: int, count: int
) -> None:
    context.census = Census()
    graph = fan_out(context.census)
    for _ in range(runs):
        submit(context, graph, {"count": count, "done": []})
    for future in context.futures:
        assert sorted(future.result(LIMIT).content["done"]) == list(range(count))


@then("all of them were executed, by {threads:d} threads at most")
def step_all_executed_by_at_most(context: Context, threads: int) -> None:
    assert context.census.peak <= threads, context.census.peak
    assert len(context.census.idents) <= threads, context.census.idents
    assert len(workers_of(context)) <= threads, workers_of(context)


@then("{count:d} calls of one run meet at a barrier for {same:d}")
def step_calls_meet(context: Context, count: int, same: int) -> None:
    barrier = threading.Barrier(count)
    submit(context, calls_of(lambda _: barrier.wait(LIMIT), count))
    answer(context)


@when("a message goes to {kind:Kind}, and times out")
def step_a_message_goes_to_kind_and_times_out(context: Context, kind: str) -> None:
    def send_one(timeout: float) -> Future[Any]:
        send(context, kind, [0], timeout=timeout, errors="emit")
        return context.futures[-1]

    outlasting(context.work, context.bridge, send_one)


@when("a run fans out to {count:d} calls of asyncio.to_thread")
def step_a_run_fans_out_to_count_calls_of_asyncio_to_thread(context: Context, count: int) -> None:
    context.census = Census()
    submit(context, calls_of(context.census, count))
    answer(context)


@then("its calls were executed one at a time, by one thread")
def step_one_at_a_time(context: Context) -> None:
    assert (context.census.peak, len(context.census.idents)) == (1, 1), context.census.idents
    assert len(workers_of(context)) == 2, workers_of(context)


@when("a run fans out to {count:d} calls of asyncio.to_thread that block")
def step_a_run_fans_out_to_count_calls_of_asyncio_to_thread_that(
    context: Context, count: int
) -> None:
    submit(context, calls_of(lambda number: context.work.block({"value": number}), count))
    context.work.began.wait_for(1)


@when("a run fans out to {count:d} calls of asyncio.to_thread that block, and is cancelled")
def step_a_run_fans_out_to_count_calls_of_asyncio_to_thread_that_block(
    context: Context, count: int
) -> None:
    step_a_run_fans_out_to_count_calls_of_asyncio_to_thread_that(context, count)
    assert context.futures[-1].cancel()
    for _ in range(5):  # from the run to its tasks, and from them to what they wait for
        on_loop(context)


@when("another message goes to {kind:Kind}")
def step_another_message_goes_to_kind(context: Context, kind: str) -> None:
    send(context, kind, ["another"])


@then("that one is answered once the first call has ended, and the other {count:d} never began")
def step_that_one_is_answered_once_the_first_call_has_ended_and(
    context: Context, count: int
) -> None:
    assert list(context.work.began) == [0]
    context.work.gate.open()
    answer(context)
    began = list(context.work.began)
    assert began == [0, "another"], began


# -- fairness --------------------------------------------------------------------------------------


@then("it is answered while the others stand still")
def step_it_is_answered_while_the_others_stand_still(context: Context) -> None:
    assert answer(context).content == {"value": 0}
    assert not context.futures[0].done()


class OneByOne:
    """Calls of two runs, each held until it is let go."""

    def __init__(self) -> None:
        self.began = Log()
        self._gates: dict[Any, Gate] = {}
        self._lock = threading.Lock()

    def call(self, run: str, number: int) -> None:
        self.began.add((run, number))
        self.gate((run, number)).wait()

    def gate(self, key: Any) -> Gate:
        with self._lock:
            return self._gates.setdefault(key, Gate())


@when("two runs fan out to {count:d} calls each, which end one by one")
def step_two_fan_out_one_by_one(context: Context, count: int) -> None:
    calls = OneByOne()
    for run in ("a", "b"):
        submit(context, calls_of(lambda number, run=run: calls.call(run, number), count))  # type: ignore[misc]
        # The first run has its own thread and the spare one before the second comes.
        calls.began.wait_for({"a": 2, "b": 3}[run])
        on_loop(context)  # and the other calls wait for one
    context.order = []
    on: list[Any] = list(calls.began)
    for ended in range(2 * count):
        # Of the run that holds the spare thread, so that this is what is free then.
        runs = [run for run, _ in on]
        key = next((each for each in on if runs.count(each[0]) == 2), on[0])
        on.remove(key)
        calls.gate(key).open()
        began = calls.began.wait_for(min(3 + ended + 1, 2 * count))
        if len(began) == 3 + ended + 1:
            on.append(began[-1])
            context.order.append((began[-1][0], {run for run, _ in on}))
    for future in context.futures:
        future.result(LIMIT)


@then("each run always had a thread, and of every two that the spare one took on each had one")
def step_each_run_always_had_a_thread_and_of_every_two_that_the(context: Context) -> None:
    taken = "".join(run for run, _ in context.order)
    assert all(on == {"a", "b"} for _, on in context.order[:14]), context.order
    assert taken.startswith(("ba" * 7, "ab" * 7)), taken


@when("a run nests blocking calls as deep as asyncio's own executor allows for")
def step_a_run_nests_blocking_calls_as_deep_as_asyncios_own(context: Context) -> None:
    context.deepest = []

    async def run(_: object) -> None:
        loop = asyncio.get_running_loop()

        def nest(depth: int) -> None:
            if depth == 32:
                context.deepest.append(depth)
                return
            inner = asyncio.run_coroutine_threadsafe(asyncio.to_thread(nest, depth + 1), loop)
            inner.result(LIMIT)

        await asyncio.to_thread(nest, 1)

    submit(context, run)
    answer(context)


@then("the innermost one was reached")
def step_innermost_reached(context: Context) -> None:
    assert context.deepest == [32]


@when("a call that belongs to no run goes to the default executor of that loop")
def step_a_call_that_belongs_to_no_run_goes_to_the_default(context: Context) -> None:
    context.work.began.wait_for(1)
    loop = context.bridge._engine.host.loop
    context.call = Future()
    loop.call_soon_threadsafe(loop.run_in_executor, None, context.call.set_result, "answered")


@then("the loop's own call is answered while the run stands still")
def step_call_answered(context: Context) -> None:
    assert context.call.result(LIMIT) == "answered"
    assert not context.futures[0].done()


@when(
    "{count:d} messages go with {way}, on the loop itself, to a function whose first step is in a "
    "thread"
)
def step_messages_go_with_on_the_loop_itself_to_a_function_whose(
    context: Context, count: int, way: str
) -> None:
    bridge = context.bridge

    async def name(_: Any) -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    async def read(value: int) -> Any:
        items = [item async for item in bridge.astream(name, value)]
        return items[-1]

    async def send_all() -> list[Any]:
        match way:
            case "create_future_task":
                return await asyncio.gather(
                    *[bridge.create_future_task(name, value) for value in range(count)]
                )
            case "submit":
                return [await (await bridge.submit(name, value)) for value in range(count)]
            case "invoke":
                source = rx.from_iterable(range(count))
                results: Any = source.pipe(bridge.invoke(name), ops.to_list())
                return list(await results)
            case _:
                return await asyncio.gather(*map(read, range(count)))

    context.names = [result.content for result in context.lent.run(send_all())]
    assert len(context.names) == count


@then("they were executed in threads of the bridge")
def step_they_were_executed_in_threads_of_the_bridge(context: Context) -> None:
    assert set(context.names) == {f"{context.bridge.name}-worker"}, set(context.names)


# -- idle threads ----------------------------------------------------------------------------------


@given("an open bridge on its own loop whose threads end when they were idle for {seconds:g} s")
def step_an_open_bridge_on_its_own_loop_whose_threads_end_when(
    context: Context, seconds: float
) -> None:
    make_bridge(context)
    context.bridge._engine.threads.idle_timeout = seconds


@when("the idle time after which its threads end becomes {seconds:g} s")
def step_the_idle_time_after_which_its_threads_end_becomes(
    context: Context, seconds: float
) -> None:
    context.bridge._engine.threads.idle_timeout = seconds


@then("the bridge has no worker thread any more")
def step_no_worker_thread(context: Context) -> None:
    while workers := workers_of(context):  # one that was needed no longer may only now begin
        for worker in (each for each in workers if each.ident is not None):
            worker.join(LIMIT)
            assert not worker.is_alive(), worker


@when("{count:d} calls of one run meet, and then messages go to a sync function one after another")
def step_count_calls_of_one_run_meet_and_then_messages_go_to_a(
    context: Context, count: int
) -> None:
    step_calls_meet(context, count, count)  # so there were that many threads
    until = time.monotonic() + LIMIT
    while len(workers_of(context)) > 2 and time.monotonic() < until:
        send(context, "a sync function", [0])
        answer(context)


@then("in the end no more than two threads are left")
def step_in_the_end_no_more_than_two_threads_are_left(context: Context) -> None:
    assert len(workers_of(context)) <= 2, workers_of(context)


@when("{count:d} messages, one after another, go to {kind:Kind}")
def step_count_messages_one_after_another_go_to_kind(
    context: Context, count: int, kind: str
) -> None:
    for value in range(count):
        send(context, kind, [value])
        answer(context)


@when("{runs:d} runs, one after another, fan out to {count:d} sync calls each")
def step_runs_one_after_another_fan_out(context: Context, runs: int, count: int) -> None:
    for _ in range(runs):
        submit(context, calls_of(operator.neg, count))
        answer(context)


@then("one thread has executed them all")
def step_one_thread(context: Context) -> None:
    assert len(workers_of(context)) == 1, workers_of(context)


@when("a message goes to {kind:Kind} while no thread can be started")
def step_a_message_goes_to_kind_while_no_thread_can_be_started(context: Context, kind: str) -> None:
    loop = context.bridge.create_future_task(asyncio.sleep, 0)
    loop.result(LIMIT)
    refusal = mock.Mock(side_effect=RuntimeError("can't start new thread"))
    with mock.patch("rxlanggraph.bridge.run_threads.start_detached", refusal):
        send(context, kind, [0])
        context.futures[-1].exception(LIMIT)


@then("the last future has a result")
def step_last_has_result(context: Context) -> None:
    assert answer(context).status == "ok"


class OneRefused:
    """What starts threads, and refuses one: what it does before that is a scenario's."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._start = run_threads.start_detached

    def __enter__(self) -> None:
        self._patcher = mock.patch.object(run_threads, "start_detached", self.start)
        self._patcher.start()

    def start(self, _: threading.Thread) -> None:
        run_threads.start_detached = self._start
        self._before()
        raise RuntimeError("can't start new thread")

    def __exit__(self, *_: object) -> None:
        self._patcher.stop()


@when(
    "no thread can be started for a call, and the run's other thread goes to another run meanwhile"
)
def step_no_thread_can_be_started_for_a_call(context: Context) -> None:
    context.futures = []
    # Of each run, the call that it has begun; the later one of the other run goes on last.
    own, other, later, began = Gate(), Gate(), Gate(), Gate()
    other_context: Future[contextvars.Context] = Future()

    def call_later() -> None:
        began.open()
        later.wait()

    async def other_run(_: object) -> None:
        call = asyncio.to_thread(other.wait)
        task = asyncio.create_task(call)
        await asyncio.sleep(0)
        other_context.set_result(contextvars.copy_context())
        await task
        await context.calls["later"]

    async def run(_: object) -> list[Any]:
        loop = asyncio.get_running_loop()
        calls = context.calls = {"own": loop.run_in_executor(None, own.wait)}

        def meanwhile() -> None:
            enter = other_context.result(0).run
            calls["later"] = enter(loop.run_in_executor, None, call_later)
            calls["waiting"] = loop.run_in_executor(None, operator.neg, 1)
            own.open()
            began.wait()  # the thread of `own` is that of `later` now

        with OneRefused(meanwhile):
            refused = error_of(lambda: loop.run_in_executor(None, operator.neg, 2))
        return [refused, *await asyncio.gather(calls["waiting"], return_exceptions=True)]

    submit(context, other_run)
    other_context.result(LIMIT)
    submit(context, run)
    context.raised = answer(context).content
    other.open()
    later.open()


@then("that call, and the one of the run that waits behind it, raise RuntimeError")
def step_that_call_and_the_one_of_the_run_that_waits(context: Context) -> None:
    refused, waiting = context.raised
    assert type(refused) is type(waiting) is RuntimeError, context.raised


@then("both runs have ended, and nothing is counted any more")
def step_both_runs_have_ended_and_nothing_is_counted(context: Context) -> None:
    for future in context.futures:
        assert future.result(LIMIT).status == "ok"
    threads = context.bridge._engine.threads
    assert (threads._shares, threads._hungry, threads._spare) == ({}, {}, 1), vars(threads)


# -- what is left of a run -------------------------------------------------------------------------


class TracedError(Exception):
    """What a weak reference can refer to."""


@when("a run handles what a call of asyncio.to_thread raises, while the cyclic collector is off")
def step_a_run_handles_what_a_call_of_asyncio_to_thread_raises(context: Context) -> None:
    def fail() -> None:
        raise TracedError

    async def run(_: object) -> None:
        try:
            await asyncio.to_thread(fail)
        except TracedError as error:
            context.traced = weakref.ref(error)

    gc.collect()
    gc.disable()
    context.add_cleanup(gc.enable)
    submit(context, run)
    answer(context)
    # The thread lets go of it on its way to the next call.
    submit(context, calls_of(operator.neg, 1))
    answer(context)


@then("nothing refers to what it raised")
def step_nothing_refers(context: Context) -> None:
    assert context.traced() is None, gc.get_referrers(context.traced())


@when("a sync function raises, and its thread tells so")
def step_a_sync_function_raises_and_its_thread_tells_so(context: Context) -> None:
    go, told = Gate(), Log()

    def fail() -> None:
        go.wait()
        raise KeyError("of a sync function")

    def look(failed: Future[Any]) -> None:
        executed = [frame for frame, _ in traceback.walk_stack(sys._getframe())]
        error = failed.exception()
        assert error is not None
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        told.add([(frame.f_code.co_name, frame in executed) for frame in frames])

    future = context.bridge._engine.threads.submit(fail)
    future.add_done_callback(look)
    go.open()
    (context.frames,) = told.wait_for(1)


@then("the frames of its traceback have ended, and the function's is one of them")
def step_the_frames_of_its_traceback_have_ended(context: Context) -> None:
    assert ("fail", False) in context.frames, context.frames
    assert not any(executed for _, executed in context.frames), context.frames
