"""What happens to messages for which there is no room."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

import reactivex
from behave import then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.subject import Subject

from rxlanggraph import StreamMessage
from rxlanggraph.bridge.admission import AdmissionLimiter
from rxlanggraph.errors import (
    BacklogFullError,
    BridgeClosedError,
    RunDroppedError,
)
from rxlanggraph.hooks import Hooks, RunQueued
from support.bridge.bridges import on_loop
from support.bridge.overflow_model import Message, Model
from support.bridge.streams import Subscriber
from support.concurrency.patching import patch
from support.concurrency.tasks import start, switching_often
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads


def parsed(words: str) -> list[Message]:
    """``"a1 2"``: message 1 on the thread a, message 2 on none."""
    return [
        Message(int(word.lstrip("abcdef")), word.rstrip("0123456789") or None)
        for word in words.split()
    ]


def settle(context: Context) -> None:
    """Return once the loop has looked at everything that was sent before."""
    on_loop(context)
    on_loop(context)


class Held:
    """A run that holds the slot until the gate opens, and the runs that were sent behind it."""

    def __init__(self, context: Context) -> None:
        self.gate, self.holding = Gate(), Gate()
        self.ran = Log()
        self.runs: dict[Message, Any] = {}
        self._context = context
        context.add_cleanup(self.gate.open)

    async def hold(self, _: object) -> None:
        self.holding.open()
        await self.gate.wait_async()

    async def node(self, content: Any) -> Any:
        self.ran.add(content)
        return content

    async def switch(self, content: Any) -> Any:
        return await (self.hold(content) if content is self else self.node(content))

    async def block(self, _: object) -> None:
        self.holding.open()
        self.gate.wait()

    def begin(self, **options: Any) -> None:
        self._context.holder = self._context.bridge.create_future_task(self.hold, None, **options)
        self.holding.wait()
        settle(self._context)

    def send(self, message: Message, **options: Any) -> Any:
        bridge = self._context.bridge
        run = bridge.create_future_task(
            self.node, message, thread_id=message.thread, errors="emit", **options
        )
        self.runs[message] = run
        settle(self._context)
        return run


@when("a run holds the slot, and the messages {words} arrive one after another")
def step_a_run_holds_the_slot_and_the_messages_arrive(context: Context, words: str) -> None:
    context.held = held = Held(context)
    held.begin()
    for message in parsed(words):
        held.send(message)
    context.work.gate.open = held.gate.open


@when("{word} is cancelled, and the messages {words} arrive one after another")
def step_is_cancelled_and_the_messages_arrive(context: Context, word: str, words: str) -> None:
    cancelled = parsed(word)[0]
    assert context.held.runs.pop(cancelled).cancel()
    settle(context)
    for message in parsed(words):
        context.held.send(message)


@then("{run} are run, and {rejected} are rejected")
def step_are_run_and_are_rejected(context: Context, run: str, rejected: str) -> None:
    results = {message: each.result(LIMIT) for message, each in context.held.runs.items()}
    by_status: dict[str, list[str]] = {"ok": [], "rejected": []}
    for message, result in results.items():
        by_status[result.status].append(str(message))
    assert sorted(by_status["ok"], key=lambda word: word[-1]) == run.split(), by_status
    assert sorted(by_status["rejected"], key=lambda word: word[-1]) == rejected.split(), by_status
    assert sorted(map(str, context.held.ran)) == sorted(run.split())
    statistics = context.bridge.statistics()
    assert statistics.dropped == len(rejected.split()) == statistics.failed, statistics


# -- against the model -----------------------------------------------------------------------------


class Stub:
    """What the limiter reads of a run."""

    downstream = False
    rejection: Any = None

    def __init__(self, message: Message) -> None:
        self.message = message
        self.thread_id = message.thread

    def done(self) -> bool:
        return False


STEPS = ("arrives on no thread", "arrives on a", "arrives on b", "the first starts")


@then(
    'every sequence of 6 steps with overflow="{policy}" goes as in the model, with room for 1 to 3'
)
def step_every_sequence_of_6_steps_goes_as_in_the_model(context: Context, policy: Any) -> None:
    for room in (1, 2, 3):
        for steps in itertools.product(STEPS, repeat=6):
            model = Model(policy, room)
            limiter = AdmissionLimiter(room, threading.RLock(), policy)
            stubs: dict[Message, Any] = {}
            for number, step in enumerate(steps):
                if step != "the first starts":
                    thread = step.removeprefix("arrives on ")
                    message = Message(number, None if thread == "no thread" else thread)
                    check_arrival(model, limiter, stubs, message)
                elif model.waiting:
                    first = model.waiting[0]
                    model.start(first)
                    assert limiter.release(stubs[first]), steps


def check_arrival(
    model: Model, limiter: AdmissionLimiter, stubs: dict[Message, Any], message: Message
) -> None:
    stub: Any = Stub(message)
    stubs[message] = stub
    before = len(model.rejected)
    model.arrive(message)
    loser = limiter.claim(stub)
    if loser is not stub:
        limiter.expose(stub)
    expected = [stubs[each] for each in model.rejected[before:]]
    assert ([] if loser is None else [loser]) == expected, (model, loser)


class SideBySide:
    """A bridge and the model, to which the same happens, step by step."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bridge = context.bridge
        self._policy = context.bridge._engine.admission.overflow
        self._gates: dict[Message, asyncio.Event] = {}
        self._begun: list[Message] = []  # written on the loop
        self.model = Model(self._policy, 3)
        self.runs: dict[Message, Any] = {}
        self.refused: list[Message] = []
        self._started: list[Message] = []

    async def _node(self, message: Message) -> Message:
        gate = self._gates[message] = asyncio.Event()
        self._begun.append(message)
        await gate.wait()
        return message

    def arrive(self, message: Message) -> None:
        self.model.arrive(message)
        try:
            self.runs[message] = self._bridge.create_future_task(
                self._node, message, thread_id=message.thread, errors="emit"
            )
        except BacklogFullError:
            self.refused.append(message)

    def end_one(self, chosen: random.Random) -> None:
        running = [message for message in self._started if not self.runs[message].done()]
        if running:
            message = chosen.choice(running)
            self._bridge._engine.host.loop.call_soon_threadsafe(self._gates[message].set)
            self.runs[message].result(LIMIT)

    def cancel_one(self, chosen: random.Random) -> None:
        if self.model.waiting:
            message = chosen.choice(self.model.waiting)
            assert self.runs[message].cancel()
            self.model.start(message)

    def check(self) -> None:
        settle(self._context)
        for message in self._begun[len(self._started) :]:
            assert message in self.model.waiting, (message, self.model)
            self.model.start(message)
            self._started.append(message)
        rejected = [message for message, run in self.runs.items() if is_rejected(run)]
        assert {*rejected, *self.refused} == set(self.model.rejected), self.model
        waiting = [message for message, run in self.runs.items() if not run.done()]
        assert [m for m in waiting if m not in self._started] == self.model.waiting, self.model


@then(
    "{count:d} arrivals, ends and cancellations, in an order chosen by a seed, go as in the model"
)
def step_arrivals_ends_and_cancellations_go_as_in_the_model(context: Context, count: int) -> None:
    both, chosen = SideBySide(context), random.Random(16)
    for number in range(count):
        what = chosen.choice(("arrives", "arrives", "arrives", "ends", "is cancelled"))
        if what == "arrives":
            both.arrive(Message(number, chosen.choice((None, "a", "b", "c"))))
        elif what == "ends":
            both.end_one(chosen)
        else:
            both.cancel_one(chosen)
        both.check()
    assert both.model.rejected, "it was never full"
    context.bridge.cleanup_tasks(LIMIT)
    statistics = context.bridge.statistics()
    assert statistics.dropped == len(both.model.rejected) - len(both.refused), statistics
    check_nothing_is_left(context)


def is_rejected(run: Any) -> bool:
    return run.done() and not run.cancelled() and run.result(0).status == "rejected"


# -- what is told ----------------------------------------------------------------------------------


@then('the next call of {method} raises BacklogFullError: "{words}"')
def step_the_next_call_of_method_raises_backlogfullerror(
    context: Context, method: str, words: str
) -> None:
    try:
        getattr(context.bridge, method)(context.held.node, 0)
    except BacklogFullError as error:
        assert words in str(error), error
    else:
        raise AssertionError("it was accepted")
    assert len(context.bridge.registry) == 3


@then("the bridge counts {submitted:d} submitted, {dropped:d} dropped")
def step_the_bridge_counts_submitted_dropped(
    context: Context, submitted: int, dropped: int
) -> None:
    statistics = context.bridge.statistics()
    assert (statistics.submitted, statistics.dropped) == (submitted, dropped), statistics
    assert_adds_up(statistics)


def assert_adds_up(statistics: Any) -> None:
    ended = statistics.succeeded + statistics.failed + statistics.cancelled
    assert statistics.submitted == ended + statistics.in_flight, statistics
    assert statistics.dropped <= statistics.failed, statistics


@when('a run holds the slot, and two messages arrive with errors="{errors}"')
def step_a_run_holds_the_slot_and_two_messages_arrive(context: Context, errors: Any) -> None:
    context.held = held = Held(context)
    held.begin()
    for number in range(2):
        run = context.bridge.create_future_task(held.node, number, errors=errors)
        context.futures.append(run)


@then("the future of the {which} is done with {outcome}")
def step_the_future_of_the_which_is_done_with_outcome(
    context: Context, which: str, outcome: str
) -> None:
    first, second = context.futures
    dropped, kept = (first, second) if which == "first" else (second, first)
    assert dropped.done() and not kept.done()
    error = dropped.exception(0)
    if "status" in outcome:
        result = dropped.result(0)
        assert result.status == "rejected", result
        error = result.error
    assert isinstance(error, RunDroppedError), error
    assert "already had max_pending=1 messages" in str(error), error


def operator_of(context: Context, words: str, node: Any, **options: Any) -> Any:
    name, _, ordered = words.partition(", ")
    method = getattr(context.bridge, name)
    return method(node, ordered=bool(ordered), **options)


def word_of(result: StreamMessage) -> str:
    if result.status == "rejected":
        assert result.source is not None
        return f"x{result.source.content}"
    assert result.status == "ok", result
    return str(result.content)


@when('a run holds the slot, and {count:d} messages go through {operator} with errors="{errors}"')
def step_a_run_holds_the_slot_and_messages_go_through(
    context: Context, count: int, operator: str, errors: str
) -> None:
    context.held = held = Held(context)
    held.begin()
    context.subscriber = subscriber = Subscriber()
    source: Subject[Any] = Subject()
    stage = operator_of(context, operator, held.node, errors=errors)
    subscriber.subscribe(source.pipe(stage))
    for number in range(count):
        source.on_next(number)
        settle(context)
    source.on_completed()
    context.work.gate.open = held.gate.open


@then('the observer gets the results "{results}" and then {end}')
@then('the observer gets the results "" and then {end}')
def step_the_observer_gets_the_results_and_then_end(
    context: Context, end: str, results: str = ""
) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert [word_of(each) for each in subscriber.items] == results.split(), subscriber.items
    if end == "completed":
        assert subscriber.ends == ["completed"], subscriber.ends
    else:
        assert type(subscriber.error).__name__ == end, subscriber.error
    assert subscriber.overlaps == 0
    assert context.bridge.registry.wait_idle(LIMIT)


@when("a run holds the slot, and a message is streamed with astream, and another arrives")
def step_a_run_holds_the_slot_and_a_message_is_streamed_with_astream(context: Context) -> None:
    context.held = held = Held(context)
    held.begin()
    context.chunks = context.bridge.astream(held.node, 1)
    held.send(Message(2, None))


@then("the stream of astream ends with RunDroppedError")
def step_the_stream_of_astream_ends_with_rundroppederror(context: Context) -> None:
    async def read() -> list[Any]:
        return [chunk async for chunk in context.chunks]

    try:
        asyncio.run(asyncio.wait_for(read(), LIMIT))
    except RunDroppedError:
        return
    raise AssertionError("it was not dropped")


# -- what it is for --------------------------------------------------------------------------------


class Content:
    """Something to find again in memory."""


@when("{count:d} messages flood the bridge while {where}")
def step_messages_flood_the_bridge_while(context: Context, count: int, where: str) -> None:
    context.held = held = Held(context)
    bridge = context.bridge
    alive: weakref.WeakSet[Content] = weakref.WeakSet()
    context.alive = alive
    if where == "a run holds their subscription":
        source: Subject[Any] = Subject()
        Subscriber().subscribe(source.pipe(bridge.invoke(held.switch, max_concurrency=1)))
        send: Callable[[Any], object] = source.on_next
        send(held)
    elif where == "a run holds the loop":
        bridge.create_future_task(held.block, None)
        send = lambda content: bridge.create_future_task(held.node, content)  # noqa: E731
    else:
        thread = "thread" if "thread" in where else None
        bridge.create_future_task(held.hold, None, thread_id=thread)
        send = lambda content: bridge.create_future_task(held.node, content, thread_id=thread)  # noqa: E731
    held.holding.wait()
    for number in range(count):
        content = Content()
        alive.add(content)
        try:
            send(content)
        except BacklogFullError:
            assert bridge._engine.admission.overflow == "error"
        if number % 100 == 0 and where != "a run holds the loop":
            settle(context)
    if where != "a run holds the loop":
        settle(context)


@then("at most {bound:d} of the messages are still in memory, and as many entries in its queues")
def step_at_most_bound_of_the_messages_are_still_in_memory(context: Context, bound: int) -> None:
    gc.collect()
    assert len(context.alive) <= bound, len(context.alive)
    engine = context.bridge._engine
    scheduler = engine._dispatcher._scheduler
    behind = itertools.chain.from_iterable(scheduler._behind.values())
    entries = (*engine.inbox._queue, *scheduler._ready, *behind)
    assert len(entries) <= bound, len(entries)
    assert len(context.bridge.registry) <= bound


@when("4 threads send 500 messages each, on 5 threads of the bridge")
def step_threads_send_500_messages_each_on_threads_of_the_bridge(context: Context) -> None:
    context.ran, context.told = Log(), Log()
    bridge = context.bridge

    async def node(content: Any) -> Any:
        context.ran.add(content)
        await asyncio.sleep(0)
        return content

    def tell(content: Any, run: Any) -> None:
        context.told.add((content, run.result(0).status))

    def send(thread: int) -> None:
        for number in range(500):
            content = (thread, number)
            try:
                run = bridge.create_future_task(
                    node, content, thread_id=str(number % 5), errors="emit"
                )
            except BacklogFullError:
                context.told.add((content, "refused"))
            else:
                run.add_done_callback(partial(tell, content))

    with switching_often():
        in_threads(4, send)


@then("each message was run or rejected, and the numbers of the bridge add up")
def step_each_message_was_run_or_rejected(context: Context) -> None:
    told = context.told.wait_for(2000)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert len({content for content, _ in told}) == len(context.told) == 2000
    counts = Counter(status for _, status in told)
    ran = Counter(context.ran)
    assert set(ran.values()) == {1}
    assert sorted(ran) == sorted(content for content, status in told if status == "ok")
    statistics = context.bridge.statistics()
    assert_adds_up(statistics)
    assert statistics.in_flight == 0
    assert statistics.succeeded == counts["ok"], (statistics, counts)
    assert statistics.dropped == statistics.failed == counts["rejected"], (statistics, counts)
    assert statistics.submitted == 2000 - counts["refused"], (statistics, counts)
    assert statistics.peak_in_flight <= 2 + 3, statistics
    check_nothing_is_left(context)


def check_nothing_is_left(context: Context) -> None:
    settle(context)
    engine = context.bridge._engine
    admission, scheduler = engine.admission, engine._dispatcher._scheduler
    assert not admission._holders and not admission._gates
    if admission._drop_order is not None:
        assert admission._drop_order.first(Stub(Message(0, None))) is None
    assert not (scheduler._ready or scheduler._behind or scheduler._lanes), scheduler._lanes


@when('4 threads send 300 messages each into one {operator} with errors="emit"')
def step_threads_send_300_messages_each_into_one_operator(context: Context, operator: str) -> None:
    async def node(content: Any) -> Any:
        await asyncio.sleep(0)
        return content

    context.subscriber = subscriber = Subscriber()
    source: Subject[Any] = Subject()
    stage = operator_of(context, operator, node, errors="emit", thread_id=lambda c: str(c[1] % 5))
    subscriber.subscribe(source.pipe(stage))

    def send(thread: int) -> None:
        for number in range(300):
            source.on_next((thread, number))

    with switching_often():
        in_threads(4, send)
    source.on_completed()


@then("each message has one result, and the numbers of the bridge add up")
def step_each_message_has_one_result(context: Context) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"] and subscriber.overlaps == 0, subscriber.ends
    sources = [result.source.content for result in subscriber.items]
    assert len(sources) == len(set(sources)) == 1200, len(sources)
    assert context.bridge.registry.wait_idle(LIMIT)
    statistics = context.bridge.statistics()
    counts = Counter(result.status for result in subscriber.items)
    assert_adds_up(statistics)
    assert statistics.submitted == 1200 and statistics.succeeded == counts["ok"], statistics
    assert statistics.dropped == counts["rejected"] > 0, statistics
    check_nothing_is_left(context)


@when("a run sends 5 messages to its bridge, and one to its own thread, without waiting for them")
def step_a_run_sends_messages_to_its_bridge(context: Context) -> None:
    async def answer(content: Any) -> Any:
        return content

    async def node(_: object) -> list[Any]:
        send = context.bridge.create_future_task
        runs = [send(answer, number, errors="emit") for number in range(5)]
        return [*runs, send(answer, 5, thread_id="own", errors="emit")]

    run = context.bridge.create_future_task(node, None, thread_id="own")
    context.futures = run.result(LIMIT).content


@then("no call was refused because it would wait")
def step_no_call_was_refused_because_it_would_wait(context: Context) -> None:
    statuses = [run.result(LIMIT).status for run in context.futures]
    assert sorted(statuses) == ["ok"] + ["rejected"] * 5, statuses


@when('60 messages go through two stages of that bridge, the first with errors="emit"')
def step_messages_go_through_two_stages_the_first_with_errors(context: Context) -> None:
    async def node(content: Any) -> Any:
        await asyncio.sleep(0)
        return content

    context.first = Log()
    context.subscriber = Subscriber()
    stream = reactivex.from_iterable(range(60)).pipe(
        context.bridge.invoke(node, errors="emit"),
        ops.do_action(context.first.add),
        ops.filter(lambda result: result.status == "ok"),
        ops.map(lambda result: result.content),
        context.bridge.invoke(node),
    )
    start(lambda: context.subscriber.subscribe(stream))()


@then("each result of the first stage went through the second")
def step_each_result_of_the_first_stage_went_through_the_second(context: Context) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    first = [result.content for result in context.first if result.status == "ok"]
    assert len(context.first) == 60
    assert sorted(result.content for result in subscriber.items) == sorted(first)


# -- at its edges ----------------------------------------------------------------------------------


@when("a run holds the slot, and a message arrives whose done-callback {does}, and another")
def step_a_run_holds_the_slot_and_a_message_arrives_whose_done_callback(
    context: Context, does: str
) -> None:
    context.held = held = Held(context)
    held.begin()
    bridge = context.bridge

    def call_back(_: object) -> None:
        if does == "raises":
            raise LookupError("from a done-callback")
        if does == "sends a message":
            context.last = bridge.create_future_task(held.node, "third")
        else:
            bridge.close(0, cancel_timeout=0)

    bridge.create_future_task(held.node, "first", errors="emit").add_done_callback(call_back)
    settle(context)
    try:
        context.last = bridge.create_future_task(held.node, "second", errors="emit")
    except BridgeClosedError:
        assert does == "closes the bridge"
        context.last = None
    if does == "sends a message":
        # It was sent before the second one got its room, so it did not take that.
        assert context.last.result is not None
    context.work.gate.open = held.gate.open


@then("the last message is run, and the numbers of the bridge add up")
def step_the_last_message_is_run(context: Context) -> None:
    if context.last is not None:
        assert context.last.result(LIMIT).status == "ok"
    assert context.bridge.registry.wait_idle(LIMIT)
    assert_adds_up(context.bridge.statistics())


@when("a run holds the slot, and a message arrives whose done-callback raises KeyboardInterrupt")
def step_a_run_holds_the_slot_and_a_done_callback_raises(context: Context) -> None:
    context.held = held = Held(context)
    held.begin()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    run = context.bridge.create_future_task(held.node, "first", errors="emit")
    run.add_done_callback(interrupt)
    context.futures = [run]
    settle(context)


@then("sending another one raises KeyboardInterrupt, and the numbers of the bridge add up")
def step_sending_another_one_raises_keyboardinterrupt(context: Context) -> None:
    try:
        context.bridge.create_future_task(context.held.node, "second")
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it was lost")
    assert context.futures[0].result(0).status == "rejected"
    context.held.gate.open()
    assert context.bridge.registry.wait_idle(LIMIT)
    statistics = context.bridge.statistics()
    assert_adds_up(statistics)
    assert statistics.dropped == 1, statistics
    check_nothing_is_left(context)


@then("cancelling message 1 does nothing, and message 2 can be cancelled and makes room")
def step_cancelling_message_1_does_nothing(context: Context) -> None:
    first, second = context.held.runs.values()
    assert not first.cancel()
    assert first.result(0).status == "rejected"
    assert second.cancel()
    settle(context)
    third = context.held.send(Message(3, None))
    context.held.gate.open()
    assert third.result(LIMIT).status == "ok"
    try:
        second.result(0)
    except CancelledError:
        pass
    else:
        raise AssertionError("it was dropped")
    statistics = context.bridge.statistics()
    assert (statistics.dropped, statistics.cancelled) == (1, 1), statistics


# -- a subscription whose source waits -------------------------------------------------------------


def one_holds_and_one_waits(context: Context) -> Any:
    context.held = held = Held(context)
    held.begin()
    held.send(Message(1, None))
    context.source, context.subscriber = Subject(), Subscriber()
    context.subscriber.subscribe(context.source.pipe(context.bridge.invoke(held.node)))
    return context.bridge._engine.admission


@when("a run holds the slot, the message 1 waits, and a source waits for room with its first one")
def step_a_run_holds_the_slot_and_a_source_waits_for_room(context: Context) -> None:
    admission = one_holds_and_one_waits(context)
    context.joins = [start(lambda: context.source.on_next("first"))]
    pause = threading.Event()
    while not admission._gates:  # bounded by the scenario's own deadline
        pause.wait(0.001)


@when(
    "a run holds the slot, the message 1 waits, and a subscription is disposed just before its "
    "source waits"
)
def step_a_run_holds_the_slot_and_a_subscription_is_disposed_just(context: Context) -> None:
    admission = one_holds_and_one_waits(context)
    acquire = admission.acquire

    def disposed_first(run: Any, *, may_block: bool) -> bool:
        context.subscriber.subscription.dispose()
        return bool(acquire(run, may_block=may_block))

    patch(context, admission, "acquire", disposed_first)
    context.joins = [start(lambda: context.source.on_next("first"))]


@then("the source's thread is free, and message 1 still waits")
def step_the_sources_thread_is_free_and_message_1_still_waits(context: Context) -> None:
    for join in context.joins:
        join()
    settle(context)
    run = context.held.runs[Message(1, None)]
    assert not run.done()
    assert len(context.bridge.registry) == 2, context.bridge.registry.snapshot()
    assert not context.bridge._engine.admission._gates
    context.held.gate.open()
    assert run.result(LIMIT).status == "ok"
    assert list(context.held.ran) == [Message(1, None)]


# -- what gives way at the worst moment ------------------------------------------------------------


@when("a run holds the slot, and in a cleanup a message of a stream gives way as it is handed over")
def step_in_a_cleanup_a_message_of_a_stream_gives_way(context: Context) -> None:
    context.held = held = Held(context)
    held.begin()
    engine, source = context.bridge._engine, Subject()
    hand_over = engine.hand_over

    def give_way_first(run: Any) -> None:
        engine.hand_over = hand_over
        held.send(Message(2, None))
        assert run.rejection is not None and run.done()
        hand_over(run)

    patch(context, engine, "hand_over", give_way_first)
    source.pipe(context.bridge.invoke(held.node)).subscribe()
    sweep = engine.registry.begin_sweep()
    source.on_next(Message(1, None))
    engine.registry.end_sweep(sweep)


@when("a run holds the slot, and 3 messages of an ordered stream give way while it is disposed of")
def step_3_messages_of_an_ordered_stream_give_way(context: Context) -> None:
    context.held = held = Held(context)
    held.begin()
    context.queued = Log()
    listening = context.bridge.add_hooks(Queued(context.queued))
    source: Any = Subject()
    ordered = context.bridge.invoke(held.node, max_concurrency=1, ordered=True)
    subscription = source.pipe(ordered).subscribe()
    for number in range(3):
        source.on_next(Message(number, None))
    listening.dispose()

    def send_three(_: object) -> None:
        for number in range(3, 6):
            held.send(Message(number, None))

    next(iter(context.queued)).add_done_callback(send_three)
    subscription.dispose()


class Queued(Hooks):
    def __init__(self, log: Log) -> None:
        self._log = log

    def on_queued(self, event: RunQueued) -> None:
        self._log.add(event.future)


@when("a run holds the slot, a pulled item fails in the first of two stages, and a message arrives")
def step_a_pulled_item_fails_in_the_first_of_two_stages(context: Context) -> None:
    def fail(_: object) -> str:
        raise ValueError("it names no thread")

    context.held = held = Held(context)
    held.begin()
    bridge, context.subscriber = context.bridge, Subscriber()
    first = bridge.invoke(held.node, thread_id=fail, errors="emit")
    second = bridge.invoke(held.node, errors="emit")
    context.subscriber.subscribe(bridge.from_iterable(iter([0])).pipe(first, second))
    pause = threading.Event()
    while len(bridge.registry) < 2:  # bounded by the scenario's own deadline
        pause.wait(0.001)
    context.late = held.send(Message(2, None))
    held.gate.open()


@then("the second stage emits the failure, and the message is rejected")
def step_the_second_stage_emits_the_failure(context: Context) -> None:
    items = context.subscriber.wait_for_end().items
    assert [item.status for item in items] == ["error"], items
    assert context.late.result(LIMIT).status == "rejected"


@then("nothing is left in flight")
def step_nothing_is_left_in_flight(context: Context) -> None:
    context.held.gate.open()
    assert context.bridge.registry.wait_idle(LIMIT), context.bridge.registry.snapshot()
    settle(context)
    assert not context.bridge._engine.admission._holders
