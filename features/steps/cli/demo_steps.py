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
from support.cli import command
from support.concurrency import patching


@given("a bridge that loses one update")
def step_a_bridge_that_loses_one_update(context: Context) -> None:
    honest = workload.through_bridge

    def lossy(messages: Any) -> workload.Tally:
        return replace(honest(messages), lost=1)

    patching.patch(context, workload, "through_bridge", lossy)


@when("the demo runs over {count:d} airports")
def step_the_demo_runs_over_count_airports(context: Context, count: int) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        context.status = main(["demo", "--messages", str(count)])
    context.err = err.getvalue()
    _, context.plain, context.bridge = re.split(
        "Plain asyncio:|Through the bridge:", out.getvalue()
    )


@then("its exit status is {status:d}")
def step_its_exit_status_is_status(context: Context, status: int) -> None:
    assert context.status == status, context.bridge


@then("it reports lost updates for plain asyncio")
def step_it_reports_lost_updates_for_plain_asyncio(context: Context) -> None:
    match = re.search(r"lost updates   ([\d,]+) of", context.plain)
    assert match and int(match[1].replace(",", "")) > 0, context.plain


@then('it reports "{one}" and "{other}" for the bridge')
def step_it_reports_one_and_other_for_the_bridge(context: Context, one: str, other: str) -> None:
    assert one in context.bridge and other in context.bridge, context.bridge


@then("it reports the speed of both")
def step_it_reports_the_speed_of_both(context: Context) -> None:
    for text in (context.plain, context.bridge):
        assert re.search(r"[\d,]+ messages/s \(\d+\.\d s\)", text), text


@then("it asks to report the defect")
def step_it_asks_to_report_the_defect(context: Context) -> None:
    assert "please report it" in context.err, context.err


@then('the demo\'s airports are the columns "{one}" and "{other}" of the example\'s file')
def step_the_demos_airports_are_the_columns_one_and_other_of_the(
    context: Context, one: str, other: str
) -> None:
    path = command.ROOT / "examples" / "data" / "airports.csv"
    with path.open(newline="") as file:
        rows = [{one: row[one], other: row[other]} for row in csv.DictReader(file)]
    assert len(rows) == 3376
    assert workload.airports() == rows
