"""``rxlanggraph status``: the progress of a journal's run."""

from __future__ import annotations

import json

import click

from rxlanggraph.cli.errors import ExitStatus

__all__ = ["status"]


@click.command(
    epilog="Exit status: 0; 2 if it is not a journal; 5 if the journal does not answer.",
)
@click.argument("journal", metavar="JOURNAL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def status(journal: str, *, as_json: bool) -> int:
    """Show a run's progress, the messages in flight by worker, and those failed or dead.

    JOURNAL is the file or URL that 'rxlanggraph run' was given as --journal. Messages of
    a dead worker count as in flight until their leases expire.
    """
    # Imported here: databases are slow to import, and --help does not need them.
    from rxlanggraph.cli.journal.status_report import SHOWN, status_of, table_of  # noqa: PLC0415

    found = status_of(journal, shown=None if as_json else SHOWN)
    click.echo(json.dumps(found) if as_json else table_of(found))
    return ExitStatus.OK
