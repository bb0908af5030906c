from __future__ import annotations

import asyncio
import functools
import gc
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from rxlanggraph.agent import AgentPool, BaseAgent, Memory
from rxlanggraph.agent.mcp import conversations, mcp_server
from rxlanggraph.agent.mcp import server as mcp_module
from rxlanggraph.agent.mcp.conversations import ConversationTable
from rxlanggraph.concurrency.tasks import silence_pending_warning
from support.agent.mcp_agents import noting, text_in
from support.agent.mcp_conversations import QUESTION, WHOM, Served, Talk, said_in
from support.bridge.bridges import pass_time
from support.concurrency.listening import listening
from support.concurrency.patching import patch
from support.concurrency.pauses import until
from support.concurrency.waiting import Gate

# -- what is served --------------------------------------------------------------------------------


def serve(context: Context, whom: str, **options: Any) -> None:
    context.served = served = Served()
    target = WHOM[whom](served)
    if isinstance(target, BaseAgent):
        served.agent = target
    naive = not isinstance(target, BaseAgent | AgentPool)

    def make(*arguments: Any) -> ConversationTable:
        context.conversations = ConversationTable(*arguments)
        return context.conversations

    patch(context, mcp_module, "ConversationTable", make)
    context.server = target if naive else mcp_server(target, **options)


@given("{whom}, served over MCP")
def step_whom_served_over_mcp(context: Context, whom: str) -> None:
    serve(context, whom)


@given("{whom}, served over MCP with one conversation for all")
def step_whom_served_over_mcp_with_one_conversation_for_all(context: Context, whom: str) -> None:
    serve(context, whom, share_conversation=True)


@given("{whom}, served over MCP with room for {number:d} conversations")
def step_whom_served_over_mcp_with_room_for_number_conversations(
    context: Context, whom: str, number: int
) -> None:
    serve(context, whom, max_conversations=number)


@given("{whom}, served over MCP, which forgets after {seconds:d} seconds")
def step_whom_served_over_mcp_which_forgets_after_seconds_seconds(
    context: Context, whom: str, seconds: int
) -> None:
    context.now = 1000.0
    patch(context, conversations, "_now", lambda: context.now)
    serve(context, whom, conversation_timeout=seconds)


@given('an MCP server of an agent that remembers "{text}"')
def step_an_mcp_server_of_an_agent_that_remembers_text(context: Context, text: str) -> None:
    serve(context, "an agent with a model")
    context.served.agent.add_message("user", text)


@given("an MCP server of an agent that remembers {number:d} messages at most")
def step_an_mcp_server_of_an_agent_that_remembers_number_messages(
    context: Context, number: int
) -> None:
    serve(context, "an agent with a model")
    context.served.agent.memory = Memory(max_messages=number)


@given("{whom}, served over MCP to two clients with names of their own")
def step_whom_served_over_mcp_to_two_clients_with_names_of_their(
    context: Context, whom: str
) -> None:
    serve(context, whom)
    context.users = [
        AuthenticatedUser(AccessToken(token=name, client_id=name, scopes=[]))
        for name in ("ada", "ben")
    ]


# -- what is said ----------------------------------------------------------------------------------


def talk(context: Context, how: str, conversation: Callable[[Talk], Awaitable[Any]]) -> None:
    async def main() -> Any:
        async with Talk(context.server, how) as server:
            return await conversation(server)

    context.result = asyncio.run(main())


def conversation_of(result: Any) -> str:
    assert result.structured_content["answer"] == text_in(result), result
    return str(result.structured_content["conversation"])


@when('a client says "{text}" {how}, and another asks what was said')
def step_a_client_says_text_how_and_another_asks_what_was_said(
    context: Context, text: str, how: str
) -> None:
    async def asking(server: Talk) -> Any:
        async with server.client() as one, server.client() as other:
            assert text in text_in(await said_in(one, text))
            return await said_in(other, QUESTION)

    talk(context, how, asking)


def says_and_asks(context: Context, texts: list[str], how: str) -> None:
    async def asking(server: Talk) -> Any:
        async with server.client() as one, server.client() as other:
            for text in texts:
                await said_in(one, text)
                await said_in(other, "something else")
            return await said_in(one, QUESTION)

    talk(context, how, asking)


@when('a client says "{one}" and "{two}" {how}, and asks what was said')
def step_a_client_says_one_and_two_how_and_asks_what_was_said(
    context: Context, one: str, two: str, how: str
) -> None:
    says_and_asks(context, [one, two], how)


@then("the other has heard of nothing but its own question")
def heard_of_nothing(context: Context) -> None:
    assert text_in(context.result) == QUESTION, context.result


@then('it was told "{texts}" and its own question alone')
def was_told(context: Context, texts: str) -> None:
    assert text_in(context.result) == f"{texts}, {QUESTION}", context.result


@then('the agent itself remembers "{text}"')
def agent_itself_remembers(context: Context, text: str) -> None:
    messages = context.served.agent.memory.get_messages()
    assert [message.content for message in messages] == [text], messages


# -- without sessions ------------------------------------------------------------------------------


@when('a client says "{text}" over HTTP, and asks in the conversation that the answer names')
def asks_in_the_conversation(context: Context, text: str) -> None:
    async def asking(server: Talk) -> Any:
        async with server.client() as one, server.client() as other:
            context.first = await said_in(one, text)
            return await said_in(other, QUESTION, conversation_of(context.first))

    talk(context, "over HTTP", asking)


@then("the answers name the same conversation")
def answers_name_the_same(context: Context) -> None:
    assert conversation_of(context.result) == conversation_of(context.first)


@when("a client asks in a conversation that there is not")
def step_a_client_asks_in_a_conversation_that_there_is_not(context: Context) -> None:
    async def asking(server: Talk) -> Any:
        async with server.client() as one:
            return await said_in(one, QUESTION, "0123456789")

    talk(context, "over HTTP", asking)


@when(
    'one client says "{text}" over HTTP, and the other asks in the conversation that the '
    "answer names"
)
def step_one_client_says_text_over_http_and_the_other_asks_in_the(
    context: Context, text: str
) -> None:
    async def asking(server: Talk) -> Any:
        ada, ben = context.users
        async with server.client(ada) as one, server.client(ben) as other:
            first = conversation_of(await said_in(one, text))
            assert text_in(await said_in(one, "again", first)) == f"{text}, again"
            return await said_in(other, QUESTION, first)

    talk(context, "over HTTP", asking)


# -- bounded and retired ---------------------------------------------------------------------------


@when('a client says "{text}" {how}, and leaves')
def says_and_leaves(context: Context, text: str, how: str) -> None:
    async def leaving(server: Talk) -> Any:
        async with server.client() as one:
            await said_in(one, text)
            assert len(context.conversations) == 1
            context.during = remembered(context)
        await until(lambda: not context.conversations and not remembered(context))

    talk(context, how, leaving)


@when('a client says "{text}" {how}, and leaves before it is answered')
def step_a_client_says_text_how_and_leaves_before_it_is_answered(
    context: Context, text: str, how: str
) -> None:
    async def leaving(server: Talk) -> Any:
        async with server.client() as one:
            call = asyncio.create_task(said_in(one, text))
            await context.served.begun.wait_async()
            assert len(context.conversations) == 1
        await asyncio.wait({call})
        assert call.cancelled() or call.exception() is not None, call
        await until(lambda: not context.conversations)

    talk(context, how, leaving)


def remembered(context: Context) -> list[Any]:
    """What is kept outside of the agent's own memory."""
    served = context.served
    kept = served.pool._store._saved if served.pool else []
    return [*served.saver.storage, *kept]


@then('the server has no conversation, and nothing remembers "{_text}"')
def step_the_server_has_no_conversation_and_nothing_remembers_text(
    context: Context, _text: str
) -> None:
    assert not context.conversations and not remembered(context)
    if context.served.agent is not None:
        assert not context.served.agent.memory.get_messages()


@when("clients begin {number:d} conversations over HTTP")
def clients_begin(context: Context, number: int) -> None:
    async def beginning(server: Talk) -> Any:
        async with server.client() as one:
            begun = [conversation_of(await said_in(one, f"tea {i}")) for i in range(number)]
            return [await said_in(one, QUESTION, each) for each in begun]

    talk(context, "over HTTP", beginning)


@then("the first of them is gone, and the others go on")
def first_is_gone(context: Context) -> None:
    first, *others = context.result
    assert first.is_error and "there is no such conversation" in text_in(first), first
    for number, other in enumerate(others, start=1):
        assert text_in(other) == f"tea {number}, {QUESTION}", other


@then("the checkpointer has {number:d} threads")
def checkpointer_has(context: Context, number: int) -> None:
    # At its end the server forgets the rest.
    assert len(context.served.saver.storage) <= number, context.served.saver.storage


@when("a client begins another conversation while a call in the first is on")
def begins_while_on(context: Context) -> None:
    async def beginning(server: Talk) -> Any:
        async with server.client() as one, server.client() as other:
            first = asyncio.create_task(said_in(one, "wait"))
            await context.served.begun.wait_async()
            try:
                return await said_in(other, QUESTION)
            finally:
                context.served.gate.open()
                context.first = await first

    talk(context, "over HTTP", beginning)


@then("the first call is answered")
def first_is_answered(context: Context) -> None:
    assert text_in(context.first) == "wait", context.first


@when("a conversation over HTTP was quiet for {seconds:d} seconds")
def step_a_conversation_over_http_was_quiet_for_seconds_seconds(
    context: Context, seconds: int
) -> None:
    async def waiting(server: Talk) -> Any:
        async with server.client() as one:
            first = conversation_of(await said_in(one, "tea"))
            context.now += seconds - 2
            context.kept = await said_in(one, "milk", first)
            context.now += seconds
            return await said_in(one, QUESTION, first)

    talk(context, "over HTTP", waiting)


@then("there is no such conversation any more")
def step_there_is_no_such_conversation_any_more(context: Context) -> None:
    assert text_in(context.kept) == "tea, milk", context.kept
    assert context.result.is_error, context.result
    assert "there is no such conversation" in text_in(context.result), context.result
    assert not context.conversations


@given("a call that has begun a conversation")
def call_has_begun(context: Context) -> None:
    context.conversations = ConversationTable(1, 60.0)
    scope, request = conversations._ConversationScope(), SimpleNamespace(scope={})
    ctx: Any = SimpleNamespace(session=None, lifespan_context=scope, request=request)

    async def call() -> None:
        async with context.conversations.joined(ctx, "") as joined:
            with joined.conversation.entered():
                await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    context.call = loop.create_task(call())
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert len(context.conversations) == 1


@when("its loop is gone, and a collector closes its coroutine")
def collector_closes(context: Context) -> None:
    context.unraisable = []
    patch(context, sys, "unraisablehook", context.unraisable.append)
    silence_pending_warning(context.call)
    del context.call
    gc.collect()


@then("there is no conversation, and the collector had no error")
def step_there_is_no_conversation_and_the_collector_had_no_error(context: Context) -> None:
    assert not context.conversations
    assert not context.unraisable, context.unraisable


# -- forgotten everywhere --------------------------------------------------------------------------


class Forgetless(InMemorySaver):
    """If it hangs, its time is over when the others are done, however busy the machine is."""

    others_are_done: Callable[[], bool]
    ending: asyncio.Task[None]

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how
        self.gate = Gate()

    async def _end_time(self) -> None:
        await until(self.others_are_done)
        pass_time(asyncio.get_running_loop(), conversations._FORGET_SECONDS)

    async def adelete_thread(self, thread_id: str) -> None:
        while self._how.startswith("hangs") and not self.gate.is_open:
            self.ending = asyncio.create_task(self._end_time())
            try:
                await self.gate.wait_async()
            except asyncio.CancelledError:
                if "deaf" not in self._how:
                    raise
        if self._how == "raises":
            raise OSError("no connection")
        await super().adelete_thread(thread_id)


class ForgetlessPool(AgentPool):
    async def forget(self, *_: Any, **__: Any) -> None:
        raise OSError("no connection")


@given("agents and a pool, served over MCP, of which {one} does not forget")
def agents_of_which_one_does_not_forget(context: Context, one: str) -> None:
    how = one.removeprefix("a checkpointer that ")
    context.forgetless, context.savers = one, [Forgetless(how), InMemorySaver()]
    served = Served()
    agents = [
        BaseAgent(f"agent-{number}", graph=served.graph(checkpointer=saver))
        for number, saver in enumerate(context.savers)
    ]
    context.pools = [
        cls(lambda name: BaseAgent(name, llm=served.recall), name=cls.__name__)
        for cls in ([ForgetlessPool] if "pool" in one else []) + [AgentPool]
    ]
    forgetless, forgetful = context.savers
    saved = context.pools[-1]._store._saved
    forgetless.others_are_done = lambda: not (forgetful.storage or saved)
    context.server = mcp_server(*agents, *context.pools)


@when('a client that has said "{text}" to all of them leaves')
def step_a_client_that_has_said_text_to_all_of_them_leaves(context: Context, text: str) -> None:
    async def leaving(server: Talk) -> None:
        async with server.client() as client:
            for tool in (await client.list_tools()).tools:
                await client.call_tool(tool.name, {"message": text})
        context.left = [bool(saver.storage) for saver in context.savers]
        context.savers[0].gate.open()

    with listening("rxlanggraph") as context.log:
        talk(context, "in this process", leaving)


@then("the others have forgotten, and the log tells of it")
def others_have_forgotten(context: Context) -> None:
    assert any("could not be forgotten everywhere" in text for text in context.log), context.log
    assert context.left == ["checkpointer" in context.forgetless, False], context.left
    assert not context.pools[-1]._store._saved


@when('a client says "{text}" {how}, and leaves while another is answered')
def leaves_while_another_is_answered(context: Context, text: str, how: str) -> None:
    async def leaving(server: Talk) -> None:
        async with server.client() as other:
            async with server.client() as one:
                await said_in(one, text)
                call = asyncio.create_task(said_in(other, "wait"))
                await context.served.begun.wait_async()
            context.left = remembered(context)
            context.served.gate.open()
            await call

    talk(context, how, leaving)


@then('nothing remembers "{_text}" before that is')
def nothing_remembers_before(context: Context, _text: str) -> None:
    assert not context.left, context.left


@when('a client tells it "{text}", and both ask what was said')
def both_ask(context: Context, text: str) -> None:
    async def asking(server: Talk) -> Any:
        async with server.client() as one, server.client() as other:
            await said_in(one, text)
            return [text_in(await said_in(each, QUESTION)) for each in (one, other)]

    context.told = text
    talk(context, "in this process", asking)


@then("the first is told that, and the other its own question")
def first_is_told_that(context: Context) -> None:
    assert context.result == [f"{context.told}, {QUESTION}", QUESTION], context.result


# -- what is refused -------------------------------------------------------------------------------

NUMBERS: dict[str, Any] = {"0": 0, "1.5": 1.5, "soon": "soon"}


@when("an MCP server is made with {number} for {argument}")
def server_is_made_with(context: Context, number: str, argument: str) -> None:
    options = {argument: NUMBERS[number]}
    noting(context, functools.partial(mcp_server, BaseAgent("ann"), **options))
