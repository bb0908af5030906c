"""answer_encodable: turns an answer that cannot be encoded into an error of that one call.

What breaks without it: the SDK encodes an answer in the one task that writes for a client. Text
with a lone surrogate (half of an emoji that a model has split, for example) ends that task, and
with it the server and all other calls in flight.
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
    """Replace a result that cannot be encoded by an error. SDK middleware, on the server's loop.

    Raises:
        MCPError: The handler raised it (its text is escaped if it cannot be encoded), or the result
            of a request other than a tool call cannot be encoded.
    """
    try:
        result = await call_next(ctx)
    except MCPError as error:
        details = error.error
        if _encoding_fault([details.message, details.data]) is None:
            raise
        raise MCPError(code=details.code, message=encodable(details.message)) from error
    fault = _encoding_fault(result)
    if fault is None:
        return result
    _log.error("an answer to %s over MCP cannot be encoded: %s", ctx.method, fault)
    refusal = f"the answer cannot be encoded: {fault}"
    if ctx.method != "tools/call":
        raise MCPError(code=INTERNAL_ERROR, message=refusal)
    return CallToolResult(content=[TextContent(text=refusal)], is_error=True).model_dump(
        by_alias=True, mode="json", exclude_none=True
    )


def _encoding_fault(value: object) -> str | None:
    """The reason why ``value`` cannot be encoded; None if it can."""
    try:
        to_json(value)
    except ValueError as error:  # the base of pydantic's error, and of Python's for Unicode
        return error_text(error)
    return None
