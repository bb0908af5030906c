from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from rxlanggraph.agent import BaseAgent
from rxlanggraph.agent import run as agent_run
from rxlanggraph.agent.output.queue import OutputQueue
from rxlanggraph.errors import AgentError, AgentInterruptedError
from support.agent.agent_providers import Refused, provider
from support.agent.agent_threads import BEFORE, check_answers, check_holds, do_all, use_tool
from support.agent.agent_tools import (
    CONFIG,
    ENDINGS,
    GRAPHS,
    Asked,
    Tools,
    opened,
    said,
)
from support.concurrency.listening import listening
from support.concurrency.loops import calling_before_callback
from support.concurrency.patching import patch
from support.concurrency.raising import check_error, raised
from support.concurrency.tasks import PATIENCE, run
from support.concurrency.waiting import LIMIT

# -- without an agent ------------------------------------------------------------------------------


@given("a thread of {graph:w} on which a tool has raised")
def a_thread_on_which_a_tool_has_raised(context: Context, graph: str) -> None:
    context.graph = GRAPHS[graph](provider(), Tools().all(), checkpointer=InMemorySaver())
    try:
        run(ask_graph(context.graph, "use the tool: fail"))
    except LookupError:
        return
    raise AssertionError("it should have raised")


async def ask_graph(graph: Any, text: str) -> Any:
    return await graph.ainvoke({"messages": [("user", text)]}, CONFIG)


@when("the graph is asked once more")
def the_graph_is_asked_once_more(context: Context) -> None:
    try:
        context.answer = run(ask_graph(context.graph, "hello"))["messages"][-1].content
    except (Refused, ValueError) as error:  # of the provider, or of LangGraph itself
        context.answer = error


@then("the graph answers")
def the_graph_answers(context: Context) -> None:
    assert context.answer == "re: hello", context.answer


# -- runs that do not end well ---------------------------------------------------------------------


@given("{who} over each kind of graph with tools, with each kind of saver")
def step_who_over_each_kind_of_graph_with_tools_with_each_kind_of(
    context: Context, who: str
) -> None:
    patch(context, agent_run, "_UNDO_SECONDS", LIMIT)  # what is undone late is not undone
    context.who, context.doings = who.strip(), []


@when("it has used its tool, and then {ending}")
def it_has_used_its_tool_and_then(context: Context, ending: str) -> None:
    context.doings += [use_tool, ENDINGS[ending]]


@when("its tool {ending}")
def its_tool(context: Context, ending: str) -> None:
    context.doings += [ENDINGS[f"its tool {ending}"]]


@when("it is cancelled in its tool")
def it_is_cancelled_in_its_tool(context: Context) -> None:
    context.doings += [ENDINGS["it is cancelled in its tool"]]


@then("its thread and its memory hold what they held before")
def its_thread_and_its_memory_hold_what_they_held_before(context: Context) -> None:
    context.doings += [check_holds(BEFORE)]


@then("its thread and its memory hold nothing")
def its_thread_and_its_memory_hold_nothing(context: Context) -> None:
    context.doings += [check_holds([])]


@then("the next request is answered, and the model sees no trace of the run before")
def the_next_request_is_answered(context: Context) -> None:
    do_all(context.who, *context.doings, check_answers)


# -- threads that a config names -------------------------------------------------------------------

CONFIGS: dict[str, Any] = {
    "configurable": {"configurable": {"thread_id": "T"}},
    "the config itself": {"thread_id": "T"},
    "both": {"thread_id": "T", "configurable": {"thread_id": "T"}},
    "that is not a mapping": "T",
    "whose thread is a number": {"configurable": {"thread_id": 5}},
    "that names two threads": {"thread_id": "T", "configurable": {"thread_id": "U"}},
}


@given("an agent over a graph whose second node fails on demand, with a checkpointer")
def step_an_agent_over_a_graph_whose_second_node_fails_on_demand(context: Context) -> None:
    def second(state: MessagesState) -> dict[str, Any]:
        if state["messages"][-2].content == "fail":
            raise LookupError("on demand")
        return {"messages": [("assistant", "second")]}

    graph = StateGraph(MessagesState)
    graph.add_node("one", lambda _: {"messages": [("assistant", "first")]})
    graph.add_node("two", second)
    graph.add_edge(START, "one")
    graph.add_edge("one", "two")
    context.saver = InMemorySaver()
    context.agent = BaseAgent("own", graph=graph.compile(checkpointer=context.saver))


@when('it answers on the thread "T", named by {how}, and then fails there')
def step_it_answers_on_the_thread_t_named_by_how_and_then_fails(context: Context, how: str) -> None:
    async def main() -> None:
        assert await context.agent.ainvoke("ask", CONFIGS[how]) == "second"
        error = await raised(context.agent.ainvoke("fail", CONFIGS[how]))
        assert isinstance(error, LookupError), error

    run(main())


@then('"T" has the first turn alone, and no other thread has anything')
def step_t_has_the_first_turn_alone_and_no_other_thread_has(context: Context) -> None:
    state = context.agent.graph.get_state({"configurable": {"thread_id": "T"}})
    said = [message.content for message in state.values["messages"]]
    assert said == ["ask", "first", "second"], said
    threads = {found.config["configurable"]["thread_id"] for found in context.saver.list(None)}
    assert threads == {"T"}, threads


@when("it is invoked with a config {what}")
def step_it_is_invoked_with_a_config_what(context: Context, what: str) -> None:
    context.error = run(raised(context.agent.ainvoke("ask", CONFIGS[what])))


@then("it raises {error:w}, and is IDLE")
def step_it_raises_error_and_is_idle(context: Context, error: str) -> None:
    check_error(context.error, error)
    assert context.agent.state.name == "IDLE", context.agent


# -- cancelled at any await ------------------------------------------------------------------------


@when("its run is cancelled before each callback of the loop, and its thread looked at")
def its_run_is_cancelled_before_each_callback(context: Context) -> None:
    async def cancel_anywhere(asked: Asked) -> None:
        for number in itertools.count():
            task = asyncio.create_task(asked.ask("use the tool: it"))
            with calling_before_callback(number, task.cancel) as requested:
                await asyncio.wait([task])
            if not any(requested):  # it had ended
                assert task.result() == "re: did it", task
                return
            assert task.cancelled(), task
            await check_holds([])(asked)

    context.doings += [cancel_anywhere]


@when("its run is cancelled before each callback of the loop, until its question is told")
def its_run_is_cancelled_until_its_question_is_told(context: Context) -> None:
    async def cancel_anywhere(asked: Asked) -> None:
        for number in itertools.count():
            task = asyncio.create_task(asked.ask("use the tool: ask"))
            with calling_before_callback(number, task.cancel):
                await asyncio.wait([task])
            if not task.cancelled():
                assert isinstance(task.exception(), AgentInterruptedError), task
                return
            await check_holds([])(asked)

    context.doings += [cancel_anywhere]


@then("its thread and its memory hold what they held before each time")
def its_thread_and_its_memory_hold_what_they_held_each_time(context: Context) -> None:
    do_all(context.who, *context.doings, patience=5 * PATIENCE)  # hundreds of runs


# -- afterwards, and elsewhere ---------------------------------------------------------------------


@when("it is cancelled while its answer waits for room in its output")
def it_is_cancelled_while_its_answer_waits(context: Context) -> None:
    async def cancel_at_the_end(asked: Asked) -> None:
        queue: OutputQueue[Any] = asked.agents[-1].output_queue
        queue._capacity.size = 1
        task = asyncio.create_task(asked.ask("hello?"))
        async with asyncio.timeout(PATIENCE):
            # Not for a number of turns: a saver may work in a thread, and tells no event.
            while len(await asked.said()) != len(BEFORE) + 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task
        queue._capacity.size = 0

    async def fill(asked: Asked) -> None:
        queue: OutputQueue[Any] = asked.agents[-1].output_queue
        asked.reader = queue.stream()  # while there is a reader, unread items are kept
        queue.put_nowait("left")

    context.doings += [use_tool, fill, cancel_at_the_end]


@when("it has used its tool, and another process dies while it runs the graph on its thread")
def another_process_dies_while_it_runs_the_graph(context: Context) -> None:
    async def leave_in_the_middle(asked: Asked) -> None:
        try:
            await ask_graph(asked.graph, "use the tool: fail")
        except LookupError:
            return
        raise AssertionError("it should have raised")

    context.doings += [use_tool, leave_in_the_middle]


@given("an agent over a graph that stops before its tools")
def an_agent_over_a_graph_that_stops_before_its_tools(context: Context) -> None:
    context.graph = GRAPHS["create_agent"](
        provider(), Tools().all(), checkpointer=InMemorySaver(), interrupt_before=["tools"]
    )
    context.agent = BaseAgent("agent", graph=context.graph)


@when("it is asked to use its tool")
def it_is_asked_to_use_its_tool(context: Context) -> None:
    try:
        context.answer = run(context.agent.run("use the tool: it"))
    except AgentError as error:
        context.error = error


@then("it raises an AgentError that says that the graph has stopped, and its thread is empty")
def step_it_raises_an_agenterror_that_says_that_the_graph_has(context: Context) -> None:
    assert "has stopped before 'tools'" in str(context.error), context.error
    state = context.graph.get_state({"configurable": {"thread_id": "agent"}})
    assert not state.values.get("messages"), state


# -- other checkpointers ---------------------------------------------------------------------------


class Hanging(InMemorySaver):
    """From when its tools have begun, until it is told to go on."""

    def __init__(self, tools: Tools) -> None:
        super().__init__()
        self.tools = tools

    async def aget_tuple(self, config: Any) -> Any:
        if self.tools.begun.is_set():
            await asyncio.Event().wait()
        return await super().aget_tuple(config)


class Full(InMemorySaver):
    """Saves no checkpoint from when its tools have begun, until it is told to go on."""

    def __init__(self, tools: Tools) -> None:
        super().__init__()
        self.tools = tools

    async def aput(self, *arguments: Any) -> Any:
        if self.tools.begun.is_set():
            raise OSError("no space")
        return await super().aput(*arguments)


SAVERS = {"hangs": Hanging, "saves nothing": Full}


def make_agent(context: Context, name: str, saver: type[Hanging | Full]) -> None:
    context.tools, context.model = Tools(), provider()
    tools = context.tools.all()
    graph = GRAPHS["create_agent"](context.model, tools, checkpointer=saver(context.tools))
    context.agent = BaseAgent(name, graph=graph)


@given("an agent over a graph with tools, whose checkpointer {fails} once its tool has begun")
def an_agent_whose_checkpointer_fails(context: Context, fails: str) -> None:
    make_agent(context, "agent", SAVERS[fails])


@when("the log is read while its tool ends, and what it did cannot be saved")
def the_log_is_read_while_its_tool_ends(context: Context) -> None:
    async def main() -> None:
        try:
            await context.agent.run("use the tool: it")
        except OSError:
            # As in another process, which knows nothing but what is saved.
            context.agent = BaseAgent("agent", graph=context.agent.graph)
            return
        raise AssertionError("it should have raised")

    with listening("rxlanggraph") as context.warnings:
        run(main())


@given(
    "an agent over a graph with tools, and a message on its thread at which a process was killed"
)
def a_message_at_which_a_process_was_killed(context: Context) -> None:
    make_agent(context, "thread", Full)
    context.message = HumanMessage("use the tool: it", id="the same")

    async def main() -> None:
        try:
            await context.agent.graph.ainvoke({"messages": [context.message]}, CONFIG)
        except OSError:
            context.tools.begun.clear()
            return
        raise AssertionError("it should have raised")

    run(main())


@when("it is asked with that very message")
def it_is_asked_with_that_very_message(context: Context) -> None:
    context.tools.begun = asyncio.Event()
    context.agent.graph.checkpointer.tools = Tools()
    context.answer = run(context.agent.run(context.message))


@then("it is answered, and the message is there once")
def it_is_answered_and_the_message_is_there_once(context: Context) -> None:
    assert context.answer == "re: did it", context.answer
    state = context.agent.graph.get_state(CONFIG)
    assert said(state.values["messages"]) == BEFORE, state


@when("the log is read while its tool raises")
def the_log_is_read_while_its_tool_raises(context: Context) -> None:
    async def main() -> None:
        try:
            await context.agent.run("use the tool: fail")
        except LookupError:
            return
        raise AssertionError("it should have raised")

    with listening("rxlanggraph") as context.warnings:
        run(main())


@then("the log says that it could not be undone")
def the_log_says_that_it_could_not_be_undone(context: Context) -> None:
    assert any("could not be undone" in text for text in context.warnings)


@then("once the checkpointer goes on, the next request is answered without a trace of the run")
def once_the_checkpointer_goes_on_the_next_request_is_answered(context: Context) -> None:
    context.tools.begun.clear()
    assert run(context.agent.run("hello", reset=True)) == "re: hello"
    assert said(context.model.shown[-1]) == [("human", "hello")], context.model.shown[-1]


@given("a graph with a checkpointer, whose node asks an agent over a graph with another one")
def a_graph_whose_node_asks_an_agent(context: Context) -> None:
    inner = GRAPHS["create_agent"](provider(), Tools().all(), checkpointer=InMemorySaver())
    context.agent = BaseAgent("agent", graph=inner)

    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", await context.agent.run("use the tool: it"))]}

    builder = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
    context.graph = builder.compile(checkpointer=InMemorySaver())


@when("it is asked twice")
def it_is_asked_twice(context: Context) -> None:
    async def main() -> None:
        for _ in range(2):
            context.state = await ask_graph(context.graph, "go")

    run(main())


@then("both answers are right, and the agent's thread is in its own checkpointer alone")
def both_answers_are_right(context: Context) -> None:
    assert said(context.state["messages"]) == [("human", "go"), ("ai", "re: did it")] * 2
    assert list(context.graph.checkpointer.storage) == ["thread"]
    assert list(context.agent.graph.checkpointer.storage) == ["agent"]
    held = context.agent.graph.get_state({"configurable": {"thread_id": "agent"}})
    assert said(held.values["messages"]) == BEFORE * 2


# -- subgraphs that remember -----------------------------------------------------------------------


@given("an agent over a graph with {kind} that remembers on the same thread, for each saver")
def step_an_agent_over_a_graph_with_kind_that_remembers_on_the(context: Context, kind: str) -> None:
    context.kind = kind


def over_subgraph(kind: str, saver: Any) -> tuple[BaseAgent, Any]:
    model = provider()
    inner = GRAPHS["create_agent"](model, Tools().all(), checkpointer=True)

    async def call(state: MessagesState) -> Any:
        return await inner.ainvoke({"messages": [state["messages"][-1]]})

    node = call if kind.endswith("its node calls") else inner
    builder = StateGraph(MessagesState).add_node("inner", node).add_edge(START, "inner")
    return BaseAgent("agent", graph=builder.compile(checkpointer=saver)), model


async def fail_tool(agent: BaseAgent) -> None:
    try:
        await agent.run("use the tool: fail")
    except LookupError:
        return
    raise AssertionError("it should have raised")


def for_each_saver(kind: str, requests: Sequence[str]) -> list[Any]:
    async def main() -> list[Any]:
        shown = []
        for name in ("in memory", "SQLite"):
            async with opened(name) as saver:
                agent, model = over_subgraph(kind, saver)
                for request in requests:
                    await (fail_tool(agent) if request == "fail" else agent.run(request))
                shown.append(said(model.shown[-1]))
        return shown

    return run(main())


@when("its subgraph has used its tool, which then raises twice")
def its_subgraph_has_used_its_tool(context: Context) -> None:
    requests = ["use the tool: it", "fail", "fail", "hello"]
    context.shown = for_each_saver(context.kind, requests)


@then("the next request is answered, and the subgraph's model sees what it saw before")
def the_subgraphs_model_sees_what_it_saw(context: Context) -> None:
    assert context.shown == [[*BEFORE, ("human", "hello")]] * 2, context.shown


@when("in its first run its tool raises")
def in_its_first_run_its_tool_raises(context: Context) -> None:
    context.shown = for_each_saver(context.kind, ["fail", "hello"])


@then("the next request is answered, and the subgraph's model sees that request alone")
def the_subgraphs_model_sees_that_request_alone(context: Context) -> None:
    assert context.shown == [[("human", "hello")]] * 2, context.shown
