"""RunScheduler: which of the waiting runs may start. Confined to the loop's thread; no lock.

Three bounds, passed in this order and given back together:

- the lane: one run at a time per ``thread_id``, in order of arrival (`concat_map`, ``enqueue``); or
  per subscription, where that has a lane of its own for messages without a thread. Where processes
  share their lanes, the first run of a lane also has to get the lease of its thread;
- the group: ``max_concurrency`` of one subscription;
- the slot: ``max_concurrency`` of the bridge.

A run that waits for its lane holds neither group nor slot. What breaks otherwise: a crowded thread
slows all others. Every step of a run takes constant time, however many runs wait; a thread policy
takes time in proportion to the runs that wait for that thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Protocol

from rxlanggraph.bridge.run import Phase, Run

__all__ = ["Leases", "RunScheduler"]


class Leases(Protocol):
    """Lanes that several processes share: `ThreadLanes`, which is below this module on the map."""

    def request(self, run: Run) -> bool:
        """Have ``run``, the first of its lane, get the lease. False if it has to wait for it."""

    def give_back(self, thread_id: str) -> None:
        """Give back the lease of a lane that is empty, or stop waiting for it."""


class RunScheduler:
    """Decides which run may start next.

    Args:
        limit: How many slots there are.
        leases: The lanes that this process shares with others, if it does.
    """

    def __init__(self, limit: int, leases: Leases | None = None) -> None:
        self._leases = leases
        self.free = limit  # how many slots are free; written here alone, read by any thread
        self._ready: deque[Run] = deque()
        # With max_pending, runs that results of the bridge led to. They go first: otherwise the
        # earlier stages of a pipeline would fill the room that the later ones have to empty.
        self._downstream: deque[Run] = deque()
        # By lane: the run that is ready, running, or waits for its group; and those behind it.
        self._lanes: dict[Hashable, Run] = {}
        self._behind: dict[Hashable, deque[Run]] = {}

    def enqueue(self, run: Run) -> bool:
        """Put ``run`` in the queue, unless it may start at once: then take its slot.

        Returns:
            Whether it may start at once. If not, others may be ready.
        """
        run.phase = Phase.WAITING
        lane = run.lane
        is_first = not (self._ready or self._downstream)
        if lane is None:
            if is_first and self.free:
                if self._take_group(run):
                    self.free -= 1
                    return True
                return False
        elif lane in self._lanes:
            run.behind = True
            self._behind.setdefault(lane, deque()).append(run)
            return False
        else:
            self._lanes[lane] = run
        self._take_lane(run)
        ready = self._downstream or self._ready
        if not (is_first and self.free and ready):
            return False
        ready.pop()
        self.free -= 1
        return True

    def next_ready(self) -> Run | None:
        """Return the next run that may start, with its slot taken; None if there is none."""
        while self.free:
            ready = self._downstream or self._ready
            if not ready:
                return None
            run = ready.popleft()
            if run.phase is Phase.WAITING:
                self.free -= 1
                return run
            self._leave_group_and_lane(run)  # cancelled while it waited
        return None

    def release(self, run: Run) -> bool:
        """Give back everything that ``run``, returned by `next_ready`, holds.

        Returns:
            Whether others may be ready now.
        """
        self.free += 1
        if run.options.group is not None or run.lane is not None:
            self._leave_group_and_lane(run)
        return bool(self._ready or self._downstream)

    def discard(self, run: Run) -> None:
        """Remove ``run``, which waits and was dropped; others may be ready now.

        What breaks without it: while no slot becomes free, what was dropped stays, however much it
        is. The oldest are dropped, so the search ends soon.
        """
        group, lane = run.options.group, run.lane
        behind = None if lane is None else self._behind.get(lane)
        if behind and _remove(run, behind):
            return  # it held nothing yet
        if group is not None and _remove(run, group.waiting):
            self._leave_lane(run)
        elif _remove(run, self._ready) or _remove(run, self._downstream):
            self._leave_group_and_lane(run)
        elif self._leases is not None and lane is not None and self._lanes.get(lane) is run:
            self._leave_lane(run)  # it waited for its lease

    def lane_granted(self, run: Run) -> None:
        """Note that ``run`` has got the lease of its lane; it may be ready now."""
        run.behind = False
        self._pass_lane(run)

    def repeat_lane(self, run: Run) -> None:
        """Have ``run``, returned by `next_ready`, get the lease of its lane again, and then wait.

        It keeps its place at the head of its lane.
        """
        self.free += 1
        self._leave_group(run)
        self._take_lane(run)

    def holder(self, lane: Hashable) -> Run | None:
        """Return the run that is at the head of a lane."""
        return self._lanes.get(lane)

    def on_lane(self, lane: Hashable) -> Run | None:
        """Return the run that a new one on that lane would wait for, if it is to execute."""
        holder = self._lanes.get(lane)
        if holder is None:
            return None
        return next(filter(_executes, (holder, *self._behind.get(lane, ()))), None)

    def count_behind(self, lane: Hashable) -> int:
        """Return how many runs wait for the one that `on_lane` returned."""
        behind = self._behind.get(lane)
        if behind is None:
            return 0
        if not all(map(_waits, behind)):
            behind = self._behind[lane] = deque(filter(_waits, behind))
        # If the head of the lane was cancelled before its start, that one is itself behind it.
        return len(behind) - (not _executes(self._lanes[lane]))

    def remove_behind(self, lane: Hashable) -> list[Run]:
        """Remove the runs that wait for that lane and would execute; return them."""
        behind = self._behind.pop(lane, ())
        staying = deque(run for run in behind if _waits(run) and not _executes(run))
        if staying:
            self._behind[lane] = staying
        return [run for run in behind if _executes(run)]

    def _take_lane(self, run: Run) -> None:
        leases = self._leases
        # What only passes through touches no thread.
        if leases is None or not _shared(run) or leases.request(run):
            self._pass_lane(run)
        else:
            run.behind = True

    def _pass_lane(self, run: Run) -> None:
        if self._take_group(run):
            self._line_up(run)

    def _take_group(self, run: Run) -> bool:
        """Take a place of its group for ``run``, or have it wait for one."""
        group = run.options.group
        if group is None:
            return True
        if group.running < group.limit:
            group.running += 1
            return True
        group.waiting.append(run)
        return False

    def _line_up(self, run: Run) -> None:
        (self._downstream if run.downstream else self._ready).append(run)

    def _leave_group_and_lane(self, run: Run) -> None:
        self._leave_group(run)
        self._leave_lane(run)

    def _leave_group(self, run: Run) -> None:
        group = run.options.group
        if group is not None:
            # The group's place stays taken while a successor is sought: skipping a cancelled one
            # admits the next run of its lane, which would take the place that is about to be passed
            # on.
            while group.waiting:
                successor = group.waiting.popleft()
                if successor.phase is Phase.WAITING:
                    self._line_up(successor)
                    break
                self._leave_lane(successor)
            else:
                group.running -= 1

    def _leave_lane(self, run: Run) -> None:
        lane = run.lane
        if lane is None:
            return
        behind = self._behind.get(lane)
        while behind:
            successor = behind.popleft()
            # With leases, one that is cancelled would ask for it first.
            if successor.phase is Phase.WAITING and (self._leases is None or not successor.done()):
                successor.behind = False
                self._lanes[lane] = successor
                self._take_lane(successor)
                return
        if behind is not None:
            del self._behind[lane]
        del self._lanes[lane]
        if self._leases is not None and run.message.thread_id is not None:
            self._leases.give_back(run.message.thread_id)


def _shared(run: Run) -> bool:
    """Whether other processes may have its lane: a thread's, and not that of a subscription."""
    return run.message.thread_id is not None and run.message.status == "ok"


def _waits(run: Run) -> bool:
    return run.phase is Phase.WAITING


def _executes(run: Run) -> bool:
    """Whether it is still to be executed, or is: not cancelled before, no result passed through."""
    return run.phase is not Phase.ENDED and run.message.status == "ok"


def _remove(run: Run, waiting: deque[Run]) -> bool:
    try:
        waiting.remove(run)
    except ValueError:
        return False
    return True
