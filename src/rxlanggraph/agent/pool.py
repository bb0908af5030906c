"""AgentPool: one agent for each ``thread_id`` of a stream, a limited number of them at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rxlanggraph.agent.agent import BaseAgent
from rxlanggraph.agent.conversation.messages import Message
from rxlanggraph.agent.conversation.persistence import ConversationStore, make_store
from rxlanggraph.agent.internal import bind_thread, persisted
from rxlanggraph.agent.run import RunPersistence, is_reentrant, run_timeout
from rxlanggraph.agent.run_lock import RunLock, refuse_overtaken
from rxlanggraph.bridge.graphs.configs import one_thread, threads_of
from rxlanggraph.concurrency.forking import fork_safe_rlock, register_after_fork
from rxlanggraph.concurrency.waiters import Waiter, WaiterQueue
from rxlanggraph.errors import AgentBusyError, InvalidArgumentError, InvalidTypeError
from rxlanggraph.validation import check_name, check_plain, check_timeout, check_whole

__all__ = ["AgentPool"]

_LOOK_SECONDS = 1.0
"""Seconds between two checks of a waiter whether an agent's loop was closed. A guess."""


@dataclass(slots=True)
class _PoolEntry:
    """The entry of one thread in the pool."""

    # Held by a call from making the agent to saving its memory; one call at a time.
    run_lock: RunLock = field(default_factory=lambda: RunLock(AgentBusyError))
    # Owned by the holder of the run lock, as is the next one.
    agent: BaseAgent | None = None
    # The stored messages, as saved or loaded last; None if unknown.
    saved: tuple[Message, ...] | None = ()
    # A set: the calls that use or await the entry; guarded by the pool's lock.
    users: dict[Waiter, None] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether no call uses it, but for those whose loops were closed: they are over."""
        return not self.users or all(user.loop_closed for user in self.users)

    @property
    def is_stored(self) -> bool:
        """Whether the store has what the agent knows. For an idle entry.

        Not after a run that has failed, and whose writes could not be undone.
        """
        return self.agent is None or self.saved is not None


class _PoolPersistence(RunPersistence):
    """Saves the memory of an entry's agent. Used while holding the entry's run lock."""

    def __init__(
        self, store: ConversationStore, thread_id: str, entry: _PoolEntry, agent: BaseAgent
    ) -> None:
        self._store = store
        self._thread_id = thread_id
        self._entry = entry
        self._agent = agent
        # The messages that `save` has written, and the stored ones before; both set by `save`.
        self._messages: tuple[Message, ...] = ()
        self._before: tuple[Message, ...] | None = None
        # Whether the call has ended: a store that hangs may return later, and the entry is then
        # owned by another call.
        self.over = False

    async def load(self) -> None:
        entry = self._entry
        if entry.agent is None:
            saved = await self._store.load(self._thread_id)
            if saved:
                self._agent.memory.load(saved)
            if not self.over:
                entry.agent, entry.saved = self._agent, saved

    async def save(self) -> None:
        self._messages = self._agent.memory.get_messages()
        self._before, self._entry.saved = self._entry.saved, None
        await self._store.save(self._thread_id, self._messages, self._before)

    async def roll_back(self, error: BaseException) -> None:
        if self._entry.saved is None:
            before = self._agent.memory.get_messages() if self._before is None else self._before
            await self._store.save(self._thread_id, before, None)
            if not self.over:
                self._entry.saved = before

    def committed(self) -> None:
        self._entry.saved = self._messages


class AgentPool:
    """Answers each message with the agent of its thread: ``bridge.invoke(AgentPool(make))``.

    An agent is made for the first message on its thread. At ``max_agents``, the agent that has been
    idle longest is evicted; its memory is saved, and the next message on its thread restores it.
    Safe to use from any thread and any number of loops.

    Args:
        agent_factory: Makes the agent of a thread, given its ``thread_id``. Must not block. If the
            agent has a memory with messages, a new conversation begins with them.
        max_agents: The maximum number of agents; while all are busy, a message on another thread
            waits. An agent that calls others of its pool keeps its place while it waits for theirs:
            if all do, until the ``timeout`` of one of them.
        persistence: Where memories are saved after each run: a LangGraph store or checkpointer.
            None keeps them in this process, for the lifetime of the pool. LangGraph writes a
            conversation as a whole each time: have the factory limit it, by
            ``memory=Memory(max_messages=...)``.
        max_memories: How many memories are saved in this process; the least recently used are
            dropped, and their threads begin anew. None for 10,000; what ``persistence`` keeps is
            not limited here.
        name: Shown in errors and logs; the name of the tool, where it is offered as one.
        description: The description of the tool, where the pool is offered as one.

    Raises:
        InvalidArgumentError: ``max_agents`` or ``max_memories`` is less than 1, the latter is given
            with ``persistence``, or the name is empty.
        InvalidTypeError: ``agent_factory`` is not callable; ``persistence`` is neither a store nor
            a checkpointer.
    """

    def __init__(
        self,
        agent_factory: Callable[[str], BaseAgent],
        *,
        max_agents: int = 100,
        persistence: Any = None,
        max_memories: int | None = None,
        name: str = "agents",
        description: str = "",
    ) -> None:
        if not callable(agent_factory):
            raise InvalidTypeError(
                f"agent_factory must be a function of a thread_id, not {agent_factory!r}"
            )
        check_whole("max_agents", max_agents, least=1)
        check_name("name", name)
        self.name = name
        self.description = description
        self._make = agent_factory
        self._max_agents = max_agents
        self._store: ConversationStore = make_store(persistence, max_memories)
        # A leaf, held for a few lines; an RLock, as a finalizer may enter too. Guards everything
        # below.
        self._lock = fork_safe_rlock()
        self._entries: OrderedDict[str, _PoolEntry] = OrderedDict()  # the least recently used first
        # Of threads that are being forgotten and have no agent: they do not count.
        self._forgetting: dict[str, _PoolEntry] = {}
        self._queue = WaiterQueue(self._lock)
        register_after_fork(self)

    # Recognized by a bridge, as for a `BaseAgent`.
    _takes_answers = True

    def __repr__(self) -> str:
        """Name the pool."""
        return f"<{type(self).__name__} {self.name!r}>"

    def __len__(self) -> int:
        """How many agents there are. Any thread; never blocks."""
        with self._lock:
            return len(self._entries)

    async def ainvoke(self, input: Any, config: Any = None, *, context: Any = None) -> Any:  # noqa: A002 - as LangGraph has it
        """Answer ``input`` with the agent of ``config``'s thread, after earlier messages.

        ``config`` and ``context`` are passed on to the agent. Cancelling cancels the run, or the
        wait for it. The agent's ``timeout`` covers its run, with the loading and saving of its
        memory.

        Raises:
            AgentBusyError: Called by a run of that same agent, which would wait for itself.
            InvalidArgumentError: ``config`` names no ``thread_id``, or two; the factory returned an
                agent of another thread.
            InvalidTypeError: The factory returned something other than an agent; the ``thread_id``
                is not a string, or ``config`` not a mapping.
            AgentInterruptedError, StaleResumeError: As in `BaseAgent.run`.
            RunTimeoutError: The time was up.
            Exception: Whatever the factory, the run or the saving raised; the memory is as before.
        """
        named = one_thread(threads_of(None, config))
        if named is None:
            raise InvalidArgumentError(
                "a message for an AgentPool needs a thread_id, which selects the agent; "
                "pass bridge.invoke(pool, thread_id=...)"
            )
        return await self._answer(
            named.thread_id,
            lambda agent: agent.ainvoke(input, config, context=context, reset=True),
            input,
        )

    async def process_mcp_message(self, content: Any, sender: str, *, thread_id: str) -> Any:
        """Answer an MCP message with the agent of ``thread_id``, as its method of that name does.

        Any loop. Cancelling cancels the run, or the wait for it.

        Raises:
            AgentMessageError: There is no text in ``content``.
            Exception: As `ainvoke`.
        """
        return await self._answer(
            thread_id,
            lambda agent: agent.process_mcp_message(content, sender, agent_id=self.name),
        )

    async def forget(self, thread_id: str, timeout: float = 30.0) -> None:
        """Forget a conversation, after earlier messages: the next one on this thread begins anew.

        Any loop. Its agent is removed, its saved memory is deleted, and so is the thread of its
        graph, if that has a checkpointer. It does not wait for a place among ``max_agents``, as it
        runs no agent. From a checkpointer, everything on the thread is deleted. For an unknown
        thread there is nothing to do. If cancelled, it may have forgotten a part.

        Args:
            thread_id: The thread of the conversation.
            timeout: Seconds, including the wait for earlier messages; ``math.inf`` for no limit.

        Raises:
            AgentBusyError: Called by a run of that thread's agent, which would wait for itself.
            InvalidArgumentError: ``timeout`` is not a number of seconds above 0.
            RunTimeoutError: The time was up.
            Exception: Whatever the factory, store or checkpointer raised.
        """
        seconds = check_timeout("timeout", timeout)
        self._refuse_own_run(thread_id)
        async with (
            run_timeout(f"forgetting thread {thread_id!r}", seconds),
            self._entry_in_use(thread_id, forget=True) as entry,
            entry.run_lock.entered("enqueue"),
        ):
            # A missing agent must be made, because its graph may have a checkpointer.
            agent, entry.agent, entry.saved = entry.agent or self._agent_of(thread_id), None, ()
            await agent.forget_thread(thread_id)
            await self._store.forget(thread_id)

    async def threads(self, timeout: float = 30.0) -> tuple[str, ...]:
        """Return the threads for which a memory is saved, in no particular order. Any loop.

        A checkpointer has to read all its checkpoints for that.

        Args:
            timeout: Seconds; ``math.inf`` for no limit.

        Raises:
            InvalidArgumentError: ``timeout`` is not a number of seconds above 0.
            RunTimeoutError: The time was up.
            Exception: Whatever the store or checkpointer raised.
        """
        async with run_timeout(
            f"listing the threads of {self.name!r}", check_timeout("timeout", timeout)
        ):
            return await self._store.threads()

    async def _answer(
        self, thread_id: str, ask: Callable[[BaseAgent], Awaitable[Any]], request: Any = None
    ) -> Any:
        self._refuse_own_run(thread_id)
        async with self._entry_in_use(thread_id) as entry:
            refuse_overtaken(request, entry.run_lock)
            return await self._answer_in(entry, thread_id, ask)

    async def _answer_in(
        self, entry: _PoolEntry, thread_id: str, ask: Callable[[BaseAgent], Awaitable[Any]]
    ) -> Any:
        async with entry.run_lock.entered("enqueue"):
            agent = entry.agent or self._agent_of(thread_id)
            persistence = _PoolPersistence(self._store, thread_id, entry, agent)
            try:
                with persisted(agent, persistence):
                    return await ask(agent)
            finally:
                persistence.over = True

    def _refuse_own_run(self, thread_id: str) -> None:
        with self._lock:
            entry = self._entries.get(thread_id)
        agent = entry and entry.agent  # during its own run the agent stays
        if agent is not None and is_reentrant(agent):
            raise AgentBusyError(
                f"{agent!r} sent a message to its own thread {thread_id!r}, and would wait for "
                "itself; use another thread, or answer in step()"
            )

    def _agent_of(self, thread_id: str) -> BaseAgent:
        agent: object = self._make(thread_id)
        check_plain("agent_factory", agent)
        if not isinstance(agent, BaseAgent):
            raise InvalidTypeError(
                f"the agent_factory {self._make!r} must return a BaseAgent, not {agent!r}"
            )
        bound = bind_thread(agent, thread_id)
        if bound != thread_id:  # two threads would share one memory
            raise InvalidArgumentError(
                f"the agent_factory {self._make!r} returned the agent of thread "
                f"{bound!r} for thread {thread_id!r} too; have it make one for each"
            )
        return agent

    @asynccontextmanager
    async def _entry_in_use(
        self, thread_id: str, *, forget: bool = False
    ) -> AsyncIterator[_PoolEntry]:
        waiter = Waiter()
        while (entry := self._take(thread_id, waiter, forget=forget)) is None:
            # The more there are, the less often each looks: together they look as often.
            seconds = _LOOK_SECONDS * max(1, len(self._queue) // 100)
            await self._queue.wait(waiter, self._wake_next, seconds)
        try:
            yield entry
        finally:
            with self._lock:
                entry.users.pop(waiter, None)
                if forget and entry.is_idle:
                    self._remove(thread_id, entry)
            self._wake_next()

    def _take(self, thread_id: str, waiter: Waiter, *, forget: bool) -> _PoolEntry | None:
        """Use the entry of ``thread_id``; without room, let ``waiter`` wait, and return None."""
        with self._lock:
            entry = self._entries.get(thread_id)
            if entry is None and forget:
                entry = self._forgetting.setdefault(thread_id, _PoolEntry())
            elif entry is None:
                if not self._make_room():
                    self._queue.join(waiter)
                    return None
                entry = self._entries[thread_id] = self._new_entry(thread_id)
            else:
                self._entries.move_to_end(thread_id)
            self._queue.leave(waiter)
            entry.users[waiter] = None
            return entry

    def _new_entry(self, thread_id: str) -> _PoolEntry:
        """The entry of a thread that is being forgotten; else a new one. Under the lock."""
        return self._forgetting.pop(thread_id) if thread_id in self._forgetting else _PoolEntry()

    def _remove(self, thread_id: str, entry: _PoolEntry) -> None:
        """Remove an entry, unless it was replaced. Under the lock."""
        for entries in (self._entries, self._forgetting):
            if entries.get(thread_id) is entry:
                del entries[thread_id]

    def _after_fork(self) -> None:
        """In a forked child: agents with an active run are the parent's. See `forking`."""
        idle = ((key, entry) for key, entry in self._entries.items() if not entry.users)
        self._entries, self._forgetting = OrderedDict(idle), {}
        self._queue = WaiterQueue(self._lock)

    def _make_room(self) -> bool:
        """Evict the agent that has been idle longest, if need be. Under the lock.

        One that knows what the store does not have goes last.
        """
        if len(self._entries) < self._max_agents:
            return True
        evicted = None
        for key, entry in self._entries.items():
            if entry.is_idle and entry.is_stored:
                evicted = key
                break
            if entry.is_idle and evicted is None:
                evicted = key
        if evicted is None:
            return False
        del self._entries[evicted]
        return True

    def _wake_next(self) -> None:
        """Wake the next waiter whose loop still runs."""
        while True:
            with self._lock:
                waiter = self._queue.next()
            if waiter is None or (waiter.wake_threadsafe() and not waiter.loop_stopped):
                return
