"""A real behave over a small features directory of its own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from support.cli.command import DEADLINE

FEATURES = Path(__file__).resolve().parents[2]

ENVIRONMENT = """
from support.controls.expected_failure import honour_expected_failures

def before_all(context):
    honour_expected_failures()

def after_scenario(context, scenario):
    if "a hook failing" in scenario.name:
        raise RuntimeError("from the hook")
"""

STEPS = """
from behave import step
from behave.api.pending_step import StepNotImplementedError

@step("it passes")
def step_it_passes(context):
    pass

@step("it fails an assertion")
def step_it_fails_an_assertion(context):
    assert 1 == 2, "one is not two"

@step("it raises an error")
def step_it_raises_an_error(context):
    raise RuntimeError("from the step")

@step("it is pending")
def step_it_is_pending(context):
    raise StepNotImplementedError("later")

@step("its cleanup will fail")
def step_its_cleanup_will_fail(context):
    context.add_cleanup(lambda: 1 / 0)
"""


@dataclass(frozen=True)
class Outcome:
    exit_status: int
    output: str
    verdicts: Counter[str]
    failures_in_junit: int


def run(feature: str, directory: Path) -> Outcome:
    (directory / "steps").mkdir(parents=True)
    (directory / "steps" / "steps.py").write_text(STEPS, encoding="utf-8")
    (directory / "environment.py").write_text(ENVIRONMENT, encoding="utf-8")
    (directory / "inner.feature").write_text(feature, encoding="utf-8")
    command = [sys.executable, "-m", "behave", "--no-color", "--junit", "."]
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(FEATURES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    cases = list(_cases(directory / "reports"))
    return Outcome(
        exit_status=done.returncode,
        output=done.stdout,
        verdicts=Counter(case.attrib["status"] for case in cases),
        failures_in_junit=sum(
            case.find("failure") is not None or case.find("error") is not None for case in cases
        ),
    )


def _cases(reports: Path) -> Iterable[ElementTree.Element]:
    for report in reports.glob("*.xml"):
        yield from ElementTree.parse(report).iter("testcase")
