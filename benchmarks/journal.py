"""What a journal costs: `rxlanggraph run --journal` over the same command without one."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rxlanggraph.cli import main

from .harness import Ratio, paired
from .servers import SERVERS

#: Each with how many times as long a trivial function may take.
BACKENDS = {"sqlite": 4.0, "redis": 5.0, "postgresql": 6.0}
_LINES = 50_000
_SLOW_LINES = 20_000

_PEAK = """
import sys
from rxlanggraph.cli import main
assert main(sys.argv[1:]) == 0
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


async def trivial(content: Any) -> Any:
    """Take no time: what is measured is the command, and its journal."""
    return content["n"]


async def slow(content: Any) -> Any:
    """Take 20 ms, as a fast graph does that calls a server."""
    await asyncio.sleep(0.02)
    return content["n"]


class Bench(contextlib.ExitStack):
    """A folder with an input, and a place for journals."""

    def __init__(self, backend: str, lines: int) -> None:
        super().__init__()
        self._numbers = itertools.count()
        self._folder = Path(self.enter_context(tempfile.TemporaryDirectory()))
        # Not on one core, as elsewhere: its calls are few.
        self._url = f"sqlite:///{self._folder}/state.db"
        if backend != "sqlite":
            self._url = self.enter_context(SERVERS[backend]())
        self._lines = lines
        with (self._folder / "in.jsonl").open("w") as file:
            file.writelines(f'{{"n": {n}}}\n' for n in range(lines))

    def arguments(self, function: str, *options: str, journal: bool) -> list[str]:
        """Return those of the command; with a journal, a new one."""
        here = f"{__name__}:{function}"
        paths = ["-i", str(self._folder / "in.jsonl"), "-o", str(self._folder / "out.jsonl")]
        return ["run", here, *paths, "--quiet", *options, *(self._new_journal() if journal else [])]

    def _new_journal(self) -> list[str]:
        name = f"run{next(self._numbers)}"
        if self._url.startswith("sqlite:"):
            return ["--journal", self._url.replace("state.db", f"{name}.db")]
        return ["--journal", f"{self._url}#{name}"]

    def run(self, function: str, *options: str, journal: bool) -> None:
        """Run the command, and insist that it has answered each line once."""
        output = self._folder / "out.jsonl"
        output.unlink(missing_ok=True)  # what a journal has written is not overwritten without one
        with contextlib.redirect_stderr(io.StringIO()) as told:
            status = main(self.arguments(function, *options, journal=journal))
        records = output.read_bytes().count(b"\n")
        if status != 0 or records != self._lines:
            raise AssertionError(f"{status}, {records} of {self._lines}: {told.getvalue()}")

    def peak(self) -> int:
        """Return the most memory of a process that runs it with a journal, in kB. Linux only."""
        arguments = self.arguments("trivial", journal=True)
        # Not the maxrss of rusage: that of the process which has started this one is part of it.
        done = subprocess.run(
            [sys.executable, "-c", _PEAK, *arguments], capture_output=True, text=True, check=True
        )
        return int(done.stdout)


def ratio(backend: str, *, lines: int = _LINES, pairs: int = 5) -> Ratio:
    """A trivial function with a journal over one without."""
    with Bench(backend, lines) as bench:
        return paired(
            lambda: bench.run("trivial", journal=True),
            lambda: bench.run("trivial", journal=False),
            pairs=pairs,
            items=lines,
        )


def slow_ratio(backend: str, *, lines: int = _SLOW_LINES, pairs: int = 5) -> Ratio:
    """A function of 20 ms, 64 at once, with a journal over one without."""
    with Bench(backend, lines) as bench:
        return paired(
            lambda: bench.run("slow", "-j", "64", journal=True),
            lambda: bench.run("slow", "-j", "64", journal=False),
            pairs=pairs,
            items=lines,
        )


def memory_ratio(lines: int) -> float:
    """The peak memory of a run over so many lines, over that of a tenth of them, in SQLite."""
    with Bench("sqlite", lines) as many, Bench("sqlite", lines // 10) as few:
        return many.peak() / few.peak()


class Journal:
    """The command with a journal over the command without."""

    params = list(BACKENDS)
    param_names = ("backend",)
    timeout = 900
    unit = "ratio"

    def track_trivial(self, backend: str) -> float:
        return ratio(backend, lines=5_000, pairs=1).value

    def track_slow(self, backend: str) -> float:
        return slow_ratio(backend, lines=3_200, pairs=1).value
