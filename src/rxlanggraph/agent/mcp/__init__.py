"""Agents as the tools of an MCP server, with the official SDK: the extra ``rxlanggraph[mcp]``.

    serve_stdio(BaseAgent("weather", llm=model, description="Knows the weather."))

A map; each imports only from those above it.

    sdk                  what is used of the SDK, and of what comes with it
    signals              serving until a signal comes
    access               who may ask over HTTP, and from which pages
    connections          how many HTTP connections there are, and which one makes room
    encoding             an answer that cannot be encoded is an error of that one call
    conversations        which conversation a call is part of
    calls                the calls in flight, and how all of them end
    server               the tools, and how they are served
"""

from rxlanggraph.agent.mcp.server import mcp_server, serve_http, serve_stdio

__all__ = ["mcp_server", "serve_http", "serve_stdio"]
