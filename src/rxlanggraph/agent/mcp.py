"""Agents as the tools of an MCP server, with the official SDK: the extra ``rxlanggraph[mcp]``.

    serve_stdio(BaseAgent("weather", llm=model, description="Knows the weather."))

`mcp_server` makes the SDK's server, to be run or mounted in any of its ways; `serve_stdio` and
`serve_http` run it until a signal comes. Calls to one agent are answered in turn, calls to several
side by side. Whoever cancels a call, or goes away, cancels its run.
"""

from __future__ import annotations

import inspect
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from typing import Annotated, Any

from pydantic import Field

from rxlanggraph.agent.base import BaseAgent
from rxlanggraph.agent.checks import check_seconds
from rxlanggraph.agent.mcp_calls import Calls, ClientWatch
from rxlanggraph.agent.mcp_sdk import Config, MCPServer, Server, validate_tool_name
from rxlanggraph.agent.serving import ending_input, serve_until_signalled
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError

__all__ = ["mcp_server", "serve_http", "serve_stdio"]

_log = logging.getLogger("rxlanggraph")
_FLUSH_SECONDS = 2
"""What a client has that reads its answer slowly, once all calls are answered. A guess."""


# -- the server ------------------------------------------------------------------------------------


def mcp_server(*agents: BaseAgent, name: str = "rxlanggraph") -> MCPServer[Any]:
    """Make an MCP server with a tool for each agent, named after it.

    Any thread; never blocks. The tool takes a ``message`` and answers with what the run returned;
    it is described by the agent's ``description``, or by the docstring of its class. What goes
    wrong reaches the caller as an error of the tool: with its text if it is an error of this
    package, else with its class alone, since a text of somebody else's may hold what is none of
    the caller's business. That one is logged.

    Args:
        agents: What to serve. They run on the loop on which the server does.
        name: What the server calls itself.

    Raises:
        InvalidArgumentError: There is no agent, two have the same name, or one has a name that
            the protocol does not allow.
        InvalidTypeError: Something is no `BaseAgent`.
    """
    return _server_of(agents, name, Calls())


def _server_of(agents: tuple[BaseAgent, ...], name: str, calls: Calls) -> MCPServer[Any]:
    _check(agents)
    # Nobody subscribes to anything here. The level is that of the root logger, which the SDK
    # configures where the program has not: at its default it would log every request.
    server: MCPServer[Any] = MCPServer(name, subscriptions=False, log_level="WARNING")
    for agent in agents:
        server.add_tool(
            _tool_of(agent, calls),
            name=agent.name,
            description=_description_of(agent),
            structured_output=False,
        )
    return server


def _check(agents: Iterable[BaseAgent]) -> None:
    names = set()
    for agent in agents:
        if not isinstance(agent, BaseAgent):
            raise InvalidTypeError(f"only a BaseAgent can be served, not {agent!r}")
        if not validate_tool_name(agent.name).is_valid:
            raise InvalidArgumentError(
                f"{agent!r} cannot be a tool of this name; give it one of up to 128 letters, "
                "digits, '_', '-' and '.'"
            )
        if agent.name in names:
            raise InvalidArgumentError(f"two agents are called {agent.name!r}; rename one")
        names.add(agent.name)
    if not names:
        raise InvalidArgumentError("there is nothing to serve; pass at least one agent")


def _description_of(agent: BaseAgent) -> str:
    own = None if type(agent) is BaseAgent else type(agent).__doc__
    return agent.description or inspect.cleandoc(own or f"Ask the agent {agent.name!r}.")


def _tool_of(agent: BaseAgent, calls: Calls) -> Callable[..., Awaitable[Any]]:
    async def ask(
        message: Annotated[str, Field(description="What to ask the agent.")],
        sender: Annotated[str, Field(description="Who asks.")] = "mcp",
    ) -> Any:
        return await calls.answer(agent, message, sender)

    return ask


# -- serving ---------------------------------------------------------------------------------------


def serve_stdio(*agents: BaseAgent, name: str = "rxlanggraph") -> None:
    """Serve agents on standard input and output, to the process that started this one.

    Blocks until the input ends, or until SIGINT or SIGTERM: then the calls in flight are cancelled
    and answered with an error, and it returns. What holds that up for good (a run that cannot be
    cancelled, a client that does not read) is ended with the process, by SIGALRM, after 15 seconds.
    Signals are heard in the main thread only; on Windows they end the calls, and the server ends
    with its input. What agents print goes to standard error, because standard output belongs to
    the protocol.

    Args:
        agents: As for `mcp_server`.
        name: What the server calls itself.

    Raises:
        InvalidArgumentError, InvalidTypeError: As `mcp_server`.
        BlockingCallError: Called in a running loop's thread.
        OSError: There is no standard input.
    """
    calls = Calls()
    server = _server_of(agents, name, calls)
    with ending_input() as end_input:

        async def stop() -> None:
            await calls.stop(grace=0)
            end_input()

        async def serve() -> None:
            try:
                await server.run_stdio_async()
            except* BrokenPipeError:
                _log.info("the client has gone before it had its answer")

        serve_until_signalled(serve, stop=stop, hurry=calls.cancel, grace=0)


def serve_http(
    *agents: BaseAgent,
    host: str = "127.0.0.1",
    port: int = 8000,
    name: str = "rxlanggraph",
    grace: float = 5.0,
) -> None:
    """Serve agents over streamable HTTP, at ``http://HOST:PORT/mcp``.

    Blocks until SIGINT or SIGTERM: then no new call is taken, those in flight may end, and it
    returns. A second signal cancels them at once. What holds that up for good is ended with the
    process, by SIGALRM, 15 seconds after the grace (not on Windows). Signals are heard in the main
    thread only. Nobody has to prove who they are: beyond this machine, put a proxy in front that
    asks them.

    A client that disconnects has given up its call, also where the protocol (before 2026) would
    let it come back for the answer: none is kept.

    Args:
        agents: As for `mcp_server`.
        host: The address to listen on.
        port: The port; 0 takes a free one. The log of ``rxlanggraph`` says which.
        name: What the server calls itself.
        grace: Seconds that calls in flight have after the first signal. What is left then is
            cancelled, and answered with an error.

    Raises:
        InvalidArgumentError: As `mcp_server`; or ``grace`` is no number of seconds from 0.
        InvalidTypeError: As `mcp_server`.
        BlockingCallError: Called in a running loop's thread.
        OSError: The address cannot be listened on.
    """
    check_seconds("grace", grace)
    calls = Calls()
    app = ClientWatch(_server_of(agents, name, calls).streamable_http_app(host=host))
    http: Any = Server(
        Config(
            app,
            log_config=None,  # the program's own logging
            ws="none",
            timeout_graceful_shutdown=_FLUSH_SECONDS,
        )
    )
    http.capture_signals = nullcontext  # it would stop at once, and raise the signal once more

    async def stop() -> None:
        await calls.stop(grace)
        http.should_exit = True

    # Listened on here, because uvicorn leaves the interpreter where it cannot.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:

        async def serve() -> None:
            shown = f"[{host}]" if ":" in host else host
            _log.info("serving agents at http://%s:%d/mcp", shown, listener.getsockname()[1])
            await http.serve([listener])

        serve_until_signalled(serve, stop=stop, hurry=calls.cancel, grace=grace)
