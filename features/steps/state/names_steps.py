from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from behave import then, when
from behave.runner import Context

from rxlanggraph.state.backends.sql.sqlite import file as sqlite_file
from support.concurrency.patching import patch
from support.concurrency.tasks import run
from support.state import sql_names


def mounted(context: Context) -> tuple[Callable[[Path], Path], Callable[[Path], None]]:
    """Say that a file is a mount, and that it is none any more: to mount takes a superuser."""
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    mounts = Path(folder.name, "mountinfo")
    patch(context, sqlite_file, "MOUNTS", mounts)

    def mount(path: Path) -> Path:
        mounts.write_text(sql_names.mounted_at(path))
        return path

    return mount, lambda _: mounts.unlink()


def unlink(link: Path) -> None:
    # That of a folder stays: it is gone with what it is in.
    if link.is_symlink() or link.stat().st_nlink > 1:
        link.unlink()


@when("{who} counts to {each:d} by its name, and another one by {name}")
def step_who_counts_to_each_by_its_name_and_another_one_by_name(
    context: Context, who: str, each: int, name: str
) -> None:
    is_mount = name == "a mount of that file"
    ways = mounted(context) if is_mount else (sql_names.NAMES[name], unlink)
    context.counted = run(sql_names.WAYS[who](context.url, *ways, each))


@then("all increments that were acknowledged are counted, {count:d} of them")
def all_acknowledged_are_counted(context: Context, count: int) -> None:
    counted = context.counted
    assert (counted.acknowledged, counted.counted) == (count, count), counted


@then('the other one was told "{what:Text}"')
def the_other_one_was_told(context: Context, what: str) -> None:
    assert what in context.counted.told and bool(what) == bool(context.counted.told)
