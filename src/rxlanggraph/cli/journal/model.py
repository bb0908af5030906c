"""The journal of a run: whose run it is, and what it keeps.

A journal is a namespace of shared state (`rxlanggraph.state`), and holds

    the value "run"       which graph, which input: written once, by the process that begins
    the value "ingest"    how far the input was taken over, and how many lines were invalid
    the queue "lines"     a task for each message, its key the number of its line. Completed: it
                          is ok, and the result is its record. Dead with a record as its error: it
                          has failed. Dead without: every worker that had it crashed.

So a line is answered when its task is completed or dead, and the backend sees to it that this
happens once. What the output holds is a copy, which can always be made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from uuid_utils import uuid7

from rxlanggraph.cli.errors import JournalMismatchError
from rxlanggraph.cli.formats.lines import InputLine
from rxlanggraph.cli.formats.records import Record
from rxlanggraph.state import DeadLetter, SyncState, Task

__all__ = [
    "INGEST",
    "QUEUE",
    "RUN",
    "IngestProgress",
    "JournalLine",
    "RunIdentity",
    "as_stored",
    "begin_run",
    "check_same",
    "dead_record",
    "find_run",
    "graph_names",
    "ingest_progress_from",
    "line_from",
    "message_id",
    "run_from",
    "task_of",
]

QUEUE, RUN, INGEST = "lines", "run", "ingest"

# Of what a journal keeps: raised by every change of it. Each value and each line carries it, so
# that a journal of another release is told as one, whatever its fields are.
FORMAT: Final = 1
_LONGEST_THREAD = 512


def _checked(what: str, kept: Any) -> dict[str, Any]:
    """Return what was kept, without its format.

    Raises:
        JournalMismatchError: It is of another format.
    """
    fields = dict(kept) if isinstance(kept, dict) else {}
    version = fields.pop("version", None)
    if version != FORMAT:
        wrote = "before there were numbers of formats" if version is None else f"format {version}"
        raise JournalMismatchError(
            f"the journal was written by another version of rxlanggraph (its {what}: {wrote}; this "
            f"one reads format {FORMAT}); go on with the version that began it, or begin a new "
            "journal"
        )
    return fields


# -- whose -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What a journal is the journal of.

    Attributes:
        graph: ``MODULE_OR_FILE:GRAPH``, a file's path relative to where the command was started.
        graph_at: The same with the absolute path.
        input: The input's path, for people.
        sha256: The digest of the input's content.
        size: Its bytes.
        format: How it is read.
        thread_key: Which field names the threads.
        id: The run's own.
        begun: When it was begun.
    """

    graph: str
    graph_at: str
    input: str
    sha256: str
    size: int
    format: str
    thread_key: str | None
    id: str = ""
    begun: str = ""


def graph_names(target: str) -> tuple[str, str]:
    """Return the names of a graph: as seen from here, and as seen from anywhere.

    The graph's code is not part of it: a graph that was fixed may resume what failed.
    """
    source, _, name = target.rpartition(":")
    if not os.path.isfile(source):
        return target, target
    return f"{os.path.relpath(source)}:{name}", f"{Path(source).resolve()}:{name}"


def find_run(state: SyncState) -> RunIdentity | None:
    """Return the run that the journal is of; None if it is new."""
    value = state.get(RUN).value
    return None if value is None else run_from(value)


def run_from(value: Any) -> RunIdentity:
    """Return the run that is kept as ``value``.

    Raises:
        JournalMismatchError: It was kept by another version.
    """
    return RunIdentity(**_checked("run", value))


def begin_run(state: SyncState, run: RunIdentity) -> RunIdentity | None:
    """Make ``run`` that of the journal; None if another process has begun one just now."""
    begun = replace(run, id=str(uuid7()), begun=datetime.now(UTC).isoformat(timespec="seconds"))
    return begun if state.set_if_not_exists(RUN, as_stored(begun), None) else None


def check_same(name: str, known: RunIdentity, run: RunIdentity) -> None:
    """Refuse a run that is not the known one.

    Raises:
        JournalMismatchError: It has another graph, input, format or thread key.
    """
    differences = [
        f"{what} is {theirs}, not {ours}"
        for what, same, theirs, ours in (
            (
                "its graph",
                run.graph == known.graph or run.graph_at == known.graph_at,
                known.graph,
                run.graph,
            ),
            (
                "its input",
                (run.sha256, run.size) == (known.sha256, known.size),
                _described(known),
                _described(run),
            ),
            ("its --format", run.format == known.format, known.format, run.format),
            (
                "its --thread-key",
                run.thread_key == known.thread_key,
                known.thread_key or "left out",
                run.thread_key or "left out",
            ),
        )
        if not same
    ]
    if differences:
        raise JournalMismatchError(
            f"the journal {name} is that of another run: {'; '.join(differences)}; name another "
            "journal, or run what it was begun with"
        )


def _described(run: RunIdentity) -> str:
    return f"{run.input} ({run.size:,} bytes, sha256 {run.sha256[:12]})"


# -- what it keeps ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far the input was taken over.

    Attributes:
        line: The last line that was.
        messages: How many were added to the queue.
        invalid: How many were no message.
        complete: Whether that is all.
    """

    line: int = 0
    messages: int = 0
    invalid: int = 0
    complete: bool = False


def ingest_progress_from(value: Any) -> IngestProgress:
    """Return the progress that is kept as ``value``; None: nothing was taken over yet.

    Raises:
        JournalMismatchError: It was kept by another version.
    """
    return (
        IngestProgress() if value is None else IngestProgress(**_checked("ingest progress", value))
    )


def as_stored(value: RunIdentity | IngestProgress) -> dict[str, Any]:
    """Return what is kept of a run or of its ingest progress."""
    return {**asdict(value), "version": FORMAT}


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A line of the input that is a message.

    Attributes:
        line: Its number.
        thread: Its thread, if it has one.
        content: The content, as JSON text.
    """

    line: int
    thread: str | None
    content: str


def line_from(item: Any) -> JournalLine:
    """Return the line that a task is.

    Raises:
        JournalMismatchError: It was added by another version.
    """
    return JournalLine(**_checked("lines", item))


def message_id(run: RunIdentity, line: int) -> str:
    """Return the id of a line's message and record: the same on every attempt."""
    return f"{run.id}-{line}"


def task_of(line: InputLine, form: str) -> Task:
    """Return the task for a line that is a message."""
    # What json.loads has taken goes as it is: as text it may say what JSON may not (NaN).
    text = line.raw if form == "jsonl" else json.dumps(line.content)
    item = {**asdict(JournalLine(line.number, line.thread_id, text)), "version": FORMAT}
    return Task(item, key=str(line.number), thread_id=line.thread_id and _lane(line.thread_id))


def _lane(thread_id: str) -> str:
    """Return a name that a queue takes: not each thread's is one."""
    if len(thread_id) <= _LONGEST_THREAD and "\0" not in thread_id:
        return thread_id
    return hashlib.sha256(thread_id.encode()).hexdigest()


def dead_record(run: RunIdentity, letter: DeadLetter) -> Record:
    """Return the record of a message whose workers all crashed."""
    line = line_from(letter.item)
    return {
        "line": line.line,
        "id": message_id(run, line.line),
        "thread_id": line.thread,
        "status": "dead",
        "content": None,
        "error": {
            "type": "DeadLetter",
            "message": f"given up after {letter.attempts} attempts: the workers died of it, or "
            f"stood still; the last one was {letter.worker}",
        },
        "duration": None,
    }
