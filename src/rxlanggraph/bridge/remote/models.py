"""The model calls of a run in a worker process: they wait in the driver, and are counted there.

A call asks the driver before it is made, and tells it how it has ended. So all workers share one
queue and one limit, with the places, pauses and figures that runs in the driver's process have. The
price is a message there and back, which is little beside a call of a model. If the workers shared
the limits through a state instead, each would have its own queue and adapt to refusals by itself,
and without a state there would be no limit at all.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from time import monotonic
from time import time as seconds_since_epoch
from typing import TYPE_CHECKING, Any

from rxlanggraph.bridge.run import RunScope
from rxlanggraph.concurrency.clock import SYSTEM_CLOCK
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.concurrency.user_code import is_interrupt, raise_on_loop
from rxlanggraph.errors import InvalidTypeError, error_text
from rxlanggraph.executors.companions import Link
from rxlanggraph.executors.payloads import Dumps, dump_error, load_error, loads
from rxlanggraph.limits.gate import ModelGate, ModelLimit, ProviderRefusal, Ticket
from rxlanggraph.limits.limiter import ModelCall, ticket_for
from rxlanggraph.limits.rules import ModelRules
from rxlanggraph.limits.waits import InThread, OnLoop
from rxlanggraph.messages import StreamMessage
from rxlanggraph.validation import check_seconds

if TYPE_CHECKING:
    from rxlanggraph.limits.callbacks import RunCalls

__all__ = ["ModelsHere", "ModelsThere"]


class ModelsHere:
    """Lets the model calls of a worker through, and counts them. On the loop: see `Companion`.

    Args:
        scope: That of the run.
        rules: What applies to the models.
        tell: Tells the worker something.
        dumps: Pickles errors for it.
    """

    def __init__(
        self, scope: RunScope, rules: ModelRules, tell: Callable[[Any], None], dumps: Dumps
    ) -> None:
        assert scope.run is not None
        self._message = scope.run.message
        self._clock = scope.run.clock
        self._rules = rules
        self._tell = tell
        self._dumps = dumps
        # By the numbers that the worker gives them: calls that wait, and those that were let go.
        self._waiting: dict[int, asyncio.Task[None]] = {}
        self._open: dict[int, tuple[ModelGate, Ticket]] = {}
        limits = rules.limits is not None
        self.counterpart = ModelsThere(limits=limits, counts=rules.usage is not None)

    def hear(self, what: Any) -> None:
        """Note what a call asks for, or how it has ended."""
        kind, number, *details = what
        if kind == "used":
            assert self._rules.usage is not None
            self._rules.usage.add(self._message, *details)
        elif kind in {"ask", "count"}:
            described, inner = details
            self._begin(number, described, inner=inner, waits=kind == "ask")
        elif number in self._waiting:  # it waits no more
            self._waiting.pop(number).cancel()
        elif number in self._open:
            gate, ticket = self._open.pop(number)
            if kind == "answered":
                gate.answered(ticket, *details)
            elif kind == "failed":
                gate.failed(ticket, *details)
            else:
                gate.leave(ticket)

    def _begin(self, number: int, described: bytes, *, inner: bool, waits: bool) -> None:
        limits = self._rules.limits
        assert limits is not None
        try:
            model, messages, parameters, metadata = loads(described)
            call = ModelCall(model, messages, parameters, metadata, self._message)
            gate = limits.gate_of(call)
            if gate is None:
                self._let_go(number)
                return
            wait = OnLoop() if waits else None
            ticket = ticket_for(
                call, gate.limit, limits.count_tokens, self._clock, wait, inner=inner
            )
        except BaseException as error:  # of the functions of the limits
            if not waits:  # the call is made already: its run fails
                raise
            self._refuse(number, error)
            return
        if wait is None:
            gate.enter_nowait(ticket)
            self._open[number] = gate, ticket
            return
        entering = self._enter(number, gate, ticket, wait)
        loop = asyncio.get_running_loop()
        self._waiting[number] = loop.create_task(entering, context=Context())

    async def _enter(self, number: int, gate: ModelGate, ticket: Ticket, wait: OnLoop) -> None:
        try:
            await gate.enter_async(ticket, wait)
            self._open[number] = gate, ticket
            self._let_go(number)
        except Exception as error:  # of the state, or the clock, of the limits
            self._refuse(number, error)
        finally:
            self._waiting.pop(number, None)

    def _let_go(self, number: int) -> None:
        assert self._rules.limits is not None
        now = self._rules.limits.time()
        check_seconds("what time returns", now)
        self._tell((number, now, None))

    def _refuse(self, number: int, error: BaseException) -> None:
        self._tell((number, 0.0, dump_error(error, self._dumps)))
        if is_interrupt(error):
            raise_on_loop(error)

    def end(self) -> None:
        """Give back what the call has not given back itself: its worker may be lost."""
        waiting, self._waiting = self._waiting, {}
        for task in waiting.values():
            task.cancel()
        while self._open:
            _, (gate, ticket) = self._open.popitem()
            gate.leave(ticket)


class ModelsThere:
    """Has the model calls of a call ask the driver: see `Counterpart`.

    Args:
        limits: Whether anything limits them.
        counts: Whether their tokens are counted.
    """

    _link: Link
    _calls: RunCalls

    def __init__(self, *, limits: bool, counts: bool) -> None:
        self._limits = limits
        self._counts = counts

    def enter(self, link: Link, graph: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Have calls of models in this context reported."""
        from rxlanggraph.limits.callbacks import RunCalls  # noqa: PLC0415 - imports LangChain

        self._asked = _AskedLimits(link)
        self._calls = RunCalls(
            self._asked if self._limits else None,
            _ToldUsage(link) if self._counts else None,
            _ELSEWHERE,
            SYSTEM_CLOCK,
            link.is_inside,
        )
        self._calls.enter()
        return arguments

    def hear(self, what: Any) -> None:
        """Let a call go, or fail it."""
        number, now, error = what
        if error is None:
            self._asked.set_time(now)
        self._asked.answer(number, error and load_error(error))

    def cancel(self) -> None:
        """Let no further call go: threads that wait for one are not cancelled otherwise."""
        self._calls.abandon()

    def leave(self) -> None:
        """End the model calls that have not ended; those left behind would never be answered."""
        if self._limits:
            self._calls.abandon()
        self._calls.end()


# The driver knows the message.
_ELSEWHERE = StreamMessage(None)


class _ToldUsage:
    """Tells the driver which tokens to count."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def add(
        self, _: StreamMessage, models: tuple[str, ...], tokens: Mapping[str, Any] | None
    ) -> None:
        self._link.tell(("used", 0, models, None if tokens is None else dict(tokens)))


class _AskedLimits:
    """Limits that are kept in the driver. Any thread of the call."""

    count_tokens = None

    def __init__(self, link: Link) -> None:
        self.link = link
        # A leaf: guards what follows, and all gates.
        self.lock = fork_safe_rlock()
        self._numbers = 0
        self._gates: dict[int, _AskedGate] = {}  # those that wait for an answer
        # How far the time of the driver's limits is ahead of that of this process. One reference,
        # written on the loop; read by any thread.
        self._ahead = seconds_since_epoch() - monotonic()

    def time(self) -> float:
        return monotonic() + self._ahead

    def set_time(self, now: float) -> None:
        self._ahead = now - monotonic()

    def gate_of(self, call: ModelCall) -> _AskedGate:
        with self.lock:
            self._numbers += 1
            number = self._numbers
        return _AskedGate(self, number, call)  # pickles, which may call code of the user's

    def expect(self, gate: _AskedGate) -> None:
        with self.lock:
            self._gates[gate.number] = gate

    def forget(self, gate: _AskedGate) -> None:
        with self.lock:
            self._gates.pop(gate.number, None)

    def answer(self, number: int, error: BaseException | None) -> None:
        with self.lock:
            gate = self._gates.get(number)
            if gate is not None:
                gate.answer(error)


class _AskedGate:
    """What one call has to pass, as a `ModelGate` for it alone."""

    limit = ModelLimit()  # tokens are counted in the driver

    def __init__(self, limits: _AskedLimits, number: int, call: ModelCall) -> None:
        self.number = number
        self._limits = limits
        self._described = _described(call, limits.link)
        # Guarded by the lock of the limits.
        self._ticket: Ticket | None = None
        self._answered = False
        self._error: BaseException | None = None

    # -- waiting -----------------------------------------------------------------------------------

    async def enter_async(self, ticket: Ticket, wait: OnLoop) -> None:
        with self._asking(ticket):
            while not self._may_go(ticket):
                await wait.wait(math.inf)

    def enter(self, ticket: Ticket, wait: InThread) -> None:
        with self._asking(ticket):
            while not self._may_go(ticket):
                wait.wait(math.inf)

    def enter_nowait(self, ticket: Ticket) -> None:
        self._tell("count", self._described, ticket.inner)
        ticket.open = True

    @contextmanager
    def _asking(self, ticket: Ticket) -> Iterator[None]:
        """Ask the driver; in the block, its answer is waited for."""
        self._ticket = ticket
        self._limits.expect(self)
        self._tell("ask", self._described, ticket.inner)
        try:
            yield
        except BaseException:
            self.leave(ticket)
            raise
        finally:
            self._limits.forget(self)

    def _may_go(self, ticket: Ticket) -> bool:
        with self._limits.lock:
            if ticket.abandoned:
                raise asyncio.CancelledError
            if self._error is not None:
                raise self._error
            if self._answered:
                ticket.open, ticket.wait = True, None
                return True
            assert ticket.wait is not None
            ticket.wait.prepare()
            return False

    def answer(self, error: BaseException | None) -> None:
        """Note the answer of the driver. Under the lock."""
        self._answered, self._error = True, error
        if self._ticket is not None and self._ticket.wait is not None:
            self._ticket.wait.wake()

    # -- its end -----------------------------------------------------------------------------------

    def leave(self, ticket: Ticket) -> None:
        ticket.open = False
        self._tell("left")

    def abandon(self, ticket: Ticket) -> None:
        with self._limits.lock:
            ticket.abandoned = True
            if ticket.wait is not None:
                ticket.wait.wake()

    def lose(self, ticket: Ticket) -> None:
        ticket.open = False

    def collect(self) -> None:
        self._tell("left")

    def answered(self, ticket: Ticket, tokens: int | None, pause: float | None) -> None:
        ticket.open = False
        self._tell("answered", tokens, pause)

    def failed(self, ticket: Ticket, tokens: int | None, refusal: ProviderRefusal | None) -> None:
        ticket.open = False
        self._tell("failed", tokens, refusal)

    def _tell(self, kind: str, *details: Any) -> None:
        self._limits.link.tell((kind, self.number, *details))


def _described(call: ModelCall, link: Link) -> bytes:
    """Pickle ``call`` without its message; parameters for which that fails are left out.

    Raises:
        InvalidTypeError: What the model is asked cannot be pickled.
    """
    try:
        return link.dumps((call.model, call.messages, call.parameters, call.metadata))
    except Exception:
        parameters, metadata = (_portable(each, link) for each in (call.parameters, call.metadata))
    try:
        return link.dumps((call.model, call.messages, parameters, metadata))
    except Exception as error:
        raise InvalidTypeError(
            "the messages to a model cannot be sent to its limits, which are in another process, "
            f"because they cannot be pickled: {error_text(error)}"
        ) from error


def _portable(values: Mapping[str, Any], link: Link) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        try:
            link.dumps(value)
        except Exception:  # noqa: S112 - whatever its own methods raise
            continue
        found[name] = value
    return found
