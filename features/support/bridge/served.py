"""A LangGraph server in this process, without a socket, and LangGraph's ``RemoteGraph`` of it."""

from __future__ import annotations

import json
from typing import Any

import httpx
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command, Interrupt
from langgraph_sdk.client import LangGraphClient

__all__ = ["served"]


def served(graph: Any) -> RemoteGraph:
    """A graph that a client has of ``graph``, which a server runs on the client's threads."""

    async def respond(request: httpx.Request) -> httpx.Response:
        _, _, thread_id, *_ = request.url.path.split("/")
        body = json.loads(request.content)
        command = body.get("command")
        events = []
        async for mode, payload in graph.astream(
            Command(resume=command["resume"]) if command else body.get("input"),
            {"configurable": {"thread_id": thread_id}},
            stream_mode=body["stream_mode"],
            interrupt_before=body.get("interrupt_before"),
        ):
            data = json.dumps(payload, default=_as_json)
            events.append(f"event: {mode}\ndata: {data}\nid: {len(events)}\n\n")
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, text="".join(events))

    transport = httpx.MockTransport(respond)
    client = httpx.AsyncClient(transport=transport, base_url="http://server")
    return RemoteGraph("graph", client=LangGraphClient(client))


def _as_json(value: Any) -> Any:
    return {"value": value.value, "id": value.id} if isinstance(value, Interrupt) else str(value)
