"""A run with a journal that kills itself, by SIGKILL, at a chosen step of its work.

    python -m support.cli.kills at WHEN EFFECT COUNT ARGUMENTS...  at one step
    python -m support.cli.kills everywhere ARGUMENTS...          at each step in turn, and resumes
    python -m support.cli.kills beside ARGUMENTS...              at each step in turn, putting back
                                                             what failed in one that goes on

A step is the moment just before or just after something that outlives the process: a change of the
journal or of the output. ``ARGUMENTS`` are those of the command ``rxlanggraph``.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What a run imports as it goes takes longer than its three lines: once, and not in each fork.
import langgraph.graph  # noqa: F401

import rxlanggraph.state.backends.sql.sqlite.database  # noqa: F401
from rxlanggraph.cli import main
from rxlanggraph.cli.formats.sinks import Sink
from rxlanggraph.cli.journal import reader
from rxlanggraph.cli.journal import run as journal_run
from rxlanggraph.cli.journal.output_file import Output
from rxlanggraph.state import Claim, State, SyncState
from support.concurrency.waiting import LIMIT

__all__ = ["EFFECTS"]

EFFECTS: dict[str, tuple[Any, str]] = {
    "the run is begun": (journal_run, "begin_run"),
    "lines are added": (SyncState, "add_tasks"),
    "the ingest is noted": (SyncState, "compare_and_set"),
    "a line is claimed": (State, "claim_tasks"),
    "an answer is kept": (State, "complete_tasks"),
    "a failure is kept": (Claim, "fail"),
    "the output is cut": (Output, "cut"),
    "a record is written": (Sink, "write"),
    "failures are put back": (SyncState, "requeue"),
}
WHEN = ("before", "in the middle of", "after")


class Countdown:
    """Kills the process when enough steps were passed."""

    def __init__(self, count: int, when: str | None = None, effect: str | None = None) -> None:
        self._left = count
        self._only = None if effect is None else (when, effect)
        self._lock = threading.Lock()

    def pass_by(self, when: str, effect: str) -> None:
        if self._only not in (None, (when, effect)):
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Have every effect of this process pass by."""
        for effect, (owner, name) in EFFECTS.items():
            setattr(owner, name, self._watched(effect, getattr(owner, name)))

    def _watched(self, effect: str, call: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(call):

            @functools.wraps(call)
            async def slowly(*args: Any, **kwargs: Any) -> Any:
                self.pass_by("before", effect)
                result = await call(*args, **kwargs)
                self.pass_by("after", effect)
                return result

            return slowly

        @functools.wraps(call)
        def at_once(*args: Any, **kwargs: Any) -> Any:
            self.pass_by("before", effect)
            if call.__name__ == "write":
                self._pass_half(effect, *args)
            result = call(*args, **kwargs)
            self.pass_by("after", effect)
            return result

        return at_once

    def _pass_half(self, effect: str, sink: Any, line: bytes) -> None:
        """Write half of the record; take it back if the process lives on."""
        start = sink._stream.tell()
        sink._stream.write(line[: len(line) // 2])
        self.pass_by("in the middle of", effect)
        sink._stream.seek(start)
        sink._stream.truncate(start)


def forked(arguments: list[str], countdown: Countdown | None) -> int:
    """Run the command in a copy of this process; return its status, negative for a signal."""
    return status_of(fork(arguments, countdown))


def fork(arguments: list[str], countdown: Countdown | None) -> int:
    child = os.fork()
    if child == 0:
        status = 70
        try:
            if countdown is not None:
                countdown.watch()
            status = main(arguments)
        finally:
            os._exit(status)
    return child


def status_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def everywhere(arguments: list[str], expected: list[Any]) -> dict[str, Any]:
    """Kill at the first step, at the second, ...; resume each time, and compare the output."""
    output = Path(arguments[arguments.index("-o") + 1])
    journal = Path(arguments[arguments.index("--journal") + 1])
    wrong = []
    for step in itertools.count(1):
        for file in [output, *journal.parent.glob(f"{journal.name}*")]:
            file.unlink(missing_ok=True)
        killed = forked(arguments, Countdown(step)) == -signal.SIGKILL
        status = forked([*arguments, "--resume"], None)
        found = answers(output)
        if status != 0 or found != expected:
            wrong.append({"step": step, "status": status, "found": found})
        if not killed:
            return {"kills": step - 1, "wrong": wrong}
    raise AssertionError("there is no end to it")


def beside(arguments: list[str]) -> dict[str, Any]:
    """Kill who puts back what has failed at the first step, at the second, ..., beside a writer.

    The graph holds the writer up until the file "open" is there, or what failed runs again.
    """
    output, copy = Path(arguments[arguments.index("-o") + 1]), Path("copy.jsonl")
    journal = Path(arguments[arguments.index("--journal") + 1])
    where = arguments.index("-o")
    without_output = [*arguments[:where], *arguments[where + 2 :], "--no-output"]
    again = [*arguments[:where], "-o", str(copy), *arguments[where + 2 :], "--resume"]
    wrong = []
    for step in itertools.count(1):
        marks = [Path("open"), Path("again"), Path("mended")]
        for file in [output, copy, *marks, *journal.parent.glob(f"{journal.name}*")]:
            file.unlink(missing_ok=True)
        writer = fork(arguments, None)
        wait_for(output, b"ZeroDivisionError")
        Path("mended").touch()
        killed = forked([*without_output, "--resume-failed"], Countdown(step)) == -signal.SIGKILL
        Path("open").touch()
        status, found = status_of(writer), answers(output)
        forked(again, None)
        if (status == 0 and found != answers(copy)) or status not in (0, 1):
            wrong.append({"step": step, "status": status, "found": found, "is": answers(copy)})
        if not killed:
            return {"kills": step - 1, "wrong": wrong}
    raise AssertionError("there is no end to it")


def wait_for(file: Path, text: bytes) -> None:
    deadline = time.monotonic() + LIMIT
    while not (file.exists() and text in file.read_bytes()):
        assert time.monotonic() < deadline, f"there is no {text!r} in {file}"
        time.sleep(0.005)  # another process writes it


def answers(output: Path) -> list[Any]:
    """Return line and content of each record, in the order of the input; raw what is none."""
    try:
        records = [json.loads(line) for line in output.read_text().split("\n")[:-1]]
        return sorted([record["line"], record["content"]] for record in records)
    except (OSError, ValueError, KeyError):
        return [output.exists() and output.read_text()]


if __name__ == "__main__":
    # A killed process's lock of the ingestion is waited for each time.
    reader._LOCK_SECONDS = 0.2
    how, *rest = sys.argv[1:]
    if how == "at":
        moment, what, times, *rest = rest
        Countdown(int(times), moment, what).watch()
        sys.exit(main(rest))
    elif how == "beside":
        print(json.dumps(beside(rest)))
    else:
        print(json.dumps(everywhere(rest[1:], json.loads(rest[0]))))
