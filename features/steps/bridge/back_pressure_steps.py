from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import reactivex
from behave import given, then, when
from behave.runner import Context
from reactivex import operators as ops
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler
from reactivex.subject import Subject

from rxlanggraph import StreamMessage, TimeLimits
from rxlanggraph.bridge import admission
from rxlanggraph.bridge.admission import AdmissionLimiter, Reservation
from rxlanggraph.concurrency.clock import closed_gate
from rxlanggraph.errors import BlockingCallError, LoopUnavailableError
from support.bridge.bridges import arguments
from support.bridge.fan_outs import NodesOn, counted_fan_out
from support.bridge.raising_places import echo
from support.bridge.streams import Subscriber
from support.concurrency.patching import patch
from support.concurrency.tasks import start, switching_never, switching_often
from support.concurrency.waiting import LIMIT, Gate, Log


class Watch:
    """The most that a registry ever had at the begin of a run."""

    def __init__(self, context: Context) -> None:
        self._registry = context.bridge.registry
        self.peak = 0

    async def node(self, content: Any) -> Any:
        self.peak = max(self.peak, len(self._registry))
        await asyncio.sleep(0)
        return content


def through(context: Context, count: int, *operators: Any, thread_id: str | None = None) -> None:
    """Send messages through a stage, ``operators``, and a second stage of the same bridge."""
    context.watch = watch = Watch(context)
    context.subscriber = Subscriber()
    messages = [StreamMessage(number, thread_id) for number in range(count)]
    stage = context.bridge.invoke(watch.node)
    stream = reactivex.from_iterable(messages).pipe(stage, *operators, stage)
    context.joins = [start(lambda: context.subscriber.subscribe(stream))]


@when("{count:d} messages go through two stages of that bridge")
def step_messages_go_through_two_stages(context: Context, count: int) -> None:
    through(context, count, ops.map(lambda result: result.content))


@when("{count:d} messages of one thread go through two stages of that bridge")
def step_messages_of_one_thread_go_through_two_stages(context: Context, count: int) -> None:
    through(
        context,
        count,
        ops.map(lambda result: StreamMessage(result.content, "thread")),
        thread_id="thread",
    )


@when("{count:d} messages go through a stage, a flat_map to {each:d} each, and a second stage")
def step_count_messages_go_through_a_stage_a_flat_map_to_each_each(
    context: Context, count: int, each: int
) -> None:
    through(context, count, ops.flat_map(lambda _: reactivex.from_iterable(range(each))))


@when("{count:d} messages go through a stage, a step of the loop, and a second stage")
def step_count_messages_go_through_a_stage_a_step_of_the_loop_and(
    context: Context, count: int
) -> None:
    scheduler = AsyncIOThreadSafeScheduler(context.lent.loop)
    through(context, count, ops.map(lambda result: result.content), ops.observe_on(scheduler))


@when(
    "{count:d} failed results go through a stage, which runs nothing, and their sources through a "
    "second one"
)
def step_count_failed_results_go_through_a_stage_which_runs(context: Context, count: int) -> None:
    context.watch = watch = Watch(context)
    context.subscriber = Subscriber()
    failed = [
        StreamMessage(None, source=StreamMessage(number), status="error", error=LookupError())
        for number in range(count)
    ]
    stage = context.bridge.invoke(watch.node, errors="emit")
    stream = reactivex.from_iterable(failed).pipe(stage, ops.map(lambda each: each.source), stage)
    context.joins = [start(lambda: context.subscriber.subscribe(stream))]


@then("all {count:d} come out, and never more than {bound:d} were in flight")
def step_all_come_out_and_never_more_were_in_flight(
    context: Context, count: int, bound: int
) -> None:
    subscriber = context.subscriber.wait_for_end()
    for join in context.joins:
        join()
    assert subscriber.ends == ["completed"], subscriber.ends
    assert len(subscriber.items) == count, len(subscriber.items)
    assert context.watch.peak <= bound, context.watch.peak


class Turnstile:
    """A node that lets one run after another end."""

    def __init__(self, context: Context) -> None:
        self.began, self.sent = Log(), Log()
        self._gates: list[asyncio.Event] = []
        self._bridge = context.bridge
        context.work.began = self.began

    async def node(self, content: Any) -> Any:
        gate = asyncio.Event()
        self._gates.append(gate)
        self.began.add(content)
        await gate.wait()
        return content

    def let_go(self, count: int) -> None:
        """Have ``count`` runs end, one after another."""
        for _ in range(count):
            begun = len(self.began)
            loop = self._bridge._engine.host.loop
            loop.call_soon_threadsafe(self._gates[begun - 1].set)
            self.began.wait_for(begun + 1)

    def wait_until_blocked(self) -> int:
        """Return how many were sent when the source waits for room."""
        admission = self._bridge._engine.admission
        pause = threading.Event()
        for _ in range(int(LIMIT / 0.001)):
            if admission._gates:
                return len(self.sent)
            pause.wait(0.001)  # there is no notice when a thread begins to wait
        raise AssertionError("the source does not wait")


@when("a source sends {count:d} messages that wait, and blocks")
def step_a_source_sends_messages_that_wait_and_blocks(context: Context, count: int) -> None:
    context.turnstile = turnstile = Turnstile(context)

    def send() -> None:
        try:
            for number in range(count):
                run = context.bridge.create_future_task(turnstile.node, number)
                context.futures.append(run)
                turnstile.sent.add(number)
                turnstile.began.wait_for(1)  # so that it is the first alone that does not wait
        except RuntimeError:  # closed, at the end of the scenario
            return

    context.add_cleanup(start(send))
    context.add_cleanup(context.bridge.close, 0)
    context.sent = turnstile.wait_until_blocked()


@when("{count:d} of the runs end")
@when("{count:d} of the runs ends")
def step_count_of_the_runs_ends(context: Context, count: int) -> None:
    context.turnstile.let_go(count)


@then("the source is still blocked")
def step_the_source_is_still_blocked(context: Context) -> None:
    assert context.turnstile.wait_until_blocked() == context.sent


@then("the source has sent {count:d} more, and blocks again")
def step_the_source_has_sent_more_and_blocks_again(context: Context, count: int) -> None:
    context.turnstile.sent.wait_for(context.sent + count)
    assert context.turnstile.wait_until_blocked() == context.sent + count


@then("a message from the loop's own thread is refused with BlockingCallError")
def step_a_message_from_the_loops_own_thread_is_refused(context: Context) -> None:
    async def submit() -> BaseException | None:
        try:
            context.bridge.create_future_task(echo, 0)
        except BlockingCallError as error:
            return error
        return None

    loop = context.bridge._engine.host.loop
    error = asyncio.run_coroutine_threadsafe(submit(), loop).result(LIMIT)
    assert "submit from another thread" in str(error), error


@when("{threads:d} threads and the loop's own thread submit {count:d} messages each")
def step_threads_and_the_loops_own_thread_submit(
    context: Context, threads: int, count: int
) -> None:
    bridge = context.bridge
    context.answered, context.refused = Log(), Log()

    def submit() -> None:
        for number in range(count):
            run = bridge.create_future_task(echo, number)
            run.add_done_callback(context.answered.add)

    async def submit_on_the_loop() -> None:
        for number in range(count):
            try:
                run = bridge.create_future_task(echo, number)
            except BlockingCallError:
                context.refused.add(number)
            else:
                run.add_done_callback(context.answered.add)
            await asyncio.sleep(0)

    bridge.create_future_task(echo, 0).result(LIMIT)
    with switching_often():
        joins = [start(submit) for _ in range(threads)]
        loop = bridge._engine.host.loop
        asyncio.run_coroutine_threadsafe(submit_on_the_loop(), loop).result(LIMIT)
        for join in joins:
            join()
    context.submitted = (threads + 1) * count


@then("each one is answered or was refused with BlockingCallError, and only on the loop")
def step_each_one_is_answered_or_was_refused(context: Context) -> None:
    context.answered.wait_for(context.submitted - len(context.refused))
    assert len(context.refused) <= context.submitted // 5, len(context.refused)


@given("room for one run, which is taken and then closed")
def step_room_for_one_run_which_is_taken_and_then_closed(context: Context) -> None:
    context.admission = AdmissionLimiter(1, threading.RLock())
    assert context.admission.acquire(a_run(), may_block=False)
    assert not context.admission.acquire(a_run(), may_block=False)
    context.admission.close()


@given("room for one run, which is taken")
def step_room_for_one_run_which_is_taken(context: Context) -> None:
    context.admission, context.holder = AdmissionLimiter(1, threading.RLock()), a_run()
    assert context.admission.acquire(context.holder, may_block=False)


@when("a result leads to one more")
def step_a_result_leads_to_one_more(context: Context) -> None:
    context.admission.hold(a_run())


@then("there is no room for another")
def step_there_is_no_room_for_another(context: Context) -> None:
    assert not context.admission.acquire(a_run(), may_block=False)


@given("room for one run, which is taken by a source that emits nothing at the moment")
def step_room_for_one_run_which_is_taken_by_a_source(context: Context) -> None:
    context.admission = AdmissionLimiter(1, threading.RLock())
    context.holder = Reservation(None, context.admission)
    assert context.admission.acquire(context.holder, may_block=False)


@when("a thread that the source has started sends a message")
def step_a_thread_that_the_source_has_started_sends_a_message(context: Context) -> None:
    assert not context.admission.pass_on(context.holder, a_run())


@then("there is room once the source has ended, and not before")
def step_there_is_room_once_the_source_has_ended_and_not_before(context: Context) -> None:
    step_there_is_no_room_for_another(context)
    context.admission.release(context.holder)
    assert context.admission.acquire(a_run(), may_block=False)


@when("the next one is interrupted just when {happens}")
def interrupted_just_when(context: Context, happens: str) -> None:
    @contextlib.contextmanager
    def meanwhile(_: object) -> Iterator[None]:
        if happens == "it is given the room":
            context.admission.release(context.holder)
        else:
            context.admission.turn_away(LoopUnavailableError("the loop has paused"))
        yield
        raise KeyboardInterrupt

    patch(context, admission, "lock_released", meanwhile)
    try:
        context.admission.acquire(a_run(), may_block=True)
    except KeyboardInterrupt:
        context.admission.release(context.holder)
    else:
        raise AssertionError("it was not interrupted")


@then("there is room for one run again")
def room_for_one_again(context: Context) -> None:
    assert context.admission.acquire(a_run(), may_block=False)
    assert not context.admission.acquire(a_run(), may_block=False)
    assert not context.admission._turned_away, "an error is kept without need"


class Crowd:
    """Room that is taken, and a thread that waits for it."""

    def __init__(self, context: Context, count: int) -> None:
        self.limiter = AdmissionLimiter(count, threading.RLock())
        self.holders = [a_run() for _ in range(count)]
        for holder in self.holders:
            assert self.limiter.acquire(holder, may_block=False)
        self.awake = threading.Event()
        context.add_cleanup(start(self._submit))
        while not self.limiter._gates:  # bounded by the scenario's own deadline
            threading.Event().wait(0.001)  # there is no notice when a thread begins to wait

    def _submit(self) -> None:
        self.limiter.acquire(a_run(), may_block=True)
        self.awake.set()

    def free_half(self, free: Callable[[Any], bool]) -> bool:
        """Free half of the room; return whether the thread runs by then."""
        assert all(free(holder) for holder in self.holders[::2])
        return self.awake.is_set()


@given("{times:d} times room for {count:d} runs, which is taken, and a thread that waits for it")
def step_times_room_for_runs_which_is_taken_and_a_thread_that_waits(
    context: Context, times: int, count: int
) -> None:
    # Several: now and then a thread that is about to wait has not lost the GIL yet.
    context.crowds = [Crowd(context, count) for _ in range(times)]
    # The threads are to wake up if they get the GIL, however busy the machine is.
    patch(context, admission, "_WAKING", LIMIT)


@given("the threads will not wake up")
def step_the_threads_will_not_wake_up(context: Context) -> None:
    for crowd in context.crowds:
        crowd.limiter._gates[0][0]._awake = closed_gate()
    patch(context, admission, "_WAKING", 0.001)


@when("half of them start, and nothing else gives up the GIL")
def step_half_of_them_start_and_nothing_else_gives_up_the_gil(context: Context) -> None:
    with switching_never():
        context.awake = [crowd.free_half(crowd.limiter.start) for crowd in context.crowds]


@when("the room of half of them is freed, and nothing else gives up the GIL")
def step_the_room_of_half_of_them_is_freed_and_nothing_else_gives_up_the_gil(
    context: Context,
) -> None:
    with switching_never():
        context.awake = [crowd.free_half(crowd.limiter.release) for crowd in context.crowds]


@then("each thread has got room and runs")
def step_each_thread_has_got_room_and_runs(context: Context) -> None:
    assert all(context.awake), context.awake


@then("they have started")
def step_they_have_started(context: Context) -> None:
    assert len(context.awake) == len(context.crowds)


@then("two more are let through at once")
def two_more_are_let_through(context: Context) -> None:
    for _ in range(2):
        assert context.admission.acquire(a_run(), may_block=False)


def a_run() -> Any:
    """A backlog asks nothing of a run but who it is, and whether it ended or gave way."""
    run = Future[Any]()
    run.rejection = None  # type: ignore[attr-defined]
    return run


# -- several stages, several threads ---------------------------------------------------------------


@when(
    "{threads:d} threads send {each:d} messages each into three stages of that bridge with "
    "{options}"
)
def step_threads_send_messages_each_into_three_stages(
    context: Context, threads: int, each: int, options: str
) -> None:
    context.watch = watch = Watch(context)
    context.subscriber = subscriber = Subscriber()
    source: Subject[Any] = Subject()
    content = ops.map(lambda result: result.content)
    stages = [context.bridge.invoke(watch.node, **arguments(options)) for _ in range(3)]
    first, second, third = stages
    subscriber.subscribe(source.pipe(first, content, second, content, third))
    context.ahead = 0
    sent = Log()

    def send(thread: int) -> None:
        for number in range(each):
            source.on_next((thread, number))
            sent.add(number)
            context.ahead = max(context.ahead, len(sent) - len(subscriber.log))

    joins = [start(partial(send, thread)) for thread in range(threads)]

    def end() -> None:
        for join in joins:
            join()
        source.on_completed()

    context.joins = [start(end)]


@then("no thread was more than {bound:d} messages ahead of the end of the stages")
def step_no_thread_was_more_than_bound_messages_ahead(context: Context, bound: int) -> None:
    assert context.ahead <= bound, context.ahead


# -- bounds inside a run ---------------------------------------------------------------------------


@when(
    "{count:d} messages go to a graph that sends {times:d} times to {kind} nodes, with {options} "
    "in the config"
)
def step_messages_go_to_a_graph_that_sends(
    context: Context, count: int, times: int, kind: str, options: str
) -> None:
    context.on = on = NodesOn()

    graph = counted_fan_out(on, times, in_threads=kind == "sync")
    stage = context.bridge.invoke(graph, config=arguments(options))
    messages = reactivex.from_iterable([{"run": number} for number in range(count)])
    context.subscriber = Subscriber()
    context.joins = [start(lambda: context.subscriber.subscribe(messages.pipe(stage)))]
    context.times = times


@then("no run had more than {nodes:d} nodes on at once, and no more than {runs:d} runs were on")
def step_no_run_had_more_than_nodes_on_at_once(context: Context, nodes: int, runs: int) -> None:
    subscriber = context.subscriber.wait_for_end()
    for join in context.joins:
        join()
    assert subscriber.ends == ["completed"], subscriber.ends
    for result in subscriber.items:
        assert sorted(result.content["done"]) == list(range(context.times))
    assert context.on.most_of_one_run <= nodes, context.on.most_of_one_run
    assert context.on.most_runs <= runs, context.on.most_runs


@when("a thread sends {count:d} messages through a stage")
def step_a_thread_sends_messages_through_a_stage(context: Context, count: int) -> None:
    context.answers = through_a_stage(context, echo, count, ordered=True)


def through_a_stage(context: Context, function: Any, count: int, *, ordered: bool) -> list[Any]:
    stage = context.bridge.invoke(function, ordered=ordered, timeout=LIMIT)
    sent = reactivex.range(count).pipe(stage, ops.to_list(), ops.to_future(Future))
    return [result.content for result in sent.result(LIMIT)]


async def later_echo(content: Any) -> Any:
    await asyncio.sleep(0)  # otherwise the loop starts all runs while it takes them up
    return content


@when(
    "a thread sends {count:d} messages through a stage, and threads take turns only where they "
    "block"
)
def step_a_thread_sends_messages_and_threads_take_turns_only_where_they_block(
    context: Context, count: int
) -> None:
    patch(context, admission, "_WAKING", LIMIT)  # as above
    calls: list[str] = []
    context.calls = calls
    let_in_before = AdmissionLimiter._let_in
    hand_over_before = asyncio.run_coroutine_threadsafe

    def let_in(admission: AdmissionLimiter) -> None:
        calls.append("let in")
        let_in_before(admission)

    def hand_over(*arguments: Any) -> Future[Any]:
        calls.append("hand over")
        return hand_over_before(*arguments)

    patch(context, AdmissionLimiter, "_let_in", let_in)
    patch(context, asyncio, "run_coroutine_threadsafe", hand_over)
    with switching_never():
        answers = through_a_stage(context, later_echo, count, ordered=False)
    context.answers = sorted(answers)


@then(
    "the thread was woken for room at least {times:d} times, and has since woken the loop less "
    "than {other:d} times"
)
def step_the_thread_was_woken_for_room_and_has_since_woken_the_loop(
    context: Context, times: int, other: int
) -> None:
    calls = context.calls
    # Before it blocks for the first time, each message may wake the loop: as that is woken, it gets
    # the GIL, and may be idle again before the thread continues.
    since = calls[calls.index("let in") :]
    assert since.count("let in") >= times, since
    assert since.count("hand over") < other, since


@then("each of the {count:d} is answered")
def step_each_of_the_count_is_answered(context: Context, count: int) -> None:
    assert context.answers == list(range(count)), context.answers


def until_one_waits_for_room(context: Context) -> None:
    for _ in range(int(LIMIT / 0.001)):
        if context.bridge._engine.admission._gates:
            return
        threading.Event().wait(0.001)  # there is no notice when a thread begins to wait
    raise AssertionError("no thread waits for room")


@when("a source completes while its last message waits {how} for room, and then {what}")
def step_a_source_completes_while_its_last_message_waits(
    context: Context, how: str, what: str
) -> None:
    bridge, gate, over = context.bridge, Gate(), Gate()
    context.add_cleanup(gate.open)
    if how == "for a time":
        _have_waits_end(context, over)
    options: dict[str, Any] = {
        "without order": {},
        "in order": {"ordered": True},
        "for a time": {"timeout": TimeLimits(start=LIMIT), "errors": "emit"},
    }[how]

    async def hold(content: Any) -> None:
        await gate.wait_async()

    # One holds the slot, and one the room.
    held = [bridge.create_future_task(hold, number) for number in range(2)]
    source, context.subscriber = ManualSource(), Subscriber()
    context.subscriber.subscribe(reactivex.create(source).pipe(bridge.invoke(echo, **options)))
    join = start(lambda: source.observer.on_next(2))
    until_one_waits_for_room(context)
    source.observer.on_completed()
    assert not context.subscriber.ends, context.subscriber.ends
    if what == "there is room":
        gate.open()
    over.open()
    closed = start(lambda: bridge.close(LIMIT)) if what == "the bridge is closed" else None
    join()
    gate.open()
    for run in held:
        run.result(LIMIT)
    if closed is not None:
        closed()


def _have_waits_end(context: Context, over: Gate) -> None:
    """Have the time of what waits for room be over when ``over`` is open, and not before."""
    wait = admission._ThreadGate.wait

    def wait_until_over(gate: Any, timeout: float) -> bool:
        if timeout < 0:  # no limit
            return wait(gate, timeout)
        over.wait()
        return wait(gate, 0)

    patch(context, admission._ThreadGate, "wait", wait_until_over)


class ManualSource:
    """A source that passes on what its observer is told, in any thread."""

    observer: Any

    def __call__(self, observer: Any, scheduler: Any) -> None:
        self.observer = observer


@then("the stream has {count:d} results, and ends with {end}")
def step_the_stream_has_results_and_ends_with(context: Context, count: int, end: str) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert len(subscriber.items) == count, subscriber.items
    error = subscriber.error
    assert ("completed" if error is None else type(error).__name__) == end, (error, end)
