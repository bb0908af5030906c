from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
from behave import given, then, when
from behave.runner import Context
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from mcp import Client

from rxlanggraph.agent import AgentPool, BaseAgent
from rxlanggraph.agent import run as run_module
from rxlanggraph.agent.mcp import mcp_server, sdk
from rxlanggraph.agent.mcp import server as mcp_module
from support.agent.mcp_agents import (
    IMAGE,
    SECRET,
    Documented,
    Obedient,
    Stubborn,
    made_tools,
    noting,
    text_in,
    with_client,
)
from support.cli.command import run_python
from support.concurrency.patching import patch
from support.concurrency.waiting import LIMIT, Gate

# -- as a tool of a server -------------------------------------------------------------------------


def some_agents() -> dict[str, Obedient]:
    agents = [
        Obedient("described", description="Knows the weather."),
        Documented("documented"),
        Obedient("plain", timeout=30),
        Obedient("hasty", timeout=0.05),
    ]
    return {agent.name: agent for agent in agents}


@given("a client of {era} at an MCP server of agents")
def step_a_client_of_era_at_an_mcp_server_of_agents(context: Context, era: str) -> None:
    context.era, context.serve, context.make = era, mcp_server, some_agents
    hear_the_log(context)


@given("a client of {era} at an MCP server whose agents are {served}")
def step_a_client_of_era_at_an_mcp_server_whose_agents_are_served(
    context: Context, era: str, served: str
) -> None:
    ways = {"served by mcp_server": mcp_server, "made tools themselves": made_tools}
    context.era, context.serve, context.make = era, ways[served], some_agents


@given("a client of {era} at an MCP server of agents, one of which will not be cancelled")
def step_a_client_of_era_at_an_mcp_server_of_agents_one_of_which(
    context: Context, era: str
) -> None:
    def make() -> dict[str, Obedient]:
        return {"plain": Obedient("plain"), "stubborn": Stubborn("stubborn")}

    context.era, context.serve, context.make = era, mcp_server, make
    hear_the_log(context)
    patch(context, run_module, "_CANCEL_SECONDS", 0.05)


def hear_the_log(context: Context) -> None:
    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            context.log.append(self.format(record))
            if "continues" in context.log[-1]:
                context.said_so.open()

    context.log, context.said_so = [], Gate()
    heard, logger = Heard(), logging.getLogger("rxlanggraph")
    logger.addHandler(heard)
    context.add_cleanup(logger.removeHandler, heard)


def talk(
    context: Context, conversation: Callable[[Client, dict[str, Obedient]], Awaitable[Any]]
) -> None:
    context.result = with_client(context.make, conversation, era=context.era, serve=context.serve)


@when("the client lists the tools")
def step_the_client_lists_the_tools(context: Context) -> None:
    async def listing(client: Client, _: dict[str, Obedient]) -> Any:
        return (await client.list_tools()).tools

    talk(context, listing)


@then("they are")
def step_they_are(context: Context) -> None:
    tools = {tool.name: tool.description for tool in context.result}
    for row in context.table:
        assert tools[row["name"]] == row["description"], tools


@then("each takes a message, and who sends it if need be")
def step_each_takes_a_message_and_who_sends_it_if_need_be(context: Context) -> None:
    for tool in context.result:
        schema = tool.input_schema
        assert schema["required"] == ["message"], schema
        assert {name: field["type"] for name, field in schema["properties"].items()} == {
            "message": "string",
            "sender": "string",
        }


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a word": ("plain", {"message": "hello", "sender": "behave"}),
    "JSON in a string": ("plain", {"message": '{"message": ["hello", 1]}'}),
    "a million letters": ("plain", {"message": "x" * 1_000_000}),
    "a request for blocks of text": ("plain", {"message": "blocks"}),
    "a request for a mapping": ("plain", {"message": "mapping"}),
    "a request for an image": ("plain", {"message": "image"}),
    "a request for nothing": ("plain", {"message": "nothing"}),
    "a message that hangs": ("hasty", {"message": "hang"}),
    "an empty message": ("plain", {"message": ""}),
    "no message": ("plain", {}),
    "a message that makes it fail": ("plain", {"message": "fail"}),
    "a message that cancels it": ("plain", {"message": "cancel"}),
}
ANSWERS: dict[str, Callable[[str], bool]] = {
    "the word": lambda text: text == "hello",
    "the same string": lambda text: text == '{"message": ["hello", 1]}',
    "all of them": lambda text: text == "x" * 1_000_000,
    "their text": lambda text: text == "one\ntwo",
    "the mapping as JSON": lambda text: json.loads(text) == {"degrees": 12},
    "the image as JSON": lambda text: json.loads(text) == IMAGE,
    "nothing": lambda text: text == "",
}


@when("the client calls the agent with {what}")
def step_the_client_calls_the_agent_with_what(context: Context, what: str) -> None:
    agent, fields = REQUESTS[what]

    async def calling(client: Client, _: dict[str, Obedient]) -> Any:
        return await client.call_tool(agent, fields)

    talk(context, calling)


@then("the tool answers {answer}")
def step_the_tool_answers_answer(context: Context, answer: str) -> None:
    assert not context.result.is_error, context.result
    assert ANSWERS[answer](text_in(context.result)), context.result


@then('the call fails with "{text}"')
def step_the_call_fails_with_text(context: Context, text: str) -> None:
    assert context.result.is_error, context.result
    assert text in text_in(context.result), context.result


@then("neither a traceback nor a secret is in it")
def step_neither_a_traceback_nor_a_secret_is_in_it(context: Context) -> None:
    text = text_in(context.result)
    assert "Traceback" not in text and "File " not in text and SECRET not in text, text


@then("the log holds the error with its secret")
def step_the_log_holds_the_error_with_its_secret(context: Context) -> None:
    assert any(f"Leaky: {SECRET}" in entry for entry in context.log), context.log


@when("the client is answered with {what}, while another call is on")
def client_is_answered_with(context: Context, what: str) -> None:
    async def calling(client: Client, agents: dict[str, Obedient]) -> Any:
        names = ["documented", "described"]
        barrier = asyncio.Barrier(2)
        for name in names:
            agents[name].work.barrier = barrier
        on = asyncio.create_task(client.call_tool("documented", {"message": "meet"}))
        failed = await client.call_tool("plain", {"message": what})
        following = await client.call_tool("described", {"message": "meet"})
        return failed, await on, following

    talk(context, calling)


@then('that call fails with "{text}"')
def that_call_fails_with(context: Context, text: str) -> None:
    failed, *_ = context.result
    assert failed.is_error and text in text_in(failed), failed
    assert SECRET not in text_in(failed), failed


@then("the other call is answered, and so is the next one")
def other_call_is_answered(context: Context) -> None:
    _, *others = context.result
    assert [text_in(result) for result in others] == ["meet"] * 2, others


@when("the client calls three agents that wait for each other")
def step_the_client_calls_three_agents_that_wait_for_each_other(context: Context) -> None:
    async def meeting(client: Client, agents: dict[str, Obedient]) -> Any:
        names, barrier = ["plain", "described", "documented"], asyncio.Barrier(3)
        for name in names:
            agents[name].work.barrier = barrier
        calls = [client.call_tool(name, {"message": "meet"}) for name in names]
        return await asyncio.gather(*calls)

    talk(context, meeting)


@then("all three have met")
def step_all_three_have_met(context: Context) -> None:
    assert [text_in(result) for result in context.result] == ["meet"] * 3, context.result


@when("the client makes {count:d} calls to one agent at once")
def step_the_client_makes_count_calls_to_one_agent_at_once(context: Context, count: int) -> None:
    context.words = [str(number) for number in range(count)]

    async def crowd(client: Client, agents: dict[str, Obedient]) -> Any:
        calls = [client.call_tool("plain", {"message": word}) for word in context.words]
        context.told = agents["plain"].work.told
        return await asyncio.gather(*calls)

    talk(context, crowd)


@then("all are answered, and they were begun in order, each after the end of the one before")
def step_all_are_answered_and_they_were_begun_in_order_each_after(context: Context) -> None:
    assert [text_in(result) for result in context.result] == context.words, context.result
    expected = [f"{what} {word}" for word in context.words for what in ("begin", "end")]
    assert context.told == expected, context.told


async def cancel_call(client: Client, agent: Obedient) -> None:
    """Cancel a call once its run is on, as the SDK and its users do: by the scope around it."""
    async with anyio.create_task_group() as group:
        group.start_soon(client.call_tool, agent.name, {"message": "hang"})
        await agent.work.begun.wait()
        group.cancel_scope.cancel()


@when("the client cancels a call once its run is on")
def step_the_client_cancels_a_call_once_its_run_is_on(context: Context) -> None:
    async def cancelling(client: Client, agents: dict[str, Obedient]) -> Any:
        agent = agents["plain"]
        await cancel_call(client, agent)
        await client.call_tool("plain", {"message": "hello"})  # in its turn: once that run is over
        return agent.work

    talk(context, cancelling)


@then("the run was cancelled once, and its cleanup came to its end")
def step_the_run_was_cancelled_once_and_its_cleanup_came_to_its_end(context: Context) -> None:
    work = context.result
    assert (work.cancelled, work.cleaned_up) == (1, 1), vars(work)
    assert work.told == ["begin hang", "end hang", "begin hello", "end hello"], work.told


@when("the client cancels a call to that one")
def step_the_client_cancels_a_call_to_that_one(context: Context) -> None:
    async def cancelling(client: Client, agents: dict[str, Any]) -> Any:
        stubborn = agents["stubborn"]
        await cancel_call(client, stubborn)
        try:
            return await client.call_tool("plain", {"message": "hello"})
        finally:
            await context.said_so.wait_async()
            stubborn.gate.open()
            await stubborn.run("after it", on_busy="enqueue")

    talk(context, cancelling)


@when("the client calls that one, which has a twentieth of a second")
def step_the_client_calls_that_one_which_has_a_twentieth_of_a(context: Context) -> None:
    async def waiting(client: Client, agents: dict[str, Any]) -> Any:
        stubborn = agents["stubborn"]
        stubborn.timeout = 0.05
        try:
            return await client.call_tool("stubborn", {"message": "hello"})
        finally:
            stubborn.gate.open()
            await stubborn.run("after it", LIMIT, on_busy="enqueue")

    talk(context, waiting)


@then("the log says that it continues")
def step_the_log_says_that_it_continues(context: Context) -> None:
    assert any(", and continues" in entry for entry in context.log), context.log


@then("the client may call the others")
def step_the_client_may_call_the_others(context: Context) -> None:
    assert text_in(context.result) == "hello", context.result


# -- what can be served ----------------------------------------------------------------------------

SERVED: dict[str, Callable[[], list[Any]]] = {
    "nothing": list,
    "two agents of one name": lambda: [BaseAgent("twin"), BaseAgent("twin")],
    "an agent with a blank name": lambda: [BaseAgent("the weather")],
    "an agent with a long name": lambda: [BaseAgent("n" * 129)],
    "a chat model": lambda: [FakeListChatModel(responses=["hello"])],
    "a pool whose name has blanks": lambda: [AgentPool(BaseAgent, name="the helpers")],
    "a pool that is called as an agent": lambda: [AgentPool(BaseAgent), BaseAgent("agents")],
}


@when("an MCP server of {what} is made")
def step_an_mcp_server_of_what_is_made(context: Context, what: str) -> None:
    noting(context, lambda: mcp_server(*SERVED[what]()))


GRACES = {"nan": math.nan, "inf": math.inf, "none": None, "soon": "soon", "-1": -1}


@when("serve_http is called with a grace of {grace}")
def step_serve_http_is_called_with_a_grace_of_grace(context: Context, grace: str) -> None:
    noting(context, lambda: mcp_module.serve_http(BaseAgent("plain"), port=0, grace=GRACES[grace]))


@when("{serving} is called on a loop")
def step_serving_is_called_on_a_loop(context: Context, serving: str) -> None:
    async def main() -> None:
        options = {"port": 0} if serving == "serve_http" else {}
        noting(context, lambda: getattr(mcp_module, serving)(BaseAgent("plain"), **options))

    asyncio.run(main())


@when("serve_http is called with a port that is in use")
def step_serve_http_is_called_with_a_port_that_is_in_use(context: Context) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        noting(context, lambda: mcp_module.serve_http(BaseAgent("plain"), port=port))


@when("the MCP part is imported where the SDK is not installed")
def step_the_mcp_part_is_imported_where_the_sdk_is_not_installed(context: Context) -> None:
    code = compile(Path(sdk.__file__).read_text(), sdk.__file__, "exec")
    with mock.patch.dict(sys.modules, {"mcp.server": None}):
        noting(context, lambda: exec(code, {"__name__": "without"}))


@when("a new interpreter makes an MCP server")
def step_a_new_interpreter_makes_an_mcp_server(context: Context) -> None:
    run_in_a_new_interpreter(
        context,
        "import logging\n"
        "from rxlanggraph.agent import BaseAgent\n"
        "from rxlanggraph.agent.mcp import mcp_server\n"
        "mcp_server(BaseAgent('plain'))\n"
        "root = logging.getLogger()\n"
        "print(root.level, *(type(handler).__name__ for handler in root.handlers))",
    )


@then("its log goes to a logging.StreamHandler, from WARNING")
def step_its_log_goes_to_a_logging_streamhandler_from_warning(context: Context) -> None:
    assert context.done.stdout.split() == ["30", "StreamHandler"], context.done


@when("a new interpreter without the SDK imports {module}")
def step_a_new_interpreter_without_the_sdk_imports_module(context: Context, module: str) -> None:
    run_in_a_new_interpreter(context, f"import sys; sys.modules['mcp'] = None; import {module}")


def run_in_a_new_interpreter(context: Context, code: str) -> None:
    context.done = run_python("-c", code)
