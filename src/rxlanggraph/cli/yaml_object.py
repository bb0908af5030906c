"""Parses YAML that means what JSON can hold.

What breaks with PyYAML's own safe loader: a date becomes an object that no JSON of a record or a
checkpoint can hold, so each line fails; and a key such as ``on`` or ``1`` is not text.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import yaml

__all__ = ["parse_yaml"]

_PREFIX = "tag:yaml.org,2002:"
_OF_JSON = {_PREFIX + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
_MERGE = _PREFIX + "merge"  # "<<", which is resolved before anything is made of it


class _Loader(yaml.SafeLoader):
    # What would have another tag is text, or an error where the tag is written out.
    yaml_implicit_resolvers = {  # noqa: RUF012 - as PyYAML declares it
        first: [(tag, pattern) for tag, pattern in known if tag in {*_OF_JSON, _MERGE}]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag in _OF_JSON
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:  # of a number, which knows no place
            raise _error(str(error), node) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _error(
                    f"the key {key_node.value} is not text, but {key!r}: put it in quotes", key_node
                )
        return mapping


def _error(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def parse_yaml(data: bytes) -> Any:
    """Return what the one document in ``data`` means, in the types of JSON. Any thread.

    Raises:
        ValueError, RecursionError: It is not YAML, or JSON cannot hold it; the message of a
            ValueError names the line and the column.
    """
    try:
        return json.loads(json.dumps(yaml.load(data, _Loader)))  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        words = ": ".join(text for text in (error.context, error.problem) if text)
        raise ValueError(f"{words}{place}") from error
    except yaml.YAMLError as error:  # of bytes that are no text
        raise ValueError(" ".join(str(error).split())) from error
