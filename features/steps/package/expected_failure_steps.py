from __future__ import annotations

import re
import tempfile
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

from support.cli import inner_behave

# What a title says, and the steps that do it.
STEPS = {
    "passes": ["it passes"],
    "fails an assertion": ["it fails an assertion"],
    "raises an error": ["it raises an error"],
    "is not defined": ["it is not written"],
    "is pending": ["it is pending"],
    "fails an assertion, the next being not defined": [
        "it fails an assertion",
        "it is not written",
    ],
    "fails an assertion, a hook failing after it": ["it fails an assertion"],
    "fails an assertion, a cleanup failing after it": [
        "its cleanup will fail",
        "it fails an assertion",
    ],
}
TAG = "@tdd_expected_fail\n"


def scenario(kind: str) -> str:
    steps = "".join(f"    * {step}\n" for step in STEPS[kind])
    return f"  Scenario: {kind}\n{steps}"


@given("a scenario without the tag whose step {kind}")
def step_a_scenario_without_the_tag_whose_step_kind(context: Context, kind: str) -> None:
    context.feature_text = "Feature: inner\n" + scenario(kind)


@given("a scenario with the tag whose step {kind}")
def step_a_scenario_with_the_tag_whose_step_kind(context: Context, kind: str) -> None:
    context.feature_text = f"Feature: inner\n{TAG}{scenario(kind)}"


@given("a feature with the tag whose scenarios fail an assertion, pass, and fail an assertion")
def step_a_feature_with_the_tag_whose_scenarios_fail_an_assertion(context: Context) -> None:
    kinds = "fails an assertion", "passes", "fails an assertion"
    context.feature_text = f"{TAG}Feature: inner\n" + "".join(map(scenario, kinds))


@when("behave runs it")
def step_behave_runs_it(context: Context) -> None:
    with tempfile.TemporaryDirectory() as directory:
        context.outcome = inner_behave.run(context.feature_text, Path(directory) / "features")


@then("behave is {colour}, and counts it as {verdict}")
def step_behave_is_colour_and_counts_it_as_verdict(
    context: Context, colour: str, verdict: str
) -> None:
    check_colour(context.outcome, colour)
    check_counts(context.outcome, {verdict: 1})


@then("behave is {colour}, and counts {passed:d} as passed and {failed:d} as failed")
def step_behave_is_colour_and_counts_passed_as_passed_and_failed_as(
    context: Context, colour: str, passed: int, failed: int
) -> None:
    check_colour(context.outcome, colour)
    check_counts(context.outcome, {"passed": passed, "failed": failed})


@then("behave counts 1 step as passed, and 0 as failed")
def step_behave_counts_1_step_as_passed_and_0_as_failed(context: Context) -> None:
    assert in_summary(context.outcome, "step", "passed") == 1, context.outcome.output
    assert in_summary(context.outcome, "step", "failed") == 0, context.outcome.output


def check_colour(outcome: inner_behave.Outcome, colour: str) -> None:
    assert (outcome.exit_status == 0) == (colour == "green"), outcome.output
    red = sum(count for verdict, count in outcome.verdicts.items() if verdict != "passed")
    assert outcome.failures_in_junit == red, outcome


def check_counts(outcome: inner_behave.Outcome, expected: dict[str, int]) -> None:
    assert outcome.verdicts == expected, outcome
    counted = {verdict: in_summary(outcome, "scenario", verdict) for verdict in expected}
    assert counted == expected, outcome.output


def in_summary(outcome: inner_behave.Outcome, what: str, verdict: str) -> int:
    """The count in a line such as ``1 scenario passed, 0 failed, 2 error``."""
    (line,) = re.findall(rf"^\d+ {what}s? passed.*$", outcome.output, re.MULTILINE)
    found = re.search(rf"(\d+) (?:{what}s? )?{verdict}", line)
    return int(found[1]) if found else 0
