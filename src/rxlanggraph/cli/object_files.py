"""Reads a file that holds one object; an error names the file, the line and the column.

Whatever the format, the object is one of JSON: it is stored, compared and passed on as such.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rxlanggraph.cli.errors import CommandError

__all__ = ["read_json", "read_object"]


def read_object(file: str, error: type[CommandError], remedy: str) -> dict[str, Any]:
    """Return the object in ``file``: YAML or TOML by its suffix, or else JSON. Blocks as reading.

    Dates are text, as in JSON.

    Args:
        file: Its path.
        error: The class of the error to raise.
        remedy: What to do, for the message.

    Raises:
        CommandError: As ``error``: it cannot be read, is not of its format, or is not an object.
    """
    suffix = Path(file).suffix.lower()
    if suffix == ".toml":
        return _read(file, "TOML", error, remedy)
    return _read(file, "YAML" if suffix in {".yaml", ".yml"} else "JSON", error, remedy)


def read_json(file: str, error: type[CommandError], remedy: str) -> dict[str, Any]:
    """Return the object in a file of JSON, whatever its suffix; see `read_object`."""
    return _read(file, "JSON", error, remedy)


def _read(file: str, kind: str, error: type[CommandError], remedy: str) -> dict[str, Any]:
    try:
        contents = _PARSERS[kind](Path(file).read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        raise error(f"{_place(file, kind, problem)}; {remedy}") from problem
    if not isinstance(contents, dict):
        raise error(f"{file} is {kind}, but not an object; {remedy}")
    return contents


def _from_toml(data: bytes) -> Any:
    return json.loads(json.dumps(tomllib.loads(data.decode("utf-8-sig")), default=str))


def _from_yaml(data: bytes) -> Any:
    from rxlanggraph.cli.yaml_object import parse_yaml  # noqa: PLC0415 - few commands need YAML

    return parse_yaml(data)


_PARSERS: dict[str, Callable[[bytes], Any]] = {
    "JSON": json.loads,
    "TOML": _from_toml,
    "YAML": _from_yaml,
}


def _place(file: str, kind: str, problem: Exception) -> str:
    if isinstance(problem, OSError):
        return f"cannot read {file}: {problem.strerror or problem}"
    if isinstance(problem, json.JSONDecodeError):
        return f"{file}, line {problem.lineno}, column {problem.colno}, is not JSON: {problem.msg}"
    return f"{file} is not {kind}: {problem}"
