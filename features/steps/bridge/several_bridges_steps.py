from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from support.bridge.bridges import LentLoop, arguments
from support.bridge.graphs import Work, one_node, outlasting
from support.concurrency.loops import factory_of
from support.concurrency.raising import check_error, error_of
from support.concurrency.waiting import LIMIT, Gate


def thread_name(_: object = None) -> str:
    return threading.current_thread().name


async def name_in_thread() -> str:
    return await asyncio.to_thread(thread_name)


NAMING_GRAPH = one_node(lambda _: {"value": thread_name()})


def lend(context: Context, kind: str) -> None:
    context.lent = LentLoop(factory_of(context, kind))
    context.add_cleanup(context.lent.end)
    context.bridges = []


def adopt(context: Context, **options: Any) -> RxPyLangGraphBridge:
    """A bridge on the lent loop, which has adopted it: that begins with the first message."""
    bridge = RxPyLangGraphBridge(context.lent.loop, **options)
    context.add_cleanup(bridge.close, 0)
    context.bridges.append(bridge)
    assert executed_in(bridge).startswith(f"{bridge.name}-worker")
    return bridge


def executed_in(bridge: RxPyLangGraphBridge) -> str:
    result = bridge.create_future_task(NAMING_GRAPH, {"value": None}).result(LIMIT)
    name: str = result.content["value"]
    return name


# -- whose threads ---------------------------------------------------------------------------------


@given("a running loop of {kind:w}")
def step_a_running_loop_of_kind(context: Context, kind: str) -> None:
    lend(context, kind)


@given('a running loop of {kind:w}, whose default executor is named "{name}"')
def step_a_running_loop_of_kind_whose_default_executor_is_named(
    context: Context, kind: str, name: str
) -> None:
    lend(context, kind)
    set_default_executor(context, name)


def set_default_executor(context: Context, name: str) -> None:
    executor = ThreadPoolExecutor(2, thread_name_prefix=name)
    context.lent.loop.call_soon_threadsafe(context.lent.loop.set_default_executor, executor)


@given("{count:d} bridges that adopt it")
def step_count_bridges_that_adopt_it(context: Context, count: int) -> None:
    for _ in range(count):
        adopt(context)


@given("{count:d} bridges that adopt it, with {options}")
def step_count_bridges_that_adopt_it_with_options(
    context: Context, count: int, options: str
) -> None:
    for _ in range(count):
        adopt(context, **arguments(options))


@when("each bridge runs a graph with a sync node")
def step_each_bridge_runs_a_graph_with_a_sync_node(context: Context) -> None:
    context.names = [executed_in(bridge) for bridge in context.bridges]


@then("each node was executed in a worker thread of its own bridge")
def step_each_node_was_executed_in_a_worker_thread_of_its_own(context: Context) -> None:
    expected = [f"{bridge.name}-worker" for bridge in context.bridges]
    assert context.names == expected, context.names


@when(
    "{count:d} messages on one thread_id go through the first to a blocking sync node, "
    "each with a timeout"
)
def step_count_messages_on_one_thread_id_go_through_the_first_to_a(
    context: Context, count: int
) -> None:
    context.work = work = Work()
    context.add_cleanup(work.release)
    graph, first = one_node(work.block), context.bridges[0]

    def send(timeout: float, value: int = 0) -> Future[Any]:
        return first.create_future_task(
            graph, {"value": value}, thread_id="t", timeout=timeout, errors="emit"
        )

    # The first is over time while its node is on, and the others behind it.
    first_run = outlasting(work, first, send)
    context.futures = [first_run, *(send(0.02, value) for value in range(1, count))]


@then("no two of the {count:d} nodes are ever on at once")
def step_no_two_of_the_count_nodes_are_ever_on_at_once(context: Context, count: int) -> None:
    # The first node is still on: its slot and its thread_id are not to be had.
    context.lent.run(asyncio.sleep(0))
    assert list(context.work.began) == [0], list(context.work.began)
    context.work.gate.open()
    assert context.bridges[0].registry.wait_idle(LIMIT)
    assert context.work.peak == 1, context.work.peak


@given("an outer bridge on a loop of its own")
def step_an_outer_bridge_on_a_loop_of_its_own(context: Context) -> None:
    context.bridge = RxPyLangGraphBridge()
    context.add_cleanup(context.bridge.close, 0)


@given("an outer bridge on a running loop of {kind:w}")
def step_an_outer_bridge_on_a_running_loop_of_kind(context: Context, kind: str) -> None:
    lend(context, kind)
    context.bridge = adopt(context)


@when("a run of it opens a second bridge on the running loop, uses it, and closes it")
def step_a_run_of_it_opens_a_second_bridge_on_the_running_loop(context: Context) -> None:
    context.outer, context.inner = [], []

    async def run(_: object) -> None:
        context.outer.append(await name_in_thread())
        async with RxPyLangGraphBridge(asyncio.get_running_loop(), name="inner") as inner:
            for target in (NAMING_GRAPH, thread_name):
                future = inner.create_future_task(target, {"value": None})
                content = (await asyncio.wrap_future(future)).content
                context.inner.append(content["value"] if isinstance(content, dict) else content)
                context.outer.append(await name_in_thread())
        context.outer.append(await name_in_thread())

    context.bridge.create_future_task(run, None).result(LIMIT)


@then(
    "sync code of the outer run was executed in the outer bridge's threads before, during and after"
)
def step_outer_in_outer_threads(context: Context) -> None:
    assert context.outer == [f"{context.bridge.name}-worker"] * 4, context.outer


@then("sync code of the inner run was executed in the inner bridge's threads")
def step_inner_in_inner_threads(context: Context) -> None:
    assert context.inner == ["inner-worker"] * 2, context.inner


@when("a run leaves a task behind that calls asyncio.to_thread after its end")
def step_a_run_leaves_a_task_behind_that_calls_asyncio_to_thread(context: Context) -> None:
    ended, name = asyncio.Event(), Future[str]()

    async def after_its_end() -> None:
        await ended.wait()
        name.set_result(await name_in_thread())

    async def run(_: object) -> None:
        context.left_behind = asyncio.create_task(after_its_end())

    context.bridges[0].create_future_task(run, None).result(LIMIT)
    assert context.bridges[0].registry.wait_idle(LIMIT)
    context.lent.loop.call_soon_threadsafe(ended.set)
    context.name = name.result(LIMIT)


@then("that call was executed in a thread of the host's executor")
def step_that_call_was_executed_in_a_thread_of_the_hosts_executor(context: Context) -> None:
    assert context.name.startswith("host"), context.name


# -- what the host has -----------------------------------------------------------------------------


@when("{count:d} bridges adopt it and close, in each of the {orders:d} orders")
def step_count_bridges_adopt_it_and_close_in_each_of_the_orders(
    context: Context, count: int, orders: int
) -> None:
    every = list(itertools.permutations(range(count)))
    assert len(every) == orders
    context.names = [context.lent.run(name_in_thread())]
    for order in every:
        bridges = [adopt(context) for _ in range(count)]
        context.names.append(context.lent.run(name_in_thread()))
        for number in order:
            bridges[number].close()
            context.names.append(context.lent.run(name_in_thread()))
            for bridge in bridges:
                if bridge.registry.state == "open":
                    assert executed_in(bridge) == f"{bridge.name}-worker"


@then('the host\'s asyncio.to_thread was always executed in a thread named "{name}"')
def step_the_hosts_asyncio_to_thread_was_always_executed_in_a(context: Context, name: str) -> None:
    assert all(each.startswith(name) for each in context.names), context.names


@when("{count:d} bridges adopt it and close, the first one first")
def step_close_first_first(context: Context, count: int) -> None:
    context.as_it_was = set(vars(context.lent.loop))
    for bridge in [adopt(context) for _ in range(count)]:
        bridge.close()


class ExecutorUser:
    """Takes the loop's default executor over, and puts back what was there before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before: Any = None
        self._executor = ThreadPoolExecutor(1)

    async def open(self) -> None:
        self._before = self._loop._default_executor  # type: ignore[attr-defined]
        self._loop.set_default_executor(self._executor)

    async def close(self) -> None:
        self._loop.set_default_executor(self._before or ThreadPoolExecutor(1))
        self._executor.shutdown()


@when("{count:d} users of set_default_executor adopt it and close, the first one first")
def step_count_users_of_set_default_executor_adopt_it_and_close(
    context: Context, count: int
) -> None:
    context.as_it_was = set(vars(context.lent.loop))
    users = [ExecutorUser(context.lent.loop) for _ in range(count)]
    for user in users:
        context.lent.run(user.open())
    for user in users:
        context.lent.run(user.close())


@then("the host's asyncio.to_thread works, and the loop is as it was")
def step_the_hosts_asyncio_to_thread_works_and_the_loop_is_as_it(context: Context) -> None:
    try:
        context.lent.run(name_in_thread())
    except RuntimeError as error:
        raise AssertionError("the host cannot use its executor any more") from error
    assert set(vars(context.lent.loop)) == context.as_it_was, vars(context.lent.loop)


@when('the host sets a default executor named "{name}"')
def step_host_sets_executor(context: Context, name: str) -> None:
    set_default_executor(context, name)


@then('the host\'s asyncio.to_thread is executed in a thread named "{name}"')
def step_executed_in_named(context: Context, name: str) -> None:
    assert context.lent.run(name_in_thread()).startswith(name)


@then("sync code of the bridge is executed in a thread of the bridge")
def step_sync_code_of_the_bridge_is_executed_in_a_thread_of_the(context: Context) -> None:
    bridge = context.bridges[-1]
    assert executed_in(bridge) == f"{bridge.name}-worker"


@when("the bridges close")
def step_the_bridges_close(context: Context) -> None:
    for bridge in context.bridges:
        bridge.close()


@when("another bridge adopts the loop")
def step_another_bridge_adopts_the_loop(context: Context) -> None:
    adopt(context)


@when("the host wraps the loop's run_in_executor")
def step_the_host_wraps_the_loops_run_in_executor(context: Context) -> None:
    loop, context.wrapped = context.lent.loop, []
    inner: Callable[..., Any] = loop.run_in_executor

    def wrapper(executor: Any, fn: Callable[..., Any], *args: Any) -> Any:
        context.wrapped.append(fn)
        return inner(executor, fn, *args)

    loop.run_in_executor = wrapper


@then("the host's asyncio.to_thread goes through that wrapper")
def step_goes_through_wrapper(context: Context) -> None:
    context.wrapped.clear()
    context.lent.run(name_in_thread())
    assert len(context.wrapped) == 1, context.wrapped


class BareLoop(asyncio.AbstractEventLoop):
    """As an extension type may be: its instances have no place for an attribute."""

    __slots__ = ()

    def is_running(self) -> bool:
        return True

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError(name)
        return super().__getattribute__(name)


@when("a bridge is to adopt a loop that has no attributes of its own")
def step_a_bridge_is_to_adopt_a_loop_that_has_no_attributes_of_its(context: Context) -> None:
    context.error = error_of(lambda: RxPyLangGraphBridge(BareLoop()))


# -- a loop of the bridge's own --------------------------------------------------------------------


@when("a blocking call that belongs to no run goes to the default executor of that loop")
def step_a_blocking_call_that_belongs_to_no_run_goes_to_the(context: Context) -> None:
    async def running_loop(_: object) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = context.bridge.create_future_task(running_loop, None).result(LIMIT).content
    context.begun, context.gate = Gate(), Gate()
    context.add_cleanup(context.gate.open)

    def block() -> None:
        context.begun.open()
        context.gate.wait()

    loop.call_soon_threadsafe(loop.run_in_executor, None, block)
    context.begun.wait()


@then("the report is empty, though the call is still on")
def step_report_empty_call_on(context: Context) -> None:
    assert str(context.report) == "0 cancelled, 0 completed, 0 failed, 0 stuck"
    assert not context.gate.is_open


@when(
    "ten messages go to a graph whose AsyncSqliteSaver was opened on another loop, which {uses} it"
)
def step_ten_messages_go_to_a_graph_whose_asyncsqlitesaver_was(context: Context, uses: str) -> None:
    async def other_loop() -> Any:
        async with AsyncSqliteSaver.from_conn_string(":memory:") as saver:
            graph = one_node(_add, checkpointer=saver)
            if uses == "uses":
                own = [graph.ainvoke({"value": 0}, on_thread(number)) for number in range(10)]
                await asyncio.gather(*own)  # so their lock is that of this loop
                await asyncio.to_thread(_fail_ten, context, graph)
        return graph

    graph = asyncio.run(other_loop())
    if uses == "has just closed":  # its thread has not noticed
        graph.checkpointer.conn._thread.is_alive = lambda: True
    if uses != "uses":
        _fail_ten(context, graph)


async def _add(state: Any) -> dict[str, int]:
    return {"value": state["value"] + 1}


def on_thread(number: int) -> Any:
    return {"configurable": {"thread_id": f"own {number}"}}


def _fail_ten(context: Context, graph: Any) -> None:
    messages = [StreamMessage({"value": 0}, thread_id=str(number)) for number in range(10)]
    futures = [context.bridge.create_future_task(graph, message) for message in messages]
    context.errors = [future.exception(LIMIT) for future in futures]


@then("each of them has failed with InvalidArgumentError, which names the saver and the remedy")
def step_each_of_them_has_failed_with_invalidargumenterror_which_names(context: Context) -> None:
    for error in context.errors:
        check_error(error, "InvalidArgumentError", "the AsyncSqliteSaver of")
        check_error(
            error, "InvalidArgumentError", "RxPyLangGraphBridge(asyncio.get_running_loop())"
        )
        assert isinstance(error.__cause__, RuntimeError | ValueError), error.__cause__
