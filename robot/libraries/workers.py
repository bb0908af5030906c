"""Keywords for ``rxlanggraph run --executor ray``: its worker processes, killed for real.

The graph puts the pid of its process into each result. Whatever is waited for is waited for by
reading the records, or by the end of a process; nothing here sleeps for a guessed time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

GRAPH = f"{Path(__file__).resolve().parents[1] / 'programs' / 'graphs.py'}:placed"
# Seconds: far more than anything takes on a busy machine.
DEADLINE = 90.0
# Seconds for processes whose parent was killed to notice that.
LEFT_FOR = 30.0


class workers:
    """The library; a new one for each test."""

    ROBOT_LIBRARY_SCOPE = "TEST"

    def __init__(self) -> None:
        self._folder = Path()  # made by the first run: Robot makes a library more than it uses
        self._process: subprocess.Popen[bytes] | None = None
        self._pids: set[int] = set()  # of workers that have answered something
        self._killed: set[int] = set()

    @property
    def _output(self) -> Path:
        return self._folder / "out.jsonl"

    def begin_a_run(self, lines: int, *options: str) -> None:
        """Start the command on so many numbers, with two workers."""
        if self._process is None:
            self._folder = Path(tempfile.mkdtemp(prefix="rb-"))
        numbers = (json.dumps({"n": n}) for n in range(int(lines)))
        (self._folder / "in.jsonl").write_text("\n".join(numbers) + "\n")
        command = (sys.executable, "-m", "rxlanggraph", "run", GRAPH, "-i", "in.jsonl")
        placing = ("-o", "out.jsonl", "--executor", "ray", "--workers", "2", "-j", "64")
        # In Ray's folder below this one.
        environment = {**os.environ, "TMPDIR": str(self._folder)}
        self._errors = open(self._folder / "err", "wb")  # noqa: SIM115 - closed at the end
        self._process = subprocess.Popen(
            [*command, *placing, *options],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )

    def _record(self, number: int) -> dict[str, Any]:
        """Wait for the record of that number, in the order of the output."""
        until, pause = monotonic() + DEADLINE, threading.Event()
        while True:
            with contextlib.suppress(FileNotFoundError):
                records = self._output.read_bytes().split(b"\n")[:-1]
                if len(records) >= number:
                    return json.loads(records[number - 1])
            assert self._process is not None
            assert self._process.poll() is None, f"it has ended: {self._said()}"
            assert monotonic() < until, f"no record {number}: {self._said()}"
            pause.wait(0.002)  # until the file has grown, of which nothing tells

    def kill_the_worker_of_the_record(self, number: int) -> None:
        """Kill the process that the record of that number comes from, or another one if it did."""
        number = int(number)
        while (pid := self._record(number)["content"]["pid"]) in self._killed:
            number += 1
        os.kill(pid, signal.SIGKILL)
        self._killed.add(pid)

    def kill_the_command_after_the_record(self, number: int) -> None:
        self._record(int(number))
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE)

    def send_sigterm_after_the_record(self, number: int) -> None:
        self._record(int(number))
        assert self._process is not None
        self._process.terminate()

    def it_ends_with_status(self, status: int) -> None:
        assert self._process is not None
        ended = self._process.wait(DEADLINE)
        assert ended == int(status), f"{ended}: {self._said()}"
        assert "Traceback" not in self._said(), self._said()

    def _said(self) -> str:
        return (self._folder / "err").read_text(errors="replace")[-3000:]

    def _records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._output.read_text().splitlines()]

    def each_line_is_answered_once(self, lines: int) -> None:
        records = self._records()
        wrong = [record for record in records if record["status"] != "ok"]
        assert not wrong, f"{len(wrong)} are not ok, the first: {wrong[0]}"
        counted = Counter(record["line"] for record in records)
        assert counted == Counter(range(1, int(lines) + 1)), "not each line, or not once"
        for record in records:
            assert record["content"]["n"] == record["line"] - 1, record

    def each_record_is_ok(self) -> None:
        records = self._records()
        assert records, "there are none"
        assert {record["status"] for record in records} == {"ok"}, self._said()

    def the_records_come_from_at_least(self, count: int, _: str) -> None:
        pids = {record["content"]["pid"] for record in self._records()}
        assert len(pids) >= int(count), pids

    def no_worker_is_left(self) -> None:
        """Wait until no process of Ray's is there that could run the graph."""
        until, pause = monotonic() + LEFT_FOR, threading.Event()
        while left := [name for name in self._of_ray().values() if "Agent" not in name]:
            assert monotonic() < until, left
            pause.wait(0.05)

    def _of_ray(self) -> dict[int, str]:
        """The processes whose environment has this folder: the command's, and all below."""
        found = {}
        mark = f"TMPDIR={self._folder}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        name = (entry / "cmdline").read_text().replace("\0", " ").strip()
                        found[int(entry.name)] = name
        return {pid: name for pid, name in found.items() if name}

    def end_what_is_left(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(DEADLINE)
        if self._process is None:  # no run has begun
            return
        self._errors.close()
        until, pause = monotonic() + LEFT_FOR, threading.Event()
        while (left := self._of_ray()) and monotonic() < until:
            for pid in left:  # agents of a killed node, which look for it for a minute
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pause.wait(0.05)  # until they write no more files
        shutil.rmtree(self._folder, ignore_errors=True)
