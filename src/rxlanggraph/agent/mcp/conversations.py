"""ConversationTable: the conversations of an MCP server, one for each session.

What a session is depends on the protocol. Until 2025 a client begins one with a handshake. Since
2026 only a stream (standard input and output) is a session, as it has a single client. A request
over HTTP does not identify its client: it begins a new conversation, or continues one that it
names.

Every conversation is forgotten eventually: with its session, after some time without a call, or to
make room for another one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any

from rxlanggraph.agent.conversation.conversation import Conversation
from rxlanggraph.agent.mcp.sdk import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    AuthenticatedUser,
    CancelScope,
    ToolError,
    authorization_context,
)
from rxlanggraph.concurrency.forking import fork_safe_rlock

if TYPE_CHECKING:
    from rxlanggraph.agent.mcp.sdk import ServerRequestContext
    from rxlanggraph.agent.pool import AgentPool

__all__ = ["ActiveConversation", "ConversationTable"]

_log = logging.getLogger("rxlanggraph")
_now = time.monotonic
_KEY = "rxlanggraph.conversation"
_FORGET_SECONDS = 5.0
"""Seconds for checkpointers to forget a conversation. A guess."""


@dataclass(eq=False)
class _ConversationScope:
    """The scope at whose end conversations are forgotten: a session, or the run of the server.

    Owned by its loop.

    Attributes:
        conversation: The id of the session's conversation; None before its first call. It may have
            been forgotten since. Always None for the run of an HTTP server.
        forgetting: The tasks that delete conversations from checkpointers.
    """

    conversation: str | None = None
    forgetting: set[asyncio.Task[None]] = field(default_factory=set)


@dataclass(eq=False)
class ActiveConversation:
    """A conversation on a server. The table's lock guards ``users`` and ``used``.

    Attributes:
        scope: The scope that it belongs to.
        owner: The authenticated client that began it; None without authentication.
        named: Whether later calls continue it by its name, as it belongs to no session.
        conversation: The memories of its agents.
        pools: The pools that took part in it.
        users: The number of calls in progress.
        used: When the last call began or ended, on the clock of `_now`; 0 before the first one.
    """

    scope: _ConversationScope
    owner: Any
    named: bool
    conversation: Conversation = field(default_factory=Conversation)
    pools: set[AgentPool] = field(default_factory=set)
    users: int = 0
    used: float = 0.0

    @property
    def id(self) -> str:
        """The id, by which a call may continue it."""
        return self.conversation.id

    async def forget(self) -> None:
        """Delete it from its agents' checkpointers and from its pools; failures are logged."""
        deletions = (self.conversation.forget(), *(pool.forget(self.id) for pool in self.pools))
        await asyncio.gather(*map(_with_timeout, deletions))


class ConversationTable:
    """The conversations of one server, those in use and those that may be continued.

    Safe to use from any number of loops: a server may be served on several.

    Args:
        limit: The maximum number of conversations. The one that was idle longest is evicted.
        timeout: Seconds without a call after which a conversation without a session is forgotten.
    """

    def __init__(self, limit: int, timeout: float) -> None:
        self._limit = limit
        self._timeout = timeout
        # A leaf, held for a few lines; an RLock, as a finalizer may enter too (invariant 5).
        self._lock = fork_safe_rlock()
        # The one that was idle longest is first. Guarded by the lock.
        self._table: OrderedDict[str, ActiveConversation] = OrderedDict()

    def __len__(self) -> int:
        """How many conversations there are. Any thread; never blocks."""
        with self._lock:
            return len(self._table)

    @asynccontextmanager
    async def lifespan(self, _server: object) -> AsyncIterator[_ConversationScope]:
        """The scope of a server's run; over a stream, it is also the session of the only client."""
        scope = _ConversationScope()
        try:
            yield scope
        finally:
            await self._end(scope)

    @asynccontextmanager
    async def joined(
        self, ctx: ServerRequestContext[Any, Any], name: str
    ) -> AsyncIterator[ActiveConversation]:
        """Join the conversation called ``name``; without a name, that of the session or a new one.

        A new conversation without a session is forgotten if the block fails: its name was never
        sent to a client.

        Raises:
            ToolError: There is none of that name, or no room for another one.
        """
        scope, is_session = self.scope_of(ctx)
        with self._lock:
            gone = self._retire(self._expired())
            joined = self._find(scope, name, _owner(ctx), is_session)
            if joined is None:
                gone += self._retire(self._evictable())
                joined = ActiveConversation(scope, _owner(ctx), named=not is_session)
                self._table[joined.id] = joined
                if is_session:
                    scope.conversation = joined.id
            is_new = not joined.used
            self._use(joined, +1)
        self._forget_later(ctx.lifespan_context, gone)
        answered = False
        try:
            yield joined
            answered = True
        finally:
            with self._lock:
                self._use(joined, -1)
                failed = is_new and joined.named and not answered
                known = joined.id in self._table
                gone = self._retire([joined] if failed and known else [])
                # Its scope ended meanwhile: the last call in a conversation forgets it.
                gone += [joined] if not known and not joined.users else []
            self._forget_later(ctx.lifespan_context, gone)

    def scope_of(self, ctx: ServerRequestContext[Any, Any]) -> tuple[_ConversationScope, bool]:
        """The scope of a call's conversations; whether it is a session. On the call's loop."""
        # A private attribute: the SDK's connection has state for handlers, but no public way to it
        # from a tool. If it is missing, the call counts as one without a session, which may lose a
        # conversation but reveals none.
        connection = getattr(ctx.session, "_connection", None)
        if (
            connection is not None
            and connection.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
            and connection.has_standalone_channel  # otherwise each request has its own connection
        ):
            scope = connection.state.get(_KEY)
            if scope is None:
                scope = connection.state[_KEY] = _ConversationScope()
                connection.exit_stack.push_async_callback(self._end, scope)
            return scope, True
        return ctx.lifespan_context, ctx.request is None

    # -- the table -----------------------------------------------------------------------------

    def _find(
        self, scope: _ConversationScope, name: str, owner: Any, is_session: bool
    ) -> ActiveConversation | None:
        """The conversation to continue, if any. Under the lock."""
        if not name:
            return self._table.get(scope.conversation or "") if is_session else None
        joined = self._table.get(name)
        if joined is None or joined.scope is not scope or joined.owner != owner:
            raise ToolError(
                f"there is no such conversation as {shortened(name)}, or no longer; "
                "leave out the argument to begin a new one"
            )
        return joined

    def _use(self, joined: ActiveConversation, users: int) -> None:
        """Change the number of its calls in progress. Under the lock."""
        joined.users += users
        joined.used = _now()
        if joined.id in self._table:
            self._table.move_to_end(joined.id)

    def _expired(self) -> Iterator[ActiveConversation]:
        """The conversations without a session that were idle for too long. Under the lock."""
        until = _now() - self._timeout
        for joined in self._table.values():
            if joined.used > until:
                return
            if joined.named and not joined.users:
                yield joined

    def _evictable(self) -> list[ActiveConversation]:
        """The conversation to evict to make room for another one, if need be. Under the lock.

        Raises:
            ToolError: All are in use.
        """
        if len(self._table) < self._limit:
            return []
        idle = next((joined for joined in self._table.values() if not joined.users), None)
        if idle is None:
            raise ToolError(
                f"too many conversations: all {self._limit} have calls in progress; try again later"
            )
        return [idle]

    def _retire(
        self, some: Iterator[ActiveConversation] | list[ActiveConversation]
    ) -> list[ActiveConversation]:
        """Remove them from the table; return them as a list. Under the lock."""
        gone = list(some)
        for joined in gone:
            del self._table[joined.id]
        return gone

    # -- forgetting ----------------------------------------------------------------------------

    async def _end(self, scope: _ConversationScope) -> None:
        """Forget the conversations of ``scope``, each once it has no call in progress."""
        with self._lock:
            gone = self._retire([each for each in self._table.values() if each.scope is scope])
        self._forget_later(scope, [joined for joined in gone if not joined.users])
        if scope.forgetting:
            with CancelScope(shield=True):  # the tasks have a timeout of their own, a shorter one
                _, left = await asyncio.wait(scope.forgetting, timeout=2 * _FORGET_SECONDS)
            if left:
                _log.error("%d conversations could not be forgotten everywhere in time", len(left))

    def _forget_later(self, scope: _ConversationScope, gone: list[ActiveConversation]) -> None:
        """Forget conversations in tasks, so that no call waits. On the loop of ``scope``."""
        if asyncio._get_running_loop() is None:
            return  # a generator closed by the collector: its loop is gone
        for joined in gone:
            task = asyncio.create_task(joined.forget())
            scope.forgetting.add(task)
            task.add_done_callback(scope.forgetting.discard)


async def _with_timeout(deletion: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(_FORGET_SECONDS):
            await deletion
    except Exception:
        _log.exception("a conversation has ended, and could not be forgotten everywhere")


def _owner(ctx: ServerRequestContext[Any, Any]) -> Any:
    """The authenticated client behind the request; None without authentication."""
    user = ctx.request.scope.get("user") if ctx.request is not None else None
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None
