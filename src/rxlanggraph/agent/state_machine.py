"""StateMachine: the state of an agent, entered and left by its tasks and threads.

What breaks without it: saving the state before an await and restoring it afterwards overwrites the
changes of other tasks. Holding an ``asyncio.Lock`` for the duration of a block lets two tasks that
nest in opposite orders deadlock, and guards nothing between threads. Here the open blocks are in a
list, and the last one is the state: nothing is saved, and no lock is held over a block.

`_lock` is a leaf, held for a few lines and never while user code is called: a clock, an observer,
the ``__str__`` of an exception. It is an RLock, because a signal handler, or a finalizer that ends
a generator inside its block, may interrupt the thread that holds it (invariant 5). Each section is
correct even if another one runs as a whole between any two of its lines.
"""

from __future__ import annotations

import contextlib
import enum
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from reprlib import repr as shortened
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Protocol

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import (
    AgentError,
    AgentInterruptedError,
    IllegalTransitionError,
    InvalidArgumentError,
    InvalidTypeError,
    StaleResumeError,
    UsageError,
)
from rxlanggraph.rx.serialized_subject import SerializedSubject
from rxlanggraph.validation import check_whole

if TYPE_CHECKING:
    from reactivex import Observable

__all__ = ["LEGAL_TRANSITIONS", "AgentState", "StateContext", "StateMachine", "Transition"]


class AgentState(enum.Enum):
    """What an agent is doing: IDLE, THINKING, RUNNING or FINISHED; or ERROR, until it is reset."""

    IDLE = "IDLE"
    THINKING = "THINKING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    ERROR = "ERROR"


# Raised by runs that have not failed: one waits for an answer, the other was given a useless one.
_NO_FAILURES = (AgentInterruptedError, StaleResumeError)
_WORKING = frozenset({AgentState.THINKING, AgentState.RUNNING})
_BLOCKS = _WORKING | {AgentState.FINISHED}

LEGAL_TRANSITIONS: Mapping[AgentState, frozenset[AgentState]] = MappingProxyType(
    {
        AgentState.IDLE: _WORKING,
        AgentState.THINKING: _BLOCKS,
        AgentState.RUNNING: _BLOCKS,
        AgentState.FINISHED: _BLOCKS,
        AgentState.ERROR: frozenset(),
    }
)
"""The states that a block may enter, by the current state.

Three more kinds of transition are legal at any time: on leaving a block, to the newest block still
open, or IDLE; to ERROR, by an exception or `StateMachine.fail`; and out of ERROR, by
`StateMachine.reset` alone. While an agent is in ERROR, blocks are checked against the state that
ERROR hides.
"""


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of an agent's state.

    Attributes:
        before: The state that the agent left.
        after: The state that the agent entered.
        at: The time, in seconds since the epoch; never before the previous transition.
        cause: The text of the exception that led to ERROR, otherwise None.
    """

    before: AgentState
    after: AgentState
    at: float
    cause: str | None = None


class Owner(Protocol):
    """The owner of a block: a run of an agent."""

    over: bool
    """Whether it is over. Set before `StateMachine.abandon` is called, and never cleared."""


@dataclass(slots=True, eq=False)
class _Block:
    """A block in a state."""

    state: AgentState
    owner: Owner | None
    inside: bool = False  # guarded by the machine's lock


class StateContext:
    """Being in a state during a block, ``with`` or ``async with``; made by `StateMachine.context`.

    Any thread, any loop; entering and leaving never wait, so they cannot be cancelled half-way.
    Single-use: make one for each block.

    Args:
        enter: Enters the state.
        leave: Leaves it, because of the exception passed to it, if any.
    """

    __slots__ = ("_enter", "_leave")

    def __init__(
        self, enter: Callable[[], None], leave: Callable[[BaseException | None], None]
    ) -> None:
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> None:
        """Enter the state.

        Raises:
            IllegalTransitionError: The current state does not allow it; nothing has changed.
            AgentError: The run that this code belongs to is over; nothing has changed.
            UsageError: This context is in use already; nothing has changed.
        """
        self._enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave it; an Exception sets ERROR; cancellation, interrupts and questions do not."""
        failed = isinstance(error, Exception) and not isinstance(error, _NO_FAILURES)
        self._leave(error if failed else None)

    async def __aenter__(self) -> None:
        """Enter the state, as `__enter__` does; no other task runs meanwhile."""
        self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave it, as `__exit__` does; no other task runs meanwhile."""
        self.__exit__(kind, error, trace)


class StateMachine:
    """The state of one agent: that of the most recent block still open, ERROR if one failed.

    Safe to use from any thread, from signal handlers and from finalizers; nothing here blocks. Each
    change is atomic: it is visible, recorded and published, or it has not happened.

    Args:
        name: The name of the agent, for errors and the log.
        history: The number of transitions that are retained; the oldest are dropped first.
        clock: Returns the time in seconds.

    Raises:
        InvalidArgumentError: ``history`` is not a number, at least 0.
    """

    def __init__(
        self, name: str, *, history: int = 100, clock: Callable[[], float] = time.time
    ) -> None:
        check_whole("history", history, least=0)
        self._name = name
        self._clock = clock
        self._lock = fork_safe_rlock()  # see the top of the module; guards the rest
        self._open: list[_Block] = []
        self._failure: str | None = None
        self._shown = AgentState.IDLE  # the target of the last recorded transition
        self._latest = 0.0
        self._recording = False
        self._history: deque[Transition] = deque(maxlen=history)
        self._changes: SerializedSubject[Transition] = SerializedSubject(
            f"the state of agent {name!r}", self._lock
        )

    @property
    def state(self) -> AgentState:
        """The state now. Any thread; never blocks."""
        with self._lock:
            return self._now()

    @property
    def changes(self) -> Observable[Transition]:
        """Every transition from the moment of subscribing, in order, one at a time; never ends.

        Observers are called by the thread that changes the state, or by one that is already calling
        them. An observer that raises is unsubscribed and logged; the others are not affected.
        """
        return self._changes.observable

    def history(self) -> tuple[Transition, ...]:
        """The last transitions, the oldest first. Any thread; never blocks."""
        with self._lock:
            recent = list(self._history)  # copied in one step: no finalizer can interrupt
        return tuple(recent)

    def context(self, state: AgentState, owner: Owner | None = None) -> StateContext:
        """Make a context to be in ``state`` during a block. Any thread; never blocks.

        Contexts of several tasks and threads may overlap in any order. Leaving one that is not the
        newest has no visible effect; leaving the last one restores IDLE. In ERROR they are entered
        and left as usual, and become visible after `reset`.

        Args:
            state: The state of the block.
            owner: The run that the block is part of, if any; see `abandon`. Once it is over, the
                block cannot be entered.

        Raises:
            InvalidArgumentError: ``state`` is not an AgentState.
        """
        if not isinstance(state, AgentState):
            raise InvalidArgumentError(
                f"state must be an AgentState, such as AgentState.RUNNING, not {shortened(state)}"
            )
        block = _Block(state, owner)
        return StateContext(partial(self._enter, block), partial(self._leave, block))

    def abandon(self, owner: Owner) -> None:
        """Leave the blocks of ``owner``, which is over. Any thread; never blocks.

        For work that has not left them, and perhaps never will. Leaving them later has no effect.
        """
        at = self._clock()
        with self._lock:
            for block in [each for each in self._open if each.owner is owner]:
                with contextlib.suppress(ValueError):  # it was left just now
                    self._open.remove(block)
            self._record(at)
        self._publish()

    def fail(self, error: BaseException) -> None:
        """Enter ERROR, because of ``error``, until `reset`. Any thread; never blocks.

        The first failure counts: while the agent is in ERROR, another one has no effect.

        Raises:
            InvalidTypeError: ``error`` is not an exception.
        """
        if not isinstance(error, BaseException):
            raise InvalidTypeError(f"error must be an exception, not {shortened(error)}")
        cause, at = _text(error), self._clock()
        with self._lock:
            if self._failure is None:
                self._failure = cause
            self._record(at)
        self._publish()

    def reset(self) -> None:
        """Leave ERROR, for the newest open block's state, else IDLE. Any thread; never blocks.

        Has no effect outside of ERROR.
        """
        at = self._clock()
        with self._lock:
            self._failure = None
            self._record(at)
        self._publish()

    def _enter(self, block: _Block) -> None:
        at = self._clock()
        with self._lock:
            if block.inside:
                raise UsageError(
                    f"this context of agent {self._name!r} is in use; "
                    "a block needs one of its own: call state_context() for each"
                )
            block.inside = True
        try:
            with self._lock:
                self._refuse_if_over(block.owner)
                # A handler that interrupts after this check acts as if it had come later.
                self._check(block.state, self._below())
                self._open.append(block)
                self._record(at)
            self._publish()
        except BaseException:  # refused; or Ctrl-C, or an observer's SystemExit: there is no block
            self._leave(block, None)
            raise

    def _leave(self, block: _Block, error: BaseException | None) -> None:
        cause, at = None if error is None else _text(error), self._clock()
        with self._lock:
            if cause is not None and self._failure is None and block in self._open:
                self._failure = cause
            with contextlib.suppress(ValueError):  # it was refused or abandoned
                self._open.remove(block)
            block.inside = False
            self._record(at)
        self._publish()

    def _publish(self) -> None:
        """Not under the lock: call the observers with the transitions that are queued."""
        if self._changes.observed:
            self._changes.flush()

    def _now(self) -> AgentState:
        """The visible state. Under the lock."""
        return self._below() if self._failure is None else AgentState.ERROR

    def _below(self) -> AgentState:
        """The visible state, disregarding ERROR. Under the lock."""
        try:
            return self._open[-1].state
        except IndexError:
            return AgentState.IDLE

    def _refuse_if_over(self, owner: Owner | None) -> None:
        if owner is not None and owner.over:
            raise AgentError(
                f"this run of agent {self._name!r} is over, and cannot enter a state; have the run "
                "await the tasks that it starts, or enter a state from outside the run"
            )

    def _check(self, state: AgentState, below: AgentState) -> None:
        if state in LEGAL_TRANSITIONS[below]:
            return
        legal = " or ".join(each.name for each in AgentState if each in LEGAL_TRANSITIONS[below])
        raise IllegalTransitionError(
            f"agent {self._name!r} cannot go from {below.name} to {state.name}: "
            f"from there a block may enter {legal}; IDLE comes when all blocks are left, "
            "ERROR by an exception or fail()"
        )

    def _record(self, at: float) -> None:
        """Record the visible state, if it is new, and queue the transition. Under the lock.

        A handler that interrupts this section finds `_recording` set, and leaves its change to the
        next check here; if it interrupts a check, it records the change itself.
        """
        while self._now() is not self._shown and not self._recording:
            self._recording = True
            try:
                self._record_one(at)
            finally:
                self._recording = False

    def _record_one(self, at: float) -> None:
        failure = self._failure
        before, after = self._shown, self._below() if failure is None else AgentState.ERROR
        if after is before:
            return
        if at > self._latest:
            self._latest = at
        transition = Transition(before, after, self._latest, failure)
        self._shown = after
        self._history.append(transition)
        if self._changes.observed:
            self._changes.put(transition)


def _text(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception_only(error)).strip()
    except Exception:  # its __str__ failed, which must not keep a block open
        return type(error).__name__
