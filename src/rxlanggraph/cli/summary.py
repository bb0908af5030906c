"""How a job ended, as data and as one line of text."""

from __future__ import annotations

from dataclasses import dataclass

from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.ledger import Account

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
    """

    status: ExitStatus
    account: Account
    without_record: str
    reason: str | None
    seconds: float


def summary(outcome: Outcome, output: str, errors: str | None) -> str:
    """Return what became of every line, where the records are, and how fast it went.

    Args:
        outcome: How the job ended.
        output: What to call the output.
        errors: What to call the file of the failures; None where there is none.
    """
    account = outcome.account
    cancelled = f", {account.cancelled:,} cancelled" if account.cancelled else ""
    unwritten = outcome.status is ExitStatus.OUTPUT_FAILED
    rest = f"{account.open:,} {'without a record' if unwritten else 'not run'}"
    elsewhere = f", failures in {errors}" if errors else ""
    return (
        f"read {account.read:,}: {account.ok:,} ok, {account.failed:,} failed, "
        f"{account.broken:,} broken{cancelled}, {rest}; "
        f"{outcome.seconds:.1f} s, {account.finished / max(outcome.seconds, 1e-9):,.0f}/s; "
        f"results in {output}{elsewhere}"
    )
