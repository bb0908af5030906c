from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import reactivex as rx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from reactivex import operators as ops

from rxlanggraph import StreamMessage
from rxlanggraph.agent import AgentPool, BaseAgent
from support.agent.agent_pools import Asked, Made, counting_graph
from support.agent.agent_runs import note
from support.bridge.savers import open_sqlite
from support.concurrency.raising import error_of, raised
from support.concurrency.tasks import run
from support.concurrency.waiting import Gate, in_threads

# -- one agent -------------------------------------------------------------------------------------


@when("{count:d} messages go through invoke of the agent")
def step_count_messages_go_through_invoke_of_the_agent(context: Context, count: int) -> None:
    messages = rx.from_iterable(range(count))
    context.results = messages.pipe(context.bridge.invoke(context.agent), ops.to_list()).run()
    context.sent = list(range(count))


@then("each has its own answer, in order, and the agent was never run twice at once")
def step_each_has_its_own_answer_in_order_and_the_agent_was_never(context: Context) -> None:
    answers = [result.content for result in context.results]
    assert answers == context.sent, answers
    assert context.agent.most_inside == 1, context.agent.most_inside


# -- pools -----------------------------------------------------------------------------------------


@given("a pool of at most {count:d} agents that keeps memories in {place}")
def step_a_pool_of_at_most_count_agents_that_keeps_memories_in(
    context: Context, count: int, place: str
) -> None:
    context.made = Made()
    context.persistence = open_place(context, place)
    context.pool = context.made.pool(count, context.persistence)
    context.count = count


def open_place(context: Context, place: str) -> Any:
    if place == "a SQLite checkpointer":
        return open_sqlite(context)
    made: dict[str, Any] = {"a store": InMemoryStore, "a checkpointer": InMemorySaver}
    return made[place]() if place in made else None


@when("{feeders:d} feeders send {count:d} messages on {threads:d} threads")
@when("{feeders:d} feeder sends {count:d} messages on {threads:d} thread")
def step_feeders_feeders_send_count_messages_on_threads_threads(
    context: Context, feeders: int, count: int, threads: int
) -> None:
    def feed(number: int) -> list[StreamMessage]:
        return answers(context, range(number, count, feeders), threads)

    context.results = [result for fed in in_threads(feeders, feed) for result in fed]
    assert len(context.results) == count, len(context.results)


def answers(context: Context, numbers: range, threads: int) -> list[StreamMessage]:
    messages = [StreamMessage(f"request {i}", f"thread-{i % threads}") for i in numbers]
    answer = context.bridge.invoke(context.pool)
    return rx.from_iterable(messages).pipe(answer, ops.to_list()).run()


@when("{rounds:d} rounds of a message on each of {threads:d} threads are sent")
def step_rounds_rounds_of_a_message_on_each_of_threads_threads_are(
    context: Context, rounds: int, threads: int
) -> None:
    context.results = [
        result for _ in range(rounds) for result in answers(context, range(threads), threads)
    ]


@then("{count:d} agents were made")
def step_count_agents_were_made(context: Context, count: int) -> None:
    assert context.made.count == count, context.made.count


@then("never more than {count:d} agents were there at once")
def step_never_more_than_count_agents_were_there_at_once(context: Context, count: int) -> None:
    assert context.made.most <= count, context.made.most


@then("at least {count:d} agents were made")
def step_at_least_count_agents_were_made(context: Context, count: int) -> None:
    """In each round those that no agent was left for, at the least."""
    assert context.made.count >= count, context.made.count


@then("each answer tells how many messages its thread had before")
def step_each_answer_tells_how_many_messages_its_thread_had_before(context: Context) -> None:
    answers = defaultdict(list)
    for result in context.results:
        answers[result.thread_id].append(result.content)
    for thread_id, told in answers.items():
        assert sorted(told) == list(range(len(told))), (thread_id, told)


@when("another pool with the same checkpointer takes its place")
def step_another_pool_with_the_same_checkpointer_takes_its_place(context: Context) -> None:
    context.pool = Made().pool(context.count, context.persistence)


@then("the last answer tells of {count:d} earlier requests")
def step_the_last_answer_tells_of_count_earlier_requests(context: Context, count: int) -> None:
    assert context.results[-1].content == count, context.results[-1]


# -- when all are busy -----------------------------------------------------------------------------


@given("a pool of at most {count:d} agents that wait for the gate")
@given("a pool of at most {count:d} agent that waits for the gate")
def step_a_pool_of_at_most_count_agents_that_wait_for_the_gate(
    context: Context, count: int
) -> None:
    context.gate = Gate()
    context.made = Made(context.gate)
    context.pool = context.made.pool(count)


def ask(pool: AgentPool, thread: int) -> Any:
    return pool.ainvoke(f"request {thread}", {"configurable": {"thread_id": f"thread-{thread}"}})


@when(
    "{count:d} messages on as many threads are sent, and the gate opens when 2 agents are at work"
)
def step_count_messages_on_as_many_threads_are_sent_and_the_gate(
    context: Context, count: int
) -> None:
    async def main() -> None:
        asked = [asyncio.create_task(ask(context.pool, n)) for n in range(count)]
        await asyncio.to_thread(context.made.at_work.wait_for, 2)
        context.until_open = len(context.pool), len(context.made.at_work), context.made.count
        context.gate.open()
        context.answers = await asyncio.gather(*asked)

    run(main())


@then("there were 2 agents until it opened, and all {count:d} are answered")
def step_there_were_2_agents_until_it_opened_and_all_count_are(
    context: Context, count: int
) -> None:
    assert context.until_open == (2, 2, 2), context.until_open
    assert context.answers == [f"request {n}" for n in range(count)], context.answers
    assert context.made.count == count


@when("of three messages that wait behind a busy agent the first is cancelled as it is woken")
def step_of_three_messages_that_wait_behind_a_busy_agent_the_first(context: Context) -> None:
    async def main() -> None:
        asked = [asyncio.create_task(ask(context.pool, n)) for n in range(4)]
        await asyncio.to_thread(context.made.at_work.wait_for, 1)
        # Called before the callback that wakes the first in line is.
        asked[0].add_done_callback(lambda _: asked[1].cancel())
        context.gate.open()
        context.answers = await asyncio.gather(*asked, return_exceptions=True)

    run(main())


@then("the others are answered")
def step_the_others_are_answered(context: Context) -> None:
    first, cancelled, *others = context.answers
    assert (first, *others) == ("request 0", "request 2", "request 3"), context.answers
    assert isinstance(cancelled, asyncio.CancelledError), cancelled


# -- a graph for all -------------------------------------------------------------------------------


@given("a pool whose agents have one name, and one graph with a checkpointer")
def step_a_pool_whose_agents_have_one_name_and_one_graph_with_a(context: Context) -> None:
    graph = counting_graph()
    context.pool = AgentPool(lambda thread_id: BaseAgent("all alike", graph=graph))


@when("{rounds:d} rounds of a request on each of {threads:d} threads are sent")
def step_rounds_rounds_of_a_request_on_each_of_threads_threads_are(
    context: Context, rounds: int, threads: int
) -> None:
    async def main() -> list[list[Any]]:
        return [
            await asyncio.gather(*[ask(context.pool, thread) for thread in range(threads)])
            for _ in range(rounds)
        ]

    context.answers = run(main())


@then("the graph has counted the requests of each thread: 1, 2 and 3")
def step_the_graph_has_counted_the_requests_of_each_thread_1_2_and(context: Context) -> None:
    assert context.answers == [["1"] * 4, ["2"] * 4, ["3"] * 4], context.answers


# -- agents that ask their pool --------------------------------------------------------------------


@given("a pool whose agents ask each other, and wait forever")
def step_a_pool_whose_agents_ask_each_other_and_wait_forever(context: Context) -> None:
    context.asked = Asked()


@when('the agent of thread "a" is asked to ask {way}')
def step_the_agent_of_thread_a_is_asked_to_ask_way(context: Context, way: str) -> None:
    threads = ["a", "a"] if way == "its own thread" else ["a", "b", "a"]
    context.error = run(raised(context.asked(threads)))


@then('the agent of thread "a" answers the next request')
def step_the_agent_of_thread_a_answers_the_next_request(context: Context) -> None:
    assert run(context.asked(["a"])) == "a has answered"


@when('the agent of thread "a" asks thread "b", and leaves a task that asks "a" when it is over')
def step_the_agent_of_thread_a_asks_thread_b_and_leaves_a_task_that(context: Context) -> None:
    async def main() -> list[Any]:
        first = await asyncio.create_task(context.asked(["a", "b"], leave="a"))
        return [first, await context.asked.left[0]]

    context.answers = run(main())


@then("both have answered")
def step_both_have_answered(context: Context) -> None:
    assert context.answers == ["b has answered", "a has answered"], context.answers


# -- failures --------------------------------------------------------------------------------------


@given("a pool whose agents fail on demand")
def step_a_pool_whose_agents_fail_on_demand(context: Context) -> None:
    context.pool = Made().pool(3)


class Failing(InMemoryStore):
    """Fails once, when the last request that it is to keep is ``at``."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at: str | None = at

    async def aput(self, namespace: Any, key: str, value: Any, **options: Any) -> None:
        requests = [each["data"]["content"] for each in value["messages"]]
        if requests[-1] == self._at:
            self._at = None
            raise ConnectionError("the store is away")
        await super().aput(namespace, key, value, **options)


@given('a pool that keeps memories in a store which fails once, at "{at}"')
def step_a_pool_that_keeps_memories_in_a_store_which_fails_once_at(
    context: Context, at: str
) -> None:
    context.pool = Made().pool(3, Failing(at))


@given("a pool of at most 1 agent whose factory {fails} at first")
def step_a_pool_of_at_most_1_agent_whose_factory_fails_at_first(
    context: Context, fails: str
) -> None:
    made = Made()

    def make(thread_id: str) -> Any:
        return make_next.pop()(thread_id) if make_next else made(thread_id)

    def fail(thread_id: str) -> Any:
        raise ConnectionError(f"no agent for {thread_id}")

    make_next: list[Any] = [fail if fails == "raises" else str.upper]
    context.pool = AgentPool(make, max_agents=1)


@when('a thread is sent "{first}", "{second}" and "{third}"')
def step_a_thread_is_sent_first_second_and_third(
    context: Context, first: str, second: str, third: str
) -> None:
    messages = rx.of(*[StreamMessage(each, "thread") for each in (first, second, third)])
    answer = context.bridge.invoke(context.pool, errors="emit")
    context.results = messages.pipe(answer, ops.to_list()).run()


@then("the {which} has failed with {error:w}, and the third knows of {count:d} earlier request")
def step_the_which_has_failed_with_error_and_the_third_knows_of(
    context: Context, which: str, error: str, count: int
) -> None:
    first, second, third = context.results
    failed = {"first": first, "second": second}[which]
    assert type(failed.error).__name__ == error, failed
    assert third.content == count, third


@when("a message without a thread is sent")
def step_a_message_without_a_thread_is_sent(context: Context) -> None:
    answer = context.bridge.invoke(context.pool, errors="emit")
    (result,) = rx.of("request").pipe(answer, ops.to_list()).run()
    context.error = result.error


@when("a pool is made with {what}")
def step_a_pool_is_made_with_what(context: Context, what: str) -> None:
    options: dict[str, Any] = {
        "no agents": {"max_agents": 0},
        "no factory": {"agent_factory": None},
        "a dict as its place": {"persistence": {}},
    }[what]
    context.error = error_of(lambda: AgentPool(**{"agent_factory": Made(), **options}))


@when("the pool itself is asked with config={config}")
def the_pool_itself_is_asked(context: Context, config: str) -> None:
    note(context, context.pool.ainvoke("hello", eval(config)))


@then("it has answered")
def step_it_has_answered(context: Context) -> None:
    assert context.answer == 0, context.answer


# -- LangGraph's arguments -------------------------------------------------------------------------


@given("a pool of agents over a graph that answers with its context")
def step_a_pool_of_agents_over_a_graph_that_answers_with_its_context(context: Context) -> None:
    async def answer(_state: MessagesState, runtime: Runtime[str]) -> dict[str, Any]:
        return {"messages": [("ai", runtime.context)]}

    graph = StateGraph(MessagesState, context_schema=str).add_node(answer)
    compiled = graph.add_edge(START, "answer").compile()
    context.pool = AgentPool(lambda thread: BaseAgent(thread, graph=compiled))
    context.agent = BaseAgent("ada", graph=compiled)


@when("the context is passed by {call}")
def step_the_context_is_passed_by_call(context: Context, call: str) -> None:
    bridge, pool, agent, given = context.bridge, context.pool, context.agent, {"context": "blue"}

    async def streamed(**arguments: Any) -> Any:
        return [item async for item in agent.stream("?", **given, **arguments)][-1]

    calls: dict[str, Callable[[], Any]] = {
        "bridge.invoke of the pool": lambda: (
            rx.of(StreamMessage("?", "ada")).pipe(bridge.invoke(pool, **given)).run().content
        ),
        "bridge.create_future_task of the agent": lambda: (
            bridge.create_future_task(agent, "?", **given).result().content
        ),
        "agent.run": lambda: run(agent.run("?", **given)),
        "agent.run_sync": lambda: agent.run_sync("?", **given),
        "agent.stream": lambda: run(streamed()),
        "agent.stream of tokens": lambda: run(streamed(stream_mode="messages")),
    }
    context.answer = calls[call]()


@then("the answer is the context")
def step_the_answer_is_the_context(context: Context) -> None:
    assert context.answer == "blue", context.answer


@when('an agent is given that argument by "{call}"')
def step_an_agent_is_given_that_argument_by_call(context: Context, call: str) -> None:
    names = {"BaseAgent": BaseAgent, "bridge": context.bridge, "pool": context.pool, "run": run}
    context.error = error_of(lambda: eval(call, {**names, "pool_agent": context.agent}))
