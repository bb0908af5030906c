"""Calls to agents over MCP: one task each, which ends with its client, its run or its server."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rxlanggraph.agent.content import text_of
from rxlanggraph.agent.mcp_sdk import CancelScope, PlainTextResponse, ToolError
from rxlanggraph.errors import AgentMessageError, RxLangGraphError
from rxlanggraph.registry import TaskRegistry

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from rxlanggraph.agent.base import BaseAgent

__all__ = ["Calls", "ClientWatch"]

_log = logging.getLogger("rxlanggraph")
_CANCEL_SECONDS = 5.0
"""What a cancelled run has for its own clean-up, until it is left behind. As in BaseAgent."""


@dataclass(frozen=True)
class _Request:
    """An HTTP request: the task that answers it, and what is done once its client has gone."""

    task: asyncio.Task[Any]
    gone: asyncio.Future[None]


_request: ContextVar[_Request | None] = ContextVar("rxlanggraph_mcp_request", default=None)
"""The one that this code works for; None over stdio."""


class Calls:
    """The calls in flight of one server, and how all of them end."""

    def __init__(self) -> None:
        self._runs = TaskRegistry()
        # The tasks that write the answers: each ends later than its run, once that is done.
        self._writers = TaskRegistry()

    async def answer(self, agent: BaseAgent, message: str, sender: str) -> Any:
        """Run ``agent`` in a task of its own; cancelled, cancel that, and wait for its end."""
        if self._runs.state != "open":
            raise ToolError("the server is stopping; ask again when it is back")
        request = _request.get()
        writer = asyncio.current_task() if request is None else request.task
        assert writer is not None
        self._writers.add(writer)
        run = asyncio.create_task(agent.process_mcp_message(message, sender, agent_id=agent.name))
        self._runs.add(run, name=agent.name)
        if request is not None:
            request.gone.add_done_callback(lambda _: run.cancel())
        try:
            await asyncio.wait({run})
        except asyncio.CancelledError:
            run.cancel()
            await _ended(run)
            raise
        return self._outcome(agent, run)

    def _outcome(self, agent: BaseAgent, run: asyncio.Task[Any]) -> Any:
        if run.cancelled():
            why = "" if self._runs.state == "open" else ": the server is stopping"
            raise ToolError(f"the run of agent {agent.name!r} was cancelled{why}")
        error = run.exception()
        if error is None:
            return _readable(run.result())
        if isinstance(error, RxLangGraphError):
            raise ToolError(str(error)) from error
        _log.error("agent %r failed on a message of MCP", agent.name, exc_info=error)
        raise ToolError(
            f"agent {agent.name!r} failed with {type(error).__name__}; "
            "the log of the server says more"
        ) from error

    async def stop(self, grace: float) -> None:
        """Take no new call, and wait for the others: so long, then cancelled."""
        in_flight = self._runs.close()
        _log.info("stopping, with %d calls in flight", len(in_flight))
        await self._runs.wait_idle_async(grace)
        self.cancel()
        if not await self._writers.wait_idle_async(_CANCEL_SECONDS):
            left = ", ".join(info.name or "?" for info in self._runs.snapshot())
            _log.warning("left behind, cancelled but not ended: %s", left or "slow readers")

    def cancel(self) -> None:
        """Cancel every run; the calls are answered with an error. On the loop; never blocks."""
        self._runs.cancel_all()


async def _ended(run: asyncio.Task[Any]) -> None:
    # Without the shield the SDK's cancel scope would go on to cancel this wait, turn by turn of the
    # loop, and the call would be over before its run.
    with CancelScope(shield=True):
        await asyncio.wait({run})  # which it lets come within five seconds


def _readable(answer: Any) -> Any:
    """The text of a model's blocks; the SDK makes JSON of what is neither that nor a string."""
    if not isinstance(answer, list):
        return answer
    try:
        return text_of(answer)
    except AgentMessageError:
        return answer


class ClientWatch:
    """In front of the SDK's HTTP app: tells a call when its client has gone, and offers no stream.

    What a server says of its own accord would come over a stream that stays open, and keeps the
    server from ending; agents say nothing unasked, and the protocol lets them say so.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; on the server's loop, in a task of the request's own."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "GET":
            refusal = PlainTextResponse("no stream here: POST", 405, {"Allow": "POST, DELETE"})
            await refusal(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        _request.set(_Request(task, gone))

        async def heard() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not gone.done():
                gone.set_result(None)
            return message

        await self._app(scope, heard, send)
