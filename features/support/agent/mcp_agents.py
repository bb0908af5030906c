"""Agents that get messages over MCP, the naive one beside them, and clients that ask them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from behave.runner import Context
from mcp import Client
from mcp.server import MCPServer

from rxlanggraph.agent import BaseAgent
from rxlanggraph.agent.mcp import mcp_server
from rxlanggraph.errors import AgentError
from support.concurrency.mcp_virtual import now
from support.concurrency.waiting import LIMIT, Gate

__all__ = [
    "MODES",
    "SECRET",
    "Mail",
    "Naive",
    "Obedient",
    "Stubborn",
    "made_tools",
    "noting",
    "with_client",
]

SECRET = "the password is swordfish"
MODES = {"2026": "auto", "2025": "legacy"}
IMAGE = {"type": "image", "data": "AAAA", "mime_type": "image/png"}


class Work:
    """Does what a message says. Confined to one loop."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.begun = asyncio.Event()
        self.cancelled = 0
        self.cleaned_up = 0
        self.barrier: asyncio.Barrier | None = None

    async def do(self, request: str) -> Any:
        self.told.append(f"begin {request}")
        self.begun.set()
        try:
            return await self._do(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            for _ in range(5):  # a cleanup that takes some turns of the loop
                await asyncio.sleep(0)
            self.cleaned_up += 1
            raise
        finally:
            self.told.append(f"end {request}")

    async def _do(self, request: str) -> Any:
        await asyncio.sleep(0)
        word, _, rest = request.partition(" ")
        if word == "hang":
            await asyncio.Event().wait()
        elif word == "sleep":
            await asyncio.sleep(float(rest))
        elif word == "meet":
            assert self.barrier is not None
            await self.barrier.wait()
        elif request in FAILURES:
            failure = FAILURES[request]
            raise failure()
        return ANSWERS.get(request, request)


class Leaky(LookupError):
    def __init__(self) -> None:
        super().__init__(SECRET)


class Unshown:
    def __str__(self) -> str:
        raise Leaky


def holding_itself() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


HALF = "half of \ud83d"
FAILURES = {
    "fail": Leaky,
    "cancel": asyncio.CancelledError,
    "an error with half of such a pair": lambda: AgentError(HALF),
}
ANSWERS: dict[str, Any] = {
    "blocks": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
    "mapping": {"degrees": 12},
    "image": [IMAGE],
    "half of a surrogate pair": HALF,
    "half of a surrogate pair in a list": [{"type": "text", "text": HALF}],
    "half of a surrogate pair as a key": {HALF: 1},
    "a list that holds itself": holding_itself(),
    "an object that cannot be shown": Unshown(),
    "bytes that are not UTF-8": b"\xff",
}


class Obedient(BaseAgent):
    def __init__(self, name: str = "obedient", **options: Any) -> None:
        super().__init__(name, max_steps=1, **options)
        self.work = Work()

    async def step(self) -> Any:
        answer = await self.work.do(self.request)
        return None if self.request == "nothing" else answer


class Documented(Obedient):
    """Does what it is told."""


class Stubborn(Obedient):
    """Does not end when it is cancelled, but when the gate opens."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.gate = Gate()

    async def step(self) -> Any:
        self.work.begun.set()
        while not self.gate.is_open:
            try:
                await self.gate.wait_async()
            except asyncio.CancelledError:
                continue
        return "at last"


class Naive:
    """The naive way: a lock over the run, and no deadline."""

    def __init__(self, timeout: float) -> None:
        self.work = Work()
        self._lock = asyncio.Lock()

    async def process_mcp_message(
        self, content: Any, sender: str, *, timeout: float | None = None
    ) -> Any:
        async with self._lock:
            return await self.work.do(content)


@dataclass
class Mail:
    """Messages to one recipient, in virtual time: what each sender got, and when."""

    recipient: Any
    got: dict[str, tuple[Any, float]] = field(default_factory=dict)
    senders: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def send(self, content: Any, timeout: float | None = None) -> None:
        name = content if isinstance(content, str) else "the image"
        self.senders[name] = asyncio.create_task(self._send(name, content, timeout))

    async def _send(self, name: str, content: Any, timeout: float | None) -> None:
        try:
            answer = await self.recipient.process_mcp_message(content, "me", timeout=timeout)
        except Exception as error:
            answer = error
        self.got[name] = (answer, now())

    async def wait_answered(self) -> None:
        """Wait for all answers, for an hour at most."""
        await asyncio.wait(self.senders.values(), timeout=3600)
        for sender in self.senders.values():
            sender.cancel()
        await asyncio.gather(*self.senders.values(), return_exceptions=True)


def made_tools(*agents: BaseAgent) -> MCPServer[Any]:
    """The naive way: the SDK awaits the run itself."""
    server: MCPServer[Any] = MCPServer("naive")
    for agent in agents:
        server.add_tool(_awaiting(agent), name=agent.name)
    return server


def _awaiting(agent: BaseAgent) -> Callable[[str], Awaitable[Any]]:
    async def ask(message: str) -> Any:
        return await agent.run(message, on_busy="enqueue")

    return ask


def with_client(
    make: Callable[[], dict[str, Obedient]],
    talk: Callable[[Client, dict[str, Obedient]], Awaitable[Any]],
    *,
    era: str,
    serve: Callable[..., MCPServer[Any]] = mcp_server,
) -> Any:
    """Have the SDK's client talk to a server of agents, both on a loop of their own."""

    async def main() -> Any:
        agents = make()
        async with (
            asyncio.timeout(LIMIT),
            Client(serve(*agents.values()), mode=MODES[era]) as client,
        ):
            return await talk(client, agents)

    return asyncio.run(main())


def noting(context: Context, fn: Callable[[], Any]) -> None:
    """Call it, and keep in the context what it returned or raised."""
    context.result = context.error = None
    try:
        context.result = fn()
    except Exception as error:
        context.error = error


def text_in(result: Any) -> str:
    """What a tool has answered."""
    return "".join(block.text for block in result.content)
