"""One queue of the store in memory: tasks, their order, their threads, their leases."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from rxlanggraph.state.agenda import Agenda
from rxlanggraph.state.contract import ClaimedTask, DeadTask, NewTask, QueueStats, TaskState

__all__ = ["MemoryQueue"]


@dataclass(slots=True)
class _Record:
    task: NewTask
    place: int  # in the order of adding
    due: float
    state: TaskState = "waiting"
    attempts: int = 0
    worker: str = ""
    token: int | None = None  # the current one; of a completed task, the one that completed it
    expires: float = 0.0
    error: str | None = None
    result: str | None = None


class MemoryQueue:
    """The tasks of one queue, as `Backend` describes them. Guarded by the lock of the store.

    Args:
        numbers: Tokens and places.
        clock: Seconds; never goes back.
    """

    def __init__(self, numbers: Iterator[int], clock: Callable[[], float]) -> None:
        self._numbers = numbers
        self._clock = clock
        # In the order of adding.
        self._records: dict[str, _Record] = {}
        self._keys: dict[str, str] = {}
        self._delayed: Agenda[str] = Agenda()
        self._leases: Agenda[str] = Agenda()
        # (-priority, place, id) of what can be claimed, and of some that cannot any more: each is
        # looked at when it comes first. `_lined_up` has the places, so that none is there twice.
        self._ready: list[tuple[int, int, str]] = []
        self._lined_up: set[int] = set()
        # Of each thread its tasks in the order of adding, from the first unfinished one on.
        self._threads: dict[str, deque[_Record]] = {}

    # -- adding and claiming -----------------------------------------------------------------

    def add(self, task: NewTask) -> str:
        """Add ``task`` unless it is known; return its id or the known one's."""
        if task.id in self._records:
            return task.id
        if task.key is not None:
            known = self._keys.setdefault(task.key, task.id)
            if known != task.id:
                return known
        self._append(task, self._clock() + task.delay)
        return task.id

    def _append(self, task: NewTask, due: float) -> None:
        record = self._records[task.id] = _Record(task, next(self._numbers), due)
        if task.thread_id is not None:
            self._threads.setdefault(task.thread_id, deque()).append(record)
        self._line_up(record)

    def _line_up(self, record: _Record) -> None:
        """Put a waiting task where the next claim, or the next sweep, finds it."""
        task = record.task
        if record.due > self._clock():
            self._delayed.put(task.id, record.due)
        elif self._is_first(record) and record.place not in self._lined_up:
            self._lined_up.add(record.place)
            heapq.heappush(self._ready, (-task.priority, record.place, task.id))

    def _is_first(self, record: _Record) -> bool:
        thread = record.task.thread_id
        return thread is None or self._first(thread) is record

    def _first(self, thread: str) -> _Record | None:
        line = self._threads.get(thread)
        while line:
            record = line[0]
            if self._records.get(record.task.id) is record and _unfinished(record):
                return record
            line.popleft()
        self._threads.pop(thread, None)
        return None

    def claim(self, worker: str, lease: float) -> ClaimedTask | None:
        """Claim the next task, if there is one that can be."""
        self._sweep()
        while self._ready:
            _, place, task_id = heapq.heappop(self._ready)
            self._lined_up.discard(place)
            record = self._records.get(task_id)
            if record is not None and record.place == place and self._claimable(record):
                return self._claim(record, worker, lease)
        return None

    def _claimable(self, record: _Record) -> bool:
        due = record.state == "waiting" and record.due <= self._clock()
        return due and self._is_first(record)

    def _claim(self, record: _Record, worker: str, lease: float) -> ClaimedTask:
        record.attempts += 1
        record.worker = worker
        token = record.token = next(self._numbers)
        self._hold(record, lease)
        task = record.task
        return ClaimedTask(task.id, task.text, task.key, task.thread_id, record.attempts, token)

    def _hold(self, record: _Record, lease: float) -> None:
        record.state = "claimed"
        record.expires = self._clock() + lease
        self._leases.put(record.task.id, record.expires)

    def _sweep(self) -> None:
        now = self._clock()
        for task_id in self._leases.take_due(now):
            record = self._records[task_id]
            if record.attempts >= record.task.max_attempts:
                record.error = None
                self._end(record, "dead", None)
            else:
                record.state, record.due = "waiting", now
                self._line_up(record)
        for task_id in self._delayed.take_due(now):
            self._line_up(self._records[task_id])

    # -- what the holder of a token does -----------------------------------------------------

    def _current(self, task_id: str, token: int) -> _Record | None:
        record = self._records.get(task_id)
        if record is None or record.token != token or not _unfinished(record):
            return None
        if record.expires <= self._clock():
            self._sweep()  # its attempts may be used up, then it is dead
        return record if record.token == token else None

    def renew(self, task_id: str, token: int, lease: float) -> bool:
        """Let the lease begin anew, if ``token`` is current."""
        record = self._current(task_id, token)
        if record is not None:
            self._hold(record, lease)
        return record is not None

    def complete(self, task_id: str, token: int, result: str) -> bool:
        """Complete the task, if ``token`` is current."""
        record = self._current(task_id, token)
        if record is not None:
            record.result = result
            self._end(record, "completed", token)
            return True
        known = self._records.get(task_id)
        return known is not None and known.state == "completed" and known.token == token

    def fail(self, task_id: str, token: int, error: str, retry_in: float | None) -> bool:
        """End the attempt, if ``token`` is current."""
        record = self._current(task_id, token)
        if record is None:
            return False
        record.error = error
        if retry_in is None or record.attempts >= record.task.max_attempts:
            self._end(record, "dead", None)
        else:
            self._put_back(record, retry_in)
        return True

    def release(self, task_id: str, token: int) -> bool:
        """Give the task back, if ``token`` is current."""
        record = self._current(task_id, token)
        if record is not None:
            record.attempts -= 1
            self._put_back(record, 0.0)
        return record is not None

    def _put_back(self, record: _Record, delay: float) -> None:
        self._leases.discard(record.task.id)
        record.state, record.token = "waiting", None
        record.due = self._clock() + delay
        self._line_up(record)

    def _end(self, record: _Record, state: TaskState, token: int | None) -> None:
        self._leases.discard(record.task.id)
        record.state, record.token = state, token
        self._let_next(record.task.thread_id)

    def _let_next(self, thread: str | None) -> None:
        following = None if thread is None else self._first(thread)
        if following is not None and following.state == "waiting":
            self._line_up(following)

    # -- looking and clearing up -------------------------------------------------------------

    def dead(self, keys: Collection[str] | None) -> list[DeadTask]:
        """Return the dead tasks, in the order of adding; None: whatever their keys."""
        return [
            DeadTask(
                id=record.task.id,
                text=record.task.text,
                key=record.task.key,
                thread_id=record.task.thread_id,
                attempts=record.attempts,
                worker=record.worker,
                error=record.error,
            )
            for record in self._in_states({"dead"}, keys)
        ]

    def _in_states(
        self, states: Collection[TaskState], keys: Collection[str] | None = None
    ) -> list[_Record]:
        self._sweep()
        records = self._records.values() if keys is None else self._of_keys(keys)
        return [record for record in records if record.state in states]

    def _of_keys(self, keys: Collection[str]) -> list[_Record]:
        ids = {self._keys.get(key, "") for key in keys}
        found = (self._records.get(task_id) for task_id in ids)
        return sorted((record for record in found if record is not None), key=lambda r: r.place)

    def requeue(self, ids: Collection[str] | None) -> int:
        """Put dead tasks back to the end of the queue; None: all."""
        wanted = [r for r in self._in_states({"dead"}) if ids is None or r.task.id in ids]
        for record in wanted:
            del self._records[record.task.id]
            self._append(record.task, self._clock())
        return len(wanted)

    def results(self, by: Literal["id", "key"], names: Collection[str] | None) -> dict[str, str]:
        """Return the results of completed tasks, by name."""
        if names is None:
            names = list(self._records if by == "id" else self._keys)
        found = {}
        for name in names:
            record = self._records.get(name if by == "id" else self._keys.get(name, ""))
            if record is not None and record.result is not None:
                found[name] = record.result
        return found

    def stats(self) -> QueueStats:
        """Count the tasks."""
        self._sweep()
        now = self._clock()
        counts = Counter(
            "delayed" if record.state == "waiting" and record.due > now else record.state
            for record in self._records.values()
        )
        workers = Counter(record.worker for record in self._in_states({"claimed"}))
        return QueueStats(
            waiting=counts["waiting"],
            delayed=counts["delayed"],
            claimed=counts["claimed"],
            completed=counts["completed"],
            dead=counts["dead"],
            by_worker=MappingProxyType(dict(workers)),
        )

    def purge(self, states: Collection[TaskState]) -> int:
        """Forget the tasks in these states."""
        gone = self._in_states(states)
        for record in gone:
            task = record.task
            del self._records[task.id]
            self._leases.discard(task.id)
            self._delayed.discard(task.id)
            if task.key is not None:
                del self._keys[task.key]
        for thread in {record.task.thread_id for record in gone}:
            self._let_next(thread)
        return len(gone)


def _unfinished(record: _Record) -> bool:
    return record.state in ("waiting", "claimed")
