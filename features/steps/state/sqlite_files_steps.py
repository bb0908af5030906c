from __future__ import annotations

import tempfile
import time
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.state.backends.sql.sqlite import open_files
from rxlanggraph.state.backends.sql.sqlite.open_files import OpenFiles
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.state.sqlite_files import count_after_loss

NOW = 1_800_000_000_000_000_000
SECOND = 1_000_000_000


class Looks:
    """A folder whose times are made up, and how often files in it are looked at."""

    def __init__(self, context: Context) -> None:
        self.count = 0
        self.changed = self.now = 0
        look = open_files._is_at

        def is_at(*arguments: object) -> bool:
            self.count += 1
            return look(*arguments)  # type: ignore[arg-type]

        patch(context, open_files, "_is_at", is_at)
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


# -- then ------------------------------------------------------------------------------------------


@then("the file was looked at {times:d} times")
def step_the_file_was_looked_at_times(context: Context, times: int) -> None:
    assert context.looks.count == times, context.looks.count
