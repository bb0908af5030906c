"""The failures of a run, grouped by what they have in common.

Messages differ in numbers, ids and times that do not matter. These are replaced, so that a thousand
failures of one kind are one group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FIRST_LINES", "FailureGroup", "FailureGroups", "normalized"]

FIRST_LINES = 5
"""How many lines of a group are named."""
_MAX_GROUPS = 10_000
# In this order: a time has numbers in it, and so has an id.
_REPLACED = (
    (
        re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"),
        "<time>",
    ),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<id>"),
    # Hexadecimal, or letters and digits mixed: words that are that long have hardly a digit.
    (re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\b(?=\w*\d\w*\d)(?=\w*[A-Za-z])\w{16,}\b"), "<id>"),
    (re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)"), "<n>"),
)


def normalized(message: str) -> str:
    """Return ``message`` on one line, with ``<n>``, ``<id>`` and ``<time>`` for what varies."""
    text = " ".join(message.split())
    for pattern, name in _REPLACED:
        text = pattern.sub(name, text)
    return text


@dataclass(slots=True)
class FailureGroup:
    """Failures of one kind.

    Attributes:
        status: The status of their lines.
        type: The class of the exception; empty for a line that waits for an answer.
        node: The node that raised it; None if no node did.
        message: The message, normalized.
        example: The message of the first one.
        count: How many there are.
        lines: The numbers of the first ones.
    """

    status: str
    type: str
    node: str | None
    message: str
    example: str
    count: int = 0
    lines: list[int] = field(default_factory=list)


class FailureGroups:
    """Groups the failures among records; of ten thousand groups at most.

    Attributes:
        records: How many records there were.
        ungrouped: How many failures were of further groups.
    """

    def __init__(self) -> None:
        self.records = 0
        self.ungrouped = 0
        self._groups: dict[tuple[str, str, str | None, str], FailureGroup] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record.

        Raises:
            KeyError, TypeError, AttributeError: It is not a record.
        """
        line, status, error = record["line"], record["status"], record["error"]
        self.records += 1
        if status == "ok":
            return
        error = error or {"type": "", "message": "waits for an answer"}
        message, node = error["message"], error.get("node")
        key = (status, error["type"], node, normalized(message))
        if not all(isinstance(each, str) for each in (status, error["type"], node or "")):
            raise TypeError(f"{key} has something else than texts")
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= _MAX_GROUPS:
                self.ungrouped += 1
                return
            group = self._groups[key] = FailureGroup(*key, example=message)
        group.count += 1
        if len(group.lines) < FIRST_LINES:
            group.lines.append(line)

    def sorted(self) -> Iterable[FailureGroup]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: -group.count)
