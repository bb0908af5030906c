"""CallTracker: calls to agents over MCP, each in a task that ends with its client or its server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import to_json

from rxlanggraph.agent.agent import BaseAgent
from rxlanggraph.agent.conversation.mcp_text import extract_text
from rxlanggraph.agent.mcp.sdk import (
    Audio,
    CallToolResult,
    CancelScope,
    ContentBlock,
    Context,
    Image,
    PlainTextResponse,
    TextContent,
    ToolError,
)
from rxlanggraph.agent.pool import AgentPool
from rxlanggraph.errors import AgentMessageError, RxLangGraphError, error_text
from rxlanggraph.registry import TaskRegistry

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from rxlanggraph.agent.mcp.conversations import ConversationTable
    from rxlanggraph.agent.mcp.sdk import CallNext, HandlerResult, ServerRequestContext

__all__ = ["CONVERSATION", "CallTracker", "DisconnectMiddleware", "Target"]

Target: TypeAlias = BaseAgent | AgentPool
"""The types that can be served as a tool."""

CONVERSATION = (
    "The conversation to continue, as an earlier answer named it. Without it, a new one begins."
)
_ARGUMENT = "conversation"
_SHARED_THREAD = "mcp"
"""The thread of a pool when all calls are part of one conversation."""

_log = logging.getLogger("rxlanggraph")
_CANCEL_SECONDS = 5.0
"""Seconds for a cancelled run's own cleanup, after which it is left behind. As in BaseAgent."""


@dataclass(frozen=True)
class _Request:
    """An HTTP request: the task that answers it, and a future that its client's disconnect sets."""

    task: asyncio.Task[Any]
    disconnected: asyncio.Future[None]


_request: ContextVar[_Request | None] = ContextVar("rxlanggraph_mcp_request", default=None)
"""The request that this code serves; None over stdio."""


class CallTracker:
    """Answers the calls of one server, tracks those in flight, and ends them.

    Args:
        conversations: The conversations that calls are part of.
        shared: Whether all calls use the agents' own memories, as one conversation, instead.
    """

    def __init__(self, conversations: ConversationTable, *, shared: bool = False) -> None:
        self._conversations = conversations
        self._shared = shared
        self.lifespan = conversations.lifespan  # of the SDK's server
        self._runs = TaskRegistry()
        # The tasks that write the answers; each outlasts its run.
        self._writers = TaskRegistry()
        self._stopping = False  # owned by the loop

    async def answer(
        self, target: Target, message: str, sender: str, ctx: Context[Any, Any], name: str
    ) -> Any:
        """Answer with ``target``, in the conversation called ``name``, or in the session's.

        Raises:
            ToolError: The error to report to the caller.
        """
        if self._stopping:
            raise ToolError("the server is stopping; ask again when it is back")
        if self._shared:
            answer = await self._run(target, _asked(target, message, sender, _SHARED_THREAD))
            return self._result(target, answer, None)
        async with self._conversations.joined(ctx.request_context, name) as joined:
            if isinstance(target, AgentPool):
                joined.pools.add(target)
            with joined.conversation.entered():
                answer = await self._run(target, _asked(target, message, sender, joined.id))
            return self._result(target, answer, joined.id if joined.named else None)

    async def offer_conversations(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Hide the tools' conversation argument where a session stands for it: SDK middleware."""
        result = await call_next(ctx)
        if ctx.method != "tools/list" or not isinstance(result, dict):
            return result
        if self._shared or self._conversations.scope_of(ctx)[1]:
            for tool in result.get("tools", ()):
                schema = tool["inputSchema"]
                others = {
                    key: value for key, value in schema["properties"].items() if key != _ARGUMENT
                }
                tool["inputSchema"] = {**schema, "properties": others}
        return result

    async def _run(self, target: Target, asked: Coroutine[Any, Any, Any]) -> Any:
        """Run ``asked`` in a task of its own; if cancelled, cancel that, and wait for its end."""
        request = _request.get()
        writer = asyncio.current_task() if request is None else request.task
        assert writer is not None
        self._writers.add(writer)
        run = asyncio.create_task(asked)
        self._runs.add(run, name=target.name)
        if request is not None:
            request.disconnected.add_done_callback(lambda _: run.cancel())
        try:
            await asyncio.wait({run})
        except asyncio.CancelledError:
            run.cancel()
            await _ended(run)
            raise
        return self._outcome(target, run)

    def _outcome(self, target: Target, run: asyncio.Task[Any]) -> Any:
        if run.cancelled():
            why = ": the server is stopping" if self._stopping else ""
            raise ToolError(f"the run of agent {target.name!r} was cancelled{why}")
        error = run.exception()
        if error is None:
            return run.result()
        if isinstance(error, RxLangGraphError):
            raise ToolError(error_text(error)) from error
        raise self._failure(target, error) from error

    def _result(self, target: Target, answer: Any, name: str | None) -> CallToolResult:
        try:
            return _result(_readable(answer), name)
        except Exception as error:
            raise self._failure(target, error) from error

    def _failure(self, target: Target, error: BaseException) -> ToolError:
        _log.error("agent %r failed on an MCP message", target.name, exc_info=error)
        return ToolError(
            f"agent {target.name!r} failed with {type(error).__name__}; see the log of the server"
        )

    async def stop(self, grace: float) -> None:
        """Accept no new call, and wait ``grace`` seconds for the others, then cancel them."""
        self._stopping = True
        in_flight = self._runs.close()
        _log.info("stopping, with %d calls in flight", len(in_flight))
        await self._runs.wait_idle_async(grace)
        self.cancel()
        if not await self._writers.wait_idle_async(_CANCEL_SECONDS):
            left = ", ".join(info.name or "?" for info in self._runs.snapshot())
            _log.warning("left behind after cancelling: %s", left or "clients that do not read")

    def cancel(self) -> None:
        """Cancel every run; the calls are answered with an error. On the loop; never blocks."""
        self._runs.cancel_all()


def _asked(target: Target, message: str, sender: str, thread_id: str) -> Coroutine[Any, Any, Any]:
    if isinstance(target, AgentPool):
        return target.process_mcp_message(message, sender, thread_id=thread_id)
    return target.process_mcp_message(message, sender, agent_id=target.name)


def _result(answer: Any, name: str | None) -> CallToolResult:
    """The result of the tool; with the name of the conversation, for programs and models."""
    result = CallToolResult(content=list(_blocks(answer)))
    if name is not None:
        text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        result.structured_content = {"answer": text, "conversation": name}
    return result


def _blocks(answer: Any) -> Iterator[ContentBlock]:
    """The blocks that the SDK would make of ``answer``; its own function for that is private."""
    if answer is None:
        return
    if isinstance(answer, ContentBlock):
        yield answer
    elif isinstance(answer, Image):
        yield answer.to_image_content()
    elif isinstance(answer, Audio):
        yield answer.to_audio_content()
    elif isinstance(answer, list | tuple):
        for part in answer:
            yield from _blocks(part)
    else:
        text = answer if isinstance(answer, str) else to_json(answer, fallback=str, indent=2)
        yield TextContent(text=text if isinstance(text, str) else text.decode())


async def _ended(run: asyncio.Task[Any]) -> None:
    # Without the shield the SDK's cancel scope would cancel this wait again in each iteration of
    # the loop, and the call would be over before its run.
    with CancelScope(shield=True):
        await asyncio.wait({run})  # bounded: the agent leaves behind what resists cancellation


def _readable(answer: Any) -> Any:
    """The text of a model's blocks, which would become JSON otherwise; any other answer as is."""
    if not isinstance(answer, list):
        return answer
    try:
        return extract_text(answer)
    except AgentMessageError:
        return answer


_CASE_INSENSITIVE = (b"host", b"origin")  # headers (RFC 9110, 4.2.3; RFC 6454, 4)


class _DisconnectedError(Exception):
    """A client disconnected before it had sent its request."""


class DisconnectMiddleware:
    """ASGI middleware around the SDK's HTTP app: cancels a call when its client disconnects.

    It refuses the stream for unsolicited messages, as the protocol allows: agents send none, and a
    stream that stays open would keep the server from ending. It converts the names of hosts and
    origins to lower case, because the SDK compares them exactly.
    """

    def __init__(self, app: ASGIApp, path: str = "/mcp") -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request. On the server's loop, in the task of the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "GET" and scope["path"] == self._path:
            refusal = PlainTextResponse("no stream here: POST", 405, {"Allow": "POST, DELETE"})
            await refusal(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        disconnected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        _request.set(_Request(task, disconnected))

        complete = False

        async def receive_part() -> Message:
            nonlocal complete
            message = await receive()
            if message["type"] == "http.disconnect":
                if not disconnected.done():
                    disconnected.set_result(None)
                if not complete:
                    raise _DisconnectedError  # the SDK would log each with a traceback
            elif not message.get("more_body", False):
                complete = True
            return message

        headers = [
            (key, value.lower() if key in _CASE_INSENSITIVE else value)
            for key, value in scope["headers"]
        ]
        with contextlib.suppress(_DisconnectedError):
            await self._app({**scope, "headers": headers}, receive_part, send)
