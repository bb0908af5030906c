"""Listing the child processes of this process, for `rxlanggraph.testing`."""

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
    """Return the pid of each child that was not waited for, ended or not. Any thread; never blocks.

    On Linux these are all children, read from /proc. Elsewhere they are those of ``subprocess``,
    ``asyncio`` and ``multiprocessing``; ended ones of ``multiprocessing`` are reaped by this call.
    """
    # Not /proc/self/task/*/children, which depends on an option that many kernels lack.
    return tuple(_pids_of_kernel() if (_PROC / "self/stat").exists() else _pids_of_libraries())


def describe(pid: int) -> tuple[str, str]:
    """Return command line (or only the pid, if that cannot be read) and state of a child."""
    try:
        name, state, _parent = _stat(str(pid))
        arguments = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"pid {pid}", ""
    # An ended child that was not waited for has no arguments any more, but still its name.
    command = b" ".join(arguments).strip() or name
    ended = ", ended but never waited for" if state == b"Z" else ""
    return command.decode(errors="replace"), f"pid {pid}{ended}"


def _pids_of_kernel() -> Iterator[int]:
    this = b"%d" % os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - faster than making a Path for each process
        if name.isdigit():
            with contextlib.suppress(OSError):  # it has ended since
                _name, _state, parent = _stat(name)
                if parent == this:
                    yield int(name)


def _stat(pid: str) -> tuple[bytes, bytes, bytes]:
    """Return name, state and parent (proc(5)); the name may contain blanks and parentheses."""
    with open(f"{_PROC}/{pid}/stat", "rb", buffering=0) as file:
        head, _, tail = file.read().rpartition(b")")
    state, parent = tail.split(maxsplit=2)[:2]
    return head.partition(b"(")[2], state, parent


def _pids_of_libraries() -> Iterator[int]:
    yield from (child.pid for child in multiprocessing.active_children() if child.pid)
    for each in gc.get_objects():
        if issubclass(type(each), subprocess.Popen) and each.returncode is None:
            yield each.pid
