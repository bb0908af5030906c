"""Companions: what else belongs to a call of a graph, and is in both processes.

What breaks without them: hooks, limits and counts of tokens are in the driver, and what they are
about happens in a worker. A companion has two sides, which tell each other things while the call
lasts. Executors carry what they tell, and know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

from rxlanggraph.executors.payloads import Dumps

__all__ = ["Companion", "Counterpart", "Link", "NewCompanion", "accompanying"]


class Link(Protocol):
    """The way from the side of a worker to that of the driver, for one call."""

    dumps: Dumps
    """Pickles what is told."""

    def tell(self, what: Any) -> None:
        """Have `Companion.hear` called. Any thread; never blocks; no effect once the call is over.

        What one thread tells arrives in that order, and before the end of the call.
        """

    def is_inside(self) -> bool:
        """Whether the code of this context belongs to the call. Any thread; never blocks."""


class Counterpart(Protocol):
    """The side of the worker: a picklable object, of which each call has its own copy."""

    def enter(self, link: Link, graph: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Begin, in the context of the call, on its loop.

        Args:
            link: To the other side.
            graph: What is called.
            arguments: The positional arguments of the call.

        Returns:
            Those that are to be used.
        """

    def hear(self, what: Any) -> None:
        """Note what the driver has told. On the loop."""

    def cancel(self) -> None:
        """Note that the call is cancelled, or has failed. On the loop; maybe more than once."""

    def leave(self) -> None:
        """Note that the call, its threads included, has ended. On the loop; may still tell."""


class Companion(Protocol):
    """The side of the driver, for one call. On the loop of the calls."""

    @property
    def counterpart(self) -> Counterpart:
        """What is sent along."""

    def hear(self, what: Any) -> None:
        """Note what the worker has told."""

    def end(self) -> None:
        """Note that the call has ended, or that its worker is lost. Called once."""


NewCompanion: TypeAlias = "Callable[[Callable[[Any], None], Dumps], Companion]"
"""Makes the companion of a call, given what tells its counterpart something, and what pickles."""

accompanying: ContextVar[Sequence[NewCompanion]] = ContextVar("rxlanggraph_companions", default=())
"""What accompanies the calls of a graph that are made in this context, in the order of `enter`."""
