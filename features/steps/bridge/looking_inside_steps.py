"""Steps for snapshots of runs, and for cancelling those that are chosen."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import tenacity
from behave import given, then, when
from behave.runner import Context
from langgraph.graph import END, START, StateGraph

from rxlanggraph import TimeLimits, errors
from rxlanggraph.bridge import run_info
from rxlanggraph.concurrency import interpreter
from rxlanggraph.concurrency.stacks import UNREADABLE, tasks_of
from rxlanggraph.registry import TaskInfo
from rxlanggraph.testing import VirtualBridge
from support.bridge.bridges import answer, arguments, on_loop, pass_time, send
from support.bridge.graphs import State, graph_of
from support.concurrency.patching import patch
from support.concurrency.waiting import LIMIT, Gate, in_threads, thread

# Those of a run, in the order in which it can have them.
_STATES = ("queued", "waiting_for_thread", "queued", "running", "finished")


def _snapshot(context: Context) -> tuple[TaskInfo, ...]:
    infos: tuple[TaskInfo, ...] = context.bridge.registry.snapshot()
    return infos


def _graph(*nodes: tuple[str, Any]) -> Any:
    """A graph that begins with all of these nodes."""
    builder = StateGraph(State)
    for name, node in nodes:
        builder.add_node(name, node)
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    return builder.compile()


def _called(graph: Any) -> Any:
    async def call(state: State) -> State:
        result: State = await graph.ainvoke(state)
        return result

    return call


def _graph_at_work(context: Context, what: str) -> Any:
    async def wait(state: State) -> None:
        await context.work.wait(state)  # type: ignore[arg-type]

    def block(state: State) -> None:
        context.work.block(state)  # type: ignore[arg-type]

    waiting = ("wait", wait)
    if what == "a function":
        return wait
    if what == "a graph of one sync node":
        return _graph(("block", block))
    if what == "a graph within a graph":
        return _graph(("outer", _graph(waiting)))
    if what == "a graph within a graph of no saver's threads, called by a node":
        return _graph(("call", _called(_graph(waiting))))
    if what == "a graph of two nodes at once":
        return _graph(waiting, ("block", block))
    return _graph(waiting)


# -- snapshots ---------------------------------------------------------------------------------


@when('1 message goes to a waiting graph on the thread "a", and 2 more behind it')
def step_1_message_goes_to_a_waiting_graph_and_2_more_behind_it(context: Context) -> None:
    send(context, "a waiting graph", range(3), thread_id="a")
    context.work.began.wait_for(1)


@when("a run that cleans up slowly is cancelled")
def step_a_run_that_cleans_up_slowly_is_cancelled(context: Context) -> None:
    context.futures.append(
        context.bridge.create_future_task(context.work.clean_up_slowly, {"value": 3})
    )
    context.work.began.wait_for(2)
    assert context.futures[-1].cancel()


@when("1 message without a thread goes to a waiting graph")
def step_1_message_without_a_thread_goes_to_a_waiting_graph(context: Context) -> None:
    send(context, "a waiting graph", [4])
    on_loop(context)


@when("a run that swallows its cancellation is cancelled, and its future is resolved")
def step_a_run_that_swallows_its_cancellation_is_cancelled(context: Context) -> None:
    context.futures.append(context.bridge.create_future_task(context.work.swallow, {"value": 0}))
    context.work.began.wait_for(1)
    context.futures[-1].cancel()
    on_loop(context)


@then("the snapshot tells the states")
def step_the_snapshot_tells_the_states(context: Context) -> None:
    context.infos = _snapshot(context)
    assert [info.state for info in context.infos] == context.text.split(), context.infos


@then("it tells the id of each message, in order")
def step_it_tells_the_id_of_each_message_in_order(context: Context) -> None:
    told = [info.message_id for info in context.infos]
    assert told == [future.message.id for future in context.futures]


@then("those that run have made 1 attempt, and the others none")
def step_those_that_run_have_made_1_attempt_and_the_others_none(context: Context) -> None:
    made = {info.state: info.attempt for info in context.infos}
    assert made == {"running": 1, "cancelling": 1, "waiting_for_thread": 0, "queued": 0}, made


@then("none has waited for longer than it is old, and those that wait have waited all their age")
def step_none_has_waited_for_longer_than_it_is_old(context: Context) -> None:
    for info in context.infos:
        assert 0 <= info.waiting <= info.age, info
        assert (info.waiting == info.age) == (info.attempt == 0), info


@when("{what} is at work")
def step_what_is_at_work(context: Context, what: str) -> None:
    graph, message = _graph_at_work(context, what), {"value": 0}
    context.work.gate = Gate()
    if what == "a stream of a graph with one node":
        context.reader = context.bridge.astream(graph, message)  # dropped, it would end the run
        context.futures.append(context.reader.run)
    else:
        context.futures.append(context.bridge.create_future_task(graph, message))
    context.work.began.wait_for(2 if "two nodes" in what else 1)


@when("{what} is at work until its time is over, with {options}")
def step_what_is_at_work_until_its_time_is_over(context: Context, what: str, options: str) -> None:
    graph, chosen = _graph_at_work(context, what), arguments(options)
    if what == "a stream of a graph with one node":
        context.reader = context.bridge.astream(graph, {"value": 0}, **chosen)
        context.futures.append(context.reader.run)
    else:
        chosen["errors"] = "emit"
        context.futures.append(context.bridge.create_future_task(graph, {"value": 0}, **chosen))
    at_once = 2 if "two nodes" in what else 1
    for attempt in range(1, 2 + chosen.get("retry", 0)):
        context.work.began.wait_for(attempt * at_once)
        pass_time(context.bridge._engine.host.loop, 30)


@when(
    "in virtual time a graph fails, and its run's time is over in the pause before the next attempt"
)
def step_in_virtual_time_a_graph_fails_and_its_time_is_over_in_the_pause(context: Context) -> None:
    async def fail(_: State) -> None:
        raise ValueError("not yet")

    retry = tenacity.AsyncRetrying(wait=tenacity.wait_fixed(9))
    limits = TimeLimits(attempt=2, run=5)
    with VirtualBridge() as bridge:
        run = bridge.create_future_task(
            _graph(("fail", fail)), {"value": 0}, retry=retry, timeout=limits, errors="emit"
        )
        context.futures = [run]
        bridge.run(asyncio.sleep(10))


@when("in virtual time 50 messages wait in a graph until their time is over")
def step_in_virtual_time_50_messages_wait_in_a_graph(context: Context) -> None:
    async def wait(_: State) -> None:
        await asyncio.sleep(100)

    graph = _graph(("wait", wait))
    _count_looks(context)
    with VirtualBridge(max_concurrency=50) as bridge:
        context.futures = [
            bridge.create_future_task(graph, {"value": 0}, timeout=9, errors="emit")
            for _ in range(50)
        ]
        bridge.run(asyncio.sleep(10))


@then("its error names the node {node}")
@then("their errors name the node {node}")
def step_its_error_names_the_node(context: Context, node: str) -> None:
    for future in context.futures:
        error = future.result(LIMIT).error
        assert isinstance(error, errors.RunTimeoutError), error
        assert error.node == (None if node == "None" else node.strip('"')), error.node


@then("the snapshot tells the node {node}")
def step_the_snapshot_tells_the_node(context: Context, node: str) -> None:
    (info,) = _snapshot(context)
    assert info.node == (None if node == "None" else node.strip('"')), info


@given("a Python whose threads cannot look into each other")
def step_a_python_whose_threads_cannot_look_into_each_other(context: Context) -> None:
    def can_look_into(loop: asyncio.AbstractEventLoop | None) -> bool:
        return loop is not None and asyncio._get_running_loop() is loop

    patch(context, interpreter, "can_look_into", can_look_into)
    context.frames_read = []

    def current_frames() -> dict[int, Any]:
        context.frames_read.append(threading.current_thread().name)
        return {}

    patch(context, sys, "_current_frames", current_frames)


@then("no frame of its thread is read for its stack, which names its task")
def step_no_frame_of_its_thread_is_read_for_its_stack(context: Context) -> None:
    (run,) = context.futures
    stack = context.bridge._engine.stack(run)
    assert stack == f"the task {run.task.get_name()!r} {UNREADABLE}", stack
    assert not context.frames_read, context.frames_read


@then('a snapshot that is taken on the loop tells the node "wait"')
def step_a_snapshot_that_is_taken_on_the_loop_tells_the_node(context: Context) -> None:
    async def look(_: object) -> Any:
        return [info.node for info in context.bridge.registry.snapshot()]

    nodes = context.bridge.create_future_task(look, None).result(LIMIT).content
    assert nodes == ["wait", None], nodes


@when("a graph fails 2 times, is retried, and is at work again")
def step_a_graph_fails_2_times_is_retried_and_is_at_work_again(context: Context) -> None:
    calls: list[None] = []

    async def fail_twice(state: State) -> None:
        calls.append(None)
        if len(calls) < 3:
            raise ValueError("not yet")
        await context.work.wait(state)  # type: ignore[arg-type]

    graph = _graph(("node", fail_twice))
    context.futures.append(context.bridge.create_future_task(graph, {"value": 0}, retry=3))
    context.work.began.wait_for(1)


@then("the snapshot tells attempt 3")
def step_the_snapshot_tells_attempt_3(context: Context) -> None:
    (info,) = _snapshot(context)
    assert info.attempt == 3, info


def _count_looks(context: Context) -> None:
    context.looks = []

    def look(loop: asyncio.AbstractEventLoop) -> Any:
        context.looks.append(loop)
        return tasks_of(loop)

    patch(context, run_info, "tasks_of", look)


@when("20 messages are answered by a graph, without a snapshot")
def step_20_messages_are_answered_by_a_graph_without_a_snapshot(context: Context) -> None:
    _count_looks(context)
    send(context, "a graph with an async node", range(20))
    for number in range(20):
        answer(context, number)


@when("5 messages wait in a graph, and a snapshot is taken")
def step_5_messages_wait_in_a_graph_and_a_snapshot_is_taken(context: Context) -> None:
    began = len(context.work.began)
    send(context, "a waiting graph", range(5))
    context.work.began.wait_for(began + 5)
    assert {info.node for info in _snapshot(context)} == {"node"}


@then("the tasks of the loop were looked through {times:d} times")
@then("the tasks of the loop were looked through {times:d} time")
def step_the_tasks_of_the_loop_were_looked_through(context: Context, times: int) -> None:
    assert len(context.looks) == times, context.looks


# -- cancelling --------------------------------------------------------------------------------


@when('{count:d} messages wait in a graph on the threads "{threads}"')
def step_messages_wait_in_a_graph_on_the_threads(
    context: Context, count: int, threads: str
) -> None:
    for number, thread_id in enumerate(threads.split(", ")):
        send(context, "a waiting graph", [number], thread_id=thread_id)
    assert len(context.futures) == count
    context.work.began.wait_for(len(set(threads.split(", "))))


@then('cancelling what is on the thread "a" cancels 2 runs')
def step_cancelling_what_is_on_the_thread_a_cancels_2_runs(context: Context) -> None:
    assert context.bridge.registry.cancel(lambda info: info.thread_id == "a") == 2
    assert [future.cancelled() for future in context.futures] == [True, False, True]


@then('the run on the thread "b" is answered')
def step_the_run_on_the_thread_b_is_answered(context: Context) -> None:
    context.work.release()
    assert answer(context, 1).status == "ok"
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.bridge.statistics().cancelled == 2


@when("2 graphs are at different nodes")
def step_2_graphs_are_at_different_nodes(context: Context) -> None:
    for what in ("a graph of one async node", "a graph of one sync node"):
        graph = _graph_at_work(context, what)
        context.futures.append(context.bridge.create_future_task(graph, {"value": what}))
    context.work.began.wait_for(2)


@then('cancelling those at the node "wait" cancels the first run alone')
def step_cancelling_those_at_the_node_wait_cancels_the_first_run(context: Context) -> None:
    assert context.bridge.registry.cancel(lambda info: info.node == "wait") == 1
    assert [future.cancelled() for future in context.futures] == [True, False]


@then("the choice may send messages, take snapshots in other threads, and cancel")
def step_the_choice_may_send_messages_take_snapshots_and_cancel(context: Context) -> None:
    registry = context.bridge.registry

    def choose(info: TaskInfo) -> bool:
        in_threads(1, lambda _: registry.snapshot())
        send(context, "an async function", [9])
        registry.cancel(lambda other: other.id == info.id)
        return info.id == 1

    assert registry.cancel(choose) == 1
    assert [future.cancelled() for future in context.futures[:2]] == [True, True]
    assert all(answer(context, number).status == "ok" for number in (2, 3))


def _fail_at_the_last(info: TaskInfo) -> bool:
    return bool(info.thread_id == "a" or 1 / 0)


async def _choose(info: TaskInfo) -> bool:
    return True


@then("cancelling by {what} raises {error}, and cancels nothing")
def step_cancelling_by_what_raises_and_cancels_nothing(
    context: Context, what: str, error: str
) -> None:
    choosing: dict[str, Any] = {
        "a function that fails at the last": _fail_at_the_last,
        "an async function": _choose,
        "a name": "a",
    }
    expected = getattr(errors, error, ZeroDivisionError)
    try:
        context.bridge.registry.cancel(choosing[what])
    except expected:
        pass
    else:
        raise AssertionError(f"{what} was accepted")
    assert not any(future.done() for future in context.futures)


# -- a crowd -----------------------------------------------------------------------------------


@when("4 threads send 200 messages each while 2 others take snapshots")
def step_4_threads_send_200_messages_each_while_2_others_take_snapshots(context: Context) -> None:
    bridge, graph = context.bridge, graph_of(context.work, "a graph with an async node")
    done = Gate()

    def look() -> list[tuple[TaskInfo, ...]]:
        seen = [bridge.registry.snapshot()]
        while not done.is_open:
            seen.append(bridge.registry.snapshot())
        return seen

    def feed(number: int) -> None:
        for value in range(200):
            thread_id = f"{number}-{value % 3}" if value % 2 else None
            bridge.create_future_task(graph, {"value": value}, thread_id=thread_id)

    looking = [thread(look) for _ in range(2)]
    in_threads(4, feed)
    assert bridge.registry.wait_idle(LIMIT)
    done.open()
    context.seen = [each.result(LIMIT) for each in looking]


@then("every snapshot was in order, and no run went back to an earlier state")
def step_every_snapshot_was_in_order_and_no_run_went_back(context: Context) -> None:
    for seen in context.seen:
        stages: dict[int, list[str]] = {}
        for infos in seen:
            ids = [info.id for info in infos]
            assert ids == sorted(set(ids)), ids
            for info in infos:
                assert 0 <= info.waiting <= info.age, info
                stages.setdefault(info.id, []).append(info.state)
        for states in stages.values():
            rest = iter(_STATES)
            changes = [state for i, state in enumerate(states) if states[i - 1 : i] != [state]]
            assert all(state in rest for state in changes), changes
