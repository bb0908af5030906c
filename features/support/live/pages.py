"""A bridge whose page is served, what it works on, and clients of the page."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any, TypedDict

import httpx
from behave.runner import Context
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from rxlanggraph.bridge.internal import watched
from rxlanggraph.live.bridge_source import BridgeSource
from rxlanggraph.live.server import served
from support.concurrency.waiting import LIMIT, Gate, Log

__all__ = ["SECRET", "Page", "Stream", "World", "make_world", "open_page"]

SECRET = "the-secret-of-the-message"


class State(TypedDict):
    do: str


class World:
    """A bridge, and a graph of two nodes, ``work`` and ``check``, that does as it is told.

    ``wait``: until the gate opens; ``ask``: a question; ``fail``: raises; anything else: nothing.
    ``wait fail`` does one after the other.
    """

    def __init__(self, **options: Any) -> None:
        self.gate = Gate()
        self.started = Log()
        self.answers = Log()
        self.bridge = RxPyLangGraphBridge(**options)
        self.saver = InMemorySaver()
        self.futures: list[Any] = []
        self.source: BridgeSource | None = None
        builder = StateGraph(State).add_node("work", self._work).add_node("check", self._check)
        builder.add_edge(START, "work").add_edge("work", "check").add_edge("check", END)
        self.graph: Any = builder.compile(checkpointer=self.saver, name="clerk")

    async def _work(self, state: State) -> dict[str, Any]:
        self.started.add(state["do"])
        if "wait" in state["do"].split():
            await self.gate.wait_async()
        return {}

    async def _check(self, state: State) -> dict[str, Any]:
        if "ask" in state["do"].split():
            self.answers.add(interrupt({"may I": SECRET}))
        if "fail" in state["do"].split():
            raise ValueError(SECRET)
        return {}

    def send(self, do: str, thread_id: str, **options: Any) -> Any:
        message = StreamMessage({"do": do}, thread_id=thread_id)
        options = {"errors": "emit", **options}
        future = self.bridge.create_future_task(self.graph, message, **options)
        self.futures.append(future)
        return future

    def finish(self) -> None:
        """Wait for the ends of all messages, and until hooks were told of them."""
        for future in self.futures:
            with contextlib.suppress(Exception):
                future.result(LIMIT)
        assert self.bridge.registry.wait_idle(LIMIT)

    def look(self, **options: Any) -> None:
        """Look at the bridge from now on."""
        options = {"show_content": False, **options}
        self.source = BridgeSource(watched(self.bridge), **options)

    def snapshot(self) -> Any:
        """A snapshot, as JSON gives it back."""
        assert self.source is not None
        return json.loads(json.dumps(self.source.snapshot_nowait(), allow_nan=False))

    def close(self) -> None:
        self.gate.open()
        if self.source is not None:
            self.source.close()
        self.bridge.close(0)


def make_world(context: Context, **options: Any) -> World:
    """Make ``context.world``, which ends with the scenario."""
    context.world = world = World(**options)
    context.add_cleanup(world.close)
    return world


class Page:
    """A page that is served in a thread, and a client that has its token.

    Args:
        app: What is served.
        token: The token of the page.
        path: Where it is mounted.
    """

    def __init__(self, app: Any, token: str, path: str = "") -> None:
        self._ended = contextlib.ExitStack()
        listener = socket.create_server(("127.0.0.1", 0))
        self.host = "{}:{}".format(*listener.getsockname())
        self.url = f"http://{self.host}{path}"
        self._ended.enter_context(served(app, listener))
        headers = {"authorization": f"Bearer {token}"}
        self.client = self.new_client(headers=headers)
        self.streams: list[Stream] = []

    def new_client(self, **options: Any) -> httpx.Client:
        """A client, by default without the token."""
        client = httpx.Client(base_url=self.url, timeout=LIMIT, trust_env=False, **options)
        self._ended.callback(client.close)
        return client

    def snapshot(self) -> Any:
        return self.client.get("/api/snapshot").raise_for_status().json()

    def listen(self) -> Stream:
        """Open an event stream."""
        stream = Stream(self.client)
        self.streams.append(stream)
        return stream

    def close(self) -> None:
        for stream in self.streams:
            stream.leave()
        self._ended.close()


class Stream:
    """An event stream, read event by event."""

    def __init__(self, client: httpx.Client) -> None:
        request = client.build_request("GET", "/api/events")
        self.response = client.send(request, stream=True)
        self.status = self.response.status_code
        self._events = self._read()

    def _read(self) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in self.response.iter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)

    def next(self) -> tuple[str, Any]:
        """The next event: its name, and its data."""
        return next(self._events)

    def until(self, name: str) -> tuple[Any, Any]:
        """Read until the event ``name``; its data, and that of the event before."""
        before = None
        for found, data in self._events:
            if found == name:
                return data, before
            before = data
        raise AssertionError(f"the stream has ended without {name}")

    def is_over(self) -> bool:
        """Whether the server has ended it, after what was read."""
        return next(self._events, None) is None

    def leave(self) -> None:
        self.response.close()


def open_page(context: Context, world: World, **options: Any) -> None:
    """Serve the page of a bridge, and ask for it once."""
    context.app = world.bridge.live_app(**options)
    context.page = Page(context.app, context.app.token)
    context.add_cleanup(context.page.close)
    context.add_cleanup(context.app.close)
