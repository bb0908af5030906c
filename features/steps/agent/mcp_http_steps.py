from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import hmac
import logging
import socket
from collections.abc import Iterator
from typing import Any
from unittest import mock

import httpx2
import uvicorn
from behave import given, then, when
from behave.runner import Context
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from uvicorn.server import ServerState

from rxlanggraph import http_server
from rxlanggraph.agent import BaseAgent
from rxlanggraph.agent.mcp import access
from rxlanggraph.agent.mcp import server as mcp_module
from support.agent.mcp_agents import noting
from support.concurrency.patching import patch
from support.concurrency.waiting import LIMIT

HANDSHAKE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "behave", "version": "1"},
    },
}


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        scopes = {"ada": ["ask"], "ben": ["listen"]}.get(token)
        return None if scopes is None else AccessToken(token=token, client_id=token, scopes=scopes)


class Hanging:
    async def verify_token(self, token: str) -> AccessToken | None:
        await asyncio.Event().wait()
        return None


class Failing:
    async def verify_token(self, token: str) -> AccessToken | None:
        raise LookupError(token)


def served(context: Context, **options: Any) -> None:
    """Have serve_http make its server, and not run it."""

    def keep(app: Any, *_: object) -> Any:
        context.app = app
        return mock.Mock()

    patch(context, mcp_module, "HttpServer", keep)
    patch(context, mcp_module, "serve_until_signalled", lambda *_, **__: None)
    patch(context, socket, "create_server", lambda *_, **__: contextlib.nullcontext())
    mcp_module.serve_http(BaseAgent("ann"), **options)


def ask(context: Context, **headers: str) -> None:
    async def asking() -> int:
        starlette = context.app._app
        transport = httpx2.ASGITransport(context.app, raise_app_exceptions=False)
        async with (
            asyncio.timeout(LIMIT),
            starlette.router.lifespan_context(starlette),
            httpx2.AsyncClient(transport=transport) as client,
        ):
            answer = await client.post(
                "http://127.0.0.1:8000/mcp",
                json=HANDSHAKE,
                headers=[
                    ("accept", "application/json, text/event-stream"),
                    *((name, value.encode()) for name, value in headers.items()),
                ],
            )
            return answer.status_code

    context.status = asyncio.run(asking())


# -- hosts and origins -----------------------------------------------------------------------------


@given("serve_http listens on {address}")
def step_serve_http_listens_on_address(context: Context, address: str) -> None:
    served(context, host=address)


@given("serve_http allows the hosts {hosts}")
def step_serve_http_allows_the_hosts_hosts(context: Context, hosts: str) -> None:
    served(context, host="0.0.0.0", allowed_hosts=[] if hosts == "no host" else hosts.split(", "))


@given("serve_http allows no origins by name")
def step_serve_http_allows_no_origins_by_name(context: Context) -> None:
    served(context, host="127.0.0.2")


@given("serve_http allows the origins {origin}")
def step_serve_http_allows_the_origins_origin(context: Context, origin: str) -> None:
    served(context, allowed_origins=(origin,))


@when("it is asked as {host}")
def step_it_is_asked_as_host(context: Context, host: str) -> None:
    ask(context, host=host)


@when("it is asked by a page from {origin}")
def step_it_is_asked_by_a_page_from_origin(context: Context, origin: str) -> None:
    ask(context, host="localhost", origin=origin)


@then("the status is {status:d}")
def status_is(context: Context, status: int) -> None:
    assert context.status == status, context.status


# -- tokens ----------------------------------------------------------------------------------------

SCOPES = {
    "issuer_url": "https://issuer.example",
    "resource_server_url": None,
    "required_scopes": ["ask"],
}


@given("serve_http asks for {token}")
def step_serve_http_asks_for_token(context: Context, token: str) -> None:
    tokens: dict[str, dict[str, Any]] = {
        "no token": {},
        "the SDK's verifier": {"token": Verifier()},
        "a verifier that hangs": {"token": Hanging()},
        "a verifier that fails": {"token": Failing()},
        "a verifier with scopes": {"token": Verifier(), "auth": AuthSettings(**SCOPES)},
    }
    patch(context, access, "_VERIFY_SECONDS", 0.01)
    context.compare = mock.Mock(wraps=hmac.compare_digest)
    patch(context, hmac, "compare_digest", context.compare)
    served(context, **tokens.get(token, {"token": token.rpartition(" ")[2]}))


@when("it is asked with {brought}")
def step_it_is_asked_with_brought(context: Context, brought: str) -> None:
    token = brought.rpartition(" ")[2]
    if brought == "no token":
        ask(context, host="localhost")
    elif brought.startswith("no bearer"):
        ask(context, host="localhost", authorization=token)
    else:
        ask(context, host="localhost", authorization=f"Bearer {token}")


@then("the tokens were compared by hmac.compare_digest")
def tokens_were_compared(context: Context) -> None:
    context.compare.assert_called_once_with(b"s3cre", b"s3cret")


@contextlib.contextmanager
def hearing_the_log() -> Iterator[list[str]]:
    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log.append(record.getMessage())

    log: list[str] = []
    heard, logger = Heard(), logging.getLogger("rxlanggraph")
    logger.addHandler(heard)
    try:
        yield log
    finally:
        logger.removeHandler(heard)


@when("serve_http without a token listens on {address}")
def step_serve_http_without_a_token_listens_on_address(context: Context, address: str) -> None:
    async def serving(*_: object) -> None:
        return None

    def run(serve: Any, **_: object) -> None:
        asyncio.run(serve())

    patch(context, mcp_module, "HttpServer", lambda *_: mock.Mock(serve=serving))
    patch(context, mcp_module, "serve_until_signalled", run)
    with hearing_the_log() as context.log:
        mcp_module.serve_http(BaseAgent("ann"), host=address, port=0)


@then('the log warns "{text}"')
def log_warns(context: Context, text: str) -> None:
    assert any(text in entry for entry in context.log), context.log


# -- what is refused -------------------------------------------------------------------------------


@when("serve_http is called, and {argument} is {value}")
def step_serve_http_is_called_and_argument_is_value(
    context: Context, argument: str, value: str
) -> None:
    options = {argument: ast.literal_eval(value)}
    patch(context, mcp_module, "serve_until_signalled", lambda *_, **__: None)
    noting(context, functools.partial(mcp_module.serve_http, BaseAgent("ann"), port=0, **options))


# -- connections -----------------------------------------------------------------------------------


class Unread(asyncio.Transport):
    """A transport that never gets rid of what was written, and so is never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False
        self.aborted = asyncio.Event()

    def write(self, data: bytes) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True
        self.aborted.set()


@given("an HTTP connection whose client reads nothing")
def connection_reads_nothing(context: Context) -> None:
    context.connections = http_server.Connections(1, 60.0, 0.01)


@when("it is answered, and is to be closed")
def step_it_is_answered_and_is_to_be_closed(context: Context) -> None:
    async def answer(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"an answer"})

    async def main() -> None:
        config = uvicorn.Config(answer, log_config=None, ws="none", lifespan="off")
        config.load()
        state, transport = ServerState(), Unread()
        connection = http_server.LimitedConnection(
            context.connections, config=config, server_state=state, app_state={}
        )
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(LIMIT):
            await transport.aborted.wait()
        context.has_room = context.connections.has_room(asyncio.get_running_loop())
        connection.connection_lost(None)

    asyncio.run(main())


@then("it is aborted, and its place is free")
def step_it_is_aborted_and_its_place_is_free(context: Context) -> None:
    assert context.has_room
