"""``rxlanggraph live``: a page that shows the run of a journal."""

from __future__ import annotations

import threading

import click

from rxlanggraph.cli.addresses import Address, parse_address
from rxlanggraph.cli.completion import complete_file
from rxlanggraph.cli.option_types import parsed

__all__ = ["live"]


@click.command(
    epilog="Exit status: 2 if it is not a journal, or the page cannot be served; 5 if the journal "
    "does not answer at the beginning; 130 if Ctrl-C ends it.",
)
@click.argument("journal", metavar="JOURNAL", shell_complete=complete_file)
@click.option(
    "--address",
    callback=parsed(parse_address),
    metavar="[HOST:]PORT",
    default="127.0.0.1:0",
    show_default=True,
    help="Where to serve the page; port 0 is any port that is free.",
)
@click.option("--content", is_flag=True, help="Show the texts of errors.")
def live(journal: str, *, address: Address, content: bool) -> int:
    """Serve a page with the progress of a run, until Ctrl-C.

    JOURNAL is the file or URL that 'rxlanggraph run' was given as --journal. The address of the
    page, with its token, is printed to standard error; the token may be set in
    RXLANGGRAPH_LIVE_TOKEN. The runs themselves are on the pages of their own processes: see
    'rxlanggraph run --live'.
    """
    # Imported here: databases and servers are slow to import, and --help does not need them.
    from rxlanggraph.cli.journal.live_source import journal_source  # noqa: PLC0415
    from rxlanggraph.cli.live_page import live_page  # noqa: PLC0415

    with (
        journal_source(journal, show_content=content) as source,
        live_page(address, show_content=content) as page,
    ):
        page.serve(source)
        threading.Event().wait()
    raise AssertionError("it ends with an interrupt")
