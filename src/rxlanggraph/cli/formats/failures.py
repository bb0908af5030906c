"""The record of an exception: its class, its text, the node that raised it, its traceback.

Everything here is a pure function, for any thread.
"""

from __future__ import annotations

import re
import traceback
from typing import Any

from rxlanggraph.errors import encodable, error_text

__all__ = ["failure_of", "node_of"]

# LangGraph's own note on an exception that leaves a node; that of a subgraph comes first.
_NOTE = re.compile(r"During task with name '(.*)' and id '", re.DOTALL)


def failure_of(error: BaseException, *, tracebacks: bool = False) -> dict[str, Any]:
    """Return an exception as plain data: type, message, node, and its traceback if wanted."""
    failure = {
        "type": type(error).__name__,
        "message": error_text(error),
        "node": node_of(error),
    }
    if tracebacks:
        failure["traceback"] = _traceback_of(error)
    return failure


def node_of(error: BaseException) -> str | None:
    """Return the node that raised ``error``; None if no node did.

    In a subgraph, after the nodes that called it, as in LangGraph's namespaces: ``outer|inner``.
    """
    notes = getattr(error, "__notes__", None)
    found = [
        match[1]
        for note in reversed(notes if isinstance(notes, list) else [])
        if isinstance(note, str) and (match := _NOTE.match(note))
    ]
    # An exception that is raised again and again has the notes of each time.
    return encodable("|".join(dict.fromkeys(found))) if found else None


def _traceback_of(error: BaseException) -> str:
    try:
        return encodable("".join(traceback.format_exception(error)))
    except Exception as second:  # of a user's exception that cannot be shown
        return f"(its traceback cannot be shown: {type(second).__name__})"
