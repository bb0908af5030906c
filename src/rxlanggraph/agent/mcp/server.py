"""The MCP server: a tool for each agent, and the ways to serve it.

`mcp_server` makes the SDK's server, to be run or mounted like any other; `serve_stdio` and
`serve_http` run it until a signal arrives. Calls to one agent are answered one after another, calls
to several agents concurrently. A client that cancels a call, or disconnects, cancels its run.
"""

from __future__ import annotations

import inspect
import logging
import math
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from reprlib import repr as shortened
from typing import Annotated, Any

from pydantic import Field

from rxlanggraph.agent.agent import BaseAgent
from rxlanggraph.agent.mcp.access import make_access
from rxlanggraph.agent.mcp.calls import CONVERSATION, CallTracker, DisconnectMiddleware, Target
from rxlanggraph.agent.mcp.conversations import ConversationTable
from rxlanggraph.agent.mcp.encoding import answer_encodable
from rxlanggraph.agent.mcp.sdk import (
    AuthSettings,
    Context,
    MCPServer,
    TokenVerifier,
    validate_tool_name,
)
from rxlanggraph.agent.mcp.signals import ending_input, serve_until_signalled
from rxlanggraph.agent.pool import AgentPool
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError, encodable
from rxlanggraph.http_server import Connections, HttpServer
from rxlanggraph.validation import check_seconds, check_timeout, check_whole

__all__ = ["mcp_server", "serve_http", "serve_stdio"]

_log = logging.getLogger("rxlanggraph")
MAX_CONVERSATIONS = 1000
"""A guess: their memories fit into that of a small server."""

CONVERSATION_TIMEOUT = 1800.0
_FLUSH_SECONDS = 2
"""Seconds for slow clients to read their answers, once all calls are answered. A guess."""


# -- the server ------------------------------------------------------------------------------------


def mcp_server(
    *agents: BaseAgent | AgentPool,
    name: str = "rxlanggraph",
    share_conversation: bool = False,
    max_conversations: int = MAX_CONVERSATIONS,
    conversation_timeout: float = CONVERSATION_TIMEOUT,
) -> MCPServer[Any]:
    """Make an MCP server with a tool for each agent, named after it.

    Any thread; never blocks. The tool takes a ``message`` and answers with what the run returned;
    it is described by the agent's ``description``, or by the docstring of its class. Failures reach
    the caller as an error of the tool: with its text if it is an error of this package, else with
    its class alone, since the text of a foreign error may contain what the caller must not see.
    That error is logged.

    Each session of a client is a conversation of its own, for which each agent has a separate
    memory; a pool has an agent for each. HTTP since 2026 has no sessions: there, a call begins a
    conversation, the answer names it, and a call with that name continues it.

    Args:
        agents: The agents and pools to serve. They run on the loop of the server.
        name: The name under which the server presents itself.
        share_conversation: Put all clients into one conversation, with the agents' own memories:
            clients may see what others say.
        max_conversations: The maximum number; the one that was quiet for longest is forgotten. If
            its session continues, it begins anew.
        conversation_timeout: Seconds of quiet after which a conversation without a session is
            forgotten. That of a session is forgotten when the session ends.

    Raises:
        InvalidArgumentError: There is no agent, two have the same name, or one has a name that the
            protocol does not allow; or a number is out of range.
        InvalidTypeError: Something is neither a `BaseAgent` nor an `AgentPool`.
    """
    calls = _calls(share_conversation, max_conversations, conversation_timeout)
    return _server_of(agents, name, calls)


def _calls(
    shared: bool,
    max_conversations: int = MAX_CONVERSATIONS,
    conversation_timeout: float = CONVERSATION_TIMEOUT,
) -> CallTracker:
    check_whole("max_conversations", max_conversations, least=1)
    conversation_timeout = check_timeout("conversation_timeout", conversation_timeout)
    return CallTracker(ConversationTable(max_conversations, conversation_timeout), shared=shared)


def _server_of(
    agents: tuple[Target, ...], name: str, calls: CallTracker, **options: Any
) -> MCPServer[Any]:
    _check(agents)
    # If the program has not configured the root logger, the SDK would configure it to format
    # tracebacks with rich, which blocks the loop, and all calls, for each failure deep in a graph.
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    server: MCPServer[Any] = MCPServer(
        name,
        subscriptions=False,  # agents publish nothing
        lifespan=calls.lifespan,
        middleware=[answer_encodable, calls.offer_conversations],
        **options,
    )
    for agent in agents:
        server.add_tool(
            _tool_of(agent, calls),
            name=agent.name,
            description=_description_of(agent),
            structured_output=False,
        )
    return server


def _check(agents: Iterable[Target]) -> None:
    names = set()
    for agent in agents:
        if not isinstance(agent, BaseAgent | AgentPool):
            raise InvalidTypeError(
                f"only a BaseAgent or an AgentPool can be served, not {shortened(agent)}"
            )
        if not validate_tool_name(agent.name).is_valid:
            raise InvalidArgumentError(
                f"{agent!r} cannot be a tool called {agent.name!r}; give it a name of up to 128 "
                "letters, digits, '_', '-' and '.'"
            )
        if agent.name in names:
            raise InvalidArgumentError(f"two agents are called {agent.name!r}; rename one")
        names.add(agent.name)
    if not names:
        raise InvalidArgumentError("there is nothing to serve; pass at least one agent")


def _description_of(agent: Target) -> str:
    own = None if type(agent) in (BaseAgent, AgentPool) else type(agent).__doc__
    text = agent.description or inspect.cleandoc(own or f"Ask the agent {agent.name!r}.")
    return encodable(text)  # otherwise no client could list any tool


def _tool_of(agent: Target, calls: CallTracker) -> Callable[..., Awaitable[Any]]:
    async def ask(
        message: Annotated[str, Field(description="What to ask the agent.")],
        ctx: Context[Any, Any],
        sender: Annotated[str, Field(description="The sender of the message.")] = "mcp",
        conversation: Annotated[str, Field(description=CONVERSATION)] = "",
    ) -> Any:
        return await calls.answer(agent, message, sender, ctx, conversation)

    return ask


# -- serving ---------------------------------------------------------------------------------------


def serve_stdio(
    *agents: BaseAgent | AgentPool, name: str = "rxlanggraph", share_conversation: bool = False
) -> None:
    """Serve agents on standard input and output, to the process that started this one.

    Blocks until the input ends, or until SIGINT or SIGTERM: then the calls in flight are cancelled
    and answered with an error, and it returns. If something blocks that (a run that resists
    cancellation, a client that does not read), SIGALRM ends the process after 15 seconds.
    Signals are received in the main thread only; on Windows they end the calls, and the server ends
    with its input. What agents print goes to standard error, because standard output belongs to the
    protocol.

    Args:
        agents: As for `mcp_server`.
        name: The name under which the server presents itself.
        share_conversation: Use the agents' own memories for the client's conversation.

    Raises:
        InvalidArgumentError, InvalidTypeError: As `mcp_server`.
        BlockingCallError: Called in a running loop's thread.
        OSError: There is no standard input.
    """
    conversations = ConversationTable(MAX_CONVERSATIONS, CONVERSATION_TIMEOUT)
    calls = CallTracker(conversations, shared=share_conversation)
    server = _server_of(agents, name, calls)
    with ending_input() as end_input:

        async def stop() -> None:
            await calls.stop(grace=0)
            end_input()

        async def serve() -> None:
            try:
                await server.run_stdio_async()
            except* BrokenPipeError:
                _log.info("the client closed its input before it had its answer")

        serve_until_signalled(serve, stop=stop, hurry=calls.cancel, grace=0)


def serve_http(
    *agents: BaseAgent | AgentPool,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str = "rxlanggraph",
    grace: float = 5.0,
    allowed_hosts: Collection[str] | None = None,
    allowed_origins: Collection[str] | None = None,
    token: str | TokenVerifier | None = None,
    auth: AuthSettings | None = None,
    max_connections: int = 1000,
    header_timeout: float = 10.0,
    body_timeout: float = 30.0,
    max_sessions: int = 1000,
    session_timeout: float = 1800.0,
    share_conversation: bool = False,
    max_conversations: int = MAX_CONVERSATIONS,
    conversation_timeout: float = CONVERSATION_TIMEOUT,
) -> None:
    """Serve agents over streamable HTTP, at ``http://HOST:PORT/mcp``.

    Blocks until SIGINT or SIGTERM: then no new call is accepted, those in flight may end, and it
    returns. A second signal cancels them at once. If something still blocks that 15 seconds after
    the grace period, SIGALRM ends the process (not on Windows). Signals are received in the main
    thread only.

    A request is answered if it names an allowed host, and, if it comes from a page in a browser, an
    allowed origin; with a ``token``, only if it has that, too. There is no TLS: beyond this
    machine, put a proxy in front.

    A client that disconnects has given up its call, even where the protocol (before 2026) would let
    it come back for the answer: none is kept.

    Args:
        agents: As for `mcp_server`.
        host: The address to listen on.
        port: The port; 0 takes a free one, which is logged by ``rxlanggraph``.
        name: The name under which the server presents itself.
        grace: Seconds for calls in flight to end after the first signal. What is left then is
            cancelled, and answered with an error.
        allowed_hosts: The names under which the server may be called (status 421 otherwise), each
            with a port or for any. None stands for ``localhost``, ``127.0.0.1``, ``[::1]``, and
            ``host``, unless that stands for all addresses.
        allowed_origins: The origins of pages that may call it, such as ``https://example.com``
            (status 403 otherwise). None stands for pages on allowed hosts.
        token: What each request has to send, as ``Authorization: Bearer TOKEN`` (status 401
            otherwise); or one of the SDK's token verifiers. None admits all requests.
        auth: The SDK's settings for a token verifier: where clients get tokens, and the scopes.
        max_connections: The maximum number of connections; less if the process may not have twice
            as many file descriptors, and 64. For another one, the connection is closed that has
            kept the server waiting longest; if the server is working for all, the new one gets
            status 503.
        header_timeout: Seconds for a client to send a request's header.
        body_timeout: Seconds more for the body, of 4 MiB at most; and for reading the answer.
        max_sessions: The maximum number of sessions (status 503 otherwise).
        session_timeout: Seconds without a request after which a session is ended.
        share_conversation: As for `mcp_server`.
        max_conversations: As for `mcp_server`.
        conversation_timeout: As for `mcp_server`.

    Raises:
        InvalidArgumentError: As `mcp_server`; or another number, name or token is out of range.
        InvalidTypeError: As `mcp_server`; or hosts, origins, token or auth have another type.
        BlockingCallError: Called in a running loop's thread.
        OSError: The address cannot be listened on.
    """
    check_seconds("grace", grace)
    check_whole("max_connections", max_connections, least=1)
    check_whole("max_sessions", max_sessions, least=1)
    header_timeout = check_timeout("header_timeout", header_timeout)
    body_timeout = check_timeout("body_timeout", body_timeout)
    session_timeout = check_timeout("session_timeout", session_timeout)
    access = make_access(host, allowed_hosts, allowed_origins, token, auth)
    calls = _calls(share_conversation, max_conversations, conversation_timeout)
    app = DisconnectMiddleware(
        _server_of(agents, name, calls, **access.auth).streamable_http_app(
            transport_security=access.security,
            max_sessions=max_sessions,
            session_idle_timeout=None if session_timeout == math.inf else session_timeout,
        )
    )
    connections = Connections(max_connections, header_timeout, body_timeout)
    http = HttpServer(app, connections, _FLUSH_SECONDS)

    async def stop() -> None:
        await calls.stop(grace)
        connections.drop_awaited()
        http.should_exit = True

    # Opened here, because uvicorn exits the interpreter if it cannot listen.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:

        async def serve() -> None:
            shown = f"[{host}]" if ":" in host else host
            _log.info("serving agents at http://%s:%d/mcp", shown, listener.getsockname()[1])
            if access.is_open:
                _log.warning(
                    "every client that reaches %s may call the agents; pass a token", shown
                )
            await http.serve([listener])

        serve_until_signalled(serve, stop=stop, hurry=calls.cancel, grace=grace)
