"""``rxlanggraph run``: any graph over a file of messages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import click

from rxlanggraph.cli.job import Job, JobOptions
from rxlanggraph.cli.limits import MINIMUM_FOR_PERCENT, Halt, Rate
from rxlanggraph.cli.loading import has_checkpointer, load_graph
from rxlanggraph.cli.progress import reporter_for, say
from rxlanggraph.cli.sinks import open_sink, same_file
from rxlanggraph.cli.sources import Format, open_source
from rxlanggraph.cli.summary import summary
from rxlanggraph.errors import InvalidArgumentError

__all__ = ["run"]

_EPILOG = """\b
Exit status:
  0    every message is ok
  1    some failed, were broken or were cancelled
  2    wrong usage, no such graph, or an input that cannot be read
  3    halted by --halt
  4    a record could not be written: disk full, closed pipe
  130  ended by Ctrl-C: the first drains, the second cancels
  143  ended by SIGTERM, which drains
"""


def _parsed(
    parse: Callable[[str], object],
) -> Callable[[click.Context, click.Parameter, str | None], object]:
    """Return an option's callback out of a function that raises InvalidArgumentError."""

    def callback(_: click.Context, __: click.Parameter, value: str | None) -> object:
        try:
            return None if value is None else parse(value)
        except InvalidArgumentError as error:
            raise click.BadParameter(str(error)) from error

    return callback


@click.command(epilog=_EPILOG)
@click.argument("target", metavar="MODULE_OR_FILE:GRAPH")
@click.option(
    "--input", "-i", "input_", metavar="FILE", required=True, help="Messages; - is standard input."
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    default="-",
    show_default=True,
    help="Results, one JSON line each; - is standard output. A file that is there is overwritten.",
)
@click.option(
    "--errors",
    metavar="FILE",
    help="Failed results and broken lines, with the raw line and the reason. Without it they "
    "stand among the results.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    help="Of the input. By default CSV for .csv, else JSON Lines. A CSV row is a message of "
    "strings by column.",
)
@click.option(
    "--thread-key",
    metavar="FIELD",
    help="The field that names a message's thread. Messages of one thread run one after another, "
    "in order; threads run side by side.",
)
@click.option(
    "--max-concurrency",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    default=32,
    show_default=True,
    help="Runs at a time.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="For each message. One that takes longer has failed (timed_out).",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    help="How often to try a failed message again.",
)
@click.option("--ordered", is_flag=True, help="Results in the order of the input.")
@click.option(
    "--halt",
    callback=_parsed(Halt.parse),
    metavar="N|P%",
    help="Stop after N failures, or when P per cent of the messages have failed, from the "
    f"{MINIMUM_FOR_PERCENT}th on. Broken lines count. What is in flight still ends.",
)
@click.option(
    "--rate",
    callback=_parsed(Rate.parse),
    metavar="N/s",
    help="Take in at most so many messages per second (/m: minute, /h: hour), evenly.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
def run(
    target: str,
    *,
    input_: str,
    output: str,
    errors: str | None,
    form: Format | None,
    quiet: bool,
    **options: Any,
) -> int:
    """Run a graph over a file of messages, one result per line.

    MODULE_OR_FILE:GRAPH names a compiled LangGraph graph, another Runnable, or a function of
    the content: my_graphs.py:graph or my_package.graphs:graph. Each line of JSON, or row of CSV,
    is the content of one message. Every line that is not blank gets a record, in any order unless
    --ordered: line, id, thread_id, status, content, error, duration.
    """
    _check_paths(input_, output, errors)
    stdout = sys.stdout
    with contextlib.ExitStack() as stack:
        if "-" in (output, errors):
            # What a graph prints must not end up among the records.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        graph = _load(target, options["thread_key"])
        # The outputs come last: a mistake before must not empty a file that is there.
        with contextlib.ExitStack() as opened:
            source = open_source(input_, form)
            opened.callback(source.stream.close)
            output_sink = open_sink(output, stdout)
            opened.callback(output_sink.close)
            error_sink = None if errors is None else open_sink(errors, stdout)
            opened.pop_all()  # closed by the threads of the job from now on
        torn = "-" in (output, errors) and stdout.isatty()
        job = Job(
            graph,
            source,
            output=output_sink,
            errors=error_sink,
            reporter=reporter_for(source.size, quiet=quiet, output_on_terminal=torn),
            options=JobOptions(**options),
        )
        outcome = job.run()
    if outcome.reason is not None:
        say(outcome.reason)
    if outcome.without_record:
        say(f"without a record: line {outcome.without_record} of {source.name}")
    if not quiet:
        say(summary(outcome, output_sink.name, errors))
    return outcome.status


def _check_paths(input_: str, output: str, errors: str | None) -> None:
    if input_ != "-" and same_file(input_, output):
        raise click.UsageError(f"--output {output} would overwrite the input; name another file")
    if errors is not None and input_ != "-" and same_file(input_, errors):
        raise click.UsageError(f"--errors {errors} would overwrite the input; name another file")
    if errors is not None and same_file(output, errors):
        raise click.UsageError(
            f"--output and --errors are both {output}; leave out --errors to have all records in "
            "one file"
        )


def _load(target: str, thread_key: str | None) -> Any:
    graph = load_graph(target)
    if thread_key is None and has_checkpointer(graph):
        raise click.UsageError(
            f"{target} has a checkpointer, so each message needs a thread: say with --thread-key "
            "which field names it"
        )
    return graph
