from __future__ import annotations

import asyncio
import bisect
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.formats.sinks import Sink
from rxlanggraph.cli.journal import progress, reader, retry, workers, writer
from rxlanggraph.cli.journal.line_runs import HeldLine, LineRuns
from rxlanggraph.cli.journal.location import NAMESPACE, parse_location
from rxlanggraph.cli.journal.model import QUEUE
from rxlanggraph.cli.journal.output_file import Output
from rxlanggraph.cli.journal.progress import ProgressMonitor
from rxlanggraph.cli.journal.status_report import status_of
from rxlanggraph.cli.pipeline.run_log import RunLog
from rxlanggraph.errors import InvalidArgumentError, StateUnavailableError
from rxlanggraph.messages import StreamMessage
from rxlanggraph.state import Claim, State, SyncState, open_state
from support.cli import command, durable
from support.concurrency.patching import patch
from support.concurrency.raising import error_of
from support.concurrency.tasks import run
from support.concurrency.waiting import LIMIT
from support.servers import servers
from support.servers.valkey_server import LocalValkey

# -- files and places ----------------------------------------------------------------------------


@given('{count:d} lines of {threads:d} threads in "{name}"')
def step_count_lines_of_threads_threads_in_name(
    context: Context, count: int, threads: int, name: str
) -> None:
    lines = (json.dumps({"n": n, "t": str(n % threads)}) for n in range(count))
    (context.folder / name).write_text("\n".join(lines))


@given('{count:d} lines in "{name}", of which each seventh is invalid')
def step_count_lines_in_name_of_which_each_seventh_is_invalid(
    context: Context, count: int, name: str
) -> None:
    lines = ("nonsense" if n % 7 == 0 else '{"n": 1}' for n in range(1, count + 1))
    (context.folder / name).write_text("\n".join(lines))


@given("a journal on {server}")
def step_a_journal_on_server(context: Context, server: str) -> None:
    context.journal = servers.fresh_url(context, server)


@given("no more than {window:d} lines wait to be written, and {chunk:d} are looked for at a time")
def step_no_more_than_window_lines_wait_to_be_written_and_chunk_are(
    context: Context, window: int, chunk: int
) -> None:
    patch(context, writer, "_WINDOW", window)
    patch(context, writer, "_CHUNK", chunk)
    patch(context, writer, "_FIRST_CHUNK", chunk)


@given("every line is added by itself")
def step_every_line_is_added_by_itself(context: Context) -> None:
    patch(context, reader, "_BATCH_LINES", 1)


@given("a server for the journal that takes values of 1 MB")
def step_a_server_for_the_journal_that_takes_values_of_1_mb(context: Context) -> None:
    server = LocalValkey(proto_max_bulk_len="1mb")
    context.add_cleanup(server.close)
    server.start()
    context.journal = server.url


@given('2 lines of 2 MB each in "{name}"')
def step_2_lines_of_2_mb_each_in_name(context: Context, name: str) -> None:
    line = json.dumps({"n": 1, "text": "x" * 2_000_000})
    (context.folder / name).write_text(f"{line}\n{line}\n")


@given("the journal refuses to keep an answer")
def step_the_journal_refuses_to_keep_an_answer(context: Context) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise InvalidArgumentError("permission denied")

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(State, "complete_tasks", refused))
    stack.enter_context(mock.patch.multiple(Claim, complete=refused, fail=refused))
    context.patched = SimpleNamespace(stop=stack.close)


@given("the journal does not answer when one is to be kept")
def step_the_journal_does_not_answer_when_one_is_to_be_kept(context: Context) -> None:
    async def unanswered(state: State, results: Any) -> None:
        raise StateUnavailableError("the server has gone")

    patch(context, retry, "_RETRY_SECONDS", 0.5)
    context.patched = mock.patch.object(State, "complete_tasks", unanswered)
    context.patched.start()


@given('the journal "{name}" has lost its answers')
def step_the_journal_name_has_lost_its_answers(context: Context, name: str) -> None:
    async def lose() -> None:
        location = parse_location(str(context.folder / name))
        async with open_state(location.url, namespace=location.namespace) as state:
            assert await state.purge(QUEUE) == 4

    asyncio.run(lose())


@given("a defect in {part}")
def step_a_defect_in_part(context: Context, part: str) -> None:
    owner, name = {
        "taking over the input": (reader, "task_of"),
        "working": (RunLog, "record_of"),
        "looking how far it is": (progress, "read_progress"),
        "writing": (writer.JournalWriter, "_fill"),
    }[part]
    context.patched = mock.patch.object(owner, name, side_effect=RuntimeError("unexpected"))
    context.patched.start()


@given("the journal answers again")
@given("the defect is mended")
def step_the_journal_answers_again(context: Context) -> None:
    context.patched.stop()


# -- running -----------------------------------------------------------------------------------


def remember_outputs(context: Context) -> None:
    context.before = {path.name: path.read_bytes() for path in context.folder.glob("*.jsonl")}


@given('"{line}" has run')
def step_line_has_run(context: Context, line: str) -> None:
    context.ended = command.run_here(line, context.folder, context.stdin)
    assert context.ended.status in (0, 1), context.ended
    remember_outputs(context)


@when('"{line}" is killed {when}, at time {time:d}')
@given('"{line}" was killed {when}, at time {time:d}')
def step_line_is_killed_when_at_time_time(
    context: Context, line: str, when: str, time: int
) -> None:
    moment = next(known for known in ("before", "in the middle of", "after") if known in when)
    effect = when.removeprefix(moment).strip()
    status = durable.killed(line, context.folder, moment, effect, time)
    assert status == -signal.SIGKILL, f"it ended with {status} instead of being killed"


@when('"{line}" dies {times:d} times')
def step_line_dies_times_times(context: Context, line: str, times: int) -> None:
    for _ in range(times):
        assert command.run_apart(line, context.folder).status == 9


@when('"{line}" runs apart')
def step_line_runs_apart(context: Context, line: str) -> None:
    executor = ThreadPoolExecutor(1)
    context.add_cleanup(executor.shutdown)
    context.apart = executor.submit(command.run_apart, line, context.folder)


@when('once "{name}" is there I run "{line}"')
def step_once_name_is_there_i_run_line(context: Context, name: str, line: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not (context.folder / name).exists():
        assert time.monotonic() < deadline, f"there is no {name}"
        assert not context.apart.done(), context.apart.result()
        time.sleep(0.01)  # another process makes it
    context.ended = command.run_here(line, context.folder, context.stdin)
    assert context.apart.result(LIMIT).status == 0, context.apart.result()


@when("a run over 3 lines is killed at each step in turn, and resumed each time")
@when('a run over 3 lines with "{option}" is killed at each step in turn, and resumed each time')
def step_a_run_over_3_lines_is_killed_at_each_step_in_turn_and(
    context: Context, option: str = ""
) -> None:
    (context.folder / "three.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": 3}\n')
    line = (
        f"rxlanggraph run graphs.py:double -i three.jsonl -o out.jsonl --journal j {option} "
        "--lease 0.2 --max-attempts 1000 --quiet"
    )
    expected = [[1, 2], [2, 4], [3, 6]]
    context.kills = durable.killed_everywhere(line, context.folder, expected)


@when("beside a run, --resume-failed is killed at each step in turn")
def step_beside_a_run_resume_failed_is_killed_at_each_step_in_turn(context: Context) -> None:
    line = (
        "rxlanggraph run graphs.py:held_up -i good.jsonl -o out.jsonl --journal j --lease 0.2 "
        "--max-attempts 1000 --quiet"
    )
    context.kills = durable.killed_beside(line, context.folder)


@then("it was killed more than {times:d} times")
def step_it_was_killed_more_than_times_times(context: Context, times: int) -> None:
    assert context.kills["kills"] > times, context.kills


@then("each time what says that all is well has the records of the journal")
@then("each time every line was answered once, in a whole record")
def step_each_time_what_says_that_all_is_well_has_the_records_of(context: Context) -> None:
    assert context.kills["wrong"] == [], context.kills


@when("the naive way is killed in the middle of its second record, and goes on")
def step_the_naive_way_is_killed_in_the_middle_of_its_second_record(context: Context) -> None:
    output = context.folder / "naive.jsonl"
    with contextlib.suppress(durable.Killed):
        durable.go_on_naively([1, 2, 3, 4], output, killed_at=2)
    durable.go_on_naively([1, 2, 3, 4], output, killed_at=None)


@given('another process writes "{name}"')
def step_another_process_writes_name(context: Context, name: str) -> None:
    file = (context.folder / name).open("ab")
    context.add_cleanup(file.close)
    fcntl.flock(file, fcntl.LOCK_EX)
    context.other = file


@when('I run "{line}", and the other goes when all is answered')
def step_i_run_line_and_the_other_goes_when_all_is_answered(context: Context, line: str) -> None:
    written = context.folder / context.other.name
    refresh = ProgressMonitor.refresh

    async def refresh_and_let_go(monitor: ProgressMonitor) -> None:
        await refresh(monitor)
        if monitor.progress.finished:
            assert written.read_bytes() == b"", "it wrote into what another process writes"
            context.other.close()

    patch(context, ProgressMonitor, "refresh", refresh_and_let_go)
    context.ended = command.run_here(line, context.folder, context.stdin)


@when("an output is opened, then shared with a child, and closed by this process alone")
def step_an_output_is_opened_then_shared_with_a_child_and(context: Context) -> None:
    sink = Sink.open(str(context.folder / "shared"), None)
    context.add_cleanup(os.close, os.dup(sink._stream.fileno()))  # as a fork shares it
    sink.close()


@then("another output can be opened there")
def step_another_output_can_be_opened_there(context: Context) -> None:
    Sink.open(str(context.folder / "shared"), None).close()


@given("the failures are requeued while the last record is written")
def step_the_failures_are_requeued_while_the_last_record_is_written(context: Context) -> None:
    write, written = Output.write, []
    states: list[SyncState] = []
    get = SyncState.get

    def see(state: SyncState, key: str) -> Any:
        states[:] = [state]
        return get(state, key)

    def put_back(output: Output, line: bytes) -> None:
        write(output, line)
        written.append(line)
        if len(written) == 4:
            (context.folder / "mended").touch()
            assert states[0].requeue(QUEUE) == 1
            put.set()

    # The workers stay until that has happened.
    put = threading.Event()
    wait_finished = ProgressMonitor.wait_finished

    async def stay(monitor: ProgressMonitor) -> None:
        while not put.is_set():
            await monitor.refresh()
        await wait_finished(monitor)

    patch(context, SyncState, "get", see)
    patch(context, Output, "write", put_back)
    patch(context, ProgressMonitor, "wait_finished", stay)


@given("the loop of the journal stands still once, until a line that is ahead has run")
def step_the_loop_of_the_journal_stands_still_once_until_a_line(context: Context) -> None:
    begin, context.stood_still = LineRuns.begin, []

    def begin_and_wait(runs: LineRuns, held: HeldLine, message: StreamMessage) -> None:
        begin(runs, held, message)
        if runs.first_ahead is held and not context.stood_still:
            (*_, run) = runs._lines
            context.stood_still.append(run.result(LIMIT).status)  # on the loop of the journal

    patch(context, workers, "_BUSY", 1)
    patch(context, LineRuns, "begin", begin_and_wait)


# -- what came out -----------------------------------------------------------------------------


def numbers_in(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


@then('it stood still, and "{name}" has each of the {count:d} lines once')
def step_it_stood_still_and_name_has_each_of_the_count_lines_once(
    context: Context, name: str, count: int
) -> None:
    assert context.stood_still == ["ok"], context.stood_still
    assert sorted(durable.lines_of(context.folder / name)) == [*range(1, count + 1)]


@then('the lines of "{name}" are "{numbers}" in this order')
def step_the_lines_of_name_are_numbers_in_this_order(
    context: Context, name: str, numbers: str
) -> None:
    found = durable.lines_of(context.folder / name)
    assert found == numbers_in(numbers), found


@then('the lines of "{name}" are "{numbers}" in any order')
def step_the_lines_of_name_are_numbers_in_any_order(
    context: Context, name: str, numbers: str
) -> None:
    found = durable.lines_of(context.folder / name)
    assert sorted(found) == numbers_in(numbers), found


@then('"{name}" has each of the {count:d} lines once')
def step_name_has_each_of_the_count_lines_once(context: Context, name: str, count: int) -> None:
    try:
        found = durable.lines_of(context.folder / name)
    except ValueError as error:
        raise AssertionError("not each line is a record") from error
    assert sorted(found) == list(range(1, count + 1)), found


@then('"{one}" and "{other}" have {good:d} and {bad:d} records, each in order')
def step_one_and_other_have_good_and_bad_records_each_in_order(
    context: Context, one: str, other: str, good: int, bad: int
) -> None:
    found = [durable.lines_of(context.folder / name) for name in (one, other)]
    assert [len(lines) for lines in found] == [good, bad], found
    assert all(lines == sorted(set(lines)) for lines in found), found


@given('"{name}" has got {what} at its end')
def step_name_has_got_what_at_its_end(context: Context, name: str, what: str) -> None:
    path = context.folder / name
    durable.DAMAGE[what](path)
    assert path.read_bytes() != context.before[name]


@then('"{name}" is as it was')
def step_name_is_as_it_was(context: Context, name: str) -> None:
    assert (context.folder / name).read_bytes() == context.before[name]


@then('the record of line {line:d} in "{name}" is another one')
def step_the_record_of_line_line_in_name_is_another_one(
    context: Context, line: int, name: str
) -> None:
    def record(text: bytes) -> Any:
        return next(r for r in map(json.loads, text.splitlines()) if r["line"] == line)

    assert record((context.folder / name).read_bytes()) != record(context.before[name])


@then("the graph ran {times:d} times")
def step_the_graph_ran_times_times(context: Context, times: int) -> None:
    runs = (context.folder / "runs").read_text().splitlines()
    assert len(runs) == times, runs


@then("each thread's lines ran in their order")
def step_each_threads_lines_ran_in_their_order(context: Context) -> None:
    runs = [int(run) for run in (context.folder / "runs").read_text().splitlines()]
    assert sorted(runs) == list(range(30)), runs
    for thread in range(3):
        of_thread = [run for run in runs if run % 3 == thread]
        assert of_thread == sorted(of_thread), of_thread


# -- status --------------------------------------------------------------------------------------


@then('the status of "{where}" counts {counts}')
def step_the_status_of_where_counts_counts(context: Context, where: str, counts: str) -> None:
    with contextlib.chdir(context.folder):
        status = status_of(where.replace("{journal}", getattr(context, "journal", "")))
    for count in counts.split(" and "):
        number, kind = count.split()
        assert status[kind] == int(number), status


@then("it printed these lines")
def step_it_printed_these_lines(context: Context) -> None:
    printed = context.ended.out.splitlines()
    for line in context.text.splitlines():
        assert line in printed, context.ended.out


@then('it printed a line with "{one}" and "{other}"')
def step_it_printed_a_line_with_one_and_other(context: Context, one: str, other: str) -> None:
    lines = (" ".join(line.split()) for line in context.ended.out.splitlines())
    assert any(one in line and other in line for line in lines), context.ended.out


@then("the JSON that it printed has these values")
def step_the_json_that_it_printed_has_these_values(context: Context) -> None:
    found = json.loads(context.ended.out)
    for row in context.table:
        value: Any = found
        for key in row["key"].split("."):
            value = value[key]
        assert value == json.loads(row["value"]), (row["key"], value)


@then("the JSON that it printed names the worker that died with 1 in flight")
def step_the_json_that_it_printed_names_the_worker_that_died_with_1(context: Context) -> None:
    workers = json.loads(context.ended.out)["workers"]
    ((worker, count),) = workers.items()
    assert count == 1, workers
    pid = int(worker.rpartition(":")[2])
    assert pid != os.getpid() and not Path(f"/proc/{pid}/cwd").exists(), worker


@when('"{line}" runs, and gets {signals} once a run has begun')
def step_line_runs_and_gets_signals_once_a_run_has_begun(
    context: Context, line: str, signals: str
) -> None:
    process = subprocess.Popen(
        [*command.COMMAND, *command.arguments(line)],
        cwd=context.folder,
        env=command.environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        for words in ("begun", "draining") if signals == "two Ctrl-Cs" else ():
            assert any(words in each for each in process.stderr)
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=command.DEADLINE)
    assert process.returncode == (130 if signals == "two Ctrl-Cs" else 0)


@then('the journal "{name}" keeps no note of a run that was cut off')
def step_the_journal_name_keeps_no_note_of_a_run_that_was(context: Context, name: str) -> None:
    async def notes() -> list[str]:
        url = f"sqlite:///{context.folder / name}"
        async with open_state(url, namespace=NAMESPACE) as state:
            return [each.key async for each in state.iter_keys("drained:")]

    assert run(notes()) == []


@given('the file "{name}" has lines that are nested up to 20 levels less or more than Python reads')
def step_the_file_name_has_lines_that_are_nested_up_to_20(context: Context, name: str) -> None:
    def is_too_deep(depth: int) -> bool:
        return error_of(lambda: json.loads(nested(depth))) is not None

    most = bisect.bisect_left(range(200_000), True, key=is_too_deep) - 1
    lines = [nested(depth) for depth in range(most - 20, most + 20)]
    (context.folder / name).write_text("\n".join(lines))


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@then('each record in "{name}" is invalid, and says "{words}"')
def step_each_record_in_name_is_invalid_and_says_words(
    context: Context, name: str, words: str
) -> None:
    records = [json.loads(line) for line in (context.folder / name).read_text().splitlines()]
    assert len(records) == 40, records
    assert all(record["status"] == "invalid" for record in records), records
    assert all(words in record["error"]["message"] for record in records), records
