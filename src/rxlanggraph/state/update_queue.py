"""Updates of one key, one after the other: concurrent ones would only conflict.

Confined to the loop of their state.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, TypeAlias, TypeVar

__all__ = ["UpdateQueue", "UpdateSlot"]

_T = TypeVar("_T")

# Seconds to wait for a slot: many times what most updates take.
_PATIENCE: Final = 1.0

# The slots that are waited for, in the order of asking, with the future that signals each.
_Waiting: TypeAlias = "dict[UpdateSlot[_T], asyncio.Future[None]]"


class UpdateSlot(Generic[_T]):
    """The right to update next; or none, for an update that waited too long and goes ahead.

    Attributes:
        handover: What the previous update has handed over, see `successor`; None if nothing.
    """

    __slots__ = ("_waiting", "handover")

    def __init__(self, waiting: _Waiting[_T] | None) -> None:
        self.handover: _T | None = None
        # The updates that wait for this one to end; None for one that proceeded without a slot.
        self._waiting = waiting

    def successor(self) -> UpdateSlot[_T] | None:
        """Return the slot that comes right after this one; None if none is waited for.

        Call it before doing the work: a slot that is waited for by then may be handed the result,
        since its update had begun already at that moment. An update that has proceeded without its
        slot since is handed nothing.
        """
        return next(iter(self._waiting), None) if self._waiting else None


class UpdateQueue(Generic[_T]):
    """Runs updates of one key one after the other, each in an `UpdateSlot`.

    It is a courtesy and not a lock: an update that has waited for a second proceeds anyway. So one
    that hangs in its slot, or waits in it for another update of the same key, blocks none.
    """

    def __init__(self) -> None:
        self._keys: dict[str, _Waiting[_T]] = {}  # of each key with a slot that is taken

    def begin(self, key: str) -> UpdateSlot[_T] | None:
        """Take the slot of ``key`` at once; None if it is taken."""
        if key in self._keys:
            return None
        waiting: _Waiting[_T] = {}
        self._keys[key] = waiting
        return UpdateSlot(waiting)

    async def wait(self, key: str) -> UpdateSlot[_T]:
        """Take the slot of ``key`` in the order of asking, or proceed without it.

        Called right after `begin` has returned None. If cancelled, it no longer waits.
        """
        waiting = self._keys[key]
        slot: UpdateSlot[_T] = UpdateSlot(waiting)
        waiting[slot] = come = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_PATIENCE):
                await come
        except BaseException as error:
            waiting.pop(slot, None)
            if come.done() and not come.cancelled():  # then it has to be passed on
                self._next(key, waiting)
            if isinstance(error, TimeoutError):
                return UpdateSlot(None)
            raise
        return slot

    def end(self, key: str, slot: UpdateSlot[_T]) -> None:
        """Free the slot of ``key`` for the next one; no effect for an update without a slot."""
        if slot._waiting is not None:
            self._next(key, slot._waiting)

    def _next(self, key: str, waiting: _Waiting[_T]) -> None:
        while waiting:
            come = waiting.pop(next(iter(waiting)))
            if not come.done():  # cancelled, and not out of the queue yet
                come.set_result(None)
                return
        del self._keys[key]
