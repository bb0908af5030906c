"""Protocols: `Source`, the data and the actions of a page; `Watched`, what it needs of a bridge.

A bridge, a journal and tests have sources of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, Protocol

from rxlanggraph.hooks import Hooks
from rxlanggraph.live.schema import Snapshot
from rxlanggraph.messages import StreamMessage
from rxlanggraph.registry import RegistryStatistics, TaskInfo

__all__ = ["Answered", "Earlier", "Resume", "Source", "Watched"]

Resume = Any
"""How a question's graph is called again: what `Watched.resume_of` has returned."""


class Answered(NamedTuple):
    """What became of an answer.

    Attributes:
        outcome: ``"ended"``: so has its run; ``"accepted"``: its run is active. ``"stale"``: there
            is no such question, or it was answered before. ``"refused"``: by the bridge.
        status: Of the result, if the run has ended.
        reason: Why it was not accepted.
    """

    outcome: Literal["ended", "accepted", "stale", "refused"]
    status: str | None = None
    reason: str | None = None


class Source(Protocol):
    """What the page shows. Its methods are for any loop."""

    async def snapshot(self) -> Snapshot:
        """Take a snapshot."""

    async def stack(self, run_id: int) -> str | None:
        """Return the current stack of a run, as text; None if it is not in flight."""

    async def cancel(self, run_id: int) -> bool:
        """Cancel a run; False if it is not in flight."""

    async def answer(self, question_id: str, value: Any) -> Answered:
        """Answer a question, with a value that JSON can hold."""

    @property
    def closed(self) -> bool:
        """Whether nothing will change any more. Any thread; never blocks."""

    def close(self) -> None:
        """Stop observing; idempotent. Any thread; never blocks."""


class Earlier(NamedTuple):
    """A question that was asked before the page existed."""

    name: str
    thread_id: str
    interrupt: Any
    asked: float
    resume: Resume


class Watched(Protocol):
    """What `BridgeSource` needs of a bridge. Any thread; nothing blocks."""

    @property
    def name(self) -> str:
        """The name of the bridge."""

    @property
    def state(self) -> str:
        """``open``, ``closing`` or ``closed``."""

    @property
    def max_concurrency(self) -> int:
        """How many runs may be active."""

    @property
    def loop_lag(self) -> float | None:
        """`RxPyLangGraphBridge.loop_lag`."""

    def statistics(self) -> RegistryStatistics:
        """The counters of the registry."""

    def load(self) -> tuple[int, int]:
        """How many runs are active, and how many wait to start."""

    def runs(self, active: int, waiting: int) -> Sequence[tuple[Future[Any], TaskInfo]]:
        """Runs in flight: so many active ones at most, oldest first, then so many that wait."""

    def find(self, run_id: int) -> Future[Any] | None:
        """The run with this id in the registry, if it is in flight."""

    def stack(self, run: Future[Any]) -> str:
        """The current stack of a run."""

    def add_hooks(self, hooks: Hooks) -> Callable[[], object]:
        """Call ``hooks`` from now on, for runs in flight too; return a function that ends this."""

    def resume_of(self, run: Future[Any]) -> Resume:
        """How the graph of a run is called again, without its stream."""

    def resume(self, message: StreamMessage, how: Resume) -> Awaitable[Future[StreamMessage]]:
        """Send an answer, and wait for room. Any loop."""

    def earlier_questions(self) -> Awaitable[Sequence[Earlier]]:
        """Read the questions of the graphs that were named, from their checkpointers. Any loop."""
