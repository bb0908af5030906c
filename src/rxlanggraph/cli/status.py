"""``rxlanggraph status``: how far the run of a journal is."""

from __future__ import annotations

import json

import click

from rxlanggraph.cli.errors import ExitStatus

__all__ = ["status"]


@click.command(
    epilog="Exit status: 0; 2 if it is not a journal; 5 if the journal gives no answer.",
)
@click.argument("journal", metavar="JOURNAL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def status(journal: str, *, as_json: bool) -> int:
    """Show how far a run is, which worker has how much in flight, and what failed or is dead.

    JOURNAL is the file or URL that 'rxlanggraph run' was given as --journal. What a dead
    worker had counts as in flight until its lease expires.
    """
    # Databases take their time to import: nothing that --help has to wait for.
    from rxlanggraph.cli.journal.status_report import SHOWN, status_of, table_of  # noqa: PLC0415

    found = status_of(journal, shown=None if as_json else SHOWN)
    click.echo(json.dumps(found) if as_json else table_of(found))
    return ExitStatus.OK
