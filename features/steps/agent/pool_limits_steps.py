from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from rxlanggraph.agent import AgentPool, BaseAgent
from rxlanggraph.agent import run as run_module
from rxlanggraph.errors import InvalidArgumentError, RunTimeoutError
from support.agent.agent_keeping import ask, open_place
from support.agent.agent_runs import graph_of_messages, outcome
from support.concurrency.patching import patch
from support.concurrency.raising import error_of, raised
from support.concurrency.tasks import run
from support.concurrency.waiting import Gate


class Telling(BaseAgent):
    """Answers with all requests that it remembers."""

    async def step(self) -> Any:
        asked = [str(m.content) for m in self.memory.get_messages() if m.role == "user"]
        answer = ", ".join(asked)
        self.add_message("assistant", answer)
        return answer


class Slow(InMemoryStore):
    """Hangs for one thread in what it is told to, until the gate opens; or does not listen."""

    def __init__(self, hangs_in: str, thread_id: str) -> None:
        super().__init__()
        self.gate = Gate()
        self.hanging: set[Any] = set()
        self._hangs_in = hangs_in
        self._thread_id = thread_id

    async def _wait(self, what: str, thread_id: str) -> None:
        hangs = thread_id == self._thread_id and what in self._hangs_in
        if not hangs:
            return
        self.hanging.add(asyncio.current_task())
        while not self.gate.is_open:
            try:
                await self.gate.wait_async()
            except asyncio.CancelledError:
                if "deaf" not in self._hangs_in:
                    raise

    async def aget(self, namespace: Any, key: str, **options: Any) -> Any:
        await self._wait("loading", key)
        return await super().aget(namespace, key, **options)

    async def aput(self, namespace: Any, key: str, value: Any, *args: Any, **options: Any) -> Any:
        await self._wait("keeping", key)
        return await super().aput(namespace, key, value, *args, **options)

    async def adelete(self, namespace: Any, key: str) -> Any:
        await self._wait("forgetting", key)
        return await super().adelete(namespace, key)


# -- deadlines -------------------------------------------------------------------------------------


@given('a pool of agents with {seconds:f} s, whose store hangs in {what} for the thread "{thread}"')
def a_pool_whose_store_hangs(context: Context, seconds: float, what: str, thread: str) -> None:
    def make(thread_id: str) -> BaseAgent:
        hurried = thread_id == thread and not context.store.gate.is_open
        return Telling(thread_id, timeout=seconds if hurried else 20.0)

    context.store = Slow(what, thread)
    context.make = make
    patch(context, run_module, "_CANCEL_SECONDS", 0.05)
    patch(context, run_module, "_UNDO_SECONDS", 0.05)


@when('the threads "stuck", "stuck" and "other" are asked at once')
def the_threads_are_asked_at_once(context: Context) -> None:
    store = context.store

    async def main() -> None:
        store.gate.open()
        await ask(AgentPool(context.make, persistence=store), "stuck", "first")
        store.gate, pool = Gate(), AgentPool(context.make, persistence=store)
        asked = [("stuck", "lost"), ("stuck", "lost"), ("other", "other")]
        context.answers = await asyncio.gather(*(outcome(ask(pool, *each)) for each in asked))
        store.gate.open()
        await asyncio.wait(store.hanging)
        context.last = await ask(AgentPool(context.make, persistence=store), "stuck", "last")

    run(main())


@then('the calls on "stuck" are out of time, and "other" is answered')
def the_calls_are_out_of_time(context: Context) -> None:
    *stuck, other = context.answers
    assert [type(each) for each in stuck] == [RunTimeoutError] * 2, stuck
    assert other == "other", other


@then('once the store goes on, "stuck" is answered, and finds what was kept before')
def stuck_is_answered(context: Context) -> None:
    assert context.last == "first, last", context.last


@when('"{thread}" is to be forgotten within {seconds:f} s')
def step_thread_is_to_be_forgotten_within_seconds_s(
    context: Context, thread: str, seconds: float
) -> None:
    pool = AgentPool(context.make, persistence=context.store)
    context.error = run(raised(pool.forget(thread, seconds)))


# -- a store that fails ----------------------------------------------------------------------------


class Failing(InMemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.fails = True

    async def aput(self, namespace: Any, key: str, value: Any, *args: Any, **options: Any) -> Any:
        if self.fails and "lost" in str(value):
            self.fails = False
            await super().aput(namespace, key, value, *args, **options)  # it may have been written
            raise OSError("no space")
        return await super().aput(namespace, key, value, *args, **options)


def make_pool(context: Context) -> None:
    """Of agents over the graph, the last of which is kept, too."""

    def make(thread_id: str) -> BaseAgent:
        context.agent = BaseAgent(thread_id, graph=context.graph)
        return context.agent

    context.pool = AgentPool(make, persistence=context.store)


@given("a pool of agents over a graph with a checkpointer, whose store fails once to keep {lost}")
def a_pool_whose_store_fails(context: Context, lost: str) -> None:
    context.graph = graph_of_messages(checkpointer=InMemorySaver())
    context.store = Failing()
    make_pool(context)


@when('"first" is asked, "lost" in vain, and "last"')
def step_first_is_asked_lost_in_vain_and_last(context: Context) -> None:
    async def main() -> list[Any]:
        requests = ("first", "lost", "last")
        return [await outcome(ask(context.pool, "a", request)) for request in requests]

    context.answers = run(main())


@then('the store, the agent and the graph\'s thread have "first" and "last" with their answers')
def step_the_store_the_agent_and_the_graphs_thread_have_first_and(context: Context) -> None:
    assert [type(each) for each in context.answers] == [str, OSError, str], context.answers
    state = context.graph.get_state({"configurable": {"thread_id": "a"}})
    expected = ["first", "tsrif", "last", "tsal"]
    assert [message.content for message in state.values["messages"]] == expected, state
    remembered = [message.content for message in context.agent.memory.get_messages()]
    assert remembered == expected, remembered
    assert stored(context.store, "a") == expected


class Unwritable(InMemorySaver):
    """Takes no checkpoint while its store takes nothing."""

    def __init__(self, store: Broken) -> None:
        super().__init__()
        self.beside = store

    async def aput(self, *arguments: Any) -> Any:
        if self.beside.is_broken:
            raise OSError("no space")
        return await super().aput(*arguments)


class Broken(InMemoryStore):
    """Takes nothing any more once it was to take "lost"; it may have that."""

    is_broken = False

    async def aput(self, namespace: Any, key: str, value: Any, *args: Any, **options: Any) -> Any:
        if self.is_broken:
            raise OSError("no space")
        await super().aput(namespace, key, value, *args, **options)
        if "lost" in str(value):
            self.is_broken = True
            raise OSError("no space")


@given('a pool of agents over a graph with a checkpointer, failing with its store to keep "lost"')
def step_a_pool_of_agents_over_a_graph_with_a_checkpointer_failing(context: Context) -> None:
    context.store = Broken()
    context.graph = graph_of_messages(checkpointer=Unwritable(context.store))
    make_pool(context)


@when('"first" is asked, "lost" in vain, and "last" when both work again')
def step_first_is_asked_lost_in_vain_and_last_when_both_work_again(context: Context) -> None:
    async def main() -> list[Any]:
        answers = [await outcome(ask(context.pool, "a", each)) for each in ("first", "lost")]
        context.store.is_broken = False
        return [*answers, await outcome(ask(context.pool, "a", "last"))]

    context.answers = run(main())


@given('a pool of two agents, which fails with its store to keep "lost" on the thread "a"')
def step_a_pool_of_two_agents_which_fails_with_its_store(context: Context) -> None:
    context.store = Broken()
    context.pool = AgentPool(Telling, max_agents=2, persistence=context.store)


@when('"a" is asked "first", and "lost" in vain, then the threads "b" and "c", and "a" again')
def step_a_is_asked_first_and_lost_in_vain_then_the_threads(context: Context) -> None:
    async def main() -> None:
        answers = [await outcome(ask(context.pool, "a", each)) for each in ("first", "lost")]
        assert [type(each) for each in answers] == [str, OSError], answers
        context.store.is_broken = False
        for thread in ("b", "c", "a"):
            await ask(context.pool, thread, "last")

    run(main())


def stored(store: InMemoryStore, thread_id: str) -> list[Any]:
    (item,) = [each for each in store.search(()) if each.key == thread_id]
    return [message["data"]["content"] for message in item.value["messages"]]


class Waiting(InMemoryStore):
    """Has kept "lost", and comes back when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.has_kept = asyncio.Event()
        self.waits = True

    async def aput(self, namespace: Any, key: str, value: Any, *args: Any, **options: Any) -> Any:
        await super().aput(namespace, key, value, *args, **options)
        if self.waits and "lost" in str(value):
            self.waits = False
            self.has_kept.set()
            await asyncio.Event().wait()


@given('a pool of agents, whose store tells when it has kept "lost", and waits')
def a_pool_whose_store_waits(context: Context) -> None:
    context.store = Waiting()
    context.pool = AgentPool(Telling, persistence=context.store)


@when('"first" is asked, "lost" is cancelled once it is kept, and "last" is asked by another pool')
def lost_is_cancelled_once_it_is_kept(context: Context) -> None:
    async def main() -> None:
        await ask(context.pool, "a", "first")
        task = asyncio.create_task(ask(context.pool, "a", "lost"))
        await context.store.has_kept.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task
        await ask(AgentPool(Telling, persistence=context.store), "a", "last")

    run(main())


@then('the store has "first" and "last" with their answers')
def the_store_has_first_and_last(context: Context) -> None:
    found = stored(context.store, "a")
    assert found == ["first", "first", "last", "first, last"], found


# -- forgetting ------------------------------------------------------------------------------------


@given("a pool whose agents tell what they know, kept in {place}")
def a_pool_whose_agents_tell_what_they_know(context: Context, place: str) -> None:
    context.pool = AgentPool(Telling, persistence=open_place(place))


@given("a pool of one agent that keeps {count:d} memories in this process")
def step_a_pool_of_one_agent_that_keeps_count_memories_in_this(
    context: Context, count: int
) -> None:
    context.pool = AgentPool(Telling, max_agents=1, max_memories=count)


@given("a pool of agents over a graph with a checkpointer of its own")
def a_pool_over_a_graph_with_a_checkpointer(context: Context) -> None:
    context.graph = graph_of_messages(checkpointer=InMemorySaver())
    make: Callable[[str], BaseAgent] = lambda name: BaseAgent(name, graph=context.graph)  # noqa: E731
    context.pool = AgentPool(make, max_agents=1)


@when('the threads "a", "b" and "c" are sent requests, and "b" is forgotten')
def step_the_threads_a_b_and_c_are_sent_requests_and_b_is(context: Context) -> None:
    async def main() -> None:
        for thread_id in "abc":
            await ask(context.pool, thread_id, f"of {thread_id}")
        await context.pool.forget("b")

    run(main())


@when('the threads "a", "b", "c", "a" and "d" are sent requests')
def the_threads_are_sent_requests(context: Context) -> None:
    async def main() -> None:
        for thread_id in "abcad":
            await ask(context.pool, thread_id, f"of {thread_id}")

    run(main())


@then("the threads {ids} are listed")
def the_threads_are_listed(context: Context, ids: str) -> None:
    listed = run(context.pool.threads())
    expected = [each for each in "abcd" if f'"{each}"' in ids]
    assert sorted(listed) == expected, listed


@then('"b" knows nothing of what was said, and "a" does')
def step_b_knows_nothing_of_what_was_said_and_a_does(context: Context) -> None:
    async def main() -> tuple[str, str]:
        return await ask(context.pool, "a", "now"), await ask(context.pool, "b", "now")

    a, b = run(main())
    assert a.startswith("of a"), a
    assert b == "now", b


@then('the checkpointer of the graph knows "a" and "c" alone')
def step_the_checkpointer_of_the_graph_knows_a_and_c_alone(context: Context) -> None:
    assert sorted(context.graph.checkpointer.storage) == ["a", "c"]


@given("a pool whose agents answer when the gate opens")
def a_pool_whose_agents_answer_when_the_gate_opens(context: Context) -> None:
    context.gate = Gate()

    class Gated(Telling):
        async def step(self) -> Any:
            await context.gate.wait_async()
            return await super().step()

    context.pool = AgentPool(Gated)


@when("a thread is asked, forgotten, and asked again, all at once")
def a_thread_is_asked_forgotten_and_asked_again(context: Context) -> None:
    async def main() -> list[Any]:
        pool = context.pool
        doing = [ask(pool, "a", "first"), pool.forget("a"), ask(pool, "a", "second")]
        tasks = [asyncio.create_task(each) for each in doing]
        for _ in range(20):
            await asyncio.sleep(0)
        context.gate.open()
        return await asyncio.gather(*tasks)

    context.answers = run(main())


@then("both are answered, and the second one had no memory of the first")
def both_are_answered(context: Context) -> None:
    assert context.answers == ["first", None, "second"], context.answers


@given('a pool of one agent, which is busy on the thread "a", and a memory of the thread "b"')
def a_pool_of_one_agent_which_is_busy(context: Context) -> None:
    context.gate, context.begun, context.order = Gate(), Gate(), []

    class Busy(Telling):
        async def step(self) -> Any:
            if self.request == "wait":
                context.begun.open()
                await context.gate.wait_async()
            answer = await super().step()
            context.order.append(answer)
            return answer

    context.pool = AgentPool(Busy, max_agents=1)


@when('"b" is forgotten, and asked at once')
def step_b_is_forgotten_and_asked_at_once(context: Context) -> None:
    async def forget() -> None:
        await context.pool.forget("b")
        context.order.append("forgotten")
        context.gate.open()

    async def main() -> None:
        await ask(context.pool, "b", "before")
        busy = asyncio.create_task(ask(context.pool, "a", "wait"))
        await context.begun.wait_async()
        await asyncio.gather(busy, forget(), ask(context.pool, "b", "after"))

    run(main())


@then('"b" is forgotten while "a" is on, and asked when that has ended, without a memory')
def step_b_is_forgotten_while_a_is_on_and_asked_when_that_has(context: Context) -> None:
    assert context.order == ["before", "forgotten", "wait", "after"], context.order
    assert not context.pool._forgetting


@given("a pool whose factory returns one agent for all threads")
def a_pool_whose_factory_returns_one_agent(context: Context) -> None:
    agent = Telling("one")
    context.pool = AgentPool(lambda _: agent, max_agents=1)


@given("a pool whose factory is an async function")
def a_pool_whose_factory_is_an_async_function(context: Context) -> None:
    async def make(_: str) -> Telling:
        raise AssertionError("nothing is to await it")

    context.pool = AgentPool(make, max_agents=1)


@when('the threads "a", "b" and "a" are asked')
def the_threads_are_asked(context: Context) -> None:
    async def main() -> list[Any]:
        return [await outcome(ask(context.pool, each, f"of {each}")) for each in "aba"]

    context.answers = run(main())


@then('"a" is answered twice, and "b" is refused with InvalidArgumentError')
def step_a_is_answered_twice_and_b_is_refused_with(context: Context) -> None:
    first, refused, again = context.answers
    assert isinstance(refused, InvalidArgumentError), refused
    assert "make one for each" in str(refused), refused
    assert (first, again) == ("of a", "of a, of a"), context.answers


@given("a pool whose agents forget their own thread")
def a_pool_whose_agents_forget_their_own_thread(context: Context) -> None:
    class Forgetting(BaseAgent):
        async def step(self) -> Any:
            return await context.pool.forget(self.name)

    context.pool = AgentPool(Forgetting)


@when("a thread is asked")
def a_thread_is_asked(context: Context) -> None:
    context.error = run(raised(ask(context.pool, "a", "forget yourself")))


@when("a pool is made that keeps {count:d} memories in a store")
def step_a_pool_is_made_that_keeps_count_memories_in_a_store(context: Context, count: int) -> None:
    context.error = error_of(
        lambda: AgentPool(Telling, persistence=InMemoryStore(), max_memories=count)
    )
