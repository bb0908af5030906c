"""Processes that use one database at once: each a program of its own, begun by a line of input.

python -m support.state.sql_processes URL COUNT
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from rxlanggraph.state import open_state
from support.concurrency.tasks import PATIENCE

__all__ = ["COUNTER", "count_in_processes"]

COUNTER = "counter"
FEATURES = Path(__file__).parents[2]


def count_in_processes(url: str, processes: int, each: int) -> list[str]:
    """Have so many processes open the state and count; return what they complained about."""
    running = [_started(url, each) for _ in range(processes)]
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()  # by now it has imported all that it needs
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    return [complaint for process in running if (complaint := _end_of(process))]


def _started(url: str, each: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "support.state.sql_processes", url, str(each)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(FEATURES), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end_of(process: subprocess.Popen[str]) -> str:
    _, complaint = process.communicate(timeout=PATIENCE)
    return complaint or ("killed" if process.returncode else "")


# -- in such a process -----------------------------------------------------------------------------


async def count(url: str, each: int) -> None:
    async with open_state(url) as state:
        for _ in range(each):
            await state.increment_counter(COUNTER)


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(count(sys.argv[1], int(sys.argv[2])))
