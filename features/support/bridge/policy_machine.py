"""Messages under every policy on two threads and on none, their ends, and their cancellations."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from rxlanggraph.bridge.multitasking import Multitasking
from rxlanggraph.bridge.scheduler import RunScheduler
from rxlanggraph.errors import RunInterruptedError, ThreadBusyError
from support.bridge.machines import BridgeMachine, Fault
from support.bridge.policy_model import Sent, Threads

__all__ = ["FAULTS", "PolicyMachine"]

# Mostly those that add to a thread: it is to be crowded.
STRATEGIES = st.sampled_from(("enqueue", "enqueue", "enqueue", "reject", "interrupt", "rollback"))
NUMBERS = st.integers(0, 20)
# Before Python 3.12, a run takes its first step in the next iteration of the loop. If it is
# interrupted before, its node does not begin, and there is no cleanup that goes on.
_EAGER = sys.version_info >= (3, 12)


class PolicyMachine(BridgeMachine):
    """A graph that ends each message, or its cleanup, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        options = self.options
        self.model = Threads(options["max_concurrency"], options.get("max_pending_per_thread"))
        self._running: list[Sent] = []
        self._ends: dict[Sent, asyncio.Event] = {}
        self._runs: dict[Sent, Any] = {}

    async def _node(self, message: Sent) -> int:
        end = self._ends[message] = asyncio.Event()
        self._running.append(message)
        try:
            await end.wait()
        except asyncio.CancelledError:
            if message.slow:
                await end.wait()
            raise
        finally:
            self._running.remove(message)
        return message.number

    @rule(
        thread=st.sampled_from(("a", "a", "b", None)),
        messages=st.lists(st.tuples(STRATEGIES, st.booleans()), min_size=1, max_size=4),
    )
    def send(self, thread: str | None, messages: list[tuple[Any, bool]]) -> None:
        """Some messages to one thread, before the loop sees the first of them."""
        for strategy, slow in messages:
            message = Sent(len(self._runs), thread, strategy, slow)
            self.model.send(message)
            self._runs[message] = self.bridge.create_future_task(
                self._node,
                message,
                thread_id=thread,
                multitask_strategy=strategy,
                errors="emit",
            )
            if not _EAGER:
                self._both_settle()
        self._both_settle()

    @precondition(lambda self: self.model.running)
    @rule(number=NUMBERS)
    def end(self, number: int) -> None:
        message = self.model.running[number % len(self.model.running)]
        self._ends[message].set()
        self.model.end(message)
        self._both_settle()

    @precondition(lambda self: self._unfinished())
    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        unfinished = self._unfinished()
        message = unfinished[number % len(unfinished)]
        assert self._runs[message].cancel()
        self.model.cancel(message)
        self._both_settle()

    def _unfinished(self) -> list[Sent]:
        return [each for each in self._runs if each not in self.model.outcomes]

    def _both_settle(self) -> None:
        self.settle()
        self.model.settle()

    @invariant()
    def agrees(self) -> None:
        found = {each: self._outcome(run) for each, run in self._runs.items() if run.done()}
        assert found == self.model.outcomes, (found, vars(self.model))
        assert {*self._running} == {*self.model.running}, (self._running, vars(self.model))

    @invariant()
    def adds_up(self) -> None:
        active, found = set(self.model.active()), self.bridge.statistics()
        ended = [word for each, word in self.model.outcomes.items() if each not in active]
        assert found.in_flight == len(active) == len(self.bridge.registry), (found, active)
        assert (found.succeeded, found.failed) == (ended.count("ok"), ended.count("rejected"))
        assert found.cancelled == ended.count("cancelled") + ended.count("interrupted"), found
        assert found.submitted == len(self._runs), found

    def _outcome(self, run: Any) -> str:
        if run.cancelled():
            return "cancelled"
        result = run.result(0)
        kinds = {"ok": type(None), "rejected": ThreadBusyError, "interrupted": RunInterruptedError}
        assert isinstance(result.error, kinds[result.status]), result
        return str(result.status)

    def end_all(self) -> None:
        for run in self._runs.values():
            run.cancel()
        self.settle()
        for message in tuple(self._running):
            self._ends[message].set()


# -- faults that the machine has to see ------------------------------------------------------------


def _takes_none(scheduler: RunScheduler, _lane: Any) -> list[Any]:
    return []


def _counts_all(scheduler: RunScheduler, lane: Any) -> int:
    return sum(not each.done() for each in scheduler._behind.get(lane, ()))


def _passes_over(scheduler: RunScheduler, run: Any) -> None:
    behind = scheduler._behind.get(run.lane)
    if behind:
        behind.rotate(1)
    _leave_lane(scheduler, run)


def _interrupts_in_silence(multitasking: Multitasking, run: Any, by: str) -> None:
    if not run.done():
        run.cancel()


_leave_lane = RunScheduler._leave_lane

FAULTS = {
    "an interrupting message leaves those that wait": Fault(
        RunScheduler, "remove_behind", _takes_none
    ),
    "a cancelled message still takes up room on its thread": Fault(
        RunScheduler, "count_behind", _counts_all
    ),
    "the last message of a thread is the next": Fault(RunScheduler, "_leave_lane", _passes_over),
    "an interrupted message looks cancelled": Fault(
        Multitasking, "_interrupt", _interrupts_in_silence
    ),
}
