"""ModelRules: the limits and the usage of one bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rxlanggraph.concurrency.clock import Clock
from rxlanggraph.errors import InvalidTypeError
from rxlanggraph.limits.limiter import Limits
from rxlanggraph.limits.usage import Usage
from rxlanggraph.messages import StreamMessage

if TYPE_CHECKING:
    from rxlanggraph.limits.callbacks import RunCalls

__all__ = ["ModelRules", "model_rules"]


class ModelRules:
    """The limits and the usage of a bridge. Any thread; never blocks.

    Args:
        limits: The limits of model calls; None for none.
        usage: Counts their tokens; None: they are not counted.
    """

    def __init__(self, limits: Limits | None, usage: Usage | None) -> None:
        # Imported here: LangChain is slow to import, and most bridges need none of it. Not by the
        # first run, which would block the loop.
        from rxlanggraph.limits.callbacks import RunCalls  # noqa: PLC0415

        # Never changed.
        self.limits = limits
        self.usage = usage
        self._new = RunCalls

    def calls_of(
        self, message: StreamMessage, clock: Clock, is_inside: Callable[[], bool]
    ) -> RunCalls:
        """Return the `RunCalls` of one run. The arguments are those of its constructor."""
        return self._new(self.limits, self.usage, message, clock, is_inside)


def model_rules(limits: object, usage: object) -> ModelRules | None:
    """Check the arguments of a bridge, and return its rules; None if both are None.

    Raises:
        InvalidTypeError: One of them is something else.
    """
    if limits is not None and not isinstance(limits, Limits):
        raise InvalidTypeError(
            f"limits must be rxlanggraph.limits.Limits or None, not {limits!r}; "
            "write Limits(ModelLimit(requests=500)) for one limit of each model"
        )
    if usage is not None and not isinstance(usage, Usage):
        raise InvalidTypeError(f"usage must be rxlanggraph.limits.Usage or None, not {usage!r}")
    return None if limits is None and usage is None else ModelRules(limits, usage)
