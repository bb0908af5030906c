"""Memory: the messages of an agent, from any number of writers.

What breaks without it: a list guarded by an ``asyncio.Lock`` is guarded on one loop only; an
unguarded one lets other messages in between a tool call and its result; a run that fails half-way
leaves half a turn behind.

Trimming removes messages some time after it has read them; meanwhile others may have been added,
cleared or trimmed. Each addition therefore has a key of its own, never reused, and is removed by
that key: removing it twice, or after a clear, has no effect.

`_lock` is a leaf, held for a few calls into one dict, and never while a token counter, which is
user code, is called. It is an RLock, and each section is correct even if another one runs as a
whole between any two of its lines: a signal handler or a finalizer may interrupt there (invariant
5). A single call into a built-in dict is assumed to be one step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from contextvars import ContextVar
from itertools import repeat
from types import TracebackType
from typing import Literal, Self, cast

from langchain_core.messages import BaseMessage

from rxlanggraph.agent.conversation.messages import Message, MessageLike, as_messages, to_langchain
from rxlanggraph.agent.conversation.trimming import Entries, TokenCounter, make_limits
from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import AgentError, UsageError

__all__ = ["Memory", "Turn"]

# The turn that the current code writes to; further out, the turns of other memories.
_writing: ContextVar[Turn | None] = ContextVar("rxlanggraph_memory_turn", default=None)


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
        self._limits = make_limits(max_messages, max_tokens, token_counter)
        self._lock = fork_safe_rlock()  # see the top of the module; guards the rest, and each Turn
        self._entries: Entries = {}
        self._beginning = object()
        # The number of messages at which to trim next. Trimming at each addition would make each
        # take time proportional to the number of messages.
        self._trim_at = _next_trim(max_messages or 0) if self._limits else math.inf

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
        one = Message.of(message)
        turn = self._turn()
        if turn is not None:
            turn.add(one)
            return
        self._make_room()
        with self._lock:
            self._entries[object()] = one

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
        turn = self._turn()
        if turn is not None:
            turn._write(entries)
        else:
            self._make_room()
            with self._lock:
                self._entries.update(entries)
        return tuple(entries.values())

    def get_messages(self) -> tuple[Message, ...]:
        """Return the messages at this moment; later ones are not included.

        Any thread; blocks as long as a token counter does. Within an unfinished `Turn`, including
        what the turn has added.

        Raises:
            Exception: Whatever a token counter raised.
        """
        turn = self._turn()
        return self._trimmed() if turn is None else turn.get_messages()

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
        turn = self._turn()
        with self._lock:
            if turn is not None:
                turn._drop()
            self._entries = loaded
            self._beginning = object()

    @property
    def beginning(self) -> object:
        """What identifies the contents; it changes when `load` and `clear` replace them.

        Any thread; never blocks.
        """
        with self._lock:
            return self._beginning

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
        messages = self._trimmed()
        other = copy.copy(self)
        other._lock = fork_safe_rlock()
        other._entries = {object(): message for message in messages}
        return other

    def turn(self) -> Turn:
        """Make a `Turn`. Any thread; never blocks."""
        return Turn(self)

    # -- inside --------------------------------------------------------------------------------

    def _turn(self) -> Turn | None:
        """The turn of this memory that the current code writes to, which may be over."""
        turn = _writing.get()
        while turn is not None and turn._memory is not self:
            turn = turn._outer
        return turn

    def _make_room(self) -> None:
        """Trim if that is due. Called before an addition: if counting fails, nothing is added."""
        if not self._limits:
            return
        with self._lock:
            due = len(self._entries) >= self._trim_at
        if due:
            self._trimmed()

    def _trimmed(self) -> tuple[Message, ...]:
        """Return the messages within the limits, and remove the others."""
        with self._lock:
            entries = self._entries.copy()
        if not self._limits:
            return tuple(entries.values())
        kept = self._fit(entries)
        forgotten = entries.keys() - kept.keys()
        with self._lock:
            # In one step, so that no handler sees half of a tool's turn. The messages are released
            # after the lock: their finalizers are user code.
            dropped = list(map(self._entries.pop, forgotten, repeat(None)))
            self._trim_at = _next_trim(len(kept))
        del dropped
        return tuple(kept.values())

    def _fit(self, entries: Entries, written: int = 0) -> Entries:
        for limit in self._limits:
            entries = limit.fit(entries, written)
        return entries


class Turn:
    """The messages of one run, which are added to a memory all at once or not at all.

    In a ``with`` block, what its code adds to the memory is the turn's, also in the tasks, threads
    and callbacks that it starts with its context, as asyncio does. They see the memory and what the
    turn has added; no other code sees the latter. The block's end commits the turn, an exception
    discards it. Later attempts to write raise an `AgentError`.

    Safe to use from any thread. A turn within a turn of the same memory is independent of it. A
    block with a ``yield`` in it also covers the code that the generator yields to.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = memory._lock  # shared; guards the rest
        self._staged: Entries = {}
        self._ended: Literal["committed", "discarded"] | None = None
        self._entered = False
        # Turns around this one: the innermost that was not over, and the one to restore. Written
        # when the block is entered, before any other code can see them; `_before` also at its end.
        self._outer: Turn | None = None
        self._before: Turn | None = None

    @property
    def over(self) -> bool:
        """Whether it was committed or discarded. Any thread; never blocks."""
        with self._lock:
            return self._ended is not None

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
            outer = outer._outer
        self._outer = outer
        _writing.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit the turn, or discard it if an exception leaves the block; unless it is over."""
        # First, so that a handler that interrupts here writes past the turn, and is not refused.
        if _writing.get() is self:  # it is not if another task closes a generator
            _writing.set(self._before)
            self._before = None
        try:
            if kind is None and not self.over:
                self._memory._make_room()
                self._end("committed")
        finally:
            self._end("discarded")

    def add(self, message: MessageLike) -> None:
        """Add one message to the turn. Any thread; never blocks.

        Raises:
            InvalidArgumentError, InvalidTypeError: Not a message; nothing was added.
            AgentError: The turn is over; nothing was added.
        """
        self._write({object(): Message.of(message)})

    def add_all(self, messages: Iterable[MessageLike]) -> None:
        """Add messages to the turn, with nothing between them. Any thread; never blocks.

        Raises:
            InvalidArgumentError, InvalidTypeError: One is not a message; none was added.
            AgentError: The turn is over; none was added.
        """
        self._write(_keyed(messages))

    def get_messages(self) -> tuple[Message, ...]:
        """Return the memory's messages, and behind them the turn's. Any thread.

        Of a bounded memory, the turn's are never cut.

        Raises:
            Exception: Whatever a token counter raised.
        """
        with self._lock:
            staged = self._staged.copy()
            entries = self._memory._entries | staged
        return tuple(self._memory._fit(entries, len(staged)).values())

    def commit(self) -> None:
        """Put the turn's messages at the memory's end, with no others between. Any thread.

        Raises:
            AgentError: The turn is over.
            Exception: Whatever a token counter raised; the turn continues.
        """
        self._memory._make_room()
        if not self._end("committed"):
            raise self._refusal()

    def discard(self) -> None:
        """Drop the turn's messages; without effect once it is over. Any thread; never blocks."""
        self._end("discarded")

    def _end(self, how: Literal["committed", "discarded"]) -> bool:
        """End it, unless that was done."""
        with self._lock:
            if self._ended is not None:
                return False
            # The end before the copy: what a handler adds in between is refused, not lost.
            self._ended = how
            if how == "committed":
                self._memory._entries.update(self._staged)
            self._staged.clear()
            return True

    def _write(self, entries: Entries) -> None:
        with self._lock:
            if self._ended is not None:
                raise self._refusal()
            self._staged.update(entries)

    def _drop(self) -> None:
        """Forget what was added until now. Under the lock."""
        if self._ended is not None:
            raise self._refusal()
        self._staged.clear()

    def _refusal(self) -> AgentError:
        return AgentError(
            f"this run is over, and its turn was {self._ended}: the memory accepts nothing more "
            "from it; have the run await the tasks that it starts, or write from outside the run"
        )


def _keyed(messages: Iterable[MessageLike]) -> Entries:
    # What an agent adds are messages already.
    ready = type(messages) is tuple and all(type(message) is Message for message in messages)
    made = cast("tuple[Message, ...]", messages) if ready else as_messages(messages)
    return {object(): message for message in made}


def _next_trim(kept: int) -> float:
    return kept + kept // 4 + 8
