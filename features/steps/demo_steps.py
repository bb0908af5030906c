from __future__ import annotations

import contextlib
import csv
import io
import re
from dataclasses import replace
from typing import Any

from behave import given, then, when
from behave.runner import Context

from rxlanggraph.cli import main
from rxlanggraph.cli.demo import workload
from support import command, patching


@given("a bridge that loses one update")
def step_impl(context: Context) -> None:
    honest = workload.through_bridge

    def lossy(messages: Any) -> workload.Tally:
        return replace(honest(messages), lost=1)

    patching.patch(context, workload, "through_bridge", lossy)


@when("the demo runs over {count:d} airports")
def step_impl(context: Context, count: int) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        context.status = main(["demo", "--messages", str(count)])
    context.err = err.getvalue()
    _, context.plain, context.bridge = re.split(
        "Plain asyncio:|Through the bridge:", out.getvalue()
    )


@then("its exit status is {status:d}")
def step_impl(context: Context, status: int) -> None:
    assert context.status == status, context.bridge


@then("it reports lost updates for plain asyncio")
def step_impl(context: Context) -> None:
    match = re.search(r"lost updates   ([\d,]+) of", context.plain)
    assert match and int(match[1].replace(",", "")) > 0, context.plain


@then('it reports "{one}" and "{other}" for the bridge')
def step_impl(context: Context, one: str, other: str) -> None:
    assert one in context.bridge and other in context.bridge, context.bridge


@then("it reports the speed of both")
def step_impl(context: Context) -> None:
    for text in (context.plain, context.bridge):
        assert re.search(r"[\d,]+ messages/s \(\d+\.\d s\)", text), text


@then("it asks to report the defect")
def step_impl(context: Context) -> None:
    assert "please report it" in context.err, context.err


@then('the demo\'s airports are the columns "{one}" and "{other}" of the example\'s file')
def step_impl(context: Context, one: str, other: str) -> None:
    path = command.ROOT / "examples" / "data" / "airports.csv"
    with path.open(newline="") as file:
        rows = [{one: row[one], other: row[other]} for row in csv.DictReader(file)]
    assert len(rows) == 3376
    assert workload.airports() == rows
