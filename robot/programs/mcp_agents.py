"""Agents behind a real MCP server. Each says on standard error what becomes of its runs.

Usage: mcp_agents.py TRANSPORT [GRACE [LAST [OPTIONS]]]. TRANSPORT is stdio, thread (stdio, not in
the main thread) or http; then it says where it serves. GRACE is what calls in flight have after a
signal, on http; LAST what the end of it all may take beside that. OPTIONS are more arguments for
serve_http, as JSON; "descriptors" among them is how many files the process may have open.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

from rxlanggraph.agent import BaseAgent
from rxlanggraph.agent.mcp import serve_http, serve_stdio, signals

EVER = math.inf
meeting = asyncio.Barrier(2)


def say(text: str) -> None:
    # One write, so that lines do not mix.
    os.write(2, f"{text}\n".encode())


async def opened() -> None:
    """Return at the next SIGUSR1."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


class Obedient(BaseAgent):
    """Does what it is told to: the name of a method below, and words for it."""

    async def process_mcp_message(self, content: Any, *arguments: Any, **options: Any) -> Any:
        say(f"{self.name} hears {content[:50]}")
        return await super().process_mcp_message(content, *arguments, **options)

    async def step(self) -> Any:
        task, _, words = self.request.partition(" ")
        told = self.request[:50]
        try:
            say(f"{self.name} begins {told}")
            return await getattr(self, f"do_{task}")(words)
        except asyncio.CancelledError:
            for _ in range(20):  # a cleanup of its own, which takes some turns of the loop
                await asyncio.sleep(0)
            say(f"{self.name} gives up {told}")
            raise
        finally:
            say(f"{self.name} ends {told}")

    async def do_say(self, words: str) -> str:
        await asyncio.sleep(0)
        return words

    async def do_meet(self, _: str) -> str:
        """Answer once another agent does this too."""
        await meeting.wait()
        return "met"

    async def do_wait(self, _: str) -> None:
        await asyncio.Event().wait()

    async def do_persist(self, _: str) -> None:
        """Go on forever, ignoring cancellation."""
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def do_block(self, _: str) -> None:
        """Block the loop forever."""
        while True:
            time.sleep(3600)  # noqa: ASYNC251 # as an agent does that knows no better

    async def do_pass(self, _: str) -> str:
        await opened()
        return "passed"

    async def do_fail(self, words: str) -> None:
        raise LookupError(words)

    async def do_tell(self, letters: str) -> str:
        return "x" * int(letters)

    async def do_half(self, _: str) -> str:
        return "half of an emoji: \ud83d"

    async def do_exit(self, _: str) -> None:
        sys.exit("as an agent does that knows no better")

    async def do_interrupt(self, _: str) -> None:
        raise KeyboardInterrupt

    async def do_signal(self, name: str) -> None:
        """Have a signal come in the midst of a run."""
        signal.raise_signal(signal.Signals[name])
        await asyncio.Event().wait()

    async def do_print(self, words: str) -> str:
        print(words, flush=True)
        return "printed"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    agents = [Obedient(name, timeout=EVER) for name in ("ann", "bob")]
    # Seconds that suffice for an answer even on a busy machine.
    agents.append(Obedient("hasty", timeout=5.0))
    transport, *rest = sys.argv[1:]
    grace, signals._LAST_SECONDS = [*map(float, rest[:2]), 60, signals._LAST_SECONDS][:2]
    options = json.loads(rest[2]) if rest[2:] else {}
    if descriptors := options.pop("descriptors", None):
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    say(f"pid {os.getpid()}")
    if transport == "stdio":
        serve_stdio(*agents)
    elif transport == "thread":
        thread = threading.Thread(target=serve_stdio, args=agents)
        thread.start()
        thread.join()
    else:
        serve_http(*agents, port=0, grace=grace, **options)
    say("returned")
