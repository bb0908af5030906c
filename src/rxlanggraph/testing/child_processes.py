"""The child processes of this process: for `rxlanggraph.testing`."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["describe", "pids"]

_PROC = Path("/proc")


def pids() -> tuple[int, ...]:
    """The pid of each child that has not been waited for, ended or not. Any thread; never blocks.

    Linux knows them all. Elsewhere they are those of ``subprocess``, ``asyncio`` and
    ``multiprocessing``; the ended ones of ``multiprocessing`` are reaped by looking.
    """
    # Not /proc/self/task/*/children, which is an option of the kernel that many leave out.
    return tuple(_pids_of_kernel() if (_PROC / "self/stat").exists() else _pids_of_libraries())


def describe(pid: int) -> tuple[str, str]:
    """Command line (or only the pid, where that cannot be known) and state of a child."""
    try:
        name, state, _parent = _stat(_PROC / str(pid))
        arguments = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}", ""
    # An ended child that was not waited for has lost its arguments, but not its name.
    command = b" ".join(arguments).decode(errors="replace").strip() or name
    return command, f"pid {pid}" + (", ended but never waited for" if state == "Z" else "")


def _pids_of_kernel() -> Iterator[int]:
    for process in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended since
            _name, _state, parent = _stat(process)
            if parent == os.getpid():
                yield int(process.name)


def _stat(process: Path) -> tuple[str, str, int]:
    """Name, state and parent; proc(5) says how: the name may hold blanks and parentheses."""
    text = (process / "stat").read_text(encoding="utf-8", errors="replace")
    head, _, tail = text.rpartition(")")
    state, parent = tail.split()[:2]
    return head.partition("(")[2], state, int(parent)


def _pids_of_libraries() -> Iterator[int]:
    yield from (child.pid for child in multiprocessing.active_children() if child.pid)
    for thing in gc.get_objects():
        if issubclass(type(thing), subprocess.Popen) and thing.returncode is None:
            yield thing.pid
