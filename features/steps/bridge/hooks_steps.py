"""Steps for hooks: what they are told of runs."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from time import monotonic
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from reactivex import operators as ops

from rxlanggraph import StreamMessage, TimeLimits, errors, hooks
from rxlanggraph.bridge import callbacks, reports
from rxlanggraph.bridge.run import Run
from rxlanggraph.bridge.watched import WatchedBridge
from rxlanggraph.testing import VirtualBridge
from support.bridge.bridges import answer, failure_of, listen, on_loop, send
from support.bridge.graphs import State, graph_of, one_node
from support.bridge.hook_model import (
    Recorder,
    check_grammar,
    check_outcomes,
    send_with_faults,
    status_of,
)
from support.bridge.streams import Subscriber
from support.concurrency.patching import patch
from support.concurrency.waiting import LIMIT, Gate, in_threads, thread

_WORDS = {
    hooks.RunQueued: "queued",
    hooks.RunStarted: "started",
    hooks.NodeEnded: "node",
    hooks.ChunkEmitted: "chunk",
    hooks.RunEnded: "ended",
}


class _Unhashable(type):
    def __hash__(cls) -> int:
        raise RuntimeError("a class that has no hash")


class NoHashError(Exception, metaclass=_Unhashable):
    """What an application may raise as well."""


_EXCEPTIONS: dict[str, type[BaseException]] = {
    error.__name__: error
    for error in (
        ValueError,
        CancelledError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
        StopIteration,
        NoHashError,
    )
}


def _words(events: Any) -> list[str]:
    return [_WORDS[type(event)] for event in events]


def _add(context: Context, recorder: hooks.Hooks) -> None:
    context.recorder = recorder
    context.listening = context.bridge.add_hooks(recorder)


def _idle(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)


async def _first(state: State) -> State:
    return {"count": 1}


async def _second(state: State) -> State:
    return {"count": 2}


def _two_nodes() -> Any:
    builder = StateGraph(State).add_node("first", _first).add_node("second", _second)
    builder.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
    return builder.compile(name="pair")


def _stream(context: Context, graph: Any, count: int, **options: Any) -> list[Any]:
    messages = [StreamMessage({"value": value}) for value in range(count)]
    context.messages = messages
    subscriber = Subscriber()
    subscriber.subscribe(rx.from_iterable(messages).pipe(context.bridge.stream(graph, **options)))
    return subscriber.wait_for_end().items


# -- given -------------------------------------------------------------------------------------


@given("hooks that write down every event")
def step_hooks_that_write_down_every_event(context: Context) -> None:
    _add(context, Recorder())


@given("hooks that write down every event, and raise at some")
def step_hooks_that_write_down_every_event_and_raise_at_some(context: Context) -> None:
    context.log = listen(context, "rxlanggraph")
    count = iter(range(1_000_000))

    def raise_at_some(event: hooks.RunEvent) -> None:
        if next(count) % 7 == 0:
            raise LookupError("a hook")

    _add(context, Recorder(raise_at_some))


@given("hooks that raise {exception} at every event")
def step_hooks_that_raise_exception_at_every_event(context: Context, exception: str) -> None:
    context.log = listen(context, "rxlanggraph")

    def raise_it(_: object) -> None:
        raise _EXCEPTIONS[exception]

    recorder = Recorder(raise_it)
    # An exception that a signal handler may have raised is passed on in the main thread alone.
    thread(lambda: _add(context, recorder)).result(LIMIT)


@given("hooks that write down every event, and need the lock in another thread")
def step_hooks_that_need_the_lock_in_another_thread(context: Context) -> None:
    registry = context.bridge.registry
    _add(context, Recorder(lambda _: in_threads(1, lambda _: registry.snapshot())))


# -- one message -------------------------------------------------------------------------------


@when("a graph of two nodes streams its chunks for 1 message")
def step_a_graph_of_two_nodes_streams_its_chunks_for_1_message(context: Context) -> None:
    _stream(context, _two_nodes(), 1)
    _idle(context)


@then(
    "the events were queued, started, 2 nodes and 2 chunks, each chunk behind its node, and ended"
)
def step_the_events_were_queued_started_2_nodes_and_2_chunks(context: Context) -> None:
    words = _words(context.recorder.events)
    assert words == ["queued", "started", *["node", "chunk"] * 2, "ended"], words
    check_grammar(context.recorder)


@then(
    'they name the message, the graph, the nodes "first, second" and attempt 1, '
    "and how long each took"
)
def step_they_name_the_message_the_graph_the_nodes_and_attempt_1(context: Context) -> None:
    events = list(context.recorder.events)
    (message,) = context.messages
    assert {(event.message.id, event.name) for event in events} == {(message.id, "pair")}
    nodes = [event for event in events if isinstance(event, hooks.NodeEnded)]
    assert [(node.node, node.status, node.error) for node in nodes] == [
        ("first", "ok", None),
        ("second", "ok", None),
    ]
    chunks = [event.chunk.sequence for event in events if isinstance(event, hooks.ChunkEmitted)]
    assert chunks == [0, 1], chunks
    assert events[1].waited >= 0
    end = events[-1]
    assert (end.status, end.error, end.attempt) == ("ok", None, 1), end
    assert 0 <= sum(node.duration for node in nodes) <= end.duration
    assert [event.time for event in events] == sorted(event.time for event in events)


def _answered(context: Context) -> None:
    send(context, "a graph with an async node", [0])


def _failed(context: Context) -> None:
    send(context, "a failing graph", [0])


def _passing_through(context: Context) -> None:
    failed = StreamMessage(None, status="error", error=ValueError("before"))
    context.futures.append(context.bridge.create_future_task(context.work.answer, failed))


def _behind_another(context: Context, **options: Any) -> None:
    send(context, "a waiting graph", [0], thread_id="t")
    context.work.began.wait_for(1)
    send(context, "a waiting graph", [1], thread_id="t", **options)
    on_loop(context)


def _cancelled_before_its_start(context: Context) -> None:
    _behind_another(context)
    context.futures[-1].cancel()


def _cancelled_when_it_runs(context: Context) -> None:
    send(context, "a waiting graph", [0])
    context.work.began.wait_for(1)
    context.futures[-1].cancel()


def _timed_out(context: Context) -> None:
    send(context, "a waiting graph", [0], timeout=0.01)


def _dropped(context: Context) -> None:
    _behind_another(context)
    send(context, "a waiting graph", [2, 3])


def _refused(context: Context) -> None:
    _behind_another(context, multitask_strategy="reject")


def _interrupted(context: Context) -> None:
    _behind_another(context)
    options = {"thread_id": "t", "multitask_strategy": "interrupt", "errors": "emit"}
    context.bridge.create_future_task(context.work.clean_up_slowly, {"value": 2}, **options)
    on_loop(context)
    context.work.release()


def _asking(context: Context) -> None:
    def ask(_: State) -> None:
        interrupt("yes?")

    graph = one_node(ask, checkpointer=InMemorySaver())
    context.futures.append(context.bridge.create_future_task(graph, {"value": 0}, thread_id="t"))


def _after_the_close(context: Context) -> None:
    context.bridge.close()
    try:
        context.bridge.create_future_task(context.work.answer, {"value": 0})
    except errors.BridgeClosedError:
        return
    raise AssertionError("a closed bridge took a message")


def _loop_stopped(context: Context) -> None:
    send(context, "a waiting graph", [0])
    context.work.began.wait_for(1)
    loop = context.bridge._engine.host.loop
    loop.call_soon_threadsafe(loop.stop)


def _during_a_cleanup(context: Context) -> None:
    registry = context.bridge._engine.registry
    begun = registry.begin_sweep()
    send(context, "a waiting graph", [0])
    registry.end_sweep(begun)


_MESSAGES: dict[str, Callable[[Context], None]] = {
    "is answered": _answered,
    "fails": _failed,
    "is a result that passes through": _passing_through,
    "is cancelled before its start": _cancelled_before_its_start,
    "is cancelled when it runs": _cancelled_when_it_runs,
    "times out": _timed_out,
    "is dropped": _dropped,
    "is refused because its thread is busy": _refused,
    "is interrupted before its start": _interrupted,
    "asks": _asking,
    "comes after the close": _after_the_close,
    "runs when the loop stops": _loop_stopped,
    "comes during a cleanup": _during_a_cleanup,
}


@when("the hooks hear of a message that {what}")
def step_the_hooks_hear_of_a_message_that_what(context: Context, what: str) -> None:
    _MESSAGES[what](context)
    if context.futures:
        status_of(context.futures[-1])
    context.work.release()
    _idle(context)


@then('its events are "{events}", and the end says {status}')
def step_its_events_are_and_the_end_says(context: Context, events: str, status: str) -> None:
    check_grammar(context.recorder)
    by_run = context.recorder.by_run()
    told = by_run[context.futures[-1]] if context.futures else next(iter(by_run.values()))
    words = _words(told)
    if "node" not in events:  # whether a node had begun then is a matter of time
        words = [word for word in words if word != "node"]
    assert words == events.split(), words
    assert told[-1].status == status, told[-1]
    if context.futures:
        assert status_of(context.futures[-1]) == status, failure_of(context)


# -- thousands of them -------------------------------------------------------------------------


@when(
    "{threads:d} threads send {count:d} messages that fail, time out, are cancelled and refused, "
    "and halfway {fault}"
)
def step_threads_send_messages_that_fail_time_out_are_cancelled(
    context: Context, threads: int, count: int, fault: str
) -> None:
    bridge, work = context.bridge, context.work

    def stop() -> None:
        loop = bridge._engine.host.loop
        loop.call_soon_threadsafe(loop.stop)

    halfway: dict[str, Callable[[], object]] = {
        "nothing happens": lambda: None,
        "a cleanup begins": lambda: bridge.cleanup_tasks(LIMIT),
        "the bridge closes": lambda: bridge.close(0),
        "the loop stops": stop,
    }
    assert threads == 4
    graphs = [
        graph_of(work, kind)
        for kind in (
            "a graph with an async node",
            "a graph with a sync node",
            "a failing graph",
            "an async function",
            "a sync function",
        )
    ]
    sent = send_with_faults(bridge, graphs, len(fault), count, halfway[fault])
    context.futures, context.refused = sent
    for future in context.futures:
        status_of(future)
    _idle(context)


@then("every run was queued once, and ended once, in the order that the model allows")
def step_every_run_was_queued_once_and_ended_once(context: Context) -> None:
    check_grammar(context.recorder)


@then("the end that the hooks were told is the one that the future tells")
def step_the_end_that_the_hooks_were_told_is_the_one_that_the_future(context: Context) -> None:
    check_outcomes(context.recorder, context.futures)
    runs = len(context.recorder.by_run())
    assert runs == len(context.futures) + context.refused, (runs, context.refused)
    assert 0 < len(context.log) <= 5 + runs


def _feed(source: rx.Subject[Any], count: int, stop_at: int, subscriber: Subscriber) -> None:
    for value in range(count):
        if value == stop_at:
            thread(subscriber.subscription.dispose)  # type: ignore[union-attr]
        source.on_next({"value": value})


@when("{count:d} messages go through {operator}, which is disposed of in the middle")
def step_messages_go_through_operator_which_is_disposed_of(
    context: Context, count: int, operator: str
) -> None:
    name, _, ordered = operator.partition(", ")
    graph = graph_of(context.work, "a graph with an async node")
    method = getattr(context.bridge, name)
    for stop_at in (0, 1, count // 2):
        subscriber, source = Subscriber(), rx.Subject[Any]()
        stages = source.pipe(method(graph, ordered=bool(ordered)), ops.do_action(lambda _: None))
        subscriber.subscribe(stages)

        thread(_feed, source, count, stop_at, subscriber).result(LIMIT)
        subscriber.subscription.dispose()  # type: ignore[union-attr]
    _idle(context)


# -- what hooks do -----------------------------------------------------------------------------


@when("{count:d} messages are streamed by a graph")
def step_messages_are_streamed_by_a_graph(context: Context, count: int) -> None:
    graph = graph_of(context.work, "a graph with an async node")
    # Not in the main thread, see above.
    context.items = thread(lambda: _stream(context, graph, count)).result(LIMIT)
    _idle(context)


@then("all {count:d} are answered, and the loop still runs")
def step_all_are_answered_and_the_loop_still_runs(context: Context, count: int) -> None:
    results = [item for item in context.items if item.sequence is None]
    assert [result.status for result in results] == ["ok"] * count
    on_loop(context)


@then("5 errors were logged, one for each hook")
def step_5_errors_were_logged_one_for_each_hook(context: Context) -> None:
    logged = sorted(record.getMessage().split()[0] for record in context.log)
    assert logged == ["on_chunk", "on_ended", "on_node", "on_queued", "on_started"], logged


@when("hooks send one more message at each end, and cancel every third run at its start")
def step_hooks_send_one_more_message_at_each_end(context: Context) -> None:
    bridge, work = context.bridge, context.work
    context.more = []

    class Meddling(hooks.Hooks):
        def on_started(self, event: hooks.RunStarted) -> None:
            if event.message.content["value"] % 3 == 0:
                event.future.cancel()

        def on_ended(self, event: hooks.RunEnded) -> None:
            if event.message.content["value"] < 100:
                context.more.append(bridge.create_future_task(work.answer, {"value": 100}))

    _add(context, Meddling())
    send(context, "a graph with an async node", range(12))
    _idle(context)


@then("of 12 messages 4 were cancelled, and 12 more were sent and answered")
def step_of_12_messages_4_were_cancelled_and_12_more_were_sent(context: Context) -> None:
    statuses = [status_of(future) for future in context.futures]
    assert statuses == ["cancelled", "ok", "ok"] * 4, statuses
    assert [status_of(future) for future in context.more] == ["ok"] * 12


@when("9 messages go through {operator}, and a hook has every third one cancelled {when}")
def step_9_messages_go_through_operator_and_a_hook_has_every_third(
    context: Context, operator: str, when: str
) -> None:
    name, _, context.ordered = operator.partition(", ")
    futures: list[Any] = []

    class Cancelling(hooks.Hooks):
        def on_queued(self, event: hooks.RunQueued) -> None:
            futures.append(event.future)
            if when == "as it is queued" and len(futures) % 3 == 0:
                event.future.cancel()

    _add(context, Cancelling())
    graph = graph_of(context.work, "a waiting graph")
    stage = getattr(context.bridge, name)(graph, ordered=bool(context.ordered), errors="emit")
    context.subscriber = subscriber = Subscriber()
    source = rx.Subject[Any]()
    subscriber.subscribe(source.pipe(stage))
    for value in range(9):
        source.on_next({"value": value})
        if value == 0:  # so that a cancelled one has ended before the next
            context.work.began.wait_for(1)
        on_loop(context)
    source.on_completed()
    for future in futures[2::3]:
        future.cancel()
    context.work.release()


@then(
    "6 results and 3 cancellations are emitted, in order if it is ordered, and the stream completes"
)
def step_6_results_and_3_cancellations_are_emitted(context: Context) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    results = [item for item in subscriber.items if item.sequence is None]
    told = [(item.source.content["value"], item.status) for item in results]
    if not context.ordered:
        told.sort()
    assert told == list(zip(range(9), ["ok", "ok", "cancelled"] * 3, strict=True)), told


@then("no message holds room any more")
def step_no_message_holds_room_any_more(context: Context) -> None:
    _idle(context)
    on_loop(context)
    admission = context.bridge._engine.admission
    assert not admission._holders, admission._holders


@when("hooks wait for the run of each event")
def step_hooks_wait_for_the_run_of_each_event(context: Context) -> None:
    context.refusals = refusals = []

    class Waiting(hooks.Hooks):
        def on_queued(self, event: hooks.RunQueued) -> None:
            try:
                event.future.result()
            except BaseException as error:
                refusals.append(error)

        def on_started(self, event: hooks.RunStarted) -> None:
            try:
                event.future.result()
            except BaseException as error:
                refusals.append(error)

    _add(context, Waiting())
    send(context, "a graph with an async node", [0])
    answer(context)


@then("each was refused with BlockingCallError, and the message was answered")
def step_each_was_refused_with_blockingcallerror(context: Context) -> None:
    assert [isinstance(each, errors.BlockingCallError) for each in context.refusals] == [True] * 2
    assert answer(context).status == "ok"


@when("hooks set a context variable to the id of each message at its start")
def step_hooks_set_a_context_variable_to_the_id_of_each_message(context: Context) -> None:
    context.variable = variable = contextvars.ContextVar[str]("hooked")

    class Setting(hooks.Hooks):
        def on_started(self, event: hooks.RunStarted) -> None:
            variable.set(event.message.id)

    _add(context, Setting())


@then("the nodes of {count:d} runs at once see the ids of their own messages")
def step_the_nodes_of_runs_at_once_see_the_ids_of_their_own_messages(
    context: Context, count: int
) -> None:
    async def see(_: State) -> State:
        await context.work.gate.wait_async()
        return {"value": context.variable.get()}

    graph = one_node(see)
    for number in range(count):
        context.futures.append(context.bridge.create_future_task(graph, {"value": number}))
    context.work.release()
    for number in range(count):
        result = answer(context, number)
        assert result.content["value"] == result.source.id  # type: ignore[union-attr]
    assert context.variable.get(None) is None


@then("the arrival was told in the thread that sent it, all else on the loop's thread")
def step_the_arrival_was_told_in_the_thread_that_sent_it(context: Context) -> None:
    threads = dict(context.recorder.threads)
    assert threads.pop(hooks.RunQueued) == {threading.get_ident()}
    assert len(threads) == 4
    assert set().union(*threads.values()) == {context.bridge._engine.host.thread_id}


@when("hooks are added while a run is at work, and disposed of while another one is")
def step_hooks_are_added_while_a_run_is_at_work_and_disposed_of(context: Context) -> None:
    send(context, "a waiting graph", [0])
    context.work.began.wait_for(1)
    _add(context, Recorder())
    send(context, "a waiting graph", [1])
    context.work.began.wait_for(2)
    for _ in range(2):
        context.listening.dispose()
    send(context, "a waiting graph", [2])
    context.work.release()
    _idle(context)


@then("they heard nothing of the first run, and nothing of the second one after its start")
def step_they_heard_nothing_of_the_first_run(context: Context) -> None:
    by_run = context.recorder.by_run()
    assert list(by_run) == [context.futures[1]]
    assert _words(by_run[context.futures[1]]) == ["queued", "started"]


@when("two hooks are added, the first of them twice, and 3 messages are answered")
def step_two_hooks_are_added_the_first_of_them_twice(context: Context) -> None:
    context.two = Recorder(), Recorder()
    context.added = [context.bridge.add_hooks(each) for each in (*context.two, context.two[0])]
    send(context, "an async function", range(3))
    _idle(context)


@then("the first was called twice as often as the second")
def step_the_first_was_called_twice_as_often_as_the_second(context: Context) -> None:
    first, second = context.two
    assert (len(first.events), len(second.events)) == (18, 9)


@when("one of the first is disposed of, and 3 more are answered")
def step_one_of_the_first_is_disposed_of_and_3_more_are_answered(context: Context) -> None:
    context.added[0].dispose()
    send(context, "an async function", range(3))
    _idle(context)


@then("both were called 9 times more")
def step_both_were_called_9_times_more(context: Context) -> None:
    assert [len(each.events) for each in context.two] == [27, 18]


@when("in virtual time two messages of 30 s each are sent to a bridge with one slot")
def step_in_virtual_time_two_messages_of_30_s_each_are_sent(context: Context) -> None:
    async def sleep(_: object) -> None:
        await asyncio.sleep(30)

    context.recorder = Recorder()
    with VirtualBridge(max_concurrency=1) as bridge:
        bridge.add_hooks(context.recorder)
        for run in [bridge.create_future_task(sleep, number) for number in range(2)]:
            bridge.run(run)


@then("the hooks were told that they waited 0 s and 30 s, and took 30 s each")
def step_the_hooks_were_told_that_they_waited_and_took_30_s_each(context: Context) -> None:
    events = list(context.recorder.events)
    waited = [event.waited for event in events if isinstance(event, hooks.RunStarted)]
    took = [event.duration for event in events if isinstance(event, hooks.RunEnded)]
    assert (waited, took) == ([0, 30], [30, 30]), (waited, took)


class _Async(hooks.Hooks):
    async def on_ended(self, event: hooks.RunEnded) -> None:  # type: ignore[override]
        """Be async."""


class _Misnamed(hooks.Hooks):
    def on_end(self, event: hooks.RunEnded) -> None:
        """Be misnamed."""


class _AsyncGenerator(hooks.Hooks):
    async def on_ended(self, event: hooks.RunEnded) -> Any:
        yield event


class _Generator(hooks.Hooks):
    def on_ended(self, event: hooks.RunEnded) -> Any:
        yield event


class _AsyncCallable:
    async def __call__(self, event: hooks.RunEnded) -> None:
        raise AssertionError(event)


def _with_on_ended(value: Any) -> hooks.Hooks:
    added = hooks.Hooks()
    added.on_ended = value
    return added


@then('adding {what} raises InvalidTypeError, which says "{says}"')
def step_adding_what_raises_invalidtypeerror(context: Context, what: str, says: str) -> None:
    wrong: dict[str, Any] = {
        "a class": Recorder,
        "a function": print,
        "an async hook": _Async(),
        "an async generator": _AsyncGenerator(),
        "a generator": _Generator(),
        "an async callable": _with_on_ended(_AsyncCallable()),
        "a hook that is None": _with_on_ended(None),
        "a hook of another name": _Misnamed(),
    }
    try:
        context.bridge.add_hooks(wrong[what])
    except errors.InvalidTypeError as error:
        assert says in str(error), error
        return
    raise AssertionError(f"{what} was accepted")


# -- what they cost ----------------------------------------------------------------------------


@when("making events and callbacks is forbidden")
def step_making_events_and_callbacks_is_forbidden(context: Context) -> None:
    def forbidden(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("it was made all the same")

    context.log = listen(context, "rxlanggraph")
    for name in (kind.__name__ for kind in _WORDS):
        patch(context, reports, name, forbidden)
    patch(context, callbacks, "NodeCallbacks", forbidden)


@then("{count:d} messages are streamed and answered without hooks")
def step_messages_are_streamed_and_answered_without_hooks(context: Context, count: int) -> None:
    items = _stream(context, graph_of(context.work, "a graph with an async node"), count)
    assert len(items) == 2 * count
    _idle(context)


@then("{count:d} messages are answered with hooks that override nothing")
def step_messages_are_answered_with_hooks_that_override_nothing(
    context: Context, count: int
) -> None:
    _add(context, hooks.Hooks())
    step_messages_are_streamed_and_answered_without_hooks(context, count)
    assert not context.log, context.log


@when("a message is answered without hooks")
def step_a_message_is_answered_without_hooks(context: Context) -> None:
    send(context, "a graph with an async node", [0])
    assert answer(context).status == "ok"
    _idle(context)


@when("hooks are added, and another one is answered")
def step_hooks_are_added_and_another_one_is_answered(context: Context) -> None:
    context.bridge.add_hooks(Recorder())
    send(context, "a graph with an async node", [0])
    assert answer(context, 1).status == "ok"
    _idle(context)


@then("both runs have the same fields, and no longer refer to hooks")
def step_both_runs_have_the_same_fields(context: Context) -> None:
    without, with_hooks = map(vars, context.futures)
    waited = {"_gates"}  # of a future that a thread has waited for
    assert without.keys() - waited == with_hooks.keys() - waited, (without, with_hooks)
    assert without["observed"] is with_hooks["observed"] is None


class _Ends(hooks.Hooks):
    def on_ended(self, event: hooks.RunEnded) -> None:
        """Do nothing, but be told."""


@given("{others} on it")
def step_others_on_it(context: Context, others: str) -> None:
    if others != "no hooks":
        context.bridge.add_hooks(_Ends() if others == "hooks for ends alone" else Recorder())


@when("a message is in its node, one waits behind it, and hooks are added for both")
def step_a_message_is_in_its_node_one_waits_and_hooks_are_added(context: Context) -> None:
    context.gate, reached = Gate(), threading.Event()

    async def node(_: int) -> None:
        reached.set()
        await context.gate.wait_async()

    bridge = context.bridge
    context.sent_at = monotonic()
    context.futures = [bridge.create_future_task(node, number) for number in range(2)]
    assert reached.wait(LIMIT)
    context.recorder = Recorder()
    WatchedBridge(bridge._engine, bridge, None).add_hooks(context.recorder)
    on_loop(context)


@when("the gate opens, and both have ended")
def step_the_gate_opens_and_both_have_ended(context: Context) -> None:
    context.gate.open()
    for future in context.futures:
        future.result(LIMIT)
    _idle(context)


@then('the added hooks heard "{events}", and no longer wait than since the message was sent')
def step_the_added_hooks_heard_and_no_longer_wait(context: Context, events: str) -> None:
    heard = context.recorder.events.wait_for(3)
    assert ", ".join(sorted(_words(heard), reverse=True)) == events, heard
    (waited,) = (event.waited for event in heard if isinstance(event, hooks.RunStarted))
    assert 0 <= waited <= monotonic() - context.sent_at, waited


# -- nodes -------------------------------------------------------------------------------------


@when("a graph runs a sync node, then a subgraph whose second node fails")
def step_a_graph_runs_a_sync_node_then_a_subgraph(context: Context) -> None:
    def sync(_: State) -> State:
        return {"count": 1}

    async def bad(_: State) -> State:
        raise ValueError("bad")

    inner = StateGraph(State).add_node("inner", _first).add_node("bad", bad)
    inner.add_edge(START, "inner").add_edge("inner", "bad")
    outer = StateGraph(State).add_node("sync", sync).add_node("outer", inner.compile())
    outer.add_edge(START, "sync").add_edge("sync", "outer")
    graph = outer.compile()
    context.futures.append(context.bridge.create_future_task(graph, {"value": 0}))
    failure_of(context)
    _idle(context)


@then('the nodes were "{nodes}"')
def step_the_nodes_were(context: Context, nodes: str) -> None:
    ends = [each for each in context.recorder.events if isinstance(each, hooks.NodeEnded)]
    assert ", ".join(f"{each.node} {each.status}" for each in ends) == nodes, ends
    assert all((each.error is None) == (each.status == "ok") for each in ends), ends


@when("a graph whose node fails once is retried")
def step_a_graph_whose_node_fails_once_is_retried(context: Context) -> None:
    calls: list[None] = []

    async def fail_once(state: State) -> State:
        calls.append(None)
        if len(calls) == 1:
            raise ValueError("not yet")
        return state

    context.futures.append(
        context.bridge.create_future_task(one_node(fail_once), {"value": 0}, retry=2)
    )
    assert answer(context).status == "ok"
    _idle(context)


@then('the nodes were told with the attempts "1 2", and the end with attempt 2')
def step_the_nodes_were_told_with_the_attempts(context: Context) -> None:
    events = list(context.recorder.events)
    attempts = [each.attempt for each in events if isinstance(each, hooks.NodeEnded)]
    assert (attempts, events[-1].attempt) == ([1, 2], 2), events


@when("hooks that keep nothing hear of {count:d} runs, whose contexts are kept")
def step_hooks_that_keep_nothing_hear_of_runs_whose_contexts_are_kept(
    context: Context, count: int
) -> None:
    class Forgetting(Recorder):
        def _note(self, event: hooks.RunEvent) -> None:
            """Keep nothing."""

    _add(context, Forgetting())
    context.kept = []

    async def keep(state: State) -> State:
        context.kept.append(contextvars.copy_context())
        await asyncio.sleep(0)
        return state

    graph = one_node(keep)
    context.runs = []
    for number in range(count):
        run = context.bridge.create_future_task(graph, {"value": number})
        context.runs.append(weakref.ref(run))
        run.result(LIMIT)
        del run
    _idle(context)


@then("none of the runs is left")
def step_none_of_the_runs_is_left(context: Context) -> None:
    on_loop(context)
    gc.collect()
    left = [run() for run in context.runs if run() is not None]
    assert len(left) == 0, len(left)
    assert len(context.kept) == len(context.runs)


# What another thread makes of a run that it ends for a reason of its own.
_OTHERWISE: dict[str, Callable[[Run], StreamMessage]] = {
    "dropped": lambda run: run.unanswered("rejected", errors.RunDroppedError("dropped")),
    "interrupted": lambda run: run.unanswered(
        "interrupted", errors.RunInterruptedError("interrupted")
    ),
    "timed out": lambda run: run.unanswered("timed_out", errors.RunTimeoutError("timed out")),
}


@when("a message is {first}, and is {otherwise} in the middle of that")
def step_a_message_is_first_and_is_otherwise_in_the_middle_of_that(
    context: Context, first: str, otherwise: str
) -> None:
    bridge, gate = context.bridge, Gate()
    context.add_cleanup(gate.open)

    async def node(content: Any) -> Any:
        await gate.wait_async()
        return content

    def send(value: int, **options: Any) -> Any:
        return bridge.create_future_task(node, value, thread_id="t", **options)

    def end_otherwise(run: Any) -> None:
        # The future is resolved, and the hooks have not been told.
        reports.report_end(run, _OTHERWISE[otherwise](run))

    futures = [send(0)]
    on_loop(context)  # it has begun
    start = 0.001 if first == "timed out" else LIMIT
    context.ended_twice = run = send(1, timeout=TimeLimits(start=start))
    run.add_done_callback(end_otherwise)
    if first == "dropped":
        futures += [send(2), send(3)]
    elif first == "interrupted":
        futures.append(send(2, multitask_strategy="interrupt"))
    status_of(run)
    gate.open()
    for future in futures:
        status_of(future)
    _idle(context)


@then("the hooks were told that it was {status}, once")
def step_the_hooks_were_told_that_it_was_status_once(context: Context, status: str) -> None:
    ends = [event for event in context.recorder.events if isinstance(event, hooks.RunEnded)]
    statuses = [event.result.status for event in ends if event.future is context.ended_twice]
    assert statuses == [status], statuses
    assert status_of(context.ended_twice) == status
