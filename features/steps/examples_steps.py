from __future__ import annotations

import csv
import importlib.util
from itertools import groupby

from behave import then, when
from behave.runner import Context
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge
from support import command


@when("the weather example runs over all its days")
def step_impl(context: Context) -> None:
    spec = importlib.util.spec_from_file_location(
        "weather_example", command.ROOT / "examples" / "weather.py"
    )
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    with command.imported("weather_example", example):
        spec.loader.exec_module(example)
        with RxPyLangGraphBridge() as bridge:
            stream = example.months(bridge, example.rows())
            context.months = stream.pipe(ops.to_list()).run()


@then(
    "its {count:d} months have the days, rain and longest dry spell that plain Python finds in "
    "the file"
)
def step_impl(context: Context, count: int) -> None:
    path = command.ROOT / "examples" / "data" / "seattle-weather.csv"
    expected = {}
    with path.open(newline="") as file:
        for month, days in groupby(csv.DictReader(file), key=lambda row: row["date"][:7]):
            rain = [float(row["precipitation"]) for row in days]
            total = 0.0
            for fallen in rain:  # not sum(), which is more exact from Python 3.12 on
                total += fallen
            spells = groupby(rain, key=lambda fallen: fallen == 0)
            dry = max(len(list(spell)) if is_dry else 0 for is_dry, spell in spells)
            expected[month] = (len(rain), total, dry)
    found = {
        result.thread_id: tuple(
            result.content[key] for key in ("days", "rain", "longest_dry_spell")
        )
        for result in context.months
    }
    assert len(expected) == len(context.months) == count
    assert found == expected, {m: (found.get(m), expected[m]) for m in expected}
