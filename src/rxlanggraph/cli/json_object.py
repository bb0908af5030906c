"""Reads a file that holds one JSON object; an error names the file, the line and the column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rxlanggraph.cli.errors import CommandError

__all__ = ["read_object"]


def read_object(file: str, error: type[CommandError], remedy: str) -> dict[str, Any]:
    """Return the object in ``file``. Blocks as reading does.

    Args:
        file: Its path.
        error: The class of the error to raise.
        remedy: What to do, for the message.

    Raises:
        CommandError: As ``error``: it cannot be read, is not JSON, or is not an object.
    """
    try:
        contents = json.loads(Path(file).read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{_place(file, problem)}; {remedy}") from problem
    if not isinstance(contents, dict):
        raise error(f"{file} is JSON, but not an object; {remedy}")
    return contents


def _place(file: str, problem: Exception) -> str:
    if isinstance(problem, OSError):
        return f"cannot read {file}: {problem.strerror or problem}"
    if isinstance(problem, json.JSONDecodeError):
        return f"{file}, line {problem.lineno}, column {problem.colno}, is not JSON: {problem.msg}"
    return f"{file} is not JSON: {problem}"
