"""LangChain callbacks, in which the model calls of a run wait and report their end.

Each run has two handlers: `_Inline` is called, `_Awaited` is awaited. LangChain finds them through
context variables, not through a config, so a model that a function calls without a config is
limited too.

Why two: LangChain awaits the handlers that are not inline, each in a task of its own, so a
cancellation reaches all of them; but only an inline handler shares the context of the code that
calls the model. If an inline handler raised, the coroutines of the others would never be awaited.
So `_Awaited` waits, and `_Inline` notes what is needed of the context.

What breaks without `run_id`: LangChain does not report a call whose coroutine was cancelled
(``agenerate`` has no handler for that), which would keep its place forever. All of LangChain's
objects for a call refer to its run_id, so the call is over when that is freed. Calls in threads
always report their end.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.tracers.context import register_configure_hook

from rxlanggraph.concurrency.clock import Clock
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.limits.gate import ModelLimit, ProviderRefusal, Ticket
from rxlanggraph.limits.limiter import ModelCall, ticket_for
from rxlanggraph.limits.signals import (
    OVERLOADED,
    exhausted_for,
    headers_of,
    lowered,
    requested_pause,
    status_of,
)
from rxlanggraph.limits.waits import InThread, OnLoop
from rxlanggraph.messages import StreamMessage

__all__ = ["RunCalls"]

# The call within which the code of this context runs, for calls that it makes. It may be over.
_within: ContextVar[_Call | None] = ContextVar("rxlanggraph_model_call", default=None)
_inline: ContextVar[BaseCallbackHandler | None] = ContextVar(
    "rxlanggraph_limits_inline", default=None
)
_awaited: ContextVar[BaseCallbackHandler | None] = ContextVar(
    "rxlanggraph_limits_awaited", default=None
)
register_configure_hook(_inline, inheritable=True)
register_configure_hook(_awaited, inheritable=True)


class CallGate(Protocol):
    """The gate of a call: a `ModelGate`, or a stand-in for one in another process."""

    @property
    def limit(self) -> ModelLimit: ...

    async def enter_async(self, ticket: Ticket, wait: OnLoop) -> None: ...

    def enter(self, ticket: Ticket, wait: InThread) -> None: ...

    def enter_nowait(self, ticket: Ticket) -> None: ...

    def leave(self, ticket: Ticket) -> None: ...

    def abandon(self, ticket: Ticket) -> None: ...

    def lose(self, ticket: Ticket) -> None: ...

    def collect(self) -> None: ...

    def answered(self, ticket: Ticket, tokens: int | None, pause: float | None) -> None: ...

    def failed(
        self, ticket: Ticket, tokens: int | None, refusal: ProviderRefusal | None
    ) -> None: ...


class CallLimits(Protocol):
    """Finds the gates of calls: `Limits`, or a stand-in for those of another process."""

    @property
    def count_tokens(self) -> Callable[[ModelCall], int] | None: ...

    @property
    def time(self) -> Callable[[], float]: ...

    def gate_of(self, call: ModelCall) -> CallGate | None: ...


class Counter(Protocol):
    """Counts tokens: a `Usage`, or a stand-in that reports to one in another process."""

    def add(
        self, message: StreamMessage, models: tuple[str, ...], tokens: Mapping[str, Any] | None
    ) -> None: ...


class _Limited(NamedTuple):
    """The gate of a limited call, and its ticket there."""

    limits: CallLimits
    gate: CallGate
    ticket: Ticket


class _Call:
    """A call of `RunCalls`.

    Args:
        number: The number of LangChain's run_id.
        outer: The call within which it is made; None if there is none.
    """

    # All written by the code that makes the call.
    limited: _Limited | None = None
    awaited = False
    models: tuple[str, ...] = ()  # its names
    # Ends the call when its run_id is freed, if nothing else has.
    guard: weakref.ref[UUID] | None = None

    def __init__(self, number: int, outer: _Call | None) -> None:
        self.number = number
        self.outer = outer if outer is not None and outer.is_open() else None

    def is_open(self) -> bool:
        """Whether it, or a call that it is made within, is under way. Any thread."""
        if self.limited is not None and self.limited.ticket.open:
            return True
        return self.outer is not None and self.outer.is_open()


class RunCalls:
    """The model calls of one run. Its methods may be called by any thread of the run.

    Args:
        limits: Their limits; None for none.
        usage: Counts their tokens; None: they are not counted.
        message: The message of the run.
        clock: The clock of the bridge.
        is_inside: Returns whether the code of this context belongs to the run, and not to one that
            it has sent.
    """

    def __init__(
        self,
        limits: CallLimits | None,
        usage: Counter | None,
        message: StreamMessage,
        clock: Clock,
        is_inside: Callable[[], bool],
    ) -> None:
        self._limits = limits
        self._usage = usage
        self._is_inside = is_inside
        self._message = message
        self._clock = clock
        self._lock = fork_safe_rlock()  # a leaf: orders the end of the run and its calls
        # By the number of the run_id: the calls that wait, or are under way. Single calls of a
        # dict, by any thread. As a key, the run_id itself would never be freed.
        self._calls: dict[int, _Call] = {}
        self._over = False  # only ever set, by any thread

    def enter(self) -> None:
        """Track the model calls made in this context, and in copies of it, from now on."""
        _inline.set(_Inline(self))
        _awaited.set(_Awaited(self))

    def resolved(self, run: Future[StreamMessage]) -> None:
        """Note that the run's future has its result. In the thread that has resolved it."""
        if run.cancelled() or run.exception() is not None or run.result().status != "ok":
            self.abandon()

    def abandon(self) -> None:
        """Refuse further calls, and end the waits: no result is of use any more. Any thread."""
        self._over = True
        # By the lock, a call that arrives meanwhile is seen here, or sees the flag in `_prepare`.
        with self._lock:
            calls = list(self._calls.values())  # one call of a built-in, without the GIL too
        for call in calls:
            if call.limited is not None:
                call.limited.gate.abandon(call.limited.ticket)

    def end(self) -> None:
        """Note the end of the run's coroutine, and so of all calls that it awaited."""
        for number, call in list(self._calls.items()):
            if call.awaited:
                self._calls.pop(number, None)
                if call.limited is not None:
                    call.limited.gate.leave(call.limited.ticket)

    # -- the start of a call -----------------------------------------------------------------------

    def note(self, run_id: UUID) -> None:
        """Note that a call is about to be made. In the context of the code that makes it."""
        if self._is_inside():
            call = self._calls[run_id.int] = _Call(run_id.int, _within.get())
            _within.set(call)

    async def begin_async(
        self, run_id: UUID, messages: Sequence[BaseMessage], *, batch_size: int = 1, **details: Any
    ) -> None:
        """Wait until a call, which was noted, may be made. In a coroutine.

        Args:
            run_id: LangChain's number of the call.
            messages: What the model is asked.
            batch_size: How many calls wait for each other.
            details: LangChain's other arguments.

        Raises:
            CancelledError: The run is over.
        """
        call = self._calls.get(run_id.int)
        if call is None:
            return
        call.awaited = True
        try:
            wait = OnLoop()
            found = self._prepare(call, messages, details, wait, batch_size)
            if found is not None:
                self._watch(call, found, run_id)
                await found.gate.enter_async(found.ticket, wait)
        except BaseException:
            self._calls.pop(call.number, None)
            raise

    def begin(
        self, run_id: UUID, messages: Sequence[BaseMessage], *, batch_size: int = 1, **details: Any
    ) -> None:
        """Block until a call, which was noted, may be made. In a thread.

        On the thread of a loop, which must not be blocked, it does not wait, but is counted. The
        arguments and exceptions are those of `begin_async`.
        """
        call = self._calls.get(run_id.int)
        if call is None:
            return
        try:
            wait = InThread(self._clock)
            found = self._prepare(call, messages, details, wait, batch_size)
            if found is None:
                return
            if asyncio._get_running_loop() is None:
                found.gate.enter(found.ticket, wait)
            else:
                found.gate.enter_nowait(found.ticket)
        except BaseException:
            self._calls.pop(call.number, None)
            raise

    def _prepare(
        self,
        call: _Call,
        messages: Sequence[BaseMessage],
        details: Mapping[str, Any],
        wait: OnLoop | InThread,
        batch: int,
    ) -> _Limited | None:
        """Find the gate of ``call``, and make its ticket; None if it is not limited."""
        described = self._describe(messages, details)
        call.models = (described.model,) if described.model else ()
        limits = self._limits
        gate = None if limits is None else limits.gate_of(described)
        if limits is not None and gate is not None:
            inner = batch > 1 or call.outer is not None
            ticket = ticket_for(
                described, gate.limit, limits.count_tokens, self._clock, wait, inner=inner
            )
            with self._lock:  # before the flag is read: see `abandon`
                call.limited = _Limited(limits, gate, ticket)
        if self._over:
            raise asyncio.CancelledError
        return call.limited

    def _describe(self, messages: Sequence[BaseMessage], details: Mapping[str, Any]) -> ModelCall:
        parameters = details.get("invocation_params") or {}
        metadata = details.get("metadata") or {}
        names = [
            metadata.get("ls_model_name"),
            parameters.get("model"),
            parameters.get("model_name"),
        ]
        model = next((name for name in names if isinstance(name, str)), "")
        return ModelCall(model, messages, parameters, metadata, self._message)

    def _watch(self, call: _Call, limited: _Limited, run_id: UUID) -> None:
        loop = asyncio.get_running_loop()

        def gone(_: object) -> None:  # in a finalizer
            if self._calls.pop(call.number, None) is not None:
                limited.gate.lose(limited.ticket)
                with contextlib.suppress(RuntimeError):  # closed
                    loop.call_soon_threadsafe(limited.gate.collect)

        call.guard = weakref.ref(run_id, gone)

    # -- its end -----------------------------------------------------------------------------------

    def answered(self, run_id: UUID, response: LLMResult) -> None:
        """Note the answer of a call."""
        with self._ending(run_id) as call:
            if call is not None:
                self._note_answer(call, response)

    @contextlib.contextmanager
    def _ending(self, run_id: UUID) -> Iterator[_Call | None]:
        """Take out a call, which is over even if what it says, or the user's clock, raises."""
        call = self._calls.pop(run_id.int, None)
        try:
            yield call
        except BaseException:
            if call is not None and call.limited is not None:
                call.limited.gate.leave(call.limited.ticket)
            raise

    def _note_answer(self, call: _Call, response: LLMResult) -> None:
        message = _message_of(response)
        usage = None if message is None else message.usage_metadata
        metadata = {} if message is None else message.response_metadata
        cached = usage is not None and dict(usage).get("total_cost") == 0  # of LangChain's cache
        if self._usage is not None and not cached:
            self._usage.add(self._message, (*call.models, *_names_in(metadata)), usage)
        if call.limited is not None:
            limits, gate, ticket = call.limited
            tokens = 0 if cached else None if usage is None else dict(usage).get("total_tokens")
            headers = lowered(metadata.get("headers"))
            tokens = tokens if isinstance(tokens, int) else None  # whatever a model says
            gate.answered(ticket, tokens, exhausted_for(headers, limits.time()))

    def failed(self, run_id: UUID, error: BaseException) -> None:
        """Note the failure of a call."""
        with self._ending(run_id) as call:
            if call is not None and call.limited is not None:
                self._note_failure(call.limited, error)

    def _note_failure(self, limited: _Limited, error: BaseException) -> None:
        limits, gate, ticket = limited
        status = status_of(error)
        refusal = None
        if status in OVERLOADED:
            pause = requested_pause(headers_of(error), limits.time())
            refusal = ProviderRefusal(pause, insists=status != 503)
        # A call that was refused outright has cost no tokens.
        free = refusal is not None or (status is not None and 400 <= status <= 499)
        gate.failed(ticket, 0 if free else None, refusal)


def _names_in(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the model in the metadata of its answer."""
    names = (metadata.get("model_name"), metadata.get("model"))
    return tuple(name for name in names if isinstance(name, str))


def _message_of(response: LLMResult) -> AIMessage | None:
    for generations in response.generations:
        for generation in generations:
            message = getattr(generation, "message", None)
            if isinstance(message, AIMessage):
                return message
    return None


class _Handler(BaseCallbackHandler):
    """What LangChain calls for a run."""

    raise_error = True
    ignore_chain = ignore_agent = ignore_retriever = ignore_retry = ignore_custom_event = True

    def __init__(self, calls: RunCalls) -> None:
        self._calls = calls


class _Inline(_Handler):
    """Does all but wait in a coroutine. Called in the context of the code that calls a model."""

    run_inline = True

    def on_chat_model_start(  # type: ignore[override]
        self, _: object, messages: list[list[BaseMessage]], *, run_id: UUID, **details: Any
    ) -> None:
        self._calls.note(run_id)
        if _is_sync(sys._getframe(1)):
            self._calls.begin(run_id, messages[0], **details)

    def on_llm_start(  # type: ignore[override]
        self, _: object, prompts: list[str], *, run_id: UUID, **details: Any
    ) -> None:
        self._calls.note(run_id)
        if _is_sync(sys._getframe(1)):
            self._calls.begin(run_id, (), **details)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        self._calls.answered(run_id, response)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        self._calls.failed(run_id, error)


class _Awaited(_Handler):
    """Waits in a coroutine, on any loop."""

    @property
    def ignore_llm(self) -> bool:
        return _is_sync(sys._getframe(1))

    @property
    def ignore_chat_model(self) -> bool:
        return _is_sync(sys._getframe(1))

    async def on_chat_model_start(  # type: ignore[override]
        self, _: object, messages: list[list[BaseMessage]], *, run_id: UUID, **details: Any
    ) -> None:
        await self._calls.begin_async(run_id, messages[0], **details)

    async def on_llm_start(  # type: ignore[override]
        self, _: object, prompts: list[str], *, run_id: UUID, **details: Any
    ) -> None:
        await self._calls.begin_async(run_id, (), **details)


def _is_sync(asking: FrameType) -> bool:
    """Whether LangChain calls its callbacks instead of awaiting them.

    It has a function for each, told apart by its name.

    Args:
        asking: The frame of the function that calls the callback.
    """
    return asyncio._get_running_loop() is None or asking.f_code.co_name == "handle_event"
