"""BridgeSource: what the page shows of one bridge, and what may be done to its runs.

Runs in flight are read from the registry for each snapshot; those that have ended are on the
`Board`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from rxlanggraph.errors import StaleResumeError, error_text
from rxlanggraph.live.board import Board, NodeBoard
from rxlanggraph.live.questions import PendingQuestion, as_stack, as_text
from rxlanggraph.live.schema import VERSION, Action, JournalProgress, RunInFlight, Snapshot
from rxlanggraph.live.source import Answered, Watched
from rxlanggraph.messages import StreamMessage
from rxlanggraph.registry import TaskInfo

__all__ = ["BridgeSource"]

_log = logging.getLogger("rxlanggraph")

# How much a snapshot has of each list. Guesses: more than a screen; together some 100 kB of JSON.
_ACTIVE = 200
_WAITING = 50
_RECENT = 200
_FAILURES = 50
_QUESTIONS = 100
# Stuck runs that are shown with their stacks, and for how many seconds a stack is not read again:
# to find it, all tasks of the loop are looked at.
_STACKS = 5
_STACK_SECONDS = 2.0
# Seconds that the answer to a question may take until it counts as accepted. A guess: as long as
# one waits for a form.
_ANSWER_SECONDS = 2.0


class BridgeSource:
    """What the page shows of one bridge. Any thread, and any loop; nothing blocks.

    Args:
        watched: The bridge.
        show_content: Whether what messages say is shown.
        nodes: Whether to listen to the end of each node.
        stuck_after: Seconds after which an active run counts as stuck.
        journal: Returns the progress of the journal of its runs, if there is one.
    """

    def __init__(
        self,
        watched: Watched,
        *,
        show_content: bool,
        nodes: bool = False,
        stuck_after: float = 30.0,
        journal: Callable[[], JournalProgress | None] = lambda: None,
    ) -> None:
        self._journal = journal
        self._watched = watched
        self._show_content = show_content
        self._stuck_after = stuck_after
        self._since = time.time()
        made = NodeBoard if nodes else Board
        self._board = made(watched.load, watched.resume_of, show_content=show_content)
        self._detach = watched.add_hooks(self._board)
        # By the id of a stuck run, when its stack was read, and the stack. One reference, replaced
        # as a whole, by any thread.
        self._stacks: dict[int, tuple[float, str]] = {}
        # Reads the questions that were asked before; a second one, on another loop, does no harm.
        self._reading: asyncio.Task[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether the bridge is. Any thread; never blocks."""
        return self._watched.state == "closed"

    def close(self) -> None:
        """Stop observing the bridge; idempotent. Any thread; never blocks."""
        self._detach()

    # -- looking -------------------------------------------------------------------------------

    async def snapshot(self) -> Snapshot:
        """As `snapshot_nowait`; the first call also begins to read the questions from before."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_earlier())
        return self.snapshot_nowait()

    def snapshot_nowait(self) -> Snapshot:
        """Take a snapshot. Any thread; takes some milliseconds."""
        watched, board, now = self._watched, self._board, time.time()
        statistics = watched.statistics()
        active, queued = watched.load()
        found = watched.runs(_ACTIVE, _WAITING)
        board.count(now)
        runs = self._shown_runs(found, now)
        recent, older = board.recent(_RECENT)
        failures, other_failures = board.failures(_FAILURES)
        questions, other_questions = board.questions.pending(_QUESTIONS)
        actions: list[Action] = ["cancel", "answer", "stack"]
        return {
            "version": VERSION,
            "kind": "bridge",
            "name": as_text(watched.name),
            "state": watched.state,
            "time": now,
            "since": self._since,
            "shows_content": self._show_content,
            "actions": actions,
            "nodes": board.nodes,
            "counts": {
                "submitted": statistics.submitted,
                "succeeded": statistics.succeeded,
                "failed": statistics.failed,
                "cancelled": statistics.cancelled,
                "dropped": statistics.dropped,
                "in_flight": statistics.in_flight,
                "peak_in_flight": statistics.peak_in_flight,
                "active": active,
                "queued": queued,
                "max_concurrency": watched.max_concurrency,
            },
            "history": board.history(now, active, queued),
            "loop": {"lag": watched.loop_lag, "blocked": board.blocked()},
            "runs": runs,
            "recent": recent,
            "slowest": board.slowest(now),
            "failures": failures,
            "interrupts": [each.shown(show_content=self._show_content) for each in questions],
            "journal": self._journal(),
            "left_out": {
                "runs": max(0, statistics.in_flight - len(runs)),
                "recent": older,
                "failures": other_failures,
                "interrupts": other_questions,
            },
        }

    async def _read_earlier(self) -> None:
        try:
            earlier = await self._watched.earlier_questions()
        except Exception:  # of the program's checkpointer, or of a bridge that is closed
            _log.warning("the live page does not know the questions of earlier runs", exc_info=True)
            return
        self._board.questions.found(earlier)

    def _shown_runs(
        self, found: Sequence[tuple[Future[Any], TaskInfo]], now: float
    ) -> list[RunInFlight]:
        begun = {run: info.node for run, info in found if info.attempt}
        self._board.note_nodes(begun, now)
        runs = [self._shown_run(run, info, now) for run, info in found]
        stacks = {}
        stuck = ((run, shown) for (run, _), shown in zip(found, runs, strict=True))
        for run, shown in [each for each in stuck if each[1]["stuck"]][:_STACKS]:
            read_at, stack = self._stacks.get(shown["id"], (0.0, ""))
            if not 0 <= now - read_at < _STACK_SECONDS:
                read_at, stack = now, as_stack(self._watched.stack(run))
            stacks[shown["id"]] = read_at, stack
            shown["stack"] = stack
        self._stacks = stacks
        return runs

    def _shown_run(self, run: Future[Any], info: TaskInfo, now: float) -> RunInFlight:
        active_for = info.age - (info.waiting or 0.0) if info.attempt else 0.0
        return {
            "id": info.id,
            "name": as_text(info.name or ""),
            "thread_id": None if info.thread_id is None else as_text(info.thread_id),
            "message_id": None if info.message_id is None else as_text(info.message_id),
            "state": info.state,
            "age": info.age,
            "waiting": info.waiting,
            "attempt": info.attempt,
            "node": None if info.node is None else as_text(info.node),
            "began": now - active_for if info.attempt else None,
            "nodes": self._board.nodes_of(run) if info.attempt else [],
            "stuck": active_for > self._stuck_after,
            "stack": None,
        }

    async def stack(self, run_id: int) -> str | None:
        """Return the current stack of a run; None if it is not in flight. Any loop."""
        run = self._watched.find(run_id)
        return None if run is None else as_stack(self._watched.stack(run))

    # -- acting --------------------------------------------------------------------------------

    async def cancel(self, run_id: int) -> bool:
        """Cancel a run; False if it is not in flight, or was cancelled before. Any loop."""
        run = self._watched.find(run_id)
        return run is not None and run.cancel()

    async def answer(self, question_id: str, value: Any) -> Answered:
        """Answer a question. Any loop; cancelling it does not take the answer back.

        Of two answers at once, one is ``stale``.
        """
        question = self._board.questions.take(question_id)
        if question is None:
            return Answered(
                "stale", None, "this question is not asked any more, or is being answered"
            )
        try:
            run = await self._watched.resume(question.reply(value), question.resume)
        except Exception as error:  # of the bridge, or of a function that makes the run's config
            self._board.questions.put_back(question)
            return Answered("refused", None, self._reason(error))
        except BaseException:
            self._board.questions.put_back(question)
            raise
        run.add_done_callback(lambda done: self._answered(question, done))
        return await self._outcome(run)

    async def _outcome(self, run: Future[StreamMessage]) -> Answered:
        """Wait a little for the end of the run of an answer."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                result = await asyncio.shield(asyncio.wrap_future(run))
        except TimeoutError:
            return Answered("accepted")
        except asyncio.CancelledError:
            if run.cancelled():
                return Answered("ended", "cancelled")
            raise
        if result.status != "rejected":
            return Answered("ended", result.status)
        is_stale = isinstance(result.error, StaleResumeError)
        reason = None if result.error is None else self._reason(result.error)
        return Answered("stale" if is_stale else "refused", result.status, reason)

    def _reason(self, error: BaseException) -> str:
        """Say why an answer was not accepted. Texts of errors are content: they quote questions."""
        if self._show_content:
            return error_text(error)
        if isinstance(error, StaleResumeError):
            return "this question was answered or dropped elsewhere"
        return f"the bridge did not accept the answer: {type(error).__name__}"

    def _answered(self, question: PendingQuestion, run: Future[StreamMessage]) -> None:
        """Note what became of an answer, in the thread that resolves its run."""
        result = None if run.cancelled() or run.exception() is not None else run.result()
        if result is not None and isinstance(result.error, StaleResumeError):
            self._board.questions.drop(question)
        elif result is None or result.status == "rejected" or result.duration is None:
            self._board.questions.put_back(question)
        # Otherwise it has reached its graph, of which the board is about to hear. Put back until
        # then, the question could be answered once more.
