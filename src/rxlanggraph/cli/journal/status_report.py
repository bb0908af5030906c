"""The status of a journal's run, as data and as text: progress, workers, failures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rxlanggraph.cli.errors import CommandError, JournalMismatchError
from rxlanggraph.cli.journal.location import JournalLocation, parse_location, warn_of_password
from rxlanggraph.cli.journal.model import QUEUE, RUN, RunIdentity, dead_record, run_from
from rxlanggraph.cli.journal.progress import RunProgress, progress_as_json, read_progress
from rxlanggraph.cli.journal.retry import journal_errors
from rxlanggraph.cli.pipeline.model_use import add_record, as_text, usage_as_json
from rxlanggraph.cli.tables import columns
from rxlanggraph.limits import Price, Spent
from rxlanggraph.state import DeadLetter, State, open_state
from rxlanggraph.state.backends.sql.sqlite.file import read_only
from rxlanggraph.state.open import read_version

__all__ = ["SHOWN", "check_journal", "failed_line", "not_a_journal", "status_of", "table_of"]

Status = dict[str, Any]

# Failed lines in the table; the JSON has all.
SHOWN: Final = 20
# Characters of an error in the table.
_ERROR_WIDTH = 100


def status_of(
    where: str,
    shown: int | None = None,
    prices: Mapping[str, Price] | None = None,
    *,
    on_failure: Callable[[Status], None] | None = None,
) -> Status:
    """Return the status of a journal, as data. Blocks; no loop may run in this thread.

    It only reads: a file or database that is not a journal is not changed.

    Args:
        where: The path or URL of the journal.
        shown: How many failed and dead lines to list; None: all. The others are counted only.
        prices: By model; with them, perhaps none, what the answered lines have used is added up,
            which reads them all.
        on_failure: Called with each failed or dead line, as it is read;
            none is then listed, however many there are.

    Raises:
        CommandError: There is none, or it cannot be opened.
        JournalError: Its server does not answer.
    """
    location = parse_location(where)
    warn_of_password(exposes_password=location.exposes_password)
    with journal_errors(location, "try again"):
        is_due = check_journal(location, may_be_due=location.path is not None)
        with _readable(location, is_due=is_due) as url:
            return asyncio.run(_status_of(location, url, shown, prices, on_failure))


def check_journal(location: JournalLocation, *, may_be_due: bool) -> bool:
    """Check that there is a journal, without changing it. Blocks; no loop may run in this thread.

    Args:
        location: The journal.
        may_be_due: Whether it may be one of an older release, which is to be migrated.

    Returns:
        Whether it is.

    Raises:
        CommandError: There is none, or it is of an older release.
        StateUnavailableError: Its server does not answer.
    """
    version = asyncio.run(read_version(location.url, location.namespace))
    if version is None or version.stored is None:
        raise not_a_journal(location.name)
    if version.is_due and not may_be_due:
        raise CommandError(
            f"the journal {location.name} is of an older release (version {version.stored} of "
            f"{version.needed}): continue its run with this release, or run 'rxlanggraph state "
            "--journal URL migrate'"
        )
    return version.is_due


@contextlib.contextmanager
def _readable(location: JournalLocation, *, is_due: bool) -> Iterator[str]:
    """Yield the URL of a journal.

    It is that of a copy where the file cannot be written, as SQLite must write; and where opening
    it would migrate it, as the older release that wrote it may still be at work on it.
    """
    path = location.path
    if path is None or (not is_due and all(os.access(at, os.W_OK) for at in (path, path.parent))):
        yield location.url
        return
    with tempfile.TemporaryDirectory(prefix="rxlanggraph-") as folder:
        copy = Path(folder, "journal")
        try:
            with (
                contextlib.closing(read_only(path)) as source,
                contextlib.closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
        except sqlite3.Error as error:
            raise CommandError(
                f"cannot read the journal {location.name} where it is: {error}; copy it, and the "
                "files beside it whose names begin with its own, to a directory with write access"
            ) from error
        yield f"sqlite:///{quote(str(copy))}"


async def _status_of(
    location: JournalLocation,
    url: str,
    shown: int | None,
    prices: Mapping[str, Price] | None,
    on_failure: Callable[[Status], None] | None,
) -> Status:
    async with open_state(url, namespace=location.namespace) as state:
        value = (await state.get(RUN)).value
        if value is None:
            raise not_a_journal(location.name)
        run = run_from(value)
        progress = await read_progress(state)
        letters = []
        async for letter in state.iter_dead_letters(QUEUE):
            if on_failure is not None:
                on_failure(failed_line(run, letter))
                continue
            letters.append(letter)
            if len(letters) == shown:
                break
        described = _described(location, run, progress, letters)
        if prices is not None:
            described["usage"] = usage_as_json(await _usage_of(state, prices))
    return described


async def _usage_of(state: State, prices: Mapping[str, Price]) -> dict[str, Spent]:
    """Return what the answered lines have used, by model."""
    models: dict[str, Spent] = {}
    async for _, text in state.iter_results(QUEUE):
        add_record(models, json.loads(text), prices)
    async for letter in state.iter_dead_letters(QUEUE):
        if isinstance(letter.error, str):  # a record
            add_record(models, json.loads(letter.error), prices)
    return models


def not_a_journal(name: str) -> JournalMismatchError:
    """Make the error of what is not a journal. Any thread."""
    return JournalMismatchError(
        f"{name} is not a journal; name one that 'rxlanggraph run --journal' has begun"
    )


def _described(
    location: JournalLocation,
    run: RunIdentity,
    progress: RunProgress,
    letters: Sequence[DeadLetter],
) -> Status:
    failures = [failed_line(run, letter) for letter in letters]
    failed = [failure for failure in failures if failure["status"] != "dead"]
    dead = [failure for failure in failures if failure["status"] == "dead"]
    return {
        **progress_as_json(location.name, run, progress),
        "input": {"path": run.input, "bytes": run.size, "sha256": run.sha256},
        "failed_lines": failed,
        "dead_letters": dead,
    }


def failed_line(run: RunIdentity, letter: DeadLetter) -> Status:
    """Return a failed or dead line as data. Any thread."""
    has_record = isinstance(letter.error, str)
    record = json.loads(letter.error) if has_record else dead_record(run, letter)
    retries = record.get("attempts", 1) - 1  # within the last claim; each claim before it crashed
    return {
        "line": record["line"],
        "thread_id": record["thread_id"],
        "status": record["status"],
        "error": record["error"],
        "attempts": letter.attempts + retries,
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
    if "usage" in status:
        total, models = status["usage"]["total"], status["usage"]["models"]
        rows.append(("usage", as_text(Spent(**total))))
        rows += [(model or "unknown", as_text(Spent(**each))) for model, each in models.items()]
    parts = [columns(rows)]
    if workers:
        parts.append(columns([("worker", "in flight"), *workers]))
    if failures:
        parts.append(columns(_failures(failures)))
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
