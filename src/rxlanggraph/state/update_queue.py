"""Updates of one key, one at a time: concurrent ones would only conflict.

Confined to the loop of their state.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, TypeAlias, TypeVar

__all__ = ["UpdateQueue", "UpdateSlot"]

_T = TypeVar("_T")

# Seconds to wait for a slot. A guess: most updates take much less.
_SLOT_TIMEOUT: Final = 1.0

# The slots that updates wait for, in the order of `UpdateQueue.wait`; each with its future.
_Waiting: TypeAlias = "dict[UpdateSlot[_T], asyncio.Future[None]]"


class UpdateSlot(Generic[_T]):
    """The right to update a key; or a mere placeholder, if the update waited too long for it.

    Attributes:
        handover: The result of the previous update, see `successor`; None if there is none.
    """

    __slots__ = ("_waiting", "handover")

    def __init__(self, waiting: _Waiting[_T] | None) -> None:
        self.handover: _T | None = None
        # The slots behind this one; None in a placeholder.
        self._waiting = waiting

    def successor(self) -> UpdateSlot[_T] | None:
        """Return the next slot that an update waits for, or None.

        Called before the work is done: the result may be handed only to an update that had begun by
        then. If that update proceeds without its slot meanwhile, it does not see the handover.
        """
        return next(iter(self._waiting), None) if self._waiting else None


class UpdateQueue(Generic[_T]):
    """Runs updates of one key one at a time, each in an `UpdateSlot`.

    It avoids conflicts, and is not a lock: an update that has waited for a second proceeds anyway.
    So an update that hangs in its slot, or waits there for another update of the same key, does not
    block others for longer.
    """

    def __init__(self) -> None:
        self._keys: dict[str, _Waiting[_T]] = {}  # by key, as long as its slot is taken

    def begin(self, key: str) -> UpdateSlot[_T] | None:
        """Take the slot of ``key`` at once; None if it is taken."""
        if key in self._keys:
            return None
        waiting: _Waiting[_T] = {}
        self._keys[key] = waiting
        return UpdateSlot(waiting)

    async def wait(self, key: str) -> UpdateSlot[_T]:
        """Wait for the slot of ``key``, in order; after a timeout, return a placeholder.

        Called in the step in which `begin` has returned None. Cancelling it passes the slot on.
        """
        waiting = self._keys[key]
        slot: UpdateSlot[_T] = UpdateSlot(waiting)
        waiting[slot] = granted = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_SLOT_TIMEOUT):
                await granted
        except BaseException as error:
            waiting.pop(slot, None)
            if granted.done() and not granted.cancelled():  # granted too late: pass it on
                self._next(key, waiting)
            if isinstance(error, TimeoutError):
                return UpdateSlot(None)
            raise
        return slot

    def end(self, key: str, slot: UpdateSlot[_T]) -> None:
        """Free the slot of ``key`` for the next update; a placeholder has no effect."""
        if slot._waiting is not None:
            self._next(key, slot._waiting)

    def _next(self, key: str, waiting: _Waiting[_T]) -> None:
        while waiting:
            granted = waiting.pop(next(iter(waiting)))
            if not granted.done():  # otherwise cancelled, and not removed yet
                granted.set_result(None)
                return
        del self._keys[key]
