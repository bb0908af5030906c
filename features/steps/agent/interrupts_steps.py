"""Agents whose graphs ask, and what they are answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from rxlanggraph.agent import AgentPool, AgentState, BaseAgent
from rxlanggraph.errors import AgentInterruptedError, StaleResumeError
from support.agent.agent_providers import provider
from support.agent.agent_threads import BEFORE, Doing, do_all
from support.agent.agent_tools import CONFIG, GRAPHS, Asked, Tools, asks, failed, said
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT

TURN = [("human", "use the tool: ask"), ("ai", ""), ("tool", "yes"), ("ai", "re: yes")]


def by_id(asked: Asked, answer: str = "yes") -> Command[Any]:
    (question,) = asked.question.interrupts
    return Command(resume={question.id: answer})


@then("the run ended with an AgentInterruptedError that has the question, and no agent is in ERROR")
def step_the_run_ended_with_an_agentinterruptederror_that_has_the_question(
    context: Context,
) -> None:
    async def check(asked: Asked) -> None:
        (question,) = asked.question.interrupts
        assert question.value == "may I?" and question.id in str(asked.question)
        assert asked.question.thread_id == "thread", asked.question.thread_id
        assert {agent.state for agent in asked.agents} == {AgentState.IDLE}

    context.doings += [check]


@then("its memory holds what it held before, and its graph waits")
def step_its_memory_holds_what_it_held_before_and_its_graph_waits(context: Context) -> None:
    async def check(asked: Asked) -> None:
        assert asked.remembered() == BEFORE, asked.remembered()
        state = await asked.graph.aget_state(CONFIG)
        assert state.interrupts == asked.question.interrupts, state

    context.doings += [check]


@then('the answer "yes" continues the run, and the whole turn is in the memory and on the thread')
def step_the_answer_yes_continues_the_run_and_the_whole_turn_is(context: Context) -> None:
    async def answer(asked: Asked) -> None:
        assert await asked.ask(Command(resume="yes")) == "re: yes"
        assert asked.remembered() == [*BEFORE, *TURN], asked.remembered()
        assert await asked.said() == [*BEFORE, *TURN], await asked.said()
        assert await asked.ask("hello") == "re: hello"
        assert said(asked.model.shown[-1]) == [*BEFORE, *TURN, ("human", "hello")]

    do_all(context.who, *context.doings, answer)


@when("the tool asks, and another agent over the same graph is given the answer")
def step_the_tool_asks_and_another_agent_over_the_same_graph_is(context: Context) -> None:
    async def answer(asked: Asked) -> None:
        asked.who = asked._make("agent")
        asked.answer = await asked.ask(by_id(asked))  # type: ignore[attr-defined]

    context.doings += [asks, answer]


@then("the other agent has answered, and remembers the whole turn")
def step_the_other_agent_has_answered_and_remembers_the_whole_turn(context: Context) -> None:
    async def check(asked: Asked) -> None:
        assert asked.answer == "re: yes"  # type: ignore[attr-defined]
        assert asked.remembered() == TURN, asked.remembered()
        assert len(asked.agents) == 2

    do_all(context.who, *context.doings, check)


async def after_another_one(asked: Asked) -> Command[Any]:
    assert await asked.ask(by_id(asked)) == "re: yes"
    return by_id(asked, "again")


async def after_another_request(asked: Asked) -> Command[Any]:
    assert await asked.ask("hello") == "re: hello"
    return by_id(asked)


async def after_the_memory_was_cleared(asked: Asked) -> Command[Any]:
    asked.agents[-1].memory.clear()
    return by_id(asked)


async def while_a_run_is_active(asked: Asked) -> Command[Any]:
    asked.tools.begun.clear()
    hanging = asyncio.create_task(asked.ask("use the tool: hang"))
    await asked.tools.begun.wait()
    await failed(asked.ask(Command(resume="yes")), StaleResumeError)
    hanging.cancel()
    await asyncio.wait([hanging])
    return by_id(asked)


REFUSED: dict[str, Callable[[Asked], Awaitable[Command[Any]]]] = {
    "after another one": after_another_one,
    "after another request": after_another_request,
    "after the memory was cleared": after_the_memory_was_cleared,
    "while a run is active, if it names no question": while_a_run_is_active,
}


@then("an answer is refused {moment}, with a StaleResumeError")
def step_an_answer_is_refused_with_a_staleresumeerror(context: Context, moment: str) -> None:
    async def answer(asked: Asked) -> None:
        await failed(asked.ask(await REFUSED[moment](asked)), StaleResumeError)
        assert asked.agents[-1].state is AgentState.IDLE
        assert await asked.ask("hello") == "re: hello"

    do_all(context.who, *context.doings, answer)


@then("of two answers at once one is taken, and the other refused with a StaleResumeError")
def step_of_two_answers_at_once_one_is_taken_and_the_other_refused(context: Context) -> None:
    def at_once(command: Callable[[Asked], Command[Any]]) -> Doing:
        async def answer(asked: Asked) -> None:
            calls = [asked.ask(command(asked)) for _ in range(2)]
            taken, refused = await asyncio.gather(*calls, return_exceptions=True)
            assert taken == "re: yes", taken
            assert isinstance(refused, StaleResumeError), refused

        return answer

    for command in (by_id, lambda _: Command(resume="yes")):
        do_all(context.who, *context.doings, at_once(command))


# -- through a bridge ------------------------------------------------------------------------------


@given("{who} over a graph with a tool that asks")
def step_who_over_a_graph_with_a_tool_that_asks(context: Context, who: str) -> None:
    graph = GRAPHS["create_agent"](provider(), Tools().all(), checkpointer=InMemorySaver())
    pool = AgentPool(lambda thread_id: BaseAgent(thread_id, graph=graph))
    context.agent = BaseAgent("agent", graph=graph) if who.strip() == "an agent" else pool
    context.thread_id = None if who.strip() == "an agent" else "t"


def ask_through_bridge(context: Context, content: Any) -> Any:
    return context.bridge.create_future_task(
        context.agent, content, thread_id=context.thread_id, errors="emit"
    )


@when("it is asked through the bridge, and answered twice by a reply")
def step_it_is_asked_through_the_bridge_and_answered_twice_by_a(context: Context) -> None:
    context.asked = ask_through_bridge(context, "use the tool: ask").result(LIMIT)
    futures = [ask_through_bridge(context, context.asked.reply("yes")) for _ in range(2)]
    context.replies = [future.result(LIMIT) for future in futures]


@when("it is asked through the bridge, and answered twice at once without an id")
def step_it_is_asked_through_the_bridge_and_answered_twice_at_once(context: Context) -> None:
    context.asked = ask_through_bridge(context, "use the tool: ask").result(LIMIT)

    async def give(_: object) -> Any:
        return [ask_through_bridge(context, Command(resume="yes")) for _ in range(2)]

    futures = context.bridge.create_future_task(give, None).result(LIMIT).content
    context.replies = [future.result(LIMIT) for future in futures]


@then("the first result is interrupted, with the question, and the replies are ok and rejected")
def step_the_first_result_is_interrupted_with_the_question_and_the(context: Context) -> None:
    assert (context.asked.status, context.asked.error) == ("interrupted", None), context.asked
    assert [each.value for each in context.asked.interrupts] == ["may I?"], context.asked
    first, second = sorted(context.replies, key=lambda reply: str(reply.status))
    assert (first.status, first.content) == ("ok", "re: yes"), first
    assert second.status == "rejected", second
    assert isinstance(second.error, StaleResumeError), second


# -- a graph without messages ----------------------------------------------------------------------


class Plan(TypedDict, total=False):
    day: str
    agreed: str


@given("an agent over a graph without messages that asks")
def step_an_agent_over_a_graph_without_messages_that_asks(context: Context) -> None:
    def agree(state: Plan) -> Plan:
        return {"agreed": interrupt(f"on {state['day']}?")}

    builder: Any = StateGraph(Plan).add_node("agree", agree).add_edge(START, "agree")
    context.agent = BaseAgent("planner", graph=builder.compile(InMemorySaver()))


@when('it is asked, and answered with Command(resume="yes")')
def step_it_is_asked_and_answered_with_command_resume_yes(context: Context) -> None:
    try:
        run(context.agent.run({"day": "Monday"}))
    except AgentInterruptedError as error:
        assert [each.value for each in error.interrupts] == ["on Monday?"], error
    context.answer = run(context.agent.run(Command(resume="yes")))


@then("the answer of the run is the state of the graph")
def step_the_answer_of_the_run_is_the_state_of_the_graph(context: Context) -> None:
    assert context.answer == {"day": "Monday", "agreed": "yes"}, context.answer
