"""Steps for thread policies: enqueue, reject and interrupt."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter
from typing import Any

import reactivex as rx
from behave import then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from rxlanggraph.errors import RunInterruptedError, ThreadBusyError
from support.bridge.bridges import answer, arguments, listen, on_loop, send
from support.bridge.graphs import State, graph_of, one_node, outlasting
from support.bridge.policy_model import Thread
from support.bridge.streams import Subscriber, value_of
from support.concurrency.waiting import LIMIT, Gate, Log, in_threads, thread

STRATEGIES = ("enqueue", "reject", "interrupt")


def _statuses(context: Context) -> list[str]:
    return [future.result(LIMIT).status for future in context.futures]


def _to(thread_id: str, strategy: str = "enqueue", **options: Any) -> dict[str, Any]:
    chosen = {"multitask_strategy": strategy, "errors": "emit"}
    return {"thread_id": thread_id, **chosen, **options}


# -- RxPY alone --------------------------------------------------------------------------------


@when("2 messages go to {kind:Kind}, by switch_latest and run_coroutine_threadsafe")
def step_2_messages_go_by_switch_latest(context: Context, kind: str) -> None:
    graph, loop = graph_of(context.work, kind), context.lent.loop

    def run(message: Any) -> rx.Observable[Any]:
        return rx.from_future(asyncio.run_coroutine_threadsafe(graph.ainvoke(message), loop))

    context.subscriber, source = Subscriber(), rx.Subject[Any]()
    context.subscriber.subscribe(source.pipe(ops.map(run), ops.switch_latest()))
    source.on_next({"value": 0})
    context.work.began.wait_for(1)
    source.on_next({"value": 1})
    context.work.began.wait_for(2)
    context.cleaned_before_the_second = len(context.work.ended)
    context.work.release()
    source.on_completed()
    context.subscriber.wait_for_end()
    context.work.ended.wait_for(2)


@then("the second run began after the first had ended")
def step_the_second_run_began_after_the_first_had_ended(context: Context) -> None:
    assert context.cleaned_before_the_second == 1


# -- interrupt ---------------------------------------------------------------------------------


@when("{kind:Kind} runs on a thread, and a second message interrupts it")
def step_runs_on_a_thread_and_a_second_message_interrupts_it(context: Context, kind: str) -> None:
    send(context, kind, [0], **_to("t"))
    context.work.began.wait_for(1)
    send(context, kind, [1], **_to("t", "interrupt"))


@then("the first future says at once which message interrupted it")
def step_the_first_future_says_which_message_interrupted_it(context: Context) -> None:
    result, second = answer(context, 0), context.futures[1].message
    assert result.status == "interrupted", result
    assert isinstance(result.error, RunInterruptedError), result
    assert second.id in str(result.error), result.error
    assert result.source.content == {"value": 0}


@when("everything may end")
def step_everything_may_end(context: Context) -> None:
    context.work.release()


@then("the second message is answered, and the two runs never overlapped")
def step_the_second_message_is_answered_and_the_two_runs_never(context: Context) -> None:
    assert answer(context, 1).status == "ok"
    assert list(context.work.began) == list(context.work.ended) == [0, 1]
    assert context.work.peak == 1


@when("4 messages are on a thread, 1 of which runs, and another one interrupts them")
def step_4_messages_are_on_a_thread_1_of_which_runs_and_another(context: Context) -> None:
    send(context, "a waiting graph", range(4), **_to("t"))
    context.work.began.wait_for(1)
    send(context, "an async function", [4], **_to("t", "interrupt"))


@then("the 4 are interrupted, the counters say cancelled, and the last one is answered")
def step_the_4_are_interrupted(context: Context) -> None:
    assert _statuses(context) == ["interrupted"] * 4 + ["ok"]
    by = context.futures[4].message.id
    assert all(by in str(answer(context, number).error) for number in range(4))
    assert list(context.work.began) == [0, 4]
    assert context.bridge.registry.wait_idle(LIMIT)
    statistics = context.bridge.statistics()
    assert (statistics.succeeded, statistics.failed, statistics.cancelled) == (1, 0, 4)


@when(
    "a run has the slot, and 2 messages of another thread arrive, "
    'the second with multitask_strategy="interrupt"'
)
def step_2_messages_of_another_thread_arrive(context: Context) -> None:
    send(context, "a waiting graph", [0], **_to("other"))
    context.work.began.wait_for(1)
    send(context, "a waiting graph", [1], **_to("t"))
    send(context, "a waiting graph", [2], **_to("t", "interrupt"))
    assert answer(context, 1).status == "interrupted"


@then("the first of the 2 was interrupted before it began, and the second is answered")
def step_the_first_of_the_2_was_interrupted_before_it_began(context: Context) -> None:
    assert _statuses(context) == ["ok", "interrupted", "ok"]
    assert list(context.work.began) == [0, 2]


@when("{count:d} messages interrupt each other on one thread")
def step_messages_interrupt_each_other(context: Context, count: int) -> None:
    context.work.cleaning.open()
    send(context, "a graph that cleans up slowly", range(count), **_to("t", "interrupt"))
    while context.bridge._engine.is_due():  # or an earlier one might end by itself
        on_loop(context)


@then("1999 are interrupted, each by a later message, and the last one is answered")
def step_1999_are_interrupted_each_by_a_later_message(context: Context) -> None:
    assert Counter(_statuses(context)) == {"interrupted": 1999, "ok": 1}
    assert answer(context).status == "ok"
    ids = [future.message.id for future in context.futures]
    for number in range(1999):
        assert ids[number + 1] in str(answer(context, number).error)
    assert context.work.peak == 1


@when("a graph with a checkpointer is interrupted in its second node")
def step_a_graph_is_interrupted_in_its_second_node(context: Context) -> None:
    inside, seen = Gate(), Log()

    async def first(state: State) -> State:
        seen.add(state.get("count", 0))
        return {"count": state.get("count", 0) + 1}

    async def second(state: State) -> State:
        inside.open()
        await context.work.gate.wait_async()
        return {}

    builder = StateGraph(State).add_node("first", first).add_node("second", second)
    builder.add_edge(START, "first").add_edge("first", "second").add_edge("second", END)
    graph = builder.compile(InMemorySaver())
    task = context.bridge.create_future_task
    context.futures.append(task(graph, {"value": 0}, **_to("t")))
    inside.wait()
    context.futures.append(task(graph, {"value": 1}, **_to("t", "interrupt")))
    assert answer(context, 0).status == "interrupted"
    context.work.release()
    context.seen = seen


@then("the next run on the thread sees what the first node has saved")
def step_the_next_run_sees_what_the_first_node_has_saved(context: Context) -> None:
    assert answer(context).content == {"value": 1, "count": 2}
    assert list(context.seen) == [0, 1]


@when("a graph that fails when it is cancelled is interrupted, with retry=3")
def step_a_graph_that_fails_when_cancelled_is_interrupted(context: Context) -> None:
    tried = context.tried = Log()

    async def fail(content: State) -> State:
        tried.add(content["value"])
        try:
            await context.work.gate.wait_async()
        except asyncio.CancelledError:
            raise ValueError("a reason to try again") from None
        return content

    graph, task = one_node(fail), context.bridge.create_future_task
    context.futures.append(task(graph, {"value": 0}, retry=3, **_to("t")))
    tried.wait_for(1)
    context.futures.append(task(graph, {"value": 1}, **_to("t", "interrupt")))
    tried.wait_for(2)
    context.work.release()


@then("it was tried once, and its future says that it was interrupted")
def step_it_was_tried_once_and_interrupted(context: Context) -> None:
    assert _statuses(context) == ["interrupted", "ok"]
    assert list(context.tried) == [0, 1]


@when("a run that has timed out cleans up slowly, and a message interrupts its thread")
def step_a_run_that_has_timed_out_cleans_up_slowly_and_a_message(context: Context) -> None:
    work = context.work
    graph = graph_of(work, "a graph that cleans up slowly")

    def run(timeout: float) -> Any:
        options = _to("t", timeout=timeout)
        return context.bridge.create_future_task(graph, {"value": 0}, **options)

    context.futures.append(outlasting(work, context.bridge, run))
    send(context, "an async function", [1], **_to("t", "interrupt"))
    on_loop(context)
    assert list(work.began) == [0]
    work.release()


@then("the first future has timed out, and the second message begins after its cleanup")
def step_the_first_future_has_timed_out_and_the_second_message(context: Context) -> None:
    assert _statuses(context) == ["timed_out", "ok"]
    assert list(context.work.ended) == [0, 1]
    assert context.work.peak == 1


@when('a node sends a message to its own thread, with multitask_strategy="interrupt"')
def step_a_node_sends_a_message_to_its_own_thread_with_multitask(context: Context) -> None:
    work, task, sent = context.work, context.bridge.create_future_task, Log()

    async def send_and_wait(content: State) -> State:
        options = _to("t", "interrupt")
        sent.add(task(graph_of(work, "an async function"), content, **options))
        await work.gate.wait_async()
        return content

    context.futures.append(task(one_node(send_and_wait), {"value": 0}, **_to("t")))
    context.futures.extend(sent.wait_for(1))


@then("the node's run is interrupted, and the message is answered")
def step_the_nodes_run_is_interrupted_and_the_message_is_answered(context: Context) -> None:
    assert _statuses(context) == ["interrupted", "ok"]


@when(
    "a thread has a run and 2 messages that wait, a further one blocks, and the 2 are interrupted"
)
def step_a_further_one_blocks_and_the_2_are_interrupted(context: Context) -> None:
    send(context, "a waiting graph", [0], **_to("t"))
    context.work.began.wait_for(1)
    send(context, "a waiting graph", [1, 2], **_to("t"))
    blocked = thread(lambda: send(context, "a waiting graph", [3], **_to("t", "interrupt")))
    while not context.bridge._engine.admission._gates:
        on_loop(context)
    context.futures[1].cancel()
    blocked.result(LIMIT)
    context.work.release()


@then("what blocked goes on, and every message is answered or interrupted")
def step_every_message_is_answered_or_interrupted(context: Context) -> None:
    del context.futures[1]
    assert _statuses(context) == ["interrupted", "interrupted", "ok"]


# -- reject ------------------------------------------------------------------------------------


@when('a message with multitask_strategy="reject" arrives while a run of its thread {holds_it}')
def step_a_message_arrives_while_a_run_of_its_thread(context: Context, holds_it: str) -> None:
    kind = "a graph that cleans up slowly"
    if holds_it == "waits for a slot":
        send(context, kind, range(100, 132), errors="emit")
        context.work.began.wait_for(32)
        context.futures.clear()
    send(context, kind, [0], **_to("t"))
    if holds_it != "waits for a slot":
        context.work.began.wait_for(1)
    if holds_it.startswith("was cancelled"):
        context.futures[0].cancel()
    send(context, kind, [1], **_to("t", "reject"))


@then("it is rejected at once, with a ThreadBusyError that names the other message")
def step_it_is_rejected_at_once_with_a_threadbusyerror_that_names(context: Context) -> None:
    result = answer(context, 1)
    assert result.status == "rejected", result
    assert isinstance(result.error, ThreadBusyError), result
    assert context.futures[0].message.id in str(result.error), result.error
    assert 1 not in list(context.work.began)


@then('a later message with multitask_strategy="reject" is answered')
def step_a_later_message_is_answered(context: Context) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    send(context, "an async function", [2], **_to("t", "reject"))
    assert answer(context).status == "ok"


@when('a run is active on a thread, and messages with multitask_strategy="reject" go elsewhere')
def step_messages_go_elsewhere(context: Context) -> None:
    send(context, "a waiting graph", [0], **_to("t"))
    context.work.began.wait_for(1)
    context.futures.clear()
    task, graph = context.bridge.create_future_task, graph_of(context.work, "an async function")
    for thread_id in ("u", "v", None, None):
        context.futures.append(task(graph, {"value": 1}, **_to(thread_id, "reject")))


@then("none of them is rejected")
def step_none_of_them_is_rejected(context: Context) -> None:
    assert _statuses(context) == ["ok"] * 4


@when("a failed result passes through a thread that has a run, once under every policy")
def step_a_failed_result_passes_through_a_thread(context: Context) -> None:
    send(context, "a waiting graph", [0], **_to("t"))
    context.work.began.wait_for(1)
    failed = StreamMessage(None, "t", status="error", error=ValueError("before"))
    graph = graph_of(context.work, "an async function")
    context.ends = Log()
    context.futures[0].add_done_callback(lambda _: context.ends.add("run"))
    for strategy in STRATEGIES:
        options = {"multitask_strategy": strategy, "errors": "emit"}
        future = context.bridge.create_future_task(graph, failed, **options)
        future.add_done_callback(lambda _: context.ends.add("passed"))
        context.futures.append(future)
    on_loop(context)
    context.work.release()


@then("every one of them passes through after that run, which is answered")
def step_every_one_passes_through_after_that_run(context: Context) -> None:
    assert _statuses(context) == ["ok", "error", "error", "error"]
    assert context.ends.wait_for(4) == ["run", "passed", "passed", "passed"]


# -- enqueue -----------------------------------------------------------------------------------


@when("a thread has a run and 2 messages that wait, one more is sent to it, and one to another")
def step_a_thread_has_a_run_and_2_messages_that_wait_one_more_is(context: Context) -> None:
    send(context, "a waiting graph", range(4), **_to("t"))
    send(context, "an async function", [4], **_to("u"))


@then('the first is rejected with the words "{words}", and the other is not')
def step_the_first_is_rejected_with_words(context: Context, words: str) -> None:
    refused = answer(context, 3)
    assert refused.status == "rejected", refused
    assert words in str(refused.error), refused.error
    assert answer(context, 4).status == "ok"


@when("one that waits is cancelled, and one more is sent")
def step_one_that_waits_is_cancelled(context: Context) -> None:
    context.futures[1].cancel()
    send(context, "a waiting graph", [5], **_to("t"))


@then("the last one waits")
def step_the_last_one_waits(context: Context) -> None:
    on_loop(context)
    assert not context.futures[5].done()
    context.work.release()
    assert answer(context, 5).status == "ok"
    assert list(context.work.ended) == [4, 0, 2, 5]


@when(
    "a run has the slot, the first of 2 messages on another thread is cancelled, "
    "and one more is sent"
)
def step_the_first_of_2_messages_is_cancelled_and_one_more_is_sent(context: Context) -> None:
    kind = "a waiting graph"
    send(context, kind, [0], thread_id="other")
    context.work.began.wait_for(1)
    send(context, kind, [1, 2], **_to("t"))
    on_loop(context)
    assert context.futures[1].cancel()
    on_loop(context)
    send(context, kind, [3], **_to("t"))


@then("the 2 that were not cancelled are answered")
def step_the_2_that_were_not_cancelled_are_answered(context: Context) -> None:
    assert [answer(context, number).status for number in (2, 3)] == ["ok", "ok"]


# -- streams -----------------------------------------------------------------------------------


@when("3 messages of a thread go through {operator} with {options}, and the graph may end")
def step_3_messages_of_a_thread_go_through(context: Context, operator: str, options: str) -> None:
    graph = graph_of(context.work, "a waiting graph")
    apply = getattr(context.bridge, operator)(graph, thread_id="t", **arguments(options))
    context.subscriber, source = Subscriber(), rx.Subject[Any]()
    context.logged = listen(context, "rxlanggraph")  # errors="skip" logs
    context.subscriber.subscribe(source.pipe(apply))
    for value in range(3):
        source.on_next({"value": value})
        on_loop(context)
        if 'strategy="interrupt"' in options:
            context.work.began.wait_for(value + 1)
    context.work.release()
    source.on_completed()


@then("the stream consists of {what}, and completes")
def step_the_stream_consists_of(context: Context, what: str) -> None:
    subscriber = context.subscriber.wait_for_end()
    assert subscriber.ends == ["completed"], subscriber.ends
    emitted = [
        f"{value_of(item.source)} {item.status if item.sequence is None else 'chunk'}"
        for item in subscriber.items
    ]
    assert ", ".join(emitted) == what, emitted


@when('a run is active on a thread, and astream goes to it with multitask_strategy="reject"')
def step_a_run_is_active_on_a_thread_and_astream_goes_to_it_with(context: Context) -> None:
    send(context, "a waiting graph", [0], **_to("t"))
    context.work.began.wait_for(1)
    graph = graph_of(context.work, "a waiting graph")

    async def read() -> list[Any]:
        message = StreamMessage({"value": 1}, "t")
        chunks = context.bridge.astream(graph, message, multitask_strategy="reject")
        return [chunk async for chunk in chunks]

    context.reading = thread(lambda: asyncio.run(read()))


@then("iterating over it raises ThreadBusyError")
def step_iterating_over_it_raises_threadbusyerror(context: Context) -> None:
    assert isinstance(context.reading.exception(LIMIT), ThreadBusyError)


# -- the model ---------------------------------------------------------------------------------


class _RealThread:
    """A thread of a real bridge, with the steps of the model. On the bridge's loop."""

    def __init__(self, bridge: Any, thread_id: str) -> None:
        self._bridge = bridge
        self._thread_id = thread_id
        self._ends: dict[int, asyncio.Event] = {}
        self._running: list[int] = []
        self._futures: dict[int, Any] = {}

    async def _run(self, message: int) -> int:
        self._ends[message] = asyncio.Event()
        self._running.append(message)
        try:
            await self._ends[message].wait()
        finally:
            self._running.remove(message)
        return message

    def send(self, message: int, strategy: str) -> None:
        options = _to(self._thread_id, strategy)
        self._futures[message] = self._bridge.create_future_task(self._run, message, **options)

    def end(self) -> None:
        for message in self._running:
            self._ends[message].set()

    def cancel_last(self) -> None:
        unfinished = [future for future in self._futures.values() if not future.done()]
        if unfinished:
            unfinished[-1].cancel()

    def told(self) -> tuple[list[int], dict[int, str]]:
        done = {key: each for key, each in self._futures.items() if each.done()}
        return list(self._running), {
            key: "cancelled" if each.cancelled() else each.result().status
            for key, each in done.items()
        }

    def close(self) -> None:
        for future in self._futures.values():
            future.cancel()


STEPS = (*STRATEGIES, "end", "cancel_last")


@when(
    "{count:d} steps of sending, ending and cancelling are made on a thread, "
    "in each of {cases:d} sequences"
)
def step_steps_of_sending_ending_and_cancelling_are_made(
    context: Context, count: int, cases: int
) -> None:
    limit = context.bridge._engine._dispatcher._multitasking.limit
    sequences = list(itertools.product(STEPS, repeat=count))
    assert len(sequences) == cases

    async def differences(number: int, sequence: tuple[str, ...]) -> list[Any]:
        real, model = _RealThread(context.bridge, str(number)), Thread(limit)
        found = []
        for message, step in enumerate(sequence):
            for each in (real, model):
                if step in STRATEGIES:
                    each.send(message, step)  # type: ignore[arg-type]
                else:
                    getattr(each, step)()
            for _ in range(8):  # until all that follows has happened
                await asyncio.sleep(0)
            expected = [] if model.running is None else [model.running], model.outcomes
            if real.told() != expected:
                found.append((sequence[: message + 1], real.told(), expected))
        real.close()
        return found

    async def play() -> list[Any]:
        return [
            each
            for number, sequence in enumerate(sequences)
            for each in await differences(number, sequence)
        ]

    context.differences = context.lent.run(play())


@then("after each step the same had run, and the same had become of all, as in the model")
def step_after_each_step_the_same_had_run(context: Context) -> None:
    assert not context.differences, (len(context.differences), context.differences[:3])


# -- many --------------------------------------------------------------------------------------


@when("10000 messages wait on one thread, and then one on each of 99 others")
def step_10000_messages_wait_on_one_thread(context: Context) -> None:
    ends = context.ends = Log()
    task, held = context.bridge.create_future_task, graph_of(context.work, "a waiting graph")
    context.futures += [task(held, {"value": -1}, thread_id=f"held {n}") for n in range(2)]
    context.work.began.wait_for(2)  # both slots are taken: nothing begins before all have arrived
    graph = graph_of(context.work, "an async function")
    for number in range(10_099):
        crowded = number < 10_000
        future = task(graph, {"value": number}, thread_id="t" if crowded else f"t{number}")
        future.add_done_callback(lambda _, crowded=crowded: ends.add(crowded))
    context.work.release()


@then("the 99 are answered before 300 of the 10000")
def step_the_99_are_answered_before_300(context: Context) -> None:
    order = context.ends.wait_for(10_099)
    last = max(place for place, crowded in enumerate(order) if not crowded)
    assert last < 99 + 300, last


@when("{count:d} messages have run, each on a thread of its own, under every policy")
def step_messages_have_run_each_on_a_thread_of_its_own(context: Context, count: int) -> None:
    task, graph = context.bridge.create_future_task, graph_of(context.work, "an async function")
    for number in range(count):
        task(graph, {"value": number}, **_to(str(number), STRATEGIES[number % 3]))
    assert context.bridge.registry.wait_idle(LIMIT)


@then("the scheduler knows no thread any more")
def step_the_scheduler_knows_no_thread_any_more(context: Context) -> None:
    scheduler = context.bridge._engine._dispatcher._scheduler
    assert not scheduler._lanes
    assert not scheduler._behind
    assert context.bridge.statistics().succeeded == 100_000


@when(
    "8 threads send 100 messages each, under every policy, to 3 threads, "
    "at a switch interval of 1 us"
)
def step_8_threads_send_under_every_policy(context: Context) -> None:
    context.add_cleanup(sys.setswitchinterval, sys.getswitchinterval())
    sys.setswitchinterval(1e-6)
    active, context.overlaps = Counter[str](), Log()

    async def work(content: Any) -> Any:
        key = content["thread"]  # on the loop's thread alone
        active[key] += 1
        if active[key] > 1:
            context.overlaps.add(key)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
        finally:
            try:
                await asyncio.sleep(0)
            finally:  # also if it is cancelled here
                active[key] -= 1
        return content

    def send_100(number: int) -> list[Any]:
        return [
            context.bridge.create_future_task(
                work,
                {"thread": str(each % 3)},
                **_to(str(each % 3), STRATEGIES[(each + number) % 3]),
            )
            for each in range(100)
        ]

    context.futures = [future for sent in in_threads(8, send_100) for future in sent]


@then("every future resolves, no two runs of a thread overlapped, and nothing is left of them")
def step_every_future_resolves_no_two_runs_of_a_thread_overlapped(context: Context) -> None:
    assert set(_statuses(context)) <= {"ok", "rejected", "interrupted"}
    assert not list(context.overlaps)
    assert context.bridge.registry.wait_idle(LIMIT)
    assert not context.bridge._engine._dispatcher._scheduler._lanes
