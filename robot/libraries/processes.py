"""Keywords for real processes: start, feed, listen, signal, see them end.

Whatever is waited for is waited for by reading what the process writes, up to a deadline. Nothing
here sleeps. The keywords are about the process that was started last, "it".

A process is the leader of a process group of its own, so that a test finds out whether anything
that it started is left. It ends by itself wherever possible: only then is its coverage written.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO

from robot.api import logger

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
DEADLINE = float(os.environ.get("RXLANGGRAPH_ROBOT_DEADLINE", "90"))
"""Seconds until a test gives up: far more than anything takes on a busy machine."""

# Tracebacks, asyncio's and the interpreter's own complaints. A record may well hold such words:
# only what is on standard error counts.
_COMPLAINT = re.compile(r"Traceback|never awaited|was destroyed|Exception ignored|never retrieved")


class Stream:
    """What a process has written so far to one descriptor, read by a thread of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Guards the two below, and tells of their changes.
        self._changed = threading.Condition()
        self._data = b""
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="robot-reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: a terminal that is closed
            while part := os.read(self._descriptor, 65536):
                with self._changed:
                    self._data += part
                    self._changed.notify_all()
        os.close(self._descriptor)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def text(self) -> str:
        with self._changed:
            return self._data.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, pattern: str, times: int, deadline: float) -> str:
        """Return the whole lines that match, once there are so many; fail where none can come."""
        with self._changed:
            while len(found := self._matches(pattern)) < times and not self._ended:
                left = deadline - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
        if len(found) < times:
            why = "it ended" if self._ended else "the deadline is over"
            raise AssertionError(
                f"{pattern!r} was to come {times} times, came {len(found)} times, and {why}; "
                f"it has written:\n{self.text()}"
            )
        return found[times - 1]

    def _matches(self, pattern: str) -> list[str]:
        *lines, _unfinished = self._data.decode(errors="replace").split("\n")
        return [line for line in lines if re.search(pattern, line)]

    def wait_for_end(self, deadline: float) -> None:
        self._reader.join(max(0.0, deadline - monotonic()))
        if self._reader.is_alive():
            raise AssertionError("it has ended, but another process still holds its output open")


class Running:
    """A process, and what it has written."""

    def __init__(self, popen: subprocess.Popen[bytes], line: str) -> None:
        self.popen = popen
        self.line = line
        self.stdin: BinaryIO | None = popen.stdin  # type: ignore[assignment]
        self.unread: int | None = None  # a standard output that is read only when a test says so
        self.out: Stream | None = None
        self.err: Stream | None = None
        self.terminal: int | None = None

    def close(self) -> None:
        if self.stdin is not None:
            with contextlib.suppress(OSError):
                self.stdin.close()
        for descriptor in (self.unread, self.terminal):
            if descriptor is not None:
                os.close(descriptor)
        self.unread = self.terminal = None


class processes:
    """The library; a new one for each test."""

    ROBOT_LIBRARY_SCOPE = "TEST"

    def __init__(self) -> None:
        self._all: list[Running] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._gate: int | None = None

    # -- where ---------------------------------------------------------------------------------

    def make_a_folder(self) -> str:
        """Make an empty folder; what is started from now on runs there."""
        self._folder = tempfile.TemporaryDirectory(prefix="rxlanggraph-robot-")
        return self._folder.name

    def in_the_folder(self, name: str) -> str:
        assert self._folder is not None
        return str(Path(self._folder.name, name))

    def file_holds(self, name: str, *lines: str) -> None:
        Path(self.in_the_folder(name)).write_text("".join(f"{line}\n" for line in lines))

    def file_holds_numbers(self, name: str, count: int) -> None:
        """Write so many lines ``{"n": 1}``, ``{"n": 2}`` and so on."""
        self.file_holds(name, *(f'{{"n": {n}}}' for n in range(1, count + 1)))

    def make_a_gate(self) -> None:
        """Make the gate before which the graph ``gated`` waits."""
        path = self.in_the_folder("gate")
        os.mkfifo(path)
        self._gate = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def open_the_gate(self) -> None:
        assert self._gate is not None
        os.write(self._gate, b"open")

    # -- starting ------------------------------------------------------------------------------

    def start_program(
        self, name: str, *arguments: str, reads: bool = True, measured: bool = True
    ) -> Running:
        """Start one of the small programs beside these suites.

        With ``measured=False`` without coverage, which slows down imports, and what works hard.
        """
        line = [sys.executable, str(PROGRAMS / name), *arguments]
        return self._start(line, reads=reads, measured=measured)

    def start_command(
        self,
        *arguments: str,
        reads: bool = True,
        cwd: str | None = None,
        measured: bool = True,
    ) -> Running:
        """Start ``rxlanggraph`` with a pipe as its standard input, which stays open.

        With ``reads=False`` its standard output is not read until the test says so; with
        ``measured=False`` it is without coverage.
        """
        return self._start([*_command(), *arguments], reads=reads, cwd=cwd, measured=measured)

    def start_on_a_terminal(self, *arguments: str) -> Running:
        """Start ``rxlanggraph`` with a terminal of its own as standard input and error."""
        controller, terminal = pty.openpty()
        onto = [sys.executable, str(PROGRAMS / "on_terminal.py"), str(terminal)]
        try:
            return self._start([*onto, *_command(), *arguments], terminal=(controller, terminal))
        finally:
            os.close(terminal)

    def start_shell(self, line: str) -> Running:
        """Start a line of bash, in which ``rxlanggraph`` is the command; its standard input is
        empty, and a pipeline fails with its first command that does.
        """
        script = f'set -o pipefail\nrxlanggraph() {{ {shlex.join(_command())} "$@"; }}\n{line}'
        return self._start(["bash", "-c", script], stdin=subprocess.DEVNULL)

    def _start(
        self,
        line: list[str],
        *,
        reads: bool = True,
        cwd: str | None = None,
        stdin: int = subprocess.PIPE,
        terminal: tuple[int, int] | None = None,
        measured: bool = True,
    ) -> Running:
        popen = subprocess.Popen(
            line,
            bufsize=0,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or (self._folder.name if self._folder else None),
            env=_environment(measured=measured),
            start_new_session=True,
            pass_fds=() if terminal is None else (terminal[1],),
        )
        it = Running(popen, shlex.join(line))
        self._all.append(it)
        assert popen.stdout is not None and popen.stderr is not None
        if reads:
            it.out = Stream(os.dup(popen.stdout.fileno()))
        else:
            it.unread = os.dup(popen.stdout.fileno())
        if terminal is None:
            it.err = Stream(os.dup(popen.stderr.fileno()))
        else:
            it.terminal = os.dup(terminal[0])
            it.err = Stream(os.dup(terminal[0]))
            os.close(terminal[0])
        popen.stdout.close()
        popen.stderr.close()
        logger.info(f"pid {popen.pid}: {it.line}")
        return it

    @property
    def _it(self) -> Running:
        return self._all[-1]

    def turn_to(self, running: Running) -> None:
        """Have the keywords be about a process that was started before."""
        self._all.remove(running)
        self._all.append(running)

    # -- talking to it ---------------------------------------------------------------------------

    def send_lines(self, *lines: str) -> None:
        stdin = self._it.stdin
        assert stdin is not None
        left = "".join(f"{line}\n" for line in lines).encode()
        while left:  # a process that is stopped and goes on may have written a part
            left = left[stdin.write(left) :]

    def send_numbers(self, first: int, last: int) -> None:
        self.send_lines(*(f'{{"n": {n}}}' for n in range(first, last + 1)))

    def end_its_input(self) -> None:
        stdin = self._it.stdin
        assert stdin is not None
        stdin.close()

    def send_signal(self, name: str) -> None:
        """Send a signal to it alone, for example SIGINT."""
        self._it.popen.send_signal(getattr(signal, name))

    def type_on_its_terminal(self, character: str) -> None:
        """Type a character; CTRL-C sends SIGINT to everything that runs on the terminal."""
        terminal = self._it.terminal
        assert terminal is not None
        os.write(terminal, b"\x03" if character == "CTRL-C" else character.encode())

    def wait_until_it_says(self, pattern: str, times: int = 1) -> str:
        """Wait for lines on its standard error; returns the last of them."""
        assert self._it.err is not None
        return self._it.err.wait_for(pattern, times, monotonic() + DEADLINE)

    def wait_until_it_prints(self, pattern: str, times: int = 1) -> str:
        """Wait for lines on its standard output; returns the last of them."""
        assert self._it.out is not None
        return self._it.out.wait_for(pattern, times, monotonic() + DEADLINE)

    def read_one_line_of_its_output(self) -> str:
        """Read from an output that is read only on demand."""
        unread = self._it.unread
        assert unread is not None
        line = b""
        deadline = monotonic() + DEADLINE
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([unread], [], [], max(0.0, deadline - monotonic()))
            assert ready, f"no whole line came in time, only {line!r}"
            byte = os.read(unread, 1)
            assert byte, f"its output ended within the line {line!r}"
            line += byte
        return line.decode()

    def read_the_rest_of_its_output(self) -> None:
        it = self._it
        assert it.unread is not None
        it.out, it.unread = Stream(it.unread), None

    def stop_reading_its_output(self) -> None:
        """Close the pipe that it writes to."""
        it = self._it
        assert it.unread is not None
        os.close(it.unread)
        it.unread = None

    # -- its end -------------------------------------------------------------------------------

    def it_ends_with_status(self, status: int, within: float = DEADLINE) -> None:
        """Wait for its end; a negative status is the signal that ended it."""
        actual = self._wait(within)
        if actual != status:
            raise AssertionError(
                f"it ended with status {actual} instead of {status}\n{self.what_it_said()}"
            )

    def it_has_ended(self) -> int:
        """Wait for its end, whatever the status, and return that."""
        return self._wait(DEADLINE)

    def _wait(self, seconds: float) -> int:
        it = self._it
        deadline = monotonic() + seconds
        try:
            status = it.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"it has not ended within {seconds:g} s\n{self.what_it_said()}"
            ) from None
        for stream in (it.out, it.err):
            if stream is not None:
                stream.wait_for_end(max(deadline, monotonic() + 5))
        return status

    def what_it_said(self) -> str:
        """Return its standard error so far."""
        return "" if self._it.err is None else self._it.err.text()

    def what_it_printed(self) -> str:
        """Return its standard output so far."""
        return "" if self._it.out is None else self._it.out.text()

    def what_it_printed_as_json(self) -> Any:
        """Return the last line of its standard output, which is JSON."""
        return json.loads(self.what_it_printed().splitlines()[-1])

    def it_said(self, *texts: str) -> None:
        said = self.what_it_said()
        for text in texts:
            assert text in said, f"{text!r} is not in what it said:\n{said}"

    def it_did_not_say(self, text: str) -> None:
        said = self.what_it_said()
        assert text not in said, f"{text!r} is in what it said:\n{said}"

    def it_said_nothing(self) -> None:
        said = self.what_it_said()
        assert not said, f"it said:\n{said}"

    def it_complained_of_nothing(self) -> None:
        """Neither a traceback nor asyncio's or the interpreter's own complaints."""
        said = self.what_it_said()
        found = _COMPLAINT.search(said)
        assert found is None, f"it complained: {found and found[0]!r} in\n{said}"

    def no_process_is_left(self) -> None:
        """For teardowns: whatever was started in the test has ended, and what that started too.

        What has not is killed, and the test fails.
        """
        left = [it.line for it in self._all if not _has_ended(it)]
        for it in self._all:
            it.close()
        if self._gate is not None:
            os.close(self._gate)
        if self._folder is not None:
            self._folder.cleanup()
        assert not left, "still running at the end of the test:\n" + "\n".join(left)


def _command() -> list[str]:
    return [sys.executable, "-m", "rxlanggraph"]


def _environment(*, measured: bool = True) -> dict[str, str]:
    """That of the tests: the paths of this interpreter, absolute, and coverage's variables."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    left_out = () if measured else ("COVERAGE_PROCESS_CONFIG",)
    return {
        **{name: value for name, value in os.environ.items() if name not in left_out},
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in paths if path),
    }


def _has_ended(it: Running) -> bool:
    """Whether it and everything that it started have ended; ends them otherwise."""
    ended = it.popen.poll() is not None
    try:
        os.killpg(it.popen.pid, signal.SIGKILL)
    except ProcessLookupError:
        return ended
    if not ended:
        it.popen.wait(DEADLINE)
    return False
