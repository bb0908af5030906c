from __future__ import annotations

import ast
import contextlib
import io
import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import quote

import psycopg
import redis
from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli.journal.location import parse_location
from rxlanggraph.testing.state_conformance.__main__ import main
from support.cli import command
from support.concurrency.patching import patch
from support.servers import servers, valkey_server


def content(context: Context) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in context.folder.iterdir() if path.is_file()}


def sqlite_file(path: Path, mode: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE accounts (name TEXT)")


OTHERS = {
    "another program's SQLite file": lambda path: sqlite_file(path, "DELETE"),
    "another program's SQLite file in WAL": lambda path: sqlite_file(path, "WAL"),
    "an empty file": Path.touch,
    "no file": lambda _: None,
}


@given("a name that is too long for a file")
def step_a_name_that_is_too_long_for_a_file(context: Context) -> None:
    context.journal = "x" * 300


@given('{what}, called "{name}"')
def step_what_called_name(context: Context, what: str, name: str) -> None:
    OTHERS[what](context.folder / name)
    context.found = content(context)


@given('"{name}" leads to "{other}"')
def step_name_leads_to_other(context: Context, name: str, other: str) -> None:
    (context.folder / name).symlink_to(other)


@then("the folder is as it was")
def step_the_folder_is_as_it_was(context: Context) -> None:
    before = getattr(context, "found", None)
    now = content(context)
    if before is None:
        assert sorted(now) == ["good.jsonl", "graphs.py"], sorted(now)
    else:
        assert now == before, sorted(now)


@when("I ask for the status of an empty database of PostgreSQL")
def step_i_ask_for_the_status_of_an_empty_database_of_postgresql(context: Context) -> None:
    context.url = servers.fresh_url(context, "PostgreSQL")
    context.ended = command.run_here(
        f"rxlanggraph status '{context.url}'", context.folder, io.BytesIO()
    )


@then("the database is still empty")
def step_the_database_is_still_empty(context: Context) -> None:
    with psycopg.connect(context.url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'rxlanggraph%'"
        ).fetchone()
    assert row == (0,), row


@given("the folder cannot be written to")
def step_the_folder_cannot_be_written_to(context: Context) -> None:
    forbid_writing(context, context.folder)


@given('"{name}" cannot be written to')
def step_name_cannot_be_written_to(context: Context, name: str) -> None:
    forbid_writing(context, context.folder / name)


def forbid_writing(context: Context, forbidden: Path) -> None:
    """As `os.access` tells it: to the user root nothing else is forbidden."""
    access, connect = os.access, sqlite3.connect
    context.written: list[str] = []

    def to_be_read(path: Any, mode: int, **options: Any) -> bool:
        return Path(path) != forbidden and access(path, mode, **options)

    def connected(path: Any, *args: Any, **options: Any) -> sqlite3.Connection:
        if "mode=ro" not in str(path):
            context.written.append(str(path))
        return connect(path, *args, **options)

    patch(context, os, "access", to_be_read)
    patch(context, sqlite3, "connect", connected)


@then("SQLite was opened elsewhere alone")
def step_sqlite_was_opened_elsewhere_alone(context: Context) -> None:
    assert context.written
    folders = {Path(path).parent for path in context.written}
    assert context.folder not in folders, folders


@then('there is a file "{name}" and none called "{other}"')
def step_there_is_a_file_name_and_none_called_other(
    context: Context, name: str, other: str
) -> None:
    names = set(content(context))
    assert name in names and other not in names, names


# -- passwords -------------------------------------------------------------------------------------


@then('nothing that was said has "{one}" or "{other}"')
def nothing_said_has(context: Context, one: str, other: str) -> None:
    said = context.ended.out + context.ended.err
    assert said and one not in said and other not in said, said


@then('no file is named after "{url}"')
def no_file_is_named_after(context: Context, url: str) -> None:
    assert not set(content(context)) - {"good.jsonl", "graphs.py", "out.jsonl"}, content(context)


@then("the exit status is not 0")
def exit_status_is_not_0(context: Context) -> None:
    assert context.ended.status in (2, 5), context.ended


@then('standard error does not say "{text}"')
def standard_error_does_not_say(context: Context, text: str) -> None:
    assert text not in context.ended.err, context.ended.err


@then("while it ran, each file of the journal had the mode 0600")
def each_file_of_the_journal_had_the_mode(context: Context) -> None:
    modes = ast.literal_eval((context.folder / "modes").read_text())
    assert set(modes) >= {"j", "j-wal", "j-shm"} and set(modes.values()) == {0o600}, modes


@given('a server with a user whose password is "{password}"')
def server_with_a_user(context: Context, password: str) -> None:
    url = valkey_server.fresh_url()
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        client.execute_command("ACL", "SETUSER", "worker", "on", f">{password}", "~*", "+@all")
    context.password = password
    context.journal = url.replace("://", "://worker@")
    context.whole = url.replace("://", f"://worker:{quote(password, safe='')}@")


@given("the password is in {where}")
def password_is_in(context: Context, where: str) -> None:
    password = context.password = getattr(context, "password", "p@ss/w#rd%?&")
    file = Path(tempfile.mkdtemp()) / "password"
    file.write_text(f"{password}\n")
    context.add_cleanup(shutil.rmtree, file.parent)
    variable, of_file = "RXLANGGRAPH_JOURNAL_PASSWORD", "RXLANGGRAPH_JOURNAL_PASSWORD_FILE"
    patched = mock.patch.dict(
        os.environ,
        {
            variable: {variable: password},
            f"the file of {of_file}": {of_file: str(file)},
            "both variables": {variable: password, of_file: str(file)},
            "a file that is not there": {of_file: "nowhere"},
        }[where],
    )
    patched.start()
    context.add_cleanup(patched.stop)


@then('the journal "{url}" is at "{whole}"')
def journal_is_at(context: Context, url: str, whole: str) -> None:
    password = quote(context.password, safe="")
    assert parse_location(url).url == whole.format(password=password), parse_location(url)


@given("psycopg finds no libpq")
def step_psycopg_finds_no_libpq(context: Context) -> None:
    gone = ("psycopg", "rxlanggraph.state.backends.sql.postgresql")
    kept = {name: module for name, module in sys.modules.items() if not name.startswith(gone)}
    hidden = dict.fromkeys(("psycopg_c", "psycopg_binary"))
    patched = mock.patch.dict(sys.modules, {**kept, **hidden}, clear=True)
    patched.start()
    context.add_cleanup(patched.stop)
    finding = mock.patch("ctypes.util.find_library", return_value=None)
    finding.start()
    context.add_cleanup(finding.stop)


@given("a conformance check that fails")
def step_a_conformance_check_that_fails(context: Context) -> None:
    async def failing(_: object) -> None:
        raise AssertionError("not as the contract says")

    patch(context, sys.modules[main.__module__], "conformance_checks", lambda: [failing])


@when('the conformance checks are run with "{arguments:Text}"')
def step_the_conformance_checks_are_run_with_arguments(context: Context, arguments: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            context.status = main(arguments.split())
        except SystemExit as ended:
            context.status = ended.code
    context.err = err.getvalue()


@then('they end with status {status:d}, and say "{remedy:Text}"')
def step_they_end_with_status_status_and_say_remedy(
    context: Context, status: int, remedy: str
) -> None:
    assert context.status == status, context.err
    assert remedy in context.err, context.err
