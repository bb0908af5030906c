"""``rxlanggraph status``: the progress of a journal's run."""

from __future__ import annotations

import json
import sys
import time

import click

from rxlanggraph.cli.completion import complete_file
from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.option_types import seconds
from rxlanggraph.cli.prices import prices_in
from rxlanggraph.cli.stdio import print_stdout

__all__ = ["status"]


@click.command(
    epilog="Exit status: 0; 2 if it is not a journal; 5 if the journal does not answer; 130 if "
    "Ctrl-C ends --watch.",
)
@click.argument("journal", metavar="JOURNAL", shell_complete=complete_file)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--watch", "-w", is_flag=True, help="Refresh until all messages are answered.")
@click.option(
    "--interval",
    type=seconds(0.1, 86400),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="With --watch: the time between refreshes.",
)
@click.option(
    "--usage", is_flag=True, help="Add up the tokens that the answered messages have used."
)
@click.option(
    "--prices", metavar="FILE", help="Prices of models, as for 'rxlanggraph run'. Implies --usage."
)
def status(
    journal: str,
    *,
    as_json: bool,
    watch: bool,
    interval: float,
    usage: bool,
    prices: str | None,
) -> int:
    """Show the progress of a run with a journal.

    Counts its messages, lists those in flight by worker, and those that have failed or are dead.
    JOURNAL is the file or URL that 'rxlanggraph run' was given as --journal. Messages of
    a dead worker count as in flight until their leases expire.
    """
    # Imported here: databases are slow to import, and --help does not need them.
    from rxlanggraph.cli.journal.status_report import SHOWN, status_of, table_of  # noqa: PLC0415

    as_text = json.dumps if as_json else table_of
    shown = None if as_json else SHOWN
    known = {} if prices is None else prices_in(prices)
    priced = known if usage or prices is not None else None
    found = status_of(journal, shown, priced)
    print_stdout(as_text(found))
    while watch and not found["finished"]:
        time.sleep(interval)
        found = status_of(journal, shown, priced)
        if not as_json and sys.stdout.isatty():
            click.clear()
        elif not as_json:
            print_stdout()
        print_stdout(as_text(found))
    return ExitStatus.OK
