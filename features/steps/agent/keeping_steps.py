from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from behave import given, register_type, then, when
from behave.runner import Context
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from rxlanggraph.agent import AgentPool, BaseAgent, Memory, Message
from support.agent.agent_keeping import Talking, ask, open_place, said
from support.concurrency.tasks import run
from support.step_types import one_of

# -- pools -----------------------------------------------------------------------------------------


register_type(Place=one_of(("a checkpointer which counts", "this process")))


def begin(context: Context, talking: Talking) -> None:
    context.talking = talking
    context.pool = talking.pool()


@given("a pool that keeps memories in {place:Place}")
def step_a_pool_that_keeps_memories_in_place(context: Context, place: str) -> None:
    begin(context, Talking(open_place(place)))


@given("a pool that keeps memories of at most {bound:d} messages in {place}")
def step_a_pool_that_keeps_memories_of_at_most_bound_messages_in(
    context: Context, bound: int, place: str
) -> None:
    begin(context, Talking(open_place(place), bound))


@given("a pool that keeps memories in a checkpointer which counts, and a model with one id")
def step_a_pool_that_keeps_memories_in_a_checkpointer_which_counts(context: Context) -> None:
    begin(context, Talking(open_place("a checkpointer which counts"), reply_id="always the same"))


@given("a pool whose agents begin with a system message, kept in {place}")
def step_a_pool_whose_agents_begin_with_a_system_message_kept_in(
    context: Context, place: str
) -> None:
    begin(context, Talking(open_place(place), begin=[Message("system", "be brief")]))


# -- requests --------------------------------------------------------------------------------------


@given("a thread was sent {count:d} requests")
@when("a thread is sent {count:d} requests")
def step_a_thread_was_sent_count_requests(context: Context, count: int) -> None:
    run(send(context.pool, count))


async def send(pool: AgentPool, count: int) -> None:
    for number in range(count):
        await ask(pool, "thread", f"request {number}")


@when("a thread is sent {count:d} requests, each to another agent")
def step_a_thread_is_sent_count_requests_each_to_another_agent(
    context: Context, count: int
) -> None:
    async def main() -> None:
        for number in range(count):
            await ask(context.pool, "thread", f"request {number}")
            context.agent = context.talking.agents[-1]
            await ask(context.pool, "other thread", "go")

    run(main())


@when("other code has {change}, and the thread is sent another request")
def step_other_code_has_change_and_the_thread_is_sent_another(
    context: Context, change: str
) -> None:
    (agent,) = context.talking.agents
    one, two, three, *rest = everything = agent.memory.get_messages()
    new = Message("user", "by the way")
    changed: dict[str, list[Message]] = {
        "taken out one in the middle": [one, two, *rest],
        "changed one in the middle": [one, two, replace(three, content="corrected"), *rest],
        "put one in the middle": [one, two, new, three, *rest],
        "put one in front": [new, one, two, three, *rest],
        "turned the order round": [*reversed(rest), three, two, one],
        "repeated one with the same id": [one, two, three, *rest, replace(one, content="again")],
        "taken out what is there again": [m for m in everything if m.content != "again"],
        "taken all": [],
    }
    agent.memory.load(changed[change])
    send_one_more(context)


def send_one_more(context: Context) -> None:
    run(ask(context.pool, "thread", "one more"))
    context.remembered = said(context.talking.agents[0].memory.get_messages())
    assert context.remembered[-2:] == [("user", "one more"), ("assistant", "re: one more")]


@when("the thread is deleted from the checkpointer, and is sent another request")
def step_the_thread_is_deleted_from_the_checkpointer_and_is_sent(context: Context) -> None:
    context.talking.persistence.delete_thread("thread")
    send_one_more(context)


@when("the thread is deleted from the checkpointer")
def step_the_thread_is_deleted_from_the_checkpointer(context: Context) -> None:
    context.talking.persistence.delete_thread("thread")


@when("another agent takes the place of its agent")
def step_another_agent_takes_the_place_of_its_agent(context: Context) -> None:
    context.remembered = context.talking.agents[-1].memory.get_messages()
    context.found = run(context.talking.found_by_another(context.pool))


# -- what was written, and is found ----------------------------------------------------------------


@then("each run but the first has written {count:d} messages, and has removed none")
def step_each_run_but_the_first_has_written_count_messages_and_has(
    context: Context, count: int
) -> None:
    assert context.talking.persistence.updates == [(count, 0)] * 29, (
        context.talking.persistence.updates
    )


@then("each run from the third on has written {count:d} messages, and has removed {removed:d}")
def step_each_run_from_the_third_on_has_written_count_messages_and(
    context: Context, count: int, removed: int
) -> None:
    second, *later = context.talking.persistence.updates
    assert second == (count, 0), second
    assert later == [(count, removed)] * 28, later


@then("each run was shown its request and at most {count:d} messages before")
def step_each_run_was_shown_its_request_and_at_most_count_messages(
    context: Context, count: int
) -> None:
    assert max(context.talking.shown) <= count + 1, max(context.talking.shown)
    assert len(context.talking.shown) == 400


@then("another pool finds the requests {first:d} to {last:d} with their answers")
def step_another_pool_finds_the_requests_first_to_last_with_their(
    context: Context, first: int, last: int
) -> None:
    check(found_by_another_pool(context), first, last)


@then(
    "another agent, when asked one more, has the requests {first:d} to {last:d} with their answers"
)
def step_another_agent_when_asked_one_more_has_the_requests_first(
    context: Context, first: int, last: int
) -> None:
    check(run(context.talking.found_by_another(context.pool)), first, last)


@then("another pool finds what the agent remembered")
def step_another_pool_finds_what_the_agent_remembered(context: Context) -> None:
    assert said(found_by_another_pool(context)) == context.remembered, context.remembered


@then("another pool finds nothing")
def step_another_pool_finds_nothing(context: Context) -> None:
    assert found_by_another_pool(context) == ()


def found_by_another_pool(context: Context) -> tuple[Message, ...]:
    """As another process would find it."""
    later = Talking(context.talking.persistence)
    return run(later.found_by_another(later.pool()))


@then("it remembers the very same messages")
def step_it_remembers_the_very_same_messages(context: Context) -> None:
    assert len(context.found) == 6
    assert all(a is b for a, b in zip(context.found, context.remembered, strict=True))


@then("the agent remembers the system message once, and then the requests")
def step_the_agent_remembers_the_system_message_once_and_then_the(context: Context) -> None:
    first, *others = context.agent.memory.get_messages()
    assert (first.role, first.content) == ("system", "be brief"), first
    check(others, 0, 1)


def check(messages: Sequence[Message], first: int, last: int) -> None:
    texts = [f"request {number}" for number in range(first, last + 1)]
    expected = [turn for text in texts for turn in (("user", text), ("assistant", f"re: {text}"))]
    assert said(messages) == expected, messages


# -- a counter that fails --------------------------------------------------------------------------


@given('a pool whose agents count tokens, which fails once with the answer to "request 1"')
def step_a_pool_whose_agents_count_tokens_which_fails_once_with_the(context: Context) -> None:
    fails = ["re: request 1"]

    def count(messages: Sequence[BaseMessage]) -> int:
        if messages[-1].content in fails:
            fails.clear()
            raise LookupError("no tokenizer")
        return len(messages)

    async def answer(messages: Sequence[Message]) -> str:
        return f"re: {messages[-1].content}"

    def make(thread_id: str) -> BaseAgent:
        memory = Memory(max_tokens=100, token_counter=count)
        context.agent = BaseAgent(thread_id, llm=answer, memory=memory)
        return context.agent

    context.pool = AgentPool(make)


@when('a thread is sent "request 0", "request 1" in vain, and "request 2"')
def step_a_thread_is_sent_request_0_request_1_in_vain_and_request_2(context: Context) -> None:
    async def main() -> None:
        await ask(context.pool, "thread", "request 0")
        try:
            await ask(context.pool, "thread", "request 1")
        except LookupError:
            await ask(context.pool, "thread", "request 2")

    run(main())


@then("the agent remembers the requests 0 and 2")
def step_the_agent_remembers_the_requests_0_and_2(context: Context) -> None:
    requests = [m.content for m in context.agent.memory.get_messages() if m.role == "user"]
    assert requests == ["request 0", "request 2"], requests


# -- a checkpointer for both -----------------------------------------------------------------------


@given("a pool and a graph with the same checkpointer, and room for one agent")
def step_a_pool_and_a_graph_with_the_same_checkpointer_and_room_for(context: Context) -> None:
    def answer(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-1].content == "fail":
            raise LookupError("on demand")
        return {"messages": [AIMessage("done")]}

    def make(thread_id: str) -> BaseAgent:
        context.agent = BaseAgent(thread_id, graph=graph)
        return context.agent

    saver = InMemorySaver()
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = builder.compile(checkpointer=saver)
    context.pool = AgentPool(make, max_agents=1, persistence=saver)


@when('requests are sent on the threads "a", "a", "b" and "a", the second of which fails')
def step_requests_are_sent_on_the_threads_a_a_b_and_a_the_second_of(context: Context) -> None:
    async def main() -> None:
        await ask(context.pool, "a", "first")
        try:
            await ask(context.pool, "a", "fail")
        except LookupError:
            await ask(context.pool, "b", "go")
        await ask(context.pool, "a", "last")

    run(main())


@then("the last agent remembers 2 requests, without the one that failed")
def step_the_last_agent_remembers_2_requests_without_the_one_that(context: Context) -> None:
    messages = context.agent.memory.get_messages()
    requests = [message.content for message in messages if message.role == "user"]
    assert requests == ["first", "last"], messages
