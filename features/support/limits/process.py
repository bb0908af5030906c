"""A process with a bridge that shares its limits: calls a provider until it is told to stop.

python -m support.limits.process URL STATE REQUESTS PER CALLS

Half of the calls are made in coroutines, half in threads. It prints when all have arrived, and in
the end how many were made, and how many wait.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.limits import Limits, ModelCall, ModelLimit
from rxlanggraph.state import open_state
from support.concurrency.waiting import LIMIT
from support.limits.models import ProviderModel
from support.limits.nodes import NODES

__all__ = ["run_process"]

FEATURES = Path(__file__).parents[2]


def run_process(*arguments: object) -> subprocess.Popen[str]:
    """Start one."""
    return subprocess.Popen(
        [sys.executable, "-m", "support.limits.process", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FEATURES), *map(str, sys.path)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def main(url: str, state_url: str, requests: int, per: float, calls: int) -> None:
    loop, arrived = asyncio.get_running_loop(), asyncio.Semaphore(0)

    def key(call: ModelCall) -> str:
        loop.call_soon_threadsafe(arrived.release)
        return call.model

    async with open_state(state_url) as state:
        limits = Limits(ModelLimit(requests=requests, per=per), state=state, key=key)
        async with RxPyLangGraphBridge(limits=limits) as bridge:
            model = ProviderModel(url=url)
            graphs = [NODES["an async node"](model), NODES["a sync node"](model)]
            for number in range(calls):
                bridge.create_future_task(graphs[number % 2], {"text": "10 20"}, errors="emit")
            async with asyncio.timeout(LIMIT):
                for _ in range(calls):
                    await arrived.acquire()
            print(calls, "have arrived", flush=True)
            assert await asyncio.to_thread(sys.stdin.readline) == "stop\n"
            figures = limits.statistics()["small"]
            print(figures.calls, figures.waiting, flush=True)
            await bridge.cleanup_tasks_async()


if __name__ == "__main__":
    asyncio.run(
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    )
