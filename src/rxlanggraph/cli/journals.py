"""``rxlanggraph journal``: dropping the journal of a run."""

from __future__ import annotations

import json

import click

from rxlanggraph.cli.completion import complete_file
from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.stdio import print_stdout

__all__ = ["journal"]


@click.group()
def journal() -> None:
    """Manage the journals of runs; 'rxlanggraph status' shows one."""


@journal.command(
    epilog="Exit status: 0; 2 if it is not a journal, or messages are in flight; 5 if the journal "
    "does not answer.",
)
@click.argument("journal", metavar="JOURNAL", shell_complete=complete_file)
@click.option(
    "--force", is_flag=True, help="Even if messages are in flight; their answers are lost."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def drop(journal: str, *, force: bool, dry_run: bool, as_json: bool) -> int:
    """Delete a journal: its run, its lines and their answers. The output is left.

    JOURNAL is the file or URL that 'rxlanggraph run' was given as --journal. Nothing else in the
    file or on the server is deleted; the file itself is left.
    """
    # Imported here: databases are slow to import, and --help does not need them.
    from rxlanggraph.cli.journal.dropping import drop_journal  # noqa: PLC0415

    dropped = drop_journal(journal, force=force, dry_run=dry_run)
    if as_json:
        found = {"journal": dropped.journal, "lines": dropped.lines}
        print_stdout(json.dumps({**found, "unanswered": dropped.unanswered, "dry_run": dry_run}))
        return ExitStatus.OK
    did = "would drop" if dry_run else "dropped"
    unanswered = f", {dropped.unanswered:,} of them not answered" if dropped.unanswered else ""
    left = "; the file itself is left" if dropped.is_file else ""
    print_stdout(
        f"{did} the journal {dropped.journal} with {dropped.lines:,} lines{unanswered}{left}"
    )
    return ExitStatus.OK
