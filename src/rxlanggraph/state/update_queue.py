"""Turns of those who would only overtake each other. Confined to the loop of their state."""

from __future__ import annotations

import asyncio
from typing import Final, Generic, TypeAlias, TypeVar

__all__ = ["Turn", "Turns"]

_T = TypeVar("_T")

# Seconds to wait for one's turn: many times what most turns take.
_PATIENCE: Final = 1.0

# Who waits for a turn, in the order of coming, and the future that tells them.
_Line: TypeAlias = "dict[Turn[_T], asyncio.Future[None]]"


class Turn(Generic[_T]):
    """One's turn; or none, of one who has lost patience and goes ahead.

    Attributes:
        left: What the one before has left, see `heir`; None if there is nothing.
    """

    __slots__ = ("_line", "left")

    def __init__(self, line: _Line[_T] | None) -> None:
        self.left: _T | None = None
        # Of those who wait for this one to end; None for one who has lost patience.
        self._line = line

    def heir(self) -> Turn[_T] | None:
        """Return whose turn comes right after this one; None if nobody waits for that.

        Ask before doing something: whoever waits by then may be left what comes of it, as of a
        moment when they had begun already. Nobody is left anything who has lost patience since.
        """
        return next(iter(self._line), None) if self._line else None


class Turns(Generic[_T]):
    """Those of one key come one after the other, each in a `Turn`.

    It is a courtesy and no lock: whoever has waited for a second loses patience and goes ahead. So
    one who stands still in his turn, or waits in it for another of the same turns, stops nobody.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line[_T]] = {}  # by the key of each turn that somebody has

    def begin(self, key: str) -> Turn[_T] | None:
        """Have one's turn at once; None if somebody else has it."""
        if key in self._lines:
            return None
        line: _Line[_T] = {}
        self._lines[key] = line
        return Turn(line)

    async def wait(self, key: str) -> Turn[_T]:
        """Have one's turn in the order of coming, or go ahead.

        Called right after `begin` has returned None. Cancelled, one is out of the line.
        """
        line = self._lines[key]
        turn: Turn[_T] = Turn(line)
        line[turn] = come = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_PATIENCE):
                await come
        except BaseException as error:
            line.pop(turn, None)
            if come.done() and not come.cancelled():  # then it has to be passed on
                self._next(key, line)
            if isinstance(error, TimeoutError):
                return Turn(None)
            raise
        return turn

    def end(self, key: str, turn: Turn[_T]) -> None:
        """End one's turn, so that the next one's comes; idle for one who went ahead."""
        if turn._line is not None:
            self._next(key, turn._line)

    def _next(self, key: str, line: _Line[_T]) -> None:
        while line:
            come = line.pop(next(iter(line)))
            if not come.done():  # cancelled, and not out of the line yet
                come.set_result(None)
                return
        del self._lines[key]
