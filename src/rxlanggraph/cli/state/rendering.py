"""Tasks, queues, keys and locks as text for a terminal, and as data for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rxlanggraph.cli.tables import columns, duration

if TYPE_CHECKING:
    from rxlanggraph.state import QueuedTask, QueueStats
    from rxlanggraph.state.schedules import ScheduleInfo

__all__ = [
    "SCHEDULE_COLUMNS",
    "STATS_COLUMNS",
    "TASK_COLUMNS",
    "schedule_data",
    "schedule_row",
    "stats_data",
    "stats_row",
    "task_data",
    "task_lines",
    "task_row",
]

SCHEDULE_COLUMNS: Final = ("schedule", "cron", "time zone", "queue", "done until")
TASK_COLUMNS: Final = ("task", "state", "age", "attempts", "worker", "key", "thread")
_COUNTS: Final = ("waiting", "delayed", "claimed", "completed", "dead", "expired")
STATS_COLUMNS: Final = ("queue", *_COUNTS)
_TEXTS: Final = ("item", "result", "error")
_TIMES: Final = ("added", "claimed", "ended")


def _moment(seconds: float | None) -> str | None:
    """Return a time as text: ISO 8601, UTC; in seconds after the year 9999, as of a wrong clock."""
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return f"{seconds:.0f} s after 1970"


# -- schedules -------------------------------------------------------------------------------------


def schedule_data(schedule: ScheduleInfo) -> dict[str, Any]:
    """Return a schedule for JSON."""
    return schedule._asdict() | {"done": _moment(schedule.done)}


def schedule_row(schedule: ScheduleInfo) -> tuple[str, ...]:
    """Return a schedule as a row under `SCHEDULE_COLUMNS`."""
    done = _moment(schedule.done) or ""
    return (schedule.name, schedule.cron, schedule.timezone, schedule.queue, done)


# -- tasks -----------------------------------------------------------------------------------------


def task_data(task: QueuedTask, *, texts: bool) -> dict[str, Any]:
    """Return a task for JSON; with item, result and error if they were read."""
    names = [field.name for field in fields(task) if texts or field.name not in _TEXTS]
    data = {name: getattr(task, name) for name in names}
    return data | {name: _moment(data[name]) for name in _TIMES}


def task_row(task: QueuedTask) -> tuple[str, ...]:
    """Return a task as a row under `TASK_COLUMNS`."""
    attempts = f"{task.attempts} of {task.max_attempts}"
    return (
        task.id,
        _state(task),
        duration(task.age),
        attempts,
        task.worker or "",
        task.key or "",
        task.thread_id or "",
    )


def _state(task: QueuedTask) -> str:
    return "delayed" if task.state == "waiting" and task.due_in else task.state


def task_lines(task: QueuedTask) -> str:
    """Return all that is known of a task, a line for each part of its history."""
    due = "lease ends in" if task.state == "claimed" else "due in"
    rows = [
        ("task", task.id),
        ("queue", task.queue),
        ("key", task.key),
        ("thread", task.thread_id),
        ("priority", str(task.priority)),
        ("state", f"{_state(task)}, for {duration(task.age)}"),
        ("attempts", f"{task.attempts} of {task.max_attempts}"),
        ("worker", task.worker),
        *((name, _moment(getattr(task, name))) for name in _TIMES),
        (due, duration(task.due_in) if task.due_in else None),
        *((name, _json(getattr(task, name))) for name in _TEXTS),
    ]
    return columns([(name, value) for name, value in rows if value is not None])


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


# -- queues ----------------------------------------------------------------------------------------


def stats_row(queue: str, stats: QueueStats) -> tuple[str, ...]:
    """Return the numbers of a queue as a row under `STATS_COLUMNS`."""
    return (queue, *(f"{getattr(stats, name):,}" for name in _COUNTS))


def stats_data(queue: str, stats: QueueStats) -> Mapping[str, Any]:
    """Return the numbers of a queue for JSON."""
    counts = {name: getattr(stats, name) for name in _COUNTS}
    return {"queue": queue, **counts, "by_worker": dict(sorted(stats.by_worker.items()))}
