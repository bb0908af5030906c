"""The record of an exception: its class, its text, the node that raised it, its traceback.

Everything here is a pure function, for any thread.
"""

from __future__ import annotations

import traceback
from typing import Any

from rxlanggraph.errors import encodable, error_text, node_of

__all__ = ["exception_record"]


def exception_record(error: BaseException, *, tracebacks: bool = False) -> dict[str, Any]:
    """Return an exception as plain data: type, message, node, and its traceback if wanted."""
    failure = {
        "type": type(error).__name__,
        "message": error_text(error),
        "node": node_of(error),
    }
    if tracebacks:
        failure["traceback"] = _traceback_of(error)
    return failure


def _traceback_of(error: BaseException) -> str:
    try:
        return encodable("".join(traceback.format_exception(error)))
    except Exception as second:  # of a user's exception that cannot be shown
        return f"(its traceback cannot be shown: {type(second).__name__})"
