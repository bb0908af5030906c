"""The events of runs as hooks get them, and a sequential model of what a run may do."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from rxlanggraph import RxPyLangGraphBridge, errors
from rxlanggraph.hooks import (
    ChunkEmitted,
    Hooks,
    NodeEnded,
    RunEnded,
    RunEvent,
    RunQueued,
    RunStarted,
)
from support.concurrency.waiting import LIMIT, Log, in_threads

__all__ = ["Recorder", "check_grammar", "check_outcomes", "send_with_faults", "status_of"]


class Recorder(Hooks):
    """Writes down every event, with the thread that it came in."""

    def __init__(self, raising: Callable[[RunEvent], object] = lambda _: None) -> None:
        self.events = Log()
        self.threads: dict[type[RunEvent], set[int]] = defaultdict(set)
        self._raising = raising

    def _note(self, event: RunEvent) -> None:
        self.threads[type(event)].add(threading.get_ident())
        self.events.add(event)
        self._raising(event)

    def on_queued(self, event: RunQueued) -> None:
        self._note(event)

    def on_started(self, event: RunStarted) -> None:
        self._note(event)

    def on_chunk(self, event: ChunkEmitted) -> None:
        self._note(event)

    def on_node(self, event: NodeEnded) -> None:
        self._note(event)

    def on_ended(self, event: RunEnded) -> None:
        self._note(event)

    def by_run(self) -> dict[Future[Any], list[RunEvent]]:
        found: dict[Future[Any], list[RunEvent]] = {}
        for event in self.events:
            found.setdefault(event.future, []).append(event)
        return found


# What may follow what, of one run.
_NEXT: dict[type[RunEvent] | None, set[type[RunEvent]]] = {
    None: {RunQueued},
    RunQueued: {RunStarted, RunEnded},
    RunStarted: {ChunkEmitted, NodeEnded, RunEnded},
    ChunkEmitted: {ChunkEmitted, NodeEnded, RunEnded},
    NodeEnded: {ChunkEmitted, NodeEnded, RunEnded},
    RunEnded: set(),
}


def check_grammar(recorder: Recorder) -> None:
    """Every run was queued, and then did what a run may do, up to its end."""
    for future, events in recorder.by_run().items():
        state: type[RunEvent] | None = None
        for event in events:
            assert type(event) in _NEXT[state], (future, [type(each).__name__ for each in events])
            assert event.future is future
            assert event.message is events[0].message
            state = type(event)
        last = events[-1]
        assert isinstance(last, RunEnded), (future, [type(each).__name__ for each in events])
        has_begun = any(isinstance(event, RunStarted) for event in events)
        assert (last.duration is not None) == has_begun == (last.attempt > 0), last


def status_of(future: Future[Any]) -> str:
    """How a run has ended, as its future says."""
    by_error = {
        errors.RunTimeoutError: "timed_out",
        errors.RunInterruptedError: "interrupted",
        errors.RunRejectedError: "rejected",
    }
    try:
        result = future.result(LIMIT)
    except CancelledError:
        return "cancelled"
    except BaseException as error:
        return next((by_error[kind] for kind in by_error if isinstance(error, kind)), "error")
    status: str = result.status
    return status


def check_outcomes(recorder: Recorder, futures: list[Future[Any]]) -> None:
    """Each of these futures has a run with an end, which says what the future says."""
    by_run = recorder.by_run()
    for future in futures:
        (ended,) = [each for each in by_run[future] if isinstance(each, RunEnded)]
        assert ended.status == status_of(future), (ended, status_of(future))


def send_with_faults(
    bridge: RxPyLangGraphBridge,
    graphs: list[Any],
    seed: int,
    messages: int,
    halfway: Callable[[], object],
) -> tuple[list[Future[Any]], int]:
    """Send messages from 4 threads, some of which are cancelled, time out, fail or are refused.

    Returns:
        The futures that the threads got, and how many messages were refused with an exception.
    """
    share = messages // 4

    def feed(number: int) -> tuple[list[Future[Any]], int]:
        rng = random.Random(seed * 100 + number)
        futures: list[Future[Any]] = []
        refused = 0
        for index in range(share):
            if number == 0 and index == share // 2:
                halfway()
            options: dict[str, Any] = {
                "errors": rng.choice(["raise", "emit"]),
                "thread_id": rng.choice([None, None, "a", "b"]),
                "multitask_strategy": rng.choice(["enqueue", "reject", "interrupt"]),
                "timeout": rng.choice([None, None, 0.001, 0.01]),
                "deadline": rng.choice([None, None, None, 0.02]),
                "retry": rng.choice([None, None, 1]) if index % 10 == 0 else None,
            }
            graph = rng.choice(graphs)
            try:
                if rng.random() < 0.2:
                    reader = bridge.astream(graph, {"value": index}, **options)
                    futures.append(reader.run)
                    if rng.random() < 0.5:
                        del reader  # which ends the run
                else:
                    futures.append(bridge.create_future_task(graph, {"value": index}, **options))
            except errors.RxLangGraphError:
                refused += 1
                continue
            if rng.random() < 0.2:
                rng.choice(futures).cancel()
        return futures, refused

    parts = in_threads(4, feed)
    return [future for part, _ in parts for future in part], sum(refused for _, refused in parts)
