"""Memory: the messages of an agent, from any number of writers.

What breaks without it: a list guarded by an ``asyncio.Lock`` is guarded on one loop only; an
unguarded one lets other messages in between a tool call and its result; a run that fails half-way
leaves half a turn behind.

Trimming removes messages some time after it has read them; meanwhile others may have been added,
cleared or trimmed. Each addition therefore has a key of its own, never reused, and is removed by
that key: removing it twice, or after a clear, has no effect.

The lock is a leaf, held for a few calls into one dict, and never while a token counter, which is
user code, is called. It is an RLock, and each section is correct even if another one runs as a
whole between any two of its lines: a signal handler or a finalizer may interrupt there (invariant
5). A single call into a built-in dict is assumed to be one step.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from itertools import repeat
from types import TracebackType
from typing import Literal, Self, cast

from langchain_core.messages import BaseMessage

from rxlanggraph.agent.conversation.messages import Message, MessageLike, as_messages, to_langchain
from rxlanggraph.agent.conversation.trimming import Entries, TokenCounter, TrimLimit, make_limits
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import AgentError, UsageError

__all__ = ["Memory", "Turn"]

# Of the turn that the current code writes to; further out, those of other memories.
_writing: ContextVar[_Stage | None] = ContextVar("rxlanggraph_memory_turn", default=None)


class Memory:
    """The messages of a conversation, in one order that all readers see.

    Safe to use from any thread and any coroutine, from signal handlers and from finalizers. Nothing
    here waits; with a limit it counts now and then, in the thread that adds or reads.

    With a limit, it forgets the oldest messages, and returns a conversation that providers accept:
    it begins with the user, after a system message at the beginning, which is kept; a tool call and
    its results are kept or removed together. The user's last message is kept, and an unfinished
    turn of tool calls is not cut: these alone may exceed the limit, until the turn is over.

    Args:
        max_messages: The maximum number of messages that it returns; None for no limit.
        max_tokens: The maximum number of their tokens; None for no limit.
        token_counter: A plain function of a list of LangChain messages, or a chat model; called
            without a lock, possibly by several threads at once. None estimates, from the number of
            characters.

    Raises:
        InvalidArgumentError: A number is out of range, or ``token_counter`` is given without
            ``max_tokens``.
        InvalidTypeError: ``token_counter`` is neither a plain function nor a chat model.
    """

    def __init__(
        self,
        *,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        token_counter: TokenCounter | None = None,
    ) -> None:
        limits = make_limits(max_messages, max_tokens, token_counter)
        self._contents = _Contents(limits, _next_trim(max_messages or 0))

    def add(self, message: MessageLike) -> None:
        """Add one message at the end. Any thread; never blocks, except to count when that is due.

        Within a `Turn` it becomes part of that, and other code sees it once the turn is committed.

        Args:
            message: Anything that `Message.of` takes.

        Raises:
            InvalidArgumentError, InvalidTypeError: It is not a message; nothing was added.
            AgentError: The turn that this code belongs to is over; nothing was added.
            Exception: Whatever a token counter raised; nothing was added.
        """
        one, contents = Message.of(message), self._contents
        if contents.limits or _writing.get() is not None:
            self._write({object(): one})
        else:  # as mostly: another dictionary would take a fifth of the time
            with contents.lock:
                contents.entries[object()] = one

    def add_all(self, messages: Iterable[MessageLike]) -> tuple[Message, ...]:
        """Add messages at the end, with no others between them. As `add` otherwise.

        Returns:
            The messages that were added.

        Raises:
            InvalidArgumentError, InvalidTypeError: One is not a message; none was added.
            AgentError: The turn that this code belongs to is over; none was added.
            Exception: Whatever a token counter raised; none was added.
        """
        entries = _keyed(messages)
        self._write(entries)
        return tuple(entries.values())

    def get_messages(self) -> tuple[Message, ...]:
        """Return the messages at this moment; later ones are not included.

        Any thread; blocks as long as a token counter does. Within an unfinished `Turn`, including
        what the turn has added.

        Raises:
            Exception: Whatever a token counter raised.
        """
        stage = self._stage()
        return self._contents.trimmed() if stage is None else stage.messages()

    def __len__(self) -> int:
        """How many messages `get_messages` returns. Any thread."""
        return len(self.get_messages())

    def to_langchain(self) -> list[BaseMessage]:
        """Return what `get_messages` returns, as LangChain's own messages. Any thread."""
        return to_langchain(self.get_messages())

    def load(self, messages: Iterable[MessageLike]) -> None:
        """Replace all messages by these. Any thread; never blocks.

        The thread of an agent's graph begins anew with them: at the end of the run that this is
        part of; else with the next run, unless that is the first on the thread in this process.

        Takes effect at once, even within a `Turn`, which loses what was added until then.

        Raises:
            InvalidArgumentError, InvalidTypeError: One is not a message; nothing has changed.
            AgentError: The turn that this code belongs to is over; nothing has changed.
        """
        loaded = _keyed(messages)
        stage = self._stage()
        with self._contents.lock:
            if stage is not None:
                stage.drop()
            self._contents.entries = loaded
            self._contents.beginning = object()

    @property
    def beginning(self) -> object:
        """What identifies the contents; it changes when `load` and `clear` replace them.

        Any thread; never blocks.
        """
        with self._contents.lock:
            return self._contents.beginning

    def clear(self) -> None:
        """Forget everything; equivalent to ``load(())``.

        The thread of an agent's graph then begins anew too. Its earlier checkpoints stay in the
        checkpointer; see `AgentPool.forget` and `BaseAgent.forget_thread`.
        """
        self.load(())

    def copy(self) -> Self:
        """Make a memory with the same limits and messages, without those of turns. Any thread.

        Blocks as long as a token counter does.

        Raises:
            Exception: Whatever a token counter raised.
        """
        other = copy.copy(self)
        other._contents = self._contents.copy()
        return other

    def turn(self) -> Turn:
        """Make a `Turn`. Any thread; never blocks."""
        return Turn(self._contents)

    # -- inside --------------------------------------------------------------------------------

    def _stage(self) -> _Stage | None:
        """That of the turn of this memory that the current code writes to; it may be over."""
        stage = _writing.get()
        while stage is not None and stage.contents is not self._contents:
            stage = stage.outer
        return stage

    def _write(self, entries: Entries) -> None:
        """Add entries at the end; if counting fails, none."""
        stage = self._stage()
        if stage is not None:
            stage.write(entries)
            return
        self._contents.make_room()
        with self._contents.lock:
            self._contents.entries.update(entries)


class _Contents:
    """What a memory has, without what turns have added and not committed. Any thread.

    Args:
        limits: What it is trimmed to.
        trim_at: The number of messages at which to trim first. Trimming at each addition would make
            each take time proportional to the number of messages.
    """

    def __init__(self, limits: Sequence[TrimLimit], trim_at: float) -> None:
        self.limits = limits
        # See the top of the module; guards the rest, and each _Stage.
        self.lock = fork_safe_rlock()
        self._trim_at = trim_at
        self.entries: Entries = {}
        self.beginning = object()

    def make_room(self) -> None:
        """Trim if that is due. Called before an addition."""
        if not self.limits:
            return
        with self.lock:
            due = len(self.entries) >= self._trim_at
        if due:
            self.trimmed()

    def trimmed(self) -> tuple[Message, ...]:
        """Return the messages within the limits, and remove the others."""
        with self.lock:
            entries = self.entries.copy()
        if not self.limits:
            return tuple(entries.values())
        kept = self.fit(entries)
        forgotten = entries.keys() - kept.keys()
        with self.lock:
            # In one step, so that no handler sees half of a tool's turn. The messages are released
            # after the lock: their finalizers are user code.
            dropped = list(map(self.entries.pop, forgotten, repeat(None)))
            self._trim_at = _next_trim(len(kept))
        del dropped
        return tuple(kept.values())

    def fit(self, entries: Entries, written: int = 0) -> Entries:
        """Those of ``entries`` that the limits leave; the last ``written`` are not cut."""
        for limit in self.limits:
            entries = limit.fit(entries, written)
        return entries

    def copy(self) -> _Contents:
        """Make a copy, with the messages within the limits."""
        other = copy.copy(self)
        other.lock = fork_safe_rlock()
        other.entries = {object(): message for message in self.trimmed()}
        return other


class _Stage:
    """The messages of one turn, until they are added to the memory. Any thread."""

    def __init__(self, contents: _Contents) -> None:
        self.contents = contents
        # The innermost turn around this one that was not over. Written when the turn's block is
        # entered, before any other code can see it.
        self.outer: _Stage | None = None
        self._lock = contents.lock  # shared; guards the rest
        self._entries: Entries = {}
        self._ended: Literal["committed", "discarded"] | None = None

    @property
    def over(self) -> bool:
        """Whether it was committed or discarded."""
        with self._lock:
            return self._ended is not None

    def write(self, entries: Entries) -> None:
        """Add entries; refused once it is over."""
        with self._lock:
            if self._ended is not None:
                raise self.refusal()
            self._entries.update(entries)

    def messages(self) -> tuple[Message, ...]:
        """The memory's messages, and behind them these."""
        with self._lock:
            staged = self._entries.copy()
            entries = self.contents.entries | staged
        return tuple(self.contents.fit(entries, len(staged)).values())

    def drop(self) -> None:
        """Forget what was added until now; refused once it is over. Under the lock."""
        if self._ended is not None:
            raise self.refusal()
        self._entries.clear()

    def commit(self) -> bool:
        """Add all to the memory; False if it was over. If counting fails, it is not."""
        self.contents.make_room()
        with self._lock:
            if self._ended is not None:
                return False
            # The end before the copy: what a handler adds in between is refused, not lost.
            self._ended = "committed"
            self.contents.entries.update(self._entries)
            self._entries.clear()
            return True

    def discard(self) -> None:
        """Drop all; without effect once it is over."""
        with self._lock:
            if self._ended is None:
                self._ended = "discarded"
                self._entries.clear()

    def refusal(self) -> AgentError:
        """Make the error for what comes once it is over."""
        return AgentError(
            f"this run is over, and its turn was {self._ended}: the memory accepts nothing more "
            "from it; have the run await the tasks that it starts, or write from outside the run"
        )


class Turn:
    """The messages of one run, which are added to a memory all at once or not at all.

    In a ``with`` block, what its code adds to the memory is the turn's, also in the tasks, threads
    and callbacks that it starts with its context, as asyncio does. They see the memory and what the
    turn has added; no other code sees the latter. The block's end commits the turn, an exception
    discards it. Later attempts to write raise an `AgentError`.

    Safe to use from any thread. A turn within a turn of the same memory is independent of it. A
    block with a ``yield`` in it also covers the code that the generator yields to.
    """

    def __init__(self, contents: _Contents) -> None:
        self._stage = _Stage(contents)
        self._lock = contents.lock  # the memory's; guards the next field
        self._entered = False
        # Of the turn around this one, to restore. Owned by the block.
        self._before: _Stage | None = None

    @property
    def over(self) -> bool:
        """Whether it was committed or discarded. Any thread; never blocks."""
        return self._stage.over

    def __enter__(self) -> Self:
        """Make the code of this block write to the turn.

        Raises:
            UsageError: It was entered before.
        """
        with self._lock:
            if self._entered:
                raise UsageError("a turn is for one block; make one for each: memory.turn()")
            self._entered = True
        outer = self._before = _writing.get()
        while outer is not None and outer.over:  # otherwise consecutive turns form a chain
            outer = outer.outer
        self._stage.outer = outer
        _writing.set(self._stage)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit the turn, or discard it if an exception leaves the block; unless it is over."""
        # First, so that a handler that interrupts here writes past the turn, and is not refused.
        if _writing.get() is self._stage:  # it is not if another task closes a generator
            _writing.set(self._before)
            self._before = None
        try:
            if kind is None and not self.over:
                self._stage.commit()
        finally:
            self._stage.discard()

    def add(self, message: MessageLike) -> None:
        """Add one message to the turn. Any thread; never blocks.

        Raises:
            InvalidArgumentError, InvalidTypeError: Not a message; nothing was added.
            AgentError: The turn is over; nothing was added.
        """
        self._stage.write({object(): Message.of(message)})

    def add_all(self, messages: Iterable[MessageLike]) -> None:
        """Add messages to the turn, with nothing between them. Any thread; never blocks.

        Raises:
            InvalidArgumentError, InvalidTypeError: One is not a message; none was added.
            AgentError: The turn is over; none was added.
        """
        self._stage.write(_keyed(messages))

    def get_messages(self) -> tuple[Message, ...]:
        """Return the memory's messages, and behind them the turn's. Any thread.

        Of a bounded memory, the turn's are never cut.

        Raises:
            Exception: Whatever a token counter raised.
        """
        return self._stage.messages()

    def commit(self) -> None:
        """Put the turn's messages at the memory's end, with no others between. Any thread.

        Raises:
            AgentError: The turn is over.
            Exception: Whatever a token counter raised; the turn continues.
        """
        if not self._stage.commit():
            raise self._stage.refusal()

    def discard(self) -> None:
        """Drop the turn's messages; without effect once it is over. Any thread; never blocks."""
        self._stage.discard()


def _keyed(messages: Iterable[MessageLike]) -> Entries:
    # What an agent adds are messages already.
    ready = type(messages) is tuple and all(type(message) is Message for message in messages)
    made = cast("tuple[Message, ...]", messages) if ready else as_messages(messages)
    return {object(): message for message in made}


def _next_trim(kept: int) -> float:
    return kept + kept // 4 + 8
