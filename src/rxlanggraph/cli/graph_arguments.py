"""``--context`` and ``--config``: LangGraph's own arguments of every run, from text and files."""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rxlanggraph.bridge.graphs.adapters import adapt_graph
from rxlanggraph.cli.errors import ArgumentError
from rxlanggraph.cli.object_files import read_object
from rxlanggraph.errors import InvalidArgumentError, error_text

__all__ = ["check_context", "parse_context", "read_config"]

_PAIR = re.compile(r"(?P<key>[^\W\d]\w*)=(?P<value>.*)", re.DOTALL)
_EXAMPLE = 'write an object, such as {"tags": ["nightly"], "configurable": {"model": "small"}}'
_CONTEXT = "give --context KEY=VALUE, or a file of JSON, YAML or TOML"
# What a RunnableConfig has that can be written in a file. Its run_id would be that of every run.
_CONFIG: Mapping[str, tuple[type, str]] = {
    "tags": (list, "a list of strings"),
    "metadata": (dict, "an object"),
    "run_name": (str, "a string"),
    "max_concurrency": (int, "a whole number"),
    "recursion_limit": (int, "a whole number"),
    "configurable": (dict, "an object"),
}


def read_config(file: str | None) -> dict[str, Any] | None:
    """Return the RunnableConfig in a file; None for None. Blocks as reading does.

    Raises:
        ArgumentError: It cannot be read, or is not a RunnableConfig.
    """
    if file is None:
        return None
    config = read_object(file, ArgumentError, _EXAMPLE)
    for key, value in config.items():
        if key not in _CONFIG:
            near = difflib.get_close_matches(key, _CONFIG, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it may have {', '.join(_CONFIG)}"
            raise ArgumentError(f"{file}: {key!r} is not part of a config; {hint}")
        kind, name = _CONFIG[key]
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (key == "tags" and not all(isinstance(tag, str) for tag in value)):
            raise ArgumentError(f"{file}: {key} is {value!r}; it must be {name}")
    return config


def parse_context(given: Iterable[str]) -> dict[str, Any] | None:
    """Return the context that ``KEY=VALUE`` and files make up, in this order; None for nothing.

    A value is JSON, or else text. Blocks as reading does.

    Raises:
        ArgumentError: A file cannot be read, or does not hold an object.
    """
    context: dict[str, Any] | None = None
    for each in given:
        pair = _PAIR.fullmatch(each)
        if pair is None:
            more = read_object(each, ArgumentError, _CONTEXT)
        else:
            more = {pair["key"]: _value(pair["value"])}
        context = {**(context or {}), **more}
    return context


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def check_context(graph: Any, context: Mapping[str, Any] | None) -> None:
    """Check that ``context`` can be passed to ``graph``, and fits its ``context_schema``.

    LangGraph makes an instance of that schema for every run, so every line would fail.

    Raises:
        ArgumentError: It cannot be passed, or does not fit.
    """
    if context is None:
        return
    try:
        adapt_graph(graph).check({"context": context})
    except InvalidArgumentError as error:
        raise ArgumentError(f"--context: {error}") from error
    schema = getattr(graph, "context_schema", None)
    if not isinstance(schema, type):
        return
    problem = None
    if dataclasses.is_dataclass(schema) or hasattr(schema, "model_validate"):
        try:
            schema(**context)
        except Exception as error:
            problem = " ".join(error_text(error).split())
    else:  # a TypedDict, which checks nothing itself
        missing = sorted(getattr(schema, "__required_keys__", set()) - context.keys())
        problem = f"it lacks {', '.join(missing)}" if missing else None
    if problem is not None:
        raise ArgumentError(
            f"--context does not fit the graph's context_schema, {schema.__name__}: {problem}; "
            "give what the schema requires"
        )
