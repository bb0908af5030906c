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
        name, state, _parent = _stat(str(pid))
        arguments = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}", ""
    # An ended child that was not waited for has lost its arguments, but not its name.
    command = b" ".join(arguments).strip() or name
    ended = ", ended but never waited for" if state == b"Z" else ""
    return command.decode(errors="replace"), f"pid {pid}{ended}"


def _pids_of_kernel() -> Iterator[int]:
    this = b"%d" % os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - a Path for each of hundreds takes long
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended since
                _name, _state, parent = _stat(name)
                if parent == this:
                    yield int(name)


def _stat(pid: str) -> tuple[bytes, bytes, bytes]:
    """Name, state and parent; proc(5) says how: the name may hold blanks and parentheses."""
    with open(f"{_PROC}/{pid}/stat", "rb", buffering=0) as file:
        head, _, tail = file.read().rpartition(b")")
    state, parent = tail.split(maxsplit=2)[:2]
    return head.partition(b"(")[2], state, parent


def _pids_of_libraries() -> Iterator[int]:
    yield from (child.pid for child in multiprocessing.active_children() if child.pid)
    for thing in gc.get_objects():
        if issubclass(type(thing), subprocess.Popen) and thing.returncode is None:
            yield thing.pid
