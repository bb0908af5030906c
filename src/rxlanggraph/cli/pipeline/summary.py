"""How a job ended, as data and as one line of text."""

from __future__ import annotations

from dataclasses import dataclass

from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.pipeline.line_tracker import Account

__all__ = ["Outcome", "summary"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended.

    Args:
        status: The exit status.
        account: What became of each line.
        without_record: Line numbers that have no record, as text; empty if each has one.
        reason: Why the job ended before its input did, or None.
        seconds: How long it took.
        here: How many lines this process has answered of a run that several may share; None: all.
    """

    status: ExitStatus
    account: Account
    without_record: str
    reason: str | None
    seconds: float
    here: int | None = None


def summary(outcome: Outcome, output: str | None, errors: str | None) -> str:
    """Return what became of every line, where the records are, and how fast it went.

    Args:
        outcome: How the job ended.
        output: What to call the output; None where there is none.
        errors: What to call the file of the failures; None where there is none.
    """
    account = outcome.account
    cancelled = f", {account.cancelled:,} cancelled" if account.cancelled else ""
    # Of a run with a journal, what has no record in the output has one there.
    unwritten = outcome.status is ExitStatus.OUTPUT_FAILED and outcome.here is None
    rest = f"{account.open:,} {'without a record' if unwritten else 'not run'}"
    elsewhere = f", failures in {errors}" if errors else ""
    finished = account.finished if outcome.here is None else outcome.here
    shared = "" if outcome.here is None else f" ({finished:,} answered here)"
    results = f"results in {output}{elsewhere}" if output else "no results written here"
    return (
        f"read {account.read:,}: {account.ok:,} ok, {account.failed:,} failed, "
        f"{account.broken:,} broken{cancelled}, {rest}; "
        f"{outcome.seconds:.1f} s, {finished / max(outcome.seconds, 1e-9):,.0f}/s{shared}; "
        f"{results}"
    )
