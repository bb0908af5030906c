"""The conversation that a call over MCP is part of: one for each session, and none kept forever.

What is a session depends on the protocol. Until 2025 a client begins one with a handshake. Since
2026 there is one only where a stream (standard input and output) has a single client at its other
end; a request over HTTP stands for itself, and a proxy may forward requests of many clients.
Nothing in it identifies its client, so such a call begins a conversation, the answer names it, and
a later call continues it by that name.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rxlanggraph.agent.conversation.conversation import Conversation
from rxlanggraph.agent.mcp.sdk import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    AuthenticatedUser,
    CancelScope,
    ToolError,
    authorization_context,
)

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
class _Home:
    """What conversations end with: a session, or the server's run. Owned by its loop.

    Attributes:
        conversation: The one of the session; None where there is none (any more).
        forgetting: Tasks that make checkpointers forget.
    """

    conversation: str | None = None
    forgetting: set[asyncio.Task[None]] = field(default_factory=set)


@dataclass(eq=False)
class ActiveConversation:
    """A conversation on a server. The table's lock guards ``users`` and ``used``.

    Attributes:
        named: Whether later calls continue it by its name alone.
        pools: The pools that took part in it.
    """

    home: _Home
    owner: Any
    named: bool
    conversation: Conversation = field(default_factory=Conversation)
    pools: set[AgentPool] = field(default_factory=set)
    users: int = 0
    used: float = 0.0

    @property
    def id(self) -> str:
        """Its name."""
        return self.conversation.id

    async def forget(self) -> None:
        """Delete it from everything that remembers it; failures are logged."""
        everywhere = (self.conversation.forget(), *(pool.forget(self.id) for pool in self.pools))
        await asyncio.gather(*map(_in_time, everywhere))


class ConversationTable:
    """The conversations on one server, those in use and those that may be continued.

    Safe to use from any number of loops: a server may be served on several.

    Args:
        limit: The maximum number. The one that was quiet for longest makes room.
        timeout: Seconds of quiet after which one that belongs to no session is forgotten.
    """

    def __init__(self, limit: int, timeout: float) -> None:
        self._limit = limit
        self._timeout = timeout
        # A leaf, held for a few lines; an RLock, as a finalizer may enter too (invariant 5).
        self._lock = threading.RLock()
        # The one that was quiet for longest is first. Guarded by the lock.
        self._table: OrderedDict[str, ActiveConversation] = OrderedDict()

    def __len__(self) -> int:
        """How many conversations there are. Any thread; never blocks."""
        with self._lock:
            return len(self._table)

    @asynccontextmanager
    async def lifespan(self, _server: object) -> AsyncIterator[_Home]:
        """The run of a server; of one over a stream, that is the session of its only client."""
        home = _Home()
        try:
            yield home
        finally:
            await self._end(home)

    @asynccontextmanager
    async def joined(
        self, ctx: ServerRequestContext[Any, Any], name: str
    ) -> AsyncIterator[ActiveConversation]:
        """Join the conversation called ``name``, or else that of the session, or a new one.

        A new one that belongs to no session is forgotten if the block fails: its name was never
        sent to a client.

        Raises:
            ToolError: There is none of that name, or no room for another one.
        """
        home, is_session = self.home_of(ctx)
        with self._lock:
            gone = self._retire(self._quiet())
            joined = self._find(home, name, _owner(ctx), is_session)
            if joined is None:
                gone += self._retire(self._in_the_way())
                joined = ActiveConversation(home, _owner(ctx), named=not is_session)
                self._table[joined.id] = joined
                if is_session:
                    home.conversation = joined.id
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
                # Its session ended meanwhile; the last call in the conversation has to clean it up.
                gone += [joined] if not known and not joined.users else []
            self._forget_later(ctx.lifespan_context, gone)

    def home_of(self, ctx: ServerRequestContext[Any, Any]) -> tuple[_Home, bool]:
        """What the call's conversations end with, and whether that is a session. On its loop."""
        # The SDK keeps state for handlers there, and has no public way to it from a tool. Without
        # it, a call counts as one without a session: that may forget, but reveals nothing.
        connection = getattr(ctx.session, "_connection", None)
        if (
            connection is not None
            and connection.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
            and connection.has_standalone_channel  # otherwise each request has its own connection
        ):
            home = connection.state.get(_KEY)
            if home is None:
                home = connection.state[_KEY] = _Home()
                connection.exit_stack.push_async_callback(self._end, home)
            return home, True
        return ctx.lifespan_context, ctx.request is None

    # -- the table -----------------------------------------------------------------------------

    def _find(
        self, home: _Home, name: str, owner: Any, is_session: bool
    ) -> ActiveConversation | None:
        """The conversation to continue, if any. Under the lock."""
        if not name:
            return self._table.get(home.conversation or "") if is_session else None
        joined = self._table.get(name)
        if joined is None or joined.home is not home or joined.owner != owner:
            raise ToolError(
                "there is no such conversation, or not any more: "
                "leave it out, and the answer comes from a new one"
            )
        return joined

    def _use(self, joined: ActiveConversation, users: int) -> None:
        """Under the lock."""
        joined.users += users
        joined.used = _now()
        if joined.id in self._table:
            self._table.move_to_end(joined.id)

    def _quiet(self) -> Iterator[ActiveConversation]:
        """The conversations that were quiet for too long. Under the lock."""
        until = _now() - self._timeout
        for joined in self._table.values():
            if joined.used > until:
                return
            if joined.named and not joined.users:
                yield joined

    def _in_the_way(self) -> list[ActiveConversation]:
        """The conversations that have to go to make room for another one. Under the lock.

        Raises:
            ToolError: All are in use.
        """
        if len(self._table) < self._limit:
            return []
        idle = next((joined for joined in self._table.values() if not joined.users), None)
        if idle is None:
            raise ToolError(
                f"too many conversations: calls are on in all {self._limit}; try again later"
            )
        return [idle]

    def _retire(
        self, some: Iterator[ActiveConversation] | list[ActiveConversation]
    ) -> list[ActiveConversation]:
        """Under the lock."""
        gone = list(some)
        for joined in gone:
            del self._table[joined.id]
        return gone

    # -- forgetting ----------------------------------------------------------------------------

    async def _end(self, home: _Home) -> None:
        """Forget what ended with ``home``: once no call is in it any more."""
        with self._lock:
            gone = self._retire([each for each in self._table.values() if each.home is home])
        self._forget_later(home, [joined for joined in gone if not joined.users])
        if home.forgetting:
            with CancelScope(shield=True):  # longer than they have, unless they hang
                _, left = await asyncio.wait(home.forgetting, timeout=2 * _FORGET_SECONDS)
            if left:
                _log.error("%d conversations could not be forgotten everywhere in time", len(left))

    def _forget_later(self, home: _Home, gone: list[ActiveConversation]) -> None:
        """Without making a call wait for checkpointers. On the loop of ``home``."""
        if asyncio._get_running_loop() is None:
            return  # closed by the collector, its loop is gone: nothing can be awaited
        for joined in gone:
            task = asyncio.create_task(joined.forget())
            home.forgetting.add(task)
            task.add_done_callback(home.forgetting.discard)


async def _in_time(forgetting: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(_FORGET_SECONDS):
            await forgetting
    except Exception:
        _log.exception("a conversation is over, and could not be forgotten everywhere")


def _owner(ctx: ServerRequestContext[Any, Any]) -> Any:
    """The authenticated client behind the request; None without authentication."""
    user = ctx.request.scope.get("user") if ctx.request is not None else None
    return authorization_context(user) if isinstance(user, AuthenticatedUser) else None
