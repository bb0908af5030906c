"""What the traceback of a failed run's exception would keep alive.

A traceback holds the frames that the exception passed through, and those their locals: ours the
run, whose future holds the exception; LangGraph's the task, whose writes do. That is a reference
cycle for each failed run, which only the cyclic collector would find, with the message and the
graph in it.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TypeVar

__all__ = ["without_machinery"]

_E = TypeVar("_E", bound=BaseException)
# Packages between the loop and a node: of these, the first are left out of tracebacks.
_OURS = ("rxlanggraph", "tenacity", "concurrent")
_MACHINERY = (*_OURS, "langgraph", "langchain_core")


def without_machinery(error: _E) -> _E:
    """Return ``error`` itself, without our frames on top, and without the locals of LangGraph's.

    On the loop, where it was caught. It stops at the first frame of other code, whose locals stay
    for debuggers: all frames up to there have ended, as the exception passed through them. Frames
    below it may be another run's, where several runs raise the same exception object.
    """
    traceback = error.__traceback__
    while traceback is not None and _package(traceback) in _OURS:
        traceback = traceback.tb_next
    error.__traceback__ = traceback
    while traceback is not None and _package(traceback) in _MACHINERY:
        with contextlib.suppress(RuntimeError):  # a thread of another executor is just leaving it
            traceback.tb_frame.clear()
        traceback = traceback.tb_next
    return error


def _package(traceback: TracebackType) -> str:
    return str(traceback.tb_frame.f_globals.get("__name__")).partition(".")[0]
