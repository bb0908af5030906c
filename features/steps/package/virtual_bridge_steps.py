"""Bridges in virtual time, driven by the schedulers of RxPY."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from reactivex import operators as ops
from reactivex.scheduler import HistoricalScheduler
from reactivex.testing import ReactiveTest, TestScheduler
from tenacity import AsyncRetrying, stop_after_attempt, wait_exponential

from rxlanggraph import StreamMessage, TimeLimits, operators
from rxlanggraph.agent import BaseAgent
from rxlanggraph.hooks import Hooks, LoopBlocked, NodeEnded, RunEnded, RunStarted
from rxlanggraph.testing import VirtualBridge
from support.bridge.bridges import arguments
from support.bridge.graphs import State, one_node
from support.bridge.streams import value_of
from support.concurrency.mcp_virtual import in_virtual_time
from support.concurrency.raising import error_of
from support.concurrency.waiting import LIMIT, Gate, thread

HOUR, DAY = 3600.0, 86_400.0


async def sleep(state: State) -> State:
    await asyncio.sleep(state["value"])
    return {"value": state["value"]}


def work(state: State) -> State:
    return {"value": state["value"]}


GRAPH, SYNC = one_node(sleep), one_node(work)


async def forever(_: Any) -> None:
    await asyncio.Event().wait()


@given("a bridge in virtual time with {options}")
def step_a_bridge_in_virtual_time_with_options(context: Context, options: str) -> None:
    scheduler, words = None, options
    if options.startswith("the historical scheduler of "):
        begin = datetime.fromisoformat(options.rpartition(" ")[2]).replace(tzinfo=UTC)
        scheduler, words = HistoricalScheduler(begin), ""
    context.bridge = VirtualBridge(scheduler, **arguments(words))
    context.began = context.bridge.time()
    kept = [context.bridge]
    context.kept = kept
    context.add_cleanup(lambda: [bridge.close(0) for bridge in kept])


# -- marble tests ----------------------------------------------------------------------------------


def through(bridge: Any, pipeline: str) -> Any:
    names = {
        "invoke": partial(bridge.invoke, errors="emit"),
        "switch_map": lambda graph: operators.switch_map(bridge, graph),
        "exhaust_map": lambda graph: operators.exhaust_map(bridge, graph),
        "debounce": ops.debounce,
        "sample": ops.sample,
        "delay": ops.delay,
        "graph": GRAPH,
        "sync": SYNC,
        "limits": TimeLimits,
    }
    made: Any = eval(f"[{pipeline}]", names)
    return rx.compose(*made)


def shown(result: StreamMessage) -> str:
    return str(value_of(result)) if result.status == "ok" else result.status


def recorded(messages: list[Any]) -> str:
    kinds = {"N": lambda each: each.value, "C": lambda _: "end", "E": lambda _: "error"}
    return " ".join(f"{kinds[each.value.kind](each.value)}@{each.time:g}" for each in messages)


@when('messages that take "{seconds}" arrive at 210, 220 and so on, through {pipeline}')
def step_messages_arrive_at_210_220_and_so_on_through(
    context: Context, seconds: str, pipeline: str
) -> None:
    bridge, scheduler = context.bridge, getattr(context.bridge, "scheduler", TestScheduler())
    messages = [
        ReactiveTest.on_next(210 + 10 * index, {"value": int(value)})
        for index, value in enumerate(seconds.split())
    ]
    source = scheduler.create_hot_observable(*messages, ReactiveTest.on_completed(300))
    observer = scheduler.start(
        lambda: source.pipe(through(bridge, pipeline), ops.map(shown)), disposed=1000
    )
    context.recorded = recorded(observer.messages)


@then("the test scheduler has recorded {messages}")
def step_the_test_scheduler_has_recorded_messages(context: Context, messages: str) -> None:
    assert context.recorded == messages, context.recorded


@when('"{marbles}" of RxPY\'s marbles, {span:d} s each, go through the bridge from 0 on')
def step_marbles_go_through_the_bridge(context: Context, marbles: str, span: int) -> None:
    scheduler = context.bridge.scheduler
    got: list[str] = []
    source = rx.hot(marbles, timespan=float(span), scheduler=scheduler)
    source.pipe(
        ops.map(lambda value: {"value": value}), context.bridge.invoke(GRAPH), ops.map(shown)
    ).subscribe(
        lambda value: got.append(f"{value}@{scheduler.clock:g}"),
        on_completed=lambda: got.append(f"end@{scheduler.clock:g}"),
    )
    scheduler.advance_to(100.0)
    context.got = " ".join(got)


@then('the subscriber has got "{items}"')
def step_the_subscriber_has_got_items(context: Context, items: str) -> None:
    assert context.got == items, context.got


# -- everything that has a time --------------------------------------------------------------------


def run_for(bridge: Any, seconds: float, **options: Any) -> Any:
    return bridge.create_future_task(GRAPH, {"value": seconds}, **options)


def deadline_behind(bridge: Any) -> Any:
    run_for(bridge, DAY, thread_id="t")
    return run_for(bridge, 1, thread_id="t", deadline=600).result()


def chunks_with(bridge: Any, **limits: float) -> Any:
    async def node(_: State) -> State:
        await asyncio.sleep(0 if "idle" in limits else DAY)
        return {"value": 1}

    async def after(_: State) -> State:
        await asyncio.sleep(DAY)
        return {"value": 2}

    builder = StateGraph(State).add_node("node", node).add_node("after", after)
    builder.add_edge(START, "node").add_edge("node", "after").add_edge("after", END)
    stream = bridge.stream(builder.compile(), timeout=TimeLimits(**limits))
    return bridge.run(rx.of({"value": 0}).pipe(stream))


def retries(bridge: Any) -> Any:
    failures = iter(range(4))

    async def fail(_: Any) -> int:
        for failure in failures:
            raise ConnectionError(failure)
        return 4

    policy = AsyncRetrying(wait=wait_exponential(multiplier=10), stop=stop_after_attempt(5))
    return bridge.create_future_task(fail, 0, retry=policy).result()


def langgraph_retries(bridge: Any) -> Any:
    failures = iter(range(2))

    async def fail(_: State) -> State:
        for failure in failures:
            raise ConnectionError(failure)
        return {"value": 2}

    policy = RetryPolicy(initial_interval=100, max_interval=DAY, jitter=False)
    builder = StateGraph(State).add_node("fail", fail, retry_policy=policy)
    graph = builder.add_edge(START, "fail").add_edge("fail", END).compile()
    return bridge.create_future_task(graph, {"value": 0}).result()


def agent_answer(bridge: Any, **options: float) -> Any:
    async def llm(_: Any) -> str:
        await asyncio.sleep(25)
        return "yes"

    agent = BaseAgent("clerk", llm=llm, **options)
    return bridge.create_future_task(agent, "well?").result()


def agent_output(bridge: Any) -> Any:
    agent = BaseAgent("clerk", llm=forever)

    async def get() -> Any:
        running = asyncio.ensure_future(agent.run("well?"))
        await asyncio.sleep(0)
        try:
            return await agent.output_queue.get(timeout=20)
        finally:
            running.cancel()
            await asyncio.wait([running])

    return bridge.run(get())


def child_in_thread(bridge: Any) -> Any:
    return bridge.create_future_task(lambda _: run_for(bridge, DAY).result(), 0).result()


def stream_in_node(bridge: Any) -> Any:
    async def node(_: Any) -> Any:
        source = rx.of(100, 50).pipe(
            ops.map(lambda seconds: {"value": seconds}), bridge.invoke(GRAPH)
        )
        return [value_of(result) async for result in source.pipe(operators.to_async_iterable())]

    return bridge.create_future_task(node, 0).result()


def stream_by_run(bridge: Any) -> Any:
    source = rx.timer(10).pipe(ops.map(lambda _: {"value": 15}), bridge.invoke(GRAPH))
    return bridge.run(source)


def coroutine_with_timeout(bridge: Any) -> Any:
    async def main() -> None:
        async with asyncio.timeout(77):
            await (await bridge.submit(GRAPH, {"value": DAY}))

    return bridge.run(main())


def astream(bridge: Any) -> Any:
    async def main() -> Any:
        return [item async for item in bridge.astream(GRAPH, {"value": 10})]

    return bridge.run(main())


def pulled(bridge: Any) -> Any:
    with VirtualBridge(bridge.scheduler, max_concurrency=1, max_pending=1) as narrow:
        items = narrow.from_iterable({"value": 10} for _ in range(5))
        return narrow.run(items.pipe(narrow.invoke(GRAPH)))


def stuck_thread(bridge: Any) -> Any:
    stuck = threading.Event()
    run = bridge.create_future_task(lambda _: stuck.wait(LIMIT), 0)
    try:
        return run.result()
    finally:
        stuck.set()
        run.result()


def on_running_loop(wait: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(bridge: Any) -> Any:
        async def main() -> Any:
            return wait(bridge)

        return asyncio.run(main())

    return call


async def stream_on_running_loop(bridge: Any) -> Any:
    return await rx.of({"value": 1}).pipe(bridge.invoke(GRAPH))


def coroutine_in_thread(bridge: Any) -> Any:
    return bridge.create_future_task(lambda _: bridge.run(asyncio.sleep(0)), 0).result()


def once_closed(bridge: Any) -> Any:
    bridge.close()
    return bridge.run(asyncio.sleep(0))


def time_limit(**limits: float) -> Callable[[Any], Any]:
    return lambda bridge: run_for(bridge, DAY, timeout=TimeLimits(**limits)).result()


def idle_in_a_minute(bridge: Any) -> Any:
    run_for(bridge, HOUR)
    return bridge.registry.wait_idle(60)


WAITS: dict[str, Callable[[Any], Any]] = {
    "a run of a day": lambda bridge: run_for(bridge, DAY).result(),
    "a timeout of an hour": lambda bridge: run_for(bridge, DAY, timeout=HOUR).result(),
    "a limit for all attempts": time_limit(run=100),
    "the first chunk": lambda bridge: chunks_with(bridge, first_chunk=50),
    "a pause between chunks": lambda bridge: chunks_with(bridge, idle=30),
    "a deadline behind a stuck run": deadline_behind,
    "four retries, each after twice that": retries,
    "LangGraph's own retries": langgraph_retries,
    "an answer of result() in a minute": lambda bridge: run_for(bridge, HOUR).result(60),
    "an idle registry in a minute": idle_in_a_minute,
    "an agent with a timeout": lambda bridge: agent_answer(bridge, timeout=10.0),
    "an answer of an agent": agent_answer,
    "an item of an agent's output": agent_output,
    "a child, in a worker thread": child_in_thread,
    "a stream, in a node": stream_in_node,
    "a stream, by run": stream_by_run,
    "a coroutine with a timeout": coroutine_with_timeout,
    "pulled messages": pulled,
    "chunks of astream": astream,
    "what nothing will bring about": lambda bridge: bridge.create_future_task(forever, 0).result(),
    "a coroutine that nothing wakes": lambda bridge: bridge.run(forever(0)),
    "a stream without an end": lambda bridge: bridge.run(rx.never()),
    "a worker thread that is stuck": stuck_thread,
    "a run, on a running loop": on_running_loop(lambda bridge: run_for(bridge, 1).result()),
    "a coroutine, on a running loop": on_running_loop(lambda bridge: bridge.run(asyncio.sleep(0))),
    "a stream, on a running loop": lambda bridge: asyncio.run(stream_on_running_loop(bridge)),
    "a stream, by RxPY's run": lambda bridge: rx.of(1).pipe(bridge.invoke(forever)).run(),
    "a coroutine, in a worker thread": coroutine_in_thread,
    "a coroutine, once it is closed": once_closed,
    "a scheduler that is none": lambda _: VirtualBridge(rx),  # type: ignore[arg-type]
}


@when("the code under test waits for {what}")
def step_the_code_under_test_waits_for_what(context: Context, what: str) -> None:
    found: list[Any] = []
    context.error = error_of(lambda: found.append(WAITS[what](context.bridge)))
    context.found = found


@then("{seconds:g} virtual seconds have passed, and it has {outcome}")
def step_virtual_seconds_have_passed(context: Context, seconds: float, outcome: str) -> None:
    passed = context.bridge.time() - context.began
    assert passed == seconds, passed
    error = context.error
    if outcome == "a result":
        assert error is None and context.found[0], (error, context.found)
    elif outcome == "False":
        assert error is None and context.found == [False], (error, context.found)
    elif outcome.endswith(" results"):
        expected = int(outcome.removesuffix(" results"))
        assert error is None and context.found == [expected], (error, context.found)
    else:
        assert type(error).__name__ == outcome, repr(error)


@then("its clock shows {date}")
def step_its_clock_shows_date(context: Context, date: str) -> None:
    assert context.bridge.scheduler.clock.date().isoformat() == date


@when("a run of {seconds:d} s is looked at after {first:d} s and at its end")
def step_a_run_is_looked_at(context: Context, seconds: int, first: int) -> None:
    run = run_for(context.bridge, seconds)
    context.bridge.scheduler.advance_by(first)
    (info,) = context.bridge.registry.snapshot()
    context.age, context.duration = info.age, run.result().duration


@then("its age was {age:d} s, and its duration {duration:d} s")
def step_its_age_and_its_duration(context: Context, age: int, duration: int) -> None:
    assert (context.age, context.duration) == (age, duration), (context.age, context.duration)


class Listening(Hooks):
    """Keeps the figures that it is told."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.took: list[float | None] = []
        self.blocked: list[str] = []

    def on_started(self, event: RunStarted) -> None:
        self.waited.append(event.waited)

    def on_node(self, event: NodeEnded) -> None:
        self.took.append(event.duration)

    def on_ended(self, event: RunEnded) -> None:
        self.took.append(event.duration)

    def on_blocked(self, event: LoopBlocked) -> None:
        self.blocked.append(event.where)


@when("hooks listen to runs of {first:d} s and of {second:d} s on one thread")
def step_hooks_listen_to_runs(context: Context, first: int, second: int) -> None:
    context.hooks = Listening()
    context.bridge.add_hooks(context.hooks)
    run_for(context.bridge, first, thread_id="t")
    run_for(context.bridge, second, thread_id="t").result()


@then(
    "they are told that the second waited {waited:d} s, and that its node and itself took "
    "{took:d} s"
)
def step_they_are_told_that_the_second_waited(context: Context, waited: int, took: int) -> None:
    assert context.hooks.waited == [0, waited], context.hooks.waited
    assert context.hooks.took == [waited, waited, took, took], context.hooks.took


@then("they are told of no blocked loop")
def step_they_are_told_of_no_blocked_loop(context: Context) -> None:
    assert context.hooks.blocked == [] and context.bridge.loop_lag is None, context.hooks.blocked


# -- when time passes ------------------------------------------------------------------------------


@when("runs of 1 to {count:d} s are sent, and time is advanced second by second")
def step_runs_are_sent_and_time_is_advanced(context: Context, count: int) -> None:
    runs = [run_for(context.bridge, seconds) for seconds in range(1, count + 1)]
    context.ended = [0]
    for _ in range(count):
        assert context.ended[-1] == sum(run.done() for run in runs)
        context.bridge.scheduler.advance_by(1)
        context.ended.append(sum(run.done() for run in runs))


@then("one has ended after each second, and none before")
def step_one_has_ended_after_each_second(context: Context) -> None:
    assert context.ended == list(range(len(context.ended))), context.ended


@when("a node is at work in a thread, while a node beside it sleeps for {seconds:d} s")
def step_a_node_is_at_work_in_a_thread(context: Context, seconds: int) -> None:
    asleep = Gate()

    def at_work(_: Any) -> tuple[float, float]:
        begin = context.bridge.time()
        asleep.wait()
        sum(range(100_000))  # long enough for a loop that does not wait
        return begin, context.bridge.time()

    async def beside(_: Any) -> None:
        asyncio.get_running_loop().call_soon(asleep.open)
        await asyncio.sleep(seconds)

    run = context.bridge.create_future_task(at_work, 0)
    context.bridge.create_future_task(beside, 0).result()
    context.times = run.result().content


@when(
    "a plain function is at work in a thread of a loop that jumps ahead, while a task sleeps for "
    "{seconds:d} s"
)
def step_a_plain_function_is_at_work_in_a_thread(context: Context, seconds: int) -> None:
    times: Future[tuple[float, float]] = Future()

    async def main() -> None:
        loop, slept = asyncio.get_running_loop(), Gate()

        def at_work() -> None:
            begin = loop.time()
            slept.wait()
            times.set_result((begin, loop.time()))

        async def beside() -> None:
            await asyncio.sleep(seconds)
            slept.open()

        await asyncio.gather(asyncio.to_thread(at_work), beside())

    error_of(lambda: in_virtual_time(main()))  # it may even jump to the end of its day
    context.times = times.result(LIMIT)


@then("the time was the same at the end of the thread's work as at its beginning")
def step_the_time_was_the_same(context: Context) -> None:
    begin, end = context.times
    assert begin == end, context.times


def random_things(seed: int, count: int) -> list[Any]:
    chosen = random.Random(seed)
    done: list[Any] = []
    with VirtualBridge(max_concurrency=3, max_pending=4, overflow="drop_oldest") as bridge:

        async def node(number: int) -> int:
            done.append(("begins", number, bridge.time()))
            await asyncio.sleep(chosen.choice([0, 0.1, 1, 5]))
            if chosen.random() < 0.2:
                raise ValueError(number)
            return number

        def record(result: Any) -> None:
            source = result.source
            done.append((result.status, source and source.content, bridge.time()))

        subject: rx.Subject[Any] = rx.Subject()
        limits: Any = {"errors": "emit", "timeout": 3, "deadline": 6}
        subject.pipe(bridge.invoke(node, **limits)).subscribe(record)
        for number in range(count):
            when = chosen.randrange(100) / 2
            message = StreamMessage(number, chosen.choice([None, "a", "b"]))
            bridge.scheduler.schedule_absolute(
                when, lambda *_, message=message: subject.on_next(message)
            )
        bridge.scheduler.advance_to(200.0)
    return done


@when("{times:d} bridges in virtual time do the same {count:d} random things each")
def step_bridges_do_the_same_random_things(context: Context, times: int, count: int) -> None:
    context.histories = [random_things(7, count) for _ in range(times)]


@then("all {times:d} have done them in the same order, at the same times")
def step_all_have_done_them_in_the_same_order(context: Context, times: int) -> None:
    first, *others = context.histories
    statuses = {each[0] for each in first}
    assert {"begins", "ok", "error", "timed_out", "rejected"} <= statuses, statuses
    assert len(others) == times - 1
    for other in others:
        differing = [pair for pair in zip(first, other, strict=True) if pair[0] != pair[1]]
        assert not differing, differing[:3]


@when("a run awaits one of another bridge on the same scheduler, which awaits one of the first")
def step_a_run_awaits_one_of_another_bridge(context: Context) -> None:
    first = context.bridge
    with VirtualBridge(first.scheduler) as other:

        async def middle(_: Any) -> Any:
            await asyncio.sleep(10)
            return (await run_for(first, 10)).content

        async def outer(_: Any) -> Any:
            await asyncio.sleep(10)
            return (await other.create_future_task(middle, 0)).content

        context.error, context.found = None, [first.create_future_task(outer, 0).result()]


@when("{count:d} messages that take an hour go through the bridge")
def step_messages_that_take_an_hour_go_through(context: Context, count: int) -> None:
    async def hour(content: int) -> int:
        await asyncio.sleep(HOUR)
        return content

    results = rx.from_iterable(range(count)).pipe(context.bridge.invoke(hour), ops.count())
    context.error, context.found = None, [context.bridge.run(results)]


# -- ends ------------------------------------------------------------------------------------------


@when("it is closed with runs that take 3 s, 100 s, and one that swallows its cancellation")
def step_it_is_closed_with_runs(context: Context) -> None:
    async def stubborn(_: Any) -> None:
        try:
            await asyncio.sleep(DAY)
        except asyncio.CancelledError:
            await asyncio.sleep(DAY)

    run_for(context.bridge, 3)
    run_for(context.bridge, 100)
    context.bridge.create_future_task(stubborn, 0)
    context.report = context.bridge.close()


@then('the report says "{words}", {seconds:d} virtual seconds later')
def step_the_report_says(context: Context, words: str, seconds: int) -> None:
    assert str(context.report).startswith(words), context.report
    assert context.bridge.time() == seconds, context.bridge.time()


@when("a run of it has ended, and both are dropped")
def step_a_run_of_it_has_ended_and_both_are_dropped(context: Context) -> None:
    run_for(context.bridge, DAY).result()
    context.gone = weakref.ref(context.bridge)
    context.bridge = None
    context.kept.clear()
    gc.collect()


@then("nothing of the bridge is left")
def step_nothing_of_the_bridge_is_left(context: Context) -> None:
    assert context.gone() is None, gc.get_referrers(context.gone())


@when("{count:d} threads wait for a run of an hour, as does the test")
def step_threads_wait_for_a_run_of_an_hour(context: Context, count: int) -> None:
    run = run_for(context.bridge, HOUR)
    waiting = [thread(run.result) for _ in range(count)]
    context.results = [run.result(), *(each.result(LIMIT) for each in waiting)]


@then("all of them have its result")
def step_all_of_them_have_its_result(context: Context) -> None:
    assert [value_of(result) for result in context.results] == [HOUR] * len(context.results)
