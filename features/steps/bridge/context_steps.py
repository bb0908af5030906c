"""What a run sees of its surroundings: config, contextvars, executors, other runs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import gc
import tempfile
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

from behave import given, then, when
from behave.runner import Context
from langchain_core.runnables import RunnableConfig

from rxlanggraph.state import StateActor, open_state_threadsafe
from support.bridge.bridges import answer, make_bridge
from support.bridge.graphs import State, graph_of, one_node
from support.concurrency.waiting import LIMIT, in_threads


@when(
    'a message on the thread "{name}" goes to a graph that answers with its config, with a config'
)
def step_a_message_on_the_thread_name_goes_to_a_graph_that_answers(
    context: Context, name: str
) -> None:
    def node(_: State, config: RunnableConfig) -> State:
        return {"value": {**config["configurable"], "tags": config["tags"]}}

    context.run_config = {"tags": ["blue"], "configurable": {"user": "u"}}
    context.before = copy.deepcopy(context.run_config)
    future = context.bridge.create_future_task(
        one_node(node), {"value": 0}, thread_id=name, config=context.run_config
    )
    context.futures.append(future)


@then('the answer has the thread "{name}" and that config, which is unchanged itself')
def step_the_answer_has_the_thread_name_and_that_config_which_is(
    context: Context, name: str
) -> None:
    got = answer(context).content["value"]
    assert (got["thread_id"], got["user"], got["tags"]) == (name, "u", ["blue"]), got
    assert context.run_config == context.before


@when("a sync node waits for a run that it submits itself")
def step_a_sync_node_waits_for_a_run_that_it_submits_itself(context: Context) -> None:
    inner_graph = graph_of(context.work, "a graph with an async node")

    def node(state: State) -> State:
        inner = context.bridge.create_future_task(inner_graph, state)
        context.futures.insert(0, inner)
        return {"value": inner.result(LIMIT).content["value"] + 1}

    context.futures.append(context.bridge.create_future_task(one_node(node), {"value": 1}))


@then("both have results")
def step_both_have_results(context: Context) -> None:
    assert answer(context).content["value"] == 2
    assert answer(context, 0).content["value"] == 1


whose = contextvars.ContextVar("whose", default=-1)


@when("{count:d} threads submit sync nodes, each with a contextvar of its own")
def step_count_threads_submit_sync_nodes_each_with_a_contextvar_of(
    context: Context, count: int
) -> None:
    graph = one_node(lambda _: {"value": whose.get()})

    def submit(number: int) -> Any:
        whose.set(number)
        return context.bridge.create_future_task(graph, {"value": None})

    context.futures += in_threads(count, submit)


@then("each sync node has seen the contextvar of its submitter")
def step_each_sync_node_has_seen_the_contextvar_of_its_submitter(context: Context) -> None:
    seen = [future.result(LIMIT).content["value"] for future in context.futures]
    assert seen == list(range(len(seen))), seen


class Belonging:
    """The value that a caller has in a contextvar."""


owned: contextvars.ContextVar[Belonging] = contextvars.ContextVar("owned")


def in_worker(context: Context) -> threading.Thread:
    graph = one_node(lambda _: {"value": threading.current_thread()})
    thread = context.bridge.create_future_task(graph, {"value": None}).result(LIMIT)
    return cast("threading.Thread", thread.content["value"])


def in_loop(context: Context) -> threading.Thread:
    async def current_thread(_: object) -> threading.Thread:
        return threading.current_thread()

    thread = context.bridge.create_future_task(current_thread, None).result(LIMIT)
    return cast("threading.Thread", thread.content)


def in_pool(context: Context) -> threading.Thread:
    async def running_loop(_: object) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = context.bridge.create_future_task(running_loop, None).result(LIMIT).content
    thread: Future[threading.Thread] = Future()

    def use() -> None:
        loop.run_in_executor(None, lambda: thread.set_result(threading.current_thread()))

    loop.call_soon_threadsafe(use)
    return thread.result(LIMIT)


def in_actor(context: Context) -> threading.Thread:
    if "actor" not in context:
        context.actor = StateActor(threading.main_thread(), lambda *_: threading.current_thread())
        context.add_cleanup(context.actor.close)
    return cast("threading.Thread", context.actor.ask(None).result(LIMIT))


def in_sqlite(context: Context) -> threading.Thread:
    if "database" not in context:
        before = {*threading.enumerate()}
        stack = contextlib.ExitStack()
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = f"sqlite:///{folder}/state.sqlite"
        context.database = stack.enter_context(open_state_threadsafe(context.bridge, url))
        context.add_cleanup(stack.close)
        new = {*threading.enumerate()} - before
        (context.of_sqlite,) = (each for each in new if context.bridge.name not in each.name)
    context.database.sync.increment_counter("n")
    return cast("threading.Thread", context.of_sqlite)


USES = {
    "the loop's thread": in_loop,
    "a worker thread": in_worker,
    "a thread for work that is of no run": in_pool,
    "the thread of a StateActor": in_actor,
    "the thread of an SQLite file": in_sqlite,
}


@when("a caller with a contextvar is the first to use {thread}, and another caller the next")
def step_a_caller_with_a_contextvar_is_the_first_to_use_thread_and(
    context: Context, thread: str
) -> None:
    context.forgotten = threading.Event()

    def use() -> None:
        belonging = Belonging()
        weakref.finalize(belonging, context.forgotten.set)
        owned.set(belonging)
        context.thread = USES[thread](context)

    contextvars.copy_context().run(use)
    USES[thread](context)


@then("nothing refers to the value of that contextvar any more, and {thread} has not ended")
def step_nothing_refers_to_the_value_of_that_contextvar_any_more(
    context: Context, thread: str
) -> None:
    # The thread may still be on its way from the answer to where it lets go of what was asked; and
    # without the GIL it is the collector that frees what was let go of by another than its maker.
    until = time.monotonic() + LIMIT
    while not context.forgotten.wait(0.02):
        assert time.monotonic() < until, "it is kept"
        gc.collect()
    assert context.thread.is_alive()


@when("{threads:d} threads send {count:d} messages each to an async function")
def step_threads_threads_send_count_messages_each_to_an_async(
    context: Context, threads: int, count: int
) -> None:
    graph = graph_of(context.work, "an async function")

    def submit(_: int) -> list[Any]:
        task = context.bridge.create_future_task
        return [task(graph, {"value": value}) for value in range(count)]

    for futures in in_threads(threads, submit):
        context.futures += futures


@then("the statistics count {submitted:d} submitted, {succeeded:d} succeeded, none in flight")
def step_the_statistics_count_submitted_submitted_succeeded(
    context: Context, submitted: int, succeeded: int
) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    counted = context.bridge.statistics()
    assert (counted.submitted, counted.succeeded) == (submitted, succeeded), counted
    assert counted.in_flight == counted.failed == counted.cancelled == 0, counted
    assert 1 <= counted.peak_in_flight <= submitted, counted


@given('an open bridge on an adopted loop whose default executor is named "{name}"')
def step_an_open_bridge_on_an_adopted_loop_whose_default_executor(
    context: Context, name: str
) -> None:
    make_bridge(context, home="an adopted")
    executor = ThreadPoolExecutor(1, thread_name_prefix=name)
    context.lent.loop.call_soon_threadsafe(context.lent.loop.set_default_executor, executor)
    context.executor = executor


@then(
    "the run's sync code and the loop's other work are executed in threads of their own executors"
)
def step_the_runs_sync_code_and_the_loops_other_work_are_executed(context: Context) -> None:
    async def name_of_thread() -> str:
        thread = await asyncio.to_thread(threading.current_thread)
        return thread.name

    answer(context)
    assert context.lent.run(name_of_thread()).startswith("before")
    where = context.bridge.create_future_task(
        lambda _: threading.current_thread().name, None
    ).result(LIMIT)
    assert where.content == f"{context.bridge.name}-worker", where
    context.bridge.close()
    assert context.lent.loop._default_executor is context.executor
