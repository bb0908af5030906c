"""answer_encodable: turns an answer that cannot be encoded into an error of that one call.

What breaks without it: the SDK encodes an answer where it writes it, in the one task that writes
for a client. A text with half a surrogate pair in it (of an emoji that a model has split, for
example) ends that task, and with it the server, and all other calls in flight.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from rxlanggraph.agent.mcp.sdk import INTERNAL_ERROR, CallToolResult, MCPError, TextContent
from rxlanggraph.errors import encodable, error_text

if TYPE_CHECKING:
    from rxlanggraph.agent.mcp.sdk import CallNext, HandlerResult, ServerRequestContext

__all__ = ["answer_encodable"]

_log = logging.getLogger("rxlanggraph")


async def answer_encodable(
    ctx: ServerRequestContext[Any, Any], call_next: CallNext
) -> HandlerResult:
    """Answer a request with something that can be encoded. SDK middleware, on the server's loop.

    Raises:
        MCPError: The handler's error, in a text that can be encoded; or its result cannot be.
    """
    try:
        result = await call_next(ctx)
    except MCPError as error:
        told = error.error
        if _fault_of([told.message, told.data]) is None:
            raise
        raise MCPError(code=told.code, message=encodable(told.message)) from error
    fault = _fault_of(result)
    if fault is None:
        return result
    _log.error("an answer to %s over MCP cannot be encoded: %s", ctx.method, fault)
    refusal = f"the answer cannot be encoded: {fault}"
    if ctx.method != "tools/call":
        raise MCPError(code=INTERNAL_ERROR, message=refusal)
    return CallToolResult(content=[TextContent(text=refusal)], is_error=True).model_dump(
        by_alias=True, mode="json", exclude_none=True
    )


def _fault_of(value: object) -> str | None:
    """Why it cannot be encoded; None if it can."""
    try:
        to_json(value)
    except ValueError as error:  # pydantic's, and Python's for Unicode, are both
        return error_text(error)
    return None
