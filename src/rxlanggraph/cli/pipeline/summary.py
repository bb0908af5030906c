"""JobResult: how a job ended, as data and as one line of text."""

from __future__ import annotations

from dataclasses import dataclass

from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.pipeline.line_tracker import LineCounts
from rxlanggraph.cli.pipeline.model_use import as_text
from rxlanggraph.limits import Spent

__all__ = ["JobResult", "summary"]


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended.

    Args:
        status: The exit status.
        counts: The outcomes of the lines.
        without_record: The numbers of the lines without a record, as text; empty if there are none.
        reason: The reason why the job ended before its input did, or None.
        seconds: The duration.
        answered_here: The number of lines that this process has answered, for a run with a journal;
            otherwise None.
        spent: What the runs of this process have used of models; None if it was not counted.
    """

    status: ExitStatus
    counts: LineCounts
    without_record: str
    reason: str | None
    seconds: float
    answered_here: int | None = None
    spent: Spent | None = None


def summary(result: JobResult, output: str | None, errors: str | None) -> str:
    """Return the outcomes of the lines, the places of the records, and the speed, as one line.

    Args:
        result: The result of the job.
        output: The path of the output, or ``-``; None if there is none.
        errors: The path of the failures, or ``-``; None if they are in the output.
    """
    counts = result.counts
    cancelled = f", {counts.cancelled:,} cancelled" if counts.cancelled else ""
    # With a journal, lines without a record in the output have one in the journal.
    unwritten = result.status is ExitStatus.OUTPUT_FAILED and result.answered_here is None
    rest = f"{counts.open:,} {'without a record' if unwritten else 'not run'}"
    elsewhere = f", failures {_place(errors)}" if errors else ""
    finished = counts.finished if result.answered_here is None else result.answered_here
    shared = "" if result.answered_here is None else f" ({finished:,} answered here)"
    results = f"results {_place(output)}{elsewhere}" if output else "no results written here"
    models = "" if result.spent is None else f"{as_text(result.spent)}; "
    return (
        f"read {counts.read:,}: {counts.ok:,} ok, {counts.failed:,} failed, "
        f"{counts.invalid:,} invalid{cancelled}, {rest}; "
        f"{result.seconds:.1f} s, {finished / max(result.seconds, 1e-9):,.0f}/s{shared}; "
        f"{models}{results}"
    )


def _place(path: str) -> str:
    return "on standard output" if path == "-" else f"in {path}"
