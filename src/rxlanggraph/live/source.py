"""Source: what the page shows, and what may be done to it. And what a bridge has to offer for that.

Only protocols: a bridge, a journal and tests have sources of their own.
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
        outcome: ``"ended"``: the run has; ``"accepted"``: it is at work. ``"stale"``: there is no
            such question, or it was answered before. ``"refused"``: the bridge takes no message.
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
        """Return where a run is at the moment, as text; None if it is not in flight."""

    async def cancel(self, run_id: int) -> bool:
        """Cancel a run; False if it is not in flight."""

    async def answer(self, question_id: str, value: Any) -> Answered:
        """Answer a question, with a value that JSON can hold."""

    @property
    def closed(self) -> bool:
        """Whether nothing will change any more. Any thread; never blocks."""

    def close(self) -> None:
        """Let go of what it looks at; idempotent. Any thread; never blocks."""


class Earlier(NamedTuple):
    """A question that was asked before anyone listened."""

    name: str
    thread_id: str
    interrupt: Any
    asked: float
    resume: Resume


class Watched(Protocol):
    """A bridge, for what looks at it. Any thread; nothing blocks."""

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
        """As that of the bridge."""

    def statistics(self) -> RegistryStatistics:
        """The counters of the registry."""

    def load(self) -> tuple[int, int]:
        """How many runs are active, and how many wait to start."""

    def runs(self, active: int, waiting: int) -> Sequence[tuple[Future[Any], TaskInfo]]:
        """Runs in flight: so many active ones at most, oldest first, then so many that wait."""

    def find(self, run_id: int) -> Future[Any] | None:
        """The run with this id in the registry, if it is in flight."""

    def stack(self, run: Future[Any]) -> str:
        """Where a run is at the moment."""

    def add_hooks(self, hooks: Hooks) -> Callable[[], object]:
        """Call ``hooks`` from now on, for runs in flight too; return what ends that."""

    def resume_of(self, run: Future[Any]) -> Resume:
        """How the graph of a run is called again, without its stream."""

    def resume(self, message: StreamMessage, how: Resume) -> Awaitable[Future[StreamMessage]]:
        """Send an answer, and wait for room. Any loop."""

    def earlier_questions(self) -> Awaitable[Sequence[Earlier]]:
        """Read the questions of the graphs that were named, from their checkpointers. Any loop."""
