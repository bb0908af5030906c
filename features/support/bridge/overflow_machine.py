"""Arrivals, ends and cancellations of messages at a bridge that is often full."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from rxlanggraph.bridge.admission import AdmissionLimiter
from rxlanggraph.bridge.overflow import DropOrder, Latest
from rxlanggraph.bridge.run_registry import RunRegistry
from rxlanggraph.errors import BacklogFullError, RunDroppedError
from support.bridge.machines import BridgeMachine, Fault
from support.bridge.overflow_model import BridgeModel, Message

__all__ = ["FAULTS", "OverflowMachine"]

THREADS = st.sampled_from((None, "a", "a", "b"))
NUMBERS = st.integers(0, 9)


class OverflowMachine(BridgeMachine):
    """A graph that ends each message when it is told to; those that wait may have to give way."""

    def __init__(self) -> None:
        super().__init__()
        options = self.options
        self.model = BridgeModel(
            options["overflow"], options["max_pending"], options["max_concurrency"]
        )
        self.begun: list[Message] = []
        self._sent = 0
        self._ends: dict[Message, asyncio.Future[str]] = {}
        self._runs: dict[Message, Any] = {}
        self._sending: dict[Message, asyncio.Task[None]] = {}
        self._refused: list[Message] = []

    async def _node(self, message: Message) -> str:
        self._ends[message] = asyncio.get_running_loop().create_future()
        self.begun.append(message)
        if await self._ends[message] == "error":
            raise ValueError(message)
        return str(message)

    async def _send_async(self, message: Message) -> None:
        self._runs[message] = await self.bridge.submit(
            self._node, message, thread_id=message.thread, errors="emit"
        )

    def _send(self, message: Message) -> None:
        if self.model.policy == "block":
            self._sending[message] = self.loop.create_task(self._send_async(message))
            return
        try:
            self._runs[message] = self.bridge.create_future_task(
                self._node, message, thread_id=message.thread, errors="emit"
            )
        except BacklogFullError:
            self._refused.append(message)

    @rule(threads=st.lists(THREADS, min_size=1, max_size=4))
    def arrive(self, threads: list[str | None]) -> None:
        """Some messages, before the loop sees the first of them."""
        for thread in threads:
            self._sent += 1
            message = Message(self._sent, thread)
            self.model.send(message)
            self._send(message)
        self._both_settle()

    @precondition(lambda self: self.model.running)
    @rule(number=NUMBERS, outcome=st.sampled_from(("ok", "error")))
    def end(self, number: int, outcome: str) -> None:
        message = self.model.running[number % len(self.model.running)]
        self._ends[message].set_result(outcome)
        self.model.end(message, outcome)
        self._both_settle()

    @precondition(lambda self: self._unfinished())
    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        unfinished = self._unfinished()
        message = unfinished[number % len(unfinished)]
        self._cancel(message)
        self.model.cancel(message)
        self._both_settle()

    def _unfinished(self) -> list[Message]:
        return [*self.model.running, *self.model.waiting, *self.model.blocked]

    def _cancel(self, message: Message) -> None:
        future = self._runs.get(message) or self._sending[message]
        assert future.cancel()

    def _both_settle(self) -> None:
        self.settle()
        self.model.settle()

    @invariant()
    def agrees(self) -> None:
        model, found = self.model, {each: word for each in self._runs if (word := self._of(each))}
        found |= dict.fromkeys(self._refused, "rejected")
        unsent = {each: task for each, task in self._sending.items() if each not in self._runs}
        found |= {each: "cancelled" for each, task in unsent.items() if task.cancelled()}
        assert found == model.outcomes, (found, vars(model))
        assert self.begun == model.begun, (self.begun, vars(model))
        waiting = [each for each, task in unsent.items() if not task.done()]
        assert waiting == model.blocked, (waiting, vars(model))
        assert len(self.bridge._engine.admission._holders) == len(model.waiting), vars(model)

    @invariant()
    def adds_up(self) -> None:
        outcomes, found = list(self.model.outcomes.values()), self.bridge.statistics()
        in_flight = len(self.model.running) + len(self.model.waiting)
        rejected = outcomes.count("rejected") - len(self._refused)
        assert found.succeeded == outcomes.count("ok"), found
        assert (found.failed, found.dropped) == (outcomes.count("error") + rejected, rejected)
        assert found.in_flight == in_flight == len(self.bridge.registry), found
        ended = found.succeeded + found.failed + found.cancelled
        assert found.submitted == ended + in_flight, found
        assert found.submitted == self._sent - len(self._refused) - len(self._never_admitted())

    def _never_admitted(self) -> list[Message]:
        return [each for each in self._sending if each not in self._runs]

    def _of(self, message: Message) -> str | None:
        """What has become of a message; None if it is unfinished."""
        run = self._runs[message]
        if not run.done():
            return None
        if run.cancelled():
            return "cancelled"
        result = run.result(0)
        kinds = {"ok": type(None), "error": ValueError, "rejected": RunDroppedError}
        assert isinstance(result.error, kinds[result.status]), result
        return str(result.status)

    def end_all(self) -> None:
        for each in (*self._sending.values(), *self._runs.values()):
            each.cancel()


# -- faults that the machine has to see ------------------------------------------------------------


def _newest(order: DropOrder, newcomer: Any) -> Any:
    return next(reversed(order._runs), None)


def _discard_alone(order: Latest, run: Any) -> None:
    superseded = dict(order._superseded)
    _discard(order, run)
    order._superseded.update({each: None for each in superseded if each is not run})


def _release_unless_cancelled(limiter: AdmissionLimiter, run: Any) -> bool:
    return run.cancelled() or _release(limiter, run)


def _take_before_others(limiter: AdmissionLimiter, run: Any) -> bool:
    if len(limiter._holders) < limiter._limit:
        limiter._holders.add(run)
        return True
    return False


def _count_twice(registry: RunRegistry, run: Any, result: Any) -> Any:
    observers = _count(registry, run, result)
    _count(registry, run, result)
    return observers


_discard, _release = Latest.discard, AdmissionLimiter.release
_count = RunRegistry.end_unadmitted

FAULTS = {
    "the newest of those that wait gives way": Fault(DropOrder, "first", _newest),
    "a superseded message stays so": Fault(Latest, "discard", _discard_alone),
    "a cancelled message keeps its room": Fault(
        AdmissionLimiter, "release", _release_unless_cancelled
    ),
    "a message takes room that others wait for": Fault(
        AdmissionLimiter, "_take", _take_before_others
    ),
    "a dropped message counts twice": Fault(RunRegistry, "end_unadmitted", _count_twice),
}
