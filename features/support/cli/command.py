"""Running `rxlanggraph`: in this process, or in one of its own where the process is the point."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Any
from unittest import mock

from rxlanggraph.cli import main

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "rxlanggraph")
# Seconds: a hang. On a busy machine an interpreter may take a minute to import the package.
DEADLINE = 150


@dataclass
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str
    seconds: float = 0.0

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


class FailingInput(io.BytesIO):
    """Standard input whose medium breaks behind what it holds."""

    def readline(self, size: int | None = -1, /) -> bytes:
        if line := super().readline(size):
            return line
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def arguments(line: str) -> list[str]:
    program, *rest = shlex.split(line)
    assert program == "rxlanggraph"
    return rest


def run_here(
    line: str, folder: Path, stdin: io.BytesIO, below: str = ".", encoding: str = "utf-8"
) -> Ended:
    """Run the command line in this process, in ``folder``, or in one ``below``."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2)]
    out, err = streams
    started = monotonic()
    with (
        as_if_new(folder),
        contextlib.chdir(folder / below),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        before, sys.stdin = sys.stdin, io.TextIOWrapper(stdin, "utf-8")
        try:
            status = main(arguments(line))
        finally:
            with contextlib.suppress(ValueError):  # the command may have closed it
                sys.stdin.detach()  # or it would be closed, and gone for the next command
            sys.stdin = before
    texts = [stream.buffer.getvalue().decode(encoding) for stream in streams]
    return Ended(status, *texts, seconds=monotonic() - started)


@contextlib.contextmanager
def as_if_new(folder: Path) -> Iterator[None]:
    """Be in ``folder``, and forget afterwards what was imported, and set, from there."""
    path, modules = list(sys.path), set(sys.modules)
    with contextlib.chdir(folder), mock.patch.dict(os.environ):
        try:
            yield
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]


@contextlib.contextmanager
def imported(name: str, module: ModuleType) -> Iterator[None]:
    """Have ``module`` importable as ``name``: LangGraph looks for annotations there."""
    sys.modules[name] = module
    try:
        yield
    finally:
        del sys.modules[name]


def environment(*, measured: bool = False) -> dict[str, str]:
    """What a command in a process of its own finds: this interpreter's paths.

    Its coverage is not measured, which takes longer than anything else that it does, but for
    programs with lines of their own. That of commands is measured by Robot, once.
    """
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    # As in the noxfile: users have buffers. Without one, Python loses the rest of a long line if
    # the process is stopped while a pipe has no room for it.
    found.pop("PYTHONUNBUFFERED", None)
    if measured:
        return found
    for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
        found.pop(name, None)
    return found


def run_python(*arguments: str, measured: bool = False) -> subprocess.CompletedProcess[str]:
    """Run an interpreter in a process of its own, with an empty standard input."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(measured=measured),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def run_apart(
    line: str,
    folder: Path,
    stdout: Any = subprocess.PIPE,
    stderr: Any = subprocess.PIPE,
    *,
    measured: bool = False,
) -> Ended:
    """Run the command line in a process of its own, with an empty standard input."""
    done = subprocess.run(
        [*COMMAND, *arguments(line)],
        cwd=folder,
        env=environment(measured=measured),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return Ended(done.returncode, done.stdout or "", done.stderr or "")


def run_on_terminal(line: str, folder: Path) -> Ended:
    """Run the command line with a terminal as its standard error."""
    controller, terminal = pty.openpty()
    try:
        with os.fdopen(terminal, "wb", buffering=0) as stderr:
            ended = run_apart(line, folder, stderr=stderr)
        ended.err = _read_all(controller)
    finally:
        os.close(controller)
    return ended


def _read_all(descriptor: int) -> str:
    text = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while part := os.read(descriptor, 65536):
            text += part
    return text.decode()


def run_without_room(line: str, folder: Path) -> Ended:
    """Run the command line in a process that can make no file any longer, as on a full disk."""
    limited = """trap '' XFSZ; ulimit -f 0; exec "$@" """
    ended = subprocess.run(
        ["sh", "-c", limited, "sh", *COMMAND, *arguments(line)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def run_into_closed_pipe(line: str, folder: Path) -> Ended:
    """Run the command line, read one line of its output, and close the pipe."""
    with subprocess.Popen(
        [*COMMAND, *arguments(line)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        return Ended(process.wait(DEADLINE), first, err)
