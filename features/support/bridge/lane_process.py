"""A process with a bridge that shares its lanes, or does not; told what to do by lines of input.

python -m support.bridge.lane_process SAVER STATE TTL

STATE may be "-": then its bridge has no lanes. ``count N`` has it send so many messages to one
thread, each of which adds 1 to a counter there; ``hold`` has it send one that waits in its node,
and says so, until it reads ``go on``. It prints what became of each.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.state import open_state
from support.concurrency.waiting import LIMIT

__all__ = ["THREAD", "LaneProcess", "adding", "saver_at"]

THREAD = "shared"
FEATURES = Path(__file__).parents[2]


class LaneProcess:
    """Such a process. It is killed at the end, if it has not ended."""

    def __init__(self, saver: str, state: str, ttl: float = 30.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.bridge.lane_process", saver, state, str(ttl)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FEATURES), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read() == "ready"

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def stop(self) -> None:
        """Suspend it, as a machine that is paused."""
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitpid(self._process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT)

    def end(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def saver_at(url: str) -> AbstractAsyncContextManager[Any]:
    """A saver in a SQLite file, or at a URL of PostgreSQL."""
    if url.startswith("postgresql:"):
        return AsyncPostgresSaver.from_conn_string(url)
    return AsyncSqliteSaver.from_conn_string(url)


class State(TypedDict, total=False):
    count: int
    hold: bool


def adding(saver: Any, hold: Any = None) -> Any:
    """A graph that adds 1 to the count of its thread, and waits for ``hold()`` if it is told to."""

    async def add(state: State) -> State:
        if state.get("hold"):
            await hold()
        await asyncio.sleep(0)
        return {"count": state.get("count", 0) + 1}

    return StateGraph(State).add_node("add", add).add_edge(START, "add").compile(saver)


# -- in such a process -----------------------------------------------------------------------------


async def _main(saver_url: str, state_url: str, ttl: float) -> None:
    opening: Any = nullcontext() if state_url == "-" else open_state(state_url)
    async with opening as lanes, saver_at(saver_url) as saver:
        bridge = RxPyLangGraphBridge(asyncio.get_running_loop(), lanes=lanes, lane_ttl=ttl)
        async with bridge:
            graph = adding(saver, _hold)
            print("ready", flush=True)
            while command := await _line():
                word, _, count = command.partition(" ")
                content = {"hold": word == "hold"}
                sent = [
                    bridge.create_future_task(
                        graph, content, thread_id=THREAD, errors="emit", durability="sync"
                    )
                    for _ in range(int(count or 1))
                ]
                results = [await each for each in sent]
                ends = {each.status if each.error is None else repr(each.error) for each in results}
                print(*sorted(ends), flush=True)


async def _hold() -> None:
    print("inside", flush=True)
    assert await _line() == "go on"


async def _line() -> str:
    loop = asyncio.get_running_loop()
    return (await loop.run_in_executor(None, sys.stdin.readline)).strip()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
