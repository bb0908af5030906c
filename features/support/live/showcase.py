"""A bridge as an operator sees it on a busy night, for screenshots and for looking at the page."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from support.concurrency.waiting import LIMIT

__all__ = ["Showcase"]

PEOPLE = ["amara", "bjorn", "chen", "dalia", "emeka", "farid", "greta", "hugo", "ines", "jun"]


class State(TypedDict):
    n: int
    kind: str


class RateLimitError(Exception):
    """As a provider raises it."""


class ToolError(Exception):
    """As a tool raises it."""


class Showcase:
    """A bridge with 16 slots, and customers who keep it busy until it is closed."""

    def __init__(self) -> None:
        self.bridge = RxPyLangGraphBridge(max_concurrency=16, name="support-desk")
        self._dice = random.Random(7)
        self._done = threading.Event()
        builder = StateGraph(State)
        for node, seconds in (("triage", 0.25), ("lookup", 0.6), ("draft", 1.4), ("review", 0.35)):
            builder.add_node(node, self._node(node, seconds))
        builder.add_edge(START, "triage").add_edge("triage", "lookup").add_edge("lookup", "draft")
        builder.add_edge("draft", "review").add_edge("review", END)
        self.graph: Any = builder.compile(checkpointer=InMemorySaver(), name="answer-ticket")
        self._customers = threading.Thread(target=self._send, name="customers", daemon=True)

    def _node(self, name: str, seconds: float) -> Any:
        async def node(state: State) -> dict[str, Any]:
            await asyncio.sleep(seconds * (0.5 + state["n"] % 10 / 9))
            if name == "lookup" and state["kind"] == "stuck":
                await self._wait_for_the_lock_of_the_search_index()
            if name == "lookup" and state["kind"] == "fails":
                raise ToolError("the order service answered 503")
            if name == "draft" and state["kind"] == "limited":
                raise RateLimitError("429: slow down")
            if name == "review" and state["kind"] == "asks":
                interrupt({"refund": 120, "currency": "EUR", "reason": "parcel lost"})
            return {}

        return node

    async def _wait_for_the_lock_of_the_search_index(self) -> None:
        await asyncio.Event().wait()  # until the bridge is closed

    def start(self) -> Showcase:
        first = {
            "warehouse-7": "stuck",
            "partner-acme": "stuck",
            "greta-7": "asks",
            "jun-9": "fails",
        }
        for who, kind in first.items():
            self._submit(0, kind, who)
        self._customers.start()
        return self

    def _send(self) -> None:
        n = 0
        kinds, weights = ["fine", "fails", "limited", "asks"], [94, 3, 2, 1]
        # They come in waves.
        while not self._done.wait(0.2 + 0.1 * math.sin(n / 30)):
            n += 1
            kind = self._dice.choices(kinds, weights)[0]
            # What asks has a thread of its own: with an open question, a thread takes no message.
            number = n if kind == "asks" else self._dice.randrange(100, 104)
            self._submit(n, kind, f"{self._dice.choice(PEOPLE)}-{number}")

    def _submit(self, n: int, kind: str, who: str) -> None:
        message = StreamMessage({"n": n, "kind": kind}, thread_id=who)
        timeout = 3.9 if self._dice.random() < 0.2 and kind != "stuck" else None
        self.bridge.create_future_task(self.graph, message, errors="emit", timeout=timeout)

    def close(self) -> None:
        self._done.set()
        self._customers.join(LIMIT)
        self.bridge.close(0)
