"""``rxlanggraph errors``: the failures of a run, grouped."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from rxlanggraph.cli.completion import complete_file
from rxlanggraph.cli.errors import ExitStatus, InputError
from rxlanggraph.cli.failure_groups import FIRST_LINES, FailureGroup, FailureGroups
from rxlanggraph.cli.stdio import print_stdout
from rxlanggraph.cli.tables import columns

__all__ = ["errors"]

_SQLITE = b"SQLite format 3\0"
# Characters of a message in the table.
_WIDTH = 100


@click.command(
    epilog="Exit status: 0, also if there are failures; 2 if it is neither records nor a journal; "
    "5 if the journal does not answer.",
)
@click.argument("source", metavar="FILE|JOURNAL", shell_complete=complete_file)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def errors(source: str, *, as_json: bool) -> int:
    """Group the failures of a run, the most frequent first.

    A group has one status, type, node and message. FILE is an --output or --errors of 'rxlanggraph
    run'; - is standard input. JOURNAL is the file or URL of its --journal. Messages that differ
    only in numbers, ids and times form one group. Invalid lines are not in a journal, only in the
    output.
    """
    groups = FailureGroups()
    if _is_journal(source):
        # Imported here: databases are slow to import.
        from rxlanggraph.cli.journal.status_report import status_of  # noqa: PLC0415

        status = status_of(source, on_failure=groups.add)
        records = status["answered"] - status["invalid"]
    else:
        _add_file(source, groups)
        records = groups.records
    found = list(groups.sorted())
    if as_json:
        as_data = [dataclasses.asdict(group) for group in found]
        print_stdout(
            json.dumps({"records": records, "groups": as_data, "ungrouped": groups.ungrouped})
        )
    else:
        print_stdout(_table(found, records, groups.ungrouped))
    return ExitStatus.OK


def _is_journal(source: str) -> bool:
    if "://" in source:
        return True
    try:
        with Path(source).open("rb") as stream:
            return stream.read(len(_SQLITE)) == _SQLITE
    except (OSError, ValueError):
        return False


def _add_file(source: str, groups: FailureGroups) -> None:
    try:
        if source == "-":
            _add_lines("standard input", sys.stdin.buffer, groups)
        else:
            with Path(source).open("rb") as stream:
                _add_lines(source, stream, groups)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read {source}: {reason}; give a readable file") from error


def _add_lines(name: str, stream: BinaryIO, groups: FailureGroups) -> None:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            groups.add(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if groups.records and not line.endswith(b"\n") and isinstance(error, ValueError):
                return  # it is being written at this moment, or its writer was killed
            raise InputError(
                f"{name}, line {number}, is not a record; give the --output or --errors of "
                "'rxlanggraph run', or its --journal"
            ) from error


def _table(groups: list[FailureGroup], records: int, ungrouped: int) -> str:
    if not groups:
        return f"no failures among {records:,} record{'' if records == 1 else 's'}"
    rows: list[tuple[str, ...]] = [("count", "status", "type", "node", "message", "lines")]
    rows += [tuple(_cells(group)) for group in groups]
    more = f"\n\nand {ungrouped:,} failures of further kinds" if ungrouped else ""
    return columns(rows) + more


def _cells(group: FailureGroup) -> Iterator[Any]:
    yield f"{group.count:,}"
    yield group.status
    yield group.type or "-"
    yield group.node or "-"
    message = group.message
    yield message if len(message) <= _WIDTH else f"{message[: _WIDTH - 3]}..."
    yield ", ".join(map(str, group.lines)) + (", ..." if group.count > FIRST_LINES else "")
