from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from behave import given, register_type, then, when
from behave.runner import Context

from rxlanggraph.cli.pipeline import supervisor
from support.cli import command
from support.concurrency.patching import patch
from support.step_types import one_of

HASTY = (
    "import sys; from rxlanggraph.cli import main; from rxlanggraph.cli.pipeline import job;"
    "job._CANCEL_SECONDS = job.CLOSE_SECONDS = 0.1; sys.exit(main())"
)
# Slow: nothing that it is asked for ends before the gate opens.
SLOW_DISK = """
import sys
from rxlanggraph.cli import main
from rxlanggraph.state.backends.sql.sqlite.session import SqliteSession

query = SqliteSession.query

def query_slowly(self, *arguments, **named):
    print("started", file=sys.stderr, flush=True)
    with open("gate") as gate:
        gate.read()
    return query(self, *arguments, **named)

SqliteSession.query = query_slowly
sys.exit(main())
"""
# A line that waits cannot be seen from outside.
TELLING = """
import sys
from rxlanggraph.cli import main
from rxlanggraph.cli.pipeline import limits

wait = limits.RateLimiter.wait

def wait_and_tell(self, ended):
    print("its turn is to come", file=sys.stderr, flush=True)
    return wait(self, ended)

limits.RateLimiter.wait = wait_and_tell
sys.exit(main())
"""
CHANGES = {
    "cancelling is given up after a moment": HASTY,
    "its disk is slow": SLOW_DISK,
    "it tells of each line that has to wait for its turn": TELLING,
}
register_type(Change=one_of(CHANGES))


@given('"{line}" is running on lines that stay open')
def step_line_is_running_on_lines_that_stay_open(context: Context, line: str) -> None:
    """Prepare; it starts with the next step, so that another may change how."""
    context.line = line
    context.lines = context.text.encode()
    context.start = (*command.COMMAND, *command.arguments(line))
    gate = context.folder / "gate"
    if not gate.exists():
        os.mkfifo(gate)


@given("{change:Change}")
def step_change(context: Context, change: str) -> None:
    context.start = (sys.executable, "-c", CHANGES[change], *command.arguments(context.line))


@when("{count:d} lines have had to wait for their turn")
def step_count_lines_have_had_to_wait_for_their_turn(context: Context, count: int) -> None:
    for _ in range(count):
        read_until(context, "its turn is to come")


@when("it has written {records:d} record and started {runs:d} run")
@when("it has written {records:d} records and started {runs:d} run")
@when("it has written {records:d} record and started {runs:d} runs")
def step_it_has_written_records_record_and_started_runs_run(
    context: Context, records: int, runs: int
) -> None:
    context.process = subprocess.Popen(
        context.start,
        cwd=context.folder,
        env=command.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    context.add_cleanup(end, context.process)
    context.process.stdin.write(context.lines.decode() + "\n" if context.lines else "")
    context.process.stdin.flush()
    context.records = [json.loads(context.process.stdout.readline()) for _ in range(records)]
    context.err = ""
    for _ in range(runs):
        read_until(context, "started")


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        stream.close()


def read_until(context: Context, text: str) -> None:
    """Read standard error, line by line, until one has ``text``; the deadline is the scenario's."""
    while line := context.process.stderr.readline():
        context.err += line
        if text in line:
            return
    raise AssertionError(f"it never said {text!r}: {context.err}")


@when("it gets SIG{name}")
def step_it_gets_sig_name(context: Context, name: str) -> None:
    context.process.send_signal(signal.Signals[f"SIG{name}"])


@then('it says "{text}"')
def step_it_says_text(context: Context, text: str) -> None:
    if text not in context.err:
        read_until(context, text)


@when("the waiting run is let go")
def step_the_waiting_run_is_let_go(context: Context) -> None:
    (context.folder / "gate").write_text("")


@then("it ends with status {status:d}")
def step_it_ends_with_status_status(context: Context, status: int) -> None:
    # Its standard input is still open: it must not wait for that.
    context.err += context.process.stderr.read()
    context.records += [json.loads(line) for line in context.process.stdout]
    assert context.process.wait(command.DEADLINE) == status, (context.process, context.err)


@then("its records are")
def step_its_records_are(context: Context) -> None:
    found = {(str(record["line"]), record["status"]) for record in context.records}
    assert found == {(row["line"], row["status"]) for row in context.table}, context.records
    assert len(found) == len(context.records)


@then("it printed no traceback")
def step_it_printed_no_traceback(context: Context) -> None:
    for sign in ("Traceback", "Exception ignored", "Fatal"):
        assert sign not in context.err, context.err


@then('it has said "{one}", "{other}" and nothing else')
def step_it_has_said_one_other_and_nothing_else(context: Context, one: str, other: str) -> None:
    assert context.err.split("\n") == [one, "", other, ""], context.err


@when("a run that takes in a line whenever something is printed gets SIG{name}")
def step_a_run_that_takes_in_a_line_whenever_something_is_printed(
    context: Context, name: str
) -> None:
    context.taken, context.printed, stopped = 2, [], []

    def print_and_take_in(text: str) -> None:
        context.printed.append(text)
        if not stopped:
            context.taken += 1

    def work() -> None:
        signal.raise_signal(signal.Signals[f"SIG{name}"])
        supervised.post(supervised.end)

    patch(context, supervisor, "print_stderr", print_and_take_in)
    supervised = supervisor.Supervisor(
        stop=lambda: stopped.append(True),
        drain=lambda: None,
        cancel=lambda: None,
        open_lines=lambda: context.taken,
    )
    try:
        supervised.run(work, update=lambda: None)
    finally:
        supervised.release()


@then("the lines that it says to be on the way are all that it has taken in")
def step_the_lines_that_it_says_are_all(context: Context) -> None:
    (text,) = context.printed
    assert text.startswith(f"draining: {context.taken} lines are not answered yet"), text
