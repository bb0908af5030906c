"""The commands: thin layers over the library.

A map; each imports only from those above it.

    errors      errors that stop a command, and exit statuses
    stderr      messages on standard error
    loading     imports the graph that MODULE_OR_FILE:GRAPH names
    formats     lines and records, JSON Lines and CSV
    pipeline    a run without a journal, from its reader to its summary
    journal     a run that survives being killed
    run         rxlanggraph run: its options, summary and exit status
    status      rxlanggraph status: the progress of a journal's run
    demo        rxlanggraph demo: plain asyncio beside the bridge
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import click

from rxlanggraph.cli.demo import demo
from rxlanggraph.cli.errors import CommandError, ExitStatus
from rxlanggraph.cli.run import run
from rxlanggraph.cli.status import status
from rxlanggraph.cli.stderr import discard_stderr_buffer, print_stderr

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rxlanggraph", prog_name="rxlanggraph")
def _commands() -> None:
    """Run LangGraph graphs over streams of messages: bounded, tracked, none lost."""


_commands.add_command(run)
_commands.add_command(status)
_commands.add_command(demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; what ``rxlanggraph`` and ``python -m rxlanggraph`` call.

    The main thread: it handles signals while a command runs. Blocks until that is done.

    Args:
        arguments: Without the program's name; None takes ``sys.argv``.

    Returns:
        The exit status, see `ExitStatus`.
    """
    try:
        status = _commands.main(arguments, prog_name="rxlanggraph", standalone_mode=False)
    except click.exceptions.Abort:
        print_stderr("interrupted")
        return ExitStatus.INTERRUPTED
    except click.ClickException as error:
        with contextlib.suppress(OSError, ValueError):  # standard error is closed or full
            error.show()
        return error.exit_code
    except CommandError as error:
        print_stderr(str(error))
        return error.status
    finally:
        discard_stderr_buffer()
    return int(status or ExitStatus.OK)
