"""A source that is faster than its graph: what is kept under each `overflow` policy.

    python overflow.py

Three sensors report while the graph is busy, and the bridge lets three messages wait. With "block"
the source waits, so nothing is lost and nothing is current. "error" and "drop_newest" keep what
came first, "drop_oldest" keeps what came last, and "latest" the last of each sensor.
"""

from __future__ import annotations

import threading
from typing import Literal, get_args

from reactivex.subject import Subject

from rxlanggraph import RxPyLangGraphBridge, StreamMessage

Overflow = Literal["block", "error", "drop_newest", "drop_oldest", "latest"]
READINGS = ["a1", "b1", "c1", "a2", "a3", "b2", "a4"]
"""Sensor and number, in the order in which they arrive."""


def evaluated(overflow: Overflow) -> tuple[list[str], list[str]]:
    """Return the readings that the graph has evaluated, and those that were rejected."""
    busy, go_on = threading.Event(), threading.Event()

    def evaluate(reading: str) -> str:  # as slow as a model; any graph would do
        busy.set()
        go_on.wait()
        return reading

    results: list[StreamMessage] = []
    readings: Subject[StreamMessage] = Subject()

    def report() -> None:
        for reading in READINGS:
            readings.on_next(StreamMessage(reading, thread_id=reading[0]))

    with RxPyLangGraphBridge(max_concurrency=1, max_pending=3, overflow=overflow) as bridge:
        readings.pipe(bridge.invoke(evaluate, errors="emit")).subscribe(results.append)
        readings.on_next(StreamMessage("first"))
        busy.wait()
        reporting = threading.Thread(target=report)
        reporting.start()
        if overflow != "block":  # which holds the source back, until there is room
            reporting.join()
        go_on.set()
        reporting.join()
    kept = [result.content for result in results if result.status == "ok"]
    rejected = [result.source.content for result in results if result.source and result.error]
    return sorted(kept[1:], key=READINGS.index), rejected


def main() -> None:
    """Print what each policy keeps."""
    for overflow in get_args(Overflow):
        kept, rejected = evaluated(overflow)
        print(f"{overflow:12} evaluates {' '.join(kept)}; rejects {' '.join(rejected) or 'none'}")


if __name__ == "__main__":
    main()
