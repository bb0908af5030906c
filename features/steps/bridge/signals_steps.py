"""Signals that reach the main thread while it is sending, and threads that wait for room."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from types import FrameType
from typing import Any

from behave import then, when
from behave.runner import Context

from rxlanggraph import BridgeClosedError, RxPyLangGraphBridge
from support.bridge.bridges import answer, make_bridge, on_loop, send
from support.bridge.graphs import Work, graph_of
from support.concurrency.waiting import LIMIT, Gate, thread


class Interruption:
    """A real signal to the main thread, handled by ``call``, once ``gate`` is open."""

    def __init__(self, context: Context, call: Callable[[], object]) -> None:
        self.gate = Gate()
        self.result: Any = None
        self.handled = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda _, frame: self._handle(call, frame))
        self._sender = thread(self._send)
        context.add_cleanup(signal.signal, signal.SIGUSR1, before)

    def _send(self) -> None:
        self.gate.wait()
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGUSR1)

    def _handle(self, call: Callable[[], object], frame: FrameType | None) -> None:
        if frame is not None and frame.f_globals.get("__name__", "").startswith("coverage."):
            # What measures the coverage holds a lock of its own there, for which the loop's thread
            # may wait with one of ours in hand. Once more, when it is out.
            signal.raise_signal(signal.SIGUSR1)
            return
        self.result = call()
        self.handled.set()


def send_until(bridge: RxPyLangGraphBridge, work: Work, stop: Callable[[int], bool]) -> list[Any]:
    """Send as fast as can be, until refused or ``stop(number)``."""
    graph, futures = graph_of(work, "an async function"), []
    try:
        while not stop(len(futures)):
            futures.append(bridge.create_future_task(graph, {"value": len(futures)}))
    except BridgeClosedError:
        futures.append(None)
    return futures


@when("a signal handler closes it, 20 times over, while the main thread is sending")
def step_a_signal_handler_closes_it_20_times_over_while_the_main(context: Context) -> None:
    context.rounds = []
    for turn in range(20):
        bridge = make_bridge(context)
        interruption = Interruption(context, partial(bridge.close, 1, cancel_timeout=1))

        def after_some(
            number: int, wanted: int = 7 * turn, it: Interruption = interruption
        ) -> bool:
            if number == wanted:
                it.gate.open()
            return False

        context.rounds.append((bridge, send_until(bridge, context.work, after_some)))


@then("each time the main thread was refused, every future is done, and the registry is empty")
def step_each_time_the_main_thread_was_refused_every_future_is_done(context: Context) -> None:
    for bridge, futures in context.rounds:
        assert futures.pop() is None
        assert not wait(futures, LIMIT).not_done
        assert bridge.registry.wait_idle(LIMIT)
        # The one that was refused may have been let in and taken back.
        assert bridge.statistics().submitted - len(futures) in (0, 1), bridge.statistics()


@when("a signal handler cleans up, 20 times over, while the main thread is sending")
def step_a_signal_handler_cleans_up_20_times_over_while_the_main(context: Context) -> None:
    context.reports = []
    for turn in range(20):
        interruption = Interruption(context, partial(context.bridge.cleanup_tasks, 1))

        def handled(number: int, wanted: int = 7 * turn, it: Interruption = interruption) -> bool:
            if number == wanted:
                it.gate.open()
            return it.result is not None

        context.futures += send_until(context.bridge, context.work, handled)
        context.reports.append(interruption.result)


@when("a signal handler cleans up while the main thread is inside a section of the bridge")
def step_a_signal_handler_cleans_up_while_the_main_thread_is_inside(context: Context) -> None:
    context.work.began.wait_for(1)
    interruption = Interruption(context, partial(context.bridge.cleanup_tasks, LIMIT))
    with context.bridge._engine.lock:
        interruption.gate.open()
        # In short turns: CPython handles a signal that comes just before a wait only after it.
        assert any(interruption.handled.wait(0.1) for _ in range(10 * int(LIMIT)))
    context.reports = [interruption.result]


@then("its report has nothing stuck")
def step_its_report_has_nothing_stuck(context: Context) -> None:
    (report,) = context.reports
    assert report.stuck == (), str(report)


@then("each cleanup returned, and the bridge answers the next message")
def step_each_cleanup_returned_and_the_bridge_answers_the_next(context: Context) -> None:
    assert len(context.reports) == 20
    send(context, "an async function", [1])
    assert context.futures[-1].result(LIMIT).status == "ok"
    assert context.bridge.registry.wait_idle(LIMIT)
    assert all(future.done() for future in context.futures)


# -- room ------------------------------------------------------------------------------------------


def fill(context: Context) -> None:
    """One run that waits for the gate, and one that waits for its start: there is no more room."""
    send(context, "a waiting graph", [0])
    context.work.began.wait_for(1)
    send(context, "an async function", [1])


def wait_until_blocked(context: Context, count: int) -> None:
    admission = context.bridge._engine.admission
    blocked = threading.Event()
    while not blocked.wait(0.001):  # bounded by the scenario's own deadline
        if len(admission._gates) == count:
            blocked.set()


@when("the main thread waits for room, and a signal handler closes the bridge")
def step_the_main_thread_waits_for_room_and_a_signal_handler_closes(context: Context) -> None:
    fill(context)
    interruption = Interruption(context, lambda: context.bridge.close(0))

    def release() -> None:
        wait_until_blocked(context, 1)
        interruption.gate.open()

    releasing = thread(release)
    context.refusals = [refusal_of_one_more(context)]
    releasing.result(LIMIT)


def refusal_of_one_more(context: Context) -> Exception | None:
    try:
        send(context, "an async function", [2])
    except BridgeClosedError as error:
        return error
    return None


@then("the main thread was refused with BridgeClosedError")
def step_the_main_thread_was_refused_with_bridgeclosederror(context: Context) -> None:
    (refusal,) = context.refusals
    assert isinstance(refusal, BridgeClosedError), refusal


@when("{count:d} threads wait for room")
def step_count_threads_wait_for_room(context: Context, count: int) -> None:
    fill(context)
    context.waiting = [thread(refusal_of_one_more, context) for _ in range(count)]
    wait_until_blocked(context, count)


@then("each of the {count:d} threads was refused with BridgeClosedError")
def step_each_of_the_count_threads_was_refused_with(context: Context, count: int) -> None:
    refusals = [waiting.result(LIMIT) for waiting in context.waiting]
    assert len(refusals) == count
    assert all(isinstance(refusal, BridgeClosedError) for refusal in refusals), refusals


@when("the run that has not started is cancelled")
def step_the_run_that_has_not_started_is_cancelled(context: Context) -> None:
    assert context.futures[1].cancel()


@then("the thread that waited has sent its message")
def step_the_thread_that_waited_has_sent_its_message(context: Context) -> None:
    (waiting,) = context.waiting
    assert waiting.result(LIMIT) is None
    assert len(context.futures) == 3
    context.work.gate.open()
    assert context.futures[2].result(LIMIT).status == "ok"


@when("a thread sends {count:d} messages to a waiting graph")
def step_a_thread_sends_count_messages_to_a_waiting_graph(context: Context, count: int) -> None:
    context.sending = thread(send, context, "a waiting graph", range(count))


@then("it is blocked with {begun:d} run begun and {pending:d} waiting for their start")
def step_it_is_blocked_with_begun_run_begun_and_pending_waiting_for(
    context: Context, begun: int, pending: int
) -> None:
    wait_until_blocked(context, 1)
    context.work.began.wait_for(begun)
    on_loop(context)
    wait_until_blocked(context, 1)
    assert len(context.futures) == begun + pending, len(context.futures)
    assert len(context.bridge.registry) == begun + pending
    assert not context.sending.done()


@then("that thread has sent {count:d}, and all have results")
def step_that_thread_has_sent_count_and_all_have_results(context: Context, count: int) -> None:
    context.sending.result(LIMIT)
    assert len(context.futures) == count
    for future in context.futures:
        future.result(LIMIT)
    assert context.work.peak == 1


@when("a run sends messages until one is refused")
def step_a_run_sends_messages_until_one_is_refused(context: Context) -> None:
    graph, held = graph_of(context.work, "a waiting graph"), Gate()

    async def run(_: object) -> None:
        try:
            for value in range(10):
                context.futures.append(context.bridge.create_future_task(graph, {"value": value}))
        except RuntimeError as error:
            context.error = error
        held.open()

    context.bridge.create_future_task(run, None)
    held.wait()
    assert len(context.futures) == 1
    context.work.gate.open()
    answer(context)
    on_loop(context)
