"""Steps for limits that are shared in a state."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from reactivex.testing import TestScheduler

from rxlanggraph import StreamMessage, errors
from rxlanggraph.limits import Limits, ModelLimit, shared
from rxlanggraph.limits.rules import ModelRules
from rxlanggraph.limits.shared import SharedWindow
from rxlanggraph.limits.windows import Window
from rxlanggraph.state import State, open_state
from rxlanggraph.testing import VirtualBridge
from support.bridge.bridges import LentLoop, make_bridge
from support.concurrency.patching import patch
from support.concurrency.tasks import forever
from support.concurrency.waiting import LIMIT, Gate
from support.limits.models import ProviderModel
from support.limits.nodes import NODES
from support.limits.process import run_process
from support.limits.provider import EPOCH, Provider
from support.servers.servers import fresh_url

SHORT = "10 20"


def two_bridges(context: Context, url: str | None) -> None:
    scheduler = TestScheduler()
    context.bridges = []
    for _ in range(2):
        bridge = VirtualBridge(scheduler, max_concurrency=16)
        context.add_cleanup(bridge.close)
        state = None
        if url is not None:
            manager = open_state(url)
            state = bridge.run(manager.__aenter__())
            context.add_cleanup(bridge.run, manager.__aexit__(None, None, None))

        def time() -> float:
            return EPOCH + float(context.bridges[0].time())

        limit = ModelLimit(**context.limit)
        # In the place of an argument: the state is on the loop of the bridge.
        bridge.limits = Limits(limit, state=state, time=time)
        bridge._engine._dispatcher._execution._models = ModelRules(bridge.limits, None)
        context.bridges.append(bridge)
    context.provider.now = context.bridges[0].time


@given("two bridges in virtual time that know this limit, and share it in a state")
def step_two_bridges_in_virtual_time_that_share_it(context: Context) -> None:
    two_bridges(context, fresh_url(context, "memory"))


@given("two bridges in virtual time that know this limit")
def step_two_bridges_in_virtual_time_that_know_this_limit(context: Context) -> None:
    two_bridges(context, None)


def model(context: Context, **options: Any) -> ProviderModel:
    return ProviderModel(url=context.provider.url, **options)


@when("each of them gets 150 messages")
def step_each_of_them_gets_150_messages(context: Context) -> None:
    graph = NODES["an async node"](model(context, seconds=2.0))
    messages = [StreamMessage({"text": SHORT}) for _ in range(150)]
    streams = [
        rx.from_iterable(messages).pipe(
            bridge.invoke(graph, errors="emit", retry=bridge.limits.retrying(9))
        )
        for bridge in context.bridges
    ]
    context.results = context.bridges[0].run(rx.merge(*streams).pipe(rx.operators.to_list()))


@then(
    "all 300 are answered, in at most 1/0.95 of the time that the provider needs, "
    "and less than 1% were refused"
)
def step_all_300_are_answered(context: Context) -> None:
    statuses = context.provider.statuses()
    assert [each.error for each in context.results if each.status != "ok"] == []
    assert statuses.count(200) == len(context.results) == 300
    assert statuses.count(429) / len(statuses) < 0.01, statuses.count(429)
    assert context.provider.times()[-1] <= (240 + 2) / 0.95, context.provider.times()[-1]


@when("one of them is refused for 40 s, and 1 s later the other gets a message")
def step_one_of_them_is_refused_for_40_s(context: Context) -> None:
    first, second = context.bridges
    context.provider.script["small"] = deque([(429, {"retry-after": "40"})])
    graph = NODES["an async node"](model(context))

    async def main() -> None:
        refused = await first.create_future_task(graph, {"text": SHORT}, errors="emit")
        assert refused.error.status_code == 429
        await asyncio.sleep(1)

    first.run(main())
    second.run(second.create_future_task(graph, {"text": SHORT}))


@then("the other has called after 40 s")
def step_the_other_has_called_after_40_s(context: Context) -> None:
    _, time = context.provider.times()
    assert 40 <= time <= 41.1, time


@when("one of them reserves 3000 tokens and uses 100, and the other needs 3000")
def step_one_of_them_reserves_3000_tokens(context: Context) -> None:
    first, second = context.bridges
    for bridge in context.bridges:
        bridge.limits.count_tokens = lambda _: 2500  # and 500 for the answer
    first.run(first.create_future_task(NODES["an async node"](model(context)), {"text": "50 100"}))
    slow = NODES["an async node"](model(context))
    second.run(second.create_future_task(slow, {"text": "50 3000"}))


@then("the other has called within 2 s")
def step_the_other_has_called_within_2_s(context: Context) -> None:
    _, time = context.provider.times()
    assert time <= 2, time


# -- real processes ------------------------------------------------------------------------------


@given("a provider in real time")
def step_a_provider_in_real_time(context: Context) -> None:
    # It refuses nothing.
    context.provider = Provider(monotonic)
    context.add_cleanup(context.provider.close)


@when("two processes that share a limit of 10 requests an hour in {backend} get 30 messages each")
def step_two_processes_that_share_a_limit(context: Context, backend: str) -> None:
    url = fresh_url(context, backend)
    processes = [run_process(context.provider.url, url, 10, 3600, 30) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout.readline() == "30 have arrived\n"
        context.provider.wait_for(10)
        told = [process.communicate("stop\n", timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    context.figures = [[int(each) for each in line.split()] for line in told]


@then("they have made 10 calls together, in coroutines and in threads, and the others wait")
def step_they_have_made_10_calls_together(context: Context) -> None:
    calls, waiting = zip(*context.figures, strict=True)
    assert sum(calls) == len(context.provider.log) == 10, context.figures
    assert 0 < sum(waiting) <= 50, context.figures


# -- writes whose end is unknown -----------------------------------------------------------------


class Windowed:
    """A shared window, the first write to which ends as a scenario says."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.window = SharedWindow(state, "k", lambda: Window(None, 1000, 60.0), 60.0, lambda: 0.0)
        self._replace = state.compare_and_set

    async def fail(self, how: str, change: Callable[[], None]) -> None:
        """Make a change whose write ends like this, and give it up."""
        reached = asyncio.Event()

        async def replace(*arguments: Any, **options: Any) -> bool:
            self.state.compare_and_set = self._replace  # type: ignore[method-assign]
            if "executed, and" in how or "was executed" in how:
                assert await self._replace(*arguments, **options)
            if "another one" in how:
                await SharedWindow.reserve_async(self.another(), 7)
            reached.set()
            if "cancelled" in how:
                await forever()
            raise errors.StateUnavailableError("away", in_doubt="certain" not in how)

        self.state.compare_and_set = replace  # type: ignore[method-assign]
        change()
        writing = asyncio.create_task(self.window.reserve_async(0))  # the first to write
        await reached.wait()
        if "cancelled" in how:
            writing.cancel()
        await asyncio.wait([writing])

    def another(self) -> SharedWindow:
        """That of another process."""
        return Windowed(self.state).window

    async def counted(self) -> int:
        used = (await self.state.get("rxlanggraph-limit/k")).value["used"]
        return sum(tokens for _, _, tokens in used)


@given("a shared window in which a call has reserved 500 tokens")
def step_a_shared_window_in_which_a_call_has_reserved_500(context: Context) -> None:
    context.runner = asyncio.Runner()
    context.add_cleanup(context.runner.close)
    manager = open_state(fresh_url(context, "memory"))
    context.windowed = Windowed(context.runner.run(manager.__aenter__()))
    context.add_cleanup(
        lambda: context.runner.run(manager.__aexit__(None, None, None)),
    )
    context.slot, delay = context.runner.run(context.windowed.window.reserve_async(500))
    assert delay == 0


@when("it gives back 400, but {how}")
def step_it_gives_back_400_but_how(context: Context, how: str) -> None:
    give_back = partial(context.windowed.window.change, context.slot, 0, -400)
    context.runner.run(context.windowed.fail(how, give_back))


@when("it is paused for 40 s, but {how}")
def step_it_is_paused_for_40_s_but_how(context: Context, how: str) -> None:
    context.runner.run(context.windowed.fail(how, partial(context.windowed.window.pause, 40.0)))


@when("another call reserves 50")
def step_another_call_reserves_50(context: Context) -> None:
    _, delay = context.runner.run(context.windowed.window.reserve_async(50))
    assert delay == 0


@then("{count:d} tokens count")
def step_count_tokens_count(context: Context, count: int) -> None:
    counted = context.runner.run(context.windowed.counted())
    assert counted == count, counted


@then("another call has to wait")
def step_another_call_has_to_wait(context: Context) -> None:
    _, delay = context.runner.run(context.windowed.window.reserve_async(50))
    assert delay > 0


# -- a state on another loop ---------------------------------------------------------------------


@given("an open bridge whose limits are in a state on another loop")
def step_an_open_bridge_whose_limits_are_in_a_state(context: Context) -> None:
    context.lent_state = LentLoop()
    context.add_cleanup(context.lent_state.end)
    context.manager = open_state(fresh_url(context, "memory"))
    context.state = context.lent_state.run(context.manager.__aenter__())

    def close() -> None:
        if not context.lent_state.loop.is_closed():
            context.lent_state.run(context.state.aclose())

    context.add_cleanup(close)
    context.key = "small"
    context.limits = Limits(
        ModelLimit(**context.limit), state=context.state, key=lambda _: context.key
    )
    make_bridge(context, limits=context.limits)


@when("that loop {ends}, and a message calls the model in {node}")
def step_that_loop_ends(context: Context, ends: str, node: str) -> None:
    if ends == "has ended":
        context.lent_state.end()
    else:
        context.lent_state.run(context.state.aclose())
    graph = NODES[node](model(context))
    run = context.bridge.create_future_task(graph, {"text": SHORT}, errors="emit")
    context.result = run.result(LIMIT)


@then("the message fails with {error}, uncalled")
def step_the_message_fails_with_error(context: Context, error: str) -> None:
    assert isinstance(context.result.error, getattr(errors, error)), context.result
    assert context.provider.log == []


@when("the state does not answer once, and a message calls the model in {node}")
def step_the_state_does_not_answer_once(context: Context, node: str) -> None:
    get, silent = context.state.get, [1]

    async def get_later(key: str) -> Any:
        if silent:
            silent.pop()
            raise errors.StateUnavailableError("away")
        return await get(key)

    patch(context, shared, "_LOOK_EVERY", 0.01)
    context.state.get = get_later
    run = context.bridge.create_future_task(NODES[node](model(context)), {"text": SHORT})
    context.result = run.result(LIMIT)
    assert not silent
    del context.state.get


@when("the state has not answered for a minute, and a message calls the model in {node}")
def step_the_state_has_not_answered_for_a_minute(context: Context, node: str) -> None:
    async def never(_: str) -> Any:
        raise errors.StateUnavailableError("away")

    patch(context, shared, "_PATIENCE", 0.0)
    context.state.get = never
    graph = NODES[node](model(context))
    run = context.bridge.create_future_task(graph, {"text": SHORT}, errors="emit")
    context.result = run.result(LIMIT)
    del context.state.get


@then("the message has failed with a StateUnavailableError")
def step_the_message_has_failed_with_a(context: Context) -> None:
    assert isinstance(context.result.error, errors.StateUnavailableError), context.result
    assert len(context.provider.log) == 1


@when("the state does not answer a call, which is cancelled, and an hour later not the next one")
def step_the_state_does_not_answer_a_call(context: Context) -> None:
    bridge = context.bridges[0]
    state = bridge.limits._state
    get, silent = state.get, [1, 1]

    async def get_later(key: str) -> Any:
        if silent and (len(silent) == 2 or bridge.time() >= 3600):
            silent.pop()
            raise errors.StateUnavailableError("away")
        return await get(key)

    graph = NODES["an async node"](model(context))

    async def main() -> None:
        state.get = get_later
        first = bridge.create_future_task(graph, {"text": SHORT})
        await asyncio.sleep(0.5)
        first.cancel()
        await asyncio.sleep(3600)
        context.result = await bridge.create_future_task(graph, {"text": SHORT}, errors="emit")
        assert not silent
        del state.get

    bridge.run(main())


@then("that one has its answer within 2 s, as the state answers again")
def step_that_one_has_its_answer_within_2_s(context: Context) -> None:
    assert context.result.error is None, context.result.error
    (time,) = context.provider.times()
    assert 3600 < time <= 3602.5, time


@when("40 messages are cancelled while they ask the state")
def step_40_messages_are_cancelled_while_they_ask_the_state(context: Context) -> None:
    held = Gate()
    get = context.state.get

    async def get_later(key: str) -> Any:
        await held.wait_async()
        return await get(key)

    context.state.get = get_later
    graphs = [NODES["an async node"](model(context)), NODES["a sync node"](model(context))]
    runs = [
        context.bridge.create_future_task(graphs[number % 2], {"text": SHORT}, errors="emit")
        for number in range(40)
    ]
    for run in runs:
        run.cancel()
    held.open()
    assert context.bridge.registry.wait_idle(LIMIT)


@then("none of them waits for the model any more")
def step_none_of_them_waits_for_the_model_any_more(context: Context) -> None:
    for figures in context.limits.statistics().values():
        assert (figures.in_flight, figures.waiting) == (0, 0), figures


@when("a message calls a model whose key is {kind}")
def step_a_message_calls_a_model_whose_key_is(context: Context, kind: str) -> None:
    context.key = {
        "no characters": "",
        "5000 letters": "x" * 5000,
        "a NUL": "\0",
        "lone surrogates": "\ud800",
    }[kind]
    graph = NODES["an async node"](model(context))
    context.result = context.bridge.create_future_task(graph, {"text": SHORT}).result(LIMIT)


@then("the model has answered")
def step_the_model_has_answered(context: Context) -> None:
    assert context.result.status == "ok" and len(context.provider.log) == 1
