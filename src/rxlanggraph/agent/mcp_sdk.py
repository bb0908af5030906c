"""What is used of the MCP SDK and of what comes with it: the extra ``rxlanggraph[mcp]``."""

from __future__ import annotations

from rxlanggraph.errors import MissingExtraError

try:
    from anyio import CancelScope
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.shared.tool_name_validation import validate_tool_name
    from starlette.responses import PlainTextResponse
    from uvicorn import Config, Server
except ImportError as error:
    raise MissingExtraError(
        "serving agents over MCP needs the MCP SDK, version 2 or later; "
        "install it with pip install 'rxlanggraph[mcp]'"
    ) from error

__all__ = [
    "CancelScope",
    "Config",
    "MCPServer",
    "PlainTextResponse",
    "Server",
    "ToolError",
    "validate_tool_name",
]
