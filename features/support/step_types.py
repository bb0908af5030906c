"""Types of what stands in braces in the words of steps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import parse

__all__ = ["one_of", "text", "times"]


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """One of these names: where one begins as another does, the longer one."""
    pattern = "|".join(sorted(map(re.escape, names), key=len, reverse=True))

    @parse.with_pattern(pattern)
    def name(found: str) -> str:
        return found

    return name


@parse.with_pattern(r'[^"]*')
def text(found: str) -> str:
    """Of any length: what stands in braces without a type is never empty."""
    return found


@parse.with_pattern(r"once|twice|\d+ times")
def times(found: str) -> int:
    return {"once": 1, "twice": 2}.get(found) or int(found.split(maxsplit=1)[0])
