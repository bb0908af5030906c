"""Bridges with executors, and the runs that meet: what the steps of several modules use."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from behave.runner import Context

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.executors import RayExecutor
from rxlanggraph.hooks import Hooks, RunEnded
from support.concurrency.waiting import Gate
from support.executors.in_process import InProcessExecutor
from support.executors.meeting import Meeting

__all__ = ["LIMIT", "begin", "made", "open_bridge", "ray_executor", "send"]

# Seconds. A machine with other work to do may take minutes to start Ray and a worker.
LIMIT = 200.0
ray_executor = partial(RayExecutor, start_timeout=LIMIT - 20)
ENGINES: dict[str, Any] = {"in this process": InProcessExecutor, "of Ray": ray_executor}
_PLACE = re.compile(
    r"(?P<engine>in this process|of Ray)(?:, for (?P<calls>\d+) calls each)?"
    r"(?:, and (?P<retries>\d+) retries)?"
    r"(?:, of which the first (?P<failing>\d+) starts fail)?"
    r"(?:, of which the first (?P<endless>\d+) never starts)?"
    r"(?P<silent>, which answer nothing)?"
)


class Ended(Hooks):
    """Which runs have really ended."""

    def __init__(self) -> None:
        self._gates: dict[Any, Gate] = {}

    def gate(self, run: Any) -> Gate:
        """Opened when it has; for any thread."""
        return self._gates.setdefault(run, Gate())

    def on_ended(self, event: RunEnded) -> None:
        self.gate(event.future).open()


def open_bridge(context: Context, executor: Any, graph: Any, **options: Any) -> None:
    context.executor, context.graph = executor, graph
    context.bridge = RxPyLangGraphBridge(executor=executor, max_concurrency=64, **options)
    context.add_cleanup(context.bridge.close, 0)
    context.ended = Ended()
    context.bridge.add_hooks(context.ended)
    context.meeting = Meeting()
    context.add_cleanup(context.meeting.__exit__, None, None, None)


def made(target: Any, workers: int, where: str) -> Any:
    match = _PLACE.fullmatch(where)
    assert match is not None, where
    options: dict[str, Any] = {"workers": workers}
    for name, group in (
        ("calls_per_worker", "calls"),
        ("retries", "retries"),
        ("failing_starts", "failing"),
        ("endless_starts", "endless"),
    ):
        if match[group] is not None:
            options[name] = int(match[group])
    if match["silent"] is not None:
        options["silent"] = True
    return ENGINES[match["engine"]](
        target, context_vars=["support.executors.graphs:tenant"], **options
    )


def send(context: Context, count: int) -> None:
    """Send messages to the graph that meets; wait until all have begun."""
    context.runs = [
        context.bridge.create_future_task(context.graph, {"n": n, "port": context.meeting.port})
        for n in range(count)
    ]


def begin(context: Context, count: int) -> None:
    context.guests = {guest.n: guest for guest in context.meeting.wait_for(count)}
