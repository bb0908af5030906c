"""Board: the runs that have ended lately, as hooks keep them: bounded and cheap.

What breaks without it: the registry forgets a run when it ends, and hooks that kept each run would
fill the memory. What is in flight is not kept here: the registry knows it.

`Board` listens to the end of each message alone; it knows those nodes of a run that were active
when a snapshot was taken. `NodeBoard` listens to the end of each node too, at a price: LangChain
then calls callbacks for it.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from rxlanggraph.concurrency.forking import fork_safe_rlock
from rxlanggraph.errors import error_text, node_of
from rxlanggraph.hooks import Hooks, LoopBlocked, NodeEnded, NodeStatus, RunEnded
from rxlanggraph.live.history import Minutes
from rxlanggraph.live.questions import Questions, as_stack, as_text
from rxlanggraph.live.schema import (
    LONGEST_TEXT,
    Blocked,
    EndedRun,
    ErrorInfo,
    Failure,
    History,
    NodeSpan,
)
from rxlanggraph.live.source import Resume
from rxlanggraph.messages import Status

__all__ = ["Board", "NodeBoard"]

# How much is kept. All are guesses: what fits on a page, and is a few megabytes at most.
_RECENT = 1000
_TOGETHER = 100  # ends that are counted at a time; more would be out of the caches by then
_SLOWEST = 20
_SLOWEST_SECONDS = 300.0
_KINDS = 200
_BLOCKED = 20
_NODES = 50  # of each run
_LONGEST_MESSAGE = 2000  # characters of the text of an exception
_FAILED: Final = frozenset({"error", "timed_out", "rejected"})


@dataclass(slots=True)
class _Span:
    """A node of a run. Guarded by the lock of the board."""

    node: str
    began: float
    ended: float | None = None
    status: NodeStatus | None = None


# What is kept of a message that has ended, neither its content nor its exception: name, thread_id,
# message_id, status, when it ended, duration, attempt, error, nodes. A plain tuple: a thousand of
# them come and go, and the collector leaves those out that hold nothing to follow.
_Ended: TypeAlias = (
    "tuple[str, str | None, str, Status, float, float | None, int, ErrorInfo | None, "
    "tuple[_Span, ...]]"
)


@dataclass(slots=True)
class _Kind:
    """The failures of one kind. Guarded by the lock of the board."""

    first: float
    last: _Ended
    count: int = 0


class Board(Hooks):
    """Hooks that keep the runs that ended lately. Any thread; nothing blocks.

    Args:
        load: Returns how many runs are active, and how many wait.
        resume_of: Returns how the graph of a run is called again.
        show_content: Whether the texts of exceptions are kept.
    """

    nodes: Literal["exact", "sampled"] = "sampled"

    def __init__(
        self,
        load: Callable[[], tuple[int, int]],
        resume_of: Callable[[Future[Any]], Resume],
        *,
        show_content: bool,
    ) -> None:
        self.questions = Questions()
        self._load = load
        self._resume_of = resume_of
        self._show_content = show_content
        self._numbers = itertools.count()  # so that no two entries of a heap are compared further
        # What has ended and is not counted yet. Many are counted together: one by one, between the
        # other code of the runs, takes twice the time. Single calls of a deque, by any thread;
        # taken out under the lock.
        self._pending: deque[_Ended] = deque()
        # When they were last counted. One reference, replaced as a whole, by any thread: two that
        # count at the same time each find a part.
        self._counted_at = 0.0
        # A leaf, held for a few assignments, and to copy what is shown; an RLock like all locks
        # that hooks take. Guards all of the below. A signal handler, or a finalizer, that enters
        # while its own thread holds it, finds that by `_busy`, and leaves them uncounted.
        self._lock = fork_safe_rlock()
        self._busy = False
        self._minutes = Minutes()
        self._recent: deque[_Ended] = deque(maxlen=_RECENT)
        # The slowest since the beginning of a period, and those of the period before.
        self._slowest: list[tuple[float, int, _Ended]] = []
        self._slowest_before: list[tuple[float, int, _Ended]] = []
        self._slowest_since = 0.0
        self._kinds: dict[tuple[str, str, str, str | None], _Kind] = {}
        self._other_failures = 0
        self._blocked: deque[Blocked] = deque(maxlen=_BLOCKED)
        # Of runs in flight that have begun, and were looked at, or whose nodes are listened to.
        # Replaced under the lock; its entries are removed by single calls, by any thread, so that
        # it is gone through in a copy. What is removed meanwhile is forgotten the next time.
        self._spans: dict[Future[Any], list[_Span]] = {}

    # -- hooks ---------------------------------------------------------------------------------

    def on_ended(self, event: RunEnded) -> None:
        """Keep what is shown of it. A result that passes through a later stage is kept already."""
        result, message, now = event.result, event.message, event.time
        if result is message:
            return
        thread_id, error, spans = message.thread_id, result.error, self._spans
        self._pending.append(
            (
                event.name,
                thread_id,
                message.id,
                result.status,
                now,
                event.duration,
                event.attempt,
                None if error is None else self._failure(error),
                tuple(spans.pop(event.future, ())) if spans else (),
            )
        )
        if len(self._pending) >= _TOGETHER or not 0 <= now - self._counted_at < 1:
            self.count(now)
        if thread_id is not None:
            self._note_questions(event, thread_id)

    def on_blocked(self, event: LoopBlocked) -> None:
        """Keep the event."""
        with self._lock:
            self._blocked.appendleft(
                {
                    "time": event.time,
                    "where": as_text(event.where),
                    "seconds": event.seconds,
                    "stack": as_stack(event.stack),
                }
            )

    def count(self, now: float) -> None:
        """Count what has ended until ``now``. To be called before reading."""
        self._counted_at = now
        load = self._load()
        with self._used() as entered:
            if entered:
                return
            for _ in range(len(self._pending)):  # others append meanwhile
                try:
                    ended = self._pending.popleft()
                except IndexError:  # counted by a signal handler in between
                    break
                name, thread_id, message_id, status, at, duration, _, _, _ = ended
                if len(name) + len(thread_id or "") + len(message_id) > LONGEST_TEXT:
                    ended = _cut(ended)
                self._minutes.count(status, at)
                self._recent.append(ended)
                if duration is not None:
                    self._note_duration(ended, at, duration)
                if status in _FAILED:
                    self._note_failure(ended)
            self._minutes.note_load(now, *load)

    @contextlib.contextmanager
    def _used(self) -> Iterator[bool]:
        """Hold the lock; yield whether this thread held it already."""
        with self._lock:
            entered, self._busy = self._busy, True
            try:
                yield entered
            finally:
                self._busy = entered

    def _failure(self, error: BaseException) -> ErrorInfo:
        text = error_text(error)[:_LONGEST_MESSAGE] if self._show_content else None
        node = node_of(error)
        return {
            "type": as_text(type(error).__name__),
            "node": None if node is None else as_text(node),
            "message": text,
        }

    def _note_duration(self, ended: _Ended, now: float, duration: float) -> None:
        slowest = self._slowest
        if abs(now - self._slowest_since) > _SLOWEST_SECONDS:
            self._slowest_before, self._slowest = slowest, []
            slowest, self._slowest_since = self._slowest, now
        if len(slowest) < _SLOWEST:
            heapq.heappush(slowest, (duration, next(self._numbers), ended))
        elif duration > slowest[0][0]:
            heapq.heapreplace(slowest, (duration, next(self._numbers), ended))

    def _note_failure(self, ended: _Ended) -> None:
        name, _, _, status, now, _, _, error, _ = ended
        type_, node = ("", None) if error is None else (error["type"], error["node"])
        key = (name, status, type_, node)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KINDS:
                self._other_failures += 1
                return
            kind = self._kinds[key] = _Kind(now, ended)
        kind.count += 1
        kind.last = ended

    def _note_questions(self, event: RunEnded, thread_id: str) -> None:
        if event.status == "interrupted" and event.result.interrupts:
            self.questions.asked(
                event.name,
                thread_id,
                event.result.interrupts,
                event.time,
                metadata=event.message.metadata,
                resume=self._resume_of(event.future),
            )
        elif event.attempt and event.status != "rejected":  # it has reached its graph
            self.questions.settled(event.name, thread_id)

    # -- nodes ---------------------------------------------------------------------------------

    def note_nodes(self, at_work: dict[Future[Any], str | None], now: float) -> None:
        """Note the nodes of the runs that have begun, as a snapshot has found them.

        Args:
            at_work: The runs in flight that have begun, each with its nodes.
            now: Seconds since the epoch.
        """
        with self._used():
            # Without the runs that have ended, whose end may not have been reported.
            self._spans = {
                run: spans for run, spans in self._spans.copy().items() if run in at_work
            }
            for run, node in at_work.items():
                if not run.done():
                    self._note_active(self._spans.setdefault(run, []), node, now)

    def _note_active(self, spans: list[_Span], node: str | None, now: float) -> None:
        last = spans[-1] if spans else None
        if last is not None and last.ended is None:
            if last.node == node:
                return
            last.ended = now
        if node is not None:
            spans.append(_Span(as_text(node), now))
            del spans[:-_NODES]

    def nodes_of(self, run: Future[Any]) -> list[NodeSpan]:
        """Return the nodes of a run in flight so far, as data."""
        with self._used():
            return [_shown(span, None) for span in self._spans.get(run, ())]

    # -- reading -------------------------------------------------------------------------------

    def history(self, now: float, active: int, queued: int) -> History:
        """Return the last minutes as data, with the load of this moment."""
        with self._used():
            self._minutes.note_load(now, active, queued)
            return self._minutes.shown(now)

    def recent(self, most: int) -> tuple[list[EndedRun], int]:
        """Return at most so many of the latest runs, latest first; and how many more are kept."""
        with self._used():
            kept = len(self._recent)
            latest = list(itertools.islice(reversed(self._recent), most))
        return [_shown_run(ended) for ended in latest], kept - len(latest)

    def slowest(self, now: float) -> list[EndedRun]:
        """Return the slowest runs of the last five to ten minutes, the slowest first."""
        with self._used():
            runs = [*self._slowest_before, *self._slowest]
        since = now - 2 * _SLOWEST_SECONDS
        slowest = heapq.nlargest(_SLOWEST, (run for run in runs if run[2][4] > since))
        return [_shown_run(ended) for _, _, ended in slowest]

    def failures(self, most: int) -> tuple[list[Failure], int]:
        """Return the failures by kind, the most frequent first; and how many others there were."""
        with self._used():
            kinds = [(key, kind.count, kind.first, kind.last) for key, kind in self._kinds.items()]
            others = self._other_failures
        kinds.sort(key=lambda each: -each[1])
        others += sum(count for _, count, _, _ in kinds[most:])
        shown: list[Failure] = []
        for (name, status, type_, node), count, first, ended in kinds[:most]:
            last = _shown_run(ended)
            error = last["error"]
            shown.append(
                {
                    "name": as_text(name),
                    "status": status,
                    "type": type_,
                    "node": node,
                    "count": count,
                    "first": first,
                    "last": last["ended"],
                    "thread_id": last["thread_id"],
                    "message_id": last["message_id"],
                    "message": None if error is None else error["message"],
                }
            )
        return shown, others

    def blocked(self) -> list[Blocked]:
        """Return the last times that the loop was blocked, the latest first."""
        with self._used():
            return list(self._blocked)


class NodeBoard(Board):
    """A `Board` that listens to the end of each node. Any thread; nothing blocks."""

    nodes = "exact"

    def on_node(self, event: NodeEnded) -> None:
        """Keep it while its run is in flight."""
        span = _Span(as_text(event.node), event.time - event.duration, event.time, event.status)
        with self._lock:
            if len(self._spans) > _RECENT:
                # A worker thread may report a node after the end of its run.
                self._spans = {
                    run: its for run, its in self._spans.copy().items() if not run.done()
                }
            spans = self._spans.setdefault(event.future, [])
            if spans and spans[-1].ended is None:
                spans.pop()  # what a snapshot has found at work; the next one finds what goes on
            spans.append(span)
            del spans[:-_NODES]

    def _note_active(self, spans: list[_Span], node: str | None, now: float) -> None:
        last = spans[-1] if spans else None
        if last is not None and last.ended is None:
            if last.node == node:
                return
            spans.pop()
        if node is not None:
            spans.append(_Span(as_text(node), now))


def _cut(run: _Ended) -> _Ended:
    """Cut its texts to what is shown."""
    name, thread_id, message_id, *rest = run
    thread_id = None if thread_id is None else as_text(thread_id)
    return (as_text(name), thread_id, as_text(message_id), *rest)  # type: ignore[return-value]


def _shown_run(run: _Ended) -> EndedRun:
    name, thread_id, message_id, status, ended, duration, attempt, error, nodes = run
    return {
        "name": as_text(name),
        "thread_id": None if thread_id is None else as_text(thread_id),
        "message_id": as_text(message_id),
        "status": status,
        "began": None if duration is None else ended - duration,
        "ended": ended,
        "duration": duration,
        "attempt": attempt,
        "error": error,
        "nodes": [_shown(span, ended) for span in nodes],
    }


def _shown(span: _Span, ended: float | None) -> NodeSpan:
    return {
        "node": span.node,
        "began": span.began,
        "ended": ended if span.ended is None else span.ended,
        "status": span.status,
    }
