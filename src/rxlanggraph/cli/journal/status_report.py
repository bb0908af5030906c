"""The status of a journal's run, as data and as text: progress, workers, failures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rxlanggraph.cli.errors import CommandError, JournalMismatchError
from rxlanggraph.cli.journal.location import JournalLocation, parse_location, warn_of_password
from rxlanggraph.cli.journal.model import QUEUE, RUN, RunIdentity, dead_record, run_from
from rxlanggraph.cli.journal.progress import RunProgress, read_progress
from rxlanggraph.cli.journal.retry import journal_errors
from rxlanggraph.state import DeadLetter, open_state
from rxlanggraph.state.backends.sql.sqlite.file import read_only
from rxlanggraph.state.open import is_prepared

__all__ = ["SHOWN", "status_of", "table_of"]

Status = dict[str, Any]

# Failed lines in the table; the JSON has all.
SHOWN: Final = 20
# Characters of an error in the table.
_ERROR_WIDTH = 100


def status_of(where: str, shown: int | None = None) -> Status:
    """Return the status of a journal, as data. Blocks; no loop may run in this thread.

    It only reads: a file or database that is not a journal is not changed.

    Args:
        where: The path or URL of the journal.
        shown: How many failed and dead lines to list; None: all. The others are counted only.

    Raises:
        CommandError: There is none, or it cannot be opened.
        JournalError: Its server does not answer.
    """
    location = parse_location(where)
    warn_of_password(exposes_password=location.exposes_password)
    with journal_errors(location, "try again"):
        if not asyncio.run(is_prepared(location.url)):
            raise _not_a_journal(location)
        with _readable(location) as url:
            return asyncio.run(_status_of(location, url, shown))


@contextlib.contextmanager
def _readable(location: JournalLocation) -> Iterator[str]:
    """Yield the URL of a journal; of a copy where it cannot be written, as SQLite must write."""
    if location.path is None or os.access(location.path.parent, os.W_OK):
        yield location.url
        return
    with tempfile.TemporaryDirectory(prefix="rxlanggraph-") as folder:
        copy = Path(folder, "journal")
        try:
            with (
                contextlib.closing(read_only(location.path)) as source,
                contextlib.closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise CommandError(
                f"cannot read the journal {location.name} where it is: {error}; copy it, and the "
                "files beside it whose names begin with its own, to a directory with write access"
            ) from error
        yield f"sqlite:///{quote(str(copy))}"


async def _status_of(location: JournalLocation, url: str, shown: int | None) -> Status:
    async with open_state(url, namespace=location.namespace) as state:
        value = (await state.get(RUN)).value
        if value is None:
            raise _not_a_journal(location)
        progress = await read_progress(state)
        letters = []
        async for letter in state.iter_dead_letters(QUEUE):
            letters.append(letter)
            if len(letters) == shown:
                break
    return _described(location, run_from(value), progress, letters)


def _not_a_journal(location: JournalLocation) -> JournalMismatchError:
    return JournalMismatchError(
        f"{location.name} is not a journal; name one that 'rxlanggraph run --journal' has begun"
    )


def _described(
    location: JournalLocation,
    run: RunIdentity,
    progress: RunProgress,
    letters: Sequence[DeadLetter],
) -> Status:
    failures = [_failure(run, letter) for letter in letters]
    failed = [failure for failure in failures if failure["status"] != "dead"]
    dead = [failure for failure in failures if failure["status"] == "dead"]
    counts, stats = progress.counts(None), progress.stats
    return {
        "journal": location.name,
        "graph": run.graph,
        "input": {"path": run.input, "bytes": run.size, "sha256": run.sha256},
        "begun": run.begun,
        "finished": progress.finished,
        "input_complete": progress.ingest.complete,
        "lines": counts.read,
        "answered": counts.finished,
        "ok": counts.ok,
        "failed": stats.dead - stats.expired,
        "dead": stats.expired,
        "invalid": counts.invalid,
        "in_flight": stats.claimed,
        "waiting": stats.waiting + stats.delayed,
        "workers": dict(sorted(stats.by_worker.items())),
        "failed_lines": failed,
        "dead_letters": dead,
    }


def _failure(run: RunIdentity, letter: DeadLetter) -> Status:
    has_record = isinstance(letter.error, str)
    record = json.loads(letter.error) if has_record else dead_record(run, letter)
    return {
        "line": record["line"],
        "thread_id": record["thread_id"],
        "status": record["status"],
        "error": record["error"],
        "attempts": letter.attempts,
        "worker": letter.worker,
    }


def table_of(status: Status) -> str:
    """Return a status as text, for display."""
    source = status["input"]
    so_far = "" if status["input_complete"] else " so far; the input is still being read"
    rows = [
        ("journal", status["journal"]),
        ("graph", status["graph"]),
        ("input", f"{source['path']} ({source['bytes']:,} bytes, sha256 {source['sha256'][:12]})"),
        ("begun", status["begun"]),
        ("lines", f"{status['lines']:,}{so_far}"),
        ("answered", _answered(status)),
        ("waiting", f"{status['waiting']:,}"),
        ("in flight", f"{status['in_flight']:,}"),
    ]
    workers = [(name, f"{count:,}") for name, count in status["workers"].items()]
    failures = status["dead_letters"] + status["failed_lines"]
    parts = [_columns(rows)]
    if workers:
        parts.append(_columns([("worker", "in flight"), *workers]))
    if failures:
        parts.append(_columns(_failures(failures)))
    more = status["failed"] + status["dead"] - len(failures)
    if more > 0:
        parts.append(f"and {more:,} more; --json has all of them")
    return "\n\n".join(parts)


def _answered(status: Status) -> str:
    share = status["answered"] / status["lines"] if status["lines"] else 1.0
    return (
        f"{status['answered']:,} ({share:.0%}): {status['ok']:,} ok, {status['failed']:,} failed, "
        f"{status['dead']:,} dead, {status['invalid']:,} invalid"
    )


def _failures(failures: Iterable[Status]) -> Iterator[tuple[str, ...]]:
    yield ("line", "status", "attempts", "worker", "error")
    for failure in failures:
        error = failure["error"] or {"type": "", "message": ""}
        text = " ".join(f"{error['type']}: {error['message']}".split())
        short = text if len(text) <= _ERROR_WIDTH else f"{text[: _ERROR_WIDTH - 3]}..."
        attempts = str(failure["attempts"])
        yield (str(failure["line"]), failure["status"], attempts, failure["worker"], short)


def _columns(rows: Iterable[tuple[str, ...]]) -> str:
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
