"""What scenarios about runs with a journal share: damage, files, and the naive way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.cli import command

__all__ = ["DAMAGE", "go_on_naively", "killed", "killed_beside", "killed_everywhere", "lines_of"]


# -- killing -----------------------------------------------------------------------------------


def killed(line: str, folder: Path, when: str, effect: str, time: int) -> int:
    """Run the command line in a process that kills itself there; return its status and pid."""
    return _run([*("at", when, effect, str(time)), *command.arguments(line)], folder).returncode


def killed_everywhere(line: str, folder: Path, expected: list[Any]) -> dict[str, Any]:
    """Run it again and again, killed at each of its steps, and resumed."""
    return _kills(["everywhere", json.dumps(expected), *command.arguments(line)], folder)


def killed_beside(line: str, folder: Path) -> dict[str, Any]:
    """Run it again and again, beside one that puts back what has failed, killed at each step."""
    return _kills(["beside", *command.arguments(line)], folder)


def _kills(arguments: list[str], folder: Path) -> dict[str, Any]:
    done = _run(arguments, folder)
    assert done.returncode == 0, done
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    with subprocess.Popen(
        [sys.executable, "-m", "support.cli.kills", *arguments],
        cwd=folder,
        env=command.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what it has forked too
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


# -- outputs -------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[int]:
    """The lines of the records in a file, each of which must be whole."""
    text = path.read_text("utf-8")
    assert not text or text.endswith("\n"), "the last line is cut off"
    return [json.loads(line)["line"] for line in text.splitlines()]


def _append(what: bytes) -> Callable[[Path], None]:
    def append(path: Path) -> None:
        path.write_bytes(path.read_bytes() + what)

    return append


def _changed(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))

    return rewrite


def _of_another_run(records: list[bytes]) -> list[bytes]:
    last = json.loads(records[-1])
    return [*records[:-1], json.dumps(last | {"id": "other-4"}).encode() + b"\n"]


DAMAGE: dict[str, Callable[[Path], None]] = {
    "half a record": _append(b'{"line": 4, "id": "'),
    "half a record without it": _changed(lambda records: [*records[:-1], records[-1][:30]]),
    "a record twice": _changed(lambda records: [*records, records[1]]),
    "a record of another run": _changed(_of_another_run),
    "an invalid line": _append(b"nonsense\n"),
    "a number": _append(b"4\n"),
    "bytes that are not UTF-8": _append(b"\xff\xfe\n"),
    "a line of no number": _append(b'{"line": "4", "status": "ok"}\n'),
    "a gap before": _changed(lambda records: [records[0], *records[2:]]),
}


# -- the naive way -------------------------------------------------------------------------------


class Killed(Exception):
    """The naive way was killed."""


def go_on_naively(numbers: list[int], output: Path, killed_at: int | None) -> None:
    """Write an answer for each number, behind those that are in the output already."""
    done = len(output.read_text().splitlines()) if output.exists() else 0
    with output.open("a") as file:
        for position, number in enumerate(numbers[done:], start=done + 1):
            record = json.dumps({"line": position, "content": number}) + "\n"
            if position == killed_at:
                file.write(record[: len(record) // 2])
                raise Killed
            file.write(record)
