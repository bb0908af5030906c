from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state.backends.sql.schema import VERSION
from rxlanggraph.state.backends.sql.sqlite import session
from rxlanggraph.state.backends.sql.sqlite.file import path_of
from rxlanggraph.state.backends.sql.sqlite.session import OpenFiles
from support.concurrency.patching import patch
from support.concurrency.raising import raised
from support.concurrency.tasks import run
from support.state.sqlite_files import (
    count,
    count_after_loss,
    read_while_open,
    version_by_link,
)

NOW = 1_800_000_000_000_000_000
SECOND = 1_000_000_000


class Looks:
    """A folder whose times are made up, and how often files in it are looked at."""

    def __init__(self, context: Context) -> None:
        self.count = 0
        self.changed = self.now = 0
        look = session._is_at

        def is_at(*arguments: object) -> bool:
            self.count += 1
            return look(*arguments)  # type: ignore[arg-type]

        patch(context, session, "_is_at", is_at)
        patch(context, time, "time_ns", lambda: self.now)

        def folder_state(files: OpenFiles) -> object:
            return files._folder and (1, 1, self.changed, self.changed)

        patch(context, OpenFiles, "_folder_state", folder_state)


def folder_of(context: Context) -> Path:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    return Path(folder.name)


# -- given -----------------------------------------------------------------------------------------


@given("a file in a folder that changed {ago:g} seconds ago, at {when}")
def step_a_file_in_a_folder_that_changed_seconds_ago(
    context: Context, ago: float, when: str
) -> None:
    path = folder_of(context) / "file"
    path.touch()
    context.looks = looks = Looks(context)
    looks.changed = NOW + {"a full second": 0, "a fraction of a second": 1_000_000}[when]
    looks.now = looks.changed + round(ago * SECOND)
    context.files = OpenFiles(str(path))


@given("a link to a file in another folder")
def step_a_link_to_a_file_in_another_folder(context: Context) -> None:
    path, link = folder_of(context) / "file", folder_of(context) / "link"
    path.touch()
    link.symlink_to(path)
    context.looks = looks = Looks(context)
    looks.changed, looks.now = NOW + 1, NOW + 60 * SECOND
    context.files = OpenFiles(str(link))


@given("the {file} there is deleted by another program once SQLite has opened it")
def step_the_file_there_is_deleted_by_another_program_once_opened(
    context: Context, file: str
) -> None:
    name = {"database": "__init__", "-wal": "add_log"}[file]
    look = getattr(OpenFiles, name)
    path = Path(path_of(context.url) + file.removeprefix("database"))

    def look_too_late(files: OpenFiles, *arguments: object) -> None:
        path.unlink()
        look(files, *arguments)

    patch(context, OpenFiles, name, look_too_late)


@given("a state has counted there, and the file may only be read from now on")
def step_a_state_has_counted_there_and_the_file_may_only_be_read(context: Context) -> None:
    """As `os.access` tells it: to the user root nothing is forbidden."""
    run(count(context.url))
    access, path = os.access, path_of(context.url)

    def may_only_be_read(at: str | Path, mode: int) -> bool:
        return not (str(at) == path and mode & os.W_OK) and access(at, mode)

    patch(context, os, "access", may_only_be_read)


# -- when ------------------------------------------------------------------------------------------


@when("it is open, its folder does not change for a while, and then the file is {lost}")
def step_it_is_open_its_folder_does_not_change_and_then_the_file_is_lost(
    context: Context, lost: str
) -> None:
    context.error = run(count_after_loss(context.url, lost))


@when("it is checked {times:d} times")
def step_it_is_checked_times(context: Context, times: int) -> None:
    for _ in range(times):
        context.files.check()


@when("the folder changes, and {seconds:d} seconds pass")
def step_the_folder_changes_and_seconds_pass(context: Context, seconds: int) -> None:
    context.looks.changed = context.looks.now + 1
    context.looks.now += seconds * SECOND


@when("the clock goes on by {seconds:g} seconds")
def step_the_clock_goes_on_by_seconds(context: Context, seconds: float) -> None:
    context.looks.now += round(seconds * SECOND)


@when("a state counts there")
def step_a_state_counts_there(context: Context) -> None:
    context.error = run(raised(count(context.url)))


@when("a state counts at {url} after the working directory was deleted")
def step_a_state_counts_at_url_after_the_working_directory_was_deleted(
    context: Context, url: str
) -> None:
    before, folder = Path.cwd(), Path(tempfile.mkdtemp())
    os.chdir(folder)
    folder.rmdir()
    try:
        context.error = run(raised(count(url)))
    finally:
        os.chdir(before)


@when("its version is read by a link in another folder, while a state has it open")
def step_its_version_is_read_by_a_link_in_another_folder(context: Context) -> None:
    context.version = run(version_by_link(context.url, folder_of(context) / "link"))


@when("its counter is read while another program has it open")
def step_its_counter_is_read_while_another_program_has_it_open(context: Context) -> None:
    context.counter = run(read_while_open(context.url))


# -- then ------------------------------------------------------------------------------------------


@then("the file was looked at {times:d} times")
def step_the_file_was_looked_at_times(context: Context, times: int) -> None:
    assert context.looks.count == times, context.looks.count


@then("it is that of this release")
def step_it_is_that_of_this_release(context: Context) -> None:
    assert context.version == VERSION, context.version


@then("no file was left beside it")
def step_no_file_was_left_beside_it(context: Context) -> None:
    path = Path(path_of(context.url))
    assert [*path.parent.iterdir()] == [path], [*path.parent.iterdir()]
