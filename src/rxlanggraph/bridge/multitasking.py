"""Multitasking: what a message does if its thread has a run already. Confined to the loop.

What breaks without it: a new message can only wait, even if it makes the active run pointless. Rx's
flattening operators and the LangGraph server's ``multitask_strategy`` are one idea: `concat_map` is
``enqueue``, `exhaust_map` is ``reject``, `switch_map` is ``interrupt``. The arriving message
decides when the loop first sees it, so decisions are made in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable

from rxlanggraph.bridge.run import Phase, Run
from rxlanggraph.bridge.scheduler import RunScheduler
from rxlanggraph.errors import RunInterruptedError, ThreadBusyError
from rxlanggraph.messages import StreamMessage

__all__ = ["Multitasking"]


class Multitasking:
    """Applies the thread policies of a bridge's runs.

    Args:
        scheduler: Knows which run has which lane.
        limit: How many runs may wait for a lane; None for no limit.
        enqueue: Has a run wait for its turn.
        end_unstarted: Ends a run that has not begun, with its result.
        stop: Cancels a run that has begun, and resolves it as its interruption says.
    """

    def __init__(
        self,
        scheduler: RunScheduler,
        limit: int | None,
        *,
        enqueue: Callable[[Run], None],
        end_unstarted: Callable[[Run, StreamMessage], None],
        stop: Callable[[Run], None],
    ) -> None:
        self.limit = limit
        self._scheduler = scheduler
        self._enqueue = enqueue
        self._end_unstarted = end_unstarted
        self._stop = stop

    def admit(self, run: Run) -> None:
        """Have ``run`` wait for its turn, end it, or end those before it, as its policy says."""
        lane, strategy = run.lane, run.options.multitask_strategy
        active = None if lane is None else self._scheduler.on_lane(lane)
        if lane is None or active is None or run.message.status != "ok":
            self._enqueue(run)
        elif strategy == "reject":
            self._reject(run, active, "")
        elif strategy == "enqueue":
            if self._scheduler.count_behind(lane) == self.limit:
                self._reject(run, active, f" and {self.limit} more that wait")
            else:
                self._enqueue(run)
        elif strategy == "rollback" and not _can_roll_back(active):
            self._reject(run, active, ", which was not sent with 'rollback'")
        else:
            displaced = self._scheduler.remove_behind(lane)
            self._enqueue(run)
            if strategy == "rollback" or active.rolled_back_for is not None:
                active.rolled_back_for = run
            for each in (active, *displaced):
                self._interrupt(each, f"message {run.message.id}")
        del run  # see the dispatcher's `process`

    def take_over(self, thread_id: str, message_id: str) -> None:
        """End all runs of a thread for a message that interrupts them in another process."""
        active = self._scheduler.on_lane(thread_id)
        if active is not None:
            for each in (active, *self._scheduler.remove_behind(thread_id)):
                self._interrupt(each, f"message {message_id} of another process")

    def _reject(self, run: Run, active: Run, why: str) -> None:
        error = ThreadBusyError(
            f"{run.label} was rejected: {run.lane_label} has {active.label}{why}; send it again "
            "when that has ended, or with another multitask_strategy"
        )
        self._end_unstarted(run, run.unanswered("rejected", error))

    def _interrupt(self, run: Run, by: str) -> None:
        """End ``run`` so that ``by`` can begin: at once if it has not begun, otherwise soon."""
        if run.done() or run.phase is Phase.ENDED or run.interruption is not None:
            return
        run.interruption = RunInterruptedError(
            f"{run.label} was interrupted by {by}, which came after it on {run.lane_label}"
        )
        if run.phase is Phase.RUNNING:
            self._stop(run)
        else:
            self._end_unstarted(run, run.unanswered("interrupted", run.interruption))


def _can_roll_back(run: Run) -> bool:
    """Whether the thread of ``run`` can be made what it was before it, or has not been changed."""
    return run.options.multitask_strategy == "rollback" or run.phase is not Phase.RUNNING
