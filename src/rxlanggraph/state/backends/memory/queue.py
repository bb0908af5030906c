"""One queue of the store in memory: its tasks, their order, threads and leases."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from rxlanggraph.concurrency.timers import DeadlineHeap
from rxlanggraph.state.backend import (
    MAX_PER_STEP,
    ClaimedTask,
    DeadTask,
    NewTask,
    Page,
    QueueStats,
    Step,
    StoredTask,
    TaskState,
)

__all__ = ["MemoryQueue"]


@dataclass(slots=True)
class _Record:
    task: NewTask
    place: int  # in the order of adding
    due: float  # when it can be claimed; of a claimed task, when its lease expires
    state: TaskState = "waiting"
    attempts: int = 0
    worker: str = ""
    token: int | None = None  # the current one; of a completed task, the one that completed it
    error: str | None = None
    result: str | None = None
    # Seconds on the clock of the store.
    added: float = 0.0
    claimed: float | None = None  # the last time
    ended: float | None = None


class _Range(NamedTuple):
    """Consecutive tasks in the order of adding.

    Attributes:
        records: The tasks.
        start: Index of the first one in that order.
        after: The cursor of the next range: the places of the last task of this one, and of the
            last task of all; None: there are no more.
    """

    records: list[_Record]
    start: int
    after: str | None


class MemoryQueue:
    """The tasks of one queue, as `Backend` describes them. Guarded by the lock of the store.

    Args:
        numbers: Supplies tokens and places.
        clock: Returns seconds; monotonic.
        epoch: Its zero, in seconds since 1970.
    """

    def __init__(self, numbers: Iterator[int], clock: Callable[[], float], epoch: float) -> None:
        self._numbers = numbers
        self._clock = clock
        self._epoch = epoch
        self._records: dict[str, _Record] = {}
        # Places and ids of all tasks, in the order of adding: places only grow. Read in ranges.
        self._order: list[tuple[int, str]] = []
        self._keys: dict[str, str] = {}
        # When delayed tasks are due, and the leases of claimed ones expire.
        self._due: DeadlineHeap[str] = DeadlineHeap()
        # (-priority, place, id) of tasks that can be claimed; and stale entries, which are skipped
        # when they come first. `_ready_places` has their places, so that no task is in it twice.
        self._ready: list[tuple[int, int, str]] = []
        self._ready_places: set[int] = set()
        self._claimed = 0  # how many tasks are claimed, until they are swept
        # By thread, its tasks in the order of adding, from the first unfinished one on.
        self._threads: dict[str, deque[_Record]] = {}

    def __bool__(self) -> bool:
        """Whether there is any task."""
        return bool(self._records)

    # -- adding and claiming -----------------------------------------------------------------

    def add(self, task: NewTask) -> str:
        """Add ``task`` unless its id or key is known; return the id of the new or known task."""
        if task.id in self._records:
            return task.id
        if task.key is not None:
            known = self._keys.setdefault(task.key, task.id)
            if known != task.id:
                return known
        now = self._clock()
        self._append(task, now + task.delay, now)
        return task.id

    def _append(self, task: NewTask, due: float, added: float) -> None:
        record = _Record(task, next(self._numbers), due, added=added)
        self._records[task.id] = record
        self._order.append((record.place, task.id))
        if task.thread_id is not None:
            self._threads.setdefault(task.thread_id, deque()).append(record)
        self._make_claimable(record)

    def _make_claimable(self, record: _Record) -> None:
        """Put a waiting task into the heap in which the next claim, or the next sweep, finds it."""
        task = record.task
        if record.due > self._clock():
            self._due.put(task.id, record.due)
        elif self._is_first(record) and record.place not in self._ready_places:
            self._ready_places.add(record.place)
            heapq.heappush(self._ready, (-task.priority, record.place, task.id))

    def _is_first(self, record: _Record) -> bool:
        thread = record.task.thread_id
        return thread is None or self._first(thread) is record

    def _first(self, thread: str) -> _Record | None:
        queued = self._threads.get(thread)
        while queued:
            record = queued[0]
            if self._records.get(record.task.id) is record and _unfinished(record):
                return record
            queued.popleft()
        self._threads.pop(thread, None)
        return None

    def claim(self, worker: str, lease: float, max_claimed: int | None) -> ClaimedTask | None:
        """Claim the next task; None if none can be claimed, or as many are claimed as may be."""
        is_more = True
        while is_more:
            is_more = self._sweep()
            record = None if self._is_full(max_claimed) else self._next()
            if record is not None:
                return self._claim(record, worker, lease)
        return None

    def _is_full(self, max_claimed: int | None) -> bool:
        return max_claimed is not None and self._claimed >= max_claimed

    def _next(self) -> _Record | None:
        while self._ready:
            _, place, task_id = heapq.heappop(self._ready)
            self._ready_places.discard(place)
            record = self._records.get(task_id)
            if record is not None and record.place == place and self._claimable(record):
                return record
        return None

    def _claimable(self, record: _Record) -> bool:
        due = record.state == "waiting" and record.due <= self._clock()
        return due and self._is_first(record)

    def _claim(self, record: _Record, worker: str, lease: float) -> ClaimedTask:
        record.attempts += 1
        record.worker = worker
        record.claimed = self._clock()
        token = record.token = next(self._numbers)
        self._hold(record, lease)
        task = record.task
        return ClaimedTask(task.id, task.text, task.key, task.thread_id, record.attempts, token)

    def _hold(self, record: _Record, lease: float) -> None:
        self._change(record, "claimed")
        record.due = self._clock() + lease
        self._due.put(record.task.id, record.due)

    def _change(self, record: _Record, state: TaskState) -> None:
        self._claimed += (state == "claimed") - (record.state == "claimed")
        record.state = state

    def _sweep(self) -> bool:
        """Sweep as many tasks as one step may; return whether more may be due."""
        if not self._due.deadlines:
            return False
        now = self._clock()
        due = [*islice(self._due.take_due(now), MAX_PER_STEP)]
        for task_id in due:
            record = self._records[task_id]
            if record.state == "claimed":
                self._expire(record, now)
            else:
                self._make_claimable(record)
        return len(due) == MAX_PER_STEP

    def _sweep_all(self) -> None:
        while self._sweep():
            pass

    def _expire(self, record: _Record, now: float) -> None:
        if record.attempts >= record.task.max_attempts:
            record.error = None
            self._end(record, "dead", None, record.due)
        else:
            self._change(record, "waiting")
            record.due = now
            self._make_claimable(record)

    # -- with a token ------------------------------------------------------------------------

    def _current(self, task_id: str, token: int) -> _Record | None:
        record = self._records.get(task_id)
        if record is None or record.token != token or not _unfinished(record):
            return None
        now = self._clock()
        if record.state == "claimed" and record.due <= now:
            self._due.discard(task_id)
            self._expire(record, now)  # dead, if its attempts are used up
        return record if record.token == token else None

    def renew(self, task_id: str, token: int, lease: float, max_claimed: int | None) -> bool:
        """Renew the lease, if ``token`` is current; if it was swept, as a claim with that limit."""
        record = self._current(task_id, token)
        if record is not None and record.state == "waiting":
            self._sweep_all()
            if self._is_full(max_claimed):
                return False
        if record is not None:
            self._hold(record, lease)
        return record is not None

    def complete(self, task_id: str, token: int, result: str) -> bool:
        """Complete the task, if ``token`` is current."""
        record = self._current(task_id, token)
        if record is not None:
            record.result = result
            self._end(record, "completed", token, self._clock())
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
            self._end(record, "dead", None, self._clock())
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
        self._due.discard(record.task.id)
        self._change(record, "waiting")
        record.token = None
        record.due = self._clock() + delay
        self._make_claimable(record)

    def _end(self, record: _Record, state: TaskState, token: int | None, when: float) -> None:
        self._due.discard(record.task.id)
        self._change(record, state)
        record.token, record.ended = token, when
        self._unblock_thread(record.task.thread_id)

    def _unblock_thread(self, thread: str | None) -> None:
        following = None if thread is None else self._first(thread)
        if following is not None and following.state == "waiting":
            self._make_claimable(following)

    # -- reading, requeueing and purging -----------------------------------------------------

    def dead(self, keys: Collection[str]) -> list[DeadTask]:
        """Return the dead tasks of these keys, in the order of adding."""
        self._sweep_all()
        found = self._find({self._keys.get(key, "") for key in keys}, "dead")
        return [_dead_task(record) for record in found]

    def dead_page(self, after: str | None, limit: int) -> Page[DeadTask]:
        """Return the dead tasks of the next range."""
        self._sweep_all()
        chosen = self._range(after, limit)
        dead = [_dead_task(record) for record in chosen.records if record.state == "dead"]
        return Page(dead, chosen.after)

    def requeue(self, ids: Collection[str]) -> int:
        """Put dead tasks back at the end of the queue."""
        self._sweep_all()
        wanted = self._find(set(ids), "dead")
        for record in wanted:
            del self._order[bisect_left(self._order, (record.place, record.task.id))]
            self._put_at_end(record)
        return len(wanted)

    def requeue_step(self, after: str | None) -> Step:
        """Put the dead tasks of the next range back at the end of the queue."""
        self._sweep_all()
        chosen = self._range(after, MAX_PER_STEP)
        wanted = self._remove_from_order(chosen, {"dead"})
        for record in wanted:
            self._put_at_end(record)
        return Step(len(wanted), chosen.after)

    def _put_at_end(self, record: _Record) -> None:
        del self._records[record.task.id]
        self._append(record.task, self._clock(), record.added)

    def _find(self, ids: Collection[str], state: TaskState) -> list[_Record]:
        found = (self._records.get(task_id) for task_id in ids)
        return sorted(
            (record for record in found if record is not None and record.state == state),
            key=lambda record: record.place,
        )

    def _range(self, after: str | None, limit: int) -> _Range:
        """Return the next ``limit`` tasks, up to the last one there was at the first call."""
        order = self._order
        last, until = (0, order[-1][0] if order else 0) if after is None else _parse_cursor(after)
        start = bisect_right(order, last, key=lambda entry: entry[0])
        chosen = [self._records[task_id] for _, task_id in order[start : start + limit]]
        while chosen and chosen[-1].place > until:
            chosen.pop()
        is_last = len(chosen) < limit or chosen[-1].place == until
        return _Range(chosen, start, None if is_last else f"{chosen[-1].place} {until}")

    def _remove_from_order(self, chosen: _Range, states: Collection[TaskState]) -> list[_Record]:
        """Remove the tasks in ``states`` from the order; return them."""
        kept = [(r.place, r.task.id) for r in chosen.records if r.state not in states]
        self._order[chosen.start : chosen.start + len(chosen.records)] = kept
        return [record for record in chosen.records if record.state in states]

    def results(self, by: Literal["id", "key"], names: Collection[str]) -> dict[str, str]:
        """Return the results of completed tasks, by name."""
        found = {}
        for name in names:
            record = self._records.get(name if by == "id" else self._keys.get(name, ""))
            if record is not None and record.result is not None:
                found[name] = record.result
        return found

    def results_page(self, after: str | None, limit: int) -> Page[tuple[str, str]]:
        """Return the results of the completed tasks in the next range."""
        chosen = self._range(after, limit)
        done = [(r.task.id, r.result) for r in chosen.records if r.result is not None]
        return Page(done, chosen.after)

    def page(self, after: str | None, limit: int) -> Page[StoredTask]:
        """Return the tasks of the next range, without their texts."""
        self._sweep_all()
        chosen = self._range(after, limit)
        return Page([self._stored(record) for record in chosen.records], chosen.after)

    def read(self, task_id: str) -> StoredTask | None:
        """Return one task, with its texts."""
        self._sweep_all()
        record = self._records.get(task_id)
        if record is None:
            return None
        error = record.error if record.state == "dead" else None
        stored = self._stored(record)
        return stored._replace(text=record.task.text, result=record.result, error=error)

    def _stored(self, record: _Record) -> StoredTask:
        task, now = record.task, self._clock()
        unfinished = _unfinished(record)
        since = record.ended if not unfinished else record.added
        if record.state == "claimed":
            since = record.claimed
        return StoredTask(
            id=task.id,
            key=task.key,
            thread_id=task.thread_id,
            priority=task.priority,
            state=record.state,
            attempts=record.attempts,
            max_attempts=task.max_attempts,
            worker=record.worker or None,
            due_in=max(0.0, record.due - now) if unfinished else None,
            age=0.0 if since is None else now - since,
            added=record.added + self._epoch,
            claimed=None if record.claimed is None else record.claimed + self._epoch,
            ended=None if record.ended is None else record.ended + self._epoch,
        )

    def cancel(self, ids: Collection[str], error: str) -> int:
        """End unfinished tasks: they are dead."""
        self._sweep_all()
        found = [record for task_id in set(ids) if (record := self._records.get(task_id))]
        cancelled = [record for record in found if _unfinished(record)]
        for record in cancelled:
            record.error = error
            self._end(record, "dead", None, self._clock())
        return len(cancelled)

    def stats(self) -> QueueStats:
        """Count the tasks."""
        self._sweep_all()
        now = self._clock()
        counts = Counter(
            "delayed" if record.state == "waiting" and record.due > now else record.state
            for record in self._records.values()
        )
        records = self._records.values()
        workers = Counter(record.worker for record in records if record.state == "claimed")
        expired = (record.state == "dead" and record.error is None for record in records)
        return QueueStats(
            waiting=counts["waiting"],
            delayed=counts["delayed"],
            claimed=counts["claimed"],
            completed=counts["completed"],
            dead=counts["dead"],
            expired=sum(expired),
            by_worker=MappingProxyType(dict(workers)),
        )

    def purge_step(self, states: Collection[TaskState], after: str | None) -> Step:
        """Delete the tasks of the next range that are in these states."""
        self._sweep_all()
        chosen = self._range(after, MAX_PER_STEP)
        gone = self._remove_from_order(chosen, states)
        self._forget(gone)
        return Step(len(gone), chosen.after)

    def delete(self, ids: Collection[str], states: Collection[TaskState]) -> int:
        """Delete the tasks among ``ids`` that are in these states."""
        self._sweep_all()
        found = [record for task_id in set(ids) if (record := self._records.get(task_id))]
        gone = [record for record in found if record.state in states]
        for record in gone:
            del self._order[bisect_left(self._order, (record.place, record.task.id))]
        self._forget(gone)
        return len(gone)

    def _forget(self, gone: Collection[_Record]) -> None:
        """Forget tasks that are no longer in the order."""
        for record in gone:
            task = record.task
            del self._records[task.id]
            self._claimed -= record.state == "claimed"
            self._due.discard(task.id)
            if task.key is not None:
                del self._keys[task.key]
        for thread in {record.task.thread_id for record in gone}:
            self._unblock_thread(thread)
        self._tidy_ready()

    def _tidy_ready(self) -> None:
        """Remove stale entries once they are the majority: without claims, none comes first."""
        if len(self._ready) <= 2 * len(self._records) + 16:
            return
        self._ready = [entry for entry in self._ready if self._is_known(entry)]
        heapq.heapify(self._ready)
        self._ready_places = {place for _, place, _ in self._ready}

    def _is_known(self, entry: tuple[int, int, str]) -> bool:
        _, place, task_id = entry
        record = self._records.get(task_id)
        return record is not None and record.place == place


def _parse_cursor(after: str) -> tuple[int, int]:
    last, until = after.split()
    return int(last), int(until)


def _dead_task(record: _Record) -> DeadTask:
    task = record.task
    return DeadTask(
        id=task.id,
        text=task.text,
        key=task.key,
        thread_id=task.thread_id,
        attempts=record.attempts,
        worker=record.worker,
        error=record.error,
    )


def _unfinished(record: _Record) -> bool:
    return record.state in ("waiting", "claimed")
