"""``rxlanggraph run``: runs a graph over a file of messages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from rxlanggraph.cli.addresses import parse_address
from rxlanggraph.cli.completion import complete_file, complete_graph
from rxlanggraph.cli.errors import ExitStatus
from rxlanggraph.cli.executors import executor_for
from rxlanggraph.cli.factories import MadeGraph
from rxlanggraph.cli.formats.readers import open_source
from rxlanggraph.cli.formats.sinks import Sink, same_file
from rxlanggraph.cli.graph_arguments import check_context, parse_context, read_config
from rxlanggraph.cli.loading import (
    Target,
    bound_thread,
    find_target,
    has_checkpointer,
    opened_graph,
)
from rxlanggraph.cli.metrics_server import served_metrics
from rxlanggraph.cli.option_types import SectionedCommand, parsed, seconds, whole_number
from rxlanggraph.cli.pipeline.job import IOPaths, Job, JobOptions
from rxlanggraph.cli.pipeline.limits import MINIMUM_FOR_PERCENT, FailureLimit, RateLimiter
from rxlanggraph.cli.pipeline.model_use import ModelOptions, parse_limits
from rxlanggraph.cli.pipeline.progress import reporter_for
from rxlanggraph.cli.pipeline.summary import JobResult, summary
from rxlanggraph.cli.prices import prices_in
from rxlanggraph.cli.project import PROJECT_FILE
from rxlanggraph.cli.stdio import logged, print_stderr
from rxlanggraph.cli.trace_export import exported_traces
from rxlanggraph.errors import InvalidArgumentError

__all__ = ["run"]

# Options that are refused without --journal, and all options that have an effect only with it.
_NEED_JOURNAL = ("resume", "resume_failed", "no_output")
_JOURNAL_OPTIONS = (*_NEED_JOURNAL, "lease", "max_attempts")
# The largest integer that every database accepts.
_MAX_INTEGER = 2**31 - 1
# Runs at a time: with a journal, each has a task from the beginning. A guess.
_MAX_RUNS = 10_000
_RESUMABLE = (
    ExitStatus.HALTED,
    ExitStatus.OUTPUT_FAILED,
    ExitStatus.INTERRUPTED,
    ExitStatus.TERMINATED,
)
# Above the option of this name, in the help.
_SECTIONS = {
    "input": "Messages and results",
    "project": "The graph",
    "thread_key": "Runs",
    "limits": "Models",
    "metrics": "Observation",
    "executor": "Worker processes",
    "journal": "Runs that survive a kill",
    "tracebacks": "Other options",
}
_EPILOG = """\b
Exit status:
  0    every message is ok
  1    some failed, were invalid, were cancelled or wait for an answer
  2    wrong usage, no such graph, or an input that cannot be read
  3    halted by --halt
  4    a record could not be written: disk full, closed pipe
  5    the journal does not answer, or refuses a request
  130  ended by Ctrl-C: the first drains, the second cancels
  143  ended by SIGTERM, which drains

Draining reads no more lines, and answers those that were read or, with --journal, claimed. A graph
that saves checkpoints in a database stops between supersteps instead, and --journal with --resume
continues it from there.
"""


def _bounded(_: click.Context, __: click.Parameter, runs: int) -> int:
    """Refuse more runs than one process can handle; unlike click's range, with a remedy."""
    if runs > _MAX_RUNS:
        raise click.BadParameter(
            f"{runs:,} runs at a time are too many; give at most {_MAX_RUNS:,}, or let several "
            "processes share a --journal"
        )
    return runs


@click.command(cls=SectionedCommand, sections=_SECTIONS, epilog=_EPILOG)
@click.argument("target", metavar="GRAPH", shell_complete=complete_graph)
@click.option(
    "--input",
    "-i",
    metavar="FILE",
    required=True,
    shell_complete=complete_file,
    help="Messages; - is standard input.",
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    shell_complete=complete_file,
    default="-",
    show_default=True,
    help="Results, one JSON line each; - is standard output. An existing file is overwritten, "
    "unless it has the records of a run with a --journal, or another run writes it.",
)
@click.option(
    "--errors",
    metavar="FILE",
    shell_complete=complete_file,
    help="Failed results and invalid lines, with the raw line and the reason. By default they go "
    "to the output.",
)
@click.option(
    "--format",
    type=click.Choice(["jsonl", "csv"]),
    help="Format of the input; by default CSV for .csv, else JSON Lines. A CSV row is a message "
    "of strings by column.",
)
@click.option(
    "--project",
    metavar="FILE",
    default=PROJECT_FILE,
    show_default=True,
    is_eager=True,  # before the names of its graphs are completed
    shell_complete=complete_file,
    help="Project file in which GRAPH is looked up by name.",
)
@click.option(
    "--env-file",
    metavar="FILE",
    shell_complete=complete_file,
    help="Environment variables for the graph; they have precedence over those of its project. "
    "Variables that are already set keep their values.",
)
@click.option(
    "--config",
    metavar="FILE",
    shell_complete=complete_file,
    help="LangGraph's config of every run, a RunnableConfig: JSON, or YAML or TOML by the suffix.",
)
@click.option(
    "--context",
    multiple=True,
    metavar="KEY=VALUE|FILE",
    shell_complete=complete_file,
    help="LangGraph's context of every run: a key with its value, as JSON or text; or a file like "
    "that of --config. May be repeated.",
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
    type=whole_number(1),
    callback=_bounded,
    metavar="N",
    default=32,
    show_default=True,
    help=f"Runs at a time, {_MAX_RUNS:,} at most.",
)
@click.option(
    "--timeout",
    type=seconds(),
    metavar="SECONDS",
    help="Time limit for each attempt at a message. One that takes longer fails (timed_out); it is "
    "repeated with --retries.",
)
@click.option(
    "--deadline",
    type=seconds(),
    metavar="SECONDS",
    help="Time limit for each message, over all attempts and the pauses between them, from the "
    "beginning of the first. A message that takes longer fails (timed_out).",
)
@click.option(
    "--retries",
    type=whole_number(0, _MAX_INTEGER),
    metavar="N",
    default=0,
    help="How often to retry a failed message.",
)
@click.option("--ordered", is_flag=True, help="Results in the order of the input.")
@click.option(
    "--halt",
    callback=parsed(FailureLimit.parse),
    metavar="N|P%",
    help="Stop after N failures, or once P percent of the messages have failed (checked only "
    f"after the first {MINIMUM_FOR_PERCENT}). Invalid lines count. Runs in flight are still "
    "completed.",
)
@click.option(
    "--rate",
    callback=parsed(RateLimiter.parse),
    metavar="N/s",
    help="Read at most N messages per second (/m: minute, /h: hour), evenly spaced.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="[MODEL:]LIMITS",
    help="Limits of a model's provider, separated by commas: requests=N/m, tokens=N/m (also /s, "
    "/h), concurrency=N. Without MODEL, of each model that has no limits of its own. Calls wait "
    "until they are allowed; the processes of a --journal share the limits. --retries then retries "
    "only transient failures. May be repeated.",
)
@click.option(
    "--usage", is_flag=True, help="Count the tokens of models, in the records and the summary."
)
@click.option(
    "--prices",
    metavar="FILE",
    shell_complete=complete_file,
    help="Prices of models per million tokens, in a file like that of --config: "
    '{"MODEL": {"input": 1.25, "output": 10}}. Implies --usage.',
)
@click.option(
    "--metrics",
    callback=parsed(parse_address),
    metavar="[HOST:]PORT",
    help="Serve metrics for Prometheus while the run lasts. Binds to localhost unless HOST is "
    "given. Port 0 chooses a free port.",
)
@click.option(
    "--live",
    callback=parsed(parse_address),
    metavar="[[HOST:]PORT]",
    is_flag=False,
    flag_value="0",
    help="Serve a page that shows the runs while they last; the address, with a token, is printed "
    "to standard error. Binds to localhost unless HOST is given, and to a free port without "
    "PORT or with 0. The token may be set in RXLANGGRAPH_LIVE_TOKEN.",
)
@click.option(
    "--live-content",
    is_flag=True,
    help="With --live: show what graphs ask, and the texts of errors.",
)
@click.option(
    "--traces",
    is_flag=True,
    help="Export traces by OTLP, configured by OpenTelemetry's environment variables, such as "
    "OTEL_EXPORTER_OTLP_ENDPOINT.",
)
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where the graph is called: in this process, or in worker processes of Ray. A message "
    "whose worker dies is repeated, three times at most.",
)
@click.option(
    "--workers",
    type=whole_number(1),
    metavar="N",
    help="With --executor ray: worker processes; by default one for each CPU.",
)
@click.option(
    "--address",
    metavar="HOST:PORT|auto",
    help="With --executor ray: a running cluster; by default one is started for this run.",
)
@click.option(
    "--journal",
    metavar="FILE|URL",
    shell_complete=complete_file,
    help="Checkpoint progress in this SQLite file, or on a server (postgresql://..., redis://...; "
    "#NAME after it for several runs); after a kill, continue with --resume. --output is then "
    "completed instead of overwritten. A server's password is read from "
    "RXLANGGRAPH_JOURNAL_PASSWORD, or from the file that RXLANGGRAPH_JOURNAL_PASSWORD_FILE names.",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Continue the run of the journal, or begin it. Several processes, on several machines, "
    "may share one journal, each with a copy of the input.",
)
@click.option(
    "--resume-failed",
    is_flag=True,
    help="Like --resume, and requeue the messages that have failed or are dead. Their records are "
    "replaced.",
)
@click.option(
    "--no-output",
    is_flag=True,
    help="With --journal: run a worker that writes no results; another process writes them.",
)
@click.option(
    "--lease",
    type=seconds(0.1, 86400),
    metavar="SECONDS",
    default=15.0,
    show_default=True,
    help="With --journal: other processes take over the messages of a process that has been silent "
    "for this long.",
)
@click.option(
    "--max-attempts",
    type=whole_number(1, _MAX_INTEGER),
    metavar="N",
    default=10,
    show_default=True,
    help="With --journal: worker crashes before a message is dead-lettered (status dead). A crash "
    "also costs the other messages in flight an attempt; to run them one at a time, use "
    "--resume-failed -j 1, then --resume -j 1 after each crash.",
)
@click.option(
    "--tracebacks", is_flag=True, help="Include the traceback in the error of a failed line."
)
@click.option(
    "--verbose",
    "-v",
    count=True,
    help="Log failed attempts and lines, and what the graph logs, to standard error; -vv also when "
    "each line starts and ends.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress, no summary.")
def run(
    target: str,
    *,
    output: str,
    errors: str | None,
    quiet: bool,
    verbose: int,
    journal: str | None,
    **options: Any,
) -> int:
    """Run a graph over a file of messages, one result per line.

    GRAPH is the name of a graph in langgraph.json, or MODULE_OR_FILE:GRAPH: a compiled LangGraph
    graph, another Runnable, a function of the content, or a function that makes a graph, such as
    my_graphs.py:graph or my_package.graphs:graph. Each line of JSON, or row of CSV, is the content
    of one message.

    Each line that is not blank gets a record, with line, id, thread_id, status, content, error and
    duration (seconds); the records are in the order of the input only with --ordered. An error has
    type, message and node. The record of a retried message has attempts and earlier_errors; if the
    graph asks, it has interrupts, with the id and value of each question; if the run was stopped
    between supersteps, a checkpoint_id.
    """
    journal_options = {name: options.pop(name) for name in _JOURNAL_OPTIONS}
    input_, form = options.pop("input"), options.pop("format")
    paths = IOPaths(
        input_, form, None if journal_options["no_output"] else output, errors, sys.stdout
    )
    _check_paths(input_, output, errors)
    _check_journal_options(paths, journal, journal_options)
    with contextlib.ExitStack() as stack:
        stack.enter_context(logged(verbose))
        if "-" in (output, errors):
            # What a graph prints must not be mixed with the records.
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        options["config"] = read_config(options["config"])
        options["context"] = parse_context(options["context"])
        found = find_target(
            target, project=options.pop("project"), env_file=options.pop("env_file")
        )
        options["models"] = _model_options(
            options.pop("limits"), options.pop("prices"), counts=options.pop("usage")
        )
        _serve_metrics(stack, options, quiet=quiet)
        _serve_live(stack, options)
        names = ("traces", "executor", "workers", "address")
        after_loading = {name: options.pop(name) for name in names}
        job_options = JobOptions(**options)
        made = stack.enter_context(opened_graph(found, job_options.config))
        _check_graph(made.graph, found, job_options, journal)
        job_options = _complete(stack, made, found, job_options, **after_loading)
        if journal is None:
            result = _run_once(made, paths, job_options, quiet=quiet)
        else:
            # Imported here: databases are slow to import, and only a journal needs them.
            from rxlanggraph.cli.journal.run import durable_run  # noqa: PLC0415

            result = durable_run(
                made,
                found.place,
                paths,
                job_options,
                journal=journal,
                quiet=quiet,
                **journal_options,
            )
    _report(result, paths, journal, quiet=quiet)
    return result.status


def _serve_metrics(stack: contextlib.ExitStack, options: dict[str, Any], *, quiet: bool) -> None:
    """Serve ``--metrics``; replace its address in the options by the hooks that are served."""
    if options["metrics"] is None:
        return
    options["metrics"], address = stack.enter_context(served_metrics(options["metrics"]))
    if not quiet:
        print_stderr(f"metrics: http://{address}/metrics")


def _serve_live(stack: contextlib.ExitStack, options: dict[str, Any]) -> None:
    """Serve ``--live`` until the stack ends; replace its address in the options by the page."""
    show_content = options.pop("live_content")
    if options["live"] is None:
        if show_content:
            raise click.UsageError("--live-content needs --live")
        return
    # Imported here: only a page needs it.
    from rxlanggraph.cli.live_page import live_page  # noqa: PLC0415

    page = live_page(options["live"], show_content=show_content)
    options["live"] = stack.enter_context(page)


def _complete(
    stack: contextlib.ExitStack,
    made: MadeGraph,
    target: Target,
    options: JobOptions,
    *,
    traces: bool,
    executor: str,
    **placing: Any,
) -> JobOptions:
    """Add the options that depend on the graph's own code, which is loaded by now."""
    opened = stack.enter_context(
        executor_for(executor, made.graph, target, options.config, **placing)
    )
    # The graph's code may have set up a tracer provider.
    exported = stack.enter_context(exported_traces()) if traces else None
    return replace(options, executor=opened, traces=exported)


def _model_options(limits: Sequence[str], prices: str | None, *, counts: bool) -> ModelOptions:
    try:
        parsed = parse_limits(limits)
    except InvalidArgumentError as error:
        raise click.UsageError(f"--limit: {error}") from error
    known = {} if prices is None else prices_in(prices)
    return ModelOptions(parsed, counts or prices is not None, known)


def _run_once(made: MadeGraph, paths: IOPaths, options: JobOptions, *, quiet: bool) -> JobResult:
    assert paths.output is not None, "only a run with a journal may have no output"
    # The outputs are emptied last: an error before must not empty an existing file.
    with contextlib.ExitStack() as opened:
        source = open_source(paths.input, paths.form, thread_key=options.thread_key)
        opened.callback(source.stream.close)
        output = Sink.open(paths.output, paths.stdout)
        opened.callback(output.close)
        errors = None if paths.errors is None else Sink.open(paths.errors, paths.stdout)
        if errors is not None:
            opened.callback(errors.close)
            errors.empty()
        output.empty()
        opened.pop_all()  # closed by the threads of the job from now on
    reporter = reporter_for(source.size, quiet=quiet, output_on_terminal=paths.on_terminal)
    job = Job(made, source, output=output, errors=errors, reporter=reporter, options=options)
    return job.run()


def _report(result: JobResult, paths: IOPaths, journal: str | None, *, quiet: bool) -> None:
    if result.reason is not None:
        print_stderr(result.reason)
    if result.without_record:
        lines = "line" if result.without_record.isdecimal() else "lines"
        print_stderr(f"without a record: {lines} {result.without_record} of {paths.input_name}")
    if journal is not None and result.status in _RESUMABLE:
        print_stderr("the journal has all answers so far; continue with --resume")
    if not quiet:
        print_stderr(summary(result, paths.output, paths.errors))


def _check_journal_options(
    paths: IOPaths, journal: str | None, journal_options: dict[str, Any]
) -> None:
    if journal is None:
        for name in _NEED_JOURNAL:
            if journal_options[name]:
                raise click.UsageError(
                    f"--{name.replace('_', '-')} needs a --journal; name its file or URL"
                )
        return
    if paths.output is None and paths.errors is not None:
        raise click.UsageError("--errors is an output too; leave it out, or leave out --no-output")
    _check_apart(paths, journal)


def _check_apart(paths: IOPaths, journal: str) -> None:
    # Imported here, as in `run`: only a journal needs it.
    from rxlanggraph.cli.journal.location import parse_location  # noqa: PLC0415

    location = parse_location(journal)
    for option, path in (
        ("input", paths.input),
        ("output", paths.output),
        ("errors", paths.errors),
    ):
        if path is None:
            continue
        if location.path is not None and same_file(str(location.path), path):
            raise click.UsageError(f"--journal and --{option} are both {path}; name another file")
        if any(same_file(file, path) for file in location.companion_files):
            raise click.UsageError(
                f"--{option} {path} is one of the files of the --journal; name another file"
            )


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


def _check_graph(graph: Any, target: Target, options: JobOptions, journal: str | None) -> None:
    bound = bound_thread(graph, options.config, target)
    if bound is not None and (options.thread_key is not None or journal is not None):
        # A journal knows the threads of its messages alone: two processes would run the bound one
        # at the same time.
        option = "--journal" if options.thread_key is None else "--thread-key"
        raise click.UsageError(
            f"{target.place} is bound to the thread {bound!r} by its config, which {option} does "
            "not allow; name a graph that is not bound to a thread"
        )
    if bound is None and options.thread_key is None and has_checkpointer(graph):
        raise click.UsageError(
            f"{target.place} has a checkpointer, so each message needs a thread; name the field "
            "for it with --thread-key"
        )
    check_context(graph, options.context)
