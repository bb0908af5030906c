"""Clients of the web service, which may leave at any moment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx

from support.concurrency.waiting import LIMIT, Log

__all__ = ["EventStream", "ask", "new_client", "numbers"]

Event = dict[str, Any]


def new_client(url: str) -> httpx.AsyncClient:
    """A client with as many connections as it needs. Each leaves by closing its connection."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=url, timeout=LIMIT, limits=limits, trust_env=False)


async def ask(
    client: httpx.AsyncClient, thread: str, text: str = "Hello", **options: Any
) -> httpx.Response:
    """Send a prompt, for an answer as a whole."""
    return await client.post(f"/chat/{thread}", json={"text": text, **options})


class EventStream:
    """Server-sent events, read one by one."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._events = self._read()
        self.last_id: str | None = None
        self.pings = Log()

    @classmethod
    async def open(
        cls, client: httpx.AsyncClient, thread: str, text: str = "Hello", **options: Any
    ) -> EventStream:
        body = {"text": text, **options}
        request = client.build_request("POST", f"/chat/{thread}/stream", json=body)
        return cls(await client.send(request, stream=True))

    @classmethod
    async def join(cls, client: httpx.AsyncClient, thread: str, last_id: str) -> EventStream:
        headers = {"Last-Event-ID": last_id}
        request = client.build_request("GET", f"/chat/{thread}/stream", headers=headers)
        return cls(await client.send(request, stream=True))

    async def _read(self) -> AsyncIterator[Event]:
        event: Event = {}
        async for line in self.response.aiter_lines():
            field, _, value = line.partition(": ")
            if line == ": ping":
                self.pings.add(line)
            elif field == "data":
                event["data"] = json.loads(value)
            elif field:
                event[field] = value
            elif event:
                self.last_id = event.get("id", self.last_id)
                yield event
                event = {}

    async def take(self, count: int) -> list[Event]:
        return [await anext(self._events) for _ in range(count)]

    async def rest(self) -> list[Event]:
        """The other events, up to the last."""
        events = [event async for event in self._events]
        await self.leave()
        return events

    async def leave(self) -> None:
        """Close the connection."""
        await self._events.aclose()  # type: ignore[attr-defined]
        await self.response.aclose()


def numbers(events: list[Event]) -> list[int]:
    """The numbers of the tokens, as their ids count them; what was said must be the same."""
    found = [int(each["id"].rpartition(":")[2]) for each in events if each["event"] == "token"]
    said = [each["data"] for each in events if each["event"] == "token"]
    assert [text.split()[0] for text in said] == [str(number) for number in found], said
    return found
