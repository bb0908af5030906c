"""The contents of a journal: the run that it belongs to, its input and its answers.

A journal is a namespace of shared state (`rxlanggraph.state`):

    the value "run"       the graph and the input; written once, by the process that begins the run
    the value "ingest"    how much of the input was ingested, and how many lines were invalid
    the values "drained:N" for each line N whose run was stopped between two supersteps, and has not
                          been answered since: it continues on its thread, without its content; or
                          CUT_OFF, if it was cancelled: it does if its thread ends in that run
    the values "trace:N"  for each line N that was begun with --traces, until it is ok: the
                          traceparent of its first attempt, which later ones are linked to
    the queue "lines"     a task for each message; its key is the number of the line. Completed: the
                          message is ok, and the result is its record. Dead with a record as its
                          error: it has failed. Dead without one: each of its workers crashed.

A line is answered when its task is completed or dead. The backend ensures that this happens once.
The output is a copy of the answers, and can be made again at any time.
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
from rxlanggraph.cli.formats.readers import InputLine
from rxlanggraph.cli.formats.records import Record
from rxlanggraph.state import DeadLetter, SyncState, Task
from rxlanggraph.state.codec import CANCELLED

__all__ = [
    "CUT_OFF",
    "DROPPED",
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
    "drained_key",
    "find_run",
    "graph_names",
    "ingest_progress_from",
    "line_from",
    "message_id",
    "run_from",
    "task_of",
    "trace_key",
]

QUEUE, RUN, INGEST = "lines", "run", "ingest"

# The format of a journal's contents, increased by every change to it. Each value and each line
# carries it, so that a journal of another release is recognized, whatever its fields are.
FORMAT: Final = 1
_MAX_THREAD_CHARACTERS = 512
# Instead of the id of a checkpoint: whether there is one, its thread must tell.
CUT_OFF: Final = False
# Instead of a run: the journal is being dropped. It has no format, so every release refuses it.
DROPPED: Final = {"dropped": True}


def _fields(what: str, stored: Any) -> dict[str, Any]:
    """Return the fields of a stored value, without its format.

    Raises:
        JournalMismatchError: It has another format.
    """
    fields = dict(stored) if isinstance(stored, dict) else {}
    if fields == DROPPED:
        raise JournalMismatchError(
            "the journal is being dropped: run 'rxlanggraph journal drop' again to end that"
        )
    version = fields.pop("version", None)
    if version != FORMAT:
        found = "no format number" if version is None else f"format {version}"
        raise JournalMismatchError(
            f"the journal was written by another version of rxlanggraph (its {what}: {found}; this "
            f"version reads format {FORMAT}); continue with the version that began it, or begin a "
            "new journal"
        )
    return fields


# -- the run ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What identifies a run: two commands with an equal graph and input work on one run.

    Attributes:
        graph: ``MODULE_OR_FILE:GRAPH``, with a file's path relative to the directory in which the
            command was started.
        graph_at: The same with the absolute path.
        input: The input's path, for messages.
        sha256: The digest of the input's content.
        size: Bytes of the input.
        format: The format of the input.
        thread_key: The field that names a message's thread.
        id: The id of the run; empty until it has begun.
        begun: The time at which the run began, in ISO 8601.
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
    """Return the name of a graph with a relative path, and with an absolute one.

    The graph's code is not part of its name: a graph that was fixed may resume what failed.
    """
    source, _, name = target.rpartition(":")
    if not os.path.isfile(source):
        return target, target
    return f"{os.path.relpath(source)}:{name}", f"{Path(source).resolve()}:{name}"


def find_run(state: SyncState) -> RunIdentity | None:
    """Return the run of the journal; None if the journal is new."""
    value = state.get(RUN).value
    return None if value is None else run_from(value)


def run_from(value: Any) -> RunIdentity:
    """Return the run that was stored as ``value``.

    Raises:
        JournalMismatchError: It was stored by another version.
    """
    return RunIdentity(**_fields("run", value))


def begin_run(state: SyncState, run: RunIdentity) -> RunIdentity | None:
    """Begin ``run`` in the journal; None if another process has just begun one."""
    begun = replace(run, id=str(uuid7()), begun=datetime.now(UTC).isoformat(timespec="seconds"))
    return begun if state.set_if_not_exists(RUN, as_stored(begun), None) else None


def check_same(name: str, known: RunIdentity, run: RunIdentity) -> None:
    """Check that ``run`` is the run of the journal, which is ``known``.

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
            f"the journal {name} belongs to another run: {'; '.join(differences)}; name another "
            "journal, or run what it was begun with"
        )


def _described(run: RunIdentity) -> str:
    return f"{run.input} ({run.size:,} bytes, sha256 {run.sha256[:12]})"


# -- the lines -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How much of the input was ingested.

    Attributes:
        line: The last ingested line.
        messages: How many lines were added to the queue.
        invalid: How many lines are not messages.
        complete: Whether the whole input was ingested.
    """

    line: int = 0
    messages: int = 0
    invalid: int = 0
    complete: bool = False


def ingest_progress_from(value: Any) -> IngestProgress:
    """Return the progress that was stored as ``value``; None: nothing was ingested yet.

    Raises:
        JournalMismatchError: It was stored by another version.
    """
    return (
        IngestProgress() if value is None else IngestProgress(**_fields("ingest progress", value))
    )


def as_stored(value: RunIdentity | IngestProgress) -> dict[str, Any]:
    """Return a run or its ingest progress in the form in which the journal stores it."""
    return {**asdict(value), "version": FORMAT}


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A line of the input that is a message, as a task of the journal.

    Attributes:
        line: The number of the line.
        thread: The thread of the message; None if it has none.
        content: The content, as JSON text.
    """

    line: int
    thread: str | None
    content: str


def line_from(item: Any) -> JournalLine:
    """Return the line that was stored as the item of a task.

    Raises:
        JournalMismatchError: It was stored by another version.
    """
    return JournalLine(**_fields("lines", item))


def drained_key(line: int) -> str:
    """Return the name of the value that says that the run of a line was drained or cancelled."""
    return f"drained:{line}"


def trace_key(line: int) -> str:
    """Return the name of the value that has the traceparent of a line's first attempt."""
    return f"trace:{line}"


def message_id(run: RunIdentity, line: int) -> str:
    """Return the id of a line's message and record, which is the same on every attempt."""
    return f"{run.id}-{line}"


def task_of(line: InputLine, form: str) -> Task:
    """Return the task for a line that is a message."""
    # The text itself: a value that json.loads accepts may not be JSON (NaN).
    text = line.raw if form == "jsonl" else json.dumps(line.content)
    # As `JournalLine` has them; `asdict` takes longer than all the rest.
    item = {
        "line": line.number,
        "thread": line.thread_id,
        "content": text,
        "version": FORMAT,
    }
    return Task(
        item, key=str(line.number), thread_id=line.thread_id and _queue_thread(line.thread_id)
    )


def _queue_thread(thread_id: str) -> str:
    """Return ``thread_id``, or its digest if not every backend accepts it as it is."""
    if len(thread_id) <= _MAX_THREAD_CHARACTERS and "\0" not in thread_id:
        return thread_id
    return hashlib.sha256(thread_id.encode()).hexdigest()


def dead_record(run: RunIdentity, letter: DeadLetter) -> Record:
    """Return the record of a message whose workers all crashed, or that was cancelled."""
    line = line_from(letter.item)
    if letter.error == CANCELLED:
        status, error = "cancelled", dict(CANCELLED)
    else:
        status = "dead"
        error = {
            "type": "DeadLetter",
            "message": f"given up after {letter.attempts} attempts: each worker crashed or was "
            f"suspended; the last one was {letter.worker}",
        }
    return {
        "line": line.line,
        "id": message_id(run, line.line),
        "thread_id": line.thread,
        "status": status,
        "content": None,
        "error": {**error, "node": None},
        "duration": None,
    }
