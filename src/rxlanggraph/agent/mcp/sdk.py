"""Imports from the MCP SDK and its dependencies: the extra ``rxlanggraph[mcp]``."""

from __future__ import annotations

from rxlanggraph.errors import MissingExtraError

try:
    from anyio import CancelScope
    from mcp.server import MCPServer
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
    from mcp.server.auth.provider import AccessToken, TokenVerifier
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.server.mcpserver import Audio, Context, Image
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.exceptions import MCPError
    from mcp.shared.tool_name_validation import validate_tool_name
    from mcp_types import INTERNAL_ERROR, CallToolResult, ContentBlock, TextContent
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
    from starlette.responses import PlainTextResponse
except ImportError as error:
    raise MissingExtraError(
        "serving agents over MCP needs the MCP SDK, version 2 or later; "
        "install it with pip install 'rxlanggraph[mcp]'"
    ) from error

__all__ = [
    "HANDSHAKE_PROTOCOL_VERSIONS",
    "INTERNAL_ERROR",
    "AccessToken",
    "Audio",
    "AuthSettings",
    "AuthenticatedUser",
    "CallNext",
    "CallToolResult",
    "CancelScope",
    "ContentBlock",
    "Context",
    "HandlerResult",
    "Image",
    "MCPError",
    "MCPServer",
    "PlainTextResponse",
    "ServerRequestContext",
    "TextContent",
    "TokenVerifier",
    "ToolError",
    "TransportSecuritySettings",
    "authorization_context",
    "validate_tool_name",
]
