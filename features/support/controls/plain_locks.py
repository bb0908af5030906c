"""Code under a plain lock, for which its own thread waits when it comes in again."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from rxlanggraph.agent import AgentState
from support.bridge import registry_inside
from support.concurrency.entering import Enterable
from support.controls import agent_naive, naive, output_naive

__all__ = ["QUEUE", "SET", "STATE"]


def _add(tasks: Any) -> None:
    tasks.add(Future())


def _change(machine: Any) -> None:
    with machine.context(AgentState.RUNNING):
        pass


SET: Enterable[Any] = Enterable(
    files=registry_inside.FILES | {str(naive.__file__)},
    make=lambda _: naive.LockedSet(),
    operations={"adding a task": _add},
    entries={"adds another": (_add, len)},
)
STATE: Enterable[Any] = Enterable(
    files={str(agent_naive.__file__), str(naive.__file__)},
    make=lambda _: agent_naive.PlainLockState(),
    operations={"changing it": _change},
    entries={"changes it": (_change, lambda _: None)},
)
QUEUE: Enterable[Any] = Enterable(
    files={str(output_naive.__file__)},
    make=lambda _: output_naive.PlainLockQueue(),
    operations={"putting": lambda queue: queue.put_nowait(1)},
    entries={"puts": (lambda queue: queue.put_nowait(2), lambda _: None)},
)
