"""Agents as the tools of an MCP server, with the official SDK: the extra ``rxlanggraph[mcp]``.

    serve_stdio(BaseAgent("weather", llm=model, description="Knows the weather."))

A map; each imports only from those above it.

    sdk                  imports from the SDK and its dependencies
    signals              serving until a signal arrives
    access               the clients and web pages that are allowed over HTTP
    encoding             an answer that cannot be encoded is an error of that one call
    conversations        the conversation of each call
    calls                the calls in flight, and their end
    server               the tools, and how they are served
"""

from rxlanggraph.agent.mcp.server import mcp_server, serve_http, serve_stdio

__all__ = ["mcp_server", "serve_http", "serve_stdio"]
