from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import queue
import re
import shutil
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.errors import OutputError
from rxlanggraph.cli.formats import readers
from rxlanggraph.cli.formats.readers import InputLine, Source
from rxlanggraph.cli.formats.sinks import Sink
from rxlanggraph.cli.pipeline import progress, writer
from rxlanggraph.cli.pipeline.limits import FailureLimit, RateLimiter
from rxlanggraph.cli.pipeline.line_tracker import LineCounts, LineTracker
from rxlanggraph.cli.pipeline.reader import InputReader
from support.cli import command
from support.concurrency.patching import patch
from support.concurrency.raising import error_of

# -- files and input ----------------------------------------------------------------------------


@given('a folder with the file "{name}"')
def step_a_folder_with_the_file_name(context: Context, name: str) -> None:
    context.folder = Path(tempfile.mkdtemp(prefix="rxlanggraph-"))
    context.add_cleanup(shutil.rmtree, context.folder)
    context.stdin = io.BytesIO()
    write(context, name, context.text.encode())


@given('the file "{name}"')
def step_the_file_name(context: Context, name: str) -> None:
    write(context, name, context.text.encode())


@given('the file "{name}" with the bytes')
def step_the_file_name_with_the_bytes(context: Context, name: str) -> None:
    write(context, name, context.text.encode().decode("unicode_escape").encode("latin-1"))


def write(context: Context, name: str, content: bytes) -> None:
    path = context.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)


@given('{count:d} lines in "{name}", of which each second fails with "divide"')
def step_count_lines_in_name_of_which_each_second_fails_with_divide(
    context: Context, count: int, name: str
) -> None:
    write(context, name, b"".join(b'{"n": %d}\n' % (number % 2) for number in range(count)))


@given("standard input")
def step_standard_input(context: Context) -> None:
    context.stdin = io.BytesIO(context.text.encode())


@given("standard input fails after the line")
def step_standard_input_fails_after_the_line(context: Context) -> None:
    context.stdin = command.FailingInput(context.text.encode() + b"\n")


@given("lines longer than {count:d} bytes count as too long")
def step_lines_longer_than_count_bytes_count_as_too_long(context: Context, count: int) -> None:
    patch(context, readers, "MAX_LINE_BYTES", count)


@given("progress is said at every opportunity")
def step_progress_is_said_at_every_opportunity(context: Context) -> None:
    patch(context, progress, "LINE_EVERY", 0)


@given("an input of {size:d} bytes, and progress that is printed after {seconds:d} seconds")
def step_an_input_of_size_bytes_and_progress_after_seconds(
    context: Context, size: int, seconds: int
) -> None:
    context.now, context.later = 0.0, float(seconds)
    patch(context, progress, "time", SimpleNamespace(monotonic=lambda: context.now))
    context.stderr = io.StringIO()
    with contextlib.redirect_stderr(context.stderr):
        context.reporter = progress.reporter_for(size, quiet=False, output_on_terminal=False)
        context.reporter.update(LineCounts(), 0)


@when(
    "{size:d} bytes, {read:d} lines are read, of which {running:d} are running "
    "and {done:d} are done"
)
def step_bytes_lines_are_read_of_which_running_and_done(
    context: Context, size: int, read: int, running: int, done: int
) -> None:
    context.now = context.later
    counts = LineCounts(read=read, ok=done, open=read - done, bytes_read=size)
    with contextlib.redirect_stderr(context.stderr):
        context.reporter.update(counts, running)


@then('the progress says "{text}"')
def step_the_progress_says_text(context: Context, text: str) -> None:
    assert context.stderr.getvalue() == f"rxlanggraph: {text}\n", context.stderr.getvalue()


@given("writing a record raises an unexpected error")
def step_writing_a_record_raises_an_unexpected_error(context: Context) -> None:
    patch(context, writer, "to_line", mock.Mock(side_effect=RuntimeError("unexpected")))


@given("handing over a message raises an unexpected error")
def step_handing_over_a_message_raises_an_unexpected_error(context: Context) -> None:
    from rxlanggraph.bridge.engine import Engine

    patch(
        context,
        Engine,
        "hand_over",
        mock.Mock(side_effect=RuntimeError("unexpected")),
    )


# -- running -----------------------------------------------------------------------------------


@when('I run "{line}"')
def step_i_run_line(context: Context, line: str) -> None:
    for name in ("journal", "whole"):
        line = line.replace(f"{{{name}}}", getattr(context, name, ""))
    context.ended = command.run_here(line, context.folder, context.stdin)


@when('I run "{line}" on a terminal')
def step_i_run_line_on_a_terminal(context: Context, line: str) -> None:
    context.ended = command.run_on_terminal(line, context.folder)


@when('I run "{line}" with a full standard error')
def step_i_run_line_with_a_full_standard_error(context: Context, line: str) -> None:
    with Path("/dev/full").open("w") as full:
        context.ended = command.run_apart(line, context.folder, stderr=full)


@when('I run "{line}" with a full standard output')
def step_i_run_line_with_a_full_standard_output(context: Context, line: str) -> None:
    with Path("/dev/full").open("w") as full:
        context.ended = command.run_apart(line, context.folder, stdout=full)


@when('I run "{line}" and close its output after one line')
def step_i_run_line_and_close_its_output_after_one_line(context: Context, line: str) -> None:
    context.ended = command.run_into_closed_pipe(line, context.folder)


@when('running "{line}" raises "{text}"')
def step_running_line_raises_text(context: Context, line: str, text: str) -> None:
    try:
        command.run_here(line, context.folder, context.stdin)
    except RuntimeError as error:
        assert str(error) == text, error
    else:
        raise AssertionError("nothing was raised")


@when("I run the example over all airports")
def step_i_run_the_example_over_all_airports(context: Context) -> None:
    line = "rxlanggraph run airports.py:graph --input data/airports.csv --thread-key state"
    output = context.folder / "out.jsonl"
    examples = command.ROOT / "examples"
    context.ended = command.run_here(f"{line} --output {output}", examples, context.stdin)


# -- what came out -----------------------------------------------------------------------------


@then("the exit status is {status:d}")
def step_the_exit_status_is_status(context: Context, status: int) -> None:
    assert context.ended.status == status, context.ended


def records_in(context: Context, name: str) -> list[dict[str, Any]]:
    text = (context.folder / name).read_text("utf-8")
    assert not text or text.endswith("\n"), "the last line is cut off"
    return [json.loads(line) for line in text.splitlines()]


def at(record: dict[str, Any], path: str) -> Any:
    value: Any = record
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def compare(context: Context, records: list[dict[str, Any]]) -> None:
    keys = context.table.headings
    found = [[at(record, key) if record.get(key.split(".")[0]) else None for key in keys]
             for record in records]  # fmt: skip
    expected = [[as_json(cell) for cell in row] for row in context.table]
    order = keys.index("line")
    assert sorted(found, key=lambda row: row[order]) == expected, found


def as_json(cell: str) -> Any:
    try:
        return json.loads(cell)
    except ValueError:
        return cell


@then('"{name}" has these records in any order')
def step_name_has_these_records_in_any_order(context: Context, name: str) -> None:
    compare(context, records_in(context, name))


@then("the output has these records in any order")
def step_the_output_has_these_records_in_any_order(context: Context) -> None:
    compare(context, context.ended.records)


@then('every record in "{name}" has the keys "{keys}"')
def step_every_record_in_name_has_the_keys_keys(context: Context, name: str, keys: str) -> None:
    for record in records_in(context, name):
        assert list(record) == keys.split(", "), record


@then('the output\'s records have the lines "{numbers}"')
def step_the_outputs_records_have_the_lines_numbers(context: Context, numbers: str) -> None:
    found = [record["line"] for record in context.ended.records]
    assert found == [int(number) for number in numbers.split(",")], context.ended


@then("no line about a command is cut off")
def step_no_line_about_a_command_is_cut_off(context: Context) -> None:
    _, _, listed = context.ended.out.partition("\nCommands:\n")
    assert listed, context.ended
    assert "..." not in listed, listed


@then('the output has the headings "{headings}"')
def step_the_output_has_the_headings(context: Context, headings: str) -> None:
    lines = context.ended.out.splitlines()
    found = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert found == headings.split(", "), found


@then("every duration in the output has {places:d} decimal places at most")
def step_every_duration_in_the_output_has_places(context: Context, places: int) -> None:
    durations = re.findall(r'"duration":([0-9.e-]+)', context.ended.out)
    assert len(durations) == len(context.ended.records), context.ended
    for each in durations:
        assert float(each) == round(float(each), places), each


def record_of(records: list[dict[str, Any]], line: int) -> dict[str, Any]:
    (record,) = (record for record in records if record["line"] == line)
    return record


@then('the output\'s record of line {line:d} has the text "{text}" at "{path}"')
def step_the_outputs_record_of_line_line_has_the_text_text_at_path(
    context: Context, line: int, text: str, path: str
) -> None:
    assert at(record_of(context.ended.records, line), path) == text, context.ended


@then('the output\'s record of line {line:d} is "{status}": "{one}" and "{other}"')
def step_the_outputs_record_of_line_line_is_status_one_and_other(
    context: Context, line: int, status: str, one: str, other: str
) -> None:
    record = record_of(context.ended.records, line)
    assert record["status"] == status, record
    assert one in record["error"]["message"], record
    assert other in record["error"]["message"], record


@then('the record of line {line:d} in "{name}" says "{one}" and "{other}"')
def step_the_record_of_line_line_in_name_says_one_and_other(
    context: Context, line: int, name: str, one: str, other: str
) -> None:
    message = record_of(records_in(context, name), line)["error"]["message"]
    assert one in message and other in message, message


@then('the summary says "{one}" and "{other}"')
def step_the_summary_says_one_and_other(context: Context, one: str, other: str) -> None:
    last = context.ended.err.splitlines()[-1]
    assert one in last and other in last, context.ended.err


@then('standard error says "{text}"')
def step_standard_error_says_text(context: Context, text: str) -> None:
    assert text in context.ended.err, context.ended.err


@then('standard error matches "{pattern}"')
def step_standard_error_matches_pattern(context: Context, pattern: str) -> None:
    assert re.search(pattern, context.ended.err, re.DOTALL), context.ended.err


@then("standard error is empty")
def step_standard_error_is_empty(context: Context) -> None:
    assert not context.ended.err, context.ended.err


@then("standard error is")
def step_standard_error_is(context: Context) -> None:
    assert context.ended.err.rstrip() == context.text, context.ended.err


@then("standard error has no traceback")
def step_standard_error_has_no_traceback(context: Context) -> None:
    assert "Traceback" not in context.ended.err, context.ended.err
    assert "Exception ignored" not in context.ended.err, context.ended.err


@then('"{name}" still says "{text}"')
def step_name_still_says_text(context: Context, name: str, text: str) -> None:
    assert (context.folder / name).read_text() == text


@then("it took at least {seconds:g} seconds")
def step_it_took_at_least_seconds_seconds(context: Context, seconds: float) -> None:
    assert context.ended.seconds >= seconds, context.ended


@then('fewer than {count:d} lines were read, each with a record in "{name}" or not run')
def step_fewer_than_count_lines_were_read_each_with_a_record_in(
    context: Context, count: int, name: str
) -> None:
    read, not_run = (
        int(match[1]) if (match := re.search(pattern, context.ended.err)) else -1
        for pattern in (r"read (\d+):", r"(\d+) not run")
    )
    assert 0 < read < count, context.ended.err
    assert len(records_in(context, name)) + not_run == read, context.ended.err


@then("there are {count:d} records, each equal to what plain Python computes from the file")
def step_there_are_count_records_each_equal_to_what_plain_python(
    context: Context, count: int
) -> None:
    path = command.ROOT / "examples" / "airports.py"
    spec = importlib.util.spec_from_file_location("airports_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with command.imported("airports_example", module):
        spec.loader.exec_module(module)
    with (path.parent / "data" / "airports.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    records = sorted(records_in(context, "out.jsonl"), key=lambda record: record["line"])
    assert len(records) == len(rows) == count
    for record, row, expected in zip(records, rows, module.survey(rows), strict=True):
        assert record["content"] == expected, (record, expected)
        assert record["thread_id"] == row["state"] and record["status"] == "ok", record


# -- bounds --------------------------------------------------------------------------------------


@then('the bound "{text}" is {reached} with {failures:d} failures among {finished:d}')
def step_the_bound_text_is_reached_with_failures_failures_among(
    context: Context, text: str, reached: str, failures: int, finished: int
) -> None:
    assert FailureLimit.parse(text).reached(failures, finished) is (reached == "reached")


class Waits(threading.Event):
    """An event that is never set, and remembers for how long it was waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds = timeout or 0.0
        return super().wait(0)


@given('a rate of "{text}" and a clock that stands at 0 s')
def step_a_rate_of_text_and_a_clock_that_stands_at_0_s(context: Context, text: str) -> None:
    context.now = 0.0
    context.rate = RateLimiter(RateLimiter.parse(text).interval, clock=lambda: context.now)


@then("a message may go after these seconds of waiting")
def step_a_message_may_go_after_these_seconds_of_waiting(context: Context) -> None:
    for row in context.table:
        context.now = float(row["the clock"])
        ended = Waits()
        assert context.rate.wait(ended)
        assert abs(ended.seconds - float(row["waits"])) < 1e-9, (row, ended.seconds)


@then("one may not go once the reader has ended")
def step_one_may_not_go_once_the_reader_has_ended(context: Context) -> None:
    ended = threading.Event()
    ended.set()
    assert not context.rate.wait(ended)


# -- the reader ------------------------------------------------------------------------------------


def reader_of(context: Context, numbers: Any, window: int) -> InputReader:
    source = Source("a test", (InputLine(n, "", n, n) for n in numbers), None, io.BytesIO())
    context.failures = []
    return InputReader(
        source,
        LineTracker(),
        window=window,
        rate=None,
        on_invalid=context.failures.append,
        on_failure=context.failures.append,
    )


@given("an input reader with a window of {window:d} over {count:d} lines")
def step_an_input_reader_with_a_window_of_window_over_count_lines(
    context: Context, window: int, count: int
) -> None:
    context.window = window
    context.given_back = 0  # written by this thread, read by the reader: late at worst
    context.ahead = []

    def numbers() -> Any:
        for number in range(1, count + 1):
            context.ahead.append(number - context.given_back)
            yield number

    context.reader = reader_of(context, numbers(), window)


@when("each message's slot is given back as the message arrives")
def step_each_messages_slot_is_given_back_as_the_message_arrives(context: Context) -> None:
    arriving: queue.Queue[Any] = queue.Queue()
    context.arrived = []
    context.reader.messages().subscribe(arriving.put, on_completed=lambda: arriving.put(None))
    held = [arriving.get(timeout=command.DEADLINE) for _ in range(context.window)]
    assert max(context.ahead) == context.window
    while (message := held.pop(0)) is not None:
        context.arrived.append(message.content)
        context.given_back += 1
        context.reader.give_back_slot()
        held.append(arriving.get(timeout=command.DEADLINE))
        if held[-1] is None:
            break
    context.arrived += [message.content for message in held if message]


@then("all {count:d} messages arrive in order, and never were more than {most:d} lines ahead")
def step_all_count_messages_arrive_in_order_and_never_were_more(
    context: Context, count: int, most: int
) -> None:
    assert context.arrived == list(range(1, count + 1)), context.arrived
    assert max(context.ahead) == most, max(context.ahead)
    assert not context.failures, context.failures


@given("an input reader whose observer ends it in the middle of its third message")
def step_an_input_reader_whose_observer_ends_it_in_the_middle_of(context: Context) -> None:
    reader = reader_of(context, range(1, 100), 100)
    context.seen = []
    done = threading.Event()

    def on_next(message: Any) -> None:
        context.seen.append(message.content)
        if message.content == 3:
            ending = threading.Thread(target=reader.end)
            ending.start()
            ending.join()
            context.seen.append("after the end was asked for")

    def on_completed() -> None:
        context.seen.append("completed")
        done.set()

    reader.messages().subscribe(on_next, on_completed=on_completed)
    assert done.wait(command.DEADLINE)


@then("the observer saw three messages and one completion")
def step_the_observer_saw_three_messages_and_one_completion(context: Context) -> None:
    assert context.seen == [1, 2, 3, "after the end was asked for", "completed"], context.seen


# -- disks ---------------------------------------------------------------------------------------


class SmallDisk(io.BytesIO):
    """A file on a disk with so much room, which takes part of a write as the system does."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: Any, /) -> int:
        part = bytes(data)[: self._room]
        if not part:
            raise OSError(28, "No space left on device")
        self._room -= len(part)
        return super().write(part)


class BadClose(io.BytesIO):
    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(5, "Input/output error")


@given("a disk with room for {room:d} bytes more")
def step_a_disk_with_room_for_room_bytes_more(context: Context, room: int) -> None:
    context.disk = SmallDisk(room)


@when("three lines of 4 bytes are written to it")
def step_three_lines_of_4_bytes_are_written_to_it(context: Context) -> None:
    sink = Sink("the output", context.disk, owned=True)
    sink.write(b"111\n")
    sink.write(b"222\n")
    context.error = error_of(lambda: sink.write(b"333\n"))


@then("it has two whole lines")
def step_it_has_two_whole_lines(context: Context) -> None:
    assert context.disk.getvalue() == b"111\n222\n", context.disk.getvalue()


class BreakingPipe(SmallDisk):
    def seekable(self) -> bool:
        return True  # as some devices claim

    def truncate(self, size: int | None = None, /) -> int:
        raise OSError(22, "Invalid argument")

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            raise BrokenPipeError from None


@given("a pipe that breaks after {room:d} bytes")
def step_a_pipe_that_breaks_after_room_bytes(context: Context, room: int) -> None:
    context.disk = BreakingPipe(room)


@given("a disk that reports an error when a file is closed")
def step_a_disk_that_reports_an_error_when_a_file_is_closed(context: Context) -> None:
    context.disk = BadClose()


@then("closing an output says that it could not be written")
def step_closing_an_output_says_that_it_could_not_be_written(context: Context) -> None:
    failures: list[OutputError] = []
    ended = threading.Event()
    job = writer.Writer(
        LineTracker(),
        Sink("the disk", context.disk, owned=True),
        None,
        ordered=False,
        record_of=lambda *_: {},
        on_record=lambda: None,
        on_failure=failures.append,
        on_end=lambda _: ended.set(),
    )
    job.start()
    job.end()
    assert ended.wait(command.DEADLINE)
    assert [str(error) for error in failures] == ["cannot write the disk: Input/output error"]
