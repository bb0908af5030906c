"""StreamMessage: the messages that go into a stream of runs, and their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeGuard, get_args

from uuid_utils import uuid7

from rxlanggraph.errors import (
    InvalidArgumentError,
    InvalidTypeError,
    RunCancelledError,
    RunError,
    RunRejectedError,
    RunTimeoutError,
)

__all__ = [
    "ChunkMessage",
    "InterruptedMessage",
    "Status",
    "StreamMessage",
    "answer_to",
    "chunk_of",
    "failure_of",
    "interrupted_answer",
    "passes_through",
    "without_source",
]

Status = Literal["ok", "error", "interrupted", "cancelled", "timed_out", "rejected"]
_STATUSES = get_args(Status)
_NO_METADATA: Mapping[str, Any] = MappingProxyType({})
_ERROR_OF: dict[str, type[RunError]] = {
    "cancelled": RunCancelledError,
    "timed_out": RunTimeoutError,
    "rejected": RunRejectedError,
}


class StreamMessage:
    """One item of a stream: a message for a graph, or the outcome of one run.

    Immutable, so any thread may read it without a lock; the ``content`` is whatever you put in.
    Equality compares every field; the hash is that of the ``id``. ``replace`` makes a changed copy.
    """

    # Read-only properties over slots rather than a frozen dataclass: that writes each field through
    # object.__setattr__, and two messages made that way are a tenth of what a bridge spends on a
    # run.
    __slots__ = (
        "_content",
        "_duration",
        "_error",
        "_id",
        "_metadata",
        "_source",
        "_status",
        "_thread_id",
    )

    def __init__(
        self,
        content: Any,
        thread_id: str | None = None,
        metadata: Mapping[str, Any] = _NO_METADATA,
        *,
        id: str | None = None,  # noqa: A002 - the field's name, in the contract
        source: StreamMessage | None = None,
        status: Status = "ok",
        error: BaseException | None = None,
        duration: float | None = None,
    ) -> None:
        """Make a message; without an ``id`` it gets a new one. Any thread; never blocks.

        Raises:
            InvalidTypeError: ``thread_id`` or ``id`` is not a string, ``metadata`` not a mapping,
                ``source`` not a message, or ``error`` not an exception.
            InvalidArgumentError: ``status`` is not one of the six.
        """
        if id is not None and not isinstance(id, str):
            raise InvalidTypeError(f"id must be a string, not {id!r}")
        if thread_id is not None and not isinstance(thread_id, str):
            raise InvalidTypeError(
                f"thread_id must be a string or None, not {thread_id!r}; "
                "convert it with str() where the message is made"
            )
        if metadata is not _NO_METADATA:
            if not isinstance(metadata, Mapping):
                raise InvalidTypeError(f"metadata must be a mapping, not {metadata!r}")
            metadata = MappingProxyType(dict(metadata))
        if status not in _STATUSES:
            raise InvalidArgumentError(
                f"status must be one of {', '.join(sorted(_STATUSES))}, not {status!r}"
            )
        if error is not None and not isinstance(error, BaseException):
            raise InvalidTypeError(f"error must be an exception or None, not {error!r}")
        self._content = content
        self._thread_id = thread_id
        self._metadata = metadata
        self._id = str(uuid7()) if id is None else id
        self._source = None if source is None else _checked_source(source)
        self._status = status
        self._error = error
        self._duration = duration

    @property
    def content(self) -> Any:
        """The input of the graph, or in a result the graph's output (None without one)."""
        return self._content

    @property
    def thread_id(self) -> str | None:
        """The conversation it belongs to.

        Messages of one thread are processed one after another; messages without a thread are
        independent.
        """
        return self._thread_id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Anything to carry along; a copy, and read-only. A result has its source's metadata."""
        return self._metadata

    @property
    def id(self) -> str:
        """Unique, and sortable by creation (a UUIDv7, RFC 9562)."""
        return self._id

    @property
    def source(self) -> StreamMessage | None:
        """In a result, the message that it answers.

        If that message is a result too, its own source is removed, so that results that are fed
        back do not keep all earlier ones alive.
        """
        return self._source

    @property
    def status(self) -> Status:
        """How the run ended. A message that is not a result has ``"ok"``."""
        return self._status

    @property
    def error(self) -> BaseException | None:
        """The exception of a run that did not succeed, otherwise None."""
        return self._error

    @property
    def duration(self) -> float | None:
        """Seconds from the start of the run to its end, without its wait to start."""
        return self._duration

    @property
    def mode(self) -> str | None:
        """In a chunk of a stream, the stream mode that it belongs to; otherwise None.

        None in a chunk of a Runnable that has no modes, too.
        """
        return None

    @property
    def namespace(self) -> tuple[str, ...]:
        """In a chunk of a subgraph, the path of that subgraph; otherwise empty."""
        return ()

    @property
    def sequence(self) -> int | None:
        """In a chunk, its number among those of its run, from 0; otherwise None."""
        return None

    @property
    def interrupts(self) -> tuple[Any, ...]:
        """In the result of a graph that called ``interrupt()``, its questions; otherwise empty.

        LangGraph's own ``Interrupt`` objects, each with a ``value`` and an ``id``. Empty, too, in
        the result of a graph that stopped at a breakpoint, which asks nothing.
        """
        return ()

    def reply(self, value: Any, interrupt_id: str | None = None) -> StreamMessage:
        """Return the message that answers a question of this result. Any thread; never blocks.

        It is on the result's thread, with its metadata, and with the result as its ``source``. It
        answers that question alone, never one that is asked later.

        Args:
            value: What ``interrupt()`` returns in the node that asks.
            interrupt_id: Which of the ``interrupts`` it answers; None if there is only one.

        Raises:
            InvalidArgumentError: The result has no such question, or has several, and none was
                named.
        """
        ids = [interrupt.id for interrupt in self.interrupts]
        if interrupt_id is None and len(ids) == 1:
            interrupt_id = ids[0]
        if not ids:
            raise InvalidArgumentError(
                f"{self!r} asks nothing; reply to results with interrupts, and send None to "
                "continue from a breakpoint"
            )
        if interrupt_id not in ids:
            which = "interrupt_id" if interrupt_id is None else f"interrupt_id {interrupt_id!r}"
            known = ", ".join(map(repr, ids))
            raise InvalidArgumentError(f"{which} must be a question of {self!r}; it has {known}")
        from langgraph.types import Command  # noqa: PLC0415 - not imported with this package

        command: Any = Command(resume={interrupt_id: value})
        return StreamMessage(command, self.thread_id, self.metadata, source=self)

    def _fields(self) -> dict[str, Any]:
        return {slot[1:]: getattr(self, slot) for slot in StreamMessage.__slots__}

    def __eq__(self, other: object) -> bool:
        """Whether every field is equal; never raises.

        Values that cannot be compared, such as two arrays, are equal if they are the same object.
        """
        if not isinstance(other, StreamMessage):
            return NotImplemented
        if self._id != other._id:
            return False
        fields, others = self._fields(), other._fields()
        return fields.keys() == others.keys() and all(
            _is_equal(value, others[name]) for name, value in fields.items()
        )

    def __hash__(self) -> int:
        """Hash of the id: contents need not be hashable."""
        return hash(self._id)

    def __repr__(self) -> str:
        """Content, thread, id, and of a result the status and the error."""
        thread = "" if self._thread_id is None else f", thread_id={self._thread_id!r}"
        status = "" if self._source is None else f", status={self._status!r}"
        if self._error is not None:
            status += f", error={self._error!r}"
        what = self._described()
        return f"StreamMessage({self._content!r}{thread}, id={self._id!r}{status}{what})"

    def _described(self) -> str:
        return ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy: a mapping proxy supports neither itself."""
        return _restore, (type(self), {**self._fields(), "metadata": dict(self._metadata)})

    def replace(self, **changes: Any) -> StreamMessage:
        """Return a copy with other values in some fields; its ``id`` too is kept unless given.

        Any thread; never blocks. ``copy.replace`` does the same, from Python 3.13 on.

        Raises:
            InvalidTypeError, InvalidArgumentError: As for the constructor.
        """
        return _restore(type(self), {**self._fields(), **changes})

    __replace__ = replace

    def raise_for_status(self) -> StreamMessage:
        """Return the message itself if its run succeeded; otherwise raise the reason.

        May be called from any thread; never blocks. An interrupted run succeeded if
        its graph waits for an answer; one that was drained, or displaced on its thread, has an
        error.

        Returns:
            The message, so that calls can be chained (after httpx's method of the same name).

        Raises:
            BaseException: The ``error`` of the run as its graph raised it; a `RunTimeoutError`,
                `RunCancelledError` or `RunRejectedError` if the run never got that far.
        """
        failure = failure_of(self)
        if failure is not None:
            raise failure
        return self


def _is_equal(one: object, other: object) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # an array has no truth value: it says that of each element
        return False


class ChunkMessage(StreamMessage):
    """A chunk of a run's stream: a `StreamMessage` with a mode, a namespace and a number.

    A class of its own, so that messages and results, which a bridge makes for every run, do not
    carry three more fields. The ``source`` is the message that the run works on; the ``status`` is
    ``"ok"``.
    """

    __slots__ = ("_mode", "_namespace", "_sequence")

    def __init__(
        self,
        content: Any,
        thread_id: str | None = None,
        metadata: Mapping[str, Any] = _NO_METADATA,
        *,
        mode: str | None = None,
        namespace: tuple[str, ...] = (),
        sequence: int | None = None,
        **fields: Any,
    ) -> None:
        """Make a chunk. Any thread; never blocks.

        Raises:
            InvalidTypeError, InvalidArgumentError: As for `StreamMessage`.
        """
        super().__init__(content, thread_id, metadata, **fields)
        self._mode = mode
        self._namespace = namespace
        self._sequence = sequence

    @property
    def mode(self) -> str | None:
        """The stream mode that it belongs to; None if it came from something without modes."""
        return self._mode

    @property
    def namespace(self) -> tuple[str, ...]:
        """The path of the subgraph that it came from; empty for the graph itself."""
        return self._namespace

    @property
    def sequence(self) -> int | None:
        """Its number among the chunks of its run, from 0, over all modes and attempts."""
        return self._sequence

    def _fields(self) -> dict[str, Any]:
        own = {slot[1:]: getattr(self, slot) for slot in ChunkMessage.__slots__}
        return {**super()._fields(), **own}

    def _described(self) -> str:
        within = f", namespace={self._namespace!r}" if self._namespace else ""
        return f", mode={self._mode!r}{within}, sequence={self._sequence!r}"


class InterruptedMessage(StreamMessage):
    """The result of a graph that asks: a `StreamMessage` with its questions.

    A class of its own, so that other messages do not carry one more field. The ``status`` is
    ``"interrupted"`` unless given.
    """

    __slots__ = ("_interrupts",)

    def __init__(
        self,
        content: Any,
        thread_id: str | None = None,
        metadata: Mapping[str, Any] = _NO_METADATA,
        *,
        interrupts: Iterable[Any] = (),
        status: Status = "interrupted",
        **fields: Any,
    ) -> None:
        """Make a result. Any thread; never blocks.

        Raises:
            InvalidTypeError, InvalidArgumentError: As for `StreamMessage`.
        """
        super().__init__(content, thread_id, metadata, status=status, **fields)
        self._interrupts = tuple(interrupts)

    @property
    def interrupts(self) -> tuple[Any, ...]:
        """The questions, LangGraph's own ``Interrupt`` objects."""
        return self._interrupts

    def _fields(self) -> dict[str, Any]:
        return {**super()._fields(), "interrupts": self._interrupts}

    def _described(self) -> str:
        return f", interrupts={self._interrupts!r}"


def answer_to(
    source: StreamMessage,
    status: Status,
    content: Any,
    error: BaseException | None,
    duration: float | None,
) -> StreamMessage:
    """Make the result that answers ``source``: on its thread, with its metadata.

    May be called from any thread; never blocks. Equivalent to ``StreamMessage(...)``, without
    repeating the checks made for ``source``: a bridge makes one for each message.
    """
    answer = StreamMessage.__new__(StreamMessage)
    answer._content = content
    answer._thread_id = source._thread_id
    answer._metadata = source._metadata
    answer._id = str(uuid7())
    answer._source = source if source._source is None else source.replace(source=None)
    answer._status = status
    answer._error = error
    answer._duration = duration
    return answer


def interrupted_answer(
    source: StreamMessage, content: Any, interrupts: Iterable[Any], duration: float
) -> StreamMessage:
    """Make the result of a graph that asks, in answer to ``source``: as `answer_to` does."""
    answer = answer_to(source, "interrupted", content, None, duration)
    return _restore(InterruptedMessage, {**answer._fields(), "interrupts": interrupts})


def chunk_of(
    source: StreamMessage, content: Any, mode: str | None, namespace: tuple[str, ...], sequence: int
) -> StreamMessage:
    """Make a chunk of the run on ``source``: on its thread, with its metadata.

    May be called from any thread; never blocks. Like `answer_to`, without repeating checks.

    Args:
        source: The message of the run, `without_source`.
        content: The chunk itself.
        mode: The stream mode that it belongs to.
        namespace: The path of the subgraph that it came from.
        sequence: Its number among the chunks of the run.
    """
    chunk = ChunkMessage.__new__(ChunkMessage)
    chunk._content = content
    chunk._thread_id = source._thread_id
    chunk._metadata = source._metadata
    chunk._id = str(uuid7())
    chunk._source = source
    chunk._status = "ok"
    chunk._error = None
    chunk._duration = None
    chunk._mode = mode
    chunk._namespace = namespace
    chunk._sequence = sequence
    return chunk


def failure_of(message: StreamMessage) -> BaseException | None:
    """Return why the run that ``message`` reports did not succeed; None if it did.

    May be called from any thread; never blocks. A message whose status reports a failure is one
    even without an exception: then one is made.
    """
    if message.error is not None or message.status == "ok":
        return message.error
    if message.status in _ERROR_OF:
        return _ERROR_OF[message.status](f"the run of message {message.id} was {message.status}")
    if message.status == "error":
        return RunError(f"the run of message {message.id} failed without an exception")
    return None


def passes_through(item: Any) -> TypeGuard[StreamMessage]:
    """Whether ``item`` is a result without an answer, which later stages must not process.

    May be called from any thread; never blocks. An interrupted result is one: its content is what
    the graph had when it asked, and acting on that would preempt the answer.
    """
    return isinstance(item, StreamMessage) and item.status != "ok"


def without_source(message: StreamMessage) -> StreamMessage:
    """Return ``message`` as the source of another one: without a source of its own. Any thread."""
    return message if message.source is None else message.replace(source=None)


def _checked_source(message: object) -> StreamMessage:
    if not isinstance(message, StreamMessage):
        raise InvalidTypeError(f"source must be a StreamMessage or None, not {message!r}")
    return without_source(message)


def _restore(kind: type[StreamMessage], fields: dict[str, Any]) -> StreamMessage:
    return kind(**fields)
