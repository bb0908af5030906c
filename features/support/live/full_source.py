"""A source with the most of everything that a snapshot can have, and the longest texts."""

from __future__ import annotations

import time
from typing import Any

from rxlanggraph.live.history import SECONDS
from rxlanggraph.live.schema import LONGEST_TEXT, VERSION
from rxlanggraph.live.source import Answered
from rxlanggraph.messages import Status

__all__ = ["FullSource"]

LONG = "w" * LONGEST_TEXT
MANY = 123_456_789
STATES = ["queued", "running", "cancelling", "finished", "pending", "waiting_for_thread"]
STATUSES: list[Status] = ["ok", "error", "interrupted", "cancelled", "timed_out", "rejected"]
COUNTS = "submitted succeeded failed cancelled dropped in_flight peak_in_flight active queued"
PROGRESS = "lines answered ok failed dead invalid in_flight waiting"


class FullSource:
    """It refuses everything. Any loop."""

    closed = False

    def __init__(self) -> None:
        self._since = time.time()

    async def snapshot(self) -> Any:
        now = time.time()
        ended = {status: [MANY] * SECONDS for status in STATUSES}
        return {
            "version": VERSION,
            "kind": "bridge",
            "name": LONG,
            "state": "open",
            "time": now,
            "since": self._since,
            "shows_content": True,
            "actions": ["cancel", "answer", "stack"],
            "nodes": "sampled",
            "counts": {**dict.fromkeys(COUNTS.split(), MANY), "max_concurrency": None},
            "history": {
                **ended,
                "first": int(now) - SECONDS + 1,
                "active": [None] * SECONDS,
                "queued": [*[None] * (SECONDS - 1), MANY],
            },
            "loop": {"lag": None, "blocked": [self._blocked(now)] * 10},
            "runs": [self._run(number, now) for number in range(250)],
            "recent": [self._ended(number, now) for number in range(200)],
            "slowest": [self._ended(number, now) for number in range(20)],
            "failures": [self._failure(number) for number in range(50)],
            "interrupts": [self._question(number, now) for number in range(100)],
            "journal": {
                **dict.fromkeys(PROGRESS.split(), MANY),
                **dict.fromkeys(("journal", "graph", "input", "begun"), LONG),
                "finished": False,
                "input_complete": False,
                "workers": {f"{number} {LONG}": MANY for number in range(40)},
            },
            "left_out": dict.fromkeys(("runs", "recent", "failures", "interrupts"), MANY),
        }

    def _run(self, number: int, now: float) -> Any:
        has_begun = number % 2 == 0
        return {
            "id": number,
            "name": LONG,
            "thread_id": None if number % 3 else f"{number} {LONG}",
            "message_id": None if number == 1 else LONG,
            "state": STATES[number % len(STATES)],
            "age": 1e6,
            "waiting": None,
            "attempt": MANY if has_begun else None,
            "node": LONG if has_begun else None,
            "began": now - 1e6 if has_begun else None,
            "nodes": [self._span(at, now) for at in range(60)],
            "stuck": has_begun,
            "stack": f"{LONG}\n" * 50 if has_begun and number < 10 else None,
        }

    def _span(self, at: int, now: float) -> Any:
        return {"node": LONG, "began": now - 60 + at, "ended": now - 59.5 + at, "status": "ok"}

    def _ended(self, number: int, now: float) -> Any:
        never_began = number % 5 == 0
        return {
            "name": LONG,
            "thread_id": None if number % 2 else f"{number} {LONG}",
            "message_id": str(number),
            "status": STATUSES[number % len(STATUSES)],
            "began": None if never_began else now - number / 3 - 1,
            "ended": now - number / 3,
            "duration": None if never_began else 1.0,
            "attempt": 1,
            "error": {"type": LONG, "node": LONG, "message": LONG} if number % 2 else None,
            "nodes": [],
        }

    def _failure(self, number: int) -> Any:
        texts = dict.fromkeys(("name", "node", "thread_id", "message_id"), LONG)
        times = {"first": None, "last": None}
        message = f"{LONG}\n" * 10
        kind = f"{number} {LONG}"
        return {**texts, **times, "status": "dead", "type": kind, "count": MANY, "message": message}

    def _question(self, number: int, now: float) -> Any:
        values: list[Any] = [None, "text" * 1000, {"a": [1] * 500}, 5, True, []]
        return {
            "id": str(number),
            "name": LONG,
            "thread_id": LONG,
            "interrupt_id": LONG,
            "asked": now,
            "value": values[number % len(values)],
            "answering": number == 3,
        }

    def _blocked(self, now: float) -> Any:
        return {"time": now - 5, "where": LONG, "seconds": 3.0, "stack": f"{LONG}\n" * 50}

    async def stack(self, run_id: int) -> str:
        return f"{LONG}\n" * 100

    async def cancel(self, run_id: int) -> bool:
        return False

    async def answer(self, question_id: str, value: Any) -> Answered:
        return Answered("refused", None, LONG)

    def close(self) -> None:
        pass
