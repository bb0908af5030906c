"""Windows: how much was used in the last minute, as a sliding window of slots.

What breaks without it: a bucket that is refilled evenly and may be emptied at once lets twice the
limit through within a minute. Here, no interval as long as the window has more than the limit.

An amount counts until its slot has left the window: between one and two slots longer than the
window. This is the allowance for calls that are on their way for different times, and it costs that
much of the limit. A window is a few numbers, whatever the limit: it can be saved as JSON.
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Slot", "Window"]

# More slots cost less of the limit, and allow for less difference. A guess.
_SLOTS = 100
Slot: TypeAlias = int


class Window:
    """What was used of one limit. Confined to its owner.

    Args:
        requests: How many requests an interval may have; None for no limit.
        tokens: How many tokens; None for no limit.
        per: Seconds of the interval.
    """

    def __init__(self, requests: int | None, tokens: int | None, per: float) -> None:
        self._requests = requests
        self._tokens = tokens
        self._width = per / _SLOTS
        # By slot, in their order: what was used in it.
        self.used: dict[Slot, list[int]] = {}

    def reserve(self, tokens: int, time: float) -> tuple[Slot, float]:
        """Count a request of so many tokens if there is room for it.

        One that is larger than the limit finds room when nothing else counts.

        Returns:
            Its slot, and 0; or the seconds until there may be room.
        """
        now = self.slot_of(time)
        # Those that have left the window; and those that a clock has made which was put back since,
        # for which all would wait until it is as late again.
        for slot in [slot for slot in self.used if not -_SLOTS - 1 <= slot - now <= _SLOTS]:
            del self.used[slot]
        missing = [self._excess(0, 1, self._requests), self._excess(1, tokens, self._tokens)]
        if missing[0] <= 0 and missing[1] <= 0:
            self.change(now, 1, tokens)
            return now, 0.0
        last = now
        for last, used in sorted(self.used.items()):  # noqa: B007 - used below
            missing = [left - amount for left, amount in zip(missing, used, strict=True)]
            if missing[0] <= 0 and missing[1] <= 0:
                break
        # A little later than the end of the slot, which need not be a number that floats have.
        return now, max(0.0, (last + _SLOTS + 2.001) * self._width - time)

    def is_empty(self, time: float) -> bool:
        """Whether nothing counts any more."""
        first = self.slot_of(time) - _SLOTS - 1
        return all(slot < first for slot in self.used)

    def _excess(self, which: int, amount: int, limit: int | None) -> int:
        if limit is None:
            return 0
        used = sum(each[which] for each in self.used.values())
        return used + min(amount, limit) - limit if used else 0

    def change(self, slot: Slot, requests: int, tokens: int) -> None:
        """Add amounts, which may be negative, to what was used in ``slot``."""
        used = self.used.setdefault(slot, [0, 0])
        used[0] = max(0, used[0] + requests)
        used[1] = max(0, used[1] + tokens)

    def slot_of(self, time: float) -> Slot:
        """Return the slot of a moment."""
        return int(time / self._width)
