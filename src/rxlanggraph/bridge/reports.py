"""Reports: telling the hooks of a bridge what happens to its runs.

An event of a run without hooks costs one look-up of an attribute, and one that no hook listens to
another. When a run ends, its hooks are removed from it. What breaks without that: its end is
reported twice, or an event follows its end.
"""

from __future__ import annotations

import logging
import threading
import time

from rxlanggraph.bridge.hook_calls import Event, ListenerSet, Observed
from rxlanggraph.bridge.run import Run
from rxlanggraph.concurrency.loop_watch import Blockage
from rxlanggraph.concurrency.user_code import raise_on_loop
from rxlanggraph.hooks import (
    ChunkEmitted,
    LoopBlocked,
    NodeEnded,
    NodeStatus,
    RunEnded,
    RunEvent,
    RunQueued,
    RunStarted,
)
from rxlanggraph.messages import StreamMessage

__all__ = [
    "report_blocked",
    "report_chunk",
    "report_end",
    "report_node",
    "report_queued",
    "report_started",
]

_log = logging.getLogger("rxlanggraph")


def _tell_on_loop(event: Event, what: RunEvent) -> None:
    interrupt = event.tell(what)
    if interrupt is not None:
        raise_on_loop(interrupt)


def report_queued(run: Run, listeners: ListenerSet) -> None:
    """Tell of the arrival of ``run``, and have it observed. In the submitter's thread.

    Raises:
        KeyboardInterrupt, SystemExit: In the main thread, from a signal handler.
    """
    arrived = 0.0 if listeners.started is None else run.clock.now()
    observed = run.observed = Observed(listeners, arrived)
    if listeners.queued is None:
        return
    # A hook that waits for the run, which cannot begin meanwhile, is told so.
    observed.announced_by = threading.get_ident()
    try:
        event = RunQueued(run, run.message, run.options.name, time.time())
        interrupt = listeners.queued.tell(event)
    finally:
        observed.announced_by = None
    if interrupt is not None:
        raise interrupt


def report_started(run: Run, observed: Observed) -> None:
    """Tell that ``run`` begins. On the loop, in the task of the run."""
    observed.begun = True
    if observed.by.started is not None:
        waited = run.since - observed.arrived
        event = RunStarted(run, run.message, run.options.name, time.time(), waited)
        _tell_on_loop(observed.by.started, event)


def report_chunk(run: Run, observed: Observed, chunk: StreamMessage) -> None:
    """Tell of a chunk. On the loop, in the task of the run."""
    if observed.by.chunk is not None and not run.done():
        attempt = max(1, run.attempts)
        event = ChunkEmitted(run, run.message, run.options.name, time.time(), chunk, attempt)
        _tell_on_loop(observed.by.chunk, event)


def report_node(
    run: Run, node: str, status: NodeStatus, error: BaseException | None, duration: float
) -> None:
    """Tell of the end of a node. Where LangChain calls its callbacks."""
    observed = run.observed
    if observed is not None and observed.by.node is not None:
        name, attempt = run.options.name, max(1, run.attempts)
        event = NodeEnded(
            run, run.message, name, time.time(), node, status, error, duration, attempt
        )
        _tell_on_loop(observed.by.node, event)


def report_end(run: Run, result: StreamMessage) -> BaseException | None:
    """Tell of the end of ``run``, once: later calls do nothing. Any thread; without any lock.

    Args:
        run: The run, whose future is resolved, or which its submitter did not get.
        result: What became of it, if its future was not resolved otherwise before.

    Returns:
        An exception that a signal handler may have raised meanwhile.
    """
    with run.lock:
        observed, run.observed = run.observed, None
    if observed is None or observed.by.ended is None:
        return None
    if run.cancelled():
        if result.status != "cancelled":
            result = run.unanswered("cancelled")
    else:  # two threads may end it for different reasons: what it was resolved with counts
        result = run.result_nowait() or result
    duration, attempt = None, 0
    if observed.begun:
        duration, attempt = run.clock.now() - run.since, max(1, run.attempts)
    event = RunEnded(run, run.message, run.options.name, time.time(), result, duration, attempt)
    return observed.by.ended.tell(event)


def report_blocked(name: str, listeners: ListenerSet | None, blockage: Blockage) -> None:
    """Log what blocks the loop of the bridge ``name``, and report it. In the watch's thread."""
    _log.warning(
        "the event loop of the bridge %s has been blocked for %.3g s by %s, and all of its runs "
        "with it; have that return sooner, or move it to a thread (asyncio.to_thread in a node, "
        "observe_on before a subscriber)\n%s",
        name,
        blockage.seconds,
        blockage.where,
        blockage.stack,
        extra={
            "event": "loop_blocked",
            "bridge": name,
            "where": blockage.where,
            "duration": blockage.seconds,
            "stack": blockage.stack,
        },
    )
    if listeners is not None and listeners.blocked is not None:
        event = LoopBlocked(name, time.time(), *blockage)
        listeners.blocked.tell(event)
