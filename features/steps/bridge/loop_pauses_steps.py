from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import reactivex
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from reactivex import operators as ops

from rxlanggraph import BlockingCallError, LoopUnavailableError, RxPyLangGraphBridge
from rxlanggraph.errors import RunTimeoutError
from support.bridge.bridges import arguments, expire, failure_of, send
from support.bridge.graphs import Work, one_node
from support.concurrency.patching import patch
from support.concurrency.pauses import make_host, until
from support.concurrency.raising import error_of
from support.concurrency.tasks import forever, pass_turns
from support.concurrency.waiting import LIMIT, Gate, Log, thread

# How often the loop is looked at here, in seconds: these scenarios wait for it to be noticed.
LOOK_EVERY = 0.01


def make_program(context: Context, host: str) -> None:
    context.host = make_host(context, host)
    context.work, context.futures = Work(), []


def make_bridge(context: Context, host: str, *, look_every: float, **options: Any) -> None:
    make_program(context, host)
    context.bridge = RxPyLangGraphBridge(context.host.loop, **options)
    context.bridge._engine.host.look_every = look_every

    def end() -> None:
        context.work.release()
        context.bridge.close(0)

    context.add_cleanup(end)


@given("a program that runs its loop by {host:Host}")
def step_program(context: Context, host: str) -> None:
    make_program(context, host)


@given("a program that runs its loop by {host:Host}, and a bridge that adopts it")
def step_program_and_bridge(context: Context, host: str) -> None:
    make_bridge(context, host, look_every=LOOK_EVERY)


@given("a program that runs its loop by {host:Host}, and a bridge that adopts it with {options}")
def step_program_and_bridge_with_options(context: Context, host: str, options: str) -> None:
    make_bridge(context, host, look_every=LOOK_EVERY, **arguments(options))


@given(
    "a program that runs its loop by {host:Host}, and a bridge that adopts it, "
    "whose loop is not watched"
)
def step_a_program_that_runs_its_loop_by_host_and_a_bridge_that(
    context: Context, host: str
) -> None:
    make_bridge(context, host, look_every=3600)


# -- messages --------------------------------------------------------------------------------------


async def ask(context: Context) -> Any:
    return await asyncio.wrap_future(context.bridge.create_future_task(context.work.answer, VALUE))


VALUE = {"value": "asked"}


@when(
    "the loop runs {times:d} times, and each time a message is sent from it and one from "
    "another thread"
)
def step_the_loop_runs_times_times_and_each_time_a_message_is_sent(
    context: Context, times: int
) -> None:
    context.answers, context.refusals = [], []

    async def main() -> None:
        submit = context.bridge.create_future_task
        futures = [
            submit(context.work.answer, VALUE),
            await asyncio.to_thread(submit, context.work.answer, VALUE),
        ]
        for future in futures:
            context.answers.append(await asyncio.wrap_future(future))

    for _ in range(times):
        context.host.run(main())
        context.refusals.append(
            error_of(lambda: context.bridge.create_future_task(context.work.answer, VALUE))
        )


@then("all {count:d} were answered")
def step_all_answered(context: Context, count: int) -> None:
    assert [each.content for each in context.answers] == [VALUE] * count, context.answers


@then('each message between two of them was refused with LoopUnavailableError, "{words}"')
def step_each_refused(context: Context, words: str) -> None:
    assert all(words in str(error) for error in context.refusals), context.refusals


@when("a message is sent while the loop does not run")
def step_a_message_is_sent_while_the_loop_does_not_run(context: Context) -> None:
    context.error = error_of(lambda: context.bridge.create_future_task(context.work.answer, VALUE))


@when("the loop runs, and a message is sent from it")
def step_the_loop_runs_and_a_message_is_sent_from_it(context: Context) -> None:
    context.answers = [context.host.run(ask(context))]


@then("it was answered")
def step_was_answered(context: Context) -> None:
    step_all_answered(context, 1)


@when("two streams go through invoke, each while the loop runs")
def step_two_streams(context: Context) -> None:
    async def main(first: int) -> list[Any]:
        done: Future[Any] = Future()
        source = reactivex.from_iterable([{"value": first + number} for number in range(10)])
        operator = context.bridge.invoke(context.work.answer, ordered=True)
        source.pipe(operator, ops.to_list()).subscribe(done.set_result, done.set_exception)
        results = await asyncio.wrap_future(done)
        return [result.content["value"] for result in results]

    context.streams = [context.host.run(main(first)) for first in (0, 10)]


@then("both have completed with all their results")
def step_both_completed(context: Context) -> None:
    assert context.streams == [list(range(10)), list(range(10, 20))], context.streams


# -- what is in flight -----------------------------------------------------------------------------


def stop_with(context: Context, kind: str) -> None:
    """Run the loop until one message has begun."""

    async def main() -> None:
        send(context, kind, [0], thread_id="t")
        await until(lambda: len(context.work.began) > 0)

    context.host.run(main())


@when(
    "the loop stops with a run that cleans up slowly, one that waits for its turn, and a message "
    "on its way"
)
def step_the_loop_stops_with_a_run_that_cleans_up_slowly_one_that(context: Context) -> None:
    async def main() -> None:
        send(context, "a graph that cleans up slowly", [0], thread_id="t")
        send(context, "an async function", [1], thread_id="t")
        await until(lambda: len(context.work.began) > 0)
        send(context, "an async function", [2])

    context.host.run(main())


@then("they are all given up with LoopUnavailableError, and the registry has all {count:d}")
def step_they_are_all_given_up_with_loopunavailableerror_and_the(
    context: Context, count: int
) -> None:
    assert len(context.futures) == count
    for number in range(count):
        error = failure_of(context, number)
        assert isinstance(error, LoopUnavailableError), repr(error)
    assert len(context.bridge.registry) == count, context.bridge.registry.snapshot()
    assert list(context.work.ended) == []


@when("the program runs its loop again")
def step_the_program_runs_its_loop_again(context: Context) -> None:
    context.work.cleaning.open()
    # Not for some turns only: the runs are given up before the loop is told to forget them.
    context.host.run(until(lambda: len(context.bridge.registry) == 0))


@then("the one that was on has cleaned up, the others never began, and the registry is empty")
def step_cleaned_up(context: Context) -> None:
    work = context.work
    assert (list(work.began), list(work.cleaned)) == ([0], [0]), list(work.began)
    assert len(context.bridge.registry) == 0, context.bridge.registry.snapshot()


@then("the statistics count {count:d} failed")
def step_count_failed(context: Context, count: int) -> None:
    statistics = context.bridge.statistics()
    assert (statistics.failed, statistics.submitted) == (count, count), statistics


@then("a message on the same thread_id is answered")
def step_a_message_on_the_same_thread_id_is_answered(context: Context) -> None:
    async def main() -> Any:
        send(context, "an async function", [3], thread_id="t")
        return await asyncio.wrap_future(context.futures[-1])

    assert context.host.run(main()).content == {"value": 3}


@when("the loop stops with a run in flight, and runs again")
def step_the_loop_stops_with_a_run_in_flight_and_runs_again(context: Context) -> None:
    stop_with(context, "a waiting graph")
    context.host.turn()
    context.work.gate.open()


@then("that run is answered")
def step_run_answered(context: Context) -> None:
    result = context.host.run(wrapped(context.futures[0]))
    assert result.content == {"value": 0}, result


async def wrapped(future: Future[Any]) -> Any:
    return await asyncio.wrap_future(future)


class Looks:
    """Stands for the gate that a watch waits at: its time is up when `look` says so."""

    def __init__(self) -> None:
        self._opened = False
        self._due, self._looking = threading.Semaphore(0), threading.Semaphore(0)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._looking.release()
        self._due.acquire(timeout=LIMIT)
        opened, self._opened = self._opened, False
        return opened

    def release(self) -> None:
        self._opened = True
        self._due.release()

    def look(self) -> None:
        """Have the watch look once. Returns when it has."""
        assert self._looking.acquire(timeout=LIMIT)
        self._due.release()
        assert self._looking.acquire(timeout=LIMIT)
        self._looking.release()


@when("a run is in flight, and the loop runs for a moment before each of {count:d} looks")
def step_a_run_is_in_flight_and_the_loop_runs_for_a_moment_before(
    context: Context, count: int
) -> None:
    context.looks = context.bridge._engine.host._wake = Looks()
    stop_with(context, "a waiting graph")
    for _ in range(count):
        context.looks.look()
        context.host.turn(1)


@then("its future is not resolved")
def step_not_resolved(context: Context) -> None:
    assert not context.futures[0].done(), context.futures[0]


@when("the loop stands still for {count:d} looks")
def step_the_loop_stands_still_for_count_looks(context: Context, count: int) -> None:
    for _ in range(count):
        context.looks.look()


@then("its future raises LoopUnavailableError")
def step_future_raises(context: Context) -> None:
    error = failure_of(context)
    assert isinstance(error, LoopUnavailableError), repr(error)


@when("the loop stops with a blocking sync node at work, which ends in the pause")
def step_the_loop_stops_with_a_blocking_sync_node_at_work_which(context: Context) -> None:
    stop_with(context, "a graph with a blocking sync node")
    context.futures[0].exception(LIMIT)
    context.work.gate.open()
    context.work.ended.wait_for(1)


@then("its future raises LoopUnavailableError, and the registry has it")
def step_its_future_raises_loopunavailableerror_and_the_registry(context: Context) -> None:
    step_future_raises(context)
    assert context.futures[0] in context.bridge.registry


@then("the registry is empty, and the next message is answered")
def step_the_registry_is_empty_and_the_next_message_is_answered(context: Context) -> None:
    assert len(context.bridge.registry) == 0, context.bridge.registry.snapshot()
    assert context.host.run(ask(context)).content == VALUE


@when("the loop stops with a run that swallows cancelling, and runs again with a new message")
def step_the_loop_stops_with_a_run_that_swallows_cancelling_and(context: Context) -> None:
    stop_with(context, "a graph that swallows cancelling")
    step_future_raises(context)

    async def main() -> None:
        send(context, "an async function", [1])
        for _ in range(20):
            await asyncio.sleep(0)
        context.began_while_on = list(context.work.began)
        context.work.gate.open()
        await asyncio.wrap_future(context.futures[1])

    context.host.run(main())


@then("the new one has begun only after the old one had ended")
def step_begun_after(context: Context) -> None:
    assert context.began_while_on == [0], context.began_while_on
    assert list(context.work.ended) == [0, 1] and context.work.peak == 1


class SlowSaver(InMemorySaver):
    """Saves no checkpoint before the gate opens."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self._gate = gate

    async def aput(self, *arguments: Any) -> Any:
        await self._gate.wait_async()
        return await super().aput(*arguments)


@when(
    "the loop stops with a graph that waits for its saver, and runs again: the graph is "
    "cancelled, and its thread has a new message"
)
def step_the_loop_stops_with_a_graph_that_waits_for_its_saver(context: Context) -> None:
    work = context.work
    graph = one_node(work.answer, checkpointer=SlowSaver(work.gate))

    async def begin() -> None:
        task = context.bridge.create_future_task
        context.futures.append(task(graph, {"value": 0}, thread_id="t"))
        await until(lambda: len(work.ended) > 0)
        await pass_turns()  # to the end of the graph, which waits

    async def go_on() -> None:
        context.futures[0].cancel()
        send(context, "an async function", [1], thread_id="t")
        await pass_turns()
        context.began_while_saving = list(work.began)
        work.gate.open()
        await asyncio.wrap_future(context.futures[1])

    context.host.run(begin())
    context.host.run(go_on())


@then("the new one has begun only after the saver was done")
def step_the_new_one_has_begun_only_after_the_saver_was_done(context: Context) -> None:
    assert context.began_while_saving == [0], context.began_while_saving
    assert list(context.work.began) == [0, 1]


@when(
    "the loop stops with a run in flight that has a time limit, and runs again until that is over"
)
def step_the_loop_stops_with_a_run_that_has_a_time_limit(context: Context) -> None:
    async def begin() -> None:
        send(context, "a waiting graph", [0], timeout=3600)
        await until(lambda: len(context.work.began) > 0)

    async def go_on() -> None:
        run = context.futures[0]
        context.stack = context.bridge._engine.stack(run)
        run.timer._run()
        await asyncio.gather(asyncio.wrap_future(run), return_exceptions=True)

    context.host.run(begin())
    context.host.run(go_on())


@then("its error names the node, and its stack on the loop had the line at which the node waits")
def step_its_error_names_the_node(context: Context) -> None:
    assert "await self.gate.wait_async()" in context.stack, context.stack
    error = failure_of(context)
    assert isinstance(error, RunTimeoutError) and error.node == "node", repr(error)


@when("a message passes the look at the loop, which stops before it is handed over")
def step_a_message_passes_the_look_at_the_loop_which_stops_before(context: Context) -> None:
    context.host.run(ask(context))
    home = context.bridge._engine.host
    home.check = lambda: None
    send(context, "an async function", [0])
    del home.check


@then("its future raises LoopUnavailableError, and it never begins when the loop runs again")
def step_never_begins(context: Context) -> None:
    step_future_raises(context)
    context.host.run(until(lambda: len(context.bridge.registry) == 0))
    assert list(context.work.began) == ["asked"], list(context.work.began)


@when("{count:d} threads wait for room, and the loop stops")
def step_wait_for_room(context: Context, count: int) -> None:
    def submit() -> None:
        context.bridge.create_future_task(context.work.answer, VALUE)

    async def main() -> None:
        send(context, "a waiting async function", [0])
        await until(lambda: len(context.work.began) > 0)
        send(context, "an async function", [1])
        context.waiting = [thread(submit) for _ in range(count)]
        await until(lambda: len(context.bridge._engine.admission._gates) == count)

    context.host.run(main())


@then("each of the {count:d} was refused with LoopUnavailableError")
def step_each_of_the_count_was_refused_with_loopunavailableerror(
    context: Context, count: int
) -> None:
    errors = [future.exception(LIMIT) for future in context.waiting]
    assert [type(error) for error in errors] == [LoopUnavailableError] * count, errors


@then("there is room for {count:d} message and no more")
def step_room_for(context: Context, count: int) -> None:
    assert len(context.bridge.registry) == 0, context.bridge.registry.snapshot()

    async def main() -> None:
        send(context, "a waiting async function", ["on"])
        await until(lambda: "on" in context.work.began)
        send(context, "an async function", range(count))
        try:
            send(context, "an async function", ["too many"])
        except BlockingCallError:
            return
        raise AssertionError("there was room for one more")

    context.host.run(main())


@when("the loop stops with a run in flight, which is cancelled in the pause")
def step_the_loop_stops_with_a_run_in_flight_which_is_cancelled_in(context: Context) -> None:
    stop_with(context, "a waiting graph")
    assert context.futures[0].cancel()


@then('"concurrent.futures.wait" finds it done, and the registry has it')
def step_wait_finds_it(context: Context) -> None:
    assert wait(context.futures, LIMIT).done == set(context.futures)
    assert context.futures[0] in context.bridge.registry


@when("the loop {goes} under {count:d} runs, each with a callback that waits for the next one")
def step_the_loop_goes_under_count_runs_each_with_a_callback_that(
    context: Context, goes: str, count: int
) -> None:
    context.called = Log()

    def wait_for_next(number: int) -> None:
        context.futures[(number + 1) % count].exception(LIMIT)
        context.called.add(number)

    async def main() -> None:
        send(context, "a waiting async function", range(count))
        for number, future in enumerate(context.futures):
            future.add_done_callback(lambda _, number=number: wait_for_next(number))
        await until(lambda: len(context.work.began) == count)

    context.host.run(main())
    if goes == "is closed":
        context.host.loop.close()


class Waiter:
    """Hears of futures as those of ``concurrent.futures.wait`` and ``as_completed`` do."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    add_result = add_exception = add_cancelled = lambda self, future: self.told.append(future)


@when(
    "the loop {goes} under {count:d} runs that have callbacks, with a waiter of the standard "
    "library at each"
)
def step_waiter_at_each(context: Context, goes: str, count: int) -> None:
    context.called, context.waiter = Log(), Waiter()

    async def main() -> None:
        send(context, "a waiting async function", range(count))
        for future in context.futures:
            future.add_done_callback(context.called.add)
            with future._condition:
                future._waiters.append(context.waiter)
        await until(lambda: len(context.work.began) == count)

    context.host.run(main())
    if goes == "is closed":
        context.host.loop.close()


@then("the waiter was told of each of the {count:d} once")
def step_told_once(context: Context, count: int) -> None:
    context.called.wait_for(count)
    told = context.waiter.told
    assert len(told) == count and set(told) == set(context.futures), told


@when("a sync function outlasts its timeout, then its loop, and has its retry left")
def step_outlasts_its_loop(context: Context) -> None:
    context.raised = Log()
    patch(context, threading, "excepthook", context.raised.add)
    shares = context.bridge._engine.threads._shares

    async def main() -> None:
        send(context, "a blocking sync function", [0], timeout=LIMIT, retry=1)
        await until(lambda: len(context.work.began) == 1)
        expire(context.futures[-1])
        # The end of the thread is waited for, so that the next attempt can begin.
        await until(lambda: any(share.on_idle is not None for share in shares.values()))

    context.host.run(main())
    context.host.loop.close()
    name = f"{context.bridge.name}-worker"
    (context.worker,) = [each for each in threading.enumerate() if each.name == name]
    context.work.gate.open()
    context.work.ended.wait_for(1)


@then("its thread has ended without an exception")
def step_thread_has_ended(context: Context) -> None:
    home = context.bridge._engine.host
    home.look_every = LOOK_EVERY
    home._wake_watcher()
    assert context.bridge.registry.wait_idle(LIMIT)  # the loop was found closed
    context.bridge.close(0)
    context.worker.join(LIMIT)
    assert not context.worker.is_alive() and not list(context.raised), list(context.raised)


@then("every future is resolved, and every callback has been called once")
def step_every_future_is_resolved_and_every_callback_has_been(context: Context) -> None:
    for future in context.futures:
        assert isinstance(future.exception(LIMIT / 3), LoopUnavailableError), future
    called = context.called.wait_for(len(context.futures))
    assert sorted(called) == list(range(len(context.futures))), called


# -- the end ---------------------------------------------------------------------------------------


@when("the loop stops with a run in flight, and the bridge is closed without a limit")
def step_the_loop_stops_with_a_run_in_flight_and_the_bridge_is(context: Context) -> None:
    stop_with(context, "a waiting graph")
    context.report = thread(context.bridge.close, None).result(LIMIT)


@when(
    "the loop has paused with a run in flight, and runs just until the bridge, closed without a "
    "limit, asks for its end"
)
def step_the_loop_has_paused_with_a_run_in_flight_and_runs_just(context: Context) -> None:
    host, asked = context.bridge._engine.host, Gate()
    context.looks = host._wake = Looks()
    stop_with(context, "a waiting graph")
    step_the_loop_stands_still_for_count_looks(context, 2)
    assert host.paused
    stop = host.stop

    def stop_and_tell() -> None:
        stop()
        asked.open()

    host.stop = stop_and_tell

    async def main() -> Future[Any]:
        closing = thread(lambda: context.bridge.close(None, cancel_timeout=None))
        asked.wait()  # blocks the loop: it is running when it is asked, and goes no further
        return closing

    closing = context.host.run(main())
    del host.stop
    step_the_loop_stands_still_for_count_looks(context, 2)
    context.report = closing.result(LIMIT)


@when("the loop stops with a run in flight, and a cleanup without a limit")
def step_the_loop_stops_with_a_run_in_flight_and_a_cleanup_without_a(context: Context) -> None:
    stop_with(context, "a waiting graph")
    context.report = thread(context.bridge.cleanup_tasks, None).result(LIMIT)


@then("its report names that run, and its future is done")
def step_report_names_run(context: Context) -> None:
    (stuck,) = context.report.stuck
    assert "gate.wait_async" in stuck.stack, stuck.stack
    assert context.futures[0].done()
    assert context.futures[0] in context.bridge.registry


@then("that run has ended, the registry is closed, and the loop and its tasks are as they were")
def step_that_run_has_ended_the_registry_is_closed_and_the_loop(context: Context) -> None:
    assert len(context.work.ended) == 1
    assert context.bridge.registry.state == "closed"
    step_the_loop_and_its_tasks_are_as_they_were(context)


@when("the program ends")
def step_program_ends(context: Context) -> None:
    context.host.close()


@then("that run has ended, and the registry is closed")
def step_ended_and_closed(context: Context) -> None:
    assert len(context.work.ended) == 1
    assert context.bridge.registry.state == "closed", context.bridge.registry.snapshot()


@then("the loop and its tasks are as they were")
def step_the_loop_and_its_tasks_are_as_they_were(context: Context) -> None:
    assert "run_in_executor" not in vars(context.host.loop), vars(context.host.loop)
    assert not asyncio.all_tasks(context.host.loop), asyncio.all_tasks(context.host.loop)


def step_no_thread(context: Context) -> None:
    name = f"{context.bridge.name}-"
    threads = [each for each in threading.enumerate() if each.name.startswith(name)]
    for each in threads:
        each.join(LIMIT)
        assert not each.is_alive(), each


@when("the loop stops with a run in flight, the bridge {state}, and the loop is closed")
def step_the_loop_stops_with_a_run_in_flight_the_bridge_state_and(
    context: Context, state: str
) -> None:
    stop_with(context, "a waiting async function")
    if state == "is closed":
        assert len(context.bridge.close(0).stuck) == 1
    context.host.loop.close()


@then("the future is done, the registry is empty, and the bridge has no thread when it is closed")
def step_the_future_is_done_the_registry_is_empty_and_the_bridge(context: Context) -> None:
    try:
        error: BaseException | None = context.futures[0].exception(LIMIT)
    except CancelledError as cancelled:
        error = cancelled
    assert isinstance(error, LoopUnavailableError | CancelledError), repr(error)
    assert context.bridge.registry.wait_idle(LIMIT)
    context.bridge.close()
    step_no_thread(context)


@when("the loop stops with a coroutine of run_coroutine_threadsafe in flight")
def step_the_loop_stops_with_a_coroutine_of_run_coroutine(context: Context) -> None:
    async def main() -> None:
        context.future = asyncio.run_coroutine_threadsafe(forever(), context.host.loop)
        await asyncio.sleep(0)

    context.host.run(main())


@then("that future is resolved within the pause")
def step_that_future_is_resolved_within_the_pause(context: Context) -> None:
    assert wait([context.future], 0.1).done, "it waits"
