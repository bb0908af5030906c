"""Agents, their memories and outputs, and clients over MCP."""
