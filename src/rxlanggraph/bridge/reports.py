"""Reports: telling the hooks of a bridge what happens to its runs.

Whether anybody listens is looked up in a run once per event, and nothing else is done where nobody
does. From its end on, a run has no observers: so its end is told of once, and nothing after it.
"""

from __future__ import annotations

import logging
import threading
import time

from rxlanggraph.bridge.run import Run
from rxlanggraph.concurrency.loop_watch import Blockage
from rxlanggraph.concurrency.user_code import raise_on_loop
from rxlanggraph.hooks import (
    ChunkEmitted,
    Listener,
    LoopBlocked,
    NodeEnded,
    NodeStatus,
    Observers,
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


def _call_each(
    listeners: tuple[Listener, ...], method: str, event: RunEvent | LoopBlocked
) -> BaseException | None:
    interrupt = None
    for listener in listeners:
        interrupt = listener.call(method, event) or interrupt
    return interrupt


def _call_on_loop(listeners: tuple[Listener, ...], method: str, event: RunEvent) -> None:
    interrupt = _call_each(listeners, method, event)
    if interrupt is not None:
        raise_on_loop(interrupt)


def _of(run: Run) -> tuple[Run, StreamMessage, str, float]:
    return run, run.message, run.options.name, time.time()


def report_queued(run: Run, observers: Observers) -> None:
    """Tell of the arrival of ``run``, and have it observed. In the submitter's thread.

    Raises:
        KeyboardInterrupt, SystemExit: In the main thread, from a signal handler.
    """
    run.observers = observers
    run.arrived = run.place.clock.now()
    if not observers.queued:
        return
    # A hook that waits for the run, which cannot begin meanwhile, is told so.
    run.announced_by = threading.get_ident()
    try:
        interrupt = _call_each(observers.queued, "on_queued", RunQueued(*_of(run)))
    finally:
        run.announced_by = None
    if interrupt is not None:
        raise interrupt


def report_started(run: Run, observers: Observers) -> None:
    """Tell that ``run`` begins. On the loop, in the task of the run."""
    run.begun = True
    if observers.started:
        event = RunStarted(*_of(run), run.since - run.arrived)
        _call_on_loop(observers.started, "on_started", event)


def report_chunk(run: Run, observers: Observers, chunk: StreamMessage) -> None:
    """Tell of a chunk. On the loop, in the task of the run."""
    if observers.chunk and not run.done():
        event = ChunkEmitted(*_of(run), chunk, max(1, run.attempts))
        _call_on_loop(observers.chunk, "on_chunk", event)


def report_node(
    run: Run, node: str, status: NodeStatus, error: BaseException | None, duration: float
) -> None:
    """Tell of the end of a node. Where LangChain calls its callbacks."""
    observers = run.observers
    if observers is not None:
        event = NodeEnded(*_of(run), node, status, error, duration, max(1, run.attempts))
        _call_on_loop(observers.node, "on_node", event)


def report_end(run: Run, result: StreamMessage) -> BaseException | None:
    """Tell of the end of ``run``, once: later calls do nothing. Any thread; without any lock.

    Args:
        run: The run, whose future is resolved, or which its submitter did not get.
        result: What became of it, if its future was not resolved otherwise before.

    Returns:
        An exception that a signal handler may have raised meanwhile.
    """
    with run.lock:
        observers, run.observers = run.observers, None
    if observers is None or not observers.ended:
        return None
    if run.cancelled():
        if result.status != "cancelled":
            result = run.unanswered("cancelled")
    else:
        result = run.resolved_early or run.result_nowait() or result
    event = RunEnded(
        *_of(run),
        result,
        run.place.clock.now() - run.since if run.begun else None,
        max(1, run.attempts) if run.begun else 0,
    )
    return _call_each(observers.ended, "on_ended", event)


def report_blocked(name: str, observers: Observers | None, blockage: Blockage) -> None:
    """Log what blocks the loop of the bridge ``name``, and tell of it. In the watch's thread."""
    _log.warning(
        "the event loop of the bridge %s has been blocked for %.3g s by %s, and all of its runs "
        "with it; have that return sooner, or move it to a thread (asyncio.to_thread in a node, "
        "observe_on before a subscriber)\n%s",
        name,
        blockage.seconds,
        blockage.where,
        blockage.stack,
    )
    if observers is not None and observers.blocked:
        event = LoopBlocked(name, time.time(), *blockage)
        _call_each(observers.blocked, "on_blocked", event)
