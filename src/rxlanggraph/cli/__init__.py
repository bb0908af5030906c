"""The commands: thin layers over the library.

A map; each imports only from those above it.

    errors           errors that stop a command, and exit statuses
    stdio            standard output and standard error
    passwords        passwords of servers, from the environment
    option_types     numbers with errors in words, help with headings
    addresses        where something is served: --metrics, --live
    live_page        --live and rxlanggraph live: the page, while a command lasts
    tables           rows of text as columns
    yaml_object      YAML, in the types of JSON
    object_files     files that hold one object: JSON, YAML, TOML
    prices           --prices: what models cost, from a file
    variables        options from environment variables
    settings         options from rxlanggraph.toml
    project          a LangGraph project: langgraph.json, .env
    factories        functions that make a graph
    loading          finds and imports the graph that was named
    executors        --executor: this process, or workers of Ray
    metrics_server   --metrics: for Prometheus, while a command lasts
    otlp             exports traces by OTLP
    trace_export     --traces: by OTLP, or by the graph's own provider
    graph_arguments  --context and --config
    formats          lines and records, JSON Lines and CSV
    pipeline         a run without a journal, from its reader to its summary
    journal          a run that survives being killed
    completion       rxlanggraph completion: the script for a shell
    graphs           rxlanggraph graphs: the graphs of a project
    run              rxlanggraph run: its options, summary and exit status
    failure_groups   the failures of a run, grouped
    error_list       rxlanggraph errors: those groups as a table
    status           rxlanggraph status: the progress of a journal's run
    live             rxlanggraph live: the page of a journal's run
    top              rxlanggraph top: what a live page shows, on a terminal
    journals         rxlanggraph journal: dropping a journal
    state            rxlanggraph state: queues, tasks, locks and keys, and migrations
    demo             rxlanggraph demo: plain asyncio beside the bridge
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import click

from rxlanggraph.cli.completion import complete_file, completion
from rxlanggraph.cli.demo import demo
from rxlanggraph.cli.error_list import errors
from rxlanggraph.cli.errors import CommandError, ExitStatus
from rxlanggraph.cli.graphs import graphs
from rxlanggraph.cli.journals import journal
from rxlanggraph.cli.live import live
from rxlanggraph.cli.run import run
from rxlanggraph.cli.settings import load_settings, source_of
from rxlanggraph.cli.state import state
from rxlanggraph.cli.status import status
from rxlanggraph.cli.stdio import discard_buffers, print_stderr
from rxlanggraph.cli.top import top
from rxlanggraph.cli.variables import name_variables, warn_of_unknown_variables

__all__ = ["main"]


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every option may also be set as an environment variable, such as "
    "RXLANGGRAPH_RUN_MAX_CONCURRENCY=16. The command line has precedence over the environment, and "
    "that over the settings.",
)
@click.version_option(package_name="rxlanggraph", prog_name="rxlanggraph")
@click.option(
    "--settings",
    metavar="FILE",
    callback=load_settings,
    expose_value=False,
    shell_complete=complete_file,
    help="Options of the commands, as TOML: 'max-concurrency = 16' below '[run]'. By default "
    "rxlanggraph.toml in the current directory, if there is one.",
)
@click.pass_context
def _commands(context: click.Context) -> None:
    """Run LangGraph graphs over streams of messages: bounded, tracked, none lost."""
    if context.invoked_subcommand is not None:
        warn_of_unknown_variables(_commands.commands, context.invoked_subcommand)


for _command in (run, live, top, status, errors, journal, state, graphs, demo, completion):
    _commands.add_command(_command)
name_variables(_commands)


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
        if (source := source_of(error)) is not None:
            print_stderr(f"the value is from {source}")
        return error.exit_code
    except CommandError as error:
        print_stderr(str(error))
        return error.status
    finally:
        discard_buffers()
    return int(status or ExitStatus.OK)
