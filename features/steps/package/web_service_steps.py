"""The web service behind a real server, and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any

import httpx
from behave import given, then, when
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from starlette.requests import Request

from rxlanggraph.hooks import Hooks, RunEnded, RunQueued
from support.bridge.bridges import LentLoop, arguments
from support.cli import command
from support.cli.examples import example_of
from support.concurrency.patching import patch
from support.concurrency.tasks import pass_turns
from support.concurrency.waiting import LIMIT, Gate, Log
from support.web.client import EventStream, ask, new_client, numbers
from support.web.process import TOKENS, ServiceProcess
from support.web.server import WebServer
from support.web.speaker import Speaker, spoken

# -- the service -----------------------------------------------------------------------------------


class Watched(Hooks):
    """What has happened to the runs of the service."""

    def __init__(self) -> None:
        self.queued, self.ended = Log(), Log()

    def on_queued(self, event: RunQueued) -> None:
        self.queued.add(event.message.id)

    def on_ended(self, event: RunEnded) -> None:
        self.ended.add(event.status)


def found(pattern: str, described: str) -> str | None:
    match = re.search(pattern, described)
    return None if match is None else match[1]


def serve(context: Context, described: str = "", loop: str = "asyncio") -> None:
    """Start the service, with a model of its own or the one that is described."""
    stack = contextlib.ExitStack()
    context.add_cleanup(stack.close)
    context.example = example = stack.enter_context(example_of("web_service"))
    if keeps := found(r"keeps (\d+)", described):
        patch(context, example, "KEPT", int(keeps))
    if drains := found(r"drains for ([\d.]+) s", described):
        patch(context, example, "DRAIN", float(drains))
    if pings := found(r"pings every ([\d.]+) s", described):
        patch(context, example, "PING", float(pings))
    context.tokens = int(found(r"says (\d+) ", described) or 20)
    before = found(r"waits before (\d+|each tenth)", described)
    waits = range(10, context.tokens, 10) if before == "each tenth" else [int(before or -1)]
    context.gates = {number: Gate() for number in waits}
    fails_at = found(r"fails before token (\d+)", described)
    speaker = Speaker(
        tokens=context.tokens,
        about_to=Log(),
        gates=context.gates,
        fails_at=None if fails_at is None else int(fails_at),
        padding="x" * 100_000 if "long tokens" in described else "",
    )
    context.about_to = speaker.about_to

    @contextlib.asynccontextmanager
    async def open_graph() -> AsyncIterator[Any]:
        yield example.build(InMemorySaver(), lambda _: speaker)

    graph = [open_graph] if described else []
    app = example.make_app(*graph, **arguments(found(r" with (.*)$", described) or ""))
    context.server = WebServer(app, loop=loop, timeout_graceful_shutdown=LIMIT)
    context.bridge, context.url = app.state.bridge, context.server.url
    context.watched = Watched()
    context.bridge.add_hooks(context.watched)
    context.add_cleanup(context.server.stop)
    context.add_cleanup(lambda: go_on(context))
    have_clients(context)


def have_clients(context: Context) -> None:
    context.clients = LentLoop()
    context.add_cleanup(context.clients.end)

    async def make() -> httpx.AsyncClient:
        return new_client(context.url)

    context.client = context.clients.run(make())
    context.add_cleanup(lambda: context.clients.run(context.client.aclose()))


def go_on(context: Context) -> None:
    for gate in context.gates.values():
        gate.open()


def begin(context: Context, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Have a client do something; cancelling the future has it leave."""
    return asyncio.run_coroutine_threadsafe(coroutine, context.clients.loop)


def conversation(context: Context, thread: str = "ada") -> Any:
    return context.clients.run(context.client.get(f"/chat/{thread}")).json()


@given("the web service")
def step_the_web_service(context: Context) -> None:
    serve(context)


@given("the web service, whose model {described}")
def step_the_web_service_whose_model(context: Context, described: str) -> None:
    serve(context, described)


@given("the web service on {loop}, whose model {described}")
def step_the_web_service_on_loop_whose_model(context: Context, loop: str, described: str) -> None:
    serve(context, described, loop)


@given("it does not listen for disconnects while it makes an answer")
def step_it_does_not_listen_for_disconnects(context: Context) -> None:
    async def receive() -> Any:
        await asyncio.get_running_loop().create_future()

    patch(context, Request, "receive", property(lambda _: receive))


# -- answers and tokens ----------------------------------------------------------------------------


@when('"{first}" and "{second}" are sent to ada, one after the other')
def step_first_and_second_are_sent_to_ada(context: Context, first: str, second: str) -> None:
    context.texts = [first, second]
    context.responses = [
        context.clients.run(ask(context.client, "ada", text)) for text in context.texts
    ]


@then("both were answered with what the fake model says back")
def step_both_were_answered(context: Context) -> None:
    answers = [each.json() for each in context.responses]
    assert [each["text"] for each in answers] == [f"You said: {text}" for text in context.texts]
    assert [each["status"] for each in answers] == ["ok", "ok"]


@then("the conversation of ada has these four messages")
def step_the_conversation_of_ada_has_these_four_messages(context: Context) -> None:
    first, second = context.texts
    assert conversation(context) == {
        "messages": [
            ["human", first],
            ["ai", f"You said: {first}"],
            ["human", second],
            ["ai", f"You said: {second}"],
        ],
        "questions": [],
        "runs": [],
    }


def raw(content: bytes) -> dict[str, Any]:
    return {"content": content, "headers": {"content-type": "application/json"}}


ID = str(uuid.uuid4())
INVALID: dict[str, tuple[str, str, dict[str, Any]]] = {
    "an empty text": ("POST", "ada", {"json": {"text": ""}}),
    "a text of 4001 letters": ("POST", "ada", {"json": {"text": "a" * 4001}}),
    "an unknown field": ("POST", "ada", {"json": {"text": "a", "timeout": 1}}),
    "an unknown strategy": ("POST", "ada", {"json": {"text": "a", "multitask_strategy": "x"}}),
    "an unknown disconnection": ("POST", "ada", {"json": {"text": "a", "on_disconnect": "x"}}),
    "a text that UTF-8 cannot hold": ("POST", "ada", raw(b'{"text": "\\ud800"}')),
    "a field that UTF-8 cannot hold": ("POST", "ada", raw(b'{"text": "a", "\\ud800": 1}')),
    "lists in 5000 lists": ("POST", "ada", raw(b'{"text": ' + b"[" * 5000 + b"]" * 5000 + b"}")),
    "no JSON": ("POST", "ada", raw(b"{")),
    "a thread id with a dot": ("POST", "ada.b", {"json": {"text": "a"}}),
    "a thread id of 65 letters": ("POST", "a" * 65, {"json": {"text": "a"}}),
    "a malformed interrupt id": ("POST", "ada", {"json": {"interrupt_id": "1", "value": 1}}),
    "a malformed event id": ("GET", "ada", {"headers": {"Last-Event-ID": f"{ID}:x"}}),
    "no event id": ("GET", "ada", {}),
}


@when("a web client sends {what}")
def step_a_web_client_sends(context: Context, what: str) -> None:
    method, thread, body = INVALID[what]
    paths = [f"/chat/{thread}/stream", f"/chat/{thread}"]
    sent = [
        context.client.request(method, path, **body) for path in paths[: 1 + (method == "POST")]
    ]
    context.responses = [context.clients.run(each) for each in sent]


@then("the web service refuses that, and has started no run")
def step_the_web_service_refuses_that(context: Context) -> None:
    statuses = {each.status_code for each in context.responses}
    assert statuses <= {400, 422}, [each.text for each in context.responses]  # 400: no JSON
    assert context.bridge.statistics().submitted == 0


@when("a stream of ada is read up to the token {last:d}, and the model goes on")
def step_a_stream_of_ada_is_read_up_to_the_token(context: Context, last: int) -> None:
    async def read() -> list[Any]:
        stream = await EventStream.open(context.client, "ada")
        events = await stream.take(last + 1)
        assert not context.gates[last + 1].is_open
        go_on(context)
        return events + await stream.rest()

    context.events = context.clients.run(read())


@when("a stream of ada is read until it has pinged twice, and the model goes on")
def step_a_stream_of_ada_is_read_until_it_has_pinged_twice(context: Context) -> None:
    async def read() -> list[Any]:
        stream = await EventStream.open(context.client, "ada")
        reading = asyncio.create_task(stream.rest())
        await asyncio.to_thread(stream.pings.wait_for, 2)
        go_on(context)
        return await reading

    context.events = context.clients.run(read())


@then("the client has got each of the {count:d} tokens once, in order, and the result")
def step_the_client_has_got_each_of_the_tokens_once(context: Context, count: int) -> None:
    check_whole(context.events, range(count), spoken(count))


def check_whole(events: list[Any], tokens: range, text: str) -> None:
    assert numbers(events) == list(tokens), numbers(events)
    end = events[-1]
    assert end["event"] == "end" and end["data"]["status"] == "ok", end
    assert end["data"]["text"] == text, end


@then("each row of statuses in docs/web.md is one of the example, and none is missing")
def step_each_row_of_statuses_is_one_of_the_example(context: Context) -> None:
    text = (command.ROOT / "docs" / "web.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text, re.MULTILINE)
    statuses = context.example.STATUS.items()
    assert sorted(rows) == sorted((str(status), error.__name__) for error, status in statuses)


# -- clients that leave ----------------------------------------------------------------------------


@when('a client with on_disconnect="{policy}" leaves {what}')
def step_a_client_leaves(context: Context, policy: str, what: str) -> None:
    client, options = context.client, {"on_disconnect": policy}
    call = ask if "an answer" in what else EventStream.open
    first = None
    if "queued" in what:
        first = begin(context, ask(client, "ada", on_disconnect="continue"))
        context.about_to.wait_for(1)
    if "after 3 tokens" in what:

        async def leave() -> None:
            stream = await EventStream.open(client, "ada", **options)
            context.events, context.last_id = await stream.take(3), stream.last_id
            await stream.leave()

        context.clients.run(leave())
    else:
        request = begin(context, call(client, "ada", **options))
        context.watched.queued.wait_for(1 if first is None else 2)
        context.about_to.wait_for(1 + max(context.gates))
        request.cancel()
    if first is not None and policy == "cancel":
        context.watched.ended.wait_for(1)  # that of the one which was queued
        go_on(context)
        assert first.result(LIMIT).status_code == 200
    elif first is not None:
        first.cancel()


@then("its run is cancelled, and nothing is in flight")
def step_its_run_is_cancelled(context: Context) -> None:
    limit = 2.0 if "tdd_expected_fail" in context.tags else LIMIT
    assert context.bridge.registry.wait_idle(limit), context.bridge.registry.snapshot()
    assert context.watched.ended.wait_for(1)[0] == "cancelled"
    context.server.wait_for_requests()
    assert context.clients.run(context.client.get("/runs")).json() == []


@then("its run is still in flight")
def step_its_run_is_still_in_flight(context: Context) -> None:
    context.server.wait_for_requests()
    runs = context.clients.run(context.client.get("/runs")).json()
    assert len(runs) == len(context.watched.queued), runs
    assert {each["thread_id"] for each in runs} == {"ada"}
    assert {each["state"] for each in runs} <= {"running", "waiting_for_thread"}, runs
    assert conversation(context)["runs"][0]["message_id"] == runs[0]["message_id"]


@then("when the model goes on, the conversation has its {count:d} tokens")
def step_when_the_model_goes_on_the_conversation_has(context: Context, count: int) -> None:
    go_on(context)
    check_conversation(context, count)


@then("the conversation has its {count:d} tokens")
def step_the_conversation_has_its_tokens(context: Context, count: int) -> None:
    check_conversation(context, count)


def check_conversation(context: Context, count: int) -> None:
    assert context.bridge.registry.wait_idle(LIMIT)
    assert conversation(context)["messages"][-1] == ["ai", spoken(count)]
    assert set(context.watched.ended) == {"ok"}


# -- clients that come back ------------------------------------------------------------------------


@when("a client of a stream leaves at {count:d} random tokens, and comes back with Last-Event-ID")
def step_a_client_leaves_and_comes_back(context: Context, count: int) -> None:
    leave_at = set(Random(5).sample(range(max(context.gates) - 1), count))

    async def read() -> list[Any]:
        client, events = context.client, []
        stream = await EventStream.open(client, "ada", on_disconnect="continue")
        while not events or events[-1]["event"] == "token":
            events += await stream.take(1)
            number = len(events) - 1
            if number in leave_at:
                await stream.leave()
                stream = await EventStream.join(client, "ada", stream.last_id or "")
                assert stream.response.status_code == 200
            if number + 1 in context.gates:
                context.gates[number + 1].open()
        await stream.leave()
        return events

    context.events = context.clients.run(read())


@when("it comes back with the id of the run in the conversation, and the model goes on")
def step_it_comes_back_with_the_id_of_the_run(context: Context) -> None:
    async def read() -> list[Any]:
        (run,) = (await context.client.get("/chat/ada")).json()["runs"]
        stream = await EventStream.join(context.client, "ada", run["message_id"])
        go_on(context)
        return await stream.rest()

    context.events = context.clients.run(read())


@when("a stream of ada is followed by a second client from its 2nd token on")
def step_a_stream_is_followed_by_a_second_client(context: Context) -> None:
    async def read() -> list[Any]:
        first = await EventStream.open(context.client, "ada")
        await first.take(2)
        second = await EventStream.join(context.client, "ada", first.last_id or "")
        go_on(context)
        return list(await asyncio.gather(first.rest(), second.rest()))

    context.both = context.clients.run(read())


@then("both have got what follows, each token once, and the result")
def step_both_have_got_what_follows(context: Context) -> None:
    for events in context.both:
        check_whole(events, range(2, 20), spoken(20))


@when("a client comes back to {what}")
def step_a_client_comes_back_to(context: Context, what: str) -> None:
    async def leave() -> str:
        stream = await EventStream.open(context.client, "ada", on_disconnect="continue")
        await stream.take(1)
        await stream.leave()
        return stream.last_id or ""

    last_id, thread = context.clients.run(leave()), "ada"
    context.server.wait_for_requests()
    if what == "tokens that have left":
        context.about_to.wait_for(20)
    elif what == "a run that has ended":
        go_on(context)
        assert context.bridge.registry.wait_idle(LIMIT)
    elif what == "a run of another thread":
        thread = "ben"
    else:
        last_id = f"{ID}:0"

    async def come_back() -> httpx.Response:
        stream = await EventStream.join(context.client, thread, last_id)
        await stream.response.aread()
        return stream.response

    context.response = context.clients.run(come_back())


@when("a client comes back, reads one token, and pauses until the run has ended")
def step_a_client_comes_back_and_pauses(context: Context) -> None:
    async def come_back() -> EventStream:
        first = await EventStream.open(context.client, "ada", on_disconnect="continue")
        await first.take(1)
        await first.leave()
        stream = await EventStream.join(context.client, "ada", first.last_id or "")
        await stream.take(1)
        return stream

    stream = context.clients.run(come_back())
    context.server.wait_for_requests(but=1)
    go_on(context)
    assert context.bridge.registry.wait_idle(LIMIT)
    context.events = context.clients.run(stream.rest())


@then('its stream ends with "lost", behind tokens without a gap')
def step_its_stream_ends_with_lost(context: Context) -> None:
    *tokens, last = context.events
    assert last["event"] == "lost", last["event"]
    assert numbers(tokens) == list(range(2, 2 + len(tokens))) and len(tokens) < context.tokens - 3


# -- back-pressure and busy threads ----------------------------------------------------------------


async def asked_for(context: Context, route: str, thread: str, **options: Any) -> httpx.Response:
    """A response that is read to its end; the events of a stream are ``context.events``."""
    if route == "an answer":
        return await ask(context.client, thread, **options)
    stream = await EventStream.open(context.client, thread, **options)
    if stream.response.status_code == 200:
        context.events = await stream.rest()
    else:
        await stream.response.aread()
    return stream.response


@when("{count:d} clients wait, and one more asks for {route}")
def step_clients_wait_and_one_more_asks_for(context: Context, count: int, route: str) -> None:
    context.waiting = []
    for number in range(count):
        context.waiting.append(begin(context, ask(context.client, f"thread-{number}")))
        context.watched.queued.wait_for(number + 1)
        context.about_to.wait_for(1)
    context.response = context.clients.run(asked_for(context, route, "ada"))


@then("when the model goes on, all {count:d} are answered, and so is the next one")
def step_when_the_model_goes_on_all_are_answered(context: Context, count: int) -> None:
    go_on(context)
    responses = [each.result(LIMIT) for each in context.waiting]
    assert len(responses) == count
    responses.append(context.clients.run(ask(context.client, "ada")))
    assert {each.json()["text"] for each in responses} == {spoken(20)}


@then('the web service answers {status:d} with "{error}", and when to try again')
def step_the_web_service_answers_and_when_to_try_again(
    context: Context, status: int, error: str
) -> None:
    check_refusal(context, status, error)
    assert int(context.response.headers["retry-after"]) > 0


@then('the web service answers {status:d} with "{error}"')
def step_the_web_service_answers_with(context: Context, status: int, error: str) -> None:
    check_refusal(context, status, error)


def check_refusal(context: Context, status: int, error: str) -> None:
    response = context.response
    assert response.status_code == status, (response.status_code, response.text)
    assert response.json()["error"] == error, response.text


@when('ada\'s thread is busy, and {route} is asked for with multitask_strategy="reject"')
def step_adas_thread_is_busy_and_route_is_asked_for(context: Context, route: str) -> None:
    async def read() -> None:
        stream = await EventStream.open(context.client, "ada")
        await stream.take(3)
        context.response = await asked_for(context, route, "ada", multitask_strategy="reject")
        go_on(context)
        check_whole(await stream.rest(), range(3, 20), spoken(20))

    context.clients.run(read())


@when("a stream of ada has begun, and a newer request interrupts it")
def step_a_stream_has_begun_and_a_newer_request_interrupts_it(context: Context) -> None:
    async def read() -> None:
        stream = await EventStream.open(context.client, "ada")
        await stream.take(3)
        newer = asyncio.create_task(ask(context.client, "ada", multitask_strategy="interrupt"))
        context.events = await stream.rest()
        go_on(context)
        context.response = await newer

    context.clients.run(read())


@then('the stream ends with the status "{status}"')
def step_the_stream_ends_with_the_status(context: Context, status: str) -> None:
    (end,) = context.events
    assert (end["event"], end["data"]["status"]) == ("end", status), end


@then("the newer request is answered once the model goes on")
def step_the_newer_request_is_answered(context: Context) -> None:
    assert context.response.status_code == 200
    assert context.response.json()["text"] == spoken(20)


# -- questions -------------------------------------------------------------------------------------


async def ended(context: Context, route: str, **body: Any) -> tuple[httpx.Response, Any]:
    """A response, and how its run has ended."""
    if route == "an answer":
        response = await context.client.post("/chat/ada", json=body)
        return response, response.json()
    response = await context.client.post("/chat/ada/stream", json=body)
    if response.status_code != 200:
        return response, response.json()
    events = [each async for each in EventStream(response)._read()]
    return response, events[-1]["data"]


@when("ada asks for a refund by {first}, and it is granted twice, the second time by {second}")
def step_ada_asks_for_a_refund_by(context: Context, first: str, second: str) -> None:
    async def refund() -> None:
        _, asked = await ended(context, first, text="/refund 20")
        (question,) = asked["questions"]
        answer = {"interrupt_id": question["interrupt_id"], "value": True}
        _, granted = await ended(context, first, **answer)
        context.response, _ = await ended(context, second, **answer)
        context.asked, context.granted = asked, granted

    context.clients.run(refund())


@then("the question came with the first response, the refund with the second")
def step_the_question_came_with_the_first_response(context: Context) -> None:
    assert context.asked["status"] == "interrupted" and context.asked["text"] is None
    assert context.asked["questions"][0]["value"] == {"allow": "/refund 20"}
    assert (context.granted["status"], context.granted["text"]) == ("ok", "It is refunded.")


@when("ada asks for a refund, and {count:d} clients answer at once")
def step_ada_asks_for_a_refund_and_clients_answer(context: Context, count: int) -> None:
    async def refund() -> None:
        _, asked = await ended(context, "an answer", text="/refund 20")
        answer = {"interrupt_id": asked["questions"][0]["interrupt_id"], "value": True}
        routes = ["an answer", "a stream"] * (count // 2)
        both = await asyncio.gather(*(ended(context, route, **answer) for route in routes))
        context.statuses = [response.status_code for response, _ in both]

    context.clients.run(refund())


@then("one of them gets 200, and {others:d} get 409")
def step_one_of_them_gets_200(context: Context, others: int) -> None:
    assert sorted(context.statuses) == [200] + [409] * others, context.statuses


@when("ada asks for a refund, and then for something else")
def step_ada_asks_for_a_refund_and_then_for_something_else(context: Context) -> None:
    async def refund() -> None:
        _, asked = await ended(context, "an answer", text="/refund 20")
        context.questions = asked["questions"]
        context.response, _ = await ended(context, "a stream", text="Hello")

    context.clients.run(refund())


@then("the question came with it, and is in the conversation")
def step_the_question_came_with_it(context: Context) -> None:
    assert context.response.json()["questions"] == context.questions
    assert conversation(context)["questions"] == context.questions


# -- failures --------------------------------------------------------------------------------------


@when("a web client asks for {route}")
def step_a_web_client_asks_for(context: Context, route: str) -> None:
    context.response = context.clients.run(asked_for(context, route, "ada"))


@when("its bridge is closed, and a web client asks for {route}")
def step_its_bridge_is_closed_and_a_web_client_asks_for(context: Context, route: str) -> None:
    context.server.run(context.bridge.aclose())
    context.response = context.clients.run(asked_for(context, route, "ada"))


@then("the web service answers 500, and does not say why")
def step_the_web_service_answers_500(context: Context) -> None:
    assert context.response.status_code == 500
    assert "secret" not in context.response.text


@then('it got {count:d} tokens, and then the status "{status}" of a "{error}"')
def step_it_got_tokens_and_then_the_status(
    context: Context, count: int, status: str, error: str
) -> None:
    *tokens, end = context.events
    assert numbers(tokens) == list(range(count))
    assert (end["data"]["status"], end["data"]["error"]) == (status, error), end


@then("it does not say why")
def step_it_does_not_say_why(context: Context) -> None:
    assert "secret" not in str(context.events)


# -- looking inside --------------------------------------------------------------------------------


@when("a stream of ada has begun, and its service is looked at")
def step_a_stream_has_begun_and_its_service_is_looked_at(context: Context) -> None:
    async def read() -> None:
        stream = await EventStream.open(context.client, "ada")
        await stream.take(3)
        context.health = (await context.client.get("/health")).json()
        context.runs = (await context.client.get("/runs")).json()
        go_on(context)
        await stream.rest()

    context.clients.run(read())


@then('/health counts 1 run, and /runs shows that of ada at its node "{node}"')
def step_health_counts_1_run(context: Context, node: str) -> None:
    assert context.health == {"status": "ok", "in_flight": 1, "submitted": 1}
    (run,) = context.runs
    assert (run["thread_id"], run["state"], run["node"]) == ("ada", "running", node), run
    assert context.bridge.registry.wait_idle(LIMIT)
    assert context.clients.run(context.client.get("/runs")).json() == []


# -- many at once ----------------------------------------------------------------------------------


async def stay(context: Context, route: str, thread: str, **options: Any) -> tuple[int, str]:
    """A client that reads to the end: the status, and what it was told."""
    if route == "an answer":
        response = await ask(context.client, thread, **options)
        return response.status_code, response.json().get("text", "")
    stream = await EventStream.open(context.client, thread, **options)
    if stream.response.status_code != 200:
        await stream.leave()
        return stream.response.status_code, ""
    events = await stream.rest()
    check_whole(events, range(12), spoken(12))
    return 200, events[-1]["data"]["text"]


async def leave_early(
    context: Context, route: str, thread: str, random: Random, **options: Any
) -> None:
    """A client that leaves: behind a token, or at any moment before."""
    tokens, turns = random.randrange(-2, 11), random.randrange(100)
    if route == "a stream" and tokens >= 0:
        stream = await EventStream.open(context.client, thread, **options)
        if stream.response.status_code == 200:
            await stream.take(tokens)
        await stream.leave()
        return
    call = ask if route == "an answer" else EventStream.open
    request = asyncio.ensure_future(call(context.client, thread, **options))
    await pass_turns(turns)
    request.cancel()
    await asyncio.wait([request])
    if not request.cancelled() and isinstance(request.result(), EventStream):
        await request.result().leave()


@when("{count:d} clients come at once, and a third of them leaves at random points")
def step_clients_come_at_once(context: Context, count: int) -> None:
    random = Random(11)

    async def visit(number: int) -> tuple[int, str] | None:
        route, thread = random.choice(["an answer", "a stream"]), f"thread-{number % 50}"
        options = {"on_disconnect": random.choice(["cancel", "continue"])}
        if number % 3:
            return await stay(context, route, thread, **options)
        await leave_early(context, route, thread, random, **options)
        return None

    async def all_of_them() -> list[tuple[int, str] | None]:
        return await asyncio.gather(*map(visit, range(count)))

    # What a bridge begins with its first run, such as the guard of its loop, is not of the clients.
    context.clients.run(ask(context.client, "first"))
    context.server.wait_for_requests()
    context.server.serves_nothing()
    context.threads = set(threading.enumerate())
    context.visits = context.clients.run(all_of_them())


@then("each that has stayed has got its whole answer, or 429 if {room:d} may wait")
def step_each_that_has_stayed_has_got_its_answer(context: Context, room: int) -> None:
    stayed = [each for each in context.visits if each is not None]
    served = [each for each in stayed if each[0] == 200]
    refused = {each[0] for each in stayed if each[0] != 200}
    assert len(stayed) == 133 and {text for _, text in served} == {spoken(12)}
    assert refused == ({429} if room < 100 else set()), refused


@then("nothing is left of them: no run, no task, no thread, no connection")
def step_nothing_is_left_of_them(context: Context) -> None:
    context.server.wait_for_requests()
    assert context.bridge.registry.wait_idle(LIMIT)
    tasks = context.server.tasks_left()
    assert not tasks, tasks
    context.server.wait_for_connections()
    assert set(threading.enumerate()) <= context.threads, threading.enumerate()
    counted = context.bridge.statistics()
    assert counted.submitted == counted.succeeded + counted.failed + counted.cancelled, counted
    refused = any(each is not None and each[0] == 429 for each in context.visits)
    assert counted.in_flight == 0 and (counted.cancelled > 0 or refused), counted


# -- the end ---------------------------------------------------------------------------------------


@given("the web service in a process of its own, whose model waits before token 3")
def step_the_web_service_in_a_process_of_its_own(context: Context) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    graceful = 0.5 if "cut off" in context.scenario.name else LIMIT
    context.process = ServiceProcess(str(Path(folder.name, "threads.db")), graceful)
    context.add_cleanup(context.process.end)
    context.url = context.process.url
    have_clients(context)


async def is_refused(context: Context) -> bool:
    """Whether a new connection is. Only once it has begun to stop."""
    try:
        await context.client.get("/health")
    except httpx.ConnectError:
        return True
    return False


@when("that process gets SIGTERM while a client has got 3 tokens, and the model goes on")
def step_that_process_gets_sigterm_while_a_client_has_got_3_tokens(context: Context) -> None:
    process = context.process

    async def read() -> None:
        stream = await EventStream.open(context.client, "ada")
        events = await stream.take(3)
        process.terminate()
        await asyncio.to_thread(process.wait_for_log, "Waiting for connections to close")
        assert await is_refused(context)
        process.go_on()
        context.events = events + await stream.rest()

    context.clients.run(read())


@when("a client has left its run to itself, it gets SIGTERM, and the model goes on")
def step_a_client_has_left_its_run_to_itself(context: Context) -> None:
    async def leave() -> None:
        stream = await EventStream.open(context.client, "ada", on_disconnect="continue")
        await stream.take(3)
        await stream.leave()

    context.clients.run(leave())
    context.process.terminate()
    context.process.wait_for_log("Waiting for application shutdown")
    context.process.go_on()


@when("that process gets SIGTERM, and a client whose run may continue stays until it is cut off")
def step_that_process_gets_sigterm_and_a_client_stays(context: Context) -> None:
    async def stay() -> None:
        stream = await EventStream.open(context.client, "ada", on_disconnect="continue")
        await stream.take(3)
        context.process.terminate()
        try:
            events = await stream.rest()
        except httpx.RemoteProtocolError:  # cut off in the middle of its body
            await stream.leave()
        else:
            raise AssertionError(events)

    context.clients.run(stay())
    context.process.wait_for_log("Waiting for application shutdown")
    context.process.go_on()


@then("the process has ended, and what was said is saved")
def step_the_process_has_ended(context: Context) -> None:
    assert context.process.wait() == -signal.SIGTERM
    assert context.process.said("ada") == spoken(TOKENS)


@when("the web service is stopped")
def step_the_web_service_is_stopped(context: Context) -> None:
    context.server.stop()


@then("its run was cancelled")
def step_its_run_was_cancelled(context: Context) -> None:
    assert list(context.watched.ended) == ["cancelled"]
