from __future__ import annotations

import contextlib
import csv
import io
import sys
from itertools import groupby, pairwise
from typing import Any
from unittest import mock

from behave import then, when
from behave.runner import Context
from reactivex import operators as ops

from rxlanggraph import RxPyLangGraphBridge, StreamMessage
from support.cli import command
from support.cli.examples import example_of
from support.concurrency.tasks import run


@when("the example of shared state has its eight agents work together")
def step_the_example_of_shared_state_has_its_eight_agents_work(context: Context) -> None:
    async def work(example: Any) -> None:
        async with context.open_store() as state:
            context.found = await example.work_together(state)

    with example_of("shared_state") as example:
        run(work(example))
        context.expected = example.survey(example.by_state().items())


@then("the results, the counter and the configuration are those that plain Python finds")
def step_the_results_the_counter_and_the_configuration_are_those(context: Context) -> None:
    with (command.ROOT / "examples" / "data" / "airports.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    farthest = max(rows, key=lambda row: float(row["latitude"]))
    found, configuration = context.found, context.found["configuration"]
    assert len(rows) > 3000 and found["airports"] == len(rows), found["airports"]
    assert found["results"] == context.expected, found["results"]
    assert configuration["northernmost"] == [farthest["iata"], float(farthest["latitude"])]
    assert configuration["agents"] == [f"agent {number}" for number in range(1, 9)]


@when("the weather example runs over all its days")
def step_the_weather_example_runs_over_all_its_days(context: Context) -> None:
    with example_of("weather") as example, RxPyLangGraphBridge() as bridge:
        stream = example.months(bridge, example.rows())
        context.months = stream.pipe(ops.to_list()).run()


@then(
    "its {count:d} months have the days, rain and longest dry spell that plain Python finds in "
    "the file"
)
def step_its_count_months_have_the_days_rain_and_longest_dry_spell(
    context: Context, count: int
) -> None:
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


@when("the tokens example streams the answers about Bern and Rome")
def step_the_tokens_example_streams_the_answers(context: Context) -> None:
    with example_of("tokens") as example, contextlib.redirect_stdout(io.StringIO()) as output:
        example.main()
    context.printed, context.answers = output.getvalue().splitlines(), example.ANSWERS


@then("each answer has grown token by token, and has ended as a whole")
def step_each_answer_has_grown_token_by_token(context: Context) -> None:
    for city, answer in context.answers.items():
        *grown, last = [line for line in context.printed if line.startswith(city)]
        assert last == f"{city}: {answer}", last
        texts = [line.removeprefix(f"{city}... ") for line in grown]
        assert len(texts) >= len(answer.split()), texts
        assert all(later.startswith(text) for text, later in pairwise(texts))


@when("the approvals example runs, with a person who grants what is below {limit:d}")
def step_the_approvals_example_runs_with_a_person_who_grants_what(
    context: Context, limit: int
) -> None:
    asked = []

    def decide(question: StreamMessage) -> bool:
        (interrupt,) = question.interrupts
        asked.append(question.thread_id)
        return bool(interrupt.value["amount"] < limit)

    with example_of("approvals") as example, RxPyLangGraphBridge() as bridge:
        stream = example.refunds(bridge, example.REFUNDS, decide)
        context.results = stream.pipe(ops.to_list()).run()
    context.asked = asked


@then("small refunds were paid without a question, and the others as the person decided")
def step_small_refunds_were_paid_without_a_question_and_the_others(context: Context) -> None:
    paid = {result.thread_id: result.content["paid"] for result in context.results}
    assert paid == {"R1": 20, "R2": 450, "R3": 99, "R4": 0, "R5": 180}, paid
    assert sorted(context.asked) == ["R2", "R4", "R5"], context.asked
    assert all(result.content["notes"] for result in context.results)


@when("the approvals example runs at a console, which answers {answers}")
def step_the_approvals_example_runs_at_a_console_which_answers(
    context: Context, answers: str
) -> None:
    lines = [answer.strip('"') + "\n" for answer in answers.split(", ")]
    console = io.StringIO("".join(lines))
    # One refund at a time, so that the answers belong to them in this order.
    bridge = RxPyLangGraphBridge(max_concurrency=1)
    with (
        example_of("approvals") as example,
        mock.patch.object(sys, "stdin", console),
        mock.patch.object(example, "RxPyLangGraphBridge", lambda: bridge),
        contextlib.redirect_stdout(io.StringIO()) as output,
    ):
        example.main()
    context.printed = output.getvalue()


@then("it prints that {paid}, {refused} and {also} were paid")
def step_it_prints_that_were_paid(context: Context, paid: str, refused: str, also: str) -> None:
    for words in (f"R2: paid {paid}", f"R4: paid {refused}", f"R5: paid {also}"):
        assert words in context.printed, context.printed


@when('the overflow example runs with "{policy}"')
def step_the_overflow_example_runs_with_policy(context: Context, policy: Any) -> None:
    with example_of("overflow") as example:
        context.readings = example.READINGS
        context.evaluated, context.rejected = example.evaluated(policy)


@then("it has evaluated {kept}, and rejected all others")
def step_it_has_evaluated_kept_and_rejected_all_others(context: Context, kept: str) -> None:
    assert context.evaluated == kept.split(), context.evaluated
    assert sorted(context.evaluated + context.rejected) == sorted(context.readings)


@when("the example of tests in virtual time runs")
def step_the_example_of_tests_in_virtual_time_runs(context: Context) -> None:
    with (
        example_of("test_pipeline") as example,
        contextlib.redirect_stdout(io.StringIO()) as output,
    ):
        example.main()
    context.printed = output.getvalue().splitlines()


@then("each of its {count:d} tests has passed")
def step_each_of_its_count_tests_has_passed(context: Context, count: int) -> None:
    assert len(context.printed) == count, context.printed
    assert all(line.endswith(": passed") for line in context.printed), context.printed
