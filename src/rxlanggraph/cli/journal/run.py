"""``rxlanggraph run --journal``: from the command's options to a `JournalJob`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from rxlanggraph import RxPyLangGraphBridge
from rxlanggraph.cli.errors import JournalMismatchError
from rxlanggraph.cli.factories import MadeGraph
from rxlanggraph.cli.journal.job import JournalJob, JournalOptions
from rxlanggraph.cli.journal.location import (
    JournalLocation,
    make_private,
    parse_location,
    warn_of_password,
)
from rxlanggraph.cli.journal.model import (
    QUEUE,
    RunIdentity,
    begin_run,
    check_same,
    find_run,
    graph_names,
)
from rxlanggraph.cli.journal.output_file import Output, open_output
from rxlanggraph.cli.journal.reader import InputFile
from rxlanggraph.cli.journal.retry import OpenJournal, journal_errors
from rxlanggraph.cli.loading import keeps_in_memory
from rxlanggraph.cli.pipeline.job import IOPaths, JobOptions
from rxlanggraph.cli.pipeline.progress import reporter_for
from rxlanggraph.cli.pipeline.summary import JobResult
from rxlanggraph.cli.stdio import print_stderr
from rxlanggraph.state import State, SyncState, open_state_threadsafe

__all__ = ["durable_run", "open_journal"]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The arguments of the command that decide which run it begins or joins.

    Args:
        location: The location of the journal.
        target: ``MODULE_OR_FILE:GRAPH``.
        paths: The input and the outputs.
        options: The options of the runs.
        resume: Whether a run that has begun may be continued.
        resume_failed: Whether to requeue failed messages.
    """

    location: JournalLocation
    target: str
    paths: IOPaths
    options: JobOptions
    resume: bool
    resume_failed: bool


@contextlib.contextmanager
def open_journal(location: JournalLocation) -> Iterator[State]:
    """Open a journal, on a loop of its own, for the duration of a block. Blocks.

    Raises:
        CommandError: It cannot be opened.
        JournalError: Its server does not answer.
    """
    with RxPyLangGraphBridge(name="journal") as bridge, contextlib.ExitStack() as stack:
        with journal_errors(location):
            opening = open_state_threadsafe(bridge, location.url, namespace=location.namespace)
            state = stack.enter_context(opening)
        yield state


def durable_run(
    made: MadeGraph,
    target: str,
    paths: IOPaths,
    options: JobOptions,
    *,
    journal: str,
    resume: bool,
    resume_failed: bool,
    no_output: bool,
    lease: float,
    max_attempts: int,
    quiet: bool,
) -> JobResult:
    """Run a graph with a journal. The main thread; blocks.

    Args:
        made: The graph that answers each message, and its loop.
        target: ``MODULE_OR_FILE:GRAPH``.
        paths: The input and the outputs.
        options: The options of the runs.
        journal: The path or URL of the journal.
        resume: Whether a run that has begun may be continued.
        resume_failed: As ``resume``, and requeue failed messages.
        no_output: Whether this process writes no results; ``paths.output`` is then None.
        lease: Seconds without a sign of life after which a worker loses its messages.
        max_attempts: Worker crashes before a message is dead-lettered.
        quiet: Show no progress.

    Returns:
        The progress of the run at the end, in all processes.

    Raises:
        CommandError: It cannot begin; its class tells the reason.
    """
    assert not no_output or paths.output is None
    request = RunRequest(
        parse_location(journal), target, paths, options, resume or resume_failed, resume_failed
    )
    warn_of_password(exposes_password=request.location.exposes_password)
    source = InputFile(paths.input, paths.form, options.thread_key)
    make_private(request.location.path)
    with open_journal(request.location) as state:
        with journal_errors(request.location):
            run, output, errors = _begin(request, _identity(request, source), state.sync)
        if keeps_in_memory(made.graph):
            print_stderr(
                "the graph's checkpointer keeps its threads in memory: they are lost with this "
                "process, and other processes do not see them; use a checkpointer with a database"
            )
        job = JournalJob(
            made,
            OpenJournal(state, run, request.location.name),
            source,
            output=output,
            errors=errors,
            reporter=reporter_for(source.size, quiet=quiet, output_on_terminal=paths.on_terminal),
            options=options,
            sharing=JournalOptions(lease, max_attempts),
        )
        return job.run()


def _begin(
    request: RunRequest, run: RunIdentity, state: SyncState
) -> tuple[RunIdentity, Output | None, Output | None]:
    """Begin the run, or join it; open the outputs."""
    known = _admitted(request, run, state)
    # The order matters: a mismatch must not create a file, a wrong output must not begin a run.
    with contextlib.ExitStack() as opened:
        output, errors = (
            _opened(path, request, again=known is not None, stack=opened)
            for path in (request.paths.output, request.paths.errors)
        )
        known = known or begin_run(state, run) or _admitted(request, run, state)
        assert known is not None, "a run is never taken out of a journal"
        if request.resume_failed:
            _requeue_failed(state)
        opened.pop_all()  # closed by the writer thread from now on
    return known, output, errors


def _identity(request: RunRequest, source: InputFile) -> RunIdentity:
    graph, graph_at = graph_names(request.target)
    return RunIdentity(
        graph=graph,
        graph_at=graph_at,
        input=source.path,
        sha256=source.sha256,
        size=source.size,
        format=source.form,
        thread_key=source.thread_key,
    )


def _admitted(request: RunRequest, run: RunIdentity, state: SyncState) -> RunIdentity | None:
    """Return the run of the journal, if ``run`` may resume it; None if there is none.

    Raises:
        JournalMismatchError: It is another run, or was begun and is not to be resumed.
    """
    known = find_run(state)
    if known is None:
        return None
    check_same(request.location.name, known, run)
    if not request.resume:
        raise JournalMismatchError(
            f"the journal {request.location.name} has a run already, begun {known.begun}; add "
            "--resume to continue it, or to share it with other processes"
        )
    return known


def _opened(
    path: str | None, request: RunRequest, *, again: bool, stack: contextlib.ExitStack
) -> Output | None:
    if path is None:
        return None
    output = open_output(path, request.paths.stdout, again=again)
    stack.callback(output.close)
    return output


def _requeue_failed(state: SyncState) -> None:
    count = state.requeue(QUEUE)
    print_stderr(f"requeued {count:,} failed message{'' if count == 1 else 's'}")
