"""``rxlanggraph top``: its options, its terminal and its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import click

from rxlanggraph.cli.completion import complete_file
from rxlanggraph.cli.errors import CommandError, ExitStatus, LiveError
from rxlanggraph.cli.passwords import LIVE_TOKEN
from rxlanggraph.cli.stdio import print_stdout
from rxlanggraph.cli.top.watch import PolledSource, Watch
from rxlanggraph.errors import MissingExtraError

if TYPE_CHECKING:
    from rxlanggraph.cli.top.screen import TopApp

__all__ = ["top"]

_SCHEMES = ("http://", "https://")
_STATUSES: Final[dict[int, ExitStatus]] = {
    signal.SIGINT: ExitStatus.INTERRUPTED,
    signal.SIGTERM: ExitStatus.TERMINATED,
}
if hasattr(signal, "SIGHUP"):  # not on Windows
    _STATUSES[signal.SIGHUP] = ExitStatus.HUNG_UP
# Seconds between two checks that the terminal is still there.
_TERMINAL_SECONDS = 1.0


@click.command(
    epilog="Exit status: 2 if there is no live page or journal, or the page refuses the token; 5 "
    "if the journal does not answer at the beginning; 129 if its terminal is gone, 130 if Ctrl-C "
    "ends it, 143 if SIGTERM does.",
)
@click.argument("target", metavar="TARGET", shell_complete=complete_file)
@click.option(
    "--token",
    envvar=LIVE_TOKEN,
    metavar="TOKEN",
    help=f"The token of the page, if it is not in TARGET. Better set in {LIVE_TOKEN}: the list of "
    "processes shows a command line.",
)
@click.option("--once", is_flag=True, help="Print the state at the moment as plain text, and end.")
@click.option("--content", is_flag=True, help="Of a journal: show the texts of errors.")
def top(target: str, *, token: str | None, once: bool, content: bool) -> int:
    """Show on the terminal what is in flight.

    Runs can be cancelled there, and questions answered. TARGET is the address that 'rxlanggraph run
    --live' or 'rxlanggraph live' has printed, with its token; or the file or URL of a journal, to
    show the progress of its run. The key ? explains the others. It needs the extra 'live'.
    """
    is_page = target.lower().startswith(_SCHEMES)
    if is_page and content:
        raise click.UsageError(
            "--content is for journals; a page shows content if it is served with --live-content"
        )
    if not is_page and ("?token=" in target or _is_host_and_port(target)):
        shown = target.partition("?")[0]
        raise LiveError(f"{shown} is not an address: write http://HOST:PORT/?token=...")
    if not once:
        _check_terminal()
    # Imported before anything is opened: slow, and of an extra.
    app = None if once else _app_class()
    if is_page:
        return asyncio.run(_look_at_page(target, token, app))
    from rxlanggraph.cli.journal.live_source import journal_source  # noqa: PLC0415

    with journal_source(target, show_content=content) as source:
        return asyncio.run(_look(PolledSource(source, target), app))


def _is_host_and_port(target: str) -> bool:
    """Whether it is the address of a page whose ``http://`` was forgotten, and no file."""
    return re.fullmatch(r"[\w.-]+:\d+/?", target) is not None and not os.path.exists(target)


def _check_terminal() -> None:
    # The screen is written to standard error, so that has to be one, too.
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, f"__{name}__")
        if stream is None or not stream.isatty():
            raise CommandError(
                f"{name} is not a terminal, which the screen needs; --once prints the state at the "
                "moment as plain text"
            )


def _app_class() -> type[TopApp]:
    try:
        from rxlanggraph.cli.top.screen import TopApp  # noqa: PLC0415
    except ImportError as error:
        raise LiveError(
            "'rxlanggraph top' needs Textual for its screen; install it with "
            "pip install 'rxlanggraph[live]', or use --once"
        ) from error
    return TopApp


async def _look_at_page(address: str, token: str | None, app: type[TopApp] | None) -> ExitStatus:
    try:
        from rxlanggraph.cli.top.remote import RemotePage  # noqa: PLC0415 # of an extra
    except MissingExtraError as error:
        raise LiveError(str(error)) from error
    async with RemotePage(address, token) as page:
        return await _look(page, app)


async def _look(watch: Watch, app_class: type[TopApp] | None) -> ExitStatus:
    """Show what ``watch`` gives; without a screen, print it once."""
    first = await watch.snapshot()
    if app_class is None:
        from rxlanggraph.cli.top.plain import as_plain_text  # noqa: PLC0415

        print_stdout(as_plain_text(first))
        return ExitStatus.OK
    app = app_class(watch, first)
    async with _ended_by_signals(app):
        result = await app.run_async()
    if isinstance(result, CommandError):
        raise result
    return ExitStatus(app.return_code or 0) if result is None else result


@contextlib.asynccontextmanager
async def _ended_by_signals(app: TopApp) -> AsyncIterator[None]:
    """End the screen at a signal, or when its terminal is gone; it restores the terminal.

    The second signal of a kind ends the process at once: a terminal that takes no output blocks the
    screen, and so its loop.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        loop.call_soon_threadsafe(app.exit, _STATUSES[number], context=context)

    before = {number: signal.signal(number, end) for number in _STATUSES}
    watching = asyncio.create_task(_end_without_terminal(app))
    try:
        yield
    finally:
        watching.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


async def _end_without_terminal(app: TopApp) -> None:
    # A terminal that is not the controlling one goes without a signal. Textual does not notice: it
    # reads the end of the input again and again.
    while sys.__stdin__ is not None and sys.__stdin__.isatty():  # noqa: ASYNC110
        await asyncio.sleep(_TERMINAL_SECONDS)
    app.exit(ExitStatus.HUNG_UP)
