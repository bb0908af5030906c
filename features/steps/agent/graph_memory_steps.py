from __future__ import annotations

import asyncio
from typing import Any

import tenacity
from behave import given, then, when
from behave.runner import Context
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.agent import AgentPool, BaseAgent, Memory
from support.agent.agent_keeping import ask
from support.agent.agent_runs import outcome
from support.concurrency.tasks import PATIENCE, run
from support.concurrency.waiting import Gate

THREAD = {"configurable": {"thread_id": "agent"}}


class Shown:
    """A graph with a checkpointer, and what its model was shown, call by call."""

    def __init__(self, *, forgets: bool = False) -> None:
        self.calls: list[list[str]] = []
        self.begun = asyncio.Event()
        self.gate = Gate()
        self.gate.open()
        self.fails = 0
        builder = StateGraph(MessagesState).add_node("model", self._answer)
        builder.add_edge(START, "model")
        if forgets:
            builder.add_node("forget", forget).add_edge("model", "forget")
        self.graph = builder.compile(checkpointer=InMemorySaver())

    async def _answer(self, state: MessagesState) -> dict[str, Any]:
        self.calls.append([str(message.content) for message in state["messages"]])
        self.begun.set()
        await self.gate.wait_async()
        if self.fails:
            self.fails -= 1
            raise LookupError("no model")
        return {"messages": [AIMessage(f"re: {state['messages'][-1].content}")]}

    def said(self) -> list[str]:
        values = self.graph.get_state(THREAD).values
        return [str(message.content) for message in values.get("messages", ())]


def forget(state: MessagesState) -> dict[str, Any]:
    asked = [message for message in state["messages"] if message.type == "human"]
    return {"messages": [RemoveMessage(id=str(message.id)) for message in asked]}


def words(messages: Any) -> list[str]:
    return [str(message.content) for message in messages]


@given("an agent over a graph with a checkpointer, which shows what its model sees")
def an_agent_which_shows_what_its_model_sees(context: Context) -> None:
    context.shown = Shown()
    context.agent = BaseAgent("agent", graph=context.shown.graph)


@given("an agent over a graph that takes each request out once it has answered")
def step_an_agent_over_a_graph_that_takes_each_request_out_once_it(context: Context) -> None:
    context.shown = Shown(forgets=True)
    context.agent = BaseAgent("agent", graph=context.shown.graph)


@given("an agent over a graph with a checkpointer, whose model fails at first")
def an_agent_whose_model_fails_at_first(context: Context) -> None:
    an_agent_which_shows_what_its_model_sees(context)
    context.shown.fails = 1


# -- what others add -------------------------------------------------------------------------------


@when('a caller asks "one", {role} adds "by the way" {when_} that run, and then asks "two"')
def step_a_caller_asks_one_role_adds_by_the_way_when_that_run_and(
    context: Context, role: str, when_: str
) -> None:
    agent, shown = context.agent, context.shown

    def add() -> None:
        agent.add_message(role.removeprefix("the "), "by the way")

    async def main() -> None:
        if when_ == "during":
            shown.gate = Gate()
        running = asyncio.create_task(agent.run("one"))
        await shown.begun.wait()
        if when_ == "during":
            add()
            shown.gate.open()
        await running
        if when_ == "after":
            add()
        await agent.run("two")

    run(main())


@when('a caller asks "one", the user adds "by the way", the caller asks in vain, and then "two"')
def step_a_caller_asks_one_the_user_adds_by_the_way_the_caller(context: Context) -> None:
    agent = context.agent

    async def main() -> None:
        await agent.run("one")
        agent.add_message("user", "by the way")
        context.shown.fails = 1
        assert isinstance(await outcome(agent.run("in vain")), LookupError)
        context.shown.calls.clear()
        await agent.run("two")

    run(main())


@given("a pool of agents over a graph with a checkpointer, which keeps in the same checkpointer")
def a_pool_which_keeps_in_the_same_checkpointer(context: Context) -> None:
    context.shown = Shown()
    context.agents = []

    def make(thread_id: str) -> BaseAgent:
        context.agents.append(BaseAgent(thread_id, graph=context.shown.graph))
        return context.agents[-1]

    context.pools = [
        AgentPool(make, persistence=context.shown.graph.checkpointer) for _ in range(2)
    ]


@when(
    'a caller asks "one", the user adds "by the way" during that run, '
    'and then asks another pool "two"'
)
def step_a_caller_asks_one_the_user_adds_by_the_way_during_that(context: Context) -> None:
    shown, (first, second) = context.shown, context.pools

    async def main() -> None:
        await ask(first, "agent", "zero")
        shown.gate, shown.begun = Gate(), asyncio.Event()
        running = asyncio.create_task(ask(first, "agent", "one"))
        await shown.begun.wait()
        context.agents[-1].add_message("user", "by the way")
        shown.gate.open()
        await running
        await ask(second, "agent", "two")

    run(main())


@then('the model sees "by the way" once, before "two", and so does its thread')
def step_the_model_sees_by_the_way_once_before_two_and_so_does_its(context: Context) -> None:
    for seen in (context.shown.calls[-1], context.shown.said()):
        assert seen.count("by the way") == 1, seen
        assert seen.index("by the way") < seen.index("two"), seen
    assert context.shown.calls[-1][-1] == "two", context.shown.calls


@when('a caller asks "one", "two" and "three"')
def step_a_caller_asks_one_two_and_three(context: Context) -> None:
    async def main() -> None:
        for request in ("one", "two", "three"):
            await context.agent.run(request)

    run(main())


@then("the model sees each request once")
def the_model_sees_each_request_once(context: Context) -> None:
    asked = [[text for text in call if not text.startswith("re:")] for call in context.shown.calls]
    assert asked == [["one"], ["two"], ["three"]], context.shown.calls


# -- a memory that begins anew ---------------------------------------------------------------------


@when('a caller asks "one" and "two", its memory is {changed}, and the caller asks "three"')
def its_memory_is_changed(context: Context, changed: str) -> None:
    agent = context.agent

    def change() -> None:
        if changed == "cleared":
            agent.memory.clear()
        elif changed == "another one":
            agent.memory = Memory()
        else:
            agent.memory.load(["else"])

    async def main(*, fail: bool) -> list[list[str]]:
        for request in ("one", "two"):
            await agent.run(request)
        change()
        if fail:
            context.shown.fails = 1
            assert isinstance(await outcome(agent.run("lost")), LookupError)
        await agent.run("three")
        return [context.shown.calls[-1], context.shown.said()[:-1]]

    context.seen = run(main(fail=False))
    context.seen_again = run(main(fail=True))


@then("the model sees {seen}, and so does its thread")
def step_the_model_sees_seen_and_so_does_its_thread(context: Context, seen: str) -> None:
    context.expected = seen.split(", ")
    assert context.seen == [context.expected] * 2, context.seen


@then("once more, when a run has failed in between")
def once_more_when_a_run_has_failed(context: Context) -> None:
    assert context.seen_again == [context.expected] * 2, context.seen_again


class Clearing(BaseAgent):
    asks_first = False

    async def step(self) -> Any:
        if self.request != "clear it":
            return await super().step()
        if self.asks_first:
            await super().step()
        self.memory.clear()
        return "cleared"


class Failing(InMemoryStore):
    fails = False

    async def aput(self, *arguments: Any, **options: Any) -> Any:
        if self.fails:
            raise OSError("no space")
        return await super().aput(*arguments, **options)

    async def adelete(self, *arguments: Any) -> Any:
        if self.fails:
            raise OSError("no space")
        return await super().adelete(*arguments)


@given("a pool of one agent over a graph with a checkpointer, which clears its memory {how}")
def a_pool_which_clears_its_memory(context: Context, how: str) -> None:
    context.shown, context.store = Shown(), Failing()

    def make(thread_id: str) -> BaseAgent:
        agent = Clearing(thread_id, graph=context.shown.graph)
        agent.asks_first = how.startswith("once")
        return agent

    context.pool = AgentPool(make, max_agents=1, persistence=context.store)


@when('"one" is asked, "clear it" once others had the place, and "two" once they had it again')
def step_one_is_asked_clear_it_once_others_had_the_place_and_two(context: Context) -> None:
    async def main() -> None:
        for request in ("one", "clear it", "two"):
            await ask(context.pool, "other", "something else")
            await ask(context.pool, "agent", request)

    run(main())
    context.seen = [context.shown.calls[-1], context.shown.said()[:-1]]


@when('"one" is asked, "clear it" while the store fails, and "two"')
def step_one_is_asked_clear_it_while_the_store_fails_and_two(context: Context) -> None:
    async def main() -> None:
        await ask(context.pool, "agent", "one")
        context.store.fails = True
        assert isinstance(await outcome(ask(context.pool, "agent", "clear it")), OSError)
        context.store.fails = False
        await ask(context.pool, "agent", "two")

    run(main())
    context.seen = [context.shown.calls[-1], context.shown.said()[:-1]]


# -- again -----------------------------------------------------------------------------------------


@when("a caller asks by means of a bridge with retry")
def step_a_caller_asks_by_means_of_a_bridge_with_retry(context: Context) -> None:
    retry = tenacity.AsyncRetrying(stop=tenacity.stop_after_attempt(2), reraise=True)
    with RxPyLangGraphBridge() as bridge:
        message = StreamMessage("one", "agent")
        context.answer = bridge.create_future_task(context.agent, message, retry=retry)
        context.answer = context.answer.result(PATIENCE).content


@when("a caller asks by means of a caller who tries the same message again")
def step_a_caller_asks_by_means_of_a_caller_who_tries_the_same(context: Context) -> None:
    async def main() -> Any:
        message = HumanMessage("one", id="the same")
        await outcome(context.agent.run(message))
        return await context.agent.run(message)

    context.answer = run(main())


@then("its memory and its thread have the request once, and its answer")
def memory_and_thread_have_the_request_once(context: Context) -> None:
    assert context.answer == "re: one", context.answer
    assert len(context.shown.calls) == 2, context.shown.calls
    assert words(context.agent.memory.get_messages()) == ["one", "re: one"]
    assert context.shown.said() == ["one", "re: one"], context.shown.said()


@when("a caller asks the very same message twice")
def step_a_caller_asks_the_very_same_message_twice(context: Context) -> None:
    async def main() -> None:
        message = HumanMessage("one", id="the same")
        for _ in range(2):
            await context.agent.run(message)

    run(main())


@when("a caller asks it, and then another agent over that graph, the very same message")
def step_a_caller_asks_it_and_then_another_agent_over_that_graph(context: Context) -> None:
    async def main() -> None:
        message = HumanMessage("one", id="the same")
        await context.agent.run(message)
        other = BaseAgent(context.agent.name, graph=context.agent.graph)
        assert await other.run(message) == "re: one"
        assert words(other.memory.get_messages()) == ["one", "re: one"]

    run(main())


@then("the model was shown it at the end both times, and the thread has two turns")
def step_the_model_was_shown_it_at_the_end_both_times_and_the(context: Context) -> None:
    assert context.shown.calls == [["one"], ["one", "re: one", "one"]], context.shown.calls
    assert context.shown.said() == ["one", "re: one"] * 2, context.shown.said()


@then("the model was shown it at the end both times, and the memory has two turns")
def the_model_was_shown_it_both_times(context: Context) -> None:
    assert context.shown.calls == [["one"], ["one", "re: one", "one"]], context.shown.calls
    assert words(context.agent.memory.get_messages()) == ["one", "re: one"] * 2


@when("a caller asks with all that was said before, three times")
def a_caller_asks_with_all_that_was_said(context: Context) -> None:
    async def main() -> None:
        for request in ("one", "two", "three"):
            said = context.agent.memory.to_langchain()
            await context.agent.run({"messages": [*said, HumanMessage(request)]})

    run(main())


@then("its memory and its thread have three turns, and the model saw nothing twice")
def its_memory_and_its_thread_have_three_turns(context: Context) -> None:
    expected = ["one", "re: one", "two", "re: two", "three", "re: three"]
    assert words(context.agent.memory.get_messages()) == expected
    assert context.shown.said() == expected
    assert context.shown.calls == [expected[:1], expected[:3], expected[:5]]


@given("a pool whose agents begin with a system message, over a graph with a checkpointer")
def a_pool_whose_agents_begin_with_a_system_message(context: Context) -> None:
    context.shown = Shown()

    def make(thread_id: str) -> BaseAgent:
        memory = Memory()
        memory.add({"role": "system", "content": "be brief"})
        return BaseAgent(thread_id, graph=context.shown.graph, memory=memory)

    context.pools = [AgentPool(make) for _ in range(2)]


@when("a thread is asked by one pool, and then by another that knows the graph alone")
def step_a_thread_is_asked_by_one_pool_and_then_by_another_that(context: Context) -> None:
    async def main() -> None:
        for pool, request in zip(context.pools, ("one", "two"), strict=True):
            await ask(pool, "agent", request)

    run(main())


@then("the model is shown the system message once, at the beginning")
def the_model_is_shown_the_system_message_once(context: Context) -> None:
    assert context.shown.calls[-1] == ["be brief", "one", "re: one", "two"], context.shown.calls
