"""Limits: the gate of each model call, by its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from time import time as seconds_since_epoch
from typing import TYPE_CHECKING, Any, NamedTuple

from rxlanggraph.concurrency.clock import Clock
from rxlanggraph.concurrency.forking import fork_safe_rlock, register_after_fork
from rxlanggraph.errors import InvalidArgumentError, InvalidTypeError
from rxlanggraph.limits.gate import LimitStatistics, ModelGate, ModelLimit, Ticket
from rxlanggraph.limits.retrying import RetryBudget, is_transient, make_retrying
from rxlanggraph.limits.shared import SharedWindow
from rxlanggraph.limits.waits import Wait
from rxlanggraph.limits.windows import Window
from rxlanggraph.messages import StreamMessage
from rxlanggraph.validation import check_attempts, check_function, check_whole

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from tenacity import AsyncRetrying

    from rxlanggraph.state import State

__all__ = ["Limits", "ModelCall", "ticket_for"]

# The key of a mapping for all models that it does not name.
_OTHERS = "*"
# Keys that are remembered, for those that a function makes, of tenants, say; and more only if so
# many are in use. How many are looked at for each new key, to find one that is not.
_MOST_KEYS = 10_000
_LOOKS = 10
# Parameters by which models limit their answers.
_ANSWER_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class ModelCall(NamedTuple):
    """A call of a model that is about to be made.

    Attributes:
        model: The name of the model; empty if LangChain does not know it.
        messages: What the model is asked; empty for a model that is not a chat model.
        parameters: LangChain's ``invocation_params``: of the model, and of this call.
        metadata: LangChain's metadata of the call, which has that of the config.
        message: The message whose run calls it.
    """

    model: str
    messages: Sequence[BaseMessage]
    parameters: Mapping[str, Any]
    metadata: Mapping[str, Any]
    message: StreamMessage


class Limits:
    """The limits of model providers, for `RxPyLangGraphBridge`'s ``limits``.

    Every call of a LangChain model within a run waits until it is admitted: requests and tokens of
    the last minute are counted, by an estimate before the call and by the provider's own figures
    after it. When the provider refuses (429, 503, 529), only the key of that call is paused, for as
    long as it says, and the number of calls at once is halved. Several bridges may share one
    object. Any thread may use it.

    Calls wait in the callbacks that LangChain awaits before it calls a model; in worker threads
    they block. A client that retries by itself hides refusals from this: make models with
    ``max_retries=0``, and let the bridge retry, with ``retry=limits.retrying(4)``.

    Args:
        limit: What each model allows; or by key, with ``"*"`` for all keys that are not named. A
            key without a limit is not limited.
        key: Which limit a call is under: a function of the `ModelCall` that returns a string, or
            None for a call that is not limited. Called in the thread of the call. None: the name of
            the model.
        count_tokens: Estimates the tokens of a call's question. None: LangChain's
            ``count_tokens_approximately``. Only called where tokens are limited.
        state: A `State` in which processes share what they have used, and pauses: together they
            keep to the limit. It may have another loop than a bridge, and is closed after all
            bridges. None: each process has the whole limit.
        time: Returns the seconds since the epoch, by which dates in headers are read, and windows
            in a ``state`` begin.

    Raises:
        InvalidTypeError: An argument is of another type.
        InvalidArgumentError: There is no limit at all.
    """

    def __init__(
        self,
        limit: ModelLimit | Mapping[str, ModelLimit],
        *,
        key: Callable[[ModelCall], str | None] | None = None,
        count_tokens: Callable[[ModelCall], int] | None = None,
        state: State | None = None,
        time: Callable[[], float] = seconds_since_epoch,
    ) -> None:
        self._limits = _by_key(limit)
        for name, function in (("key", key), ("count_tokens", count_tokens), ("time", time)):
            if function is not None:
                check_function(name, function)
        self._key = key
        self.count_tokens = count_tokens
        self.time = time
        self._state = _checked_state(state)
        # The one lock of this object, a leaf: guards what is below, and the gates. An RLock, as a
        # signal handler may enter by cancelling a run.
        self._lock = fork_safe_rlock()
        self._gates: dict[str, ModelGate] = {}
        self._budget = RetryBudget(self._lock)
        register_after_fork(self)

    def _after_fork(self) -> None:
        """In a forked child: the calls under way, and those that wait, are the parent's."""
        self._gates = {}

    def __repr__(self) -> str:
        """The keys that have a limit."""
        return f"<Limits of {', '.join(map(repr, self._limits))}>"

    def gate_of(self, call: ModelCall) -> ModelGate | None:
        """Return the gate that ``call`` has to pass; None if it is not limited. Any thread.

        Raises:
            InvalidTypeError: ``key`` returned something else than a string or None.
        """
        key = call.model if self._key is None else self._key(call)
        if key is None:
            return None
        if not isinstance(key, str):
            raise InvalidTypeError(f"key must return a string or None, not {key!r}")
        with self._lock:
            gate = self._gates.get(key)
            if gate is None:
                limit = self._limits.get(key) or self._limits.get(_OTHERS)
                if limit is None:
                    return None
                self._forget_some()
                gate = self._gates[key] = self._new_gate(key, limit)
            return gate

    def _new_gate(self, key: str, limit: ModelLimit) -> ModelGate:
        if self._state is None:
            return ModelGate(limit, self._lock)
        window = partial(Window, limit.requests, limit.tokens, limit.per)
        shared = SharedWindow(self._state, key, window, limit.per, self.time)
        return ModelGate(limit, self._lock, shared)

    def _forget_some(self) -> None:
        """Make room for a key. Under the lock. Those that are in use come last again."""
        for key in tuple(islice(self._gates, _LOOKS)):
            if len(self._gates) < _MOST_KEYS:
                return
            gate = self._gates.pop(key)
            if not gate.is_idle():
                self._gates[key] = gate

    def retrying(
        self, attempts: int = 4, *, transient: Callable[[BaseException], bool] = is_transient
    ) -> AsyncRetrying:
        """Return what ``retry=`` of the bridge takes, for failures of providers. Any thread.

        Only failures after which another attempt may succeed are retried: see `is_transient`. The
        wait is as long as the server says; where it does not say, it grows exponentially, at
        random. All retries by this object together are at most a tenth of the messages, but for the
        first ten.

        Args:
            attempts: How often a message is tried, the first time included.
            transient: Whether to retry after an exception.

        Raises:
            InvalidTypeError: ``attempts`` is not a number, or ``transient`` not a function.
            InvalidArgumentError: ``attempts`` is less than 1.
        """
        check_attempts("attempts", attempts)
        check_function("transient", transient)
        return make_retrying(attempts, self._budget, transient, self.time)

    def statistics(self) -> dict[str, LimitStatistics]:
        """Return the figures of this moment, by key. Any thread; never blocks."""
        with self._lock:
            return {key: gate.statistics() for key, gate in self._gates.items()}


def ticket_for(
    call: ModelCall,
    limit: ModelLimit,
    count_tokens: Callable[[ModelCall], int] | None,
    clock: Clock,
    wait: Wait | None,
    *,
    inner: bool,
) -> Ticket:
    """Make the ticket of ``call``. Any thread; blocks as ``count_tokens`` does.

    Args:
        call: The call.
        limit: The limit of its key.
        count_tokens: As for `Limits`.
        clock: The clock of its bridge.
        wait: How it waits; None if it does not.
        inner: Whether it is made within another call.

    Raises:
        InvalidTypeError: ``count_tokens`` returned something else than a number.
        InvalidArgumentError: It returned a negative one.
    """
    if limit.tokens is None:
        return Ticket(clock, wait, 0, None, inner=inner)
    prompt = (count_tokens or _count)(call)
    check_whole("what count_tokens returns", prompt, least=0)
    answers = [call.parameters.get(name) for name in _ANSWER_LIMITS]
    # Where a number is not above 0, as -1, the model is asked for as much as it will say.
    answer = next((each for each in answers if isinstance(each, int) and each > 0), None)
    return Ticket(clock, wait, prompt, answer, inner=inner)


def _count(call: ModelCall) -> int:
    from langchain_core.messages.utils import (  # noqa: PLC0415 - slow to import; loaded by now
        count_tokens_approximately,
    )

    return count_tokens_approximately(call.messages)


def _checked_state(state: object) -> State | None:
    if state is None:
        return None
    from rxlanggraph.state import State  # noqa: PLC0415 - most limits need none

    if not isinstance(state, State):
        raise InvalidTypeError(
            f"state must be a State, as open_state(...) opens it, or None, not {state!r}"
        )
    return state


def _by_key(limit: object) -> dict[str, ModelLimit]:
    if isinstance(limit, ModelLimit):
        return {_OTHERS: limit}
    if not isinstance(limit, Mapping) or not all(
        isinstance(key, str) and isinstance(each, ModelLimit) for key, each in limit.items()
    ):
        raise InvalidTypeError(
            f"limit must be a ModelLimit, or a mapping from keys to these, not {limit!r}"
        )
    if not limit:
        raise InvalidArgumentError("limit is empty; leave limits out to limit nothing")
    return dict(limit)
