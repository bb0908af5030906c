"""Steps that follow docs/tutorial.md: save its files, run its commands, compare what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from behave import given, then, when
from behave.runner import Context

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"
BLOCK = re.compile(r"(?:<!-- (file \S+|run|prints) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)


def sections() -> list[tuple[str, str]]:
    """Title and text of each section, in their order."""
    _, *parts = re.split(r"^## (.*)\n", TUTORIAL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return list(zip(parts[::2], parts[1::2], strict=True))


def blocks(text: str, kind: str) -> list[str]:
    return [content for marker, _, content in BLOCK.findall(text) if marker == kind]


def run(folder: str, command: str) -> subprocess.CompletedProcess[str]:
    # The command and the interpreter of this environment, whatever the PATH has.
    shell = f'rxlanggraph() {{ "{sys.executable}" -m rxlanggraph "$@"; }}\n'
    shell += f'python() {{ "{sys.executable}" "$@"; }}\n'
    return subprocess.run(
        ["bash", "-ec", shell + command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@given('the files of the tutorial up to "{section}", in an empty folder')
def step_the_files_of_the_tutorial_up_to_section(context: Context, section: str) -> None:
    folder = tempfile.TemporaryDirectory()
    context.add_cleanup(folder.cleanup)
    context.folder = folder.name
    for title, text in sections():
        for marker, _, content in BLOCK.findall(text):
            if marker.startswith("file "):
                Path(context.folder, marker.removeprefix("file ")).write_text(content)
        if title == section:
            context.section = text
            return
    raise AssertionError(f"the tutorial has no section {section!r}")


@when("the {count:d} commands of that section run")
def step_the_commands_of_that_section_run(context: Context, count: int) -> None:
    commands = blocks(context.section, "run")
    assert len(commands) == count, commands
    context.finished = [run(context.folder, command) for command in commands]


@then("each prints what the tutorial says, and nothing to standard error")
def step_each_prints_what_the_tutorial_says(context: Context) -> None:
    printed = [(run.returncode, run.stdout, run.stderr) for run in context.finished]
    said = [(0, text, "") for text in blocks(context.section, "prints")]
    assert printed == said, context.finished


@then("the last of them prints nothing when it runs again")
def step_the_last_of_them_prints_nothing_when_it_runs_again(context: Context) -> None:
    again = run(context.folder, blocks(context.section, "run")[-1])
    assert (again.returncode, again.stdout, again.stderr) == (0, "", ""), again


@then("each block of the tutorial is a file, a command or its output, but for the installation")
def step_each_block_of_the_tutorial_is_a_file_a_command_or_its_output(context: Context) -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    found = BLOCK.findall(text)
    assert len(found) == text.count("```") // 2 > 10, len(found)
    unmarked = [content for marker, _, content in found if not marker]
    assert len(unmarked) == 1, unmarked
    assert unmarked[0].splitlines()[-1].startswith("pip install"), unmarked
