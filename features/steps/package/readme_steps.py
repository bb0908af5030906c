"""Steps that read README.md and run what it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from behave import then, when
from behave.runner import Context

README = Path(__file__).parents[3] / "README.md"


def block(marker: str, document: Path = README) -> str:
    """The fenced block that follows the comment ``marker``."""
    pattern = rf"<!-- {re.escape(marker)} -->\n```\w+\n(.*?)```"
    found = re.search(pattern, document.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, f"{document.name} has no block marked {marker!r}"
    return found[1]


@when("the {example} of {document:S} runs in a process of its own")
def step_the_example_of_document_runs_in_a_process_of_its_own(
    context: Context, example: str, document: str
) -> None:
    context.document = README.parent / document
    run_example(context, context.document, example)


@then("it prints the {output}")
def step_it_prints_the_output(context: Context, output: str) -> None:
    assert context.finished.stdout == block(output, context.document), context.finished.stdout


@when("the example of README.md runs with {found} replaced by {put}")
def step_the_example_of_readme_runs_with_found_replaced_by_put(
    context: Context, found: str, put: str
) -> None:
    code = block("example")
    assert code.count(found) == 1, found
    run_code(context, code.replace(found, put))


@then('it fails, and standard error says "{text}"')
def step_it_fails_and_standard_error_says_text(context: Context, text: str) -> None:
    assert context.finished.returncode == 1, context.finished
    assert text in context.finished.stderr, context.finished


def run_example(context: Context, document: Path, example: str = "example") -> None:
    run_code(context, block(example, document))


def run_code(context: Context, code: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        context.finished = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@then("it succeeds")
def succeeds(context: Context) -> None:
    finished = context.finished
    assert (finished.returncode, finished.stderr) == (0, ""), finished


@then("the README's example has at most {most:d} lines")
def step_the_readmes_example_has_at_most_most_lines(context: Context, most: int) -> None:
    assert len(block("example").splitlines()) <= most


@then('the blocks marked "{markers}" are one line of valid shell each')
def one_line(context: Context, markers: str) -> None:
    for marker in markers.split(", "):
        command = block(marker)
        assert command.count("\n") == 1, command
        subprocess.run(["bash", "-n", "-c", command], check=True, timeout=30)
