"""How a job ended, as data and as one line of text."""

from __future__ import annotations

from dataclasses import dataclass

from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.pipeline.line_tracker import LineCounts

__all__ = ["JobResult", "summary"]


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended.

    Args:
        status: The exit status.
        counts: What became of each line.
        without_record: Line numbers that have no record, as text; empty if each has one.
        reason: Why the job ended before its input did, or None.
        seconds: How long it took.
        answered_here: How many lines of a shared run this process has answered; None: all.
    """

    status: ExitStatus
    counts: LineCounts
    without_record: str
    reason: str | None
    seconds: float
    answered_here: int | None = None


def summary(result: JobResult, output: str | None, errors: str | None) -> str:
    """Return what became of every line, where the records are, and how fast it went.

    Args:
        result: How the job ended.
        output: What to call the output; None where there is none.
        errors: What to call the file of the failures; None where there is none.
    """
    counts = result.counts
    cancelled = f", {counts.cancelled:,} cancelled" if counts.cancelled else ""
    # Of a run with a journal, what has no record in the output has one there.
    unwritten = result.status is ExitStatus.OUTPUT_FAILED and result.answered_here is None
    rest = f"{counts.open:,} {'without a record' if unwritten else 'not run'}"
    elsewhere = f", failures in {errors}" if errors else ""
    finished = counts.finished if result.answered_here is None else result.answered_here
    shared = "" if result.answered_here is None else f" ({finished:,} answered here)"
    results = f"results in {output}{elsewhere}" if output else "no results written here"
    return (
        f"read {counts.read:,}: {counts.ok:,} ok, {counts.failed:,} failed, "
        f"{counts.invalid:,} invalid{cancelled}, {rest}; "
        f"{result.seconds:.1f} s, {finished / max(result.seconds, 1e-9):,.0f}/s{shared}; "
        f"{results}"
    )
