"""Steps are found by how they begin, before Behave looks at the whole.

Behave tries the patterns of all steps, thousands of regular expressions, on each step of a
scenario, and on each definition of a step, so that none is ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from behave.matchers import Match, ParseMatcher

__all__ = ["ByBeginning"]


class ByBeginning(ParseMatcher):
    """Behave's own matcher, which is asked only about a step that begins as its pattern does."""

    NAME = "by_beginning"

    def __init__(
        self, func: Callable[..., Any], pattern: str, step_type: str | None = None
    ) -> None:
        super().__init__(func, pattern, step_type)
        self._beginning = pattern.partition("{")[0]

    def match(self, step_text: str) -> Match | None:
        if not step_text.startswith(self._beginning):
            return None
        return super().match(step_text)
